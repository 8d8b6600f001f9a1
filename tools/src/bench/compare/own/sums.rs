//! The loops of `benches/peers/sums.c`.

use super::{Run, unknown};
use crate::bench::crew::Crew;
use hither::{Op, Rank, Result, Window};
use std::hint::black_box;

/// Words that random updates choose from: 64 MiB.
const FIELD: usize = 8 << 20;
const PAGE: usize = 512;
const MANY: u64 = 128;

/// The loop of that name.
pub fn make(crew: &Crew, name: &str, size: usize) -> Result<Run<'static>> {
    let team = crew.job()?.team().clone();
    let (rank, target) = (crew.rank(), Rank(crew.size() - 1));
    match name {
        "sum-same" | "sum-random" => {
            let random = name == "sum-random";
            let window = Window::<u64>::allocate(&team, if random { FIELD } else { 8 })?;
            let (mut state, mut touched) = (rank + 1, !random);
            Ok(Box::new(move |n| {
                let epoch = window.lock_all()?;
                for at in (0..if touched { 0 } else { FIELD }).step_by(PAGE) {
                    epoch.accumulate(target, at, Op::Sum, &[1])?;
                    epoch.flush(target)?;
                }
                touched = true;
                for i in 0..n {
                    let mut at = 0;
                    if random {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        at = state as usize >> 7 & (FIELD - 1);
                    }
                    epoch.accumulate(target, at, Op::Sum, &[1])?;
                    if i % MANY == MANY - 1 {
                        epoch.flush(target)?;
                    }
                }
                epoch.flush(target)?;
                epoch.unlock_all()?;
                team.barrier()
            }))
        }
        "sum-one" | "sum-all" => {
            let all = name == "sum-all";
            let values = vec![1.0f64; size / 8];
            let window = Window::<f64>::allocate(&team, values.len() * crew.size() as usize)?;
            let at = if all { values.len() * rank as usize } else { 0 };
            Ok(Box::new(move |n| {
                if all || rank == 0 {
                    let epoch = window.lock_all()?;
                    for _ in 0..n {
                        epoch.accumulate(target, at, Op::Sum, black_box(&values))?;
                        epoch.flush(target)?;
                    }
                    epoch.unlock_all()?;
                }
                if all { team.barrier() } else { Ok(()) }
            }))
        }
        _ => Err(unknown(name)),
    }
}
