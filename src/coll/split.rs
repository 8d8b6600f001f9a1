//! Splitting a team.

use super::block::Block;
use super::core::OUT_OF_STEP;
use super::span::{Listed, Members, Span};
use super::team::Team;
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot};
use crate::shm::heap::Id;
use crate::shm::holding::Holding;

impl Team {
    /// Splits the team: members with the same `color` form a new team, ordered by `key`, then by
    /// rank. `None` takes part in the call and joins no team.
    ///
    /// Collective over the team. Costs one allgather, one block per new team in the node's
    /// commons, and two synchronising steps.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Team>> {
        let encoded = color.map_or(u64::MAX, u64::from);
        // Transient, while the call lasts: what the colours of all are.
        let mut all = vec![[0u64; 2]; self.size() as usize];
        self.allgather(&[[encoded, key.into()]], &mut all)?;
        let mut members: Vec<(u64, u32)> = (0u32..)
            .zip(&all)
            .filter(|(_, entry)| entry[0] == encoded && color.is_some())
            .map(|(rank, entry)| (entry[1], rank))
            .collect();
        members.sort_unstable();
        if self.member.span.is_some() {
            return self.split_span(color.is_some(), &members);
        }
        let leader = members.first().map(|m| m.1);
        let created = if leader == Some(self.rank().0) {
            let slots: Result<Vec<Slot>> =
                members.iter().map(|m| self.slot_of(crate::base::Rank(m.1))).collect();
            slots.and_then(|slots| Block::create(self.node(), &slots, 0)).map(Some)
        } else {
            Ok(None)
        };
        // Dropped with an error, the block goes: nobody else has joined it.
        let mine = self.agree("Team::split", created)?;
        let mut ids = vec![0u64; self.size() as usize];
        self.allgather(&[mine.as_ref().map_or(0, |holding| holding.id().raw())], &mut ids)?;
        let joined = match (leader, mine) {
            (None, _) => Ok(None),
            (_, Some(holding)) => become_member(self, holding, None).map(Some),
            (Some(leader), None) => {
                let rank = members.iter().position(|m| m.1 == self.rank().0).unwrap_or(0);
                self.join_split(Id::from_raw(ids[leader as usize]), rank as u32).map(Some)
            }
        };
        self.agree("Team::split", joined)
    }

    /// The same where the team is on several nodes: the members of the new team on each make a
    /// block there, the first of all of them gives its context.
    fn split_span(&self, takes_part: bool, members: &[(u64, u32)]) -> Result<Option<Team>> {
        const DURING: &str = "Team::split";
        let node = self.node();
        let mut slots = Vec::new();
        let mut job_ranks = Vec::new();
        for (_, rank) in members {
            let slot = self.slot_of(crate::base::Rank(*rank))?;
            job_ranks.push(node.rank_of(slot).0);
            slots.push((slot, *rank));
        }
        let near = |slot: &(Slot, u32)| node.is_local(slot.0);
        let locals: Vec<Slot> = slots.iter().filter(|s| near(s)).map(|s| s.0).collect();
        let leader = slots.iter().find(|s| near(s)).map(|s| s.1);
        let parts = Listed::parts_of(node, &job_ranks);
        let (size, local_size) = (members.len() as u32, locals.len() as u32);
        let tail = if parts > 1 { Listed::bytes(parts, size) } else { 0 };
        let list = |at| Listed::view(node, Block::tail(at, local_size), parts, size);
        let created = if takes_part && leader == Some(self.rank().0) {
            Block::create(node, &locals, tail).and_then(|holding| {
                if parts > 1 {
                    list(holding.at())?.write(&job_ranks);
                }
                Ok(Some(holding))
            })
        } else {
            Ok(None)
        };
        let mine = self.agree(DURING, created)?;
        let shown = match &mine {
            Some(holding) => {
                let block = Block::open(node, holding.at(), local_size)?;
                let context = block.header().context.load(Ordering::Relaxed);
                [holding.id().raw(), context.into()]
            }
            None => [0; 2],
        };
        let mut all = vec![[0u64; 2]; self.size() as usize];
        self.allgather(&[shown], &mut all)?;
        let own = members.iter().position(|m| m.1 == self.rank().0).filter(|_| takes_part);
        let joined = match (own, leader, members.first()) {
            (Some(own), Some(leader), Some(first)) => {
                let holding = match mine {
                    Some(holding) => Ok(holding),
                    None => {
                        let id = Id::from_raw(all[leader as usize][0]);
                        let local = locals.iter().position(|slot| *slot == node.slot());
                        self.join_block(id, local.unwrap_or(0) as u32)
                    }
                };
                let context = all[first.1 as usize][1] as u32;
                holding.and_then(|holding| {
                    let span = match parts {
                        1 => None,
                        _ => Some(Span::new(
                            Members::Listed(list(holding.at())?),
                            own as u32,
                            context,
                        )),
                    };
                    become_member(self, holding, span).map(Some)
                })
            }
            _ => Ok(None),
        };
        self.agree(DURING, joined)
    }

    fn join_split(&self, id: Id, rank: u32) -> Result<Team> {
        become_member(self, self.join_block(id, rank)?, None)
    }

    fn join_block(&self, id: Id, rank: u32) -> Result<Holding> {
        match Holding::join(self.node(), id, Some(rank))? {
            Some(holding) => Ok(holding),
            None => {
                // Whoever made it is dead, or has given it up because of somebody who is.
                self.member.check("Team::split")?;
                Err(Error::Incompatible {
                    what: "a team's block",
                    why: "the team was given up before this rank could join it".into(),
                })
            }
        }
    }
}

/// Becomes a member of the team whose block is held.
pub(super) fn become_member(team: &Team, holding: Holding, span: Option<Span>) -> Result<Team> {
    let (rank, roll) = (holding.rank(), holding.roll());
    let block = Block::open(team.node(), holding.at(), roll.size())?;
    if let Err(error) = block.reserve_area(rank) {
        // Members that think this one is among them learn that it is not.
        let mark = OUT_OF_STEP | (u32::from(team.node().slot().0) + 1);
        let broken = &block.header().broken;
        let _ = broken.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Relaxed);
        return Err(error);
    }
    let identity = span.is_none()
        && block.size == team.node().size()
        && (0..block.size).all(|r| block.member(r).is_ok_and(|s| u32::from(s.0) == r));
    let made = Team::from_block(block, rank, identity, Some(holding), span)?;
    // All of its members are in that team, and so have the endpoint.
    if let Some(endpoint) = team.member.endpoint.get().filter(|endpoint| endpoint.is_leased()) {
        let _ = made.member.endpoint.set(endpoint.clone());
    }
    Ok(made)
}
