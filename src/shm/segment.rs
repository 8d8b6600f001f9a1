//! The node's segment: what lies where in the shared memory file, and its life cycle.
//!
//! ```text
//! 0            header    magic, version, sizes, agreed address, death count     one page
//!              extents   tables of the two heaps (see `heap`)
//!              slots     one RankSlot per process: state, doorbell, lock nodes
//!              inboxes   one inbox per process, written by many (see `ring::inbox`)
//!              services  two more inboxes per process, for packets of one-sided operations
//!              lanes     LANES lanes per process, each written by one peer, on demand
//!              ports     for each process PORTS times: a Port, its inbox, its lanes; on demand
//!              commons   blocks that belong to teams
//!              heap      `capacity` equal strides of symmetric memory
//! ```
//! The file is sparse; only reserved ranges take memory. Offsets of the areas follow from
//! `capacity` and `stride` by [`Areas::new`], the same in every process, and are never read from
//! the segment. The header's `version` word is stored last, with Release: zero means not ready.

use super::heap::ExtentTable;
use super::lock::LockNode;
use super::map::{PAGE, round_up};
use super::park::WaitCell;
use super::region::SharedLayout;
use super::section::{SECTIONS, Section};
use crate::base::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Offset, Result, Slot};

/// Identifies a segment of this layout. Changes whenever a shared structure changes.
pub const VERSION: u64 = 0x4869_7468_6572_000a;

/// Most processes a node's segment can hold.
pub const MAX_CAPACITY: u32 = 4096;
/// Lock nodes per process: how many of its threads can wait for locks at one time.
pub const LOCK_NODES: usize = 64;
/// Words per process by which buffers are claimed.
pub const CLAIMS: usize = 512;
/// Bytes of one inbox.
pub const INBOX_BYTES: u64 = 128 << 10;
/// Service inboxes per process.
pub const SERVICES: usize = 2;
/// Bytes of one lane, and of those that it has until traffic asks for more.
pub const LANE_BYTES: u64 = 512 << 10;
pub const SHORT_LANE_BYTES: u64 = 16 << 10;
/// Lanes per receiving process, and per port.
pub const LANES: usize = 64;
/// Further ports per process: endpoints that threads have for themselves.
pub const PORTS: usize = 63;
/// Fixed part of the commons; each slot adds [`COMMONS_PER_SLOT`].
pub const COMMONS_BASE: u64 = 1 << 30;
/// Share of the commons that each slot adds.
pub const COMMONS_PER_SLOT: u64 = 64 << 20;
/// Largest sum of all strides: leaves most of a 47-bit address space to the program.
pub const MAX_HEAP_SPAN: u64 = 32 << 40;
/// Unit of strides and of symmetric allocation that asks for huge pages.
pub const HUGE_PAGE: u64 = 2 << 20;

/// A slot that no process has taken.
pub const STATE_EMPTY: u32 = 0;
/// A process is wiring itself up.
pub const STATE_JOINING: u32 = 1;
/// A process takes part.
pub const STATE_READY: u32 = 2;
/// A process left in good order.
pub const STATE_LEFT: u32 = 3;
/// A process died.
pub const STATE_DEAD: u32 = 4;

/// First page of the segment.
#[repr(C, align(64))]
pub struct NodeHeader {
    /// [`VERSION`] once the header is complete, else 0.
    pub version: AtomicU64,
    /// Length of the file.
    pub length: AtomicU64,
    /// Ranks in the job.
    pub size: AtomicU32,
    /// Slots there is room for.
    pub capacity: AtomicU32,
    /// Bytes of symmetric memory per slot.
    pub stride: AtomicU64,
    /// Random identity of the job.
    pub job: AtomicU64,
    /// Waiters of the wiring.
    pub wiring: WaitCell,
    /// Round of the address agreement, counted from 1; the leader's proposal is `base`.
    pub round: AtomicU32,
    /// Non-zero if some process could not register for asymmetric fences.
    pub full_fences: AtomicU32,
    /// Proposed, then agreed address of the mapping.
    pub base: AtomicU64,
    /// 1 once `base` is agreed, 2 if no address suits all.
    pub agreed: AtomicU32,
    /// Processors the job may use, as seen by whoever created the segment (before binding).
    pub cpus: AtomicU32,
    /// Contexts of messages that were given out, ever.
    pub contexts: AtomicU32,
    _pad0: [AtomicU32; 13],
    /// Ranks known dead, ever. On a line of its own: every wait looks at it, deaths write it.
    pub deaths: AtomicU32,
    /// Non-zero once the job is being ended (the launcher's doing): the cause is the dead rank.
    pub ending: AtomicU32,
    _pad1: [AtomicU32; 14],
}

