//! The messages of the wiring, and their bytes.
//!
//! ```text
//! 0        4      5        8
//! | magic  | kind | zeros  | fields, little-endian, in the order of the enum |
//! ```
//! One message is one packet of a `SOCK_SEQPACKET` socket, so there is no framing (over TCP: see
//! `channel`). Byte strings
//! carry their length in front. Everything that comes in is checked in full by
//! [`Message::decode`] before anyone acts on it; a packet that does not use up its bytes exactly
//! is refused.

use crate::base::{Error, Rank, Result};
use crate::topo::Block;

/// Version of the wiring protocol.
pub const VERSION: u32 = 4;
/// Largest packet.
pub const MAX_PACKET: usize = 36 << 10;
/// Longest key.
pub const MAX_KEY: usize = 64;
/// Longest value, and longest piece of an allgather.
pub const MAX_VALUE: usize = 32 << 10;
/// Most ranks a job can have, as far as the wiring is concerned.
pub const MAX_SIZE: u32 = 1 << 16;
/// Most blocks in which ranks are placed on nodes: as many as fit a packet.
pub const MAX_BLOCKS: usize = 3000;
/// Bytes of a number used once.
pub const NONCE: usize = 16;
/// Most ranks listed as missing.
pub const MAX_MISSING: usize = 16;

const MAGIC: u32 = u32::from_le_bytes(*b"hthr");

