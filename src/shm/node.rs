//! One process's attachment to its node's segment.
//!
//! Attaching: take the slot's record lock, agree with the others on one address (below), map the
//! whole file there (the one mapping a process has of it), reserve this process's inbox.
//!
//! ```text
//! slot 0 (leader)                            others
//!   base = candidate; round += 1   ------>     try to map at base without replacing anything
//!   wait for all votes             <------     vote = round << 1 | mapped
//!   all mapped: agreed = 1         ------>     done
//!   else: unmap, next candidate, up to ROUNDS times; then agreed = 2 and everyone fails
//! ```

use super::liveness::{self, may_act};
use super::lock::LocalNodes;
use super::map::{self, Mapping, PAGE};
use super::park::Pace;
use super::region::SharedRef;
use super::segment::{
    self, Areas, HUGE_PAGE, INBOX_BYTES, NodeHeader, RankSlot, STATE_DEAD, STATE_EMPTY,
    STATE_JOINING, STATE_LEFT, STATE_READY,
};
use crate::base::sync::{self, AtomicBool, AtomicU32, Ordering};
use crate::base::{Deadline, Error, Offset, Rank, Result, Slot, settings};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Addresses tried before giving up.
const ROUNDS: u32 = 32;
/// Candidates lie between these addresses: above executables and their heaps without address
/// randomisation, below position-independent executables and shared libraries.
const LOWEST: u64 = 0x1000_0000_0000;
const HIGHEST: u64 = 0x5500_0000_0000;
/// Most peers asked about in one check.
const PROBES: usize = 64;

/// An attachment. Dropping it without having called [`Node::leave`] counts as dying.
#[derive(Debug)]
pub struct Node {
    map: Arc<Mapping>,
    areas: Areas,
    fd: OwnedFd,
    slot: Slot,
    size: u32,
    header: SharedRef<NodeHeader>,
    pace: Pace,
    huge_pages: bool,
    leaving: AtomicBool,
    pub(super) lock_nodes: LocalNodes,
    probe_cursor: AtomicU32,
}

/// A random 64-bit number from the kernel.
pub fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::os("getrandom", e))?;
    Ok(u64::from_le_bytes(bytes))
}

fn random_base(length: u64) -> Result<u64> {
    const GIB: u64 = 1 << 30;
    let room = (HIGHEST - LOWEST).saturating_sub(length) / GIB;
    Ok(LOWEST + random()? % room.max(1) * GIB)
}

impl Node {
    /// Creates the memory file of a node: header written, its first part reserved. `heap` bytes
    /// of symmetric address space for each of `size` ranks.
    pub fn create_memory(size: u32, heap: u64) -> Result<OwnedFd> {
        let areas = Areas::new(size, heap)?;
        let fd = map::create_memfd("hither", areas.length)?;
        map::reserve(fd.as_fd(), 0, areas.head_bytes(), "the node's control structures")?;
        let head = Arc::new(Mapping::anywhere(&fd, PAGE)?);
        let header: SharedRef<NodeHeader> = SharedRef::new(&head, Offset(0))?;
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        segment::initialise(&header, &areas, size, random()? | 1, cpus);
        Ok(fd)
    }

    /// Joins the node as `slot`; returns once every rank has mapped the segment at the same
    /// address. Fails naming the missing when the deadline passes, or the dead.
    pub fn attach(fd: OwnedFd, slot: Slot, deadline: Deadline) -> Result<Arc<Node>> {
        let (fd, head, areas, size) = open_head(fd)?;
        let header: SharedRef<NodeHeader> = SharedRef::new(&head, Offset(0))?;
        let wiring = Wiring { fd, head, header, areas, size, slot };
        wiring.enter()?;
        let mapping = wiring.agree(deadline)?;
        wiring.into_node(Arc::new(mapping))
    }

    /// Joins as `slot` through a mapping that this process already has: for ranks that are
    /// threads of one process.
    pub fn attach_mapped(fd: OwnedFd, slot: Slot, mapping: Arc<Mapping>) -> Result<Arc<Node>> {
        let (fd, head, areas, size) = open_head(fd)?;
        if mapping.length() != areas.length {
            return Err(Error::Incompatible {
                what: "a mapping of the node's memory",
                why: format!("{} bytes are mapped of {}", mapping.length(), areas.length),
            });
        }
        let header: SharedRef<NodeHeader> = SharedRef::new(&head, Offset(0))?;
        let wiring = Wiring { fd, head, header, areas, size, slot };
        wiring.enter()?;
        wiring.into_node(mapping)
    }