/// What a process says about its private memory, so that peers find out whether they can copy from
/// and to it by system calls. Written once, before the first message that refers to it.
#[repr(C)]
pub struct Copying {
    /// A random name of the address space: ranks that are threads of one process have the same.
    pub space: [AtomicU64; 2],
    /// Address of the process's copy of `cookie`; 0 if nobody is to copy.
    pub cookie_at: AtomicU64,
    /// A random number.
    pub cookie: AtomicU64,
    /// Non-zero once the others are written.
    pub ready: AtomicU64,
    _pad: [AtomicU64; 2],
}

/// What those that send to a process by one of its ports read and write: whom to wake, whether it
/// has room, who has its lanes. Each process has one in its control block, and further ones for
/// endpoints of its own.
#[repr(C, align(64))]
pub struct Port {
    /// Rung by whoever puts a message where this port's messages are looked for.
    pub doorbell: WaitCell,
    /// Set by a peer that found all lanes into this port taken.
    pub lanes_wanted: AtomicU32,
    /// Non-zero while so many messages are held that nobody has asked for that large ones and small
    /// ones alike shall only be announced.
    pub pressure: AtomicU32,
    _pad: [AtomicU32; 12],
    /// Who may write to each lane into this port: slot plus one, 0 for nobody. Changed from 0
    /// by whoever takes the lane, to 0 by this process.
    pub lane_owners: [AtomicU16; LANES],
    /// Non-zero while a thread of this process writes to the lane that the word stands for, see
    /// `ring::lane`. Written by this process only.
    pub sending: [AtomicU32; LANES],
}

/// One process's control block.
#[repr(C, align(64))]
pub struct RankSlot {
    /// One of the `STATE_` values.
    pub state: AtomicU32,
    /// Process id, for messages only: the process may live in another pid namespace.
    pub pid: AtomicU32,
    /// What is known of its death: 0 nothing, 0x100 | signal, 0x200 | exit code.
    pub cause: AtomicU32,
    /// Core the process is bound to, plus one; 0 if it is not bound.
    pub core: AtomicU32,
    /// Vote in the address agreement: round << 1 | mapped.
    pub vote: AtomicU64,
    /// How many of `sections` have ever belonged to a thread: the first ones.
    pub sections_used: AtomicU32,
    /// Core on which a thread of it ran when it last gave one up in a wait, and how often (`aside::note`); 0 if it has not.
    pub seen_on: AtomicU32,
    _pad1: [AtomicU64; 4],
    /// Where it looks for messages.
    pub port: Port,
    /// Rung by whoever puts a packet into one of this process's service inboxes.
    pub service: WaitCell,
    /// How peers may copy from and to this process's private memory.
    pub copying: Copying,
    /// Queue nodes for the locks this process's threads wait for.
    pub lock_nodes: [LockNode; LOCK_NODES],
    /// Words of this process's threads, see `section`.
    pub sections: [Section; SECTIONS],
    /// Words by which this process and a peer agree who has a buffer. Here, because a peer may
    /// touch them after this process has died, when its other memory may be another's.
    pub claims: [AtomicU64; CLAIMS],
}

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for NodeHeader {}
// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for RankSlot {}
// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for Port {}
// SAFETY: as above.
unsafe impl SharedLayout for AtomicU32 {}

