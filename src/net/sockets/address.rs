//! Addresses of queue pairs over sockets.
//!
//! ```text
//!   0      1        2      4     20      24       28           32
//!  +------+--------+------+-----+-------+--------+-------------+
//!  | kind | 4 or 6 | port | IP  | scope | number | incarnation |   little-endian, IP as written
//!  +------+--------+------+-----+-------+--------+-------------+
//! ```

use crate::net::provider::Address;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of an address.
pub(super) const BYTES: usize = 32;

/// A queue pair of some process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    /// Of a UDP socket, or of a listening one.
    pub socket: SocketAddr,
    pub number: u32,
    /// Of connected ones.
    pub incarnation: u32,
    pub connected: bool,
}

impl Spot {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = if self.connected { b'T' } else { b'U' };
        bytes[2..4].copy_from_slice(&self.socket.port().to_le_bytes());
        match self.socket {
            SocketAddr::V4(v4) => {
                bytes[1] = 4;
                bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[1] = 6;
                bytes[4..20].copy_from_slice(&v6.ip().octets());
                bytes[20..24].copy_from_slice(&v6.scope_id().to_le_bytes());
            }
        }
        bytes[24..28].copy_from_slice(&self.number.to_le_bytes());
        bytes[28..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    pub fn address(&self) -> Address {
        Address::from_bytes(&self.encode()).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8; BYTES]) -> Option<Spot> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let connected = match bytes[0] {
            b'T' => true,
            b'U' => false,
            _ => return None,
        };
        let port = u16::from_le_bytes([bytes[2], bytes[3]]);
        let socket = match bytes[1] {
            4 if bytes[8..24] == [0; 16] => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                SocketAddr::new(IpAddr::V4(ip), port)
            }
            6 => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[4..20]);
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, word(20)))
            }
            _ => return None,
        };
        (port != 0).then(|| Spot { socket, number: word(24), incarnation: word(28), connected })
    }

    pub fn from_address(address: &Address, connected: bool) -> Option<Spot> {
        let spot = Spot::decode(address.as_bytes().try_into().ok()?)?;
        (spot.connected == connected).then_some(spot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same(
            mut bytes in any::<[u8; BYTES]>(), v4 in any::<bool>(), udp in any::<bool>(),
        ) {
            bytes[0] = if udp { b'U' } else { b'T' };
            bytes[1] = if v4 { 4 } else { 6 };
            if v4 {
                bytes[8..24].fill(0);
            }
            if let Some(spot) = Spot::decode(&bytes) {
                prop_assert_eq!(spot.encode(), bytes);
            }
        }
    }
}
