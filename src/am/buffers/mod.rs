//! The room at a target in which units are staged until they have run.
//!
//! ```text
//!  space 0    this origin's system buffer: always there, no words needed
//!  space 1    what `am_user_buf_<rank>` promises this origin: the same, out of attached buffers
//!  others     stretches of attached buffers, granted to an origin that asked
//!
//!             reserve               enter, leave             release, last unit, death
//!    waiting ---------> granted -------------------> closing -------------------------> free
//!       |        ^                                                                        |
//!       |        +------------------- the next in line -----------------------------------+
//!       +--> refused: no buffer is large enough
//! ```
//! Paper 001 §6.4.2, §7.1.1 and §7.2.1. Origins wait for room in the order in which they asked.
//! Nobody is passed over: from a buffer that somebody who waits could use, those behind get
//! nothing. Nobody holds room and needs more of it to give it back (a unit is complete in itself),
//! so whatever fits into a buffer gets room there sooner or later. An origin waits with one request
//! at a time, which makes the order one of turns. It gets no more than half of a buffer unless it
//! must: the other half is for its next request, or for somebody else.
//!
//! Origins choose the places in their spaces, from what they know to be free
//! ([`super::credit`]); here every place is checked against those that are taken.
//!
//! What a hint promises must always be there, but nobody must wait for it in vain either: it lies in
//! attached buffers as long as nobody waits for those, else in memory that stands in for it.

mod places;

pub(crate) use places::Where;

use super::extent::Extents;
use places::Private;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Places begin and end at multiples of so many bytes: no element type wants more.
pub(crate) const GRAIN: u64 = 64;
/// The system buffer.
pub(crate) const SYSTEM: u32 = 0;
/// What a hint promises.
pub(crate) const GUARANTEED: u32 = 1;
/// Most stretches that are granted at a time, the largest: their list is one note.
const MOST_STRETCHES: usize = 256;
/// First number of a space that is granted.
const FIRST_GRANTED: u32 = 2;

/// A size as it is accounted.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX / GRAIN * GRAIN)
}

/// Names an attached buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufferId(pub u64);

/// What an origin did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no such space, or said that it was done with it.
    NoSpace = 1,
    /// The place does not lie in the space, or not in what is free of it.
    Taken = 2,
    /// It is waiting already.
    Waiting = 3,
}

/// What to tell an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has these spaces now: numbers and sizes.
    Granted { origin: u32, ticket: u64, spaces: Vec<(u32, u64)> },
    /// There is no buffer that could hold what it wants.
    Refused { origin: u32, ticket: u64, largest: u64, attached: u64 },
}

#[derive(Debug)]
struct Buffer {
    free: Extents,
    /// To be detached.
    closing: bool,
}

/// What was granted.
#[derive(Debug)]
struct Space {
    ticket: u64,
    buffer: BufferId,
    offset: u64,
    /// Where no unit is staged.
    free: Extents,
    /// No unit may follow.
    closing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    origin: u32,
    ticket: u64,
    least: u64,
    most: u64,
}

/// One target's buffers for one window. See the [module](self).
#[derive(Debug)]
pub(crate) struct Buffers {
    system: u64,
    promised: u64,
    attached: u64,
    buffers: BTreeMap<BufferId, Buffer>,
    /// By origin and number.
    spaces: BTreeMap<(u32, u32), Space>,
    privates: HashMap<u32, Private>,
    waiting: VecDeque<Claim>,
    answers: VecDeque<Answer>,
    next_space: u32,
}

impl Buffers {
    /// Without attached buffers. Each origin has a system buffer of `system` bytes and a promise
    /// of `promised` bytes.
    pub fn new(system: u64, promised: u64) -> Buffers {
        Buffers {
            system: rounded(system),
            promised: rounded(promised),
            attached: 0,
            buffers: BTreeMap::new(),
            spaces: BTreeMap::new(),
            privates: HashMap::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            next_space: FIRST_GRANTED,
        }
    }

    /// Makes the system buffers as large as `system` bytes, before there is anything in them.
    pub fn furnish(&mut self, system: u64) {
        debug_assert!(self.privates.is_empty(), "somebody uses what there was");
        self.system = rounded(system);
    }