impl Port {
    /// Where the `word`-th of the `sending` words of a port at `port` lies.
    pub fn sending_at(port: Offset, word: usize) -> Option<Offset> {
        let at = std::mem::offset_of!(Port, sending) + word * size_of::<AtomicU32>();
        (word < LANES).then_some(Offset(port.0 + at as u64))
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<NodeHeader>() == 192);
    assert!(offset_of!(NodeHeader, length) == 8);
    assert!(offset_of!(NodeHeader, base) == 56);
    assert!(offset_of!(NodeHeader, deaths) == 128);
    assert!(offset_of!(RankSlot, sections_used) == 24 && offset_of!(RankSlot, port) == 64);
    assert!(offset_of!(Port, lanes_wanted) == 8 && offset_of!(Port, pressure) == 12);
    assert!(offset_of!(Port, lane_owners) == 64 && offset_of!(Port, sending) == 192);
    assert!(size_of::<Port>() == 448);
    assert!(offset_of!(RankSlot, service) == 512 && offset_of!(RankSlot, copying) == 520);
    assert!(size_of::<Copying>() == 56 && offset_of!(Copying, ready) == 32);
    assert!(offset_of!(RankSlot, lock_nodes) == 576);
    assert!(size_of::<LockNode>() == 64);
    assert!(offset_of!(RankSlot, sections) == 576 + 64 * LOCK_NODES);
    assert!(offset_of!(RankSlot, claims) == 576 + 64 * (LOCK_NODES + SECTIONS));
    assert!(size_of::<RankSlot>() == 576 + 64 * (LOCK_NODES + SECTIONS) + 8 * CLAIMS);
};

/// Where the areas of a segment lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// Slots there is room for.
    pub capacity: u32,
    /// Bytes of symmetric memory per slot.
    pub stride: u64,
    extents: u64,
    slots: u64,
    inboxes: u64,
    services: u64,
    lanes: u64,
    ports: u64,
    commons: u64,
    heap: u64,
    /// Length of the file.
    pub length: u64,
}

impl Areas {
    const SLOT_BYTES: u64 = round_up(size_of::<RankSlot>() as u64, PAGE);
    const EXTENTS_BYTES: u64 = round_up(size_of::<ExtentTable>() as u64, PAGE);
    /// A further port, its inbox, its lanes.
    const PORT_BYTES: u64 = PAGE + INBOX_BYTES + LANES as u64 * LANE_BYTES;

    /// Layout for `capacity` processes with about `heap_size` bytes of symmetric address space
    /// each (rounded to 2 MiB, lowered if the sum would exceed [`MAX_HEAP_SPAN`]).
    pub fn new(capacity: u32, heap_size: u64) -> Result<Areas> {
        if capacity == 0 || capacity > MAX_CAPACITY {
            return Err(Error::invalid(
                "number of ranks on a node",
                format!("{capacity} is not in 1..={MAX_CAPACITY}"),
            ));
        }
        let cap = u64::from(capacity);
        let most = (MAX_HEAP_SPAN / cap) & !(HUGE_PAGE - 1);
        let stride = round_up(heap_size.clamp(HUGE_PAGE, most), HUGE_PAGE);
        let extents = PAGE;
        let slots = extents + 2 * Self::EXTENTS_BYTES;
        let inboxes = slots + cap * Self::SLOT_BYTES;
        let services = inboxes + cap * INBOX_BYTES;
        let lanes = services + cap * SERVICES as u64 * INBOX_BYTES;
        let ports = lanes + cap * LANES as u64 * LANE_BYTES;
        let commons = ports + cap * PORTS as u64 * Self::PORT_BYTES;
        let commons_end = commons + COMMONS_BASE + cap * COMMONS_PER_SLOT;
        let heap = round_up(commons_end, HUGE_PAGE);
        let length = heap + cap * stride;
        Ok(Areas {
            capacity,
            stride,
            extents,
            slots,
            inboxes,
            services,
            lanes,
            ports,
            commons,
            heap,
            length,
        })
    }

    /// Offset of the extent table of the symmetric heap (0) or the commons (1).
    pub fn extents(&self, which: usize) -> Offset {
        Offset(self.extents + which as u64 * Self::EXTENTS_BYTES)
    }

    /// Offset of a process's control block.
    #[inline]
    pub fn slot(&self, slot: Slot) -> Offset {
        Offset(self.slots + slot.index() as u64 * Self::SLOT_BYTES)
    }

