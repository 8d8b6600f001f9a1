//! One process's attachment to its node's segment: how it reaches the memory, and how it waits. How
//! it comes about is in `wiring`, whom it takes for alive in `standing`.

use super::aside::Aside;
use super::beyond::Beyond;
use super::crowd::Crowd;
use super::forked::Presence;
use super::habit::Habits;
use super::lock::LocalNodes;
use super::map::{self, Mapping, PAGE};
use super::park::Pace;
use super::region::SharedRef;
use super::section::Words;
use super::segment::{self, Areas, HUGE_PAGE, NodeHeader, Port, Ports, RankSlot, STATE_LEFT};
use super::wiring::{Wiring, random};
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::base::{Deadline, Error, Offset, Rank, Result, Slot};
use crate::topo::Placement;
use rustix::fd::{AsFd, OwnedFd};
use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What the rooms above keep with an attachment: see [`Node::attachment`] (a handful of different
/// types) and [`Node::help_while_waiting`].
#[derive(Default)]
pub(super) struct Attachments {
    all: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    last_rites: OnceLock<LastRites>,
    /// At most [`HELPERS`], in the order in which they came.
    help: [OnceLock<Help>; HELPERS],
    /// Pieces of work that go on only in calls of this process.
    pending: AtomicU32,
}

/// Most rooms that have something done in waits.
const HELPERS: usize = 4;

type Help = Box<dyn Fn(&Node) + Send + Sync>;

/// Gets the kind of a block, where it lies, and how many members it had.
type LastRites = fn(&Node, u32, Offset, u32);

impl std::fmt::Debug for Attachments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attachments")
    }
}

/// An attachment. Dropping it without having called [`Node::leave`] counts as dying.
#[derive(Debug)]
pub struct Node {
    /// First, so that it goes before the memory that it tells children about.
    pub(super) _presence: Presence,
    pub(super) map: Arc<Mapping>,
    pub(super) areas: Areas,
    pub(super) fd: OwnedFd,
    pub(super) slot: Slot,
    pub(super) size: u32,
    pub(super) placement: Placement,
    pub(super) beyond: OnceLock<Arc<dyn Beyond>>,
    pub(super) header: SharedRef<NodeHeader>,
    pub(super) pace: Pace,
    pub(super) crowd: Crowd,
    /// Of ranks that share cores.
    pub(super) habits: Option<Habits>,
    /// The same, if they may.
    pub(super) aside: Option<Aside>,
    pub(super) huge_pages: bool,
    pub(super) leaving: AtomicBool,
    pub(super) lock_nodes: LocalNodes,
    pub(super) section_words: Arc<Words>,
    pub(super) turn_after: u32,
    pub(super) probe_cursor: AtomicU32,
    pub(super) attachments: Attachments,
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

    /// Joins a job of one node as `slot`; returns once every rank has mapped the segment at the
    /// same address. Fails naming the missing when the deadline passes, or the dead.
    pub fn attach(fd: OwnedFd, slot: Slot, deadline: Deadline) -> Result<Arc<Node>> {
        Node::attach_placed(fd, None, slot, deadline)
    }

    /// As [`Node::attach`] for a node of the job that `placement` describes, seen from this node
    /// (`None`: it has one node).
    pub fn attach_placed(
        fd: OwnedFd,
        placement: Option<Placement>,
        slot: Slot,
        deadline: Deadline,
    ) -> Result<Arc<Node>> {
        let mut wiring = Wiring::open(fd, placement, slot)?;
        wiring.enter()?;
        let mapping = wiring.agree(deadline)?;
        wiring.into_node(Arc::new(mapping))
    }

    /// Joins as `slot` through a mapping that this process already has: for ranks that are
    /// threads of one process.
    pub fn attach_mapped(fd: OwnedFd, slot: Slot, mapping: Arc<Mapping>) -> Result<Arc<Node>> {
        Node::attach_mapped_placed(fd, None, slot, mapping)
    }

