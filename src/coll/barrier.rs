//! The synchronising step of everything, and the barrier, which is nothing else. Two algorithms:
//!
//! *Dissemination*: in round r a member writes its step into its own flag r and waits until flag r of
//! the members 4^r, 2 x 4^r and 3 x 4^r places behind it says as much. ceil(log4 n) rounds: the lines of
//! three partners come at the same time, so a round takes little longer than with one, and there are half as
//! many (16 members: 2 rounds instead of 4). *Count*: one fetch_add; the last to arrive releases everybody.
//! One waking is enough, where dissemination needs the cores to be handed round log4 n times.
//!
//! Both compare the calls: flags carry the call's word beside the number, and the counter the sum
//! of all words above the number of arrivals, so that the last to arrive sees whether they were
//! all its own.

use super::block::{MemberLines, ROUNDS};
use super::core::{Core, Place};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Request, Result};
use crate::coll::select::Algorithm;

/// A barrier has one form whatever the algorithm: members that disagree about that find out.
const BARRIER: Sign = Sign::new(What::Barrier, Algorithm::Count, 0, 0, 0);

/// Not the same as a barrier: members in one and the other would wait for each other for ever.
const FINISH: Sign = Sign::new(What::Finish, Algorithm::Count, 0, 0, 0);

impl Team {
    /// Returns once every member has called it. What members wrote before is visible to all
    /// afterwards.
    ///
    /// Cost: ceil(log4 n) times the transfer of up to three cache lines at once (see the module); no system
    /// call unless someone sleeps.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if a member dies before it arrives, [`crate::Error::TimedOut`],
    /// [`crate::Error::Mismatch`] if another member is in another call.
    pub fn barrier(&self) -> Result<()> {
        if self.member.span.is_some() {
            return self.barrier_of_nodes();
        }
        self.collective(What::Barrier.during(), |core, deadline| {
            core.sync_inline(BARRIER, deadline).map(|_| ())
        })
    }

    #[inline(never)]
    fn barrier_of_nodes(&self) -> Result<()> {
        self.run(BARRIER, async |call| call.sync().await)
    }

    /// The barrier, begun now: the request is done once every member has begun it.
    ///
    /// # Errors
    /// As for [`Team::barrier`], partly from the request.
    pub fn ibarrier(&self) -> Result<Request<()>> {
        self.begin(BARRIER, |course| async move { course.sync().await })
    }

    /// The last barrier of all, after which members leave.
    pub(crate) fn farewell(&self) -> Result<()> {
        self.run(FINISH, async |call| call.sync().await)
    }
}

/// A round of the dissemination barrier: which it is, and how far apart the nearest partners are in it.
#[derive(Clone, Copy)]
struct Round {
    number: usize,
    apart: u32,
}

/// By how many times a round widens what a member knows of.
const RADIX: u32 = 4;

#[inline]
fn rounds(size: u32) -> impl Iterator<Item = Round> {
    let round = |number: usize| Round { number, apart: 1 << (2 * number) };
    (0..ROUNDS).map(round).take_while(move |round| round.apart < size)
}

/// For whom `rank` of `size` waits in a round.
#[inline]
fn partners(rank: u32, size: u32, round: Round) -> impl Iterator<Item = u32> {
    let behind = (1..RADIX).map(move |times| times * round.apart);
    behind.take_while(move |&behind| behind < size).map(move |behind| {
        // Behind the first is the last.
        if behind <= rank { rank - behind } else { rank + size - behind }
    })
}

impl MemberLines {
    /// Tells the partners of a round that this member is there.
    #[inline]
    fn raise(&self, round: Round, step: u64) {
        self.flags[round.number].0.store(step, Ordering::Release);
        self.wait.notify();
    }
}

/// What has come of a wait, if it is over.
type Come = Option<Result<()>>;

impl Core {
    /// One barrier as the next phase of a call; returns the phase.
    pub fn sync(&self, sign: Sign, deadline: Deadline) -> Result<u32> {
        self.sync_inline(sign, &deadline)
    }

    /// As [`Core::sync`], for a call that is nothing else. Each function on the way from one step to the next
    /// saves registers, and what it saves is stored behind the flag: with more stores than the processor has
    /// room for, it waits for the flag's line.
    #[inline(always)]
    fn sync_inline(&self, sign: Sign, deadline: &Deadline) -> Result<u32> {
        let own = self.block.lines(self.rank);
        let phase = self.next_phase(own, sign);
        if self.block.size > 1 {
            if self.disseminates {
                self.disseminate(own, phase, sign, deadline)?;
            } else {
                self.count(sign, sign.what.during(), *deadline)?;
            }
        }
        Ok(phase)
    }