    /// Offset of a process's inbox.
    pub fn inbox(&self, slot: Slot) -> Offset {
        Offset(self.inboxes + slot.index() as u64 * INBOX_BYTES)
    }

    /// Offset of one of a process's service inboxes. Reserved when they are first used.
    pub fn service(&self, slot: Slot, which: usize) -> Offset {
        let index = slot.index() * SERVICES + which;
        Offset(self.services + index as u64 * INBOX_BYTES)
    }

    /// Offset of one of a process's incoming lanes.
    pub fn lane(&self, slot: Slot, lane: usize) -> Offset {
        let index = slot.index() as u64 * LANES as u64 + lane as u64;
        Offset(self.lanes + index * LANE_BYTES)
    }

    /// Where what belongs to the ports of a number lies, in every process: 0 for the one that each
    /// has from the start, then [`PORTS`] more.
    pub fn ports(&self, number: usize) -> Option<Ports> {
        if number == 0 {
            return Some(Ports {
                control: self.slots + std::mem::offset_of!(RankSlot, port) as u64,
                control_step: Self::SLOT_BYTES,
                inboxes: self.inboxes,
                inbox_step: INBOX_BYTES,
                lanes: self.lanes,
                lanes_step: LANES as u64 * LANE_BYTES,
                capacity: self.capacity,
            });
        }
        let first = self.ports + (number as u64 - 1) * Self::PORT_BYTES;
        let step = PORTS as u64 * Self::PORT_BYTES;
        (number <= PORTS).then_some(Ports {
            control: first,
            control_step: step,
            inboxes: first + PAGE,
            inbox_step: step,
            lanes: first + PAGE + INBOX_BYTES,
            lanes_step: step,
            capacity: self.capacity,
        })
    }

    /// Offset and length of the commons.
    pub fn commons(&self) -> (Offset, u64) {
        (Offset(self.commons), COMMONS_BASE + u64::from(self.capacity) * COMMONS_PER_SLOT)
    }

    /// Offset of a slot's symmetric memory.
    #[inline]
    pub fn heap(&self, slot: Slot) -> Offset {
        Offset(self.heap + slot.index() as u64 * self.stride)
    }

    /// The part that whoever creates the segment reserves: header, extent tables and slots.
    /// Slots are read by everybody before their owners arrive, so they cannot wait for them.
    pub fn head_bytes(&self) -> u64 {
        self.inboxes
    }
}

/// Where the ports of one number lie. Of all processes alike, so that finding one takes a
/// multiplication.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    control: u64,
    control_step: u64,
    inboxes: u64,
    inbox_step: u64,
    lanes: u64,
    lanes_step: u64,
    capacity: u32,
}

impl Ports {
    /// Offset of a process's [`Port`]. Slots beyond the segment fold onto slot 0.
    #[inline(always)]
    pub fn control(&self, slot: Slot) -> Offset {
        let index = if u32::from(slot.0) < self.capacity { slot.index() as u64 } else { 0 };
        Offset(self.control + index * self.control_step)
    }

    /// Offset of its inbox.
    pub fn inbox(&self, slot: Slot) -> Offset {
        Offset(self.inboxes + slot.index() as u64 * self.inbox_step)
    }

    /// Offset of one of its lanes.
    pub fn lane(&self, slot: Slot, lane: usize) -> Offset {
        Offset(self.lanes + slot.index() as u64 * self.lanes_step + lane as u64 * LANE_BYTES)
    }
}

/// Fills in the header of a fresh segment and makes it ready.
pub fn initialise(header: &NodeHeader, areas: &Areas, size: u32, job: u64, cpus: u32) {
    header.cpus.store(cpus, Ordering::Relaxed);
    header.length.store(areas.length, Ordering::Relaxed);
    header.size.store(size, Ordering::Relaxed);
    header.capacity.store(areas.capacity, Ordering::Relaxed);
    header.stride.store(areas.stride, Ordering::Relaxed);
    header.job.store(job, Ordering::Relaxed);
    header.version.store(VERSION, Ordering::Release);
}

