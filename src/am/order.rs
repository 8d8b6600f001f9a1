//! Which messages may overtake which.
//!
//! ```text
//!   of one origin, to one part      A [0,8)  B [4,12)  C [16,24)  D [20,28)   all of one handler
//!
//!   all orders wanted               A <- B,  C <- D:  ready are A and C, then B and D
//!   none                            all four are ready
//! ```
//! Paper 001 §6.4.5: of messages by the same origin on the same target, whose persistent ranges
//! overlap, the later one follows the earlier one; which pairs, the hint `am_ordering` says:
//! messages with the same handler (`sameop`), with different ones (`diffop`), units of one and the
//! same message (`sameam`). All others, and other origins' anyway, may pass each other. An empty
//! range overlaps nothing.
//!
//! A message that is held back holds back those that must follow *it*, so order is transitive
//! where it must be and nowhere else.

use crate::rma::AmOrdering;
use std::collections::VecDeque;

/// Entries looked at to find some that are ready: what is further back waits until those before
/// it are gone. Bounds what a look costs.
const LOOK_AHEAD: usize = 64;

/// What of a message or unit matters to its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The message.
    pub message: u64,
    /// Its handler.
    pub handler: u32,
    /// First byte of its persistent range.
    pub at: u64,
    /// Bytes of that from the first to the last.
    pub span: u64,
}

impl Mark {
    fn overlaps(&self, other: &Mark) -> bool {
        let (end, others) =
            (self.at.saturating_add(self.span), other.at.saturating_add(other.span));
        self.span > 0 && other.span > 0 && self.at < others && other.at < end
    }
}

/// Whether `later` may not begin before `earlier` is done.
fn must_follow(wanted: AmOrdering, later: &Mark, earlier: &Mark) -> bool {
    let wanted = if later.message == earlier.message {
        wanted.same_am
    } else if later.handler == earlier.handler {
        wanted.same_op
    } else {
        wanted.diff_op
    };
    wanted && later.overlaps(earlier)
}

/// Messages or units of one origin on one part that are not done, in the order in which they were
/// issued.
#[derive(Debug)]
pub(crate) struct Lineup<K> {
    wanted: AmOrdering,
    entries: VecDeque<(Mark, K)>,
}

impl<K: Copy + Eq> Lineup<K> {
    /// An empty one.
    pub fn new(wanted: AmOrdering) -> Lineup<K> {
        Lineup { wanted, entries: VecDeque::new() }
    }

    /// Appends one.
    pub fn push(&mut self, mark: Mark, key: K) {
        self.entries.push_back((mark, key));
    }

    /// Removes one that is done; whether it was there. Costs a search from the oldest on.
    pub fn remove(&mut self, key: K) -> bool {
        let found = self.entries.iter().position(|(_, k)| *k == key);
        found.and_then(|i| self.entries.remove(i)).is_some()
    }

