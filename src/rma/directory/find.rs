//! Finding patterns in the entries of a window without anybody holding them all: a vote.
//!
//! ```text
//! round      all-reduce         what a member contributes
//! heads      or,  36 words      its own entry, if its rank is below 9
//! refute     or,   1 word       for each field and period: whether the cycle that the heads
//!                               suggest is wrong about its own number
//! count      sum,  4 words      fields without a cycle: whether the step into its number
//!                               differs from the step into its left neighbour's
//! which      min,  4 words      its rank, if so and if it comes after the last one learnt
//! step       or,   4 words      the step into its number, if it is the one just learnt
//! ```
//! `which` and `step` follow each other until the places where steps change are all known, and
//! are left out if those are more than [`BREAKS`]: then the field is irregular. A cycle holds for
//! every member because each has checked its own number; runs are exact by construction. Every
//! member learns the same and so ends in the same round. Nothing here communicates: the team (or
//! a test's simulation of any number of ranks) carries out the all-reduces.

use super::pattern::{PERIOD, Pattern, RUNS};
use super::{Entry, FIELDS};
use crate::layout::Op;

/// Ranks whose numbers suggest cycles.
const HEADS: usize = PERIOD + 1;
/// Most changes of step that are looked for: entering a run and going on in it are two.
pub(crate) const BREAKS: usize = 2 * RUNS;
/// Nobody.
const NO_RANK: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Heads,
    Refute,
    Count,
    Which,
    Step,
    Done,
}

/// One member's part in the vote.
#[derive(Debug)]
pub(crate) struct Finder {
    size: u32,
    rank: u32,
    own: [u64; FIELDS],
    /// The step into this member's number, and whether it differs from the one before.
    step: [u64; FIELDS],
    breaks: [bool; FIELDS],
    round: Round,
    words: [u64; HEADS * FIELDS],
    heads: [[u64; HEADS]; FIELDS],
    found: [Option<Pattern>; FIELDS],
    /// For the fields whose runs are being learnt: the steps known so far and from where on they
    /// hold, how many changes are still to come, and where the next one is once that is known.
    steps: [Vec<(u32, u64)>; FIELDS],
    left: [usize; FIELDS],
    next: [Option<u32>; FIELDS],
}

impl Finder {
    /// For member `rank` of `size`; `entries` are its own, its left neighbour's and that one's
    /// left neighbour's, as far as there are any.
    pub fn new(size: u32, rank: u32, entries: [Entry; 3]) -> Finder {
        let mut finder = Finder {
            size,
            rank,
            own: [0; FIELDS],
            step: [0; FIELDS],
            breaks: [false; FIELDS],
            round: Round::Heads,
            words: [0; HEADS * FIELDS],
            heads: [[0; HEADS]; FIELDS],
            found: Default::default(),
            steps: Default::default(),
            left: [0; FIELDS],
            next: [None; FIELDS],
        };
        finder.become_member(rank, entries);
        finder
    }

    /// Votes for another member from now on: all that has been learnt is the same for everybody,
    /// so one finder can stand in for any number of members in turn.
    pub fn become_member(&mut self, rank: u32, entries: [Entry; 3]) {
        let [own, left, second] = entries.map(Entry::fields);
        let step: [u64; FIELDS] = std::array::from_fn(|f| own[f].wrapping_sub(left[f]));
        self.breaks =
            std::array::from_fn(|f| rank >= 2 && step[f] != left[f].wrapping_sub(second[f]));
        (self.rank, self.own, self.step) = (rank, own, step);
    }

