//! Active-target synchronisation of groups, without element types.
//!
//! ```text
//!  origin o                                     target t
//!                                               post:  o's set `posted`   += t, wake o
//!  start: until `posted` has all targets,
//!         then take them out
//!  operations on t
//!  complete: complete them;
//!            t's set `completed` += o, wake t
//!                                               wait:  until `completed` has all origins,
//!                                                      then take them out
//! ```
//! Each bit has one writer that sets it and one that clears it, in turns: t posts to o again only
//! after it has seen o complete, which o does only after it has taken t's post. So one bit each
//! way is enough, however many epochs follow each other. A wait that timed out leaves the exposure
//! open for that reason.
//!
//! **Deaths.** `start` fails with the first dead target. `wait` lets the living origins complete first.
//! But a living member may have given up because of a death that the waiting one does not wait for,
//! so both end with an error some time after they see any death in the team: `start` with no epoch open,
//! and the posts that came kept; `wait` with the exposure open, for late completions must find it.
//!
//! Both waits are by the owner of the sets, on its `ActiveLine`. Cost per member of a group: one
//! read-modify-write of a line of the other's, and a look whether it sleeps.

use super::super::block::Set;
use super::super::core::Core;
use super::Assertions;
use super::state::{GUARDED, NONE, OFFERED, POSTED, START};
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Rank, Result, Slot, reentry};
use crate::shm::bits::Bits;
use crate::shm::lock::part::{self, Parts};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How long living members can still do what is waited for once a death in the team is seen.
const PATIENCE: Duration = Duration::from_millis(300);

/// What waiting for some members found.
struct Arrival {
    /// The members that died before they did what was waited for.
    dead: Vec<Rank>,
}

impl Core {
    /// Exposes the own part to `group`.
    pub(super) fn post(
        &self,
        what: &'static str,
        group: &[Rank],
        assertions: Assertions,
        guarded: bool,
    ) -> Result<()> {
        reentry::refuse_inside(what)?;
        let group = self.check_group(what, group)?;
        let me = self.block.team.rank();
        let change = self.epochs.expose(what, || Ok(self.held(me).is_some()))?;
        if let Some(engine) = self.engine() {
            engine.expose(&group, assertions.no_check)?;
        } else if !assertions.no_check {
            // The read-modify-writes make what the part contains visible to whoever sees them.
            self.tell(&group, Set::Posted);
        }
        self.epochs.groups().posted = group;
        change.settle(if guarded { POSTED | GUARDED } else { POSTED });
        Ok(())
    }

    /// Opens access to the parts of `group`, once all have posted; returns the group in order.
    pub(super) fn start(
        &self,
        what: &'static str,
        group: &[Rank],
        assertions: Assertions,
        guarded: bool,
    ) -> Result<Arc<[Rank]>> {
        reentry::refuse_inside(what)?;
        let group = self.check_group(what, group)?;
        let holds = || part::holds_any(&*self.block);
        let change = self.epochs.open(what, &[NONE, OFFERED], START, true, holds)?;
        let me = self.block.team.rank().0;
        let posted = self.block.set(me, Set::Posted);
        if let Some(engine) = self.engine() {
            engine.start(&group, assertions.no_check)?;
        } else if !assertions.no_check {
            let arrival = self.await_all(what, &group, posted, false)?;
            if let Some(&dead) = arrival.dead.first() {
                return Err(self.death_of(dead, what)?);
            }
            take(&group, posted);
        }
        self.epochs.groups().started = group.clone();
        change.settle(if guarded { START | GUARDED } else { START });
        Ok(group)
    }

    /// Completes the operations of the access epoch and tells its targets.
    pub(super) fn complete(&self, what: &'static str, guarded: bool) -> Result<()> {
        reentry::refuse_inside(what)?;
        let from = if guarded { START | GUARDED } else { START };
        let change = self.epochs.change(what, &[from], NONE)?;
        let group = std::mem::take(&mut self.epochs.groups().started);
        let done = match self.engine() {
            Some(engine) => engine.complete(),
            None => {
                let done = self.complete_operations(None);
                self.tell(&group, Set::Completed);
                done
            }
        };
        change.settle(NONE);
        done?;
        group.iter().try_for_each(|&target| self.check_alive(target, what))
    }

    /// Waits until the origins of the exposure epoch have completed, or (`wait` false) says
    /// whether they have; the epoch is over then.
    pub(super) fn exposure_over(
        &self,
        what: &'static str,
        wait: bool,
        guarded: bool,
    ) -> Result<bool> {
        reentry::refuse_inside(what)?;
        let change = self.epochs.cover(what, guarded)?;
        let group = self.epochs.groups().posted.clone();
        if let Some(engine) = self.engine() {
            let over = engine.exposure_over(wait);
            match &over {
                Ok(false) => drop(change),
                Err(Error::TimedOut { .. }) => change.settle(POSTED),
                _ => change.settle(NONE),
            }
            return over;
        }
        let completed = self.block.set(self.block.team.rank().0, Set::Completed);
        let arrival = if wait {
            match self.await_all(what, &group, completed, true) {
                Ok(arrival) => arrival,
                Err(error) => {
                    // Late completions must find the epoch they belong to. It has no guard any
                    // more.
                    change.settle(POSTED);
                    return Err(error);
                }
            }
        } else {
            match self.look_at_all(&group, completed) {
                Some(arrival) => arrival,
                None => return Ok(false),
            }
        };
        take(&group, completed);
        self.epochs.groups().posted = Arc::default();
        change.settle(NONE);
        match arrival.dead.first() {
            Some(&dead) => Err(self.death_of(dead, what)?),
            None => Ok(true),
        }
    }

