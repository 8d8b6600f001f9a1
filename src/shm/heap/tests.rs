use super::table::Entry;
use super::*;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Offset, Slot};
use crate::shm::crash::kill_at;
use crate::shm::lock::model::Env;
use proptest::prelude::*;

impl Heap<'_> {
    fn take<E: LockEnv>(&self, env: &E, len: u64, align: u64, owner: Owner) -> Result<Entry> {
        let wanted = Wanted { len, align, owner, home: None };
        self.locked(env, Deadline::NEVER, |table| table.take(wanted))?
    }

    fn alloc<E: LockEnv>(&self, env: &E, len: u64, align: u64) -> Result<Offset> {
        self.take(env, len, align, Owner::Nobody).map(|entry| entry.offset)
    }

    /// Ends what begins at an offset, and returns its length.
    fn free<E: LockEnv>(&self, env: &E, at: Offset) -> Result<u64> {
        self.locked(env, Deadline::NEVER, |table| {
            let entry = table.containing(at)?;
            assert_eq!(entry.offset, at);
            table.remove(&entry);
            Ok(entry.len)
        })?
    }
}

fn table() -> Box<ExtentTable> {
    ExtentTable::empty()
}

fn one() -> Env {
    Env::new(1, 8).remove(0)
}

#[test]
fn lengths_round_up_and_the_lowest_gap_is_taken() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 1 << 20, "a test");
    let alloc = |len, align| heap.alloc(&env, len, align).unwrap().0;
    assert_eq!(alloc(0, 1), 0);
    assert_eq!(alloc(65, 1), 64);
    assert_eq!(alloc(1, 4096), 4096);
    assert_eq!(alloc(64, 64), 192);
    assert_eq!(heap.free(&env, Offset(64)).unwrap(), 128);
    assert_eq!(alloc(129, 1), 256, "the gap of 128 is too small");
    assert_eq!(alloc(128, 1), 64);
    assert_eq!(heap.usage(), (64 + 128 + 64 + 64 + 192, 5));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 4096, "a test");
    let alloc = |len, align| heap.alloc(&env, len, align);
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
    assert!(matches!(heap.free(&env, Offset(1024)), Err(Error::Misuse { .. })));
    alloc(3072, 64).unwrap();
    assert!(matches!(alloc(0, 1), Err(Error::OutOfMemory { available: 0, .. })));
}

#[test]
fn a_full_table_is_an_error_and_recovers() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 1 << 30, "a test");
    for index in 0..MAX_EXTENTS - 1 {
        let offset = Offset(index as u64 * 128);
        let (owner, home, is_use, tag) = (Owner::Nobody, None, false, 0);
        table.insert(Entry { index, offset, len: 64, owner, home, is_use, tag });
    }
    let last = heap.alloc(&env, 1, 1).unwrap();
    let err = heap.alloc(&env, 1, 1).unwrap_err();
    assert!(matches!(err, Error::Exhausted { limit: 4095, .. }), "{err}");
    heap.free(&env, Offset(128)).unwrap();
    assert_eq!(heap.alloc(&env, 1, 1).unwrap(), Offset(128));
    assert_ne!(last, Offset(128));
}

#[test]
fn a_table_with_nonsense_in_it_is_refused() {
    let env = one();
    for (offset, len) in [(0, 8192), ((1 << 48) - 8, 64), (4032, 128), (64, 64)] {
        let table = table();
        let heap = Heap::new(&table, 4096, "a test");
        heap.alloc(&env, 128, 1).unwrap();
        heap.alloc(&env, 64, 1).unwrap();
        table.extents[1].offset.store(offset, Ordering::Relaxed);
        table.extents[1].len.store(len, Ordering::Relaxed);
        let err = heap.alloc(&env, 64, 1).unwrap_err();
        assert!(matches!(err, Error::Incompatible { .. }), "{err}");
    }
}

#[test]
fn owners_are_what_they_were_stored_as() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 1 << 20, "a test");
    let id = heap.take(&env, 64, 64, Owner::Members).unwrap().id();
    let of = |owner| heap.take(&env, 64, 64, owner).unwrap().id();
    let slot = Slot(4095);
    let owners = [
        Owner::Nobody,
        Owner::Process(slot),
        Owner::Freeing(slot),
        Owner::Ending(slot),
        Owner::Members,
        Owner::Block(id),
        Owner::Job,
    ];
    for owner in owners {
        let id = of(owner);
        assert_eq!(table.find(id).map(|entry| entry.owner), Some(owner));
        assert_eq!(Id::from_raw(id.raw()), id);
    }
    let count = heap.usage().1;
    assert_eq!(count, owners.len() - 1, "what is being freed does not count");
}

#[test]
fn an_id_is_never_used_again() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 4096, "a test");
    let mut before: Vec<Id> = Vec::new();
    for _ in 0..20 {
        let entry = heap.take(&env, 64, 64, Owner::Nobody).unwrap();
        assert!(heap.has(entry.id()) && entry.id().raw() != 0);
        assert!(before.iter().all(|id| *id != entry.id() && !heap.has(*id)));
        before.push(entry.id());
        heap.free(&env, entry.offset).unwrap();
    }
    assert!(!heap.has(Id::from_raw(u64::MAX)) && !heap.has(Id::from_raw(0)));
}

#[test]
fn uses_are_counted_by_block() {
    let (table, env) = (table(), one());
    let heap = Heap::new(&table, 1 << 20, "a test");
    let [a, b] = [1 << 12, 2 << 12].map(Id::from_raw);
    let range = heap.take(&env, 128, 64, Owner::Process(Slot(0))).unwrap();
    let used = heap.locked(&env, Deadline::NEVER, |table| {
        for block in [a, b, a] {
            table.add_use(&range, block).unwrap();
        }
        let mut used = Vec::new();
        for block in [b, a, a, a] {
            table.end_use(&range, block);
            used.push(table.is_used(&range));
        }
        used
    });
    assert_eq!(used.unwrap(), [true, true, false, false]);
    assert_eq!(heap.usage(), (128, 1));
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
        let first = heap.alloc(other, 128, 64).unwrap();
        let lived = kill_at(n, || {
            let mine = heap.alloc(mortal, 256, 64).unwrap();
            heap.free(mortal, mine).unwrap();
        });
        mortal.die();
        assert!(matches!(heap.usage(), (128, 1) | (384, 2)), "killed at {n}");
        let left = 1024 - heap.usage().0;
        let rest = heap.alloc(other, left, 64).unwrap();
        heap.free(other, rest).unwrap();
        heap.free(other, first).unwrap();
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
                    let at = heap.alloc(env, len, 64).unwrap();
                    let mine = &area[at.0 as usize / 64..(at.0 + len) as usize / 64];
                    for cell in mine {
                        assert_eq!(cell.swap(u64::from(slot) + 1, Ordering::Relaxed), 0);
                    }
                    for cell in mine {
                        assert_eq!(cell.swap(0, Ordering::Relaxed), u64::from(slot) + 1);
                    }
                    assert_eq!(heap.free(env, at).unwrap(), len);
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
                    let got = heap.alloc(&env, len, align);
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
                    let freed = heap.free(&env, Offset(at)).unwrap();
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
