//! Hints for active messages.

use super::bad;
use crate::base::{Rank, Result};
use std::sync::Arc;

/// Beginning of the hints that name a target.
const USER_BUFFER: &str = "am_user_buf_";

/// Which active messages that one origin issues on overlapping memory of one target stay in order
/// (paper 001 §6.4.5). All of them by default. Relaxing it lets messages that are ready overtake
/// those that wait for room at the target; it matters for parts that are not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AmOrdering {
    /// Messages by the same handler.
    pub same_op: bool,
    /// Messages by different handlers.
    pub diff_op: bool,
    /// The segments of one message.
    pub same_am: bool,
}

impl Default for AmOrdering {
    fn default() -> Self {
        AmOrdering { same_op: true, diff_op: true, same_am: true }
    }
}

/// Bytes of the buffers attached by some targets that are kept there for each origin of active
/// messages (`am_user_buf_<rank>`, paper 001 §7.2.1): messages that fit need not ask for room. As
/// large as what was promised, whatever the number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserBuffers(Arc<[(Rank, u64)]>);

impl AmOrdering {
    pub(super) fn parse(value: &str) -> Result<AmOrdering> {
        let mut found = AmOrdering { same_op: false, diff_op: false, same_am: false };
        if value == "none" {
            return Ok(found);
        }
        for word in value.split(',').map(str::trim) {
            match word {
                "sameop" => found.same_op = true,
                "diffop" => found.diff_op = true,
                "sameam" => found.same_am = true,
                _ => {
                    return Err(bad("am_ordering", value, "none, or some of sameop,diffop,sameam"));
                }
            }
        }
        Ok(found)
    }
}

impl std::fmt::Display for AmOrdering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [(self.same_op, "sameop"), (self.diff_op, "diffop"), (self.same_am, "sameam")];
        let kept: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if kept.is_empty() { f.write_str("none") } else { f.write_str(&kept.join(",")) }
    }
}

impl UserBuffers {
    /// The target that a hint's name names, if it is one of these.
    pub(super) fn target(key: &str) -> Option<Rank> {
        key.strip_prefix(USER_BUFFER)?.parse().ok().map(Rank)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(rank, bytes)| (format!("{USER_BUFFER}{rank}"), bytes.to_string()))
    }

    /// What is promised for `target`; 0 if nothing is.
    pub fn get(&self, target: Rank) -> u64 {
        let at = self.0.binary_search_by_key(&target, |(rank, _)| *rank);
        at.map_or(0, |at| self.0[at].1)
    }

    /// Promises that so many bytes can be kept for each origin at `target`; 0 takes it back.
    pub fn set(&mut self, target: Rank, bytes: u64) {
        let mut list = self.0.to_vec();
        list.retain(|(rank, _)| *rank != target);
        if bytes > 0 {
            list.push((target, bytes));
        }
        list.sort_unstable();
        self.0 = list.into();
    }

    /// All folded to one number, to be compared between members.
    pub(in crate::rma) fn fingerprint(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        let seed = 0xcbf2_9ce4_8422_2325;
        self.0
            .iter()
            .fold(seed, |hash, (rank, bytes)| mix(mix(hash, rank.0.into()).rotate_left(29), *bytes))
    }
}

impl std::fmt::Display for UserBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each = |(rank, bytes): &(Rank, u64)| format!("{USER_BUFFER}{rank}={bytes}");
        let all: Vec<String> = self.0.iter().map(each).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(" "))
    }
}