    /// This process's slot.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Ranks in the job. On one node, rank and slot are the same number.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Where the areas lie.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The mapping of the whole segment.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// The segment's header.
    #[inline]
    pub fn header(&self) -> &NodeHeader {
        &self.header
    }

    /// A process's control block. Slots beyond the segment fold onto slot 0: callers validate
    /// slots that peers wrote with [`Node::checked_slot`].
    #[inline]
    pub fn rank_slot(&self, slot: Slot) -> &RankSlot {
        let slot = if u32::from(slot.0) < self.areas.capacity { slot } else { Slot(0) };
        let at = self.areas.slot(slot).0 as usize;
        // SAFETY: the slot is below the capacity, so its block lies inside the mapping, which
        // lives as long as self; RankSlot is a SharedLayout aligned to its page.
        unsafe { self.map.base().add(at).cast::<RankSlot>().as_ref() }
    }

    /// A slot number that a peer wrote, if there is such a slot in this job.
    pub fn checked_slot(&self, raw: u64) -> Result<Slot> {
        if raw < u64::from(self.size) {
            return Ok(Slot(raw as u16));
        }
        Err(Error::Incompatible {
            what: "a slot number in shared memory",
            why: format!("{raw} is not below {}", self.size),
        })
    }

    /// How this process waits.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Allocates the pages of a range now, near the calling thread.
    pub fn reserve(&self, offset: Offset, length: u64, what: &str) -> Result<()> {
        map::reserve(self.fd.as_fd(), offset.0, length, what)
    }

    /// Makes a reserved range of symmetric memory fast to reach from this process: huge pages
    /// where they are wanted and the range holds some, and a filled page table.
    pub fn warm(&self, offset: Offset, length: u64) {
        if self.huge_pages && offset.0.is_multiple_of(HUGE_PAGE) && length >= HUGE_PAGE {
            self.map.collapse_huge(offset.0, length - length % HUGE_PAGE);
        }
        self.map.populate(offset.0, length);
    }

    /// Gives the pages of a range back; it reads as zeros afterwards.
    pub fn release(&self, offset: Offset, length: u64) {
        map::release(self.fd.as_fd(), offset.0, length);
    }

    /// Whether a slot's process is known to be gone (dead or left). One load.
    #[inline]
    pub fn is_dead(&self, slot: Slot) -> bool {
        matches!(self.rank_slot(slot).state.load(Ordering::Acquire), STATE_DEAD | STATE_LEFT)
    }

    /// Asks the kernel whether a slot's process is gone, and records it if so. About 1 µs.
    pub fn probe(&self, slot: Slot) -> bool {
        let block = self.rank_slot(slot);
        if may_act(block.state.load(Ordering::Acquire))
            && slot != self.slot
            && !liveness::held_by_other(self.fd.as_fd(), slot)
        {
            // It may have left in good order between the two looks; mark_dead leaves LEFT alone.
            liveness::mark_dead(&self.header, block, 0);
        }
        self.is_dead(slot)
    }

    /// An error if one of `slots` is gone: known ones at once, then at most 64 are asked about
    /// per call, a different 64 each time, so that a wait among thousands stays cheap.
    pub fn check(
        &self,
        slots: impl Iterator<Item = Slot> + Clone,
        during: &'static str,
    ) -> Result<()> {
        let mut count = 0;
        let mut left = None;
        for slot in slots.clone() {
            count += 1;
            match self.rank_slot(slot).state.load(Ordering::Acquire) {
                STATE_DEAD => return Err(self.died(slot, during)),
                STATE_LEFT => left = left.or(Some(slot)),
                _ => {}
            }
        }
        // Who died is the cause; who left may have left because of it.
        if let Some(slot) = left {
            return Err(self.died(slot, during));
        }
        let first = if count > PROBES {
            self.probe_cursor.fetch_add(PROBES as u32, Ordering::Relaxed) as usize % count
        } else {
            0
        };
        for slot in slots.clone().chain(slots).skip(first).take(count.min(PROBES)) {
            if self.probe(slot) {
                return Err(self.died(slot, during));
            }
        }
        Ok(())
    }

