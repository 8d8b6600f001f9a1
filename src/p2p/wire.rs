//! How tagged messages look on a connection.
//!
//! ```text
//! kind            imm 39..8  7..0      payload, words of 8 bytes
//! EAGER           context    element   head | data
//! EAGER_SYNC      context    element   head | number | data
//! RTS             context    element   head | length | address | number | flags and claim or key
//! FULFILLED       context    element   head | length | advert
//! POOL            context    element   head | length | class and buffer
//! LENT            context    element   head | length | buffer
//!                 these are numbered: both sides count them alike
//! FIN             0          status    number
//! CTS             0                    number | stream | buffer | size
//! DATA            0                    stream | buffer | position | length
//! ABORT           0                    stream
//! ADVERT          context    any tag?  tag | capacity | address | advert and reach | taken
//! SWITCH          0                    packet | pool
//! PIECE           0                    stream | position | data
//! PRESSURE        0                    whether the sender holds too much
//! HELP            0                    number | stream | address | from where on | claim
//! HELPED          0          status    stream
//!
//! head   63      32 31      0
//!        | rank    | tag    |     rank: the sender's, in the team that the context stands for
//! ```
//! *Number* names something of the sender's of an RTS (or EAGER_SYNC), *stream* and *advert*
//! something of the receiver's. *Element* is the size of what the data are made of, up to 254
//! bytes; 0 for bytes that may be anything, 255 for larger elements.

use crate::base::Result;
use crate::link::KINDS;
use crate::shm::ring::{Headed, HeadedWords, Label, MAX_MESSAGE};

pub(super) const EAGER: u8 = KINDS;
pub(super) const EAGER_SYNC: u8 = KINDS + 1;
pub(super) const RTS: u8 = KINDS + 2;
pub(super) const FULFILLED: u8 = KINDS + 3;
pub(super) const FIN: u8 = KINDS + 4;
pub(super) const CTS: u8 = KINDS + 5;
pub(super) const DATA: u8 = KINDS + 6;
pub(super) const ABORT: u8 = KINDS + 7;
pub(super) const ADVERT: u8 = KINDS + 8;
pub(super) const POOL: u8 = KINDS + 9;
pub(super) const SWITCH: u8 = KINDS + 10;
pub(super) const PIECE: u8 = KINDS + 11;
pub(super) const PRESSURE: u8 = KINDS + 12;
pub(super) const LENT: u8 = KINDS + 13;
pub(super) const HELP: u8 = KINDS + 14;
pub(super) const HELPED: u8 = KINDS + 15;

/// Most data in one message that carries them itself.
pub(super) const MOST_EAGER: usize = MAX_MESSAGE - 16;

/// Label of a message of a context.
#[inline(always)]
pub(super) fn label(kind: u8, context: u32, element: u8) -> Result<Label> {
    Label::new(kind, label_value(context, element))
}

/// Its value.
#[inline(always)]
pub(super) fn label_value(context: u32, element: u8) -> u64 {
    u64::from(context) << 8 | u64::from(element)
}

/// Context and element of a label's value.
#[inline(always)]
pub(super) fn unlabel(imm: u64) -> (u32, u8) {
    ((imm >> 8) as u32, imm as u8)
}

/// Whether messages with the one label may be received as those with the other.
#[inline(always)]
pub(super) fn labels_agree(one: Label, other: Label) -> bool {
    #[cold]
    fn agree(one: Label, other: Label) -> bool {
        let ((a, ours), (b, theirs)) = (unlabel(one.imm()), unlabel(other.imm()));
        one.kind() == other.kind() && a == b && elements_agree(ours, theirs)
    }
    one == other || agree(one, other)
}

/// First word of what matches.
#[inline(always)]
pub(super) fn head(rank: u32, tag: u32) -> u64 {
    u64::from(rank) << 32 | u64::from(tag)
}

/// Rank and tag of a first word.
#[inline(always)]
pub(super) fn unhead(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}

/// The element code of elements of `size` bytes.
pub(crate) const fn element_code(size: usize) -> u8 {
    if size == 0 || size > 254 { 255 } else { size as u8 }
}

/// Whether data of one element may be received as the other.
#[inline(always)]
pub(super) fn elements_agree(a: u8, b: u8) -> bool {
    a == b || a == 0 || b == 0
}

/// Words of a payload, if it has exactly `N`.
#[inline(always)]
pub(super) fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    if bytes.len() != 8 * N {
        return None;
    }
    let (chunks, _) = bytes.as_chunks::<8>();
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok()?;
    Some(chunks.map(u64::from_ne_bytes))
}

