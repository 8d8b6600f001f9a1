//! The loops of `benches/peers/collectives.c`.

use super::{Run, unknown};
use crate::bench::crew::Crew;
use hither::{Op, Rank, Result};

/// The loop of that name.
pub fn make(crew: &Crew, name: &str, size: usize) -> Result<Run<'static>> {
    let team = crew.job()?.team().clone();
    let (words, ranks) = (size / 8, crew.size() as usize);
    let mut mine = vec![1u64; words * if name == "alltoall" { ranks } else { 1 }];
    let mut theirs = vec![1u64; words * ranks];
    Ok(match name {
        "barrier" => Box::new(move |n| (0..n).try_for_each(|_| team.barrier())),
        "allreduce" => {
            Box::new(move |n| (0..n).try_for_each(|_| team.allreduce(Op::Sum, &mut mine)))
        }
        "broadcast" => Box::new(move |n| {
            (0..n).try_for_each(|i| team.broadcast(Rank((i % 2) as u32), &mut mine))
        }),
        "alltoall" => Box::new(move |n| (0..n).try_for_each(|_| team.alltoall(&mine, &mut theirs))),
        _ => return Err(unknown(name)),
    })
}
