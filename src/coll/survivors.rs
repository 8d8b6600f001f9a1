//! Who goes on after deaths, agreed between nodes.
//!
//! ```text
//!   every survivor -- I have come --> the first member that it takes for alive (the one who decides)
//!   who decides, once all that it takes for alive have come:
//!                  -- the members and the context of the new team --> every one of them
//!   who has been told: makes or joins the new team's part on its node, and is through
//! ```
//! If the one who decides dies, the next one takes its place and asks those that have not come to it
//! yet. One of them may have been told before: it answers with what it was told, from wherever it
//! waits in the new team. So all who live end with the same members and context, though some of
//! those may have died: the new team's first call finds them missing. A team that is on one node
//! only in the end answers nobody; who has not heard of it finds it in the node's memory.
//!
//! Messages go in a context that no team has, with the broken team's for a tag, and name ranks of
//! the job. Cost: two messages for each survivor, and memory for a number of each while it lasts.

use super::aside::{About, hear, say};
use super::block::Block;
use super::core::Core;
use super::shrink::DURING;
use super::span::{Listed, Members, Span};
use super::split::become_member;
use super::team::Team;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Rank, Result, Slot};
use crate::p2p::Endpoint;
use crate::shm::node::Node;
use std::cell::RefCell;
use std::sync::Arc;

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    /// The new team's context.
    context: u32,
    /// Its members, numbered as in the job, in the order of the old team.
    members: Vec<u32>,
}

impl Decision {
    fn encode(&self) -> Vec<u8> {
        let words = [self.context].into_iter().chain(self.members.iter().copied());
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// From a message: none unless it names members, each once, all of the old team.
    /// Most bytes of one about this team.
    fn most(team: &Members) -> usize {
        4 * (1 + team.size() as usize)
    }

    fn decode(bytes: &[u8], team: &Members) -> Option<Decision> {
        let (words, _) = bytes.as_chunks();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (&context, members) = words.split_first()?;
        let mut old = (0..team.size()).filter_map(|rank| team.job_rank(rank)).map(|rank| rank.0);
        // In the old team's order, so none comes twice.
        let known = members.iter().all(|member| old.any(|other| other == *member));
        let whole = bytes.len() == 4 * words.len() && !members.is_empty();
        (known && whole).then(|| Decision { context, members: members.to_vec() })
    }
}

/// Says something about the team with a context.
fn tell(endpoint: &Arc<Endpoint>, node: &Node, to: Slot, team: u32, bytes: Vec<u8>) -> Result<()> {
    let rank = node.rank_of(node.slot()).0;
    match say(endpoint, to, About::Survivors, (team, rank), bytes) {
        // It need not be told any more.
        Err(error) if error.is_death() => Ok(()),
        said => said,
    }
}

/// A survivor on its way to the decision.
struct Coming<'s> {
    span: &'s Span,
    node: &'s Arc<Node>,
    endpoint: &'s Arc<Endpoint>,
    deadline: Deadline,
    /// Who has come, by rank.
    come: Vec<bool>,
    /// Deaths known when the living were last counted.
    mark: Option<u32>,
    /// Of whom this member has asked who goes on, or whom it has told that it decides.
    asked: Vec<bool>,
}

impl Coming<'_> {
    fn slot(&self, rank: u32) -> Result<Slot> {
        self.span.slot(self.node, rank)
    }

    fn lives(&self, rank: u32) -> bool {
        rank == self.span.rank || self.slot(rank).is_ok_and(|slot| !self.node.is_dead(slot))
    }

    /// Who decides, as far as is known here.
    fn first(&self) -> u32 {
        (0..self.span.members.size()).find(|&rank| self.lives(rank)).unwrap_or(self.span.rank)
    }

    fn ask(&mut self, rank: u32) -> Result<()> {
        if std::mem::replace(&mut self.asked[rank as usize], true) {
            return Ok(());
        }
        tell(self.endpoint, self.node, self.slot(rank)?, self.span.team_context(), Vec::new())
    }

    /// Takes what has come and does what follows.
    fn step(&mut self) -> Result<Option<Decision>> {
        let mut changed = false;
        let context = self.span.team_context();
        let most = Decision::most(&self.span.members);
        while let Some((from, bytes)) =
            hear(self.endpoint, About::Survivors, context, most, self.deadline, DURING)?
        {
            if let Some(decision) = Decision::decode(&bytes, &self.span.members) {
                return Ok(Some(decision));
            }
            let members = &self.span.members;
            let rank = (0..members.size()).find(|&rank| members.job_rank(rank) == Some(Rank(from)));
            if let Some(rank) = rank {
                self.come[rank as usize] = true;
                changed = true;
            }
        }
        let mark = self.node.death_mark();
        if !changed && self.mark == Some(mark) {
            return Ok(None);
        }
        self.mark = Some(mark);
        let first = self.first();
        if first != self.span.rank {
            return self.ask(first).map(|()| None);
        }
        let living: Vec<u32> =
            (0..self.span.members.size()).filter(|&rank| self.lives(rank)).collect();
        let missing = living.iter().copied().filter(|&rank| !self.come[rank as usize]);
        let missing: Vec<u32> = missing.collect();
        if !missing.is_empty() {
            // Those who wait for a dead one, or are through already, answer.
            missing.into_iter().try_for_each(|rank| self.ask(rank))?;
            return Ok(None);
        }
        let job_rank = |rank: &u32| self.span.members.job_rank(*rank).map(|rank| rank.0);
        let members: Vec<u32> = living.iter().filter_map(job_rank).collect();
        let decision = Decision { context: Block::new_context(self.node)?, members };
        for &rank in living.iter().filter(|&&rank| rank != self.span.rank) {
            tell(self.endpoint, self.node, self.slot(rank)?, context, decision.encode())?;
        }
        Ok(Some(decision))
    }

    /// Whom it waits for.
    fn missing(&self) -> Vec<Rank> {
        let first = self.first();
        let awaited = |rank: &u32| {
            let waits = first == self.span.rank && !self.come[*rank as usize];
            self.lives(*rank) && (waits || *rank == first && first != self.span.rank)
        };
        let all = (0..self.span.members.size()).filter(awaited);
        all.filter_map(|rank| self.span.members.job_rank(rank)).collect()
    }
}

