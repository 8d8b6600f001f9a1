//! What an origin may send to one target now, without ever sending what finds no room there.
//!
//! ```text
//!             next unit of a message
//!                      |
//!     system buffer, promised buffer, all of it under an exclusive lock     enough is free?  send
//!                      |
//!     a space granted before                                                enough is left?  send
//!                      |
//!     ask, if nothing is asked for        reserve ------------> granted, refused
//!                      |                     withdraw, if it went without
//!                     wait
//! ```
//! Paper 001 §7.1.1 and §7.2.1. The target never has to look for room: the origin keeps an exact
//! picture of what is free in the spaces that it has there ([`super::buffers`]) and names the place
//! of each unit; the place is free again with the last note about that unit. What an origin is
//! granted is used once, front to back, and given up with the last unit that fits, so that
//! others get their turn; under an exclusive lock there are no others, and one question for all
//! buffers serves until the lock is given up or, if buffers may be detached in between, flushed.
//!
//! Units are as large as the message, the packet and the room allow. Of the spaces that come back
//! piece by piece no crumbs are taken: while something is under way in one, less than half of what
//! is wanted is left alone until more has come back.

use super::body::{Place, Request};
use super::buffers::{GRAIN, GUARANTEED, SYSTEM, rounded};
use super::extent::Extents;
use crate::base::{Error, Result};
use std::collections::VecDeque;

/// What a message wants to send next. Sizes are of staging at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The message.
    pub message: u64,
    /// Bytes of a unit beside those of its segments.
    pub fixed: u64,
    /// Bytes of a segment, input and output.
    pub segment: u64,
    /// Segments to be sent; not 0.
    pub segments: u64,
    /// Most bytes of a unit, unless a single segment has more.
    pub most: u64,
    /// Bytes that other messages have waiting for this target, as far as known.
    pub behind: u64,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send so many segments; the place is taken.
    Send {
        /// Where to.
        place: Place,
        /// How many.
        segments: u64,
        /// The unit has to say that it is the last in its space.
        release: bool,
    },
    /// Send this [`Request::Reserve`], then wait.
    Reserve(Request<'static>),
    /// Wait for something to come back.
    Wait,
    /// Not even one segment will fit, whatever comes back.
    Never {
        /// Bytes needed in one piece.
        least: u64,
        /// Most bytes that the target's attached buffers have in one piece.
        largest: u64,
        /// Bytes of what the origin has without asking.
        private: u64,
    },
}

/// A space that comes back piece by piece.
#[derive(Debug)]
struct Lasting {
    space: u32,
    free: Extents,
}

/// A space that is used once.
#[derive(Debug)]
struct Once {
    space: u32,
    bytes: u64,
    used: u64,
    /// The message that asked for it and has not used it.
    bound: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    ticket: u64,
    message: u64,
    least: u64,
    all: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Credit {
    private: [u64; 2],
    lasting: Vec<Lasting>,
    once: Vec<Once>,
    asked: Option<Asked>,
    next_ticket: u64,
    /// Units sent of which the last note has not come.
    under_way: u64,
    /// A message that waits for lasting space and can use no other: nobody else takes of it.
    thirsty: Option<u64>,
    /// Most bytes that the target's attached buffers had in one piece when it last said so.
    largest: Option<u64>,
    /// The message for which it last said so.
    refused: Option<u64>,
    /// There is an exclusive lock.
    exclusive: bool,
    /// All was asked for under it.
    has_all: bool,
    out: VecDeque<Request<'static>>,
}

fn bad(why: String) -> Error {
    Error::Incompatible { what: "a note about an active message", why }
}

impl Credit {
    /// Of a target where this origin has a system buffer of `system` bytes and, by a hint,
    /// `promised` bytes more.
    pub fn new(system: u64, promised: u64) -> Credit {
        let private = [rounded(system), rounded(promised)];
        Credit {
            private,
            lasting: Credit::fresh(private),
            once: Vec::new(),
            asked: None,
            next_ticket: 0,
            under_way: 0,
            thirsty: None,
            largest: None,
            refused: None,
            exclusive: false,
            has_all: false,
            out: VecDeque::new(),
        }
    }

    fn fresh([system, promised]: [u64; 2]) -> Vec<Lasting> {
        let mut lasting = vec![Lasting { space: SYSTEM, free: Extents::new(system) }];
        if promised > 0 {
            lasting.push(Lasting { space: GUARANTEED, free: Extents::new(promised) });
        }
        lasting
    }