    #[inline(always)]
    fn disseminate(
        &self,
        own: &MemberLines,
        phase: u32,
        sign: Sign,
        deadline: &Deadline,
    ) -> Result<()> {
        let step = self.step_of(phase, sign);
        for round in self.rounds() {
            own.raise(round, step);
            for partner in self.partners(round) {
                let flag = &self.block.lines(partner).flags[round.number].0;
                // Who has begun the next phase cannot end it without this member.
                if !self.comes_at_once::<true>(flag, step) {
                    self.await_flag((partner, round, step), sign, deadline)?;
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn await_flag(
        &self,
        (partner, round, step): (u32, Round, u64),
        sign: Sign,
        deadline: &Deadline,
    ) -> Result<()> {
        let during = sign.what.during();
        let cell = &self.block.lines(partner).wait;
        let mut come = Ok(());
        let reached = || self.reached(partner, round, step).map(|reached| come = reached);
        self.block.node.wait(cell, *deadline, during, reached, || self.check(during))?;
        come
    }

    /// Rounds of the dissemination barrier.
    #[inline]
    fn rounds(&self) -> impl Iterator<Item = Round> + use<> {
        rounds(self.block.size)
    }

    /// For whom this member waits in a round.
    #[inline]
    fn partners(&self, round: Round) -> impl Iterator<Item = u32> + use<> {
        partners(self.rank, self.block.size, round)
    }

    /// Whether a partner of a round is there.
    #[inline]
    fn reached(&self, partner: u32, round: Round, step: u64) -> Come {
        let seen = self.block.lines(partner).flags[round.number].0.load(Ordering::Acquire);
        if seen == step {
            return Some(Ok(()));
        }
        self.reached_otherwise(partner, seen, step)
    }

    #[cold]
    fn reached_otherwise(&self, partner: u32, seen: u64, step: u64) -> Come {
        let (phase, want) = (seen as u32, step as u32);
        if phase == want {
            return Some(Err(self.mismatch(partner)));
        }
        // The partner may have begun the next phase, but cannot end it without this member.
        (phase == want.wrapping_add(1)).then_some(Ok(()))
    }

    fn count(&self, sign: Sign, during: &'static str, deadline: Deadline) -> Result<()> {
        let number = self.arrive(sign)?;
        let released = || self.released(number);
        match released() {
            Some(come) => come,
            None => {
                let cell = &self.block.header().wait;
                let check = || self.check(during);
                self.block.node.wait(cell, deadline, during, released, check)?
            }
        }
    }

    /// Arrives at the count barrier; returns its number. The last to arrive releases all.
    ///
    /// `arrived` only grows by what members add. After each barrier it is what `tally` says, if
    /// all added the same word.
    fn arrive(&self, sign: Sign) -> Result<u64> {
        let header = self.block.header();
        let number = self.counted.load(Ordering::Relaxed) + 1;
        self.counted.store(number, Ordering::Relaxed);
        let one = self.step_of(1, sign);
        let tally = self.tally.load(Ordering::Relaxed);
        let tally = tally.wrapping_add(one.wrapping_mul(self.block.size.into()));
        self.tally.store(tally, Ordering::Relaxed);
        let arrived = header.arrived.fetch_add(one, Ordering::AcqRel).wrapping_add(one);
        if arrived as u32 != tally as u32 {
            return Ok(number);
        }
        if arrived != tally {
            return Err(match self.other_history() {
                Some(other) => self.mismatch(other),
                None => {
                    // Whoever made another call has ended: all that is known is that one did.
                    self.give_up();
                    match self.intact(sign.what.during()) {
                        Err(error) => error,
                        Ok(()) => self.mismatch(self.rank),
                    }
                }
            });
        }
        header.released.store(number, Ordering::Release);
        header.wait.notify();
        Ok(number)
    }

    #[inline]
    fn released(&self, number: u64) -> Come {
        let released = self.block.header().released.load(Ordering::Acquire);
        (released >= number).then_some(Ok(()))
    }
}

impl Course<'_> {
    /// One barrier as the next phase; returns the phase.
    pub async fn sync(&self) -> Result<u32> {
        let core = self.core();
        if let Some(deadline) = self.blocking() {
            return core.sync(self.sign, deadline);
        }
        let own = core.block.lines(core.rank);
        let phase = core.next_phase(own, self.sign);
        if core.block.size > 1 && core.disseminates {
            let step = core.step_of(phase, self.sign);
            for round in core.rounds() {
                own.raise(round, step);
                for partner in core.partners(round) {
                    let place = Place::Lines(partner);
                    self.until(place, || core.reached(partner, round, step)).await?;
                }
            }
        } else if core.block.size > 1 {
            let number = core.arrive(self.sign)?;
            self.until(Place::Header, || core.released(number)).await?;
        }
        Ok(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is through with its rounds has heard of all.
    #[test]
    fn everybody_hears_of_everybody() {
        for size in (1..=70).chain([255, 256, 257, 300]) {
            let mut heard: Vec<Vec<bool>> =
                (0..size).map(|rank| (0..size).map(|other| other == rank).collect()).collect();
            for round in rounds(size) {
                let before = heard.clone();
                for (rank, heard) in (0..size).zip(&mut heard) {
                    for partner in partners(rank, size, round) {
                        let theirs = &before[partner as usize];
                        heard.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine |= theirs);
                    }
                }
            }
            assert!(heard.iter().flatten().all(|&heard| heard), "{size} members");
        }
    }

    #[test]
    fn rounds_are_as_few_as_can_be() {
        let many = |size| rounds(size).count();
        assert_eq!([1, 2, 4, 5, 16, 17, 64, 65].map(many), [0, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(many(1 << 16), ROUNDS);
    }
}
