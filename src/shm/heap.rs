//! Two first-fit heaps over offsets: the symmetric heap (one offset is valid in every slot's
//! stride) and the commons (blocks that belong to teams).
//!
//! ```text
//! ExtentTable   0        8      16                             64 KiB
//!               | lock   | pad  | extent 0 | ... | extent 4094 |
//! extent        offset: u64, len: u64 (0: unused)
//! ```
//! The state is a table of extents in the segment, guarded by a robust lock, in no order. An
//! extent counts as allocated once its `len` is non-zero, which is the last thing an allocation
//! stores and the first thing a free clears: a process killed anywhere in between leaves a
//! consistent table, and at worst an extent that nobody uses. So the next holder of the lock goes
//! on as if nothing had happened. The heap hands out numbers and touches no memory but its table.

use super::crash;
use super::lock::{LockEnv, QueueLock};
use super::map::round_up;
use super::region::SharedLayout;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Deadline, Error, Offset, Result};

/// Most allocations of one heap at a time.
pub const MAX_EXTENTS: usize = 4095;

/// Unit of lengths and alignments: a cache line, so that no two allocations share one.
pub const GRANULE: u64 = 64;

/// One allocation.
#[repr(C, align(16))]
pub struct Extent {
    offset: AtomicU64,
    len: AtomicU64,
}

/// The state of one heap. All zeros is an empty one.
#[repr(C, align(64))]
pub struct ExtentTable {
    lock: QueueLock,
    _pad: [AtomicU64; 1],
    extents: [Extent; MAX_EXTENTS],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Extent>() == 16);
    assert!(offset_of!(Extent, len) == 8);
    assert!(offset_of!(ExtentTable, extents) == 16);
    assert!(size_of::<ExtentTable>() == 64 << 10);
};

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for ExtentTable {}

/// What a scan of the table found.
struct Scan {
    /// Extents in use as (start, end), in ascending order.
    used: Vec<(u64, u64)>,
    /// An entry of the table that is not in use.
    vacant: Option<usize>,
}

/// A first-fit allocator over a table of extents. Offsets are relative to the area it manages.
#[derive(Clone, Copy)]
pub struct Heap<'a> {
    table: &'a ExtentTable,
    length: u64,
    what: &'static str,
}

