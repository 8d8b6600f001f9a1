//! The short way of short messages, those of up to ten cells, between two processes of a node whose connection is hot, while nothing else is to be thought of.
//!
//! ```text
//!   send    --> vc found, its lock mine --> hot, peer there, not pressed, room --> cells written
//!   receive --> feed found, its lock mine --> nothing posted or kept --> looked at in its cells: mine? copied out
//! ```
//! Each is a function of its own for one cell and for several, that keeps what it works with in registers, copies
//! once, and returns in registers. Whatever is not so simple changes nothing here and goes the general way:
//! `send`, and [`direct`](super::direct). Both ways keep the order of messages, since they use the same lane
//! under the same locks.

use super::endpoint::Endpoint;
use super::matching::Pattern;
use super::record::{Arrived, Buffer};
use super::wire;
use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::shm::ring::lane_receiver::{One, Taker};
use crate::shm::ring::{FIRST_BYTES, Headed, HeadedWords, InPlace, Label, SEVERAL_BYTES};

/// Most data of such a message, and most of one of a single cell.
pub(crate) const MOST: usize = SEVERAL_BYTES - 8;
const MOST_OF_ONE: usize = FIRST_BYTES - 8;

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

/// What a receive of the short way takes, and to where: no more words than there are registers for
/// arguments.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    /// The source's slot in the low 16 bits; above, of how many bytes a message must have a multiple.
    who: u64,
    /// The label of such messages.
    label: Label,
    /// Their tag, or [`ANY`].
    tag: u64,
    to: *mut u8,
    len: usize,
}

/// No tag.
const ANY: u64 = u64::MAX;

impl Wish {
    /// A message into `len` bytes at `to`, in elements of `unit` bytes and of a code; `None` if the short
    /// way is not for such.
    ///
    /// # Safety
    /// The bytes may be written, and nobody else uses them, until the receive that gets this returns.
    #[inline(always)]
    pub unsafe fn new(
        pattern: &Pattern,
        (to, len): (*mut u8, usize),
        (element, unit): (u8, usize),
    ) -> Option<Wish> {
        let source = pattern.source?;
        let label = wire::label(wire::EAGER, pattern.context, element).ok()?;
        // One into a larger buffer would look in vain for most messages.
        (len <= MOST && unit <= MOST).then(|| Wish {
            who: (unit as u64) << 16 | u64::from(source.0),
            label,
            tag: pattern.tag.map_or(ANY, u64::from),
            to,
            len,
        })
    }
}

/// Whether a message that does not fill its buffer has whole elements.
#[cold]
fn fits_less(bytes: usize, len: usize, unit: usize) -> bool {
    bytes < len && bytes.is_multiple_of(unit)
}

/// A wish, and what it got.
struct Granted {
    wish: Wish,
    taken: Quick,
}

impl Taker for Granted {
    #[inline(always)]
    fn takes(&mut self, message: impl InPlace) -> bool {
        let Wish { who, label, tag, to, len } = self.wish;
        let Some((head, bytes)) = message.headed() else { return false };
        let mine = wire::labels_agree(message.label(), label)
            && (tag == ANY || tag == u64::from(wire::unhead(head).1))
            && (bytes == len || fits_less(bytes, len, (who >> 16) as usize));
        // SAFETY: whoever made the wish; the message fits.
        let taken = mine && unsafe { message.copy_behind_head(to) };
        if taken {
            self.taken = Quick { head, bytes };
        }
        taken
    }
}

