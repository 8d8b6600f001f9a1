//! The side of a connected queue pair that posts: operations in order, cut into frames, retired by
//! the answers.

use super::completions::Completions;
use super::frame::{CHUNK, FIRST, Frame, IMMEDIATE, Kind, LAST, SOLICITED};
use super::keys::Keys;
use super::pieces::Pieces;
use super::{INLINE, MESSAGE, READS};
use crate::net::provider::{
    Access, Address, Completion, Data, Opcode, Operation, PostError, Status, Work,
};
use std::collections::VecDeque;

enum Store {
    Pieces(Pieces),
    Inline { length: u16, bytes: [u8; INLINE] },
}

struct Slot {
    id: u64,
    kind: Kind,
    data: Store,
    address: u64,
    key: u32,
    immediate: Option<u32>,
    operands: [u64; 2],
    signalled: bool,
    fenced: bool,
    solicited: bool,
    total: u32,
    /// Bytes of a read that have come.
    got: u32,
}

impl Slot {
    fn is_read(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::FetchAdd | Kind::CompareSwap)
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Write => Opcode::Write,
            Kind::Read => Opcode::Read,
            Kind::FetchAdd => Opcode::FetchAdd,
            Kind::CompareSwap => Opcode::CompareSwap,
            _ => Opcode::Send,
        }
    }

    fn new(work: &Work<'_>, pieces: usize, inline: usize) -> Result<Slot, PostError> {
        let mut slot = Slot {
            id: work.id,
            kind: Kind::Send,
            data: Store::Inline { length: 0, bytes: [0; INLINE] },
            address: 0,
            key: 0,
            immediate: None,
            operands: [0; 2],
            signalled: work.signalled,
            fenced: work.fenced,
            solicited: work.solicited,
            total: 0,
            got: 0,
        };
        let total = match work.operation {
            Operation::Send { data, immediate } => {
                slot.immediate = immediate;
                slot.data = Store::new(&data, pieces, inline)?;
                data.length()
            }
            Operation::Write { data, to, immediate } => {
                slot.kind = Kind::Write;
                (slot.address, slot.key) = (to.address, to.key);
                slot.immediate = immediate;
                slot.data = Store::new(&data, pieces, inline)?;
                data.length()
            }
            Operation::Read { into, from } => {
                slot.kind = Kind::Read;
                (slot.address, slot.key) = (from.address, from.key);
                let data = Data::Pieces(into);
                slot.data = Store::new(&data, pieces, inline)?;
                data.length()
            }
            Operation::FetchAdd { into, at, add } => {
                slot.kind = Kind::FetchAdd;
                (slot.address, slot.key) = (at.address, at.key);
                slot.operands = [add, 0];
                slot.data = Store::new(&Data::Pieces(&[into]), pieces, inline)?;
                into.length.into()
            }
            Operation::CompareSwap { into, at, compare, swap } => {
                slot.kind = Kind::CompareSwap;
                (slot.address, slot.key) = (at.address, at.key);
                slot.operands = [compare, swap];
                slot.data = Store::new(&Data::Pieces(&[into]), pieces, inline)?;
                into.length.into()
            }
        };
        if total > u64::from(MESSAGE) {
            return Err(PostError::TooLong { length: total, limit: MESSAGE.into() });
        }
        slot.total = total as u32;
        Ok(slot)
    }
}

impl Store {
    fn new(data: &Data<'_>, pieces: usize, inline: usize) -> Result<Store, PostError> {
        match data {
            Data::Pieces(list) if list.len() > pieces => Err(PostError::TooManyPieces),
            Data::Pieces(list) => Ok(Store::Pieces(Pieces::new(list)?)),
            Data::Inline(parts) => {
                let limit = inline.min(INLINE);
                let length = data.length();
                if length > limit as u64 {
                    return Err(PostError::TooLong { length, limit: limit as u64 });
                }
                let (mut bytes, mut end) = ([0; INLINE], 0);
                for part in *parts {
                    bytes[end..end + part.len()].copy_from_slice(part);
                    end += part.len();
                }
                Ok(Store::Inline { length: end as u16, bytes })
            }
        }
    }
}

/// An answer that does not fit what was asked.
#[derive(Debug)]
pub struct Nonsense;