    /// Adds a buffer; what does not fill a [`GRAIN`] at its end stays unused.
    pub fn attach(&mut self, bytes: u64) -> BufferId {
        let id = BufferId(self.attached);
        self.attached += 1;
        let free = Extents::new(bytes / GRAIN * GRAIN);
        self.buffers.insert(id, Buffer { free, closing: false });
        self.grant();
        id
    }

    /// Lends nothing more out of a buffer. Those who wait for it alone are refused.
    pub fn detach(&mut self, id: BufferId) {
        if let Some(buffer) = self.buffers.get_mut(&id) {
            buffer.closing = true;
        }
        self.leave_carved(|buffer, _| buffer == id);
        let largest = self.largest();
        let (stay, go): (VecDeque<Claim>, VecDeque<Claim>) =
            self.waiting.drain(..).partition(|claim| claim.least <= largest);
        self.waiting = stay;
        for claim in go {
            self.refuse(claim.origin, claim.ticket);
        }
        self.grant();
    }

    /// Whether nothing of a buffer is lent out.
    pub fn is_free(&self, id: BufferId) -> bool {
        self.buffers.get(&id).is_none_or(|buffer| buffer.free.is_whole())
    }

    /// Whether a buffer is to be detached.
    pub fn is_detaching(&self) -> bool {
        self.buffers.values().any(|buffer| buffer.closing)
    }

    /// Forgets a buffer that is to be detached, once nothing of it is lent out.
    ///
    /// # Errors
    /// The origins that have some of it still.
    pub fn detached(&mut self, id: BufferId) -> Result<(), Vec<u32>> {
        if self.is_free(id) {
            self.buffers.remove(&id);
            return Ok(());
        }
        let lent = self.spaces.iter().filter(|(_, space)| space.buffer == id);
        let in_it = |own: &Private| own.carved.as_ref().is_some_and(|carved| carved.buffer == id);
        let carved = self.privates.iter().filter(|(_, own)| in_it(own));
        let mut holders: Vec<u32> = lent.map(|((origin, _), _)| *origin).collect();
        holders.extend(carved.map(|(origin, _)| *origin));
        holders.sort_unstable();
        holders.dedup();
        Err(holders)
    }

    /// Most bytes that anybody can ever get in one piece.
    fn largest(&self) -> u64 {
        let open = self.buffers.values().filter(|buffer| !buffer.closing);
        open.map(|buffer| buffer.free.len()).max().unwrap_or(0)
    }

    fn refuse(&mut self, origin: u32, ticket: u64) {
        let open = self.buffers.values().filter(|buffer| !buffer.closing);
        let attached = open.map(|buffer| buffer.free.len()).sum();
        let largest = self.largest();
        self.answers.push_back(Answer::Refused { origin, ticket, largest, attached });
    }

    /// An origin wants `least` to `most` bytes in one piece, or with `all` whatever is free now.
    ///
    /// # Errors
    /// [`Refusal::Waiting`].
    pub fn reserve(
        &mut self,
        origin: u32,
        ticket: u64,
        least: u64,
        most: u64,
        all: bool,
    ) -> Result<(), Refusal> {
        if self.waiting.iter().any(|claim| claim.origin == origin) {
            return Err(Refusal::Waiting);
        }
        let least = rounded(least.max(1));
        if least > self.largest() {
            self.refuse(origin, ticket);
        } else if all {
            let spaces =
                if self.waiting.is_empty() { self.grant_all(origin, ticket) } else { vec![] };
            self.answers.push_back(Answer::Granted { origin, ticket, spaces });
        } else {
            let most = rounded(most.max(least));
            self.waiting.push_back(Claim { origin, ticket, least, most });
            self.grant();
        }
        Ok(())
    }

    /// An origin does not want what it asked for by `ticket`, whether it waits for it still or has
    /// it and has not heard.
    pub fn withdraw(&mut self, origin: u32, ticket: u64) {
        self.waiting.retain(|claim| (claim.origin, claim.ticket) != (origin, ticket));
        self.close(origin, |_, space| space.ticket == ticket);
    }

