//! Which peers of a flow have to be looked at, and when: a look costs what is due, not what is known.
//!
//! ```text
//!   times   one entry for each peer that has to be looked at at a time, never later than it is due
//!   busy    peers that are looked at each time: what they wait for may have come to all, as memory does
//! ```
//! A peer whose time gets later keeps its entry: it is looked at too early, and put back. So traffic
//! moves no entry but with the first message of a while.

use super::known::Known;
use crate::base::Rank;
use crate::net::ud::Config;
use std::collections::BTreeSet;

/// No time.
const NEVER: u64 = u64::MAX;

/// What is kept of that with each peer.
#[derive(Debug)]
pub(super) struct Mark {
    /// The time of its entry.
    at: u64,
    busy: bool,
}

impl Mark {
    /// Of a peer that has not to be looked at.
    pub const NONE: Mark = Mark { at: NEVER, busy: false };

    /// Its entry was taken.
    pub fn time_was_taken(&mut self) {
        self.at = NEVER;
    }

    /// It was taken from those that are busy.
    pub fn busy_was_taken(&mut self) {
        self.busy = false;
    }
}

/// See the [module](self).
#[derive(Default, Debug)]
pub(super) struct Due {
    times: BTreeSet<(u64, Rank)>,
    busy: Vec<Rank>,
}

impl Due {
    /// After something was done with a peer: has it looked at in time.
    pub fn note(&mut self, rank: Rank, known: &mut Known, config: &Config) {
        let next = known.peer.next(config).unwrap_or(NEVER).min(known.again);
        let busy = known.is_busy();
        self.mark(rank, &mut known.mark, next, busy);
    }

    fn mark(&mut self, rank: Rank, mark: &mut Mark, next: u64, busy: bool) {
        if next < mark.at {
            self.times.remove(&(mark.at, rank));
            self.times.insert((next, rank));
            mark.at = next;
        }
        if busy && !mark.busy {
            mark.busy = true;
            self.busy.push(rank);
        }
    }

    /// Takes all whose time has come. They are to be told so, see [`Mark`].
    pub fn take_times(&mut self, now: u64) -> Vec<Rank> {
        let mut taken = Vec::new();
        while let Some(&(at, rank)) = self.times.first()
            && at <= now
        {
            self.times.pop_first();
            taken.push(rank);
        }
        taken
    }

    /// Takes all that are busy, in the same way.
    pub fn take_busy(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.busy)
    }

    /// When a peer has to be looked at next.
    pub fn next(&self) -> u64 {
        self.times.first().map_or(NEVER, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Nobody is forgotten, nobody is looked at late, and there is one entry at most.
        #[test]
        fn whoever_is_due_is_looked_at(
            steps in proptest::collection::vec((0u32..5, 0u64..40, any::<bool>(), 0u64..6), 1..200),
        ) {
            let mut due = Due::default();
            let mut marks: HashMap<Rank, Mark> = HashMap::new();
            let mut want: HashMap<Rank, (u64, bool)> = HashMap::new();
            let mut now = 0;
            for (rank, after, busy, pass) in steps {
                let (rank, next) = (Rank(rank), if after > 30 { NEVER } else { now + after });
                want.insert(rank, (next, busy));
                due.mark(rank, marks.entry(rank).or_insert(Mark::NONE), next, busy);
                prop_assert!(due.times.len() <= marks.len() && due.busy.len() <= marks.len());
                now += pass;
                let mut looked: Vec<Rank> = due.take_busy();
                looked.iter().for_each(|rank| marks.get_mut(rank).unwrap().busy_was_taken());
                for rank in due.take_times(now) {
                    marks.get_mut(&rank).unwrap().time_was_taken();
                    looked.push(rank);
                }
                for (rank, (next, busy)) in &mut want {
                    prop_assert!(!*busy && *next > now || looked.contains(rank));
                    if looked.contains(rank) {
                        // What was to be done has been done.
                        *busy = false;
                        *next = if *next <= now { NEVER } else { *next };
                        due.mark(*rank, marks.get_mut(rank).unwrap(), *next, false);
                    }
                    prop_assert!(*next >= due.next());
                }
            }
        }
    }
}
