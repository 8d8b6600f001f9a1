//! The lock word and the ids in it.
//!
//! ```text
//!  63   61 60    59        40 39        20 19         0
//! +-------+------+------------+------------+------------+
//! |   0   | died |    stop    |    tail    |   owner    |
//! +-------+------+------------+------------+------------+
//! id = slot * 64 + node + 1, or 0 for none
//! ```
//! `owner` holds the lock, `tail` is the last in the queue (the owner itself if nobody waits).
//! `stop` is 0 except after a hand-over that left nodes behind; see the module's head.

use super::NODES;
use crate::base::Slot;

const ID_BITS: u32 = 20;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// Names a node of a slot; 0 names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u32);

impl Id {
    pub(super) const NONE: Id = Id(0);

    #[inline]
    pub(super) fn new(slot: Slot, node: usize) -> Id {
        Id(u32::from(slot.0) * NODES as u32 + node as u32 + 1)
    }

    /// Slot and node, unless the id is none or beyond any slot.
    #[inline]
    pub(super) fn parts(self) -> Option<(Slot, usize)> {
        let at = self.0.checked_sub(1)?;
        let slot = u16::try_from(at / NODES as u32).ok()?;
        Some((Slot(slot), (at % NODES as u32) as usize))
    }
}

/// A value of the lock word. All zeros is a free lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const FREE: Word = Word(0);

    #[inline]
    pub(super) fn new(owner: Id, tail: Id, stop: Id, died: bool) -> Word {
        Word(
            u64::from(owner.0)
                | u64::from(tail.0) << ID_BITS
                | u64::from(stop.0) << (2 * ID_BITS)
                | u64::from(died) << (3 * ID_BITS),
        )
    }

    /// Held by `owner`, nobody waits.
    #[inline]
    pub(super) fn held(owner: Id) -> Word {
        Word::new(owner, owner, Id::NONE, false)
    }

    #[inline]
    pub(super) fn owner(self) -> Id {
        Id((self.0 & ID_MASK) as u32)
    }

    #[inline]
    pub(super) fn tail(self) -> Id {
        Id((self.0 >> ID_BITS & ID_MASK) as u32)
    }

    #[inline]
    pub(super) fn stop(self) -> Id {
        Id((self.0 >> (2 * ID_BITS) & ID_MASK) as u32)
    }

    #[inline]
    pub(super) fn died(self) -> bool {
        self.0 >> (3 * ID_BITS) & 1 != 0
    }

    #[inline]
    pub(super) fn with_tail(self, tail: Id) -> Word {
        Word::new(self.owner(), tail, self.stop(), self.died())
    }

    /// The same owner and queue, with the debris ahead of the owner gone.
    #[inline]
    pub(super) fn swept(self) -> Word {
        Word::new(self.owner(), self.tail(), Id::NONE, false)
    }
}
