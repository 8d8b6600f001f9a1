//! The header of a datagram, and that of the piece of a message in it.
//!
//! ```text
//!    0  u16 magic | u8 version | u8 kind    16  u32 from        32  u32 sequence
//!    4  u16 length after it | u16 credit    20  u32 to          36  u32 acknowledged
//!    8  u64 cookie                          24  u32 from_life   40  u64 selective
//!                                           28  u32 to_life
//!   48  u32 message | u32 total | u32 offset | u8 channel | u8 more | 0 | 0   (Data)
//! ```
//! `sequence` counts the sender's datagrams of kind Data; in all other kinds it is that of the next
//! one. Up to `acknowledged` (not including it) all of the receiver's have come; bit `i` of
//! `selective` says that `acknowledged + 1 + i` has come, too. `credit` datagrams from
//! `acknowledged` on may be sent. `more` whole messages lie behind one that is whole. Together the two headers are one cache line.

use super::further::Further;
use super::{Reject, field};

/// Bytes of a [`Header`].
pub const HEADER: usize = 48;

/// Bytes of both headers in front of the payload of a datagram of kind [`Kind::Data`].
pub const OVERHEAD: usize = HEADER + FRAGMENT;

const FRAGMENT: usize = 16;

/// What every datagram begins with.
pub const MAGIC: u16 = 0x6968;

/// The version of all headers here. Jobs of several versions do not talk to each other.
pub const VERSION: u8 = 2;

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A piece of a message, with a sequence number.
    Data = 1,
    /// Only what every header says.
    Ack = 2,
    /// The same, and an answer is wanted.
    Ping = 3,
    /// The sender begins a connection, or begins it anew.
    Hello = 4,
    /// The answer to that.
    Welcome = 5,
    /// The sender leaves, and knows that all it sent has come.
    Bye = 6,
    /// The answer to that.
    Farewell = 7,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] =
        [Kind::Data, Kind::Ack, Kind::Ping, Kind::Hello, Kind::Welcome, Kind::Bye, Kind::Farewell];

    #[inline]
    fn new(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the datagram is for.
    pub kind: Kind,
    /// Bytes behind the header.
    pub length: u16,
    /// Datagrams that the receiver may have sent from `acknowledged` on.
    pub credit: u16,
    /// The job's.
    pub cookie: u64,
    /// The sender's number in the job.
    pub from: u32,
    /// The receiver's.
    pub to: u32,
    /// Which of the sender's lives, as this connection counts them. Not 0.
    pub from_life: u32,
    /// Which of the receiver's lives is meant; 0 if none is known.
    pub to_life: u32,
    /// See the module.
    pub sequence: u32,
    /// See the module.
    pub acknowledged: u32,
    /// See the module.
    pub selective: u64,
}

impl Header {
    /// Writes it to the front of `bytes`, which has [`HEADER`] bytes at least; else nothing is
    /// written and the answer is false.
    #[inline]
    pub fn encode(&self, bytes: &mut [u8]) -> bool {
        let Some(bytes) = bytes.first_chunk_mut::<HEADER>() else { return false };
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..6].copy_from_slice(&self.length.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.credit.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.from.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.to.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.from_life.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.to_life.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.selective.to_le_bytes());
        true
    }

    /// The header of a datagram of the job with `cookie`, and what is behind it. Says of all that
    /// can be said without knowing the peer whether it is right.
    #[inline]
    pub fn decode(bytes: &[u8], cookie: u64) -> Result<(Header, &[u8]), Reject> {
        if bytes.len() < HEADER {
            return Err(Reject::Short);
        }
        if u16::from_le_bytes(field(bytes, 0)) != MAGIC {
            return Err(Reject::Magic);
        }
        if bytes[2] != VERSION {
            return Err(Reject::Version);
        }
        if u64::from_le_bytes(field(bytes, 8)) != cookie {
            return Err(Reject::Cookie);
        }
        let header = Header {
            kind: Kind::new(bytes[3]).ok_or(Reject::Kind)?,
            length: u16::from_le_bytes(field(bytes, 4)),
            credit: u16::from_le_bytes(field(bytes, 6)),
            cookie,
            from: u32::from_le_bytes(field(bytes, 16)),
            to: u32::from_le_bytes(field(bytes, 20)),
            from_life: u32::from_le_bytes(field(bytes, 24)),
            to_life: u32::from_le_bytes(field(bytes, 28)),
            sequence: u32::from_le_bytes(field(bytes, 32)),
            acknowledged: u32::from_le_bytes(field(bytes, 36)),
            selective: u64::from_le_bytes(field(bytes, 40)),
        };
        let body = &bytes[HEADER..];
        let least = if header.kind == Kind::Data { FRAGMENT } else { 0 };
        let right = body.len() == usize::from(header.length)
            && if least == 0 { body.is_empty() } else { body.len() >= least };
        if !right {
            return Err(Reject::Length);
        }
        // Only who begins does not know whom it talks to.
        if header.from_life == 0 || (header.to_life == 0 && header.kind != Kind::Hello) {
            return Err(Reject::Field);
        }
        Ok((header, body))
    }
}

/// Which piece of which message a datagram has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The message's number, counted by the sender for this connection.
    pub message: u32,
    /// Its bytes.
    pub total: u32,
    /// Where in it the payload belongs.
    pub offset: u32,
    /// Whom it is for; the reliable delivery does not look at it.
    pub channel: u8,
}

impl Fragment {
    /// Writes it behind the header of a datagram, which has room for both; else nothing is written
    /// and the answer is false. No more messages lie behind it yet ([`add`](super::add)).
    #[inline]
    pub fn encode(&self, datagram: &mut [u8]) -> bool {
        let Some(bytes) = datagram.get_mut(HEADER..OVERHEAD) else { return false };
        bytes[0..4].copy_from_slice(&self.message.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.total.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&[self.channel, 0, 0, 0]);
        true
    }

    /// What is behind the header of a datagram of kind [`Kind::Data`]: the piece, its payload,
    /// which lies within the message and is empty only if the message is, and what lies behind that.
    #[inline]
    pub fn decode(body: &[u8]) -> Result<(Fragment, &[u8], Further<'_>), Reject> {
        let Some((bytes, payload)) = body.split_first_chunk::<FRAGMENT>() else {
            return Err(Reject::Length);
        };
        let fragment = Fragment {
            message: u32::from_le_bytes(field(bytes, 0)),
            total: u32::from_le_bytes(field(bytes, 4)),
            offset: u32::from_le_bytes(field(bytes, 8)),
            channel: bytes[12],
        };
        let more = bytes[13];
        let (payload, behind) = match usize::try_from(fragment.total) {
            Ok(total) if more > 0 => payload.split_at_checked(total).ok_or(Reject::Field)?,
            _ => (payload, &[][..]),
        };
        let end = u64::from(fragment.offset) + payload.len() as u64;
        let empty = payload.is_empty() && (fragment.total != 0 || fragment.offset != 0);
        if bytes[14..] != [0; 2] || end > u64::from(fragment.total) || empty {
            return Err(Reject::Field);
        }
        Ok((fragment, payload, Further::decode(behind, more)?))
    }
}

const _: () = assert!(OVERHEAD == 64);