impl Endpoint {
    /// Sends a standard message the short way, with a label and a head (see [`wire`]): whether it was
    /// sent. If not, nothing has happened.
    ///
    /// As many arguments as fit registers, and little else goes to memory: while the line that a message
    /// goes to comes from the other core, the processor goes on only as long as its store buffer (of some
    /// 64 entries) holds what is stored meanwhile; with 50 stores for each message the next line was not
    /// asked for before this one had come.
    ///
    /// Cost: one cache line to the peer, and one more for each 56 bytes of data beyond 40; loads of two of its
    /// lines that seldom change (how it stands, and its port), and of the lane's grant; no atomic
    /// read-modify-write, some 15 stores to lines of this process's own. Where it begins as the one before,
    /// the line is shared with up to four others.
    #[inline(always)]
    pub(super) fn send_express(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        match data.len() {
            0..=MOST_OF_ONE => self.send_express_one(to, label, head, data),
            len => len <= MOST && self.send_express_several(to, label, head, data),
        }
    }

    #[inline(never)]
    fn send_express_one(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        if !data.len().is_multiple_of(8) {
            return self.send_express_bytes(to, label, head, data);
        }
        self.may_express(data, MOST_OF_ONE)
            && self.wire().express(to, label, HeadedWords(Headed(head, data)))
    }

    /// The same for data that end with part of a word. Apart, since that part takes registers.
    #[inline(never)]
    fn send_express_bytes(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        self.may_express(data, MOST_OF_ONE) && self.wire().express(to, label, Headed(head, data))
    }

    /// For data that take several cells.
    #[inline(never)]
    fn send_express_several(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        self.may_express(data, MOST) && self.wire().express_several(to, label, Headed(head, data))
    }

    /// Whether data may travel with their message as far as this process is concerned.
    #[inline(always)]
    fn may_express(&self, data: &[u8], most: usize) -> bool {
        let messenger = &*self.messenger;
        data.len() <= most.min(messenger.limits.eager) && messenger.outgoing.is_empty()
    }

    /// What a receive gets if it is there: the short way only.
    #[inline(always)]
    pub fn receive_at_once(&self, wish: &Wish) -> Option<Arrived> {
        self.receive_express(wish).taken()
    }

    /// The same for a receive of the general way.
    #[inline(always)]
    pub(super) fn receive_quick(&self, pattern: &Pattern, buffer: &Buffer) -> Quick {
        let Some(to) = buffer.place.address() else { return Quick::UNKNOWN };
        let to = (to, buffer.place.len());
        // SAFETY: the buffer is the caller's, whose memory it describes, as long as this runs.
        let wish = unsafe { Wish::new(pattern, to, (buffer.element, buffer.unit())) };
        wish.map_or(Quick::UNKNOWN, |wish| self.receive_express(&wish))
    }

    #[inline(always)]
    fn receive_express(&self, wish: &Wish) -> Quick {
        let Wish { who, label, tag, to, len } = *wish;
        if len <= MOST_OF_ONE {
            // SAFETY: whoever made the wish.
            unsafe { self.take_express::<false>(who, label, tag, to, len) }
        } else {
            // SAFETY: as above.
            unsafe { self.take_express::<true>(who, label, tag, to, len) }
        }
    }

    /// Receives a message of a known source the short way, if it is the next one in its lane and takes one cell,
    /// or `SEVERAL`. The arguments are those of a [`Wish`].
    ///
    /// Cost: the message's lines, one private lock, and the copy.
    ///
    /// # Safety
    /// That of [`Wish::new`].
    #[inline(never)]
    unsafe fn take_express<const SEVERAL: bool>(
        &self,
        who: u64,
        label: Label,
        tag: u64,
        to: *mut u8,
        len: usize,
    ) -> Quick {
        let wish = Wish { who, label, tag, to, len };
        let source = Slot(wish.who as u16);
        let messenger = &*self.messenger;
        let mut wish = Granted { wish, taken: Quick::UNKNOWN };
        let clear = || messenger.shown.is_clear(Some(source));
        match self.wire().express_from::<SEVERAL>(source, clear, &mut wish) {
            One::Taken => wish.taken,
            One::Nothing
                if messenger.work.load(Ordering::Relaxed) == 0 && messenger.outgoing.is_empty() =>
            {
                Quick::NOTHING
            }
            _ => Quick::UNKNOWN,
        }
    }
}
