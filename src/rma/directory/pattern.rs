//! A number for each rank, in constant memory.
//!
//! ```text
//! Same      v                            v            v            v            v
//! Cycle     k values and a step          v0 v1 ... vk-1   v0+s v1+s ... vk-1+s   v0+2s ...
//! Runs      up to 8 progressions         a a+s a+2s ...   b b+t b+2t ...         c c c c
//! ```
//! A cycle of one value is an arithmetic progression: the bases of parts that follow each other.
//! One of two, with a step, is the same where odd and even ranks have parts of different sizes.
//! Runs describe groups of neighbours that are alike within each group.

/// Longest cycle.
pub(crate) const PERIOD: usize = 8;
/// Most runs.
pub(crate) const RUNS: usize = 8;

/// A number for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The same for all.
    Same(u64),
    /// `first + rank * step`.
    Linear {
        /// At rank 0.
        first: u64,
        /// From each rank to the next.
        step: u64,
    },
    /// `values[rank % period] + rank / period * step`.
    Cycle(Box<Cycle>),
    /// Stretches of ranks, each with a progression of its own.
    Runs(Box<Runs>),
}

/// See [`Pattern::Cycle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    period: u32,
    step: u64,
    values: [u64; PERIOD],
}

/// See [`Pattern::Runs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// First ranks of the runs; beyond the last run, no rank.
    starts: [u32; RUNS],
    first: [u64; RUNS],
    step: [u64; RUNS],
}

/// `first + count * step` as the machine computes it: patterns are found by the same arithmetic,
/// so what wraps round wraps back.
#[inline(always)]
fn progress(first: u64, count: u32, step: u64) -> u64 {
    first.wrapping_add(u64::from(count).wrapping_mul(step))
}

impl Pattern {
    /// The number of `rank`.
    #[inline]
    pub fn at(&self, rank: u32) -> u64 {
        match self {
            Pattern::Same(value) => *value,
            Pattern::Linear { first, step } => progress(*first, rank, *step),
            Pattern::Cycle(cycle) => {
                let (round, place) = (rank / cycle.period, rank % cycle.period);
                progress(cycle.values[place as usize % PERIOD], round, cycle.step)
            }
            Pattern::Runs(runs) => {
                // The first run starts at 0, so at least one start is counted.
                let past = runs.starts.iter().filter(|&&start| start <= rank).count();
                let run = past.saturating_sub(1) % RUNS;
                progress(runs.first[run], rank - runs.starts[run], runs.step[run])
            }
        }
    }

    /// Ranks after which it goes on as before, but for a step; runs do not.
    pub(crate) fn period(&self) -> Option<u32> {
        match self {
            Pattern::Same(_) | Pattern::Linear { .. } => Some(1),
            Pattern::Cycle(cycle) => Some(cycle.period),
            Pattern::Runs(_) => None,
        }
    }

    /// The cycle of `period` that the first numbers suggest. `heads` are the numbers of the ranks
    /// from 0 on, as far as there are any: `size` of them, if that is less.
    pub(crate) fn suggested(
        period: usize,
        size: u32,
        heads: &[u64; PERIOD + 1],
    ) -> Option<Pattern> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if period == 0 || period > PERIOD || period > size {
            return None;
        }
        let next = if period < size { heads[period] } else { heads[0] };
        let step = next.wrapping_sub(heads[0]);
        if period == 1 {
            let first = heads[0];
            return Some(match step {
                0 => Pattern::Same(first),
                step => Pattern::Linear { first, step },
            });
        }
        let mut values = [0; PERIOD];
        values[..period].copy_from_slice(&heads[..period]);
        Some(Pattern::Cycle(Box::new(Cycle { period: period as u32, step, values })))
    }

    /// The runs of a sequence that begins with `first` and whose steps from one rank to the next
    /// are `steps`: (rank, step into that rank and the following ones), the first for rank 1.
    /// `None` if they are too many.
    pub(crate) fn of_steps(first: u64, steps: &[(u32, u64)], size: u32) -> Option<Pattern> {
        let mut runs = Runs { starts: [u32::MAX; RUNS], first: [0; RUNS], step: [0; RUNS] };
        let (mut count, mut start, mut value) = (0, 0, first);
        let mut at = 0;
        while start < size {
            if count == RUNS {
                return None;
            }
            // The stretch of steps that leads on from `start`.
            while at + 1 < steps.len() && steps[at + 1].0 <= start + 1 {
                at += 1;
            }
            let step = steps.get(at).map_or(0, |s| s.1);
            runs.starts[count] = start;
            runs.first[count] = value;
            runs.step[count] = step;
            count += 1;
            let Some(&(next, into)) = steps.get(at + 1) else { break };
            value = progress(value, next - 1 - start, step).wrapping_add(into);
            start = next;
        }
        Some(Pattern::Runs(Box::new(runs)))
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Pattern::Same(_) | Pattern::Linear { .. } => 0,
            Pattern::Cycle(_) => size_of::<Cycle>(),
            Pattern::Runs(_) => size_of::<Runs>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_runs() {
        // 5 5 5, 100 110 120, 7, 0 0
        let values = [5u64, 5, 5, 100, 110, 120, 7, 0, 0];
        let mut steps: Vec<(u32, u64)> = Vec::new();
        for (rank, pair) in values.windows(2).enumerate() {
            let step = pair[1].wrapping_sub(pair[0]);
            if steps.last().is_none_or(|last| last.1 != step) {
                steps.push((rank as u32 + 1, step));
            }
        }
        let pattern = Pattern::of_steps(5, &steps, 9).unwrap();
        let found: Vec<u64> = (0..9).map(|rank| pattern.at(rank)).collect();
        assert_eq!(found, values);
    }

    #[test]
    fn cycles_go_on_with_their_step() {
        let heads = [1, 2, 0, 11, 12, 10, 21, 22, 20];
        let pattern = Pattern::suggested(3, 1000, &heads).unwrap();
        assert_eq!((pattern.at(4), pattern.at(300), pattern.at(302)), (12, 1001, 1000));
        assert_eq!(Pattern::suggested(4, 3, &heads), None);
        assert_eq!(Pattern::suggested(1, 1, &heads), Some(Pattern::Same(1)));
    }
}
