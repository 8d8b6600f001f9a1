//! The short way of short messages: those whose data fit the one cell that carries them, between two
//! processes of a node whose connection is hot, while nothing else is to be thought of.
//!
//! ```text
//!   send    --> vc found, its lock mine --> hot, peer there, not pressed, room --> one cell written
//!   receive --> feed found, its lock mine --> nothing posted or kept --> looked at in its cell: mine? copied out
//! ```
//! Each is one function that keeps what it works with in registers, copies once, and returns in
//! registers. Whatever is not so simple changes nothing here and goes the general way: `send`, and
//! [`direct`](super::direct). Both ways keep the order of messages, since they use the same lane under the
//! same locks.

use super::endpoint::Endpoint;
use super::matching::{Envelope, Pattern};
use super::record::{Arrived, Buffer};
use super::wire;
use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::shm::ring::lane_receiver::One;
use crate::shm::ring::{FIRST_BYTES, Headed, Label};

/// Most data of such a message.
pub(super) const MOST: usize = FIRST_BYTES - 8;

/// What came of a look: two words, for two are returned in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Quick {
    head: u64,
    bytes: usize,
}

impl Quick {
    /// Nothing is there, and nothing else to do.
    pub const NOTHING: Quick = Quick { head: 0, bytes: usize::MAX };
    /// Only the general way can say.
    pub const UNKNOWN: Quick = Quick { head: 1, bytes: usize::MAX };

    /// What was taken, if it was.
    #[inline(always)]
    pub fn taken(self) -> Option<Arrived> {
        let (rank, tag) = wire::unhead(self.head);
        (self.bytes <= MOST).then_some(Arrived { rank, tag, bytes: self.bytes })
    }
}

impl Endpoint {
    /// Sends a standard message the short way, of a label's value and a head (see [`wire`]): whether it was
    /// sent. If not, nothing has happened.
    ///
    /// As many arguments as fit registers, and little else goes to memory: while the line that a message
    /// goes to comes from the other core, the processor goes on only as long as its store buffer (of some
    /// 64 entries) holds what is stored meanwhile; with 50 stores for each message the next line was not
    /// asked for before this one had come.
    ///
    /// Cost: one cache line to the peer; loads of two of its lines that seldom change (how it stands, and
    /// its port), and of the lane's grant; no atomic read-modify-write, some 20 stores to lines of this
    /// process's own.
    #[inline(never)]
    pub(super) fn send_express(&self, to: Slot, value: u64, head: u64, data: &[u8]) -> bool {
        let messenger = &*self.messenger;
        if data.len() > MOST.min(messenger.limits.eager) || !messenger.outgoing.is_empty() {
            return false;
        }
        let Ok(label) = Label::new(wire::EAGER, value) else { return false };
        self.wire().express(to, label, Headed(head, data))
    }

    /// What a receive gets if it is there: the short way only.
    #[inline(always)]
    pub fn receive_at_once(&self, pattern: &Pattern, buffer: &Buffer) -> Option<Arrived> {
        // One into a larger buffer would look in vain for most messages.
        if buffer.place.len() > MOST {
            return None;
        }
        self.receive_express(pattern, buffer).taken()
    }

    /// Receives a message of a known source the short way, if it is the next one in its lane.
    ///
    /// Cost: the message's line, one private lock, and the copy.
    #[inline(never)]
    pub(super) fn receive_express(&self, pattern: &Pattern, buffer: &Buffer) -> Quick {
        let (Some(source), Some(to)) = (pattern.source, buffer.place.address()) else {
            return Quick::UNKNOWN;
        };
        let messenger = &*self.messenger;
        let mut taken = Quick::UNKNOWN;
        let one = self.wire().express_from(
            source,
            || messenger.shown.is_clear(Some(source)),
            |message| {
                let label = message.label();
                let Some((head, bytes)) = message.headed() else { return false };
                let (context, element) = wire::unlabel(label.imm());
                let (rank, tag) = wire::unhead(head);
                let arrived = Arrived { rank, tag, bytes };
                let envelope = Envelope { context, source, tag };
                let mine = label.kind() == wire::EAGER
                    && pattern.takes(&envelope)
                    && buffer.fits(arrived, element);
                if mine {
                    // SAFETY: the buffer is the caller's, whose memory it describes; the message fits.
                    unsafe { message.copy_behind_head(to) };
                    taken = Quick { head, bytes };
                }
                mine
            },
        );
        match one {
            One::Taken => taken,
            One::Nothing
                if messenger.work.load(Ordering::Relaxed) == 0 && messenger.outgoing.is_empty() =>
            {
                Quick::NOTHING
            }
            _ => Quick::UNKNOWN,
        }
    }
}