    /// What to do about `need`. To be asked in the order in which the messages may go.
    pub fn next(&mut self, need: &Need) -> Next {
        let least = rounded(need.fixed.saturating_add(need.segment).max(1));
        let rest = need.segment.saturating_mul(need.segments).saturating_add(need.fixed);
        let want = rounded(rest.min(need.most)).max(least);
        self.thirsty.take_if(|message| *message == need.message);
        if self.thirsty.is_none()
            && let Some((index, room)) = self.room(least, want)
        {
            let (bytes, segments) = filled(need, room);
            let lasting = &mut self.lasting[index];
            let position = lasting.free.take(bytes).expect("there is room");
            self.under_way += 1;
            let place = Place { space: lasting.space, position, bytes };
            return Next::Send { place, segments, release: false };
        }
        if let Some(sent) = self.use_granted(need, least, want) {
            return sent;
        }
        self.ask(need, least, rest)
    }

    /// The lasting space to use and how much of it, if any is to be used now.
    fn room(&self, least: u64, want: u64) -> Option<(usize, u64)> {
        let room = |lasting: &Lasting| {
            let room = lasting.free.largest().min(want);
            let crumbs = room < want / 2 && !lasting.free.is_whole();
            (room >= least && !crumbs).then_some(room)
        };
        let rooms = self.lasting.iter().enumerate();
        let mut rooms = rooms.filter_map(|(i, lasting)| Some((i, room(lasting)?)));
        let first = rooms.next()?;
        // The first that has all that is wanted, or the one that has most.
        Some(rooms.fold(first, |best, next| if next.1 > best.1 { next } else { best }))
    }

    /// Sends into a space that is used once, if one has room; gives up those that have not.
    fn use_granted(&mut self, need: &Need, least: u64, want: u64) -> Option<Next> {
        let mut i = 0;
        while let Some(once) = self.once.get_mut(i) {
            if once.bound.is_some_and(|message| message != need.message) {
                i += 1;
                continue;
            }
            let left = once.bytes - once.used;
            if left < least {
                self.out.push_back(Request::Release { space: once.space });
                self.once.remove(i);
                continue;
            }
            let (bytes, segments) = filled(need, left.min(want));
            let place = Place { space: once.space, position: once.used, bytes };
            once.used += bytes;
            once.bound = None;
            self.under_way += 1;
            let left = left - bytes;
            let more = need.segments > segments && left >= rounded(need.fixed + need.segment)
                || need.segments == segments && need.behind > 0 && left > 0;
            if !more {
                self.once.remove(i);
            }
            return Some(Next::Send { place, segments, release: !more });
        }
        None
    }

    fn ask(&mut self, need: &Need, least: u64, rest: u64) -> Next {
        if self.asked.is_some() {
            return Next::Wait;
        }
        let fits = self.lasting.iter().any(|lasting| lasting.free.len() >= least);
        if fits && (self.has_all || self.largest.is_some_and(|largest| largest < least)) {
            self.thirsty.get_or_insert(need.message);
            return Next::Wait;
        }
        if let Some(largest) = self.largest
            && largest < least
            && self.refused == Some(need.message)
        {
            return Next::Never { least, largest, private: self.private[0].max(self.private[1]) };
        }
        if self.has_all {
            // What there is cannot hold it; a buffer that was in use or is new may.
            self.give_up_exclusive();
        }
        let (ticket, all) = (self.next_ticket, self.exclusive && !self.has_all);
        self.next_ticket += 1;
        self.asked = Some(Asked { ticket, message: need.message, least, all });
        let most = rounded(rest.saturating_add(need.behind)).max(least);
        Next::Reserve(Request::Reserve { ticket, least, most, all })
    }

    /// A reservation was met.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if what came makes no sense.
    pub fn granted(&mut self, ticket: u64, spaces: impl Iterator<Item = (u32, u64)>) -> Result<()> {
        let Some(asked) = self.take_asked(ticket)? else { return Ok(()) };
        let first = (self.lasting.len(), self.once.len());
        for (space, bytes) in spaces {
            let old = self.lasting.iter().any(|lasting| lasting.space == space)
                || self.once.iter().any(|once| once.space == space)
                || space == GUARANTEED;
            if old || bytes == 0 || !bytes.is_multiple_of(GRAIN) {
                return Err(bad(format!("space {space} of {bytes} bytes was granted")));
            }
            if asked.all {
                self.lasting.push(Lasting { space, free: Extents::new(bytes) });
            } else {
                let bound = Some(asked.message);
                self.once.push(Once { space, bytes, used: 0, bound });
            }
        }
        let once = &self.once[first.1..];
        if !asked.all && (once.len() != 1 || once[0].bytes < asked.least) {
            return Err(bad(format!("{} bytes were asked for, got {once:?}", asked.least)));
        }
        self.has_all |= asked.all;
        Ok(())
    }

