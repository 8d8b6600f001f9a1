//! Long accumulates on parts on other nodes, carried out by the origin while it has the exclusive lock:
//! elements are read, combined, and written, by the devices (paper 004 §4.3: read, modify, write).
//!
//! ```text
//!   block 0   read   combine   write
//!   block 1            read   combine   write           one read and one write under way at a time,
//!   block 2                     read   combine   write  in three blocks of a workspace
//! ```
//! Nobody else may access the part then, not even its owner: the window's hint says so
//! ([`Info::locks_cover_owner`](crate::rma::Info)), for without it the owner may update elements of its
//! part at any time, and a write would undo that. The target's processor has no part in it; the elements
//! cross the network twice.
//!
//! *Nobody else* are the other threads of this process, too, which are in the same epoch: while one reads
//! and writes, their operations on the part wait ([`alone`](super::alone)), and where active messages may come
//! to the part, packets do everything.
//!
//! The rules are those of large puts and gets ([`device`](super::device)): the lock is granted first, what
//! was sent by packets before is done first, and the call returns when all is where it belongs.
//!
//! **Exactly once.** What fails before its write was begun has changed nothing: packets do it, from there
//! on. A write that failed is done again by packets as a put of what was to be written, which may be
//! repeated, for nobody has changed the elements meanwhile.

use super::cut::Cutter;
use super::device::{Carried, inside};
use super::remote::Packets;
use super::waiting::Limit;
use crate::base::sync::Ordering;
use crate::base::{Rank, Result, Slot};
use crate::layout::{Kind, Op};
use crate::link::far::{Direction, Far, Flow, Outcome};
use crate::net::memory::Memory as Space;
use crate::net::provider::{Remote, RemoteRegion};
use crate::rma::accumulate::combine;
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Landing, Memory, Operation};
use crate::shm::copy::{copy_in, copy_out};
use crate::shm::map::PAGE;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a block: a multiple of every element's.
const BLOCK: usize = 128 << 10;
/// One that is read, one that is combined, one that is written.
const BLOCKS: usize = 3;

/// Memory for blocks that devices know as long as it is there.
pub(super) struct Workspace {
    space: Space,
    /// The first whole page.
    first: NonNull<u8>,
    far: Arc<dyn Far>,
}

// SAFETY: an address in memory that `space` keeps, which may be used from any thread.
unsafe impl Send for Workspace {}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workspace({:?})", self.space)
    }
}

impl Workspace {
    fn new(far: Arc<dyn Far>) -> Result<Workspace> {
        let space = Space::zeroed(BLOCKS * BLOCK + PAGE as usize)?;
        let start = space.address() as usize;
        let first = std::ptr::with_exposed_provenance_mut(start.next_multiple_of(PAGE as usize));
        let first = NonNull::new(first).unwrap_or(NonNull::dangling());
        // SAFETY: whole pages of `space`, disowned before that goes; nobody has references to them.
        unsafe { far.own(first, BLOCKS * BLOCK) };
        Ok(Workspace { space, first, far })
    }

    /// The first byte of a block; they are used in turn.
    fn block(&self, number: usize) -> NonNull<u8> {
        // SAFETY: inside of the pages.
        unsafe { self.first.add(number % BLOCKS * BLOCK) }
    }

    /// Some of it, for a device.
    fn part(&self, number: usize, bytes: usize) -> Space {
        debug_assert!(bytes <= BLOCK);
        // SAFETY: what the owner keeps, and no reference to it exists.
        unsafe { Space::new(self.block(number), bytes, self.space.owner().clone()) }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.far.disown(self.first, BLOCKS * BLOCK) {
            // A transfer still has it: it stays.
            std::mem::forget(self.space.owner().clone());
        }
    }
}

/// What is done to the elements, and with what.
#[derive(Clone, Copy)]
struct Change {
    kind: Kind,
    op: Op,
    /// What is combined with them; not looked at where nothing is changed.
    from: *const u8,
    result: Option<*mut u8>,
}

