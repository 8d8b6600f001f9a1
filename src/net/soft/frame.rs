//! How the streams of a connected queue pair look: frames of a header of 32 bytes and a payload.
//!
//! ```text
//!   0     1      2       3     4        8          12          16        24    28
//!  +-----+------+-------+----+--------+----------+-----------+---------+-----+-------+
//!  | kind| flags| status| 0  | length | sequence | immediate | address | key | total |  little-endian
//!  +-----+------+-------+----+--------+----------+-----------+---------+-----+-------+
//!  length: bytes of the payload behind; sequence: of the operation, each side counts its own;
//!  total: bytes of the whole operation, of which a frame carries CHUNK at most
//! ```

/// Bytes of a header.
pub const HEADER: usize = 32;
/// Most bytes of a payload.
pub const CHUNK: usize = 32 << 10;

/// The first frame of an operation.
pub const FIRST: u8 = 1;
/// The last one.
pub const LAST: u8 = 2;
/// It has immediate data.
pub const IMMEDIATE: u8 = 4;
/// Its receive's completion is solicited.
pub const SOLICITED: u8 = 8;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Part of a message.
    Send = 1,
    /// Bytes for an address.
    Write,
    /// A request of `total` bytes of an address.
    Read,
    /// Payload: what to add.
    FetchAdd,
    /// Payload: what to compare with, what to store.
    CompareSwap,
    /// Whether someone is there.
    Ping,
    /// All operations up to `sequence` are done.
    Ack,
    /// Bytes that a read asked for.
    Bytes,
    /// The old value of an atomic.
    Old,
    /// The operation `sequence` is refused: `status`.
    Nak,
    /// The operation `sequence` waits for a receive.
    Busy,
    /// Someone is there.
    Pong,
}

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: Kind,
    pub flags: u8,
    pub status: u8,
    pub length: u32,
    pub sequence: u32,
    pub immediate: u32,
    pub address: u64,
    pub key: u32,
    pub total: u32,
}

impl Frame {
    pub fn new(kind: Kind, sequence: u32) -> Frame {
        Frame {
            kind,
            flags: FIRST | LAST,
            status: 0,
            length: 0,
            sequence,
            immediate: 0,
            address: 0,
            key: 0,
            total: 0,
        }
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn is_request(&self) -> bool {
        (self.kind as u8) <= Kind::Ping as u8
    }

    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[2] = self.status;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.immediate.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.key.to_le_bytes());
        bytes[28..].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    /// None if it cannot be a header.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Frame> {
        const KINDS: [Kind; 12] = [
            Kind::Send,
            Kind::Write,
            Kind::Read,
            Kind::FetchAdd,
            Kind::CompareSwap,
            Kind::Ping,
            Kind::Ack,
            Kind::Bytes,
            Kind::Old,
            Kind::Nak,
            Kind::Busy,
            Kind::Pong,
        ];
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let frame = Frame {
            kind: *KINDS.get(usize::from(bytes[0]).checked_sub(1)?)?,
            flags: bytes[1],
            status: bytes[2],
            length: word(4),
            sequence: word(8),
            immediate: word(12),
            address: u64::from(word(16)) | u64::from(word(20)) << 32,
            key: word(24),
            total: word(28),
        };
        let sound = frame.flags <= 15 && bytes[3] == 0 && frame.length as usize <= CHUNK;
        sound.then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same(bytes in any::<[u8; HEADER]>(), kind in 0u8..14) {
            let mut bytes = bytes;
            bytes[0] = kind;
            bytes[1] &= 15;
            bytes[3] = 0;
            bytes[6..8].fill(0);
            match Frame::decode(&bytes) {
                Some(frame) => prop_assert_eq!(frame.encode(), bytes),
                None => prop_assert!(
                    kind == 0 || kind > 12 || u16::from_le_bytes([bytes[4], bytes[5]]) as usize > CHUNK
                ),
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let frame = Frame {
            kind: Kind::Write,
            flags: FIRST | IMMEDIATE,
            status: 0,
            length: 5,
            sequence: 6,
            immediate: 0x0a0b_0c0d,
            address: 0x0102_0304_0506_0708,
            key: 9,
            total: 10,
        };
        let bytes = [
            2, 5, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0,
            10, 0, 0, 0,
        ];
        assert_eq!(frame.encode(), bytes);
        assert_eq!(Frame::decode(&bytes), Some(frame));
    }
}
