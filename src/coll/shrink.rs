//! The survivors' team.
//!
//! Agreement through shared memory: the header of a team's block has one word for the offset of
//! its survivors' team. Whoever comes first writes down who is alive and stores the offset with
//! one compare-and-swap; everybody else takes what is there. Each member marks that it joined;
//! when all have, the team stands. If one of them dies before it joined, everybody sees that (the
//! mark is missing and stays missing) and goes on to the survivors' team of the survivors' team.

use super::block::{Block, GONE, JOINED};
use super::split::{create_block, join_block};
use super::team::Team;
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot, reentry};

const DURING: &str = "Team::shrink";

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
        let mut parent = self.member.block.clone();
        // Kept until the end: a block that its members have left may be freed, and slower members
        // still have to find the next team through it.
        let mut abandoned = Vec::new();
        loop {
            let child = Block::open(self.node(), self.child_of(&parent)?)?;
            let me = self.node().slot();
            let rank = (0..child.size).find(|&r| child.member(r).is_ok_and(|slot| slot == me));
            let Some(rank) = rank else {
                return Err(Error::Misuse {
                    what: DURING,
                    why: "the other survivors took this rank for dead or gone".into(),
                });
            };
            let team = join_block(self, child.at, rank)?;
            match await_members(&team, deadline) {
                Ok(()) => return Ok(team),
                Err(error) if error.is_death() => {
                    parent = child;
                    abandoned.push(team);
                }
                Err(error) => {
                    // This member has joined, and the others must not wait for it.
                    team.member.give_up();
                    return Err(error);
                }
            }
        }
    }

    fn child_of(&self, parent: &Block) -> Result<Offset> {
        let word = &parent.header().child;
        let there = word.load(Ordering::Acquire);
        if there != 0 {
            return Ok(Offset(there));
        }
        let node = self.node();
        let mut alive: Vec<Slot> = Vec::new();
        for rank in 0..parent.size {
            let slot = parent.member(rank)?;
            if !node.probe(slot) {
                alive.push(slot);
            }
        }
        let at = match create_block(self, &alive) {
            Ok(at) => at,
            // Another survivor may have had more luck.
            Err(error) => match word.load(Ordering::Acquire) {
                0 => return Err(error),
                there => return Ok(Offset(there)),
            },
        };
        match word.compare_exchange(0, at.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(at),
            Err(winner) => {
                let _ = node.free_commons(at);
                Ok(Offset(winner))
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
        let row = block.row(rank);
        let marked = || matches!(row.presence.load(Ordering::Acquire), JOINED | GONE);
        block.header().wait.wait(
            node.pace(),
            deadline,
            DURING,
            || marked().then_some(()),
            || if node.probe(slot) && !marked() { Err(node.died(slot, DURING)) } else { Ok(()) },
        )?;
    }
    Ok(())
}
