//! The survivors' team.
//!
//! Agreement through shared memory: the header of a team's block has one word for the id of the
//! block of its survivors' team. Whoever comes first writes down who is alive and stores the id with
//! one compare-and-swap; everybody else joins what is there. Each member marks that it is ready;
//! when all are, the team stands. If one of them dies before, everybody sees that (the mark is
//! missing and stays missing) and goes on to the survivors' team of the survivors' team. If all who
//! had joined die, their block goes, and whoever comes then puts another one in its place.
//!
//! Where members are on several nodes those agree first (`survivors`); the word then leads to the
//! block of the new team's members on this node.

use super::block::Block;
use super::split::become_member;
use super::team::Team;
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot, reentry};
use crate::shm::heap::Id;
use crate::shm::holding::Holding;
use crate::shm::roll::{GONE, READY};

pub(super) const DURING: &str = "Team::shrink";

impl Team {
    /// Makes a team of the members that are still alive, ordered as before. Every survivor must
    /// call it; it ends when all of them have. The old team stays broken, and cannot be shrunk
    /// again: after another death, shrink the team that came of it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a living member does not call it within the team's deadline;
    /// [`Error::OutOfMemory`]; [`Error::Misuse`] at the second call.
    pub fn shrink(&self) -> Result<Team> {
        reentry::refuse_inside(DURING)?;
        if self.member.shrunk.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse {
                what: DURING,
                why: "this team has been shrunk before; shrink the team that came of it".into(),
            });
        }
        let deadline = self.deadline();
        if let Some(span) = &self.member.span {
            return self.shrink_span(span, deadline);
        }
        let mut parent = self.member.block.clone();
        // Kept until the end: a block that its members have left may be freed, and slower members
        // still have to find the next team through it.
        let mut abandoned = Vec::new();
        loop {
            let team = become_member(
                self,
                self.child_of(&parent, || self.block_of_living(&parent))?,
                None,
            )?;
            match await_members(&team, deadline) {
                Ok(()) => return Ok(team),
                Err(error) if error.is_death() => {
                    parent = team.member.block.clone();
                    abandoned.push(team);
                }
                Err(error) => {
                    // This member has joined, and the others must not wait for it.
                    team.member.give_up();
                    // Nor make a new team if they find that this one has gone.
                    let blocks = abandoned.iter().map(|team| &team.member.block);
                    for block in blocks.chain([&self.member.block]) {
                        block.header().given_up.store(1, Ordering::Release);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A block of those members of `parent` that are alive.
    fn block_of_living(&self, parent: &Block) -> Result<Holding> {
        let node = self.node();
        let mut alive: Vec<Slot> = Vec::new();
        for rank in 0..parent.size {
            let slot = parent.member(rank)?;
            if !node.probe(slot) {
                alive.push(slot);
            }
        }
        Block::create(node, &alive, 0)
    }

    /// Joins the survivors' team of `parent`, or `make`s it.
    pub(super) fn child_of(
        &self,
        parent: &Block,
        make: impl Fn() -> Result<Holding>,
    ) -> Result<Holding> {
        let word = &parent.header().child;
        let node = self.node();
        loop {
            let there = word.load(Ordering::Acquire);
            if there != 0 {
                if let Some(holding) = Holding::join(node, Id::from_raw(there), None)? {
                    return Ok(holding);
                }
                if parent.header().given_up.load(Ordering::Acquire) != 0 {
                    return Err(Error::Misuse {
                        what: DURING,
                        why: "another survivor has waited for its time limit and given it up; \
                              call it in all survivors, or with a longer limit"
                            .into(),
                    });
                }
            }
            let made = match make() {
                Ok(made) => made,
                // Another survivor may have had more luck.
                Err(_) if word.load(Ordering::Acquire) != there => continue,
                Err(error) => return Err(error),
            };
            let id = made.id().raw();
            if word.compare_exchange(there, id, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(made);
            }
        }
    }
}

/// Waits until every member has marked itself; `RankDied` if one can no longer do so.
fn await_members(team: &Team, deadline: crate::base::Deadline) -> Result<()> {
    let block = &team.member.block;
    let node = team.node();
    for rank in 0..block.size {
        let slot = block.member(rank)?;
        let marked = || matches!(block.roll.presence(rank), READY | GONE);
        node.wait(
            &block.header().wait,
            deadline,
            DURING,
            || marked().then_some(()),
            || if node.probe(slot) && !marked() { Err(node.died(slot, DURING)) } else { Ok(()) },
        )?;
    }
    Ok(())
}
