//! What can be set.

use crate::base::{Error, Result};
use crate::net::wire::OVERHEAD;

/// The most datagrams that one side has under way to the other: as many as an acknowledgement can
/// tell of.
pub const SPAN: u32 = 64;

const MILLISECOND: u64 = 1_000_000;

/// Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// The job's.
    pub cookie: u64,
    /// This process's number in the job.
    pub me: u32,
    /// Processes in the job.
    pub size: u32,
    /// Which of this process's lives this is, from 1: larger than those of all processes that had
    /// the number before.
    pub incarnation: u16,
    /// Bytes of a datagram, with all headers. The same in the whole job.
    pub datagram: u16,
    /// Datagrams under way to one peer, and kept of one peer; at most [`SPAN`].
    pub span: u32,
    /// Datagrams under way from which on messages that share a datagram wait for others to join them
    /// ([`Peer::transmit_most`](super::Peer::transmit_most)).
    pub cork: u32,
    /// Bytes of a message. The same in the whole job.
    pub message: u32,
    /// Buffers of a datagram each, for all peers; and one more for each peer that a long message goes
    /// to.
    pub buffers: u32,
    /// Bytes of messages of which not all pieces have come, for all peers; one message at least.
    pub assembling: u64,
    /// Datagrams after which an acknowledgement is due.
    pub ack_every: u16,
    /// Time after which one is due.
    pub ack_delay: u64,
    /// Time without an answer after which datagrams are sent again, before any round trip was
    /// measured.
    pub first_timeout: u64,
    /// Bounds for it later.
    pub least_timeout: u64,
    /// It is doubled up to here.
    pub most_timeout: u64,
    /// Time without a word after which a peer that should answer is given up.
    pub silence: u64,
    /// Time without a word after which a peer is asked whether it lives, if anybody wants to know
    /// ([`Peer::watch`](super::Peer::watch)); 0 for never. One that has begun a message and does not
    /// go on is asked after half of `silence` in any case.
    pub keepalive: u64,
    /// Time without traffic after which a connection drops what it can make anew.
    pub cool: u64,
    /// First sequence number; the same in the whole job.
    pub first: u32,
}

impl Config {
    /// What is good for sockets of one network, with datagrams of the usual size.
    pub fn new(cookie: u64, me: u32, size: u32, incarnation: u16) -> Config {
        Config {
            cookie,
            me,
            size,
            incarnation,
            datagram: 1472,
            span: SPAN,
            cork: 16,
            message: 4 << 20,
            buffers: 4096,
            assembling: 32 << 20,
            ack_every: 16,
            ack_delay: MILLISECOND / 5,
            first_timeout: 20 * MILLISECOND,
            least_timeout: 2 * MILLISECOND,
            most_timeout: 500 * MILLISECOND,
            silence: 30_000 * MILLISECOND,
            keepalive: 1_000 * MILLISECOND,
            cool: 1_000 * MILLISECOND,
            first: 0,
        }
    }

    /// Whether it can be used.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::invalid("the settings of datagrams", why));
        if self.me >= self.size {
            return wrong("the process's own number is not below the size of the job");
        }
        if self.incarnation == 0 {
            return wrong("incarnations are counted from 1");
        }
        if usize::from(self.datagram) <= OVERHEAD {
            return wrong("a datagram needs room for more than its 64 bytes of headers");
        }
        if self.span == 0 || self.span > SPAN {
            return wrong("1 to 64 datagrams can be under way to a peer");
        }
        if self.cork == 0 {
            return wrong("with nothing under way nothing can wait for its acknowledgement");
        }
        if self.ack_every == 0 || u32::from(self.ack_every) > self.span {
            return wrong("acknowledgements are due after 1 datagram at least, and a span at most");
        }
        if self.buffers < self.span {
            return wrong("there have to be as many buffers as one peer can use");
        }
        if self.assembling < u64::from(self.message) {
            return wrong("memory for messages in pieces has to hold one of the largest at least");
        }
        let times = [self.ack_delay, self.first_timeout, self.least_timeout, self.most_timeout];
        if times.contains(&0) || self.least_timeout > self.most_timeout {
            return wrong("times have to be positive, and the least timeout not above the most");
        }
        // Twenty years: sums of times do not overflow.
        if times.into_iter().chain([self.silence, self.keepalive, self.cool]).any(|t| t >> 59 > 0) {
            return wrong("times have to be below 2^59 nanoseconds");
        }
        if self.silence <= self.least_timeout.max(self.ack_delay) {
            return wrong("a peer has to have time for an answer before it counts as silent");
        }
        Ok(())
    }
}
