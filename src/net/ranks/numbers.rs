//! A number of a process for each rank.

/// A stretch of ranks whose numbers go up or down by the same step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: u32,
    first: u32,
    /// Added for each rank, wrapping round: -1 is `u32::MAX`.
    step: u32,
}

impl Run {
    fn at(self, rank: u32) -> u32 {
        self.first.wrapping_add((rank - self.start).wrapping_mul(self.step))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// `first + rank * step`: the identity, blocks, every n-th, backwards.
    Linear {
        first: u32,
        step: u32,
    },
    /// By their starts, the first of which is 0.
    Runs(Box<[Run]>),
    Table(Box<[u32]>),
}

/// Maps `0..len` to numbers. Looking one up costs a multiplication for regular ones, the logarithm
/// of the number of runs, or one access of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    len: u32,
    form: Form,
}

impl Numbers {
    /// Rank `i` is process `i`: the whole job.
    pub fn identity(len: u32) -> Numbers {
        Numbers::linear(0, 1, len)
    }

    /// Rank `i` is process `first + i * step`; sums wrap round, so a step of `u32::MAX` goes down.
    pub fn linear(first: u32, step: u32, len: u32) -> Numbers {
        Numbers { len, form: Form::Linear { first, step } }
    }

    /// The smallest form of a list, in one pass over it. At most `u32::MAX` ranks are taken.
    pub fn detect(numbers: impl ExactSizeIterator<Item = u32> + Clone) -> Numbers {
        let len = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let most_runs = numbers.len() * size_of::<u32>() / size_of::<Run>();
        let mut runs: Vec<Run> = Vec::new();
        let mut table = false;
        for (rank, number) in (0..len).zip(numbers.clone()) {
            match runs.last_mut() {
                Some(run) if rank - run.start == 1 => run.step = number.wrapping_sub(run.first),
                Some(run) if run.at(rank) == number => {}
                _ => {
                    // A run of two says nothing: its second one may begin a longer one.
                    if let Some(run) = runs.last_mut()
                        && rank - run.start == 2
                    {
                        let second = run.at(rank - 1);
                        run.step = 0;
                        let step = number.wrapping_sub(second);
                        runs.push(Run { start: rank - 1, first: second, step });
                    } else {
                        runs.push(Run { start: rank, first: number, step: 0 });
                    }
                    if runs.len() > most_runs.max(1) {
                        table = true;
                        break;
                    }
                }
            }
        }
        let form = match runs[..] {
            _ if table => Form::Table(numbers.take(len as usize).collect()),
            [] => Form::Linear { first: 0, step: 1 },
            [Run { first, step, .. }] => Form::Linear { first, step },
            _ => Form::Runs(runs.into()),
        };
        Numbers { len, form }
    }

    /// Ranks.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The process that `rank` is; nothing for ranks that there are not.
    #[inline]
    pub fn get(&self, rank: u32) -> Option<u32> {
        if rank >= self.len {
            return None;
        }
        match &self.form {
            Form::Linear { first, step } => Some(first.wrapping_add(rank.wrapping_mul(*step))),
            Form::Runs(runs) => {
                let past = runs.partition_point(|run| run.start <= rank);
                Some(runs[past.checked_sub(1)?].at(rank))
            }
            Form::Table(table) => table.get(rank as usize).copied(),
        }
    }

    /// All of them in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + Clone {
        (0..self.len as usize).map(|rank| self.get(rank as u32).unwrap_or_default())
    }

    /// The first rank that is `process`: computed for regular ones; else it costs what there are
    /// runs, or ranks in the table.
    pub fn find(&self, process: u32) -> Option<u32> {
        let in_run = |run: Run, len: u32| {
            let distance = process.wrapping_sub(run.first);
            let size = run.step.min(run.step.wrapping_neg());
            if u64::from(size) * u64::from(len) > u64::from(u32::MAX) {
                // It goes round more than once: no division finds what is in it.
                return (run.start..run.start + len).find(|rank| run.at(*rank) == process);
            }
            let (down, back) = (run.step >= 1 << 31, run.step.wrapping_neg());
            let (distance, step) =
                if down { (distance.wrapping_neg(), back) } else { (distance, run.step) };
            let at = if distance == 0 { 0 } else { distance.checked_div(step)? };
            (at < len && run.at(run.start + at) == process).then(|| run.start + at)
        };
        match &self.form {
            Form::Linear { first, step } => {
                in_run(Run { start: 0, first: *first, step: *step }, self.len)
            }
            Form::Runs(runs) => runs.iter().enumerate().find_map(|(i, run)| {
                let end = runs.get(i + 1).map_or(self.len, |next| next.start);
                in_run(*run, end - run.start)
            }),
            Form::Table(table) => table.iter().position(|n| *n == process).map(|at| at as u32),
        }
    }

    /// The group of those ranks of this one that `ranks` names: rank `i` of it is rank
    /// `ranks.get(i)` here. Nothing if it names a rank that there is not. Both regular: so is the
    /// result, in constant time; else in the smallest form, looking at all.
    pub fn compose(&self, ranks: &Numbers) -> Option<Numbers> {
        if let (Form::Linear { first, step }, Form::Linear { first: at, step: by }) =
            (&self.form, &ranks.form)
            && !ranks.is_empty()
        {
            // The ends lie inside and nothing between them wraps round: so all do.
            let last = i64::from(*at) + i64::from(by.cast_signed()) * i64::from(ranks.len - 1);
            if (0..i64::from(self.len)).contains(&last) && *at < self.len {
                let first = first.wrapping_add(at.wrapping_mul(*step));
                return Some(Numbers::linear(first, step.wrapping_mul(*by), ranks.len));
            }
        }
        let numbers: Option<Vec<u32>> = ranks.iter().map(|rank| self.get(rank)).collect();
        Some(Numbers::detect(numbers?.into_iter()))
    }

    /// Bytes that it has, with this structure.
    pub fn bytes(&self) -> usize {
        size_of::<Numbers>()
            + match &self.form {
                Form::Linear { .. } => 0,
                Form::Runs(runs) => size_of_val(&**runs),
                Form::Table(table) => size_of_val(&**table),
            }
    }

    /// Whether its size does not depend on the number of ranks.
    pub fn is_regular(&self) -> bool {
        matches!(self.form, Form::Linear { .. })
    }
}