    /// An origin sends nothing more into a space.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`].
    pub fn release(&mut self, origin: u32, space: u32) -> Result<(), Refusal> {
        match self.spaces.get(&(origin, space)) {
            Some(held) if !held.closing => {
                self.close(origin, |number, _| number == space);
                Ok(())
            }
            _ => Err(Refusal::NoSpace),
        }
    }

    /// An origin is dead: it wants nothing, and gives its spaces back as its units leave them.
    pub fn died(&mut self, origin: u32) {
        self.waiting.retain(|claim| claim.origin != origin);
        self.close(origin, |_, _| true);
    }

    /// What to tell origins since the last time.
    pub fn answers(&mut self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.drain(..)
    }

    /// Closes those of an origin's spaces that `which` picks, and frees what is empty of them.
    fn close(&mut self, origin: u32, which: impl Fn(u32, &Space) -> bool) {
        let own = self.spaces.range_mut((origin, 0)..=(origin, u32::MAX));
        let mut empty = Vec::new();
        for ((_, number), space) in own.filter(|((_, number), space)| which(*number, space)) {
            space.closing = true;
            if space.free.is_whole() {
                empty.push(*number);
            }
        }
        for number in empty {
            let space = self.spaces.remove(&(origin, number)).expect("it was there");
            let buffer = self.buffers.get_mut(&space.buffer).expect("nothing lent out goes");
            buffer.free.give(space.offset, space.free.len());
        }
        self.grant();
    }

    /// Gives room to those who wait, as far as there is some.
    fn grant(&mut self) {
        // Smallest want among those who stay waiting: a buffer as large is theirs.
        let mut first_right = u64::MAX;
        let mut i = 0;
        while let Some(&claim) = self.waiting.get(i) {
            let Claim { origin, ticket, least, most } = claim;
            let usable = self.buffers.iter_mut().filter(|(_, buffer)| {
                let turn = buffer.free.len() < first_right;
                turn && !buffer.closing && buffer.free.largest() >= least
            });
            let Some((&id, buffer)) = usable.max_by_key(|(_, buffer)| buffer.free.largest()) else {
                first_right = first_right.min(least);
                i += 1;
                continue;
            };
            let fair = (buffer.free.len() / 2 / GRAIN * GRAIN).max(least);
            let bytes = most.min(fair).min(buffer.free.largest());
            let offset = buffer.free.take(bytes).expect("the longest stretch is as long");
            self.waiting.remove(i);
            let space = self.lend(origin, ticket, id, offset, bytes);
            let spaces = vec![(space, bytes)];
            self.answers.push_back(Answer::Granted { origin, ticket, spaces });
        }
        if first_right < u64::MAX {
            self.leave_carved(|_, len| len >= first_right);
        }
    }

    /// Lends everything that is free.
    fn grant_all(&mut self, origin: u32, ticket: u64) -> Vec<(u32, u64)> {
        let open = self.buffers.iter_mut().filter(|(_, buffer)| !buffer.closing);
        let mut free: Vec<(BufferId, u64, u64)> = open
            .flat_map(|(id, buffer)| buffer.free.take_all().map(|(at, bytes)| (*id, at, bytes)))
            .collect();
        if free.len() > MOST_STRETCHES {
            free.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
            for (id, at, bytes) in free.drain(MOST_STRETCHES..) {
                // What was taken above is taken, so it can be given.
                let _ = self.buffers.get_mut(&id).is_some_and(|buffer| buffer.free.give(at, bytes));
            }
        }
        free.into_iter()
            .map(|(id, at, bytes)| (self.lend(origin, ticket, id, at, bytes), bytes))
            .collect()
    }

    fn lend(&mut self, origin: u32, ticket: u64, buffer: BufferId, offset: u64, bytes: u64) -> u32 {
        let mut number = self.next_space.max(FIRST_GRANTED);
        while self.spaces.contains_key(&(origin, number)) {
            number = number.wrapping_add(1).max(FIRST_GRANTED);
        }
        self.next_space = number.wrapping_add(1);
        let free = Extents::new(bytes);
        self.spaces
            .insert((origin, number), Space { ticket, buffer, offset, free, closing: false });
        number
    }
}

#[cfg(test)]
mod tests;
