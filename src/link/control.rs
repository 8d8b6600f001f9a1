//! The link's own messages, sent through the inbox only.
//!
//! ```text
//! imm   39    36 35        12 11    6 5    0
//!       | 0     | generation | word  | lane |
//! ```
//! `lane`: index among the receiver's lanes. `word`: index among the sender's `sending` words.

use crate::shm::ring::lane::Generation;

/// Kinds from here on are the link's.
pub const FIRST_RESERVED: u8 = 0xf0;
/// From now on, the sender's messages come through a lane.
pub const SWITCH: u8 = 0xff;
/// The sender no longer uses the lane: empty it, before what follows here.
pub const LEFT: u8 = 0xfe;

/// Bits in use.
pub const BITS: u32 = 12 + Generation::BITS;

/// Packs the parts of a control message.
pub fn pack(lane: usize, word: usize, generation: u64) -> u64 {
    generation << 12 | (word as u64) << 6 | lane as u64
}

/// The parts of a control message: lane, word, generation. All are in range by their widths.
pub fn unpack(imm: u64) -> (usize, usize, u64) {
    (imm as usize & 63, (imm >> 6) as usize & 63, imm >> 12 & ((1 << Generation::BITS) - 1))
}

const _: () = assert!(crate::shm::segment::LANES == 64);
