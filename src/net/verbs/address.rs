//! Addresses of queue pairs over verbs.
//!
//! ```text
//!   0      1         2      3     4        8     24    26         27      28    32       36
//!  +------+---------+------+-----+--------+-----+-----+----------+-------+-----+--------+
//!  | kind | version | link | MTU | number | GID | LID | receiver | reads | PSN | digest |
//!  +------+---------+------+-----+--------+-----+-----+----------+-------+-----+--------+
//! ```
//! Little-endian, the GID as devices have it. From the MTU and the receiver's code on, connected ones
//! only: a datagram says the rest about its sender. The digest is of what is before it and the job's
//! cookie: whoever has another one connects to nobody.

use super::bindings::Gid;
use super::policy::Link;
use crate::net::provider::Address;

const BYTES: usize = 36;
const VERSION: u8 = 1;

/// A queue pair of some process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub connected: bool,
    pub link: Link,
    pub number: u32,
    pub gid: Gid,
    pub lid: u16,
    /// The code of the largest MTU.
    pub mtu: u8,
    /// The code with which its side answers where it has no receive.
    pub receiver: u8,
    /// Reads and atomics that its side answers at a time.
    pub reads: u8,
    /// The first packet's number.
    pub psn: u32,
}

impl Spot {
    fn encode(&self, cookie: u64) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = if self.connected { b'R' } else { b'D' };
        bytes[1] = VERSION;
        bytes[2] = if self.link == Link::Ethernet { 2 } else { 1 };
        bytes[3] = self.mtu;
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.gid);
        bytes[24..26].copy_from_slice(&self.lid.to_le_bytes());
        bytes[26] = self.receiver;
        bytes[27] = self.reads;
        bytes[28..32].copy_from_slice(&self.psn.to_le_bytes());
        if self.connected {
            let digest = digest(cookie, &bytes[..32]);
            bytes[32..].copy_from_slice(&digest.to_le_bytes());
        }
        bytes
    }

    pub fn address(&self, cookie: u64) -> Address {
        Address::from_bytes(&self.encode(cookie)).unwrap_or_default()
    }

    /// What the address says, and whether whoever made it has the same cookie (which datagrams prove
    /// by a key of their own). None if it is no such address.
    pub fn decode(address: &Address, connected: bool, cookie: u64) -> Option<(Spot, bool)> {
        let bytes: &[u8; BYTES] = address.as_bytes().try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = if connected { b'R' } else { b'D' };
        let link = match bytes[2] {
            1 => Link::InfiniBand,
            2 => Link::Ethernet,
            _ => return None,
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..24]);
        let spot = Spot {
            connected,
            link,
            number: word(4),
            gid,
            lid: u16::from_le_bytes([bytes[24], bytes[25]]),
            mtu: bytes[3],
            receiver: bytes[26],
            reads: bytes[27],
            psn: word(28),
        };
        let whole = bytes[0] == kind
            && bytes[1] == VERSION
            && spot.number < 1 << 24
            && spot.psn < 1 << 24
            && (!connected || (1..=5).contains(&spot.mtu) && spot.receiver < 32);
        whole.then(|| (spot, word(32) == digest(cookie, &bytes[..32])))
    }
}

/// Mixes bytes with the cookie. It keeps out what comes by mistake, not who means harm.
pub(super) fn digest(cookie: u64, bytes: &[u8]) -> u32 {
    let mix = |state: u64, byte: &u8| {
        let state = (state ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^ state >> 29
    };
    (bytes.iter().fold(cookie ^ 0x6a09_e667_f3bc_c908, mix) >> 16) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_decodes_to_the_same_and_nothing_else_has_its_digest(
            ethernet in any::<bool>(), number in 0..1u32 << 24, gid in any::<[u8; 16]>(),
            lid in any::<u16>(), mtu in 1..6u8, receiver in 0..32u8, reads in any::<u8>(),
            psn in 0..1u32 << 24, cookie in any::<u64>(), at in 2..32usize, change in 1..=255u8,
        ) {
            let link = if ethernet { Link::Ethernet } else { Link::InfiniBand };
            let spot =
                Spot { connected: true, link, number, gid, lid, mtu, receiver, reads, psn };
            let address = spot.address(cookie);
            prop_assert_eq!(Spot::decode(&address, true, cookie), Some((spot, true)));
            prop_assert_eq!(Spot::decode(&address, false, cookie), None);
            prop_assert_eq!(Spot::decode(&address, true, cookie ^ 1), Some((spot, false)));
            let mut bytes = address.as_bytes().to_vec();
            bytes[at] ^= change;
            let changed = Address::from_bytes(&bytes).unwrap();
            let decoded = Spot::decode(&changed, true, cookie);
            prop_assert!(decoded.is_none_or(|(_, same)| !same));
        }
    }
}
