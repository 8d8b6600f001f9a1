//! What two engines say to each other. The wire form is the transport's business.
//!
//! ```text
//!   origin                                  target
//!   Lock, Operation, Control  -- Request -->          performed, queued or discarded
//!          <-- Reply --  Answer, Granted, Discarded   absorbed at once
//!   Barrier, Reduce           -- Reply -->            absorbed at once
//!          <-- Reply --  Post                         absorbed at once
//!   GaveUp                    -- Reply -->            absorbed at once
//!   Note                      -- Reply -->            passed on, absorbed at once
//!   Ask, Gone                 -- Reply -->            the transport's: never seen by an engine
//! ```
//!
//! Two classes, so that the protocol cannot block itself: to handle a *request*, an answer must
//! be sent, and while that cannot be done the request is left where it is
//! ([`Handled::Busy`](super::Handled)); to handle a *reply* nothing has to be sent. A transport
//! that keeps the classes apart (a channel each, or replies never held up behind requests) can
//! therefore always be drained. Order: first in, first out per pair of ranks within a class.

use super::LockKind;

/// Names a window: the same number on all its members, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId(pub u64);

/// Names an operation that waits for data, at its origin. The target only sends it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub u64);

/// Why the target could not do an operation. The numbers belong to whoever performs operations;
/// the engine carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// What kind of failure.
    pub code: u16,
    /// Details, by kind.
    pub details: [u64; 3],
}

/// Synchronisation that travels on an operation, or alone in [`Message::Control`]. What it asks
/// for happens after the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Riders {
    /// Answer when this and everything before it has been done.
    pub ack: bool,
    /// Sent before the lock was known to be granted: to be performed, queued or discarded by
    /// the state of the lock query (paper 001, figure 3.7).
    pub speculative: bool,
    /// Release the origin's lock.
    pub unlock: bool,
    /// The origin's access epoch is over (`MPI_Win_complete`).
    pub complete: bool,
    /// The origin has no more operations for the target in this fence epoch: count it. The
    /// number of the epoch, modulo 256.
    pub decrement: Option<u8>,
}

impl Riders {
    const ACK: u16 = 1 << 8;
    const SPECULATIVE: u16 = 1 << 9;
    const UNLOCK: u16 = 1 << 10;
    const COMPLETE: u16 = 1 << 11;
    const DECREMENT: u16 = 1 << 12;

    /// As a number for the wire: the fence's number in the low byte, flags above it.
    pub fn to_bits(self) -> u16 {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        flag(self.ack, Self::ACK)
            | flag(self.speculative, Self::SPECULATIVE)
            | flag(self.unlock, Self::UNLOCK)
            | flag(self.complete, Self::COMPLETE)
            | self.decrement.map_or(0, |number| Self::DECREMENT | u16::from(number))
    }

    /// From the wire; nothing if `bits` is no such number.
    pub fn from_bits(bits: u16) -> Option<Riders> {
        let [number, _] = bits.to_le_bytes();
        let is = |bit: u16| bits & bit != 0;
        let riders = Riders {
            ack: is(Self::ACK),
            speculative: is(Self::SPECULATIVE),
            unlock: is(Self::UNLOCK),
            complete: is(Self::COMPLETE),
            decrement: is(Self::DECREMENT).then_some(number),
        };
        (riders.to_bits() == bits).then_some(riders)
    }
}

/// A query for a lock. Whom it may overtake says `line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which lock.
    pub kind: LockKind,
    /// The origin's clock when it held no lock of the window last.
    pub age: u64,
    /// Who wants it may hold others of the window meanwhile: the same thread of the origin has them,
    /// or it is one of a lock-all epoch's.
    pub beside: bool,
}

impl Query {
    /// Of an origin that holds no other lock while it waits.
    pub fn alone(kind: LockKind, age: u64) -> Query {
        Query { kind, age, beside: false }
    }

    /// Whether it may be one that goes ahead of a round.
    pub fn overtakes(&self) -> bool {
        self.beside && self.kind == LockKind::Shared
    }
}

