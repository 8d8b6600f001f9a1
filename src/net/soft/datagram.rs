//! Datagram queue pairs of software: posting, arriving; the header that goes before the payload.
//!
//! ```text
//!   0        8         12        16     17    18  20
//!  +--------+---------+---------+------+-----+---+-----------+
//!  | cookie | to      | from    | flags| ver | 0 | immediate |   24 bytes, little-endian
//!  +--------+---------+---------+------+-----+---+-----------+
//!  to, from: numbers of the queue pairs
//! ```

use super::completions::Completions;
use super::pieces::Pieces;
use super::receives::Receives;
use super::{INLINE, Shared, count};
use crate::net::provider::{
    Address, Completion, Data, Datagram, Opcode, PostError, Receive, Refused, Status,
};
use std::sync::Arc;

/// Bytes of a header.
pub const HEADER: usize = 24;
const VERSION: u8 = 1;
const IMMEDIATE: u8 = 1;
const SOLICITED: u8 = 2;

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub cookie: u64,
    pub to: u32,
    pub from: u32,
    pub immediate: Option<u32>,
    pub solicited: bool,
}

impl Head {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.to.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16] = if self.immediate.is_some() { IMMEDIATE } else { 0 };
        bytes[16] |= if self.solicited { SOLICITED } else { 0 };
        bytes[17] = VERSION;
        bytes[20..].copy_from_slice(&self.immediate.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// The cookie comes first: whoever has another one is a stranger, whatever the rest is.
    pub fn cookie(bytes: &[u8]) -> Option<u64> {
        bytes.first_chunk().map(|cookie| u64::from_le_bytes(*cookie))
    }

    pub fn decode(bytes: &[u8; HEADER]) -> Option<Head> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let flags = bytes[16];
        let sound = flags <= 3 && bytes[17] == VERSION && bytes[18..20] == [0, 0];
        let immediate = (flags & IMMEDIATE != 0).then(|| word(20));
        if !sound || immediate.is_none() && word(20) != 0 {
            return None;
        }
        Some(Head {
            cookie: Head::cookie(bytes)?,
            to: word(8),
            from: word(12),
            immediate,
            solicited: flags & SOLICITED != 0,
        })
    }
}

/// What every datagram queue pair has, whatever carries its datagrams.
pub struct Ud {
    pub number: u32,
    pub cookie: u64,
    pub shared: Arc<Shared>,
    pub sends: Arc<Completions>,
    pub receives: Arc<Receives>,
    pub completions: Arc<Completions>,
    pub limit: u32,
    pub prefix: u32,
    pub pieces: u32,
    pub inline: u32,
}

impl Ud {
    pub fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        if self.receives.is_shared() {
            return Err(Refused { posted: 0, why: PostError::Unsupported });
        }
        self.receives.post(receives, Some(&self.completions))
    }

    /// Takes room for the completion and puts header and payload into `buffer`. After it, one of
    /// [`Ud::sent`] or [`Ud::unsent`]. A datagram that cannot be gathered completes with the cause:
    /// then it says false, and nothing is to be sent.
    pub fn pack(
        &self,
        datagram: &Datagram<'_>,
        to: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, PostError> {
        let length = datagram.data.length();
        let limit = match datagram.data {
            Data::Pieces(_) => self.limit,
            Data::Inline(_) => self.inline.min(INLINE as u32).min(self.limit),
        };
        if length > limit.into() {
            return Err(PostError::TooLong { length, limit: limit.into() });
        }
        let head = Head {
            cookie: self.cookie,
            to,
            from: self.number,
            immediate: datagram.immediate,
            solicited: datagram.solicited,
        };
        buffer.clear();
        buffer.extend_from_slice(&head.encode());
        match datagram.data {
            Data::Inline(parts) => parts.iter().for_each(|part| buffer.extend_from_slice(part)),
            Data::Pieces(list) => {
                if list.len() > self.pieces as usize {
                    return Err(PostError::TooManyPieces);
                }
                let pieces = Pieces::new(list)?;
                if pieces.gather(&self.shared.keys, 0, length, buffer).is_none() {
                    if !self.sends.take_room() {
                        return Err(PostError::Full);
                    }
                    self.complete(datagram.id, Status::LocalProtection, 0);
                    return Ok(false);
                }
            }
        }
        if self.sends.take_room() { Ok(true) } else { Err(PostError::Full) }
    }

    fn complete(&self, id: u64, status: Status, length: u32) {
        let completion = Completion {
            id,
            queue_pair: self.number,
            opcode: Opcode::Send,
            status,
            length,
            ..Completion::NONE
        };
        self.sends.push(completion, false);
    }

    pub fn sent(&self, datagram: &Datagram<'_>) {
        if datagram.signalled {
            self.complete(datagram.id, Status::Success, datagram.data.length() as u32);
        } else {
            self.sends.give_room(1);
        }
    }

    pub fn unsent(&self) {
        self.sends.give_room(1);
    }

    /// A datagram came: `source` makes the sender's address of its number.
    pub fn arrive(&self, bytes: &[u8], source: impl FnOnce(u32) -> Address) {
        if Head::cookie(bytes) != Some(self.cookie) {
            return count(&self.shared.strangers);
        }
        let head = bytes
            .split_first_chunk()
            .and_then(|(head, rest)| Head::decode(head).map(|head| (head, rest)));
        let Some((head, payload)) = head.filter(|(_, rest)| rest.len() <= self.limit as usize)
        else {
            return count(&self.shared.malformed);
        };
        if head.to != self.number {
            return count(&self.shared.unwanted);
        }
        let Some(receive) = self.receives.take(&self.completions, &self.shared.events) else {
            return count(&self.shared.unwanted);
        };
        let needed = u64::from(self.prefix) + payload.len() as u64;
        let status = if receive.pieces.length() < needed {
            Status::LocalLength
        } else {
            match receive.pieces.scatter(&self.shared.keys, self.prefix.into(), payload) {
                Some(()) => Status::Success,
                None => Status::LocalProtection,
            }
        };
        let completion = Completion {
            id: receive.id,
            queue_pair: self.number,
            opcode: Opcode::Receive,
            status,
            length: payload.len() as u32,
            immediate: head.immediate,
            source: source(head.from),
        };
        self.completions.push(completion, head.solicited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same(mut bytes in any::<[u8; HEADER]>()) {
            bytes[16] &= 3;
            bytes[17] = VERSION;
            bytes[18..20].fill(0);
            if let Some(head) = Head::decode(&bytes) {
                prop_assert_eq!(head.encode(), bytes);
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let head = Head { cookie: 1, to: 2, from: 3, immediate: Some(4), solicited: true };
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 1, 0, 0, 4, 0, 0, 0];
        assert_eq!(head.encode(), bytes);
        assert_eq!(Head::decode(&bytes), Some(head));
    }
}
