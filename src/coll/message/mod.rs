//! Tagged messages between members of a team: what `p2p` does, with ranks and element types.
//!
//! ```text
//!  rank  -> slot (the team's table)        T -> bytes, size of its elements
//!  team  -> context (told from every other team's)
//! ```
//! Every call may be made by any thread at any time. Messages of one member to another in one team
//! are received in the order in which they were sent, by those that take them; a call that waits
//! makes progress for all.
//!
//! **Deaths.** A receive that names its source fails once that is gone and all that it had sent was
//! received. One from any source fails when the death of a member becomes known that no such
//! receive has reported before in this process, and when nobody else is left; it may be posted
//! again. Either way its buffer is the caller's again.

mod blocking;
mod endpoints;
mod matched;
mod name;
mod persistent;
mod request;
mod scope;

pub use endpoints::Funneled;
pub use matched::MatchedMessage;
pub use name::{Any, Source, Status, Tag};
pub use persistent::{Persistent, PersistentReceive, PersistentSend, finish_all, start_all};
pub use request::{
    Cancelled, Pending, ReceiveBuffer, ReceiveRequest, SendBuffer, SendRequest, test_all, test_any,
    wait_all, wait_any,
};
pub use scope::{Exchange, Exchanged};

use super::Team;
use super::team::Member;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result, Slot, reentry};
use crate::layout::{Datum, Kind};
use crate::p2p::{Arrived, Buffer, Endpoint, Letter, Pattern, Place, Record, element_code};
use std::cell::Cell;
use std::sync::Arc;

/// Members asked about in one check of a receive from any source.
const ASKED: u32 = 64;

/// The code of elements of this type.
pub(super) const fn code<T: Datum>() -> u8 {
    match T::ELEMENT {
        Some(kind) => kind_code(kind),
        None => element_code(size_of::<T>()),
    }
}

const fn kind_code(kind: Kind) -> u8 {
    element_code(kind.size())
}

/// What data of a layout are made of.
pub(super) fn layout_code(layout: &crate::layout::Layout) -> u8 {
    layout.kind().map_or(0, kind_code)
}

/// A record about bytes that may be anything.
///
/// # Safety
/// The bytes stay, and nobody touches them, until the record is done or given up.
pub(super) unsafe fn bytes_record(at: *mut u8, len: usize) -> Record {
    // SAFETY: the caller's.
    Record::new(Buffer::new(unsafe { Place::flat(at, len) }, 0, 1))
}

/// How many deaths of members the last check of a wait for any of them has found that nobody was told
/// of yet. Whoever returns from the wait says by [`Told::pass`] what came of it: only an error that the
/// program gets is one that it has been told.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Told(Cell<u32>);

impl Told {
    pub(in crate::coll) fn pass<T>(&self, team: &Team, outcome: Result<T>) -> Result<T> {
        if let (Err(Error::RankDied { .. }), died @ 1..) = (&outcome, self.0.take()) {
            team.member.deaths_reported.fetch_max(died, Ordering::Relaxed);
        }
        outcome
    }
}

impl Member {
    /// What messages are sent and received by.
    #[inline]
    pub fn endpoint(&self) -> Result<&Arc<Endpoint>> {
        match self.endpoint.get() {
            Some(endpoint) => Ok(endpoint),
            None => self.open_endpoint(),
        }
    }

    #[cold]
    fn open_endpoint(&self) -> Result<&Arc<Endpoint>> {
        let endpoint = Arc::new(Endpoint::of(&self.block.node)?);
        Ok(self.endpoint.get_or_init(|| endpoint))
    }