    /// The error that reports that `slot`'s process is gone. One that left after somebody died
    /// most likely left because of that: then the error names the dead.
    #[cold]
    pub fn died(&self, slot: Slot, during: &'static str) -> Error {
        let state = |slot: &Slot| self.rank_slot(*slot).state.load(Ordering::Acquire);
        let slot = if state(&slot) == STATE_LEFT {
            let mut all = (0..self.size as u16).map(Slot);
            match all.find(|other| state(other) == STATE_DEAD) {
                Some(dead) => dead,
                None => return Error::RankLeft { rank: Rank(slot.0.into()), during },
            }
        } else {
            slot
        };
        let cause = liveness::describe_end(self.rank_slot(slot));
        Error::RankDied { rank: Rank(slot.0.into()), cause, during }
    }

    /// Says that the end of this attachment is meant: peers that wait for this process then get
    /// an error that says that it left, and it does not count as a death.
    ///
    /// The process leaves when the attachment is dropped, that is with the last of the job, its
    /// teams and its windows: until then it can still reach what others would take for free.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.leaving.load(Ordering::Acquire) {
            let block = self.rank_slot(self.slot);
            block.state.store(STATE_LEFT, Ordering::Release);
            block.doorbell.notify();
            self.header.wiring.notify();
        }
    }
}

pub(super) type Head = (OwnedFd, Arc<Mapping>, Areas, u32);

/// Opens the file anew, validates its header, and maps the control structures.
pub(super) fn open_head(fd: OwnedFd) -> Result<Head> {
    let own = map::reopen(&fd)?;
    let length = map::sealed_length(&own)?;
    if length < PAGE {
        return Err(Error::Incompatible {
            what: "the node's shared memory",
            why: format!("it has only {length} bytes"),
        });
    }
    let page = Arc::new(Mapping::anywhere(&own, PAGE)?);
    let header: SharedRef<NodeHeader> = SharedRef::new(&page, Offset(0))?;
    let (areas, size) = segment::validate(&header, length)?;
    let head = Arc::new(Mapping::anywhere(&own, areas.head_bytes())?);
    Ok((own, head, areas, size))
}

/// State of a process between opening the file and being ready.
struct Wiring {
    fd: OwnedFd,
    head: Arc<Mapping>,
    header: SharedRef<NodeHeader>,
    areas: Areas,
    size: u32,
    slot: Slot,
}