impl Team {
    /// [`Team::shrink`] of a team on several nodes.
    pub(super) fn shrink_span(&self, span: &Span, deadline: Deadline) -> Result<Team> {
        let Some(decision) = self.decide(span, deadline)? else {
            let gone = || {
                Err(Error::Misuse {
                    what: DURING,
                    why: "the other survivors have left the team that they made; call it in all \
                      survivors before any of them goes on"
                        .into(),
                })
            };
            return become_member(self, self.child_of(&self.member.block, gone)?, None);
        };
        let node = self.node();
        let placement = node.placement();
        let slot = |rank: &u32| placement.slot_of(Rank(*rank));
        let locals = decision.members.iter().filter_map(slot).filter(|slot| node.is_local(*slot));
        let locals: Vec<Slot> = locals.collect();
        let me = node.rank_of(node.slot()).0;
        let Some(own) = decision.members.iter().position(|&rank| rank == me) else {
            return Err(Error::Misuse {
                what: DURING,
                why: "the other survivors took this rank for dead and went on without it; end it"
                    .into(),
            });
        };
        let parts = Listed::parts_of(node, &decision.members);
        let size = decision.members.len() as u32;
        let tail = if parts > 1 { Listed::bytes(parts, size) } else { 0 };
        let list = |at| Listed::view(node, Block::tail(at, locals.len() as u32), parts, size);
        let make = || {
            let made = Block::create(node, &locals, tail)?;
            if parts > 1 {
                list(made.at())?.write(&decision.members);
            }
            Ok(made)
        };
        let holding = self.child_of(&self.member.block, make)?;
        let new = match parts {
            1 => None,
            _ => {
                let members = Members::Listed(list(holding.at())?);
                let heir = Some(span.team_context());
                Some(Span::new(members, own as u32, decision.context).heir_of(heir))
            }
        };
        become_member(self, holding, new)
    }

    /// What is decided; nothing where the survivors are on this node, and have their team.
    fn decide(&self, span: &Span, deadline: Deadline) -> Result<Option<Decision>> {
        let node = self.node();
        let size = span.members.size();
        let mut come = vec![false; size as usize];
        come[span.rank as usize] = true;
        let coming = RefCell::new(Coming {
            span,
            node,
            endpoint: span.endpoint(node)?,
            deadline,
            come,
            mark: None,
            asked: vec![false; size as usize],
        });
        let child = &self.member.block.header().child;
        let found = || {
            let coming = coming.borrow();
            let near = |rank: u32| coming.slot(rank).is_ok_and(|slot| node.is_local(slot));
            child.load(Ordering::Acquire) != 0
                && (0..size).all(|rank| near(rank) || !coming.lives(rank))
        };
        let find = || match coming.borrow_mut().step() {
            Ok(Some(decision)) => Some(Ok(Some(decision))),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        let find = || find().or_else(|| found().then_some(Ok(None)));
        let check = || {
            let slots = (0..size).filter_map(|rank| span.slot(node, rank).ok());
            // Records who is gone; a death is no error here.
            let _ = node.check(slots.filter(|slot| !node.is_dead(*slot)), DURING);
            Ok(())
        };
        let decided = span.endpoint(node)?.await_any(deadline, DURING, find, check);
        match decided {
            Ok(decided) => decided,
            Err(Error::TimedOut { during, waited, .. }) => {
                Err(Error::TimedOut { during, waited, missing: coming.borrow().missing() })
            }
            Err(error) => Err(error),
        }
    }
}

impl Core {
    /// Answers those who ask who goes on after the team that this one was made of.
    pub(super) fn answer_late(&self) {
        let Some(span) = self.span.as_deref() else { return };
        let Some(old) = span.heir else { return };
        let node = &self.block.node;
        let Ok(endpoint) = span.endpoint(node) else { return };
        while let Ok(Some((from, _))) =
            hear(endpoint, About::Survivors, old, 0, Deadline::NEVER, DURING)
        {
            // One that decided, too, says the same, and is not heard: a question is empty.
            let Some(to) = node.placement().slot_of(Rank(from)) else { continue };
            let size = span.members.size();
            let members = (0..size).filter_map(|rank| span.members.job_rank(rank));
            let members = members.map(|rank| rank.0).collect();
            let decision = Decision { context: span.team_context(), members };
            let _ = tell(endpoint, node, to, old, decision.encode());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::Placement;

    #[test]
    fn decisions_survive_the_wire_and_others_are_none() {
        let team = Members::Whole(Placement::new(5, 2, 0).unwrap());
        let decision = Decision { context: 77, members: vec![0, 2, 4] };
        let bytes = decision.encode();
        assert_eq!(Decision::decode(&bytes, &team), Some(decision));
        for length in 0..bytes.len() {
            let cut = Decision::decode(&bytes[..length], &team);
            assert_eq!(cut.is_some(), length == 8 || length == 12, "{length}");
        }
        for members in [vec![5], vec![0, 0], vec![2, 1], vec![]] {
            let bytes = Decision { context: 1, members }.encode();
            assert_eq!(Decision::decode(&bytes, &team), None);
        }
    }
}