/// A message about one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// One operation, or one unit of a large one.
    Operation {
        /// Its place among the origin's operations on this target; 0 where the origin counts
        /// them for the whole window only.
        seq: u64,
        /// Set if the origin waits for data.
        request: Option<RequestId>,
        /// Set if the operation brings its own lock, to be held for this operation only.
        lock: Option<LockKind>,
        /// What travels with it.
        riders: Riders,
        /// What to do, in the form that the performer of operations gave it.
        body: &'a [u8],
    },
    /// Riders without an operation.
    Control {
        /// The last operation before it.
        seq: u64,
        /// At least one.
        riders: Riders,
    },
    /// A lock query.
    Lock(Query),
    /// What became of an operation.
    Answer {
        /// The operation's `seq`.
        seq: u64,
        /// Everything up to `seq` has been done.
        acked: bool,
        /// The operation's request.
        request: Option<RequestId>,
        /// The data asked for (empty if none was), or why it was not done.
        result: Result<&'a [u8], Fault>,
    },
    /// The lock is yours.
    Granted {
        /// A holder of the exclusive lock that died with it since the last grant.
        recovered: Option<u32>,
        /// The target's clock: what the origin locks from now on, once it holds nothing, is no older.
        clock: u64,
    },
    /// What was sent ahead of the grant is discarded, from this operation on: the target had no
    /// room to keep it. The origin stands in line, and sends it again when it has been granted.
    Discarded {
        /// The number of the first one.
        from: u64,
    },
    /// A round of a barrier.
    Barrier {
        /// Which barrier of this window.
        instance: u64,
        /// Which round.
        round: u8,
    },
    /// A round of a reduce-scatter.
    Reduce {
        /// Which reduce-scatter of this window.
        instance: u64,
        /// Which round.
        round: u8,
        /// Numbers, four bytes each, least significant first.
        counts: &'a [u8],
    },
    /// The sender's exposure epoch is open to the receiver.
    Post {
        /// Which of its exposure epochs, modulo 256.
        number: u8,
    },
    /// The sender will not access the receiver's part in an exposure epoch: it has given up the
    /// access epoch that this one belongs to.
    GaveUp {
        /// The number of the post that this answers.
        number: u8,
        /// The rank because of whose death it gave up.
        died: u32,
    },
    /// What a performer of operations tells the origin of some, later than their answers. The
    /// engine passes it on.
    Note {
        /// In the form that the performer gave it.
        body: &'a [u8],
    },
    /// Whether the receiver still has the window: asked between nodes, where nobody can look.
    Ask,
    /// It has dropped it.
    Gone {
        /// Fence epochs that it had ended before.
        fences: u64,
    },
    /// Where the receiver's part is accessed by devices.
    Where {
        /// The key of a place that is to be none any more.
        stale: Option<u32>,
        /// Single elements are to be updated by devices there, too, if that can be.
        updates: bool,
    },
    /// There.
    Place {
        /// A description of registered memory; nothing if it is nowhere.
        region: &'a [u8],
    },
}

/// Which of the two streams between a pair of ranks a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// May have to wait at the receiver until an answer can be sent.
    Request,
    /// Is always absorbed.
    Reply,
}

impl Message<'_> {
    /// The message's stream.
    pub fn class(&self) -> Class {
        match self {
            Message::Operation { .. }
            | Message::Control { .. }
            | Message::Lock(_)
            | Message::Where { .. } => Class::Request,
            _ => Class::Reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riders_survive_the_wire_and_damage_is_seen() {
        let mut legal = 0;
        for bits in 0..=u16::MAX {
            if let Some(riders) = Riders::from_bits(bits) {
                assert_eq!(riders.to_bits(), bits);
                legal += 1;
            }
        }
        // Four flags, and either no number or one of 256.
        assert_eq!(legal, 16 * 257);
        let all = Riders {
            ack: true,
            speculative: true,
            unlock: true,
            complete: true,
            decrement: Some(255),
        };
        assert_eq!(Riders::from_bits(all.to_bits()), Some(all));
    }
}