impl Wiring {
    fn block(&self, slot: Slot) -> Result<SharedRef<RankSlot>> {
        SharedRef::new(&self.head, self.areas.slot(slot))
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + Clone + use<> {
        (0..self.size as u16).map(Slot)
    }

    fn enter(&self) -> Result<()> {
        if u32::from(self.slot.0) >= self.size {
            return Err(Error::boot(format!("slot {} in a job of {}", self.slot, self.size)));
        }
        liveness::hold(self.fd.as_fd(), self.slot)?;
        let block = self.block(self.slot)?;
        let entered = block.state.compare_exchange(
            STATE_EMPTY,
            STATE_JOINING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if entered.is_err() {
            return Err(Error::Misuse {
                what: "joining the node",
                why: format!("rank {} has been part of this job before", self.slot),
            });
        }
        block.pid.store(std::process::id(), Ordering::Relaxed);
        if !sync::register_asymmetric() {
            self.header.full_fences.store(1, Ordering::Release);
        }
        let what = "this rank's inbox";
        map::reserve(self.fd.as_fd(), self.areas.inbox(self.slot).0, INBOX_BYTES, what)?;
        self.header.wiring.notify();
        Ok(())
    }

    /// Runs the address agreement of the module's diagram.
    fn agree(&self, deadline: Deadline) -> Result<Mapping> {
        let leader = self.slot == Slot(0);
        for round in 1..=ROUNDS {
            if leader {
                self.header.base.store(random_base(self.areas.length)?, Ordering::Relaxed);
                self.header.round.store(round, Ordering::Release);
                self.header.wiring.notify();
            } else {
                self.await_leader(round, deadline)?;
            }
            let base = self.header.base.load(Ordering::Relaxed);
            let mapping = Mapping::at(&self.fd, self.areas.length, base)?;
            let vote = u64::from(round) << 1 | u64::from(mapping.is_some());
            self.block(self.slot)?.vote.store(vote, Ordering::Release);
            self.header.wiring.notify();
            if leader {
                let all = self.collect_votes(round, deadline)?;
                let verdict = if all {
                    1
                } else if round == ROUNDS {
                    2
                } else {
                    0
                };
                if verdict != 0 {
                    self.header.agreed.store(verdict, Ordering::Release);
                    self.header.wiring.notify();
                }
            }
            match (self.await_verdict(round, deadline)?, mapping) {
                (1, Some(mapping)) => return Ok(mapping),
                (0, _) => {}
                _ => break,
            }
        }
        Err(Error::boot(format!(
            "no address for {} bytes is free in every rank (tried {ROUNDS}); \
             lower HITHER_HEAP_SIZE, or look for sanitizers that occupy the address space",
            self.areas.length
        )))
    }

    fn await_leader(&self, round: u32, deadline: Deadline) -> Result<()> {
        self.wait(deadline, std::iter::once(Slot(0)), |w| {
            w.header.round.load(Ordering::Acquire) >= round
        })
    }

    /// 1 agreed, 2 hopeless, 0 another round has begun.
    fn await_verdict(&self, round: u32, deadline: Deadline) -> Result<u32> {
        self.wait(deadline, std::iter::once(Slot(0)), |w| {
            self.slot == Slot(0)
                || w.header.agreed.load(Ordering::Acquire) != 0
                || w.header.round.load(Ordering::Acquire) > round
        })?;
        Ok(self.header.agreed.load(Ordering::Acquire))
    }

    fn collect_votes(&self, round: u32, deadline: Deadline) -> Result<bool> {
        let mut all = true;
        for slot in self.slots() {
            let block = self.block(slot)?;
            let voted = |_: &Wiring| block.vote.load(Ordering::Acquire) >> 1 >= u64::from(round);
            self.wait(deadline, std::iter::once(slot), voted)?;
            all &= block.vote.load(Ordering::Acquire) & 1 == 1;
        }
        Ok(all)
    }

    /// Waits for a condition of the wiring; on time-out names every rank that has not arrived.
    fn wait(
        &self,
        deadline: Deadline,
        on: impl Iterator<Item = Slot> + Clone,
        ready: impl Fn(&Wiring) -> bool,
    ) -> Result<()> {
        let poll = || ready(self).then_some(());
        let check = || {
            for slot in on.clone().filter(|&s| s != self.slot) {
                let block = self.block(slot)?;
                if may_act(block.state.load(Ordering::Acquire))
                    && !liveness::held_by_other(self.fd.as_fd(), slot)
                {
                    liveness::mark_dead(&self.header, &block, 0);
                }
                if matches!(block.state.load(Ordering::Acquire), STATE_DEAD | STATE_LEFT) {
                    return Err(Error::RankDied {
                        rank: Rank(slot.0.into()),
                        cause: liveness::describe_end(&block),
                        during: "wiring the job up",
                    });
                }
            }
            Ok(())
        };
        let waited = self.header.wiring.wait(Pace::SHARED, deadline, "wiring", poll, check);
        waited.map_err(|e| match e {
            Error::TimedOut { during, waited, .. } => {
                let absent = |s: &Slot| {
                    self.block(*s).is_ok_and(|b| b.state.load(Ordering::Acquire) == STATE_EMPTY)
                };
                let missing =
                    self.slots().filter(absent).map(|s| Rank(s.0.into())).take(16).collect();
                Error::TimedOut { during, waited, missing }
            }
            e => e,
        })
    }

    fn into_node(self, map: Arc<Mapping>) -> Result<Arc<Node>> {
        let header: SharedRef<NodeHeader> = SharedRef::new(&map, Offset(0))?;
        let pace = choose_pace(self.size, header.cpus.load(Ordering::Relaxed))?;
        let node = Node {
            map,
            areas: self.areas,
            fd: self.fd,
            slot: self.slot,
            size: self.size,
            header,
            pace,
            huge_pages: settings::HUGE_PAGES.switch()?,
            leaving: AtomicBool::new(false),
            lock_nodes: LocalNodes::default(),
            probe_cursor: AtomicU32::new(0),
        };
        if node.huge_pages {
            node.map.advise_huge(node.areas.heap(node.slot).0, node.areas.stride);
        }
        Ok(Arc::new(node))
    }
}

impl Node {
    /// Declares this process ready and waits until every rank is; then, if all of them could
    /// register, switches this process to asymmetric fences.
    pub fn await_all(&self, deadline: Deadline) -> Result<()> {
        self.rank_slot(self.slot).state.store(STATE_READY, Ordering::Release);
        self.header.wiring.notify();
        let slots = (0..self.size as u16).map(Slot);
        for slot in slots.clone() {
            let block = self.rank_slot(slot);
            let ready = || block.state.load(Ordering::Acquire) >= STATE_READY;
            self.header
                .wiring
                .wait(
                    self.pace,
                    deadline,
                    "wiring",
                    || ready().then_some(()),
                    || self.check(std::iter::once(slot), "wiring the job up"),
                )
                .map_err(|e| match e {
                    Error::TimedOut { during, waited, .. } => {
                        let late = |s: &Slot| {
                            self.rank_slot(*s).state.load(Ordering::Acquire) < STATE_READY
                        };
                        let missing = slots.clone().filter(late).map(|s| Rank(s.0.into()));
                        Error::TimedOut { during, waited, missing: missing.take(16).collect() }
                    }
                    e => e,
                })?;
            // Ready once, but dead before it had prepared what the others will use.
            if block.state.load(Ordering::Acquire) == STATE_DEAD {
                return Err(self.died(slot, "wiring the job up"));
            }
        }
        sync::use_full_fences(self.header.full_fences.load(Ordering::Acquire) != 0);
        Ok(())
    }
}

fn choose_pace(size: u32, cpus: u32) -> Result<Pace> {
    let mut pace = if size <= cpus { Pace::DEDICATED } else { Pace::SHARED };
    if settings::SPIN.text() != "auto" {
        pace.spins = settings::SPIN.number()?.min(u64::from(u32::MAX)) as u32;
    }
    Ok(pace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::observer::Observer;
    use std::time::Duration;

    #[test]
    fn a_missing_rank_is_named_when_the_deadline_passes() {
        let fd = Node::create_memory(3, 1 << 21).unwrap();
        let two = fd.try_clone().unwrap();
        let leader = std::thread::spawn(move || {
            Node::attach(fd, Slot(0), Deadline::after(Duration::from_millis(50))).map(|_| ())
        });
        let late = Node::attach(two, Slot(2), Deadline::after(Duration::from_millis(50)));
        let errors = [leader.join().unwrap().unwrap_err(), late.map(|_| ()).unwrap_err()];
        for error in errors {
            match error {
                Error::TimedOut { missing, .. } => assert!(missing.contains(&Rank(1))),
                // The other gave up first, and that too ends the wiring.
                Error::RankDied { rank, .. } => assert_ne!(rank, Rank(1)),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_single_process_attaches_leaves_and_cannot_come_back() {
        let fd = Node::create_memory(1, 1 << 21).unwrap();
        let node = Node::attach(fd.try_clone().unwrap(), Slot(0), Deadline::NEVER).unwrap();
        node.await_all(Deadline::NEVER).unwrap();
        assert_eq!(node.rank_slot(Slot(0)).state.load(Ordering::Relaxed), STATE_READY);
        node.leave();
        drop(node);
        let again = Node::attach(fd, Slot(0), Deadline::NEVER).unwrap_err();
        assert!(again.to_string().contains("before"), "{again}");
    }

    #[test]
    fn the_end_of_a_description_is_a_death_and_is_counted_once() {
        let fd = Node::create_memory(2, 1 << 21).unwrap();
        let map = Arc::new(Mapping::anywhere(&fd, Areas::new(2, 1 << 21).unwrap().length).unwrap());
        let a = Node::attach_mapped(fd.try_clone().unwrap(), Slot(0), map.clone()).unwrap();
        let b = Node::attach_mapped(fd.try_clone().unwrap(), Slot(1), map).unwrap();
        assert!(!a.probe(Slot(1)));
        drop(b);
        assert!(a.probe(Slot(1)));
        assert!(a.probe(Slot(1)));
        assert_eq!(a.header().deaths.load(Ordering::Relaxed), 1);
        let err = a.check(std::iter::once(Slot(1)), "a test").unwrap_err();
        assert!(matches!(err, Error::RankDied { rank: Rank(1), .. }), "{err}");
        let watcher = Observer::open(fd).unwrap();
        watcher.mark_dead(Slot(1), 0x100 | 9).unwrap();
        assert!(a.died(Slot(1), "a test").to_string().contains("SIGKILL"));
        assert_eq!(a.header().deaths.load(Ordering::Relaxed), 1);
    }
}