    /// The next all-reduce and this member's contribution; `None` when all is known.
    pub fn ask(&mut self) -> Option<(Op, &mut [u64])> {
        let (op, length) = match self.round {
            Round::Heads => (Op::BitOr, HEADS * FIELDS),
            Round::Refute => (Op::BitOr, 1),
            Round::Count => (Op::Sum, FIELDS),
            Round::Which => (Op::Min, FIELDS),
            Round::Step => (Op::BitOr, FIELDS),
            Round::Done => return None,
        };
        self.words = [0; HEADS * FIELDS];
        match self.round {
            Round::Heads if (self.rank as usize) < HEADS => {
                for field in 0..FIELDS {
                    self.words[field * HEADS + self.rank as usize] = self.own[field];
                }
            }
            Round::Refute => self.words[0] = self.refuted(),
            Round::Count => {
                for field in self.open() {
                    self.words[field] = self.breaks[field].into();
                }
            }
            Round::Which => {
                self.words[..FIELDS].fill(NO_RANK);
                for field in (0..FIELDS).filter(|&f| self.left[f] > 0) {
                    let known = self.steps[field].last().map_or(0, |step| step.0);
                    if self.breaks[field] && self.rank > known {
                        self.words[field] = self.rank.into();
                    }
                }
            }
            Round::Step => {
                for field in (0..FIELDS).filter(|&f| self.next[f] == Some(self.rank)) {
                    self.words[field] = self.step[field];
                }
            }
            Round::Heads | Round::Done => {}
        }
        Some((op, &mut self.words[..length]))
    }

    /// Takes in what the all-reduce left in the words of [`Finder::ask`].
    pub fn learn(&mut self) {
        let words = self.words;
        self.round = match self.round {
            Round::Heads => {
                for (heads, words) in self.heads.iter_mut().zip(words.chunks(HEADS)) {
                    heads.copy_from_slice(words);
                }
                Round::Refute
            }
            Round::Refute => {
                self.choose(words[0]);
                if self.open().next().is_none() { Round::Done } else { Round::Count }
            }
            Round::Count => {
                for field in self.open() {
                    let count = words[field] as usize;
                    if count > BREAKS {
                        // Irregular: the window has to be looked up, whatever the others are.
                        self.round = Round::Done;
                        return;
                    }
                    let into_1 = self.heads[field][1].wrapping_sub(self.heads[field][0]);
                    self.steps[field].push((1, into_1));
                    self.left[field] = count;
                }
                self.next_place()
            }
            Round::Which => {
                for field in (0..FIELDS).filter(|&f| self.left[f] > 0) {
                    self.next[field] = Some(words[field] as u32);
                }
                Round::Step
            }
            Round::Step => {
                for (field, next) in self.next.iter_mut().enumerate() {
                    if let Some(place) = next.take() {
                        self.steps[field].push((place, words[field]));
                        self.left[field] -= 1;
                    }
                }
                self.next_place()
            }
            Round::Done => Round::Done,
        };
    }

    /// The patterns, one per field; `None` if one of the fields has none.
    pub fn found(self) -> Option<[Pattern; FIELDS]> {
        let [a, b, c, d] = self.found;
        Some([a?, b?, c?, d?])
    }

    /// Fields without a pattern so far.
    fn open(&self) -> impl Iterator<Item = usize> + use<> {
        let open = self.found.each_ref().map(Option::is_none);
        (0..FIELDS).filter(move |&field| open[field])
    }

    /// A bit for each field and period whose suggested cycle is wrong about this member, or is
    /// none.
    fn refuted(&self) -> u64 {
        let mut refuted = 0;
        for field in 0..FIELDS {
            for period in 1..=PERIOD {
                let cycle = Pattern::suggested(period, self.size, &self.heads[field]);
                if cycle.is_none_or(|cycle| cycle.at(self.rank) != self.own[field]) {
                    refuted |= 1 << (field * PERIOD + period - 1);
                }
            }
        }
        refuted
    }

    /// Takes the shortest cycle that nobody has refuted, for each field that has one.
    fn choose(&mut self, refuted: u64) {
        for field in 0..FIELDS {
            let period =
                (1..=PERIOD).find(|period| refuted >> (field * PERIOD + period - 1) & 1 == 0);
            self.found[field] =
                period.and_then(|period| Pattern::suggested(period, self.size, &self.heads[field]));
        }
    }

    /// The round in which the next change of step is learnt, or the end if all are known.
    fn next_place(&mut self) -> Round {
        if self.left.iter().any(|&left| left > 0) {
            return Round::Which;
        }
        for field in self.open() {
            let first = self.heads[field][0];
            self.found[field] = Pattern::of_steps(first, &self.steps[field], self.size);
        }
        Round::Done
    }
}