/// One message of the wiring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A process asks to take part (`size` 0: as many as you say).
    Hello {
        /// Its [`VERSION`].
        version: u32,
        /// Its process id, for messages.
        pid: u32,
        /// How many ranks it expects, or 0.
        size: u32,
    },
    /// It does. With the launcher the node's memory comes with this.
    Welcome {
        /// Its rank.
        rank: u32,
        /// Ranks in the job.
        size: u32,
        /// Identity of the job.
        job: u64,
        /// The nodes that they are on, from a launcher.
        blocks: Vec<Block>,
    },
    /// It does not.
    Refused {
        /// Why, in words for the user.
        why: String,
    },
    /// Not everybody is here yet.
    Lobby {
        /// How many are.
        present: u32,
    },
    /// Makes a value known under a key of the sender, from the next fence on.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// The sender has reached its next fence, or (back) everybody has.
    Fence,
    /// Asks for a value.
    Get {
        /// Whose.
        rank: u32,
        /// Under which key.
        key: String,
    },
    /// The answer to `Get`.
    Value {
        /// The value, if there is one.
        value: Option<Vec<u8>>,
    },
    /// Asks who has not reached the present fence.
    WhoIsMissing,
    /// Those (some of them, if there are many).
    Missing {
        /// Their ranks.
        ranks: Vec<u32>,
    },
    /// A rank ended, so what was asked for will never come.
    Died {
        /// The rank.
        rank: u32,
        /// What is known of the cause.
        cause: String,
    },
    /// One rank's piece of an allgather.
    Piece {
        /// Whose.
        rank: u32,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// The node's memory comes with this.
    Memory,
    /// Asks for the node's memory.
    Claim {
        /// The job it belongs to.
        job: u64,
        /// Who asks.
        rank: u32,
    },
    /// Asks who comes to show that he knows the secret.
    Challenge {
        /// The sender's [`VERSION`].
        version: u32,
        /// A number that it has never used before.
        nonce: [u8; NONCE],
    },
    /// Shows it.
    Proof {
        /// The caller's such number; from the leader, its own again.
        nonce: [u8; NONCE],
        /// What only who knows the secret can say of the two.
        proof: [u8; 32],
    },
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[self.kind(), 0, 0, 0]);
        let u32s = |out: &mut Vec<u8>, values: &[u32]| {
            values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        };
        let bytes = |out: &mut Vec<u8>, value: &[u8]| {
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        };
        match self {
            Message::Hello { version, pid, size } => u32s(&mut out, &[*version, *pid, *size]),
            Message::Welcome { rank, size, job, blocks } => {
                u32s(&mut out, &[*rank, *size]);
                out.extend_from_slice(&job.to_le_bytes());
                u32s(&mut out, &[blocks.len() as u32]);
                blocks.iter().for_each(|b| u32s(&mut out, &[b.node, b.nodes, b.each]));
            }
            Message::Refused { why } => bytes(&mut out, why.as_bytes()),
            Message::Lobby { present } => u32s(&mut out, &[*present]),
            Message::Put { key, value } => {
                bytes(&mut out, key.as_bytes());
                bytes(&mut out, value);
            }
            Message::Get { rank, key } => {
                u32s(&mut out, &[*rank]);
                bytes(&mut out, key.as_bytes());
            }
            Message::Value { value } => {
                u32s(&mut out, &[u32::from(value.is_some())]);
                if let Some(value) = value {
                    bytes(&mut out, value);
                }
            }
            Message::Missing { ranks } => {
                u32s(&mut out, &[ranks.len() as u32]);
                u32s(&mut out, ranks);
            }
            Message::Died { rank, cause } => {
                u32s(&mut out, &[*rank]);
                bytes(&mut out, cause.as_bytes());
            }
            Message::Piece { rank, bytes: piece } => {
                u32s(&mut out, &[*rank]);
                bytes(&mut out, piece);
            }
            Message::Claim { job, rank } => {
                out.extend_from_slice(&job.to_le_bytes());
                u32s(&mut out, &[*rank]);
            }
            Message::Challenge { version, nonce } => {
                u32s(&mut out, &[*version]);
                out.extend_from_slice(nonce);
            }
            Message::Proof { nonce, proof } => {
                out.extend_from_slice(nonce);
                out.extend_from_slice(proof);
            }
            Message::Fence | Message::WhoIsMissing | Message::Memory => {}
        }
        out
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Hello { .. } => 1,
            Message::Welcome { .. } => 2,
            Message::Refused { .. } => 3,
            Message::Lobby { .. } => 4,
            Message::Put { .. } => 5,
            Message::Fence => 6,
            Message::Get { .. } => 7,
            Message::Value { .. } => 8,
            Message::WhoIsMissing => 9,
            Message::Missing { .. } => 10,
            Message::Died { .. } => 11,
            Message::Piece { .. } => 12,
            Message::Memory => 13,
            Message::Claim { .. } => 14,
            Message::Challenge { .. } => 15,
            Message::Proof { .. } => 16,
        }
    }

    /// Reads a message; never panics, whatever the bytes.
    pub fn decode(packet: &[u8]) -> Result<Message> {
        let mut left = Reader(packet);
        let parsed = (|| {
            if left.u32()? != MAGIC {
                return None;
            }
            let kind = left.u32()?;
            Some(match kind {
                1 => {
                    let (version, pid, size) = (left.u32()?, left.u32()?, left.u32()?);
                    Message::Hello { version, pid, size: (size <= MAX_SIZE).then_some(size)? }
                }
                2 => {
                    let (rank, size, job) = (left.u32()?, left.u32()?, left.u64()?);
                    let count = left.u32()? as usize;
                    if rank >= size || size > MAX_SIZE || count > MAX_BLOCKS {
                        return None;
                    }
                    let blocks = (0..count).map(|_| {
                        let (node, nodes, each) = (left.u32()?, left.u32()?, left.u32()?);
                        Some(Block { node, nodes, each })
                    });
                    Message::Welcome { rank, size, job, blocks: blocks.collect::<Option<_>>()? }
                }
                3 => Message::Refused { why: left.text(MAX_VALUE)? },
                4 => Message::Lobby { present: left.u32()? },
                5 => Message::Put { key: left.text(MAX_KEY)?, value: left.bytes(MAX_VALUE)? },
                6 => Message::Fence,
                7 => Message::Get { rank: left.u32()?, key: left.text(MAX_KEY)? },
                8 => match left.u32()? {
                    0 => Message::Value { value: None },
                    1 => Message::Value { value: Some(left.bytes(MAX_VALUE)?) },
                    _ => return None,
                },
                9 => Message::WhoIsMissing,
                10 => {
                    let count = left.u32()? as usize;
                    if count > MAX_MISSING {
                        return None;
                    }
                    let ranks = (0..count).map(|_| left.u32()).collect::<Option<Vec<u32>>>()?;
                    Message::Missing { ranks }
                }
                11 => Message::Died { rank: left.u32()?, cause: left.text(MAX_VALUE)? },
                12 => Message::Piece { rank: left.u32()?, bytes: left.bytes(MAX_VALUE)? },
                13 => Message::Memory,
                14 => Message::Claim { job: left.u64()?, rank: left.u32()? },
                15 => Message::Challenge { version: left.u32()?, nonce: left.array()? },
                16 => Message::Proof { nonce: left.array()?, proof: left.array()? },
                _ => return None,
            })
        })();
        match parsed {
            Some(message) if left.0.is_empty() => Ok(message),
            _ => Err(Error::boot(format!(
                "a packet of {} bytes on the control socket is not a message of hither's; \
                 something else uses that socket, or the programs of the job were built with \
                 different versions of hither",
                packet.len()
            ))),
        }
    }
}