    /// The check of a wait for any member.
    ///
    /// The error is reported once, to whoever gets it: one that is dropped because a message has
    /// come meanwhile must not count. See [`Told`].
    pub(in crate::coll) fn check_any(&self, during: &'static str, told: &Told) -> Result<()> {
        let node = &self.block.node;
        let size = self.members();
        let others = |rank: &u32| *rank != self.me();
        let slot = |rank: u32| self.slot(rank).ok();
        let first = self.asked.fetch_add(ASKED, Ordering::Relaxed);
        for i in 0..size.min(ASKED) {
            let rank = first.wrapping_add(i) % size;
            if others(&rank)
                && let Some(slot) = slot(rank)
            {
                node.probe(slot);
            }
        }
        let gone = |slot: &Slot| node.is_dead(*slot);
        let members = (0..size).filter(others).filter_map(slot);
        let gone: Vec<Slot> = members.filter(gone).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let endpoint = self.endpoint()?;
        for slot in &gone {
            // What they had sent comes first.
            if !endpoint.mourn(*slot)? {
                return Ok(());
            }
        }
        let alone = gone.len() as u32 + 1 == size;
        let error = |slot: Slot| node.died(slot, during);
        let died = gone.iter().filter(|slot| node.has_died(**slot)).count() as u32;
        if died > self.deaths_reported.load(Ordering::Relaxed) || alone {
            told.0.set(died);
            let last = gone.iter().rev().find(|slot| node.has_died(**slot)).or(gone.last());
            return last.map_or(Ok(()), |slot| Err(error(*slot)));
        }
        Ok(())
    }
}

impl Team {
    /// What a message to `to` is sent as.
    #[inline]
    fn letter(&self, to: Rank, tag: u32, element: u8) -> Result<Letter> {
        Ok(self.letter_to(self.slot_of(to)?, tag, element))
    }

    #[inline(always)]
    fn letter_to(&self, to: Slot, tag: u32, element: u8) -> Letter {
        Letter { to, context: self.member.context, rank: self.member.rank, tag, element }
    }

    /// What a receive takes.
    #[inline]
    fn pattern(&self, from: Source, tag: Tag) -> Result<Pattern> {
        let source = match from {
            Source::Rank(rank) => Some(self.slot_of(rank)?),
            Source::Any => None,
        };
        let tag = match tag {
            Tag::Exactly(tag) => Some(tag),
            Tag::Any => None,
        };
        Ok(Pattern { context: self.member.context, source, tag })
    }

    /// The check of a receive's wait, for what the pattern does not name.
    fn check_for(&self, pattern: &Pattern, during: &'static str, told: &Told) -> Result<()> {
        match pattern.source {
            Some(_) => Ok(()),
            None => self.member.check_any(during, told),
        }
    }

    #[inline]
    fn messages(&self, during: &'static str) -> Result<&Arc<Endpoint>> {
        reentry::refuse_inside(during)?;
        let endpoint = self.member.endpoint()?;
        endpoint.admit(during)?;
        Ok(endpoint)
    }

    /// By what messages go at once, and to whom, if nothing is in the way; then somebody must look closer.
    #[inline(always)]
    fn at_once(&self, peer: u32) -> Option<(&Endpoint, Slot)> {
        let member = &*self.member;
        let endpoint = member.endpoint.get().filter(|endpoint| endpoint.is_admitted());
        let slot = self.slot_at_once(Rank(peer));
        if reentry::is_inside() { None } else { Some((&**endpoint?, slot?)) }
    }

    /// What the program is told of a message.
    #[inline]
    fn status(&self, arrived: Arrived, unit: usize) -> Result<Status> {
        if arrived.rank >= self.size() {
            return Err(Error::Incompatible {
                what: "a message",
                why: format!("it says that rank {} of {} sent it", arrived.rank, self.size()),
            });
        }
        Ok(Status::of(arrived, unit))
    }

    /// Has messages of all teams taken from now on.
    pub(crate) fn open_messages(&self) -> Result<()> {
        self.member.endpoint().map(drop)
    }

    /// What this process has done with tagged messages, over all teams.
    pub fn message_counters(&self) -> Result<crate::p2p::MessageCounters> {
        Ok(self.member.endpoint()?.counters())
    }
}
