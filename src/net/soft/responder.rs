//! The side of a connected queue pair that carries a peer's operations out, in order, and answers.
//! Everything that came is checked here, in release builds too.

use super::completions::Completions;
use super::frame::{CHUNK, FIRST, Frame, HEADER, IMMEDIATE, Kind, LAST, SOLICITED};
use super::keys::Keys;
use super::receives::{Posted, Receives};
use super::{READS, Shared, count};
use crate::base::sync::Ordering;
use crate::net::provider::{Access, Address, Completion, Opcode, Status};
use std::collections::VecDeque;

enum Answer {
    Ack(u32),
    Bytes { sequence: u32, key: u32, address: u64, done: u32, total: u32 },
    Old { sequence: u32, old: u64 },
    Nak { sequence: u32, status: u8 },
    Busy(u32),
    Pong(u32),
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Done, or begun.
    Done,
    /// It waits for a receive: give it again. Nothing has happened.
    Wait,
    /// Refused: the peer is told, and this end fails too.
    Refused,
    /// No peer sends such a thing.
    Nonsense,
}

/// What a responder works with.
pub struct Ends<'a> {
    pub shared: &'a Shared,
    pub receives: &'a Receives,
    pub completions: &'a Completions,
    pub number: u32,
}

impl Ends<'_> {
    fn complete(
        &self,
        receive: &Posted,
        status: Status,
        opcode: Opcode,
        length: u32,
        frame: &Frame,
    ) {
        let completion = Completion {
            id: receive.id,
            queue_pair: self.number,
            opcode,
            status,
            length,
            immediate: frame.has(IMMEDIATE).then_some(frame.immediate),
            source: Address::NONE,
        };
        self.completions.push(completion, frame.has(SOLICITED));
    }
}

/// See the module.
#[derive(Default)]
pub struct Responder {
    expected: u32,
    /// The operation under way: what, how long, how much has come.
    part: Option<(Kind, u32, u32)>,
    landing: Option<Posted>,
    answers: VecDeque<Answer>,
    reads: usize,
}

impl Responder {
    /// Takes one request.
    pub fn take(&mut self, frame: &Frame, payload: &[u8], ends: &Ends<'_>) -> Taken {
        if frame.kind == Kind::Ping {
            if !matches!(self.answers.back(), Some(Answer::Pong(_))) {
                self.answers.push_back(Answer::Pong(frame.sequence));
            }
            return Taken::Done;
        }
        let begins = frame.has(FIRST);
        if frame.sequence != self.expected || begins != self.part.is_none() {
            return Taken::Nonsense;
        }
        match frame.kind {
            Kind::Send | Kind::Write => {
                let (kind, total, got) = self.part.unwrap_or((frame.kind, frame.total, 0));
                let end = u64::from(got) + payload.len() as u64;
                let last = end == u64::from(total);
                let whole = kind == frame.kind && total == frame.total && end <= total.into();
                // Nothing makes a frame without bytes but an operation without any.
                let moves = !payload.is_empty() || total == 0;
                if !whole || !moves || last != frame.has(LAST) {
                    return Taken::Nonsense;
                }
                let taken = match kind {
                    Kind::Send => self.send(frame, payload, total, got, ends),
                    _ => self.write(frame, payload, total, last, ends),
                };
                if taken == Taken::Done {
                    self.part = (!last).then_some((kind, total, end as u32));
                    if last {
                        self.done(frame.sequence);
                    }
                }
                taken
            }
            Kind::Read if payload.is_empty() && frame.has(LAST) => self.read(frame, ends),
            Kind::FetchAdd | Kind::CompareSwap if payload.len() == 16 && frame.has(LAST) => {
                self.atomic(frame, payload, ends)
            }
            _ => Taken::Nonsense,
        }
    }

    fn send(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        total: u32,
        got: u32,
        ends: &Ends<'_>,
    ) -> Taken {
        if frame.has(FIRST) {
            let Some(receive) = ends.receives.take(ends.completions, &ends.shared.events) else {
                return Taken::Wait;
            };
            if receive.pieces.length() < u64::from(total) {
                ends.complete(&receive, Status::LocalLength, Opcode::Receive, 0, frame);
                return self.refuse(frame, Status::RemoteInvalid);
            }
            self.landing = Some(receive);
        }
        let Some(receive) = self.landing else { return Taken::Nonsense };
        if receive.pieces.scatter(&ends.shared.keys, got.into(), payload).is_none() {
            self.landing = None;
            ends.complete(&receive, Status::LocalProtection, Opcode::Receive, 0, frame);
            return self.refuse(frame, Status::RemoteOperation);
        }
        if frame.has(LAST) {
            self.landing = None;
            ends.complete(&receive, Status::Success, Opcode::Receive, total, frame);
        }
        Taken::Done
    }

    fn write(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        total: u32,
        last: bool,
        ends: &Ends<'_>,
    ) -> Taken {
        // All of it before the first byte is written; then each part, for the key may go meanwhile.
        let span = if frame.has(FIRST) { total } else { payload.len() as u32 };
        let keys = &ends.shared.keys;
        let place = keys.find(frame.key, frame.address, span.into(), Access::REMOTE_WRITE);
        if place.is_none() && span > 0 {
            count(&ends.shared.refused);
            return self.refuse(frame, Status::RemoteAccess);
        }
        let receive = if last && frame.has(IMMEDIATE) {
            match ends.receives.take(ends.completions, &ends.shared.events) {
                Some(receive) => Some(receive),
                None => return Taken::Wait,
            }
        } else {
            None
        };
        if let Some((memory, offset)) = place
            && !memory.write(offset, payload)
        {
            return self.refuse(frame, Status::RemoteAccess);
        }
        if let Some(receive) = receive {
            ends.complete(&receive, Status::Success, Opcode::ReceiveWrite, total, frame);
        }
        Taken::Done
    }