impl Change {
    /// An accumulate of `least` bytes or more whose elements lie together everywhere.
    fn of(operation: &Operation<'_>, least: usize) -> Option<Change> {
        let (op, result) = match (operation.action, operation.landing) {
            (Action::Accumulate(op), Landing::Nothing) => (op, None),
            (Action::GetAccumulate(op), Landing::Here(memory)) => (op, Some(memory)),
            _ => return None,
        };
        let kind = operation.kind?;
        let whole = |memory: &Memory<'_>| memory.shape.is_none() && memory.bytes == operation.bytes;
        let fits = operation.shape.is_none()
            && (op == Op::NoOp && operation.origin.bytes == 0 || whole(&operation.origin))
            && result.as_ref().is_none_or(whole)
            && operation.bytes.is_multiple_of(kind.size());
        let long = operation.bytes >= least && operation.bytes > 0;
        let from = operation.origin.at.cast_const();
        (fits && long).then_some(Change { kind, op, from, result: result.map(|memory| memory.at) })
    }

    /// Whether it matters what was there.
    fn reads(&self) -> bool {
        self.op != Op::Replace || self.result.is_some()
    }

    fn writes(&self) -> bool {
        self.op != Op::NoOp
    }

    /// Combines the elements of a block, which are those from byte `from` on of all.
    ///
    /// # Safety
    /// The block has as many bytes, and nobody else uses it; the operation's memory is the caller's.
    unsafe fn apply(&self, block: NonNull<u8>, from: usize, bytes: usize) {
        let at = block.as_ptr();
        let result = self.result.map(|result| result.wrapping_add(from));
        // SAFETY: the caller's; the operation has as many bytes at either side.
        unsafe {
            if let (Op::NoOp, Some(result)) = (self.op, result) {
                copy_out(result, at, bytes);
            } else if !self.reads() {
                copy_in(at, self.from.wrapping_add(from), bytes);
            } else if self.writes() {
                let count = bytes / self.kind.size();
                let from = self.from.wrapping_add(from);
                combine(self.kind, self.op, (at, count), from, result);
            }
        }
    }
}

/// The rest of an operation whose elements lie together, without the first `done` bytes.
pub(super) fn rest<'m>(operation: &Operation<'m>, done: usize) -> Operation<'m> {
    let behind = |memory: Memory<'m>| if memory.bytes == 0 { memory } else { memory.behind(done) };
    let landing = match operation.landing {
        Landing::Here(memory) => Landing::Here(behind(memory)),
        other => other,
    };
    Operation {
        at: operation.at + done as u64,
        bytes: operation.bytes - done,
        origin: behind(operation.origin),
        landing,
        ..*operation
    }
}

/// A block under way: its number, and its bytes.
struct Moving<'f> {
    number: usize,
    bytes: usize,
    carried: Carried<'f>,
}

/// One operation that is carried out in blocks.
struct Job<'p> {
    packets: &'p Packets,
    operation: &'p Operation<'p>,
    limit: &'p Limit<'p>,
    far: &'p dyn Far,
    slot: Slot,
    region: RemoteRegion,
    there: Remote,
    space: &'p Workspace,
}

impl<'p> Job<'p> {
    fn bytes(&self, number: usize) -> usize {
        (self.operation.bytes - number * BLOCK).min(BLOCK)
    }

