//! Receives that are not posted: straight out of the lane of their source.
//!
//! ```text
//!   receive --> is the lane's next message its own? -- yes --> copied out of the lane: done
//!      ^                |             |
//!      |     nothing is there     another one is, or something is posted or kept
//!      |                |             |
//!      +--- awake ------+             +----------------> posted, and waited for
//!                       +--- about to sleep -----------^
//! ```
//! As long as it is not posted, it shares nothing that is written with threads that receive from other
//! sources: it takes the lock of that lane, and looks at what is [`shown`](super::shown) of the queues.
//! Now and then it looks after everything else, as every wait does.

use super::endpoint::Endpoint;
use super::express::{self, Quick};
use super::matching::{Envelope, Pattern};
use super::messenger::{Messenger, Wanted};
use super::receive::GivenUp;
use super::record::{Arrived, Buffer, Record};
use super::send::missing;
use super::wire;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Result};
use crate::link::Message;
use crate::link::core::Wire;
use crate::link::feed::Look;
use std::cell::{Cell, RefCell};

/// Looks without a pause before a wait is begun, at most.
const SOON: u32 = 128;
/// The same where a lane is watched, a few instructions and a pause a look.
const SOON_WATCHED: u32 = 384;
/// Looks of a wait at its own lane, before one at everything.
const TURNS: u32 = 16;

/// What came of [`Messenger::take_directly`].
enum Directly {
    Taken(Arrived),
    /// Nothing is there, and nothing else to do.
    Nothing,
    /// Everything else is to be looked at now.
    Others,
    /// The receive is to be posted.
    No,
}

/// What came of looks at a lane.
pub(super) enum Soon {
    Taken(Arrived),
    /// Its lane may bring it any moment.
    Wait,
    /// The receive is to be posted.
    Post,
}

impl Messenger {
    /// The way of a small message to a receive that was not posted: straight out of the lane,
    /// if no receive is posted and no message kept that could come before. What came, or whether
    /// it is worth asking again at once. No record is made of `buffer`.
    ///
    /// Cost: the message's lines, one private lock, two loads, and the copies. Not inlined, and nothing
    /// inside that is seldom needed: in a loop the addresses of all that it looks at would be kept on the
    /// stack.
    ///
    /// # Errors
    /// Damaged shared memory.
    #[inline(never)]
    fn take_directly(
        &self,
        wire: Wire<'_>,
        pattern: &Pattern,
        buffer: &Buffer,
    ) -> Result<Directly> {
        let mut taken = None;
        let look = wire.poll_one(
            pattern.source,
            || self.shown.is_clear(pattern.source),
            |message| {
                if message.kind == wire::EAGER
                    && let Some((head, data)) = message.bytes.split_first_chunk::<8>()
                {
                    let (context, element) = wire::unlabel(message.imm);
                    let (rank, tag) = wire::unhead(u64::from_ne_bytes(*head));
                    let arrived = Arrived { rank, tag, bytes: data.len() };
                    let envelope = Envelope { context, source: message.from, tag };
                    if pattern.takes(&envelope) && buffer.fits(arrived, element) {
                        // SAFETY: the buffer is the caller's, whose memory it describes.
                        unsafe { buffer.place.write(0, data) };
                        taken = Some(arrived);
                        return false;
                    }
                }
                if message.kind == wire::LENT {
                    taken = self.take_lent(wire, pattern, buffer, &message);
                    if taken.is_some() {
                        return false;
                    }
                }
                self.take_unasked(wire, message);
                true
            },
        )?;
        if let Some(arrived) = taken {
            return Ok(Directly::Taken(arrived));
        }
        let quiet = self.work.load(Ordering::Relaxed) == 0 && self.outgoing.is_empty();
        Ok(match look {
            Look::Nothing if quiet => Directly::Nothing,
            Look::OthersTurn => Directly::Others,
            _ => Directly::No,
        })
    }

    /// A message in a buffer of its sender's, if it is one for the receive that has come across it.
    #[inline(never)]
    fn take_lent(
        &self,
        wire: Wire<'_>,
        pattern: &Pattern,
        buffer: &Buffer,
        message: &Message<'_>,
    ) -> Option<Arrived> {
        let [head, length, place] = wire::words(message.bytes)?;
        let (context, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let envelope = Envelope { context, source: message.from, tag };
        if !wire.node.is_local(message.from) || !pattern.takes(&envelope) {
            return None;
        }
        let lent = self.borrowed(wire.node, message.from, length, place)?;
        let arrived = Arrived { rank, tag, bytes: lent.len };
        let from = self.pooled_at(wire.node, lent).filter(|_| buffer.fits(arrived, element))?;
        // SAFETY: so many bytes of a buffer that its sender leaves alone until it is given back; the place is
        // the caller's, and they fit.
        unsafe { buffer.place.fill(from, lent.len) };
        self.give_back(wire.node, lent);
        Some(arrived)
    }

    /// A message that is none for the receive that has come across it.
    #[cold]
    #[inline(never)]
    fn take_unasked(&self, wire: Wire<'_>, message: Message<'_>) {
        self.take(wire, message);
    }
}

impl Endpoint {
    /// The short way first, if such messages are expected, with so many looks more while nothing has come, then the
    /// other one.
    #[inline]
    fn take_soon(&self, pattern: &Pattern, buffer: &Buffer, looks: u16) -> Result<Directly> {
        if buffer.place.len() > express::MOST {
            return self.messenger.take_directly(self.wire(), pattern, buffer);
        }
        let quick = self.receive_quick(pattern, buffer, looks);
        if let Some(arrived) = quick.taken() {
            return Ok(Directly::Taken(arrived));
        }
        if quick == Quick::NOTHING {
            return Ok(Directly::Nothing);
        }
        self.messenger.take_directly(self.wire(), pattern, buffer)
    }

