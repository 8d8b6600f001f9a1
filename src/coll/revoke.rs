//! The end of a team's collectives, told between nodes.
//!
//! ```text
//!   the first on a node to break the team ---- message ----> every member on other nodes
//!                                                            looks for one where it waits, and
//!                                                            breaks its own node's part
//! ```
//! In a node one word of the team's block says that its collectives have ended (`core`). Who waits
//! for another node's members cannot see theirs, and may wait for one that will never come: so that
//! word is sent as well, in a context that no team has, with the team's context for a tag. One
//! message for each member elsewhere, when something has gone wrong, and never else.

use super::aside::{About, hear, say};
use super::core::{Core, LEFT, OUT_OF_STEP, Place};
use crate::base::{Deadline, Rank};
use std::time::Duration;

/// Of a message's rank: the sender is out of step, rather than a member dead.
const STEP: u32 = 1 << 31;
/// The same: that member has not died but left.
const HAS_LEFT: u32 = 1 << 30;

/// How long a call that blocks, and fails because somebody left, waits to be told why.
pub(super) const GRACE: Duration = Duration::from_millis(200);

impl Core {
    /// Tells the members on other nodes why the team's collectives have ended.
    pub(super) fn tell_others(&self, mark: u32) {
        let Some(span) = self.span.as_deref() else { return };
        let node = &self.block.node;
        let Ok(endpoint) = span.endpoint(node) else { return };
        let placement = node.placement();
        // Calls that differ end for those who are in neither as if somebody had given up.
        let (how, gone) = (mark & !u32::from(u16::MAX), self.marked(mark));
        let rank = match gone {
            Some(slot) if how == LEFT => HAS_LEFT | node.rank_of(slot).0,
            Some(slot) if how == 0 => node.rank_of(slot).0,
            _ => STEP | node.rank_of(node.slot()).0,
        };
        for member in 0..span.members.size() {
            let Some(to) = span.members.job_rank(member).and_then(|r| placement.slot_of(r)) else {
                continue;
            };
            if node.is_local(to) || node.is_dead(to) {
                continue;
            }
            // Who has gone meanwhile need not be told.
            let _ = say(endpoint, to, About::End, (span.team_context(), rank), Vec::new());
        }
    }

    /// What others have said of the end of the team's collectives, as the word of its block says it.
    pub(super) fn told(&self) -> Option<u32> {
        let span = self.span.as_deref()?;
        let node = &self.block.node;
        let endpoint = span.endpoint(node).ok()?;
        let heard =
            hear(endpoint, About::End, span.team_context(), 0, Deadline::NEVER, "a collective");
        let (said, _) = heard.ok()??;
        let slot = node.placement().slot_of(Rank(said & !(STEP | HAS_LEFT)))?;
        let mark = u32::from(slot.0) + 1;
        Some(match said & (STEP | HAS_LEFT) {
            0 => mark,
            HAS_LEFT => LEFT | mark,
            _ => OUT_OF_STEP | mark,
        })
    }

    /// The same, waiting a little for it: who found that somebody had left may have told all
    /// others and have left since, which some of them learn first.
    pub(super) fn await_told(&self, grace: Duration, during: &'static str) -> Option<u32> {
        let span = self.span.as_deref()?;
        let node = &self.block.node;
        let endpoint = span.endpoint(node).ok()?;
        let (bell, deadline) = (self.cell(Place::Bell), Deadline::after(grace));
        let told = || endpoint.progress().ok().and_then(|()| self.told());
        node.wait(bell, deadline, during, told, || Ok(())).ok()
    }
}
