//! The first words of a cell and of a message: the tag, and the label; laid out as [`cell`](super::cell)
//! says.

use super::position::Position;
use crate::base::{Error, Result, Slot};

/// Bits of a message's `imm`.
pub const IMM_BITS: u32 = 40;

pub(super) const FREE: u64 = 0;
pub(super) const MIDDLE: u64 = 1;
pub(super) const CLAIMED: u64 = 2;
pub(super) const COMMITTED: u64 = 3;

/// The bits that count repeats.
const REPEATS: u32 = 7;

/// The first word of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub u64);

impl Tag {
    #[inline(always)]
    pub fn new(at: Position, state: u64, owner: Slot, cells: usize) -> Tag {
        let owner = u64::from(owner.0 & 0x3fff);
        Tag(u64::from(at.tag_lap()) << 32 | state << 30 | owner << 16 | (cells as u64 & 0xff) << 8)
    }

    /// The same tag in another state.
    #[inline(always)]
    pub fn with(self, state: u64) -> Tag {
        Tag(self.0 & !(3 << 30) | state << 30)
    }

    /// The same tag, of a cell to which one more message has come that repeats the first.
    #[inline(always)]
    pub fn with_repeat(self) -> Tag {
        Tag(self.0 + 1)
    }

    /// How many messages have come to the cell that repeat its first.
    #[inline(always)]
    pub fn repeats(self) -> u32 {
        self.0 as u32 & REPEATS
    }

    /// The tag without its owner, and without saying what else has come to the cell.
    #[inline(always)]
    pub fn shape(self) -> u64 {
        let owner = 0x3fff << 16;
        self.0 & !(owner | u64::from(REPEATS))
    }

    /// The same tag, as if its message had one cell.
    #[inline(always)]
    pub fn of_one_cell(self) -> Tag {
        Tag(self.0 & !(0xff << 8) | 1 << 8)
    }

    /// The shape of a message of one cell that is committed at this position.
    #[inline(always)]
    pub fn whole(at: Position) -> u64 {
        Tag::new(at, COMMITTED, Slot(0), 1).0
    }

    /// The same tag, one lap on.
    #[inline(always)]
    pub fn next_lap(self) -> Tag {
        Tag(self.0.wrapping_add(1 << 32))
    }

    #[inline(always)]
    pub fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub fn state(self) -> u64 {
        self.0 >> 30 & 3
    }

    #[inline(always)]
    pub fn owner(self) -> Slot {
        Slot((self.0 >> 16 & 0x3fff) as u16)
    }

    #[inline(always)]
    pub fn cells(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = ["free", "middle", "claimed", "committed"][self.state() as usize];
        write!(f, "{state} lap {} owner {} cells {}", self.lap(), self.owner(), self.cells())
    }
}

/// What a message is, beside its bytes: a kind, and up to 40 bits that the layer above chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(u64);

impl Label {
    /// A label; an error if `imm` has more than [`IMM_BITS`] bits.
    #[inline]
    pub fn new(kind: u8, imm: u64) -> Result<Label> {
        if imm >> IMM_BITS != 0 {
            return Err(Error::invalid(
                "message label",
                format!("imm {imm:#x} has more than {IMM_BITS} bits"),
            ));
        }
        Ok(Label(imm << 8 | u64::from(kind)))
    }

    /// The kind.
    #[inline]
    pub fn kind(self) -> u8 {
        self.0 as u8
    }

    /// The immediate value.
    #[inline]
    pub fn imm(self) -> u64 {
        self.0 >> 8
    }

    #[inline(always)]
    pub(super) fn with_len(self, len: usize) -> u64 {
        self.0 << 16 | len as u64
    }

    #[inline(always)]
    pub(super) fn split(word: u64) -> (Label, usize) {
        (Label(word >> 16), word as u16 as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::MAX_MESSAGE;
    use super::*;

    #[test]
    fn tags_and_labels_hold_their_extremes() {
        let at = Position::of_lap(u32::MAX - 1);
        let tag = Tag::new(at, CLAIMED, Slot(0x3fff), 255);
        assert_eq!((tag.lap(), tag.state(), tag.cells()), (u32::MAX, CLAIMED, 255));
        assert_eq!(tag.owner(), Slot(0x3fff));
        assert_eq!(tag.with(COMMITTED).with(CLAIMED), tag);
        let label = Label::new(255, (1 << IMM_BITS) - 1).unwrap();
        assert_eq!(Label::split(label.with_len(MAX_MESSAGE)), (label, MAX_MESSAGE));
        assert!(Label::new(0, 1 << IMM_BITS).is_err());
    }
}