/// A payload of words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    words: [u64; 5],
    len: u8,
}

impl Words {
    pub fn new<const N: usize>(given: [u64; N]) -> Words {
        const { assert!(N <= 5) };
        let mut words = [0; 5];
        words[..N].copy_from_slice(&given);
        Words { words, len: N as u8 }
    }

    /// The first one.
    pub fn first(&self) -> u64 {
        self.words[0]
    }

    /// The first one, and the bytes of the others.
    #[inline(always)]
    pub fn headed(&self) -> HeadedWords<'_> {
        HeadedWords(Headed(self.words[0], self.bytes().get(8..).unwrap_or_default()))
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` of the words are initialised bytes.
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr().cast(), usize::from(self.len.min(5)) * 8)
        }
    }
}

/// An announced message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rts {
    /// Bytes.
    pub length: u64,
    /// Where they lie in the sender's address space, if they lie together.
    pub address: u64,
    /// The sender's number of it.
    pub number: u64,
    /// By what it is to be claimed before it is read.
    pub claim: Option<u32>,
    /// By which the receiver's device reads it, on another node; instead of a claim.
    pub key: Option<u32>,
    /// Whether it may be read at all; else it is to be asked for.
    pub readable: bool,
    /// Whether it would have gone by a pool, had a buffer been free.
    pub missed: bool,
}

/// How a message ended that was announced: its receiver has it.
pub(super) const RECEIVED: u8 = 0;
/// It was given up.
pub(super) const GIVEN_UP: u8 = 1;
/// Its receiver has it, and had the kernel copy it, though it could have had pieces as both waited, each for
/// the other's message, too.
pub(super) const COPIED: u8 = 2;

const READABLE: u64 = 1;
const CLAIMED: u64 = 2;
const MISSED: u64 = 4;
const KEYED: u64 = 8;

impl Rts {
    /// The payload.
    pub fn words(&self, head: u64) -> Words {
        let flags = u64::from(self.readable) * READABLE
            + u64::from(self.claim.is_some()) * CLAIMED
            + u64::from(self.missed) * MISSED
            + u64::from(self.key.is_some()) * KEYED;
        let last = u64::from(self.claim.or(self.key).unwrap_or(0)) << 32 | flags;
        Words::new([head, self.length, self.address, self.number, last])
    }

    /// Head and contents of a payload.
    pub fn read(bytes: &[u8]) -> Option<(u64, Rts)> {
        let [head, length, address, number, last] = words(bytes)?;
        let both = last & (CLAIMED | KEYED) == CLAIMED | KEYED;
        if length > isize::MAX as u64 || address.checked_add(length).is_none() || both {
            return None;
        }
        let claim = (last & CLAIMED != 0).then_some((last >> 32) as u32);
        let key = (last & KEYED != 0).then_some((last >> 32) as u32);
        let (readable, missed) = (last & READABLE != 0, last & MISSED != 0);
        Some((head, Rts { length, address, number, claim, key, readable, missed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_come_back_as_they_were() {
        for (claim, readable) in [(None, true), (Some(u32::MAX), true), (Some(7), false)] {
            let (address, missed) = (1 << 46, !readable);
            let number = u64::MAX;
            let rts = Rts { length: 9, address, number, claim, key: None, readable, missed };
            assert_eq!(Rts::read(rts.words(5).bytes()), Some((5, rts)));
            let rts = Rts { claim: None, key: Some(u32::MAX - 1), ..rts };
            assert_eq!(Rts::read(rts.words(5).bytes()), Some((5, rts)));
        }
        // Memory is claimed or read by a device, not both.
        assert_eq!(Rts::read(Words::new([0, 1, 2, 3, CLAIMED | KEYED]).bytes()), None);
        let absurd = Words::new([0, u64::MAX, 1, 2, 3]);
        assert_eq!(Rts::read(absurd.bytes()), None);
        assert_eq!(Rts::read(&absurd.bytes()[1..]), None);
        assert_eq!(words::<2>(Words::new([3, 4]).bytes()), Some([3, 4]));
    }

    #[test]
    fn labels_and_heads_hold_their_extremes() {
        let label = label(EAGER, u32::MAX, 255).unwrap();
        assert_eq!(unlabel(label.imm()), (u32::MAX, 255));
        assert_eq!(unhead(head(u32::MAX, 7)), (u32::MAX, 7));
        assert_eq!([element_code(8), element_code(254), element_code(255)], [8, 254, 255]);
        assert!(elements_agree(8, 0) && elements_agree(8, 8) && !elements_agree(8, 4));
    }
}
