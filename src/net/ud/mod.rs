//! Messages between two processes, each exactly once and in order, over datagrams that may be lost,
//! doubled, delayed and reordered. Pure: times and datagrams come in, datagrams and messages go out.
//!
//! ```text
//!   send ----> | ring of <= 64 datagrams | ---- Data --->  in order: handed on where they lie
//!    (copied)  | waiting, flying, done   |                 ahead of a gap: kept (<= credit)
//!              |                         | <--- Ack ----   acknowledged, selective, credit
//!                 a later one acknowledged: sent again (fast)      fragments -> whole messages
//!                 nothing for a while: all sent again, slower
//! ```
//! One [`Peer`] for each process that this one talks to, small while it is idle (the ring and what
//! is kept ahead of gaps are made when needed and dropped when idle); one [`Shared`] per process.
//!
//! **Lives.** A process has a life per connection: its incarnation, and how often it has given
//! this connection up. Every datagram names both sides' lives. Sequence numbers begin anew with each
//! pair of lives and are accepted only for the present pair, so nothing of an earlier one is ever
//! taken for the present one's:
//!
//! ```text
//!   A (life a)                           B (life b)
//!     Hello (a -> ?)  ------------------>  adopts a
//!              <-------------------------  Welcome (b -> a)
//!     adopts b, knows that B knows a
//!     Data or Ack (a -> b) ------------->  knows that A knows b: may send, too
//! ```
//! Nobody sends data before it knows that the other side knows its life; so what has to be given up
//! when a life ends is what was sent within it. It is reported ([`Event`]), never sent again by
//! itself: it may have arrived. Both may begin at the same time; each `Hello` is answered.
//!
//! **Bounds.** A sender has 64 datagrams under way at most, a receiver keeps as many as it gave
//! credit for; buffers and the memory for messages in pieces have limits for all peers together.
//! What finds none is refused to the sender ([`Refused::Full`]) or dropped at the receiver, which
//! is as if it had been lost. Datagrams that come in order need no buffer: so a receiver whose
//! buffers all wait for others' acknowledgements still takes, and acknowledges, what comes. And a
//! message that has begun gets one buffer at a time beyond the limit if it has to: its receiver has
//! given it memory for which others wait, and among them may be who has this side's buffers.
//!
//! **Loss** is seen by the order of sending, not of sequence numbers: what was sent three datagrams
//! before one that has been acknowledged is sent again, be it for the first time or the tenth. Where
//! that turns out wrong (its acknowledgement comes sooner than one could), the three become more.
//! How many are under way at once shrinks only where more than a sixteenth of a round is lost:
//! a few losses are the wires', many are the receivers'.

mod buffers;
mod config;
mod peer;
mod receiving;
mod ring;
mod round_trip;
#[cfg(test)]
mod tests;

pub use buffers::{Buffer, Buffers};
pub use config::{Config, SPAN};
pub use peer::Peer;
pub use receiving::{Upper, Verdict};

use crate::net::wire::Rejects;

/// What all connections of a process share.
#[derive(Debug)]
pub struct Shared {
    /// As it was set.
    pub(super) config: Config,
    /// Datagrams that wait for acknowledgement or for what belongs before them.
    pub(super) buffers: Buffers,
    /// What happened.
    pub counters: Counters,
    /// Bytes of messages of which not all pieces have come.
    pub(super) assembling: u64,
}

impl Shared {
    /// Nothing under way.
    pub fn new(config: Config) -> crate::base::Result<Shared> {
        config.check()?;
        let buffers = Buffers::new(usize::from(config.datagram), config.buffers);
        Ok(Shared { config, buffers, counters: Counters::default(), assembling: 0 })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The datagrams' memory: a device may want to register it.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Bytes of messages of which not all pieces have come.
    pub fn assembling(&self) -> u64 {
        self.assembling
    }
}

/// What happened, over all connections.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Datagrams with pieces of messages, sent for the first time.
    pub sent: u64,
    /// Sent again since a later one was acknowledged.
    pub resent: u64,
    /// Sent again since nothing came for a while.
    pub timeouts: u64,
    /// Sent again, though the first one arrived, as far as that was seen.
    pub spurious: u64,
    /// Datagrams that acknowledge, and nothing else.
    pub acks: u64,
    /// Datagrams that begin connections, answer that, ask or take leave.
    pub control: u64,
    /// Pieces that came, and were new.
    pub received: u64,
    /// Those that had come before.
    pub duplicates: u64,
    /// Those dropped for lack of memory; they come again.
    pub starved: u64,
    /// Dropped since they were wrong, by reason.
    pub rejects: Rejects,
}

/// Messages that will not be confirmed any more. They may have arrived or not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lost {
    /// Number of the first one, as [`Sent`] gave it.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer knows this side's present life: data can go.
    Opened,
    /// The peer began anew: it was started again, or had given this connection up.
    Restarted(Lost),
    /// The peer did not answer for [`Config::silence`]. What is sent from now on begins anew.
    Silent(Lost),
    /// The peer has left in good order.
    Left(Lost),
    /// The peer sent what cannot be: the connection is given up as if it were silent.
    Broken(Lost),
}

/// How much of a message was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// All of it: the message with this number, counted from 0 for each peer. It has arrived when
    /// [`Peer::confirmed`] is larger.
    Whole(u64),
    /// Some of it. [`Peer::resume`] with the same message takes more when there is room; until it
    /// is whole, no other message is taken.
    Part,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no room now: call [`Peer::transmit`], take what comes, and try again.
    Full,
    /// It is longer than [`Config::message`].
    TooLong,
    /// Another message is not whole yet; or none is that could be resumed, since the connection
    /// was given up meanwhile.
    Unfinished,
    /// The peer has left.
    Left,
    /// The connection was given up too often.
    Exhausted,
}