    fn read(&mut self, frame: &Frame, ends: &Ends<'_>) -> Taken {
        if self.reads >= READS {
            return Taken::Nonsense;
        }
        let total = frame.total;
        let place =
            ends.shared.keys.find(frame.key, frame.address, total.into(), Access::REMOTE_READ);
        if place.is_none() && total > 0 {
            count(&ends.shared.refused);
            return self.refuse(frame, Status::RemoteAccess);
        }
        self.reads += 1;
        self.expected = self.expected.wrapping_add(1);
        let Frame { sequence, key, address, .. } = *frame;
        self.answers.push_back(Answer::Bytes { sequence, key, address, done: 0, total });
        Taken::Done
    }

    fn atomic(&mut self, frame: &Frame, payload: &[u8], ends: &Ends<'_>) -> Taken {
        if self.reads >= READS {
            return Taken::Nonsense;
        }
        let operand = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&payload[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if !frame.address.is_multiple_of(8) {
            count(&ends.shared.refused);
            return self.refuse(frame, Status::RemoteInvalid);
        }
        let place = ends.shared.keys.find(frame.key, frame.address, 8, Access::REMOTE_ATOMIC);
        let word = place.as_ref().and_then(|(memory, offset)| memory.word(*offset));
        let Some(word) = word else {
            count(&ends.shared.refused);
            return self.refuse(frame, Status::RemoteAccess);
        };
        let (a, b) = (operand(0), operand(8));
        let old = match frame.kind {
            Kind::FetchAdd => word.fetch_add(a, Ordering::AcqRel),
            _ => match word.compare_exchange(a, b, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) | Err(old) => old,
            },
        };
        self.reads += 1;
        self.expected = self.expected.wrapping_add(1);
        self.answers.push_back(Answer::Old { sequence: frame.sequence, old });
        Taken::Done
    }

    fn done(&mut self, sequence: u32) {
        self.expected = self.expected.wrapping_add(1);
        match self.answers.back_mut() {
            Some(Answer::Ack(last)) => *last = sequence,
            _ => self.answers.push_back(Answer::Ack(sequence)),
        }
    }

    fn refuse(&mut self, frame: &Frame, status: Status) -> Taken {
        let status = match status {
            Status::RemoteInvalid => 1,
            Status::RemoteAccess => 2,
            _ => 3,
        };
        self.answers.push_back(Answer::Nak { sequence: frame.sequence, status });
        Taken::Refused
    }

    /// Tells the peer that its next operation waits for a receive.
    pub fn say_busy(&mut self) {
        if !matches!(self.answers.back(), Some(Answer::Busy(_))) {
            self.answers.push_back(Answer::Busy(self.expected));
        }
    }

    /// Appends answers until `out` has `limit` bytes or there are none.
    pub fn emit(&mut self, keys: &Keys, out: &mut Vec<u8>, limit: usize) {
        while out.len() < limit {
            let Some(answer) = self.answers.front_mut() else { break };
            match answer {
                Answer::Ack(sequence) => {
                    out.extend_from_slice(&Frame::new(Kind::Ack, *sequence).encode());
                }
                Answer::Busy(sequence) => {
                    out.extend_from_slice(&Frame::new(Kind::Busy, *sequence).encode());
                }
                Answer::Pong(sequence) => {
                    out.extend_from_slice(&Frame::new(Kind::Pong, *sequence).encode());
                }
                Answer::Nak { sequence, status } => {
                    let frame = Frame { status: *status, ..Frame::new(Kind::Nak, *sequence) };
                    out.extend_from_slice(&frame.encode());
                }
                Answer::Old { sequence, old } => {
                    let frame = Frame { length: 8, ..Frame::new(Kind::Old, *sequence) };
                    out.extend_from_slice(&frame.encode());
                    out.extend_from_slice(&old.to_le_bytes());
                    self.reads -= 1;
                }
                Answer::Bytes { sequence, key, address, done, total } => {
                    let part = (*total - *done).min(CHUNK as u32);
                    let mut frame = Frame::new(Kind::Bytes, *sequence);
                    let last = *done + part == *total;
                    frame.flags = if *done == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
                    frame.length = part;
                    out.extend_from_slice(&frame.encode());
                    // For each part: the region may go meanwhile, and then its memory is its
                    // owner's at once.
                    let at = address.wrapping_add((*done).into());
                    let found = keys.find(*key, at, part.into(), Access::REMOTE_READ);
                    let inside =
                        part == 0 || found.is_some_and(|(m, at)| m.append(at, part as usize, out));
                    if !inside {
                        out.truncate(out.len() - HEADER);
                        *answer = Answer::Nak { sequence: *sequence, status: 2 };
                        self.reads -= 1;
                        continue;
                    }
                    *done += part;
                    if !last {
                        continue;
                    }
                    self.reads -= 1;
                }
            }
            self.answers.pop_front();
        }
    }

    /// The queue pair failed: a receive that was being filled completes so. What peers are still to
    /// be told (why) stays.
    pub fn fail(&mut self, ends: &Ends<'_>) {
        if let Some(receive) = self.landing.take() {
            let none = Frame::new(Kind::Send, 0);
            ends.complete(&receive, Status::Flushed, Opcode::Receive, 0, &none);
        }
    }

    /// Forgets everything; a receive that was being filled gives its room back.
    pub fn forget(&mut self, completions: &Completions) {
        completions.give_room(u32::from(self.landing.is_some()));
        *self = Responder::default();
    }
}
