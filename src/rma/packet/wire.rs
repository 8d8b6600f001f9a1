//! Messages between engines as bytes.
//!
//! ```text
//!  0 version u8 | flags u8 | riders, fault code or number u16 | sender's rank u32
//!  8 window u64
//! 16 seq, instance, dead rank, number of fences, stale key or age of a lock-all epoch u64
//! 24 request or clock u64, or the complement of an instance
//! 32 tail: an operation's or a note's body, an answer's data or the details of its fault, counts,
//!    a registered region
//! ```
//! The message's kind travels in the label of the ring's message. Little-endian. Whoever reads
//! one trusts nothing in it; what is well-formed has exactly one form, so that damage shows.

use crate::base::{Error, Result};
use crate::net::provider::RemoteRegion;
use crate::rma::runtime::{Fault, LockKind, Message, Query, RequestId, Riders, WindowId};

/// Bytes before the tail.
pub(super) const HEADER: usize = 32;
/// Changes whenever the meaning of a byte changes.
const VERSION: u8 = 6;

const OPERATION: u8 = 1;
const CONTROL: u8 = 2;
const LOCK: u8 = 3;
const ANSWER: u8 = 4;
const GRANTED: u8 = 5;
const DISCARDED: u8 = 6;
const BARRIER: u8 = 7;
const REDUCE: u8 = 8;
const POST: u8 = 9;
const NOTE: u8 = 10;
const GAVE_UP: u8 = 11;
const ASK: u8 = 12;
const GONE: u8 = 13;
const WHERE: u8 = 14;
const PLACE: u8 = 15;

/// There is a request.
const REQUEST: u8 = 1;
/// The lock's kind, plus one.
const LOCK_SHIFT: u8 = 1;
const LOCK_MASK: u8 = 3 << LOCK_SHIFT;
/// Acknowledged.
const ACKED: u8 = 1 << 3;
/// A fault instead of data.
const FAULT: u8 = 1 << 4;
/// `seq` means something where it need not; a lock query is one of a lock-all epoch.
const SOME: u8 = 1 << 5;
/// Updates by devices are asked for.
const UPDATES: u8 = 1 << 6;

/// A message and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub window: WindowId,
    /// Rank of the sender in the window's team.
    pub from: u32,
    pub message: Message<'a>,
}

fn lock_bits(kind: LockKind) -> u8 {
    match kind {
        LockKind::Shared => 1 << LOCK_SHIFT,
        LockKind::Exclusive => 2 << LOCK_SHIFT,
    }
}

/// Bytes of a packet's head: flags, code, seq, request.
#[derive(Default)]
struct Head {
    flags: u8,
    code: u16,
    seq: u64,
    request: u64,
}

impl Head {
    fn request(mut self, request: Option<RequestId>) -> Head {
        if let Some(RequestId(id)) = request {
            self.flags |= REQUEST;
            self.request = id;
        }
        self
    }
}