    /// Those that nothing in the line holds back, oldest first; the oldest always is one.
    ///
    /// Costs a comparison per pair looked at until the caller stops, of at most 64 entries.
    pub fn ready(&self) -> impl Iterator<Item = K> + '_ {
        let near = self.entries.iter().take(LOOK_AHEAD).enumerate();
        near.filter(|(i, (mark, _))| {
            self.entries.iter().take(*i).all(|(before, _)| !must_follow(self.wanted, mark, before))
        })
        .map(|(_, (_, key))| *key)
    }

    /// Whether `key` is one of those of [`Lineup::ready`]. Costs a comparison for each before it.
    pub fn is_ready(&self, key: K) -> bool {
        let mut near = self.entries.iter().take(LOOK_AHEAD);
        let Some(at) = near.position(|(_, k)| *k == key) else { return false };
        let mark = &self.entries[at].0;
        self.entries.iter().take(at).all(|(before, _)| !must_follow(self.wanted, mark, before))
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marks() -> impl Strategy<Value = Vec<Mark>> {
        let one = (0u64..4, 0u32..3, 0u64..20, 0u64..6);
        let mark = one.prop_map(|(message, handler, at, span)| {
            // The handler belongs to the message.
            let handler = if message == 0 { 0 } else { handler };
            Mark { message, handler, at, span }
        });
        prop::collection::vec(mark, 0..24)
    }

    fn orders() -> impl Strategy<Value = AmOrdering> {
        any::<[bool; 3]>().prop_map(|[same_op, diff_op, same_am]| AmOrdering {
            same_op,
            diff_op,
            same_am,
        })
    }

    /// The text of §6.4.5, byte by byte.
    fn oracle(wanted: AmOrdering, later: &Mark, earlier: &Mark) -> bool {
        let bytes = |mark: &Mark| mark.at..mark.at + mark.span;
        let overlap = bytes(later).any(|byte| bytes(earlier).contains(&byte));
        let pair = match (later.message == earlier.message, later.handler == earlier.handler) {
            (true, _) => wanted.same_am,
            (false, true) => wanted.same_op,
            (false, false) => wanted.diff_op,
        };
        overlap && pair
    }

    proptest! {
        #[test]
        fn exactly_what_must_wait_does(wanted in orders(), marks in marks()) {
            let mut line = Lineup::new(wanted);
            for (key, mark) in marks.iter().enumerate() {
                line.push(*mark, key);
            }
            let want: Vec<usize> = (0..marks.len())
                .filter(|&i| (0..i).all(|j| !oracle(wanted, &marks[i], &marks[j])))
                .collect();
            prop_assert_eq!(line.ready().collect::<Vec<_>>(), &want[..]);
            prop_assert!((0..marks.len()).all(|key| line.is_ready(key) == want.contains(&key)));
        }

        #[test]
        fn whatever_is_taken_when_ready_comes_in_a_legal_order(
            wanted in orders(),
            marks in marks(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 24),
        ) {
            let mut line = Lineup::new(wanted);
            for (key, mark) in marks.iter().enumerate() {
                line.push(*mark, key);
            }
            let mut done = Vec::new();
            for pick in picks.iter().take(marks.len()) {
                let ready: Vec<usize> = line.ready().collect();
                prop_assert!(!ready.is_empty(), "nothing is ready and {line:?} is left");
                let key = ready[pick.index(ready.len())];
                prop_assert!(line.remove(key));
                done.push(key);
            }
            prop_assert!(line.is_empty() && !line.remove(0));
            for (i, &first) in done.iter().enumerate() {
                for &second in &done[i + 1..] {
                    let swapped = second < first;
                    prop_assert!(!(swapped && oracle(wanted, &marks[first], &marks[second])));
                }
            }
        }
    }

    #[test]
    fn orders_are_told_apart() {
        let all = AmOrdering { same_op: true, diff_op: true, same_am: true };
        let first = Mark { message: 1, handler: 7, at: 8, span: 8 };
        let same = Mark { message: 2, ..first };
        let other = Mark { message: 2, handler: 8, ..first };
        assert!(must_follow(all, &same, &first) && must_follow(all, &other, &first));
        assert!(!must_follow(AmOrdering { same_op: false, ..all }, &same, &first));
        assert!(must_follow(AmOrdering { same_op: false, ..all }, &other, &first));
        assert!(!must_follow(AmOrdering { diff_op: false, ..all }, &other, &first));
        assert!(!must_follow(AmOrdering { same_am: false, ..all }, &first, &first));
        let beside = Mark { at: 16, ..same };
        let empty = Mark { at: 12, span: 0, ..same };
        assert!(!must_follow(all, &beside, &first) && !must_follow(all, &empty, &first));
    }

    #[test]
    fn a_look_is_bounded_and_still_finds_the_oldest() {
        let mut line = Lineup::new(AmOrdering { same_op: true, diff_op: true, same_am: true });
        for key in 0..1000u64 {
            line.push(Mark { message: key, handler: 0, at: key * 8, span: 8 }, key);
        }
        assert_eq!(line.ready().count(), LOOK_AHEAD);
        for key in 0..1000 {
            assert_eq!(line.ready().next(), Some(key));
            assert!(line.remove(key));
        }
    }
}