/// Checks a header that somebody else wrote against the length of its file, and recomputes the
/// areas. Nothing of it is trusted before this.
pub fn validate(header: &NodeHeader, file_length: u64) -> Result<(Areas, u32)> {
    let bad = |why: String| Error::Incompatible { what: "the node's shared memory", why };
    let version = header.version.load(Ordering::Acquire);
    if version != VERSION {
        return Err(bad(format!(
            "its version is {version:#x}, this library's {VERSION:#x}; \
             build all programs of a job with the same hither"
        )));
    }
    let capacity = header.capacity.load(Ordering::Relaxed);
    let stride = header.stride.load(Ordering::Relaxed);
    let size = header.size.load(Ordering::Relaxed);
    let areas = Areas::new(capacity, stride).map_err(|e| bad(e.to_string()))?;
    if areas.stride != stride || areas.length != file_length || size == 0 || size > capacity {
        return Err(bad(format!(
            "capacity {capacity}, stride {stride}, size {size} do not fit its length {file_length}"
        )));
    }
    Ok((areas, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap_and_are_aligned() {
        for capacity in [1, 2, 7, 64, 4096] {
            let a = Areas::new(capacity, 64 << 30).unwrap();
            let last = Slot((capacity - 1) as u16);
            assert!(a.extents(1).0 + Areas::EXTENTS_BYTES <= a.slot(Slot(0)).0);
            assert!(a.slot(last).0 + Areas::SLOT_BYTES <= a.inbox(Slot(0)).0);
            assert!(a.inbox(last).0 + INBOX_BYTES <= a.service(Slot(0), 0).0);
            assert!(a.service(last, SERVICES - 1).0 + INBOX_BYTES <= a.lane(Slot(0), 0).0);
            let port = |number| a.ports(number).unwrap();
            assert!(a.lane(last, LANES - 1).0 + LANE_BYTES <= port(1).control(Slot(0)).0);
            for (slot, number, next) in [(Slot(0), 1, 2), (last, PORTS - 1, PORTS)] {
                let [this, next] = [number, next].map(port);
                assert!(this.control(slot).0 + PAGE <= this.inbox(slot).0);
                assert!(this.inbox(slot).0 + INBOX_BYTES <= this.lane(slot, 0).0);
                assert!(this.lane(slot, LANES - 1).0 + LANE_BYTES <= next.control(slot).0);
            }
            assert!(port(PORTS).lane(last, LANES - 1).0 + LANE_BYTES <= a.commons().0.0);
            assert!(a.ports(PORTS + 1).is_none());
            assert_eq!(port(0).inbox(last), a.inbox(last));
            assert_eq!(port(0).lane(last, 3), a.lane(last, 3));
            assert_eq!(port(0).control(last).0, a.slot(last).0 + 64);
            assert!(a.commons().0.0 + a.commons().1 <= a.heap(Slot(0)).0);
            assert_eq!(a.heap(last).0 + a.stride, a.length);
            assert_eq!(a.heap(Slot(0)).0 % HUGE_PAGE, 0);
            assert_eq!(a.inbox(last).0 % PAGE, 0);
            assert!(a.length < 1 << 46);
        }
    }

    #[test]
    fn a_damaged_header_is_refused() {
        // SAFETY: NodeHeader is valid for all bit patterns, zeros included.
        let header: NodeHeader = unsafe { std::mem::zeroed() };
        let areas = Areas::new(4, 1 << 30).unwrap();
        assert!(validate(&header, areas.length).is_err(), "not ready");
        initialise(&header, &areas, 4, 1, 2);
        assert_eq!(validate(&header, areas.length).unwrap(), (areas, 4));
        assert!(validate(&header, areas.length + 4096).is_err(), "wrong length");
        header.capacity.store(u32::MAX, Ordering::Relaxed);
        assert!(validate(&header, areas.length).is_err(), "absurd capacity");
        header.capacity.store(4, Ordering::Relaxed);
        header.size.store(5, Ordering::Relaxed);
        assert!(validate(&header, areas.length).is_err(), "more ranks than slots");
    }
}
