//! Post, start, complete and wait (paper 001 §4.2.2).
//!
//! `post` sends a word to each origin, `start` nothing. Operations wait for their target's word.
//! The last one to a target says that the access epoch is over there; where there was none, a
//! message of its own does. A rank's word is one bit here, since the next can come only after
//! its wait, and that after this rank's complete.

use super::Trouble;
use super::host::{Host, Sent};
use super::message::{Message, Riders};
use super::passive::STILL_LOCKED;
use super::ranks::Ranks;
use super::shared::Shared;
use super::table::Closing;
use super::window::Window;
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
}

/// The exposure epoch of this rank.
#[derive(Debug)]
pub(super) struct Exposure {
    open: bool,
    /// To be told that it is open.
    telling: Ranks,
    /// Not yet finished with it.
    waiting: Ranks,
    died: Option<u32>,
}

impl Exposure {
    pub fn new(size: u32) -> Exposure {
        let none = Ranks::new(size);
        Exposure { open: false, telling: none.clone(), waiting: none, died: None }
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
        (exposure.open, exposure.died) = (true, died);
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
            if shared.send(host, self.id, rank, &Message::Post) == Sent::Full {
                self.again = true;
                return;
            }
            self.exposure.telling.remove(rank);
        }
    }

    /// A target's word has come; false if it makes no sense.
    pub fn posted<H: Host>(&mut self, shared: &mut Shared, host: &mut H, from: u32) -> bool {
        let new = self.posts.insert(from);
        if let (true, Some(id)) = (self.access.is_some(), self.table.target(&shared.pools, from)) {
            self.work(shared, host, id);
        }
        new
    }

    /// An origin is finished; false if it makes no sense.
    pub fn completed(&mut self, from: u32) -> bool {
        self.exposure.waiting.remove(from)
    }

    pub fn bury_exposure(&mut self, rank: u32) {
        self.posts.remove(rank);
        self.exposure.telling.remove(rank);
        if self.exposure.waiting.remove(rank) {
            self.exposure.died = Some(rank);
        }
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
        match self.exposure.died.take() {
            Some(rank) => Poll::Ready(Err(Trouble::Dead(rank))),
            None => Poll::Ready(Ok(())),
        }
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
        self.access = Some(Access { group, no_check, died: None });
        (self.operations, self.bytes) = (0, 0);
        Ok(())
    }

    /// `complete`, asked until it is done.
    pub fn complete<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        let Some(access) = &mut self.access else {
            return Poll::Ready(Err(Trouble::Misuse("no access epoch is open: start first")));
        };
        access.died = access.died.or(access.group.iter().find(|rank| self.dead.contains(*rank)));
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

    /// A target object was closed with the end of the access epoch. The target's word went when
    /// the end was sent: from then on it may be the next one.
    pub fn left(&mut self, rank: u32) {
        if let Some(access) = &mut self.access {
            access.group.remove(rank);
        }
    }
}