/// Takes fields off the front; `None` as soon as something does not fit.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self, most: usize) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        if length > most {
            return None;
        }
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head.to_vec())
    }

    pub(super) fn text(&mut self, most: usize) -> Option<String> {
        String::from_utf8(self.bytes(most)?).ok()
    }
}

/// Refuses keys and values that do not fit a packet.
pub fn check_pair(key: &str, value: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY {
        let why = format!("a key has 1 to {MAX_KEY} bytes, \"{key}\" has {}", key.len());
        return Err(Error::invalid("put", why));
    }
    check_value("put", value)
}

/// Refuses values that do not fit a packet.
pub fn check_value(what: &'static str, value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE {
        let why = format!("a value has at most {MAX_VALUE} bytes, this one {}", value.len());
        return Err(Error::invalid(what, why));
    }
    Ok(())
}

/// The first few of `ranks`, for messages.
pub fn some_of(ranks: impl Iterator<Item = u32>) -> Vec<Rank> {
    ranks.take(MAX_MISSING).map(Rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let key = || "[a-z0-9.:]{1,64}";
        let block = (any::<u32>(), any::<u32>(), any::<u32>());
        let block = block.prop_map(|(node, nodes, each)| Block { node, nodes, each });
        prop_oneof![
            (any::<u32>(), any::<u32>(), 0..=MAX_SIZE)
                .prop_map(|(version, pid, size)| Message::Hello { version, pid, size }),
            (0..100u32, 100..=MAX_SIZE, any::<u64>(), proptest::collection::vec(block, 0..9))
                .prop_map(|(rank, size, job, blocks)| Message::Welcome { rank, size, job, blocks }),
            ".{0,80}".prop_map(|why| Message::Refused { why }),
            any::<u32>().prop_map(|present| Message::Lobby { present }),
            (key(), bytes()).prop_map(|(key, value)| Message::Put { key, value }),
            Just(Message::Fence),
            (any::<u32>(), key()).prop_map(|(rank, key)| Message::Get { rank, key }),
            proptest::option::of(bytes()).prop_map(|value| Message::Value { value }),
            Just(Message::WhoIsMissing),
            proptest::collection::vec(any::<u32>(), 0..=MAX_MISSING)
                .prop_map(|ranks| Message::Missing { ranks }),
            (any::<u32>(), ".{0,80}").prop_map(|(rank, cause)| Message::Died { rank, cause }),
            (any::<u32>(), bytes()).prop_map(|(rank, bytes)| Message::Piece { rank, bytes }),
            Just(Message::Memory),
            (any::<u64>(), any::<u32>()).prop_map(|(job, rank)| Message::Claim { job, rank }),
            (any::<u32>(), any::<[u8; NONCE]>())
                .prop_map(|(version, nonce)| Message::Challenge { version, nonce }),
            (any::<[u8; NONCE]>(), any::<[u8; 32]>())
                .prop_map(|(nonce, proof)| Message::Proof { nonce, proof }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }

        #[test]
        fn no_packet_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::decode(&bytes);
        }

        #[test]
        fn no_packet_with_the_right_head_panics(
            kind in 0u8..20, bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut packet = b"hthr".to_vec();
            packet.extend([kind, 0, 0, 0]);
            packet.extend(bytes);
            let _ = Message::decode(&packet);
        }

        #[test]
        fn cut_or_lengthened_messages_are_refused(message in messages(), cut in any::<usize>()) {
            let whole = message.encode();
            prop_assert!(Message::decode(&whole[..cut % whole.len()]).is_err());
            let mut longer = whole;
            longer.push(0);
            prop_assert!(Message::decode(&longer).is_err());
        }
    }

    #[test]
    fn a_rank_beyond_the_size_is_refused() {
        let message = Message::Welcome { rank: 4, size: 4, job: 1, blocks: Vec::new() };
        assert!(Message::decode(&message.encode()).is_err());
    }

    #[test]
    fn the_most_blocks_fit_a_packet() {
        let of = |count| {
            let blocks = vec![Block { node: 0, nodes: 1, each: 1 }; count];
            Message::Welcome { rank: 0, size: 4, job: 1, blocks }.encode()
        };
        assert!(of(MAX_BLOCKS).len() <= MAX_PACKET && Message::decode(&of(MAX_BLOCKS)).is_ok());
        assert!(Message::decode(&of(MAX_BLOCKS + 1)).is_err());
    }
}
