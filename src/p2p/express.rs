//! The short way of short messages, those of up to ten cells, between two processes of a node whose connection is
//! hot, while nothing else is to be thought of.
//!
//! ```text
//!   send    --> vc found, its lock mine --> hot, peer there, not pressed, room --> cells written
//!   receive --> feed found, its lock mine --> nothing posted or kept --> looked at in its cells: mine? copied out
//! ```
//! Each is inlined into a function for one cell and one for several, that keeps what it works with in registers, copies
//! once, and returns in registers. Whatever is not so simple changes nothing here and goes the general way:
//! `send`, and [`direct`](super::direct). Both ways keep the order of messages, since they use the same lane
//! under the same locks.

use super::endpoint::Endpoint;
use super::matching::Pattern;
use super::record::{Arrived, Buffer};
use super::wire;
use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::shm::park::Pace;
use crate::shm::ring::lane_receiver::{One, Taker};
use crate::shm::ring::{FIRST_BYTES, Headed, HeadedWords, InPlace, Label, SEVERAL_BYTES};

/// Most data of such a message, and most of one of a single cell.
pub(crate) const MOST: usize = SEVERAL_BYTES - 8;
pub(crate) const MOST_OF_ONE: usize = FIRST_BYTES - 8;

/// How a message is written, a function for each. Of one cell: whole words.
pub(crate) const WORDS: u8 = 0;
/// Of one cell: data that end with part of a word. Apart, since that part takes registers.
pub(crate) const BYTES: u8 = 1;
/// Of several cells.
pub(crate) const SEVERAL: u8 = 2;

/// How a message of so many bytes is written.
#[inline(always)]
pub(crate) fn how(len: usize) -> u8 {
    match len {
        0..=MOST_OF_ONE if len.is_multiple_of(8) => WORDS,
        0..=MOST_OF_ONE => BYTES,
        _ => SEVERAL,
    }
}

/// What came of a look: two words, for two are returned in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quick {
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
    /// The source's slot in the low 16 bits; above, of how many bytes a message must have a multiple; in the
    /// high 16, how often to look again while nothing has come.
    who: u64,
    /// The label of such messages.
    label: Label,
    /// Their tag, or [`ANY`].
    tag: u64,
    to: *mut u8,
    len: usize,
}

/// Where a wish has how often to look again.
const LOOKS: u32 = 48;

/// For a tag: any.
pub(crate) const ANY: u64 = u64::MAX;

impl Wish {
    /// A message of a team's context from `source`, with a tag or [`ANY`], into `len` bytes at `to`, in elements of
    /// `unit` bytes and of a code; `None` if the short way is not for such.
    ///
    /// # Safety
    /// The bytes may be written, and nobody else uses them, until the receive that gets this returns.
    #[inline(always)]
    pub unsafe fn new(
        context: u32,
        (source, tag): (Slot, u64),
        (element, unit): (u8, usize),
        (to, len): (*mut u8, usize),
    ) -> Option<Wish> {
        let label = wire::label(wire::EAGER, context, element).ok()?;
        // One into a larger buffer would look in vain for most messages.
        (len <= MOST && unit <= MOST).then(|| Wish {
            who: (unit as u64) << 16 | u64::from(source.0),
            label,
            tag,
            to,
            len,
        })
    }

    /// The same, looking so many times more while nothing has come.
    #[inline(always)]
    fn looking(self, looks: u16) -> Wish {
        Wish { who: u64::from(looks) << LOOKS | self.who, ..self }
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
            && (bytes == len || fits_less(bytes, len, (who >> 16) as u32 as usize));
        // SAFETY: whoever made the wish; the message fits.
        let taken = mine && unsafe { message.copy_behind_head(to) };
        if taken {
            self.taken = Quick { head, bytes };
        }
        taken
    }

    #[inline(always)]
    fn looks(&self) -> u32 {
        (self.wish.who >> LOOKS) as u32
    }
}

/// How often who waits looks at a lane in a row, at a process's pace: where it has a core for as long as a line takes to
/// come and a little more, a few hundred nanoseconds.
pub(super) fn looks(pace: Pace) -> u16 {
    if pace.is_awake() { 32 } else { 4 }
}

