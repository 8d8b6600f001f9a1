//! Splitting a team.

use super::block::Block;
use super::core::OUT_OF_STEP;
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
        let leader = members.first().map(|m| m.1);
        let created = if leader == Some(self.rank().0) {
            let slots: Result<Vec<Slot>> =
                members.iter().map(|m| self.slot_of(crate::base::Rank(m.1))).collect();
            slots.and_then(|slots| Block::create(self.node(), &slots)).map(Some)
        } else {
            Ok(None)
        };
        // Dropped with an error, the block goes: nobody else has joined it.
        let mine = self.agree("Team::split", created)?;
        let mut ids = vec![0u64; self.size() as usize];
        self.allgather(&[mine.as_ref().map_or(0, |holding| holding.id().raw())], &mut ids)?;
        let joined = match (leader, mine) {
            (None, _) => Ok(None),
            (_, Some(holding)) => become_member(self, holding).map(Some),
            (Some(leader), None) => {
                let rank = members.iter().position(|m| m.1 == self.rank().0).unwrap_or(0);
                self.join_split(Id::from_raw(ids[leader as usize]), rank as u32).map(Some)
            }
        };
        self.agree("Team::split", joined)
    }

    fn join_split(&self, id: Id, rank: u32) -> Result<Team> {
        match Holding::join(self.node(), id, Some(rank))? {
            Some(holding) => become_member(self, holding),
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
pub(super) fn become_member(team: &Team, holding: Holding) -> Result<Team> {
    let (rank, roll) = (holding.rank(), holding.roll());
    let block = Block::open(team.node(), holding.at(), roll.size())?;
    if let Err(error) = block.reserve_area(rank) {
        // Members that think this one is among them learn that it is not.
        let mark = OUT_OF_STEP | (u32::from(team.node().slot().0) + 1);
        let broken = &block.header().broken;
        let _ = broken.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Relaxed);
        return Err(error);
    }
    let identity = block.size == team.node().size()
        && (0..block.size).all(|r| block.member(r).is_ok_and(|s| u32::from(s.0) == r));
    Team::from_block(block, rank, identity, Some(holding))
}