impl<'a> Heap<'a> {
    /// The heap of an area of `length` bytes; `what` names it in messages. Every process must pass
    /// the same length.
    pub fn new(table: &'a ExtentTable, length: u64, what: &'static str) -> Heap<'a> {
        Heap { table, length, what }
    }

    /// Takes `len` bytes (rounded up to [`GRANULE`], at least one) at a multiple of `align`, a
    /// power of two, from the lowest gap they fit. The area itself must be aligned to `align`.
    ///
    /// Cost: the lock, a read of the table (64 KiB), a sort of what is in use; meant for windows,
    /// not for messages. Waits for the lock until `deadline`. Fails with [`Error::OutOfMemory`]
    /// when no gap is large enough, [`Error::Exhausted`] when the table is full.
    pub fn alloc<E: LockEnv>(
        &self,
        env: &E,
        len: u64,
        align: u64,
        deadline: Deadline,
    ) -> Result<Offset> {
        if !align.is_power_of_two() {
            let why = format!("{align} is not a power of two");
            return Err(Error::invalid("alignment of shared memory", why));
        }
        let align = align.max(GRANULE);
        let held = self.table.lock.acquire(env, deadline)?;
        // A dead holder needs no repair: the table is right at every moment.
        let outcome = self.alloc_locked(len, align);
        self.table.lock.release(env, held)?;
        outcome
    }

    fn alloc_locked(&self, len: u64, align: u64) -> Result<Offset> {
        let scan = self.scan()?;
        // What cannot even be rounded cannot fit either.
        let rounded = if len > self.length { len } else { round_up(len.max(1), GRANULE) };
        let (fit, largest) = first_fit(&scan.used, self.length, rounded, align);
        let Some(offset) = fit else {
            let in_use: u64 = scan.used.iter().map(|(start, end)| end - start).sum();
            return Err(Error::OutOfMemory {
                what: self.what.to_owned(),
                wanted: len,
                available: largest,
                limit: format!(
                    "the largest gap; {in_use} of {} bytes are in {} allocations",
                    self.length,
                    scan.used.len()
                ),
                advice: "free what is not needed, ask for less, or raise HITHER_HEAP_SIZE",
            });
        };
        let Some(vacant) = scan.vacant else {
            return Err(Error::Exhausted {
                what: "allocations of shared memory",
                limit: MAX_EXTENTS as u64,
                advice: "free some, or allocate fewer and larger ones",
            });
        };
        let extent = &self.table.extents[vacant];
        crash::point();
        extent.offset.store(offset, Ordering::Relaxed);
        crash::point();
        // Release: a scan that sees the length sees the offset, even after a kill right here.
        extent.len.store(rounded, Ordering::Release);
        crash::point();
        Ok(Offset(offset))
    }

    /// Gives an allocation back, and returns its length. Fails with [`Error::Misuse`] if there is
    /// none at `offset`. Waits for the lock until `deadline`.
    pub fn free<E: LockEnv>(&self, env: &E, offset: Offset, deadline: Deadline) -> Result<u64> {
        self.free_if(env, offset, deadline, || true).map(|(len, _)| len)
    }

    /// As [`Heap::free`] if `agreed`, which is called under the lock, says so. Returns the length
    /// of the allocation, and whether it was given back.
    pub fn free_if<E: LockEnv>(
        &self,
        env: &E,
        offset: Offset,
        deadline: Deadline,
        agreed: impl FnOnce() -> bool,
    ) -> Result<(u64, bool)> {
        let held = self.table.lock.acquire(env, deadline)?;
        let found = self.table.extents.iter().find_map(|extent| {
            let len = extent.len.load(Ordering::Acquire);
            (len != 0 && extent.offset.load(Ordering::Relaxed) == offset.0).then_some((extent, len))
        });
        let freed = found.is_some() && agreed();
        if let (Some((extent, _)), true) = (found, freed) {
            crash::point();
            extent.len.store(0, Ordering::Release);
            crash::point();
        }
        self.table.lock.release(env, held)?;
        found.map(|(_, len)| (len, freed)).ok_or_else(|| Error::Misuse {
            what: "freeing shared memory",
            why: format!("nothing is allocated at {offset} of {}; free it once", self.what),
        })
    }

    /// Length of the allocation at `offset`, which the caller owns. Takes no lock.
    pub fn length_at(&self, offset: Offset) -> Result<u64> {
        let here = |extent: &&Extent| {
            extent.len.load(Ordering::Acquire) != 0
                && extent.offset.load(Ordering::Relaxed) == offset.0
        };
        let found = self.table.extents.iter().find(here);
        let len = found.map(|extent| extent.len.load(Ordering::Relaxed));
        len.filter(|&len| len <= self.length).ok_or_else(|| Error::Misuse {
            what: "freeing shared memory",
            why: format!("nothing is allocated at {offset} of {}; free it once", self.what),
        })
    }

    /// Bytes in use, and number of allocations. Takes no lock: a snapshot for reports.
    pub fn usage(&self) -> (u64, usize) {
        let lens = self.table.extents.iter().map(|extent| extent.len.load(Ordering::Relaxed));
        lens.filter(|&len| len != 0)
            .fold((0, 0), |(bytes, count), len| (len.saturating_add(bytes), count + 1))
    }

    /// Reads and checks the table. The caller holds the lock.
    fn scan(&self) -> Result<Scan> {
        let mut scan = Scan { used: Vec::new(), vacant: None };
        for (i, extent) in self.table.extents.iter().enumerate() {
            let len = extent.len.load(Ordering::Acquire);
            if len == 0 {
                scan.vacant.get_or_insert(i);
                continue;
            }
            let start = extent.offset.load(Ordering::Relaxed);
            match start.checked_add(len) {
                Some(end) if end <= self.length => scan.used.push((start, end)),
                _ => return Err(self.damaged(start, len)),
            }
        }
        scan.used.sort_unstable();
        match scan.used.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(self.damaged(pair[1].0, pair[1].1 - pair[1].0)),
            None => Ok(scan),
        }
    }

    #[cold]
    fn damaged(&self, start: u64, len: u64) -> Error {
        Error::Incompatible {
            what: "the table of shared allocations",
            why: format!(
                "{len} bytes at {start:#x} overlap others or leave the {} bytes of {}; \
                 some process has overwritten it, end the job",
                self.length, self.what
            ),
        }
    }
}

