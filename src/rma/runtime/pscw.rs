//! Post, start, complete and wait (paper 001 §4.2.2).
//!
//! ```text
//!   target t                              origin o
//!   post: open, number += 1 -- Post -->   posts has t    (start sends nothing, waits for nothing)
//!                                         operations on t go out
//!   done with o  <-- last operation, or Control --       complete: the end rides on it
//!
//!                                         complete, with another target dead, and no post of t:
//!                                           operations on t are dropped, its next post is forgone
//!   post:                   -- Post -->   is refused
//!   done with o, failed    <-- GaveUp --
//!                                         complete, given up at its deadline, and no post of t:
//!                                           operations on t are dropped; the next start can
//!                                           have the post. The others' ends still go out
//!   open -- done with all, or they are dead --> wait is over: Ok, or the first failure
//! ```
//! Operations wait for their target's word. Each post gets one answer: the end of an access epoch,
//! GaveUp with its number, or the origin's death; the next post comes only after it. So one bit is
//! enough for a word here, and counting is for posts that are forgone: as many as starts failed
//! before them. The end travels with the operations and cannot overtake them; GaveUp answers a post on which
//! nothing was sent. See `rma::epoch` for what both paths have in common.

use super::Trouble;
use super::host::{Host, Sent};
use super::message::{Message, Riders};
use super::passive::STILL_LOCKED;
use super::ranks::Ranks;
use super::shared::Shared;
use super::table::Closing;
use super::window::Window;
use std::collections::HashMap;
use std::task::Poll;

/// An access epoch.
#[derive(Debug)]
pub(super) struct Access {
    /// Those that have not been told of the end.
    group: Ranks,
    /// The targets' words are not waited for.
    pub no_check: bool,
    /// A member of the group that is dead.
    died: Option<u32>,
    /// The program does not wait for the end any more.
    ending: bool,
}

impl Access {
    /// A member of the group that is dead.
    pub fn first_dead(&self, dead: &Ranks) -> Option<u32> {
        self.died.or(self.group.iter().find(|rank| dead.contains(*rank)))
    }
}

/// What this rank, as an origin, knows of others' exposure epochs.
#[derive(Debug)]
pub(super) struct Posts {
    /// Those that are open to this rank.
    open: Ranks,
    /// By rank the number of the last post, once there was one.
    numbers: Vec<u8>,
    /// Posts to come that were forgone.
    forgone: HashMap<u32, u32>,
    /// To be told that their post is refused.
    refused: Ranks,
    /// The death because of which posts were last forgone.
    cause: u32,
}

impl Posts {
    pub fn new(size: u32) -> Posts {
        let none = Ranks::new(size);
        Posts {
            open: none.clone(),
            numbers: Vec::new(),
            forgone: HashMap::new(),
            refused: none,
            cause: 0,
        }
    }

    pub fn contains(&self, rank: u32) -> bool {
        self.open.contains(rank)
    }

    /// The post has been answered.
    pub fn remove(&mut self, rank: u32) {
        self.open.remove(rank);
    }

    fn bury(&mut self, rank: u32) {
        self.open.remove(rank);
        self.refused.remove(rank);
        self.forgone.remove(&rank);
    }

    /// Takes a post in; false if it makes no sense.
    fn insert(&mut self, from: u32, number: u8, size: u32) -> bool {
        if self.open.contains(from) || self.refused.contains(from) {
            return false;
        }
        self.numbers.resize(size as usize, 0);
        self.numbers[from as usize] = number;
        match self.forgone.get_mut(&from) {
            Some(left) => {
                *left -= 1;
                if *left == 0 {
                    self.forgone.remove(&from);
                }
                self.refused.insert(from)
            }
            None => self.open.insert(from),
        }
    }
}

/// The exposure epoch of this rank.
#[derive(Debug)]
pub(super) struct Exposure {
    open: bool,
    /// Of the last one, modulo 256.
    number: u8,
    /// To be told that it is open.
    telling: Ranks,
    /// Not yet finished with it.
    waiting: Ranks,
    /// Why it fails once nobody is waited for.
    failed: Option<Trouble>,
}

impl Exposure {
    pub fn new(size: u32) -> Exposure {
        let none = Ranks::new(size);
        Exposure { open: false, number: 0, telling: none.clone(), waiting: none, failed: None }
    }
}