    /// As [`Node::attach_mapped`] for a node of a job of several.
    pub fn attach_mapped_placed(
        fd: OwnedFd,
        placement: Option<Placement>,
        slot: Slot,
        mapping: Arc<Mapping>,
    ) -> Result<Arc<Node>> {
        let mut wiring = Wiring::open(fd, placement, slot)?;
        if mapping.length() != wiring.areas.length {
            return Err(Error::Incompatible {
                what: "a mapping of the node's memory",
                why: format!("{} bytes are mapped of {}", mapping.length(), wiring.areas.length),
            });
        }
        wiring.enter()?;
        wiring.into_node(mapping)
    }

    /// This process's slot.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Names this attachment among those of the process, see `section`.
    #[inline]
    pub fn section_key(&self) -> u64 {
        self.section_words.key()
    }

    /// Loss in ns after which a [`super::bias::Bias`] is to be turned.
    pub fn turn_after(&self) -> u32 {
        self.turn_after
    }

    /// Processes of this node: their slots are the numbers below.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The slots of this node's processes.
    pub fn locals(&self) -> impl Iterator<Item = Slot> + Clone + use<> {
        (0..self.size as u16).map(Slot)
    }

    /// Which ranks of the job sit where, seen from this node.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Whether `slot` is a process of this node.
    #[inline]
    pub fn is_local(&self, slot: Slot) -> bool {
        u32::from(slot.0) < self.size
    }

    /// The rank in the job of a process, for messages: a slot that nobody has gives its own number.
    pub fn rank_of(&self, slot: Slot) -> Rank {
        self.placement.rank_of(slot).unwrap_or(Rank(slot.0.into()))
    }

