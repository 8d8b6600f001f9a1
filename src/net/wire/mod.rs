//! Every header that travels between nodes: how it looks, and what of it is accepted.
//!
//! ```text
//!   datagram  | Header (48) | Fragment (16)| payload ...     kind Data
//!             | Header (48) |                                all other kinds
//!     payload of whole messages: | message | Further (4) | message | ...
//!
//!   Control   | packet (4) | connection (4) | length (1) | end point (0..=64)
//! ```
//! All numbers are little-endian. What comes from the network is decoded here and nowhere else:
//! [`Header::decode`] and its fellows take any bytes, never panic, and say of what they do not take
//! why ([`Reject`]), so that it can be counted. There is no checksum: UDP and InfiniBand have
//! theirs; the cookie keeps strangers out, not forgers (who reads the network can forge).

mod control;
mod datagram;
mod further;

pub use control::{Control, END_POINT};
pub use datagram::{Fragment, HEADER, Header, Kind, MAGIC, OVERHEAD, VERSION};
pub use further::{FURTHER, Further, add};

/// Why something that came was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reject {
    /// Fewer bytes than the header has.
    Short,
    /// Not one of this library's datagrams.
    Magic,
    /// Of another version of the library.
    Version,
    /// Of another job.
    Cookie,
    /// Of a kind that there is not.
    Kind,
    /// The length does not agree with what came, or with the kind.
    Length,
    /// For another process.
    Destination,
    /// From a process that there is not.
    Origin,
    /// A field has a value that it cannot have.
    Field,
    /// A fragment that does not continue the message before it.
    Fragment,
    /// Of an earlier life of the sender's, or meant for an earlier one of the receiver's.
    Stale,
    /// A sequence number beyond the credit, or an acknowledgement of what was never sent.
    Sequence,
}

impl Reject {
    /// How many reasons there are.
    pub const COUNT: usize = Reject::Sequence as usize + 1;

    /// Every reason, in order.
    pub const ALL: [Reject; Reject::COUNT] = [
        Reject::Short,
        Reject::Magic,
        Reject::Version,
        Reject::Cookie,
        Reject::Kind,
        Reject::Length,
        Reject::Destination,
        Reject::Origin,
        Reject::Field,
        Reject::Fragment,
        Reject::Stale,
        Reject::Sequence,
    ];
}

/// What was dropped, counted by reason.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Rejects([u64; Reject::COUNT]);

impl Rejects {
    /// One more.
    #[inline]
    pub fn note(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// How many there were for that reason.
    pub fn count(&self, reject: Reject) -> u64 {
        self.0[reject as usize]
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The bytes from `at` on; the caller has checked that they are there, or gets zeros.
#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|field| field.try_into().ok()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