impl Window {
    fn group(&self, ranks: &[u32]) -> Result<Ranks, Trouble> {
        let mut group = Ranks::new(self.size);
        for rank in ranks {
            if !group.insert(*rank) {
                return Err(Trouble::Misuse("a group names a rank twice, or one not of the team"));
            }
        }
        Ok(group)
    }

    /// Opens the exposure epoch. The words go out from here on.
    pub fn post<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        ranks: &[u32],
        no_check: bool,
    ) -> Result<(), Trouble> {
        if self.exposure.open {
            return Err(Trouble::Misuse("an exposure epoch is open: wait first"));
        }
        let group = self.group(ranks)?;
        let died = ranks.iter().copied().find(|rank| self.dead.contains(*rank));
        let exposure = &mut self.exposure;
        (exposure.open, exposure.failed) = (true, died.map(Trouble::Dead));
        exposure.number = exposure.number.wrapping_add(1);
        if !no_check {
            exposure.telling = group.clone();
        }
        exposure.waiting = group;
        for rank in self.dead.iter() {
            exposure.telling.remove(rank);
            exposure.waiting.remove(rank);
        }
        self.advance_exposure(shared, host);
        Ok(())
    }

    /// Tells the origins that wait for it.
    pub fn advance_exposure<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        while let Some(rank) = self.exposure.telling.first(0) {
            let message = Message::Post { number: self.exposure.number };
            if shared.send(host, self.id, rank, &message) == Sent::Full {
                self.again = true;
                return;
            }
            self.exposure.telling.remove(rank);
        }
    }

    /// A target's word has come; false if it makes no sense.
    pub fn posted<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        number: u8,
    ) -> bool {
        let new = !self.dead.contains(from) && self.posts.insert(from, number, self.size);
        self.advance_posts(shared, host);
        if let (true, Some(id)) = (self.access.is_some(), self.table.target(&shared.pools, from)) {
            self.work(shared, host, id);
        }
        new
    }

    /// Tells those whose post is refused.
    pub fn advance_posts<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        while let Some(rank) = self.posts.refused.first(0) {
            let number = self.posts.numbers.get(rank as usize).copied().unwrap_or(0);
            let message = Message::GaveUp { number, died: self.posts.cause };
            if shared.send(host, self.id, rank, &message) == Sent::Full {
                self.again = true;
                return;
            }
            self.posts.refused.remove(rank);
        }
    }

    /// An origin has given up; false if it makes no sense.
    pub fn gave_up(&mut self, from: u32, number: u8, died: u32) -> bool {
        let exposure = &mut self.exposure;
        let known = exposure.open && exposure.number == number && died < self.size;
        let known = known && exposure.waiting.remove(from);
        if known {
            exposure.failed.get_or_insert(Trouble::Dead(died));
        }
        known
    }

    /// An origin is finished; false if it makes no sense.
    pub fn completed(&mut self, from: u32) -> bool {
        self.exposure.waiting.remove(from)
    }

    pub fn bury_exposure(&mut self, rank: u32) {
        self.posts.bury(rank);
        self.exposure.telling.remove(rank);
        if self.exposure.waiting.remove(rank) {
            self.exposure.failed.get_or_insert(Trouble::Dead(rank));
        }
    }

    /// Whether an epoch of a group waits for a word of `rank`.
    pub fn misses_word(&self, shared: &Shared, rank: u32) -> bool {
        let told = self.table.target(&shared.pools, rank);
        let told = told.is_some_and(|id| shared.pools.targets[id].told);
        self.exposure.open && self.exposure.waiting.contains(rank)
            || self.access.as_ref().is_some_and(|access| {
                let waits = access.group.contains(rank) && !access.no_check;
                waits && !told && !self.posts.contains(rank)
            })
    }

    /// Origins that the exposure epoch waits for.
    pub fn awaited(&self) -> Vec<u32> {
        self.exposure.waiting.iter().collect()
    }

    /// `wait`, or `test` if asked once.
    pub fn wait<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        self.advance_exposure(shared, host);
        if !self.exposure.open {
            return Poll::Ready(Err(Trouble::Misuse("no exposure epoch is open: post first")));
        }
        if !self.exposure.waiting.is_empty() || !self.exposure.telling.is_empty() {
            return Poll::Pending;
        }
        self.exposure.open = false;
        Poll::Ready(self.exposure.failed.take().map_or(Ok(()), Err))
    }

    /// Opens an access epoch.
    pub fn start(&mut self, ranks: &[u32], no_check: bool) -> Result<(), Trouble> {
        if self.access.is_some() {
            return Err(Trouble::Misuse("an access epoch is open: complete it first"));
        }
        if self.all.is_some() || self.locks > 0 {
            return Err(Trouble::Misuse(STILL_LOCKED));
        }
        let group = self.group(ranks)?;
        self.access = Some(Access { group, no_check, died: None, ending: false });
        (self.operations, self.bytes) = (0, 0);
        Ok(())
    }

    /// `complete`, asked until it is done.
    pub fn complete<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        if self.access.is_none() {
            return Poll::Ready(Err(Trouble::Misuse("no access epoch is open: start first")));
        }
        self.give_up_for_dead(shared, host);
        let trouble = self.close_targets(shared, host, |_| Closing::Complete);
        if let (Some(trouble), None) = (trouble, self.trouble) {
            self.trouble = Some(trouble);
        }
        let Some(access) = &mut self.access else { return Poll::Pending };
        let mut next = access.group.first(0);
        while let Some(rank) = next {
            next = access.group.first(rank + 1);
            if self.table.target(&shared.pools, rank).is_some() {
                continue;
            }
            let posted = access.no_check || self.posts.contains(rank);
            if !self.dead.contains(rank) {
                if !posted {
                    continue;
                }
                let riders = Riders { complete: true, ..Riders::default() };
                let message = Message::Control { seq: 0, riders };
                if shared.send(host, self.id, rank, &message) == Sent::Full {
                    self.again = true;
                    return Poll::Pending;
                }
            }
            self.posts.remove(rank);
            access.group.remove(rank);
        }
        if !access.group.is_empty() {
            return Poll::Pending;
        }
        let died = access.died.map(Trouble::Dead);
        self.access = None;
        self.outcome(died)
    }

    /// With a member of the group dead, the access epoch cannot end well: gives up towards the
    /// targets that have not posted.
    pub fn give_up_for_dead<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        let Some(access) = &mut self.access else { return };
        access.died = access.first_dead(&self.dead);
        if access.died.is_some() {
            self.give_up_late(shared, host);
        }
    }

    /// Gives up towards the targets that have not posted, and returns them. What is left of the epoch
    /// ends by itself.
    pub fn give_up<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> Vec<u32> {
        let late = self.give_up_late(shared, host);
        if let Some(access) = &mut self.access {
            access.ending = true;
        }
        late
    }

    /// The same, for the sake of a dead target if there is one; what is left is waited for.
    fn give_up_late<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> Vec<u32> {
        let Some(access) = &self.access else { return Vec::new() };
        let died = access.died;
        let late = |rank: &u32| {
            let object = self.table.target(&shared.pools, *rank);
            let told = object.is_some_and(|id| shared.pools.targets[id].told);
            !(told || access.no_check || self.posts.contains(*rank) || self.dead.contains(*rank))
        };
        let late: Vec<u32> = access.group.iter().filter(late).collect();
        const WHY: &str = "its access epoch was given up before the target had posted";
        for &rank in &late {
            self.discard(shared, host, rank, died.map_or(Trouble::Misuse(WHY), Trouble::Dead));
            if let Some(died) = died {
                self.posts.cause = died;
                *self.posts.forgone.entry(rank).or_default() += 1;
            }
        }
        if let Some(access) = &mut self.access {
            late.iter().for_each(|rank| _ = access.group.remove(*rank));
        }
        late
    }

    /// Whether an access epoch is ending by itself; till then no other can begin.
    pub fn is_ending(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.ending)
    }

    /// Goes on with that.
    pub fn advance_ending<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        if self.is_ending() {
            // What goes wrong in it was for a call that has returned.
            let _ = self.complete(shared, host);
        }
    }

    /// A target object was closed with the end of the access epoch. The target's word went when
    /// the end was sent: from then on it may be the next one.
    pub fn left(&mut self, rank: u32) {
        if let Some(access) = &mut self.access {
            access.group.remove(rank);
        }
    }
}
