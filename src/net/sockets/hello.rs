//! The first bytes on a connection.
//!
//! ```text
//!   0        8                            20       24            28                   60
//!  +--------+----------------------------+--------+-------------+--------------------+
//!  | cookie | "hither" 0 0, version       | number | incarnation | caller's address   |
//!  +--------+----------------------------+--------+-------------+--------------------+
//! ```

use super::address::{BYTES, Spot};

pub(super) const HELLO: usize = 60;
const MAGIC: [u8; 12] = *b"hither\0\0\x01\0\0\0";

/// What a caller says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub cookie: u64,
    pub number: u32,
    pub incarnation: u32,
    pub caller: Spot,
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[8..20].copy_from_slice(&MAGIC);
        bytes[20..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[28..].copy_from_slice(&self.caller.encode());
        bytes
    }

    /// The cookie comes first: whoever has another one is a stranger.
    pub fn cookie(bytes: &[u8]) -> Option<u64> {
        bytes.first_chunk().map(|cookie| u64::from_le_bytes(*cookie))
    }

    pub fn decode(bytes: &[u8; HELLO]) -> Option<Hello> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut caller = [0; BYTES];
        caller.copy_from_slice(&bytes[28..]);
        let caller = Spot::decode(&caller).filter(|spot| spot.connected)?;
        let cookie = Hello::cookie(bytes)?;
        let hello = Hello { cookie, number: word(20), incarnation: word(24), caller };
        (bytes[8..20] == MAGIC).then_some(hello)
    }
}
