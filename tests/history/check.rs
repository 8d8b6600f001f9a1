//! The checker: is there an order of the operations on one word, one after the other, that explains
//! what each of them gave back, keeps the order of each origin, and keeps what ended before
//! something else began before it?
//!
//! A search as Wing and Gong's (1993) with Lowe's memoisation: a state is how far each origin has
//! got and what the word holds; a state that led nowhere is not entered again. An operation may
//! come next if no other one that is still to come had ended before it began.

use std::collections::HashSet;

/// What an operation did to its word, with what it gave back where it gave something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Accumulate or fetch_and_op with `Sum`.
    Add(u64),
    /// Accumulate or fetch_and_op with `Max`.
    Max(u64),
    /// Accumulate or fetch_and_op with `Replace`, a put, or an exclusive section.
    Swap(u64),
    /// compare_and_swap.
    Cas { expected: u64, new: u64 },
    /// fetch_and_op with `NoOp`, a get, or a shared section.
    Read,
}

/// One operation, with the times between which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub origin: u32,
    /// Before it was called.
    pub call: u64,
    /// After it was known to be complete at the target.
    pub ended: u64,
    /// Number of the word, in all parts.
    pub word: u32,
    pub what: What,
    /// What it gave back.
    pub saw: Option<u64>,
}

impl Event {
    /// What the word holds afterwards, if it held `value` before; `None` if what was given back
    /// contradicts that.
    fn apply(&self, value: u64) -> Option<u64> {
        if self.saw.is_some_and(|saw| saw != value) {
            return None;
        }
        Some(match self.what {
            What::Add(add) => value.wrapping_add(add),
            What::Max(other) => value.max(other),
            What::Swap(new) => new,
            What::Cas { expected, new } => {
                if value == expected {
                    new
                } else {
                    value
                }
            }
            What::Read => value,
        })
    }

    /// As numbers of equal count, to be gathered.
    pub fn encode(&self) -> [u64; 9] {
        let (kind, a, b) = match self.what {
            What::Add(v) => (0, v, 0),
            What::Max(v) => (1, v, 0),
            What::Swap(v) => (2, v, 0),
            What::Cas { expected, new } => (3, expected, new),
            What::Read => (4, 0, 0),
        };
        let word = u64::from(self.word);
        let saw = (u64::from(self.saw.is_some()), self.saw.unwrap_or(0));
        [self.origin.into(), self.call, self.ended, word, kind, a, b, saw.0, saw.1]
    }

    pub fn decode(from: &[u64; 9]) -> Event {
        let &[origin, call, ended, word, kind, a, b, has, saw] = from;
        let what = match kind {
            0 => What::Add(a),
            1 => What::Max(a),
            2 => What::Swap(a),
            3 => What::Cas { expected: a, new: b },
            _ => What::Read,
        };
        let saw = (has != 0).then_some(saw);
        Event { origin: origin as u32, call, ended, word: word as u32, what, saw }
    }
}

/// States that a search enters before it gives up.
const MOST_STATES: usize = 2_000_000;

/// What came of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order was found.
    Explained,
    /// There is none.
    Impossible,
    /// The search was given up.
    TooLarge,
}

/// Judges all events on one word that held `initial` at first. Events of one origin must be in
/// the order in which it issued them.
pub fn judge(initial: u64, events: &[Event]) -> Verdict {
    let origins = events.iter().map(|e| e.origin as usize + 1).max().unwrap_or(0);
    let mut lines: Vec<Vec<Event>> = vec![Vec::new(); origins];
    for event in events {
        lines[event.origin as usize].push(*event);
    }
    // Whether an event may come next is asked by comparing with the earliest end among those
    // still to come; per line that is the least of a suffix.
    let earliest: Vec<Vec<u64>> = lines
        .iter()
        .map(|line| {
            let mut least = vec![u64::MAX; line.len() + 1];
            for (at, event) in line.iter().enumerate().rev() {
                least[at] = event.ended.min(least[at + 1]);
            }
            least
        })
        .collect();
    let mut entered = HashSet::new();
    let mut open = vec![(vec![0u16; origins], initial)];
    while let Some((at, value)) = open.pop() {
        if lines.iter().zip(&at).all(|(line, &at)| usize::from(at) == line.len()) {
            return Verdict::Explained;
        }
        let first_end = (0..origins).map(|o| earliest[o][usize::from(at[o])]).min();
        for (origin, line) in lines.iter().enumerate() {
            let Some(event) = line.get(usize::from(at[origin])) else { continue };
            if first_end.is_some_and(|end| end < event.call) {
                continue;
            }
            let Some(value) = event.apply(value) else { continue };
            let mut next = at.clone();
            next[origin] += 1;
            let state = (next, value);
            if entered.contains(&state) {
                continue;
            }
            if entered.len() >= MOST_STATES {
                return Verdict::TooLarge;
            }
            entered.insert(state.clone());
            open.push(state);
        }
    }
    Verdict::Impossible
}
