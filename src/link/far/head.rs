//! How a message looks on a queue pair.
//!
//! ```text
//!   number 8 | label 8 | room 4 | kind 4 | bytes
//! ```
//! What is called a label here has the endpoint's number besides ([`word`](super::word)).

/// Bytes before a message's own.
pub(super) const HEAD: usize = 24;

/// A message in a process's hands: its head, as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Of the message on its flow; of nothing else.
    pub number: u64,
    pub label: u64,
    /// Messages that its receiver may have sent by this queue pair in all.
    pub room: u32,
    pub kind: Kind,
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One of the flow.
    Message = 0,
    /// A packet about queue pairs.
    Control = 1,
    /// Only its head matters.
    Room = 2,
    /// Several of the flow ([`batch`](super::batch)); the head has the number of the first one.
    Several = 3,
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.label.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.room.to_le_bytes());
        bytes[20..].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    /// What a peer has sent, and what is behind its head.
    pub fn decode(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let kind = match short(20)? {
            0 => Kind::Message,
            1 => Kind::Control,
            2 => Kind::Room,
            3 => Kind::Several,
            _ => return None,
        };
        Some((Head { number: long(0)?, label: long(8)?, room: short(16)?, kind }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire_and_senseless_ones_are_nothing() {
        for kind in [Kind::Message, Kind::Control, Kind::Room, Kind::Several] {
            let head = Head { number: u64::MAX - 1, label: 7, room: 9, kind };
            let bytes = [&head.encode()[..], b"rest"].concat();
            assert_eq!(Head::decode(&bytes), Some((head, &b"rest"[..])));
        }
        let mut bytes = Head { number: 0, label: 0, room: 0, kind: Kind::Room }.encode();
        assert_eq!(Head::decode(&bytes[..HEAD - 1]), None);
        bytes[20] = 4;
        assert_eq!(Head::decode(&bytes), None);
    }
}