    /// Begins to read or write a block; nothing if no queue pair leads there now.
    fn begin(&self, number: usize, direction: Direction) -> Option<Moving<'p>> {
        let bytes = self.bytes(number);
        let address = self.there.address + (number * BLOCK) as u64;
        let there = Remote { address, ..self.there };
        let here = self.space.part(number, bytes);
        let transfer = self.far.copy(self.slot, Flow::Requests.into(), direction, there, &here)?;
        let carried = Carried { far: self.far, slot: self.slot, transfer, _lent: None };
        Some(Moving { number, bytes, carried })
    }

    /// Waits for a block; whether it is where it was to go.
    fn end(&self, moving: Moving<'p>, direction: Direction) -> Result<bool> {
        let (packets, target) = (self.packets, self.operation.target);
        let (number, bytes) = (moving.number, moving.bytes);
        let (outcome, waited) = packets.finish(self.operation.what, self.limit, moving.carried);
        if outcome != Outcome::Done {
            let mut state = packets.agent.enter_regardless();
            state.world.moved.failed += 1;
            match (outcome, direction) {
                (Outcome::Failed, Direction::Write) => {
                    packets.doubtful.store(true, Ordering::Release);
                    state.world.doubt(
                        &packets.node,
                        packets.id,
                        target,
                        self.slot,
                        self.region.key,
                    );
                }
                // Maybe because that is no place any more.
                (Outcome::Failed, Direction::Read) => state.world.forget_place(packets.id, target),
                _ => {}
            }
        }
        packets.naming(Some(target), waited)?;
        if outcome != Outcome::Done && direction == Direction::Write {
            self.put(number, bytes)?;
        }
        Ok(outcome == Outcome::Done)
    }

    /// Writes a block that has been combined by packets.
    fn put(&self, number: usize, bytes: usize) -> Result<()> {
        let block = self.space.block(number).as_ptr();
        // SAFETY: no device has the block any more, and nobody else knows it.
        let values = unsafe { std::slice::from_raw_parts(block, bytes) };
        let put = Operation {
            at: self.operation.at + (number * BLOCK) as u64,
            bytes,
            action: Action::Put,
            kind: None,
            origin: Memory::of(values),
            landing: Landing::Nothing,
            ..*self.operation
        };
        self.packets.stream(&put, &mut Cutter::new(&put)?)
    }

    /// Carries it out as far as devices can; how many of its bytes are done, from the first on.
    fn run(&self, change: Change) -> Result<usize> {
        let blocks = self.operation.bytes.div_ceil(BLOCK);
        let read = |number: usize| match change.reads() && number < blocks {
            true => self.begin(number, Direction::Read).map(Some),
            false => Some(None),
        };
        let mut writing: Option<Moving<'p>> = None;
        let mut reading = read(0);
        let mut at = 0;
        let mut well = true;
        while at < blocks && well {
            let Some(moving) = reading.take() else { break };
            if let Some(moving) = moving
                && !self.end_beside(moving, &mut writing)?
            {
                break;
            }
            reading = read(at + 1);
            let bytes = self.bytes(at);
            // SAFETY: the block was read, and is not written yet; the operation is the caller's.
            unsafe { change.apply(self.space.block(at), at * BLOCK, bytes) };
            if let Some(moving) = writing.take() {
                well = self.end(moving, Direction::Write)?;
            }
            if change.writes() {
                writing = if well { self.begin(at, Direction::Write) } else { None };
                if writing.is_none() {
                    // Combined, and with its result told: it is put, not combined again.
                    self.put(at, bytes)?;
                    well = false;
                }
            }
            at += 1;
        }
        if let Some(moving) = writing.take() {
            self.end(moving, Direction::Write)?;
        }
        // One that is read in vain.
        drop(reading);
        Ok((at * BLOCK).min(self.operation.bytes))
    }

    /// Waits for a block that is read. If that is given up, so is the one that is being written.
    fn end_beside(&self, moving: Moving<'p>, writing: &mut Option<Moving<'p>>) -> Result<bool> {
        let ended = self.end(moving, Direction::Read);
        if ended.is_err()
            && let Some(moving) = writing.take()
        {
            // The deadline has passed: what is not over by now is broken off.
            let _ = self.end(moving, Direction::Write);
        }
        ended
    }
}