impl Endpoint {
    /// Sends a standard message the short way, with a label and a head (see [`wire`]), written as `HOW` says
    /// ([`how`]): whether it was sent. If not, nothing has happened.
    ///
    /// Inlined into one function that has no more arguments than fit registers, and that keeps little else in memory:
    /// while the line that a message goes to comes from the other core, the processor goes on only as long as its
    /// store buffer (of some 64 entries) holds what is stored meanwhile; with 50 stores for each message the next
    /// line was not asked for before this one had come.
    ///
    /// Cost: one cache line to the peer, and one more for each 56 bytes of data beyond 40; loads of two of its
    /// lines that seldom change (how it stands, and its port), and of the lane's grant; no atomic
    /// read-modify-write, some 15 stores to lines of this process's own. Where it begins as the one before,
    /// the line is shared with up to four others.
    #[inline(always)]
    pub fn express<const HOW: u8>(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        let messenger = &*self.messenger;
        if data.len() > messenger.limits.express || !messenger.outgoing.is_empty() {
            return false;
        }
        let headed = Headed(head, data);
        match HOW {
            WORDS => self.wire().express(to, label, HeadedWords(headed)),
            BYTES => self.wire().express(to, label, headed),
            _ => self.wire().express_several(to, label, headed),
        }
    }

    /// The same in a function of its own, for whoever has got far enough to know label and head.
    #[inline(always)]
    pub(super) fn send_express(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        match how(data.len()) {
            WORDS => self.express_apart::<WORDS>(to, label, head, data),
            BYTES => self.express_apart::<BYTES>(to, label, head, data),
            _ => self.express_apart::<SEVERAL>(to, label, head, data),
        }
    }

    #[inline(never)]
    fn express_apart<const HOW: u8>(&self, to: Slot, label: Label, head: u64, data: &[u8]) -> bool {
        self.express::<HOW>(to, label, head, data)
    }

    /// What a receive of the general way gets the short way, if it looks once and `looks` times more.
    #[inline(always)]
    pub(super) fn receive_quick(&self, pattern: &Pattern, buffer: &Buffer, looks: u16) -> Quick {
        let (Some(to), Some(source)) = (buffer.place.address(), pattern.source) else {
            return Quick::UNKNOWN;
        };
        let from = (source, pattern.tag.map_or(ANY, u64::from));
        let (what, to) = ((buffer.element, buffer.unit()), (to, buffer.place.len()));
        // SAFETY: the buffer is the caller's, whose memory it describes, as long as this runs.
        let Some(wish) = (unsafe { Wish::new(pattern.context, from, what, to) }) else {
            return Quick::UNKNOWN;
        };
        let Wish { who, label, tag, to, len } = wish.looking(looks);
        if len <= MOST_OF_ONE {
            // SAFETY: they are a wish's.
            unsafe { self.take_apart::<false>(who, label, tag, to, len) }
        } else {
            // SAFETY: as above.
            unsafe { self.take_apart::<true>(who, label, tag, to, len) }
        }
    }

    /// [`Endpoint::take_express`] in a function of its own, with the words of a [`Wish`] as arguments.
    ///
    /// # Safety
    /// That of [`Wish::new`].
    #[inline(never)]
    unsafe fn take_apart<const SEVERAL: bool>(
        &self,
        who: u64,
        label: Label,
        tag: u64,
        to: *mut u8,
        len: usize,
    ) -> Quick {
        self.take_express::<SEVERAL>(Wish { who, label, tag, to, len })
    }

    /// [`Endpoint::take_express`] by who waits for the message: looks for a moment.
    #[inline(always)]
    pub fn await_express<const SEVERAL: bool>(&self, wish: Wish) -> Quick {
        self.take_express::<SEVERAL>(wish.looking(self.messenger.limits.looks))
    }

    /// Receives a message of a known source the short way, if it is the next one in its lane and takes one cell,
    /// or `SEVERAL`. Inlined into one function, see [`Endpoint::express`].
    ///
    /// Cost: the message's lines, one private lock, and the copy. While nothing has come, a few instructions and a
    /// pause for each look that the wish asks for, under that lock.
    #[inline(always)]
    fn take_express<const SEVERAL: bool>(&self, wish: Wish) -> Quick {
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