    /// A reservation cannot be met; `largest` bytes are all that could be had in one piece.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if nobody asked.
    pub fn refused(&mut self, ticket: u64, largest: u64) -> Result<()> {
        let Some(asked) = self.take_asked(ticket)? else { return Ok(()) };
        if largest >= asked.least {
            return Err(bad(format!("{} of {largest} bytes were refused", asked.least)));
        }
        self.largest = Some(largest);
        self.refused = Some(asked.message);
        self.has_all |= asked.all;
        Ok(())
    }

    /// What was asked for by `ticket`; nothing if it has been withdrawn.
    fn take_asked(&mut self, ticket: u64) -> Result<Option<Asked>> {
        match self.asked.take_if(|asked| asked.ticket == ticket) {
            None if ticket >= self.next_ticket => Err(bad(format!("nobody asked with {ticket}"))),
            asked => Ok(asked),
        }
    }

    /// The last note about a unit has come: its place is free.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if nothing was there.
    pub fn done(&mut self, place: Place) -> Result<()> {
        let Place { space, position, bytes } = place;
        let lasting = self.lasting.iter_mut().find(|lasting| lasting.space == space);
        // Where it was used once, or given up, there is nothing to come back.
        let given = lasting.is_none_or(|lasting| lasting.free.give(position, bytes));
        if !given || self.under_way == 0 {
            return Err(bad(format!("nothing was at {place:?}")));
        }
        self.under_way -= 1;
        Ok(())
    }

    /// A message has sent all that it will: what it asked for is not needed. Unless `others` wait
    /// to be sent, neither is what is left of the spaces that were granted.
    pub fn finish(&mut self, message: u64, others: bool) {
        self.thirsty.take_if(|thirsty| *thirsty == message);
        self.refused.take_if(|refused| *refused == message);
        if let Some(asked) = self.asked.take_if(|asked| asked.message == message) {
            self.out.push_back(Request::Withdraw { ticket: asked.ticket });
        }
        let out = &mut self.out;
        self.once.retain_mut(|once| {
            once.bound.take_if(|bound| *bound == message);
            let keep = others || once.bound.is_some();
            if !keep {
                out.push_back(Request::Release { space: once.space });
            }
            keep
        });
    }

    /// An exclusive lock was taken, or is about to be given up.
    pub fn exclusive(&mut self, on: bool) {
        self.exclusive = on;
        self.surrender();
    }

    /// Gives everything up that was granted, to be called when nothing waits to be sent: before a
    /// lock is released, and before a flush after which buffers may be detached. What is known of
    /// the target's buffers is forgotten too.
    pub fn surrender(&mut self) {
        self.give_up_exclusive();
        self.has_all = false;
        self.largest = None;
        let spaces = self.once.drain(..).map(|once| Request::Release { space: once.space });
        self.out.extend(spaces);
        let asked = self.asked.take().map(|asked| Request::Withdraw { ticket: asked.ticket });
        self.out.extend(asked);
    }

    fn give_up_exclusive(&mut self) {
        let private = self.lasting.iter().take_while(|l| l.space <= GUARANTEED).count();
        let spaces = self.lasting.drain(private..).map(|l| Request::Release { space: l.space });
        self.out.extend(spaces);
    }

    /// What else the target is to be told, in order; to be asked after any of the above.
    pub fn outgoing(&mut self) -> Option<Request<'static>> {
        self.out.pop_front()
    }

    /// The target is dead: nothing comes back, nothing is told.
    pub fn lost(&mut self) {
        *self = Credit {
            next_ticket: self.next_ticket,
            ..Credit::new(self.private[0], self.private[1])
        };
    }

    /// Units that were sent and are not done.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Whether there is something to tell.
    pub fn has_outgoing(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether nothing is asked for and nothing is to be told.
    pub fn is_quiet(&self) -> bool {
        self.asked.is_none() && self.out.is_empty()
    }

    /// The question with this ticket was never sent.
    pub fn unasked(&mut self, ticket: u64) {
        self.asked.take_if(|asked| asked.ticket == ticket);
    }

    /// The unit that should have given this space up was never sent.
    pub fn unreleased(&mut self, space: u32) {
        self.out.push_back(Request::Release { space });
    }
}

/// Bytes of a unit with as many segments as `room` has place for, at least one, and how many.
fn filled(need: &Need, room: u64) -> (u64, u64) {
    let fit = room.saturating_sub(need.fixed).checked_div(need.segment).unwrap_or(u64::MAX);
    let segments = fit.clamp(1, need.segments).min(u64::from(u32::MAX));
    (rounded((need.fixed + segments * need.segment).max(1)), segments)
}