/// The lowest offset at which `len` bytes fit between `used`, and the largest gap there is.
fn first_fit(used: &[(u64, u64)], length: u64, len: u64, align: u64) -> (Option<u64>, u64) {
    let mut largest = 0;
    let mut at = 0u64;
    for &(start, end) in used.iter().chain(&[(length, length)]) {
        let aligned = at.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        if start.checked_sub(aligned).is_some_and(|gap| gap >= len) {
            return (Some(aligned), largest);
        }
        largest = largest.max(start.saturating_sub(at));
        at = end;
    }
    (None, largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Slot;
    use crate::shm::crash::kill_at;
    use crate::shm::lock::model::Env;
    use proptest::prelude::*;

    fn table() -> Box<ExtentTable> {
        Box::new(ExtentTable {
            lock: QueueLock::default(),
            _pad: Default::default(),
            extents: std::array::from_fn(|_| Extent {
                offset: AtomicU64::new(0),
                len: AtomicU64::new(0),
            }),
        })
    }

    fn one() -> Env {
        Env::new(1, 8).remove(0)
    }

    #[test]
    fn lengths_round_up_and_the_lowest_gap_is_taken() {
        let (table, env) = (table(), one());
        let heap = Heap::new(&table, 1 << 20, "a test");
        let alloc = |len, align| heap.alloc(&env, len, align, Deadline::NEVER).unwrap().0;
        assert_eq!(alloc(0, 1), 0);
        assert_eq!(alloc(65, 1), 64);
        assert_eq!(alloc(1, 4096), 4096);
        assert_eq!(alloc(64, 64), 192);
        assert_eq!(heap.free(&env, Offset(64), Deadline::NEVER).unwrap(), 128);
        assert_eq!(alloc(129, 1), 256, "the gap of 128 is too small");
        assert_eq!(alloc(128, 1), 64);
        assert_eq!(heap.usage(), (64 + 128 + 64 + 64 + 192, 5));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let (table, env) = (table(), one());
        let heap = Heap::new(&table, 4096, "a test");
        let alloc = |len, align| heap.alloc(&env, len, align, Deadline::NEVER);
        assert!(matches!(alloc(1, 3), Err(Error::InvalidArgument { .. })));
        assert!(matches!(alloc(1, 0), Err(Error::InvalidArgument { .. })));
        alloc(1024, 64).unwrap();
        for len in [3073, 1 << 40, u64::MAX - 63, u64::MAX] {
            let err = alloc(len, 64).unwrap_err();
            assert!(
                matches!(&err, Error::OutOfMemory { wanted, available: 3072, .. } if *wanted == len),
                "{err}"
            );
        }
        assert!(matches!(alloc(1, 1 << 63), Err(Error::OutOfMemory { .. })));
        assert!(matches!(heap.free(&env, Offset(64), Deadline::NEVER), Err(Error::Misuse { .. })));
        alloc(3072, 64).unwrap();
        assert!(matches!(alloc(0, 1), Err(Error::OutOfMemory { available: 0, .. })));
    }

    #[test]
    fn a_full_table_is_an_error_and_recovers() {
        let (table, env) = (table(), one());
        let heap = Heap::new(&table, 1 << 30, "a test");
        for extent in &table.extents[..MAX_EXTENTS - 1] {
            let at = (extent as *const Extent).addr() - table.extents.as_ptr().addr();
            extent.offset.store(at as u64 * 4, Ordering::Relaxed);
            extent.len.store(64, Ordering::Relaxed);
        }
        let last = heap.alloc(&env, 1, 1, Deadline::NEVER).unwrap();
        let err = heap.alloc(&env, 1, 1, Deadline::NEVER).unwrap_err();
        assert!(matches!(err, Error::Exhausted { limit: 4095, .. }), "{err}");
        heap.free(&env, Offset(128), Deadline::NEVER).unwrap();
        assert_eq!(heap.alloc(&env, 1, 1, Deadline::NEVER).unwrap(), Offset(128));
        assert_ne!(last, Offset(128));
    }

    #[test]
    fn a_table_with_nonsense_in_it_is_refused() {
        let env = one();
        for (offset, len) in [(0, 8192), (u64::MAX - 8, 64), (4032, 128), (64, 64)] {
            let table = table();
            let heap = Heap::new(&table, 4096, "a test");
            heap.alloc(&env, 128, 1, Deadline::NEVER).unwrap();
            table.extents[7].offset.store(offset, Ordering::Relaxed);
            table.extents[7].len.store(len, Ordering::Relaxed);
            let err = heap.alloc(&env, 64, 1, Deadline::NEVER).unwrap_err();
            assert!(matches!(err, Error::Incompatible { .. }), "{err}");
        }
    }

    /// Slot 0 is killed at every point of an allocation and a free. Slot 1 goes on, and whatever
    /// slot 0 had is in use as a whole or not at all.
    #[test]
    fn a_kill_at_any_point_leaves_a_consistent_table() {
        for n in 1.. {
            let envs = Env::new(2, 8);
            let (mortal, other) = (&envs[0], &envs[1]);
            let table = table();
            let heap = Heap::new(&table, 1024, "a test");
            let first = heap.alloc(other, 128, 64, Deadline::NEVER).unwrap();
            let lived = kill_at(n, || {
                let mine = heap.alloc(mortal, 256, 64, Deadline::NEVER).unwrap();
                heap.free(mortal, mine, Deadline::NEVER).unwrap();
            });
            mortal.die();
            assert!(matches!(heap.usage(), (128, 1) | (384, 2)), "killed at {n}");
            let left = 1024 - heap.usage().0;
            let rest = heap.alloc(other, left, 64, Deadline::NEVER).unwrap();
            heap.free(other, rest, Deadline::NEVER).unwrap();
            heap.free(other, first, Deadline::NEVER).unwrap();
            if lived.is_some() {
                assert_eq!(heap.usage(), (0, 0));
                break;
            }
        }
    }

    #[test]
    fn slots_that_allocate_at_once_get_memory_of_their_own() {
        const ROUNDS: usize = if cfg!(miri) { 2 } else { 100 };
        let envs = Env::new(3, 8);
        let table = table();
        let heap = Heap::new(&table, 1 << 16, "a test");
        let area: Vec<AtomicU64> = (0..1 << 10).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for env in &envs {
                let area = &area;
                scope.spawn(move || {
                    let Slot(slot) = env.slot();
                    for round in 0..ROUNDS {
                        let len = 64 * (1 + round as u64 % 5);
                        let at = heap.alloc(env, len, 64, Deadline::NEVER).unwrap();
                        let mine = &area[at.0 as usize / 64..(at.0 + len) as usize / 64];
                        for cell in mine {
                            assert_eq!(cell.swap(u64::from(slot) + 1, Ordering::Relaxed), 0);
                        }
                        for cell in mine {
                            assert_eq!(cell.swap(0, Ordering::Relaxed), u64::from(slot) + 1);
                        }
                        assert_eq!(heap.free(env, at, Deadline::NEVER).unwrap(), len);
                    }
                });
            }
        });
        assert_eq!(heap.usage(), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Alloc { len: u64, align: u64 },
        Free { which: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let alloc = (0..2000u64, 0..12u32).prop_map(|(len, a)| Step::Alloc { len, align: 1 << a });
        let free = any::<usize>().prop_map(|which| Step::Free { which });
        prop::collection::vec(prop_oneof![3 => alloc, 2 => free], 1..120)
    }

    /// Where a map of the granules in use says that the allocation must go.
    fn oracle(map: &[bool], len: u64, align: u64) -> Option<u64> {
        let granules = len.max(1).div_ceil(GRANULE) as usize;
        let unit = (align.max(GRANULE) / GRANULE) as usize;
        (0..map.len())
            .step_by(unit)
            .find(|&at| at + granules <= map.len() && !map[at..at + granules].contains(&true))
            .map(|at| at as u64 * GRANULE)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 1 } else { 64 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn agrees_with_a_map_of_granules(steps in steps()) {
            const GRANULES: usize = 200;
            let (table, env) = (table(), one());
            let heap = Heap::new(&table, GRANULES as u64 * GRANULE, "a test");
            let mut map = [false; GRANULES];
            let mut live: Vec<(u64, u64)> = Vec::new();
            let mut mark = |at: u64, len: u64, to: bool| {
                for cell in &mut map[(at / GRANULE) as usize..((at + len) / GRANULE) as usize] {
                    assert_ne!(*cell, to);
                    *cell = to;
                }
                map
            };
            let mut now = [false; GRANULES];
            for step in steps {
                match step {
                    Step::Alloc { len, align } => {
                        let got = heap.alloc(&env, len, align, Deadline::NEVER);
                        match oracle(&now, len, align) {
                            Some(at) => {
                                prop_assert_eq!(got.unwrap().0, at);
                                let rounded = len.max(1).next_multiple_of(GRANULE);
                                live.push((at, rounded));
                                now = mark(at, rounded, true);
                            }
                            None => {
                                let oom = matches!(got, Err(Error::OutOfMemory { .. }));
                                prop_assert!(oom);
                            }
                        }
                    }
                    Step::Free { which } if !live.is_empty() => {
                        let (at, len) = live.swap_remove(which % live.len());
                        let freed = heap.free(&env, Offset(at), Deadline::NEVER).unwrap();
                        prop_assert_eq!(freed, len);
                        now = mark(at, len, false);
                    }
                    Step::Free { .. } => {}
                }
                let bytes = live.iter().map(|(_, len)| len).sum::<u64>();
                prop_assert_eq!(heap.usage(), (bytes, live.len()));
            }
        }
    }
}
