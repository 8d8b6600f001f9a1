//! What the two sides of a switch say to each other, and its form on the wire.
//!
//! ```text
//!   u32:  kind (8) | exponent of the class, or 0: refused (8) | who moves (8) | 0 (8)
//! ```

use super::super::class::Class;
use std::fmt;

/// Names are the paper's (000 §3.2, §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Packet {
    /// `NEW_CONN_HANDSHAKE_REQ`: the sender wants to send messages of this class eagerly.
    HandshakeReq {
        /// The class.
        class: Class,
    },
    /// `NEW_CONN_HANDSHAKE_REP`.
    HandshakeRep {
        /// The class that both take, and whether both directions move; nothing: refused (−1).
        agreed: Option<(Class, bool)>,
    },
    /// `NEW_CONN_REQ`.
    ConnReq {
        /// Whether both directions move; nothing: the switch is given up.
        moves: Option<bool>,
    },
    /// `NEW_CONN_REP`.
    ConnRep {
        /// The pool is there.
        ready: bool,
    },
    /// `CONN_EST`: the last that the sender sends by the old connection.
    ConnEst,
    /// `CONN_EST_ACK`: the sender has got the last by the old connection.
    ConnEstAck,
}

impl Packet {
    /// Its form on the wire.
    pub fn encode(self) -> u32 {
        let (kind, exponent, moves) = match self {
            Packet::HandshakeReq { class } => (1, class.exponent(), 0),
            Packet::HandshakeRep { agreed: None } => (2, 0, 0),
            Packet::HandshakeRep { agreed: Some((class, both)) } => {
                (2, class.exponent(), u8::from(both))
            }
            Packet::ConnReq { moves: None } => (3, 0, 0),
            Packet::ConnReq { moves: Some(both) } => (3, 0, 1 + u8::from(both)),
            Packet::ConnRep { ready } => (4, 0, u8::from(ready)),
            Packet::ConnEst => (5, 0, 0),
            Packet::ConnEstAck => (6, 0, 0),
        };
        u32::from_le_bytes([kind, exponent, moves, 0])
    }

    /// What a peer has sent; nothing if it means nothing.
    pub fn decode(word: u32) -> Option<Packet> {
        let [kind, exponent, moves, rest] = word.to_le_bytes();
        let class = Class::new(exponent);
        let flag = |value: u8| match value {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let packet = match (kind, exponent, moves) {
            (1, _, 0) => Packet::HandshakeReq { class: class? },
            (2, 0, 0) => Packet::HandshakeRep { agreed: None },
            (2, ..) => Packet::HandshakeRep { agreed: Some((class?, flag(moves)?)) },
            (3, 0, 0) => Packet::ConnReq { moves: None },
            (3, 0, _) => Packet::ConnReq { moves: Some(flag(moves - 1)?) },
            (4, 0, _) => Packet::ConnRep { ready: flag(moves)? },
            (5, 0, 0) => Packet::ConnEst,
            (6, 0, 0) => Packet::ConnEstAck,
            _ => return None,
        };
        (rest == 0).then_some(packet)
    }
}

/// A packet that has no place where it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The packet.
    pub packet: Packet,
    /// Where the switch stood, in words.
    pub state: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} came when {}", self.packet, self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_packet_has_a_form_of_its_own_and_nothing_else_has() {
        let mut packets = vec![
            Packet::HandshakeRep { agreed: None },
            Packet::ConnReq { moves: None },
            Packet::ConnReq { moves: Some(false) },
            Packet::ConnReq { moves: Some(true) },
            Packet::ConnRep { ready: false },
            Packet::ConnRep { ready: true },
            Packet::ConnEst,
            Packet::ConnEstAck,
        ];
        for class in Class::each() {
            packets.push(Packet::HandshakeReq { class });
            packets.push(Packet::HandshakeRep { agreed: Some((class, false)) });
            packets.push(Packet::HandshakeRep { agreed: Some((class, true)) });
        }
        let forms: HashSet<u32> = packets.iter().map(|packet| packet.encode()).collect();
        assert_eq!(forms.len(), packets.len());
        for packet in packets {
            assert_eq!(Packet::decode(packet.encode()), Some(packet));
        }
        for word in 0..1 << 24 {
            assert_eq!(Packet::decode(word).is_some(), forms.contains(&word), "{word:#x}");
        }
        assert_eq!(Packet::decode(0x0100_0005), None);
    }
}
