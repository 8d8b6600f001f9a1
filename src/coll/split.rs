//! Splitting a team.

use super::block::Block;
use super::team::{OUT_OF_STEP, Team};
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot};

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
            slots.and_then(|slots| create_block(self, &slots)).map(Some)
        } else {
            Ok(None)
        };
        let mine = created.as_ref().ok().copied().flatten();
        let created = self.agree("Team::split", created.map(|_| ()));
        if let (Err(_), Some(at)) = (&created, mine) {
            let _ = self.node().free_commons(at);
        }
        created?;
        let mut offsets = vec![0u64; self.size() as usize];
        self.allgather(&[mine.map_or(0, |at| at.0)], &mut offsets)?;
        let joined = match leader {
            None => Ok(None),
            Some(leader) => {
                let rank = members.iter().position(|m| m.1 == self.rank().0).unwrap_or(0);
                join_block(self, Offset(offsets[leader as usize]), rank as u32).map(Some)
            }
        };
        self.agree("Team::split", joined)
    }
}

/// Allocates and fills a block for `slots`.
pub(super) fn create_block(team: &Team, slots: &[Slot]) -> Result<Offset> {
    let node = team.node();
    let size = slots.len() as u32;
    let at = node.alloc_commons(Block::bytes(size))?;
    let made = Block::view(node, at, size).and_then(|b| b.create(slots.iter().copied()));
    if let Err(error) = made {
        let _ = node.free_commons(at);
        return Err(error);
    }
    Ok(at)
}

/// Becomes member `rank` of the team whose block is at `at`.
pub(super) fn join_block(team: &Team, at: Offset, rank: u32) -> Result<Team> {
    let block = Block::open(team.node(), at)?;
    if block.member(rank)? != team.node().slot() {
        return Err(Error::Incompatible {
            what: "a team's block",
            why: format!("its rank {rank} is not this process"),
        });
    }
    if let Err(error) = block.reserve_area(rank) {
        // Members that think this one is among them learn that it is not.
        let mark = OUT_OF_STEP | (u32::from(team.node().slot().0) + 1);
        let broken = &block.header().broken;
        let _ = broken.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Relaxed);
        block.leave(rank);
        return Err(error);
    }
    let identity = block.size == team.node().size()
        && (0..block.size).all(|r| block.member(r).is_ok_and(|s| u32::from(s.0) == r));
    Ok(Team::from_block(block, rank, identity, true))
}