impl Packets {
    /// Carries an accumulate out by reading and writing, if that may be and pays; how many bytes of it
    /// are done, from the first on. Packets are to do the rest.
    ///
    /// # Errors
    /// As for operations: no epoch, a target that is gone, the deadline. Some elements may have been
    /// updated then, and others not.
    pub(super) fn modify(&self, operation: &Operation<'_>) -> Result<usize> {
        let Some(change) = Change::of(operation, self.sizes.accumulate) else { return Ok(0) };
        let (what, target) = (operation.what, operation.target);
        let slot = self.team.slot_of(target)?;
        let Some(far) = self.far().filter(|far| far.is_hot(slot, Flow::Requests)) else {
            return Ok(0);
        };
        if self.node.is_local(slot) || self.foreign.get().is_some() {
            return Ok(0);
        }
        let Some(part) = self.alone_at(target)? else { return Ok(0) };
        let _alone = part.write().unwrap_or_else(PoisonError::into_inner);
        let place = self.agent.enter()?.world.place(&self.node, self.id, target, slot);
        let there = place.and_then(|region| inside(region, operation.at, operation.bytes));
        let (Some(region), Some(there)) = (place, there) else { return Ok(0) };
        // What is not aligned is refused by the target.
        if !there.address.is_multiple_of(change.kind.align() as u64) {
            return Ok(0);
        }
        let limit = self.limit();
        self.clear_way(what, target, &limit)?;
        let Some(space) = self.workspace() else { return Ok(0) };
        let job = Job {
            packets: self,
            operation,
            limit: &limit,
            far,
            slot,
            region,
            there,
            space: &space,
        };
        let done = job.run(change);
        if matches!(done, Ok(bytes) if bytes == operation.bytes) {
            self.agent.enter_regardless().world.moved.modified += 1;
        }
        let mut kept = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(space);
        done
    }

    /// The lock of a part that this process has locked alone, if an origin may read and write it then.
    pub(super) fn alone_at(&self, target: Rank) -> Result<Option<Arc<RwLock<()>>>> {
        let may = self.sizes.modifies() && self.agent.enter()?.engine.is_alone(self.id, target.0);
        Ok(may.then(|| self.alone.part(target)))
    }

    /// The window's workspace, or another one if a call has it.
    fn workspace(&self) -> Option<Workspace> {
        let mut kept = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let far = self.far.get()?.as_ref()?;
        kept.take().or_else(|| Workspace::new(far.clone()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Shape};

    /// What is left of one that was broken off begins behind what was done: so everything lies together,
    /// an origin that is not looked at, too.
    #[test]
    fn what_does_not_lie_together_is_for_packets() {
        let (data, mut into) = ([1u64; 8], [0u64; 8]);
        let layout = Layout::of::<u64>().vector(8, 1, 1).unwrap();
        let shape = Shape { layout: &layout, count: 1 };
        let landing = Landing::Here(Memory::of_mut(&mut into));
        let choose = |op, origin, least| {
            let operation = Operation {
                what: "a test",
                target: Rank(1),
                at: 16,
                bytes: 64,
                shape: None,
                action: Action::GetAccumulate(op),
                kind: Some(Kind::U64),
                element: 8,
                origin,
                compare: Memory::NONE,
                landing,
            };
            let rest = rest(&operation, 24);
            let behind = (rest.at, rest.bytes) == (40, 40)
                && rest.origin.bytes == operation.origin.bytes.saturating_sub(24);
            Change::of(&operation, least).is_some() && behind
        };
        let (plain, shaped) = (Memory::of(&data), Memory::of(&data).shaped(shape, 64));
        for op in [Op::Sum, Op::Replace, Op::NoOp] {
            assert!(choose(op, plain, 64) && !choose(op, plain, 65), "{op:?}");
            assert!(!choose(op, shaped, 64), "{op:?}");
        }
        assert!(choose(Op::NoOp, Memory::NONE, 64) && !choose(Op::Sum, Memory::NONE, 64));
    }
}