    /// Receives what is there, or comes soon from a source that is known.
    #[inline]
    pub(super) fn receive_soon(&self, pattern: &Pattern, buffer: &Buffer) -> Result<Soon> {
        let (mut turns, mut looks) = (0u32, 0);
        loop {
            match self.take_soon(pattern, buffer, looks)? {
                Directly::Taken(arrived) => return Ok(Soon::Taken(arrived)),
                Directly::No => return Ok(Soon::Post),
                Directly::Nothing => {}
                Directly::Others => {
                    self.look_beside(pattern, &Cell::new(false))?;
                    continue;
                }
            }
            if turns == 0 {
                // Other sources' messages would wait meanwhile.
                let Some(_) = pattern.source else { return Ok(Soon::Post) };
                let watched = buffer.place.len() <= express::MOST;
                looks = if watched { self.messenger.limits.looks } else { 0 };
                turns = self.node.pace().spins.min(if watched { SOON_WATCHED } else { SOON });
            }
            turns = turns.saturating_sub(u32::from(looks).max(1));
            if turns == 0 {
                return Ok(Soon::Wait);
            }
        }
    }

    /// Looks at everything but the lane of a receive's source.
    #[cold]
    fn look_beside(&self, pattern: &Pattern, contended: &Cell<bool>) -> Result<()> {
        let wanted = Wanted { record: None, source: pattern.source, beside: true };
        self.messenger.look_for(self.wire(), wanted, || false, contended).unwrap_or(Ok(()))
    }

    /// Waits for a small message of a known source, and posts the receive only to sleep.
    pub(super) fn receive_awake(
        &self,
        pattern: &Pattern,
        record: &Record,
        deadline: Deadline,
        during: &'static str,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let posted: RefCell<Option<GivenUp<'_>>> = RefCell::new(None);
        let is_posted = || posted.borrow().is_some();
        let post = || {
            let mut posted = posted.borrow_mut();
            let guard = posted.insert(GivenUp::new(self, record));
            // SAFETY: the guard gives it up if it is not done when this ends.
            guard.key = unsafe { self.post(pattern, record, false) };
            guard.key.is_some()
        };
        let contended = Cell::new(false);
        // Posted: at everything.
        let look = || {
            let wanted = Wanted { record: Some(record), source: pattern.source, beside: false };
            messenger.look_for(wire, wanted, || record.is_done(), &contended)
        };
        let mut turn = 0u32;
        // What was taken, or nothing if the record is done.
        let poll = || {
            if !is_posted() {
                match self.take_soon(pattern, &record.buffer, 0) {
                    Ok(Directly::Taken(arrived)) => return Some(Ok(Some(arrived))),
                    Ok(Directly::No) => {
                        post();
                    }
                    Ok(it @ (Directly::Nothing | Directly::Others)) => {
                        turn = turn.wrapping_add(1);
                        if matches!(it, Directly::Others) || turn.is_multiple_of(TURNS) {
                            return self.look_beside(pattern, &contended).err().map(Err);
                        }
                        return None;
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            look().map(|looked| looked.map(|()| None))
        };
        let check = || {
            // What has come until now, for whomever, rings no bell any more.
            if !is_posted() && (!post() || look().transpose()?.is_some()) {
                wire.doorbell().notify();
            }
            messenger.before_sleep(wire, &contended)?;
            if let Some(source) = pattern.source {
                messenger.mourn(wire, source)?;
            }
            check()
        };
        let waited =
            self.node.wait_for(wire.doorbell(), pattern.source, deadline, during, poll, check);
        let waited = waited.and_then(|outcome| outcome);
        let Some(guard) = posted.take() else {
            return match waited {
                Ok(Some(arrived)) => Ok(arrived),
                Ok(None) => Ok(Arrived::default()),
                Err(error) => Err(missing(&self.node, error, pattern.source)),
            };
        };
        let waited = waited.map(drop).map_err(|error| missing(&self.node, error, pattern.source));
        self.end_receive(guard, waited)
    }
}