impl Packet<'_> {
    /// Writes the packet into `out`, which is emptied; returns its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        let mut details = [0; 24];
        let mut round = [0; 1];
        let (kind, head, tail): (u8, Head, &[u8]) = match &self.message {
            Message::Operation { seq, request, lock, riders, body } => {
                let flags = lock.map_or(0, lock_bits);
                let head = Head { flags, code: riders.to_bits(), seq: *seq, request: 0 };
                (OPERATION, head.request(*request), body)
            }
            Message::Control { seq, riders } => {
                (CONTROL, Head { code: riders.to_bits(), seq: *seq, ..Head::default() }, &[])
            }
            Message::Lock(Query { kind, age, beside }) => {
                let flags = lock_bits(*kind) | if *beside { SOME } else { 0 };
                (LOCK, Head { flags, seq: *age, ..Head::default() }, &[])
            }
            Message::Answer { seq, acked, request, result } => {
                let mut head = Head { seq: *seq, ..Head::default() }.request(*request);
                head.flags |= if *acked { ACKED } else { 0 };
                let tail = match result {
                    Ok(data) => data,
                    Err(fault) => {
                        head.flags |= FAULT;
                        head.code = fault.code;
                        for (to, from) in details.as_chunks_mut().0.iter_mut().zip(fault.details) {
                            *to = from.to_le_bytes();
                        }
                        &details[..]
                    }
                };
                (ANSWER, head, tail)
            }
            Message::Granted { recovered, clock } => {
                let flags = if recovered.is_some() { SOME } else { 0 };
                let seq = recovered.unwrap_or(0).into();
                (GRANTED, Head { flags, seq, request: *clock, ..Head::default() }, &[])
            }
            Message::Discarded { from } => (DISCARDED, Head { seq: *from, ..Head::default() }, &[]),
            Message::Barrier { instance, round: number } => {
                round[0] = *number;
                (
                    BARRIER,
                    Head { seq: *instance, request: !instance, ..Head::default() },
                    &round[..],
                )
            }
            Message::Reduce { instance, round, counts } => {
                let code = (*round).into();
                let head = Head { flags: 0, code, seq: *instance, request: !instance };
                (REDUCE, head, counts)
            }
            Message::Note { body } => (NOTE, Head::default(), body),
            Message::Ask => (ASK, Head::default(), &[]),
            Message::Gone { fences } => (GONE, Head { seq: *fences, ..Head::default() }, &[]),
            Message::Where { stale, updates } => {
                let flags = if stale.is_some() { SOME } else { 0 };
                let flags = flags | if *updates { UPDATES } else { 0 };
                let seq = stale.unwrap_or(0).into();
                (WHERE, Head { flags, seq, ..Head::default() }, &[])
            }
            Message::Place { region } => (PLACE, Head::default(), region),
            Message::Post { number } => {
                (POST, Head { code: (*number).into(), ..Head::default() }, &[])
            }
            Message::GaveUp { number, died } => {
                let (code, seq) = ((*number).into(), (*died).into());
                (GAVE_UP, Head { code, seq, ..Head::default() }, &[])
            }
        };
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION;
        bytes[1] = head.flags;
        bytes[2..4].copy_from_slice(&head.code.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.window.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&head.seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&head.request.to_le_bytes());
        out.clear();
        out.extend_from_slice(&bytes);
        out.extend_from_slice(tail);
        kind
    }
}

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "a packet", why: why.into() }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Reads a packet.
///
/// # Errors
/// [`Error::Incompatible`] for anything that [`Packet::encode`] does not write.
pub(super) fn decode(kind: u8, bytes: &[u8]) -> Result<Packet<'_>> {
    if bytes.len() < HEADER {
        return Err(bad(format!("it has only {} bytes", bytes.len())));
    }
    let (head, tail) = bytes.split_at(HEADER);
    if head[0] != VERSION {
        let why = format!("its version is {}, this library's {VERSION}", head[0]);
        return Err(bad(why));
    }
    let flags = head[1];
    let code = u16::from_le_bytes([head[2], head[3]]);
    let from = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let window = WindowId(u64_at(head, 8));
    let (seq, id) = (u64_at(head, 16), u64_at(head, 24));
    let request = (flags & REQUEST != 0).then_some(RequestId(id));
    let unexpected = || bad(format!("kind {kind}, flags {flags:#x}, code {code}, {}", tail.len()));
    let riders = || Riders::from_bits(code).ok_or_else(unexpected);
    let lock = || match (flags & LOCK_MASK) >> LOCK_SHIFT {
        0 => Ok(None),
        1 => Ok(Some(LockKind::Shared)),
        2 => Ok(Some(LockKind::Exclusive)),
        _ => Err(unexpected()),
    };
    // What each kind may use: flags, code, seq, and whether it has a tail.
    let (allowed, has_code, has_seq, has_tail) = match kind {
        OPERATION => (REQUEST | LOCK_MASK, true, true, true),
        CONTROL => (0, true, true, false),
        LOCK => (LOCK_MASK | SOME, false, true, false),
        ANSWER => (REQUEST | ACKED | FAULT, flags & FAULT != 0, true, true),
        GRANTED => (SOME, false, flags & SOME != 0, false),
        DISCARDED => (0, false, true, false),
        BARRIER => (0, false, true, true),
        REDUCE => (0, true, true, true),
        NOTE => (0, false, false, true),
        POST => (0, true, false, false),
        GAVE_UP => (0, true, true, false),
        ASK => (0, false, false, false),
        GONE => (0, false, true, false),
        WHERE => (SOME | UPDATES, false, flags & SOME != 0, false),
        PLACE => (0, false, false, true),
        _ => return Err(unexpected()),
    };
    let no_request = match kind {
        // What is wrong in one of these is waited for by everybody.
        BARRIER | REDUCE => !seq,
        GRANTED => id,
        _ => 0,
    };
    if flags & !allowed != 0
        || !has_code && code != 0
        || !has_seq && seq != 0
        || !has_tail && !tail.is_empty()
        || request.is_none() && id != no_request
    {
        return Err(unexpected());
    }
    let message = match kind {
        OPERATION => {
            Message::Operation { seq, request, lock: lock()?, riders: riders()?, body: tail }
        }
        CONTROL => Message::Control { seq, riders: riders()? },
        LOCK => Message::Lock(Query {
            kind: lock()?.ok_or_else(unexpected)?,
            age: seq,
            beside: flags & SOME != 0,
        }),
        ANSWER => {
            let result = if flags & FAULT == 0 {
                Ok(tail)
            } else if tail.len() == 24 {
                let details = [u64_at(tail, 0), u64_at(tail, 8), u64_at(tail, 16)];
                Err(Fault { code, details })
            } else {
                return Err(unexpected());
            };
            Message::Answer { seq, acked: flags & ACKED != 0, request, result }
        }
        GRANTED => {
            let lost = (flags & SOME != 0).then(|| seq.try_into());
            Message::Granted { recovered: lost.transpose().map_err(|_| unexpected())?, clock: id }
        }
        DISCARDED => Message::Discarded { from: seq },
        BARRIER => match *tail {
            [round] => Message::Barrier { instance: seq, round },
            _ => return Err(unexpected()),
        },
        REDUCE => Message::Reduce {
            instance: seq,
            round: code.try_into().map_err(|_| unexpected())?,
            counts: tail,
        },
        NOTE => Message::Note { body: tail },
        ASK => Message::Ask,
        GONE => Message::Gone { fences: seq },
        WHERE => {
            let stale = (flags & SOME != 0).then(|| seq.try_into());
            let (stale, updates) = (stale.transpose(), flags & UPDATES != 0);
            Message::Where { stale: stale.map_err(|_| unexpected())?, updates }
        }
        PLACE => match <&[u8; RemoteRegion::BYTES]>::try_from(tail) {
            Ok(region) if RemoteRegion::decode(region).is_ok() => Message::Place { region: tail },
            Err(_) if tail.is_empty() => Message::Place { region: tail },
            _ => return Err(unexpected()),
        },
        POST => Message::Post { number: code.try_into().map_err(|_| unexpected())? },
        _ => Message::GaveUp {
            number: code.try_into().map_err(|_| unexpected())?,
            died: seq.try_into().map_err(|_| unexpected())?,
        },
    };
    Ok(Packet { window, from, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::packet::dice::Dice;

    /// Address, length, key, rights.
    const REGION: [u8; 24] = {
        let mut bytes = [0; 24];
        (bytes[3], bytes[9], bytes[16], bytes[20]) = (1, 7, 9, 7);
        bytes
    };

    fn samples() -> Vec<Message<'static>> {
        let riders = Riders { ack: true, unlock: true, decrement: Some(7), ..Riders::default() };
        let request = Some(RequestId(u64::MAX));
        let fault = Fault { code: 9, details: [1, 2, u64::MAX] };
        let operation = |request, lock| Message::Operation {
            seq: 5,
            request,
            lock,
            riders,
            body: b"body of it",
        };
        vec![
            operation(request, None),
            operation(None, Some(LockKind::Shared)),
            operation(Some(RequestId(0)), Some(LockKind::Exclusive)),
            Message::Control { seq: 77, riders },
            Message::Lock(Query { kind: LockKind::Shared, age: 0, beside: true }),
            Message::Lock(Query { kind: LockKind::Shared, age: u64::MAX, beside: true }),
            Message::Lock(Query::alone(LockKind::Exclusive, 7)),
            Message::Answer { seq: 1, acked: true, request: None, result: Ok(&[]) },
            Message::Answer { seq: 1, acked: false, request, result: Ok(b"data") },
            Message::Answer { seq: 1, acked: false, request, result: Err(fault) },
            Message::Granted { recovered: None, clock: 0 },
            Message::Granted { recovered: Some(0), clock: 1 << 50 },
            Message::Granted { recovered: Some(u32::MAX), clock: u64::MAX },
            Message::Discarded { from: 0 },
            Message::Discarded { from: u64::MAX },
            Message::Barrier { instance: 1 << 40, round: 255 },
            Message::Reduce { instance: 3, round: 2, counts: &[1, 0, 0, 0] },
            Message::Note { body: b"said later" },
            Message::Note { body: &[] },
            Message::Post { number: 0 },
            Message::Post { number: 255 },
            Message::GaveUp { number: 7, died: u32::MAX },
            Message::Ask,
            Message::Gone { fences: 0 },
            Message::Gone { fences: u64::MAX },
            Message::Where { stale: None, updates: false },
            Message::Where { stale: None, updates: true },
            Message::Where { stale: Some(0), updates: true },
            Message::Where { stale: Some(u32::MAX), updates: false },
            Message::Place { region: &[] },
            Message::Place { region: &REGION },
        ]
    }

    #[test]
    fn every_message_survives_the_wire() {
        let mut bytes = Vec::new();
        for message in samples() {
            let packet = Packet { window: WindowId(0x1234_5678_9abc_def1), from: 3, message };
            let kind = packet.encode(&mut bytes);
            assert_eq!(decode(kind, &bytes).unwrap(), packet);
        }
    }

    #[test]
    fn whatever_arrives_is_refused_or_has_one_form() {
        let mut dice = Dice::new(1);
        let samples = samples();
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        let (mut good, mut refused) = (0, 0);
        for round in 0..300_000 {
            let message = samples[round % samples.len()];
            let mut kind = Packet { window: WindowId(1), from: 1, message }.encode(&mut bytes);
            match dice.below(4) {
                0 => {
                    let length = dice.below(64);
                    bytes = (0..length).map(|_| dice.below(256) as u8).collect();
                    bytes.splice(..0, [VERSION]);
                }
                1 => kind = dice.below(256) as u8,
                2 => bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize),
                _ => {
                    for _ in 0..1 + dice.below(3) {
                        let at = dice.below(bytes.len() as u64) as usize;
                        bytes[at] = dice.below(256) as u8;
                    }
                }
            }
            match decode(kind, &bytes) {
                Ok(packet) => {
                    good += 1;
                    assert_eq!((packet.encode(&mut again), &again), (kind, &bytes));
                }
                Err(_) => refused += 1,
            }
        }
        assert!(good > 10_000 && refused > 10_000, "{good} {refused}");
    }

    #[test]
    fn a_damaged_instance_shows() {
        for message in [
            Message::Barrier { instance: 6, round: 1 },
            Message::Reduce { instance: 3, round: 0, counts: &[0; 4] },
        ] {
            let packet = Packet { window: WindowId(9), from: 1, message };
            let mut bytes = Vec::new();
            let kind = packet.encode(&mut bytes);
            assert_eq!(decode(kind, &bytes).unwrap(), packet);
            for bit in 16 * 8..32 * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(kind, &bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