    /// Has `beyond` asked for the processes of other nodes from now on; the first one stays.
    pub(crate) fn look_beyond(&self, beyond: Arc<dyn Beyond>) {
        let _ = self.beyond.set(beyond);
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

    /// The control block of a process of this node. Other slots fold onto slot 0: callers validate
    /// slots that peers wrote with [`Node::checked_slot`], and ask whether one [is
    /// local](Node::is_local).
    #[inline]
    pub fn rank_slot(&self, slot: Slot) -> &RankSlot {
        let slot = if u32::from(slot.0) < self.areas.capacity { slot } else { Slot(0) };
        let at = self.areas.slot(slot).0 as usize;
        // SAFETY: the slot is below the capacity, so its block lies inside the mapping, which
        // lives as long as self; RankSlot is a SharedLayout aligned to its page.
        unsafe { self.map.base().add(at).cast::<RankSlot>().as_ref() }
    }

    /// A process's port among those of one number; slots fold as in [`Node::rank_slot`].
    #[inline(always)]
    pub(crate) fn port(&self, ports: &Ports, slot: Slot) -> &Port {
        let at = ports.control(slot).0 as usize;
        // SAFETY: `Ports` come from the areas of a segment of this capacity, inside of the mapping,
        // which lives as long as self; Port is a SharedLayout, aligned to its lines.
        unsafe { self.map.base().add(at).cast::<Port>().as_ref() }
    }

    /// A slot number of this node's processes that one of them wrote, if there is such a slot.
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
    #[inline]
    pub fn pace(&self) -> Pace {
        let pace = if self.crowd.is_crowded() { self.pace.crowded() } else { self.pace };
        // What others want of this process rings another bell than what it waits for.
        if self.has_pending() { pace.watchful() } else { pace }
    }

    /// Whether who waits here is [awake](Pace::is_awake) as a rule, at this process's pace now.
    #[inline(always)]
    pub fn waits_awake(&self) -> bool {
        !self.crowd.is_crowded() && self.pace.is_awake()
    }

    /// Allocates the pages of a range now, near the calling thread.
    pub fn reserve(&self, offset: Offset, length: u64, what: &str) -> Result<()> {
        map::reserve(self.fd.as_fd(), offset.0, length, what)
    }

    /// The same for memory that can be done without, see [`map::reserve_spare`].
    pub fn reserve_spare(&self, offset: Offset, length: u64, what: &str) -> Result<()> {
        map::reserve_spare(self.fd.as_fd(), offset.0, length, what)
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

    /// What the rooms above keep once per attachment: the `T`, made by `make` at first use.
    ///
    /// It lives as long as the attachment, so it must not own one: a reference back is weak.
    pub(crate) fn attachment<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut all = self.attachments.all.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find_map(|one| one.clone().downcast::<T>().ok());
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        all.push(made.clone());
        Ok(made)
    }

    /// Has `help` called in every wait of this process: before each of its sleeps, and while
    /// there is [`Node::pending`] work now and then in between. It may not block. Each room asks
    /// once, for the whole life of the attachment.
    ///
    /// # Errors
    /// [`Error::Misuse`] if more have asked than there are rooms: one asks again and again.
    pub(crate) fn help_while_waiting(
        &self,
        help: impl Fn(&Node) + Send + Sync + 'static,
    ) -> Result<()> {
        let mut help: Help = Box::new(help);
        for place in &self.attachments.help {
            match place.set(help) {
                Ok(()) => return Ok(()),
                Err(back) => help = back,
            }
        }
        let why = "more is to be done in waits than there is place for; this is a fault of the \
                   library";
        Err(Error::Misuse { what: "a wait", why: why.into() })
    }

    /// Does what the rooms above want done while this process waits.
    pub(crate) fn help(&self) {
        self.attachments.help.iter().map_while(OnceLock::get).for_each(|help| help(self));
    }

    /// Work that goes on only in calls of this process has come (`true`) or is done: begun
    /// collectives, windows whose peers have no other progress. While there is some, waits look
    /// after it often ([`Node::help_now_and_then`]), and sleep no longer than [`Pace::HELPING`].
    pub(crate) fn pending(&self, more: bool) {
        if more {
            self.attachments.pending.fetch_add(1, Ordering::Relaxed);
        } else {
            self.attachments.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.attachments.pending.load(Ordering::Relaxed) != 0
    }

    /// Has `run` called for each block that this process frees, whoever was the last to hold it,
    /// while the block is still there; the first one stays. It may not use the commons.
    pub(crate) fn last_rites(&self, run: LastRites) {
        let _ = self.attachments.last_rites.set(run);
    }

    pub(super) fn perform_last_rites(&self, kind: u32, at: Offset, size: u32) {
        if let Some(run) = self.attachments.last_rites.get() {
            run(self, kind, at, size);
        }
    }

    /// Says that the end of this attachment is meant: peers that wait for this process then get
    /// an error that says that it left, and it does not count as a death.
    ///
    /// The process leaves when the attachment is dropped, that is with the last of the job, its
    /// teams and its windows: until then it can still reach what others would take for free.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        if let Some(beyond) = self.beyond.get() {
            beyond.leave();
        }
    }

    /// Waits until processes of other nodes have what this one has sent. For the last moment before a
    /// program may end without dropping what keeps the attachment.
    pub(crate) fn drain_beyond(&self) {
        if let Some(beyond) = self.beyond.get() {
            beyond.drain();
        }
    }

    /// Whether it is to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.leaving.load(Ordering::Acquire) {
            let block = self.rank_slot(self.slot);
            block.state.store(STATE_LEFT, Ordering::Release);
            block.port.doorbell.notify();
            self.header.wiring.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::observer::Observer;
    use crate::shm::segment::STATE_READY;
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
    fn sleeps_are_short_while_work_is_pending() {
        let fd = Node::create_memory(1, 1 << 21).unwrap();
        let node = Node::attach(fd, Slot(0), Deadline::NEVER).unwrap();
        let longest = || node.pace().longest;
        assert_eq!(longest(), Pace::LONGEST);
        node.pending(true);
        node.pending(true);
        node.pending(false);
        assert_eq!(longest(), Pace::HELPING);
        node.pending(false);
        assert_eq!(longest(), Pace::LONGEST, "nobody wants any");
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
        crate::shm::liveness::eventually("the death is seen", || a.probe(Slot(1)));
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