    /// A member of the team that is known to be dead.
    fn somebody_dead(&self) -> Option<Slot> {
        let (team, node) = (&self.block.team, self.block.team.node());
        if node.header().deaths.load(Ordering::Relaxed) == 0 {
            return None;
        }
        team.ranks().filter_map(|rank| team.slot_of(rank).ok()).find(|&slot| node.is_dead(slot))
    }

    fn death_of(&self, rank: Rank, during: &'static str) -> Result<Error> {
        Ok(self.block.team.node().died(self.block.team.slot_of(rank)?, during))
    }

    /// Whether all of `group` are in a set of this process's, but for those who are known to be
    /// dead. Asks the kernel about deaths now and then.
    fn look_at_all(&self, group: &[Rank], set: Bits<'_>) -> Option<Arrival> {
        if all_in(group, set) {
            return Some(Arrival { dead: Vec::new() });
        }
        let node = self.block.env();
        let ask = self.epochs.looks_often();
        let mut dead = Vec::new();
        for &member in group.iter().filter(|member| !set.contains(member.0)) {
            let slot = self.block.slot_of(member.0)?;
            if !(node.is_dead(slot) || ask && node.probe(slot)) {
                return None;
            }
            dead.push(member);
        }
        dead.retain(|member| !set.contains(member.0));
        Some(Arrival { dead })
    }

    /// Puts this member into one of the sets of each of `group`.
    fn tell(&self, group: &[Rank], which: Set) {
        for member in group {
            self.block.set(member.0, which).insert(self.block.me());
            self.block.active(member.0).active.notify();
        }
    }

    /// Waits until all of `group` are in a set of this process's, but for those who died. `all`:
    /// waits for the others even if somebody died.
    fn await_all(
        &self,
        during: &'static str,
        group: &[Rank],
        set: Bits<'_>,
        all: bool,
    ) -> Result<Arrival> {
        let team = &self.block.team;
        let node = team.node();
        let dead = RefCell::new(Vec::new());
        let missing = || group.iter().filter(|member| !set.contains(member.0));
        let poll = || {
            let dead = dead.borrow();
            let arrived = dead.is_empty() && all_in(group, set);
            let rest = !dead.is_empty() && (!all || missing().all(|member| dead.contains(member)));
            (arrived || rest).then_some(())
        };
        let mut patience: Option<Deadline> = None;
        let look = || {
            // A living one may have given up because of a death that we do not wait for.
            if let Some(slot) = self.somebody_dead()
                && patience.get_or_insert_with(|| Deadline::after(PATIENCE)).passed()
            {
                return Err(node.died(slot, during));
            }
            for &member in missing() {
                if !dead.borrow().contains(&member) && node.probe(team.slot_of(member)?) {
                    // What it did last is there by now.
                    if !set.contains(member.0) {
                        dead.borrow_mut().push(member);
                        // Not to sleep over it.
                        self.block.active(team.rank().0).active.notify();
                    }
                }
            }
            Ok(())
        };
        let cell = &self.block.active(team.rank().0).active;
        let waited = cell.wait(node.pace(), team.deadline(), during, poll, look);
        waited.map_err(|error| match error {
            Error::TimedOut { during, waited, .. } => {
                let ranks = missing().filter_map(|member| self.block.slot_of(member.0));
                let missing = ranks.map(|slot| Rank(slot.0.into())).collect();
                Error::TimedOut { during, waited, missing }
            }
            other => other,
        })?;
        let mut dead = dead.into_inner();
        dead.retain(|member| !set.contains(member.0));
        Ok(Arrival { dead })
    }
}

/// The words of a set that members in order lie in, with their bits.
fn by_word(group: &[Rank]) -> impl Iterator<Item = (usize, u64)> {
    group.chunk_by(|a, b| a.0 / 64 == b.0 / 64).map(|members| {
        let bits = members.iter().fold(0, |bits, member| bits | 1u64 << (member.0 % 64));
        (members[0].0 as usize / 64, bits)
    })
}

fn all_in(group: &[Rank], set: Bits<'_>) -> bool {
    by_word(group).all(|(word, bits)| set.has(word, bits))
}

fn take(group: &[Rank], set: Bits<'_>) {
    by_word(group).for_each(|(word, bits)| set.take(word, bits));
}