/// See the module.
pub struct Requester {
    slots: VecDeque<Slot>,
    /// Sequence number of the first slot.
    first: u32,
    /// Slots that were emitted whole; the next one's bytes that were.
    emitted: usize,
    offset: u32,
    /// Emitted reads and atomics without an answer.
    reads: usize,
    /// Why the slot after the emitted ones cannot be: told when its turn comes.
    broken: Option<Status>,
    depth: usize,
    pieces: usize,
    inline: usize,
    number: u32,
}

impl Requester {
    pub fn new(number: u32, depth: u32, pieces: u32, inline: u32) -> Requester {
        Requester {
            slots: VecDeque::new(),
            first: 0,
            emitted: 0,
            offset: 0,
            reads: 0,
            broken: None,
            depth: depth as usize,
            pieces: pieces as usize,
            inline: inline as usize,
            number,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn post(&mut self, work: &Work<'_>, completions: &Completions) -> Result<(), PostError> {
        let slot = Slot::new(work, self.pieces, self.inline)?;
        if self.slots.len() >= self.depth || !completions.take_room() {
            return Err(PostError::Full);
        }
        self.slots.push_back(slot);
        Ok(())
    }

    /// Appends frames until `out` has `limit` bytes or there are none. The cause if the operation
    /// whose turn it is cannot be sent.
    pub fn emit(&mut self, keys: &Keys, out: &mut Vec<u8>, limit: usize) -> Result<(), Status> {
        while out.len() < limit && self.broken.is_none() {
            let Some(slot) = self.slots.get(self.emitted) else { break };
            let waits = slot.fenced && self.reads > 0 || slot.is_read() && self.reads >= READS;
            if waits && self.offset == 0 {
                break;
            }
            match Self::emit_one(slot, self.first, self.emitted, self.offset, keys, out) {
                Ok(part) => {
                    self.offset += part;
                    if slot.is_read() || self.offset >= slot.total {
                        self.reads += usize::from(slot.is_read());
                        self.emitted += 1;
                        self.offset = 0;
                    }
                }
                Err(status) => self.broken = Some(status),
            }
        }
        self.trouble()
    }

    fn trouble(&self) -> Result<(), Status> {
        match self.broken {
            Some(status) if self.emitted == 0 => Err(status),
            _ => Ok(()),
        }
    }

    fn emit_one(
        slot: &Slot,
        first: u32,
        index: usize,
        offset: u32,
        keys: &Keys,
        out: &mut Vec<u8>,
    ) -> Result<u32, Status> {
        let mut frame = Frame::new(slot.kind, first.wrapping_add(index as u32));
        frame.total = slot.total;
        frame.key = slot.key;
        frame.address = slot.address.wrapping_add(offset.into());
        if slot.is_read() {
            let Store::Pieces(pieces) = &slot.data else { return Err(Status::LocalOperation) };
            if !pieces.check(keys, Access::LOCAL_WRITE) {
                return Err(Status::LocalProtection);
            }
            if slot.kind == Kind::Read {
                out.extend_from_slice(&frame.encode());
                return Ok(0);
            }
            if slot.total != 8 {
                return Err(Status::LocalLength);
            }
            frame.length = 16;
            out.extend_from_slice(&frame.encode());
            out.extend(slot.operands.iter().flat_map(|word| word.to_le_bytes()));
            return Ok(0);
        }
        let part = (slot.total - offset).min(CHUNK as u32);
        let last = offset + part == slot.total;
        frame.length = part;
        frame.flags = if offset == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
        if let (true, Some(immediate)) = (last, slot.immediate) {
            frame.flags |= IMMEDIATE;
            frame.immediate = immediate;
        }
        if slot.solicited {
            frame.flags |= SOLICITED;
        }
        let start = out.len();
        out.extend_from_slice(&frame.encode());
        match &slot.data {
            Store::Inline { length, bytes } => {
                out.extend_from_slice(&bytes[..usize::from(*length)]);
            }
            Store::Pieces(pieces) => {
                if pieces.gather(keys, offset.into(), part.into(), out).is_none() {
                    out.truncate(start);
                    return Err(Status::LocalProtection);
                }
            }
        }
        Ok(part)
    }

    /// The index of the slot that an answer is about, if it was emitted (or begun).
    fn index(&self, sequence: u32, begun: bool) -> Result<usize, Nonsense> {
        let index = sequence.wrapping_sub(self.first) as usize;
        let end = self.emitted + usize::from(begun && self.offset > 0);
        if index < end { Ok(index) } else { Err(Nonsense) }
    }

    /// Takes an answer. `Ok(Err)` with the cause if the queue pair fails by it.
    pub fn answer(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        keys: &Keys,
        completions: &Completions,
    ) -> Result<Result<(), Status>, Nonsense> {
        match frame.kind {
            Kind::Ack => {
                let index = self.index(frame.sequence, false)?;
                self.retire(index + 1, completions)?;
            }
            Kind::Bytes | Kind::Old => {
                let index = self.index(frame.sequence, false)?;
                self.retire(index, completions)?;
                let slot = self.slots.front_mut().ok_or(Nonsense)?;
                let wanted = if slot.kind == Kind::Read { Kind::Bytes } else { Kind::Old };
                let end = u64::from(slot.got) + payload.len() as u64;
                let last = end == u64::from(slot.total);
                if !slot.is_read()
                    || wanted != frame.kind
                    || end > u64::from(slot.total)
                    || last != frame.has(LAST)
                {
                    return Err(Nonsense);
                }
                let Store::Pieces(pieces) = &slot.data else { return Err(Nonsense) };
                let native;
                let bytes = match <[u8; 8]>::try_from(payload) {
                    Ok(old) if wanted == Kind::Old => {
                        native = u64::from_le_bytes(old).to_ne_bytes();
                        &native[..]
                    }
                    _ => payload,
                };
                if pieces.scatter(keys, slot.got.into(), bytes).is_none() {
                    return Ok(Err(Status::LocalProtection));
                }
                slot.got = end as u32;
                if last {
                    self.finish(completions);
                }
            }
            Kind::Nak => {
                let index = self.index(frame.sequence, true)?;
                self.retire(index, completions)?;
                return Ok(Err(match frame.status {
                    1 => Status::RemoteInvalid,
                    2 => Status::RemoteAccess,
                    _ => Status::RemoteOperation,
                }));
            }
            Kind::Busy => {
                self.index(frame.sequence, true)?;
            }
            Kind::Pong => {}
            _ => return Err(Nonsense),
        }
        Ok(self.trouble())
    }

    /// The first `count` slots are done; none of them is a read, which would have an answer.
    fn retire(&mut self, count: usize, completions: &Completions) -> Result<(), Nonsense> {
        if self.slots.iter().take(count).any(Slot::is_read) {
            return Err(Nonsense);
        }
        (0..count).for_each(|_| self.finish(completions));
        Ok(())
    }

    fn finish(&mut self, completions: &Completions) {
        let Some(slot) = self.slots.pop_front() else { return };
        self.first = self.first.wrapping_add(1);
        self.emitted -= 1;
        self.reads -= usize::from(slot.is_read());
        if slot.signalled {
            self.complete(&slot, Status::Success, completions);
        } else {
            completions.give_room(1);
        }
    }

    fn complete(&self, slot: &Slot, status: Status, completions: &Completions) {
        let completion = Completion {
            id: slot.id,
            queue_pair: self.number,
            opcode: slot.opcode(),
            status,
            length: slot.total,
            immediate: None,
            source: Address::NONE,
        };
        completions.push(completion, false);
    }

    /// Everything completes in error: the first with the cause.
    pub fn fail(&mut self, cause: Status, completions: &Completions) {
        let mut status = cause;
        for slot in std::mem::take(&mut self.slots) {
            self.complete(&slot, status, completions);
            status = Status::Flushed;
        }
        self.forget(completions);
    }

    /// Posts in the error state.
    pub fn flush(
        &self,
        work: &Work<'_>,
        status: Status,
        completions: &Completions,
    ) -> Result<(), PostError> {
        let slot = Slot::new(work, self.pieces, self.inline)?;
        if !completions.take_room() {
            return Err(PostError::Full);
        }
        self.complete(&slot, status, completions);
        Ok(())
    }

    /// Forgets everything posted.
    pub fn forget(&mut self, completions: &Completions) {
        completions.give_room(self.slots.len() as u32);
        self.slots.clear();
        (self.first, self.emitted, self.offset, self.reads) = (0, 0, 0, 0);
        self.broken = None;
    }
}
