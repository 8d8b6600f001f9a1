//! The search by atomics as a loop that is timed again and again, for comparisons with others' programs
//! (`benches/peers/bfs.c`): first from each root once, every tree checked by the five rules, with a
//! fingerprint of all levels that theirs must have too.

use super::super::random::mark;
use super::super::slices::slice;
use super::baseline::Baseline;
use super::bitmap::Bitmap;
use super::kronecker::{Edge, Kronecker};
use super::partition::NONE;
use super::search::Search;
use super::shared::Shared;
use super::{atomics, validate};
use crate::demo::threads::Places;
use crate::demo::work::total;
use hither::layout::Op;
use hither::{Error, Result, Team};
use std::cell::Cell;

const SEED: u64 = 1;
const ROOTS: usize = 8;

/// What is timed.
pub struct Contest<'a> {
    /// Fingerprint of what was computed.
    pub proof: u64,
    /// Searches so many times more, from one root after the other.
    pub search: &'a mut dyn FnMut(u64) -> Result<()>,
    /// How many edges the trees of the last call had.
    pub counted: &'a Cell<f64>,
    /// The same searches by threads of rank 0 alone, one for each rank that has a core, without the library:
    /// seconds, and edges.
    pub threads: &'a mut dyn FnMut(u64) -> (f64, f64),
}

/// Collective: calls `measured` on the generated graph of 2^`scale` vertices.
pub fn contest<R>(
    team: &Team,
    scale: u32,
    measured: impl FnOnce(Contest<'_>) -> Result<R>,
) -> Result<R> {
    let generated = Kronecker::new(scale, SEED);
    let mine = slice(generated.edges(), team.rank().0, team.size());
    let edges: Vec<Edge> = mine.map(|i| generated.edge(i)).collect();
    let graph = Shared::build(team, generated.vertices(), &edges)?;
    let roots = graph.roots(ROOTS, SEED)?;
    let mut search = atomics::Atomics::new(team, &graph)?;
    let mut parents = vec![NONE; generated.vertices() as usize];
    let (mut proof, mut inside) = ([0], Vec::new());
    for (which, &root) in (0u64..).zip(&roots) {
        search.run(root)?;
        search.parents(&mut parents)?;
        let wrong = |why: String| Error::invalid("the graph search", format!("root {root}: {why}"));
        let mut joined = Bitmap::new(parents.len());
        let levels = validate::levels(&parents, root).map_err(wrong)?;
        let here = validate::check_edges(&parents, &levels, &edges, &mut joined).map_err(wrong)?;
        inside.push(total(team, here)? as f64);
        team.allreduce(Op::BitOr, joined.words_mut())?;
        validate::check_joined(&parents, root, &joined).map_err(wrong)?;
        let reached = (0u64..).zip(&levels).filter(|(_, level)| **level != NONE);
        proof[0] ^= reached
            .fold(0, |all, (vertex, level)| all ^ mark(which << 32 | vertex, u64::from(*level)));
    }
    let counted = Cell::new(0.0);
    let mut next = 0;
    let mut searches = |times| {
        counted.set(0.0);
        for _ in 0..times {
            search.run(roots[next])?;
            counted.set(counted.get() + inside[next]);
            next = (next + 1) % roots.len();
        }
        Ok(())
    };
    let processors = Places::of(team)?.processors();
    let ranks = team.size() as usize;
    let count = if processors.is_empty() { ranks } else { processors.len().min(ranks) };
    let mut yardstick =
        if team.rank().0 == 0 { Some(Baseline::new(graph.gather()?, count)) } else { None };
    let mut from = 0;
    let mut threads = |times| {
        let mut sum = (0.0, 0.0);
        for _ in 0..times {
            let Some(yardstick) = &mut yardstick else { break };
            sum.0 += yardstick.run(roots[from], |thread| {
                processors.get(thread).copied().into_iter().for_each(Places::bind);
            });
            sum.1 += inside[from];
            from = (from + 1) % roots.len();
        }
        sum
    };
    let result = measured(Contest {
        proof: proof[0],
        search: &mut searches,
        counted: &counted,
        threads: &mut threads,
    });
    // Everybody is done with the rows before anyone gives them back.
    team.barrier()?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither::Job;

    #[test]
    fn the_fingerprint_is_that_of_the_levels_however_they_are_divided() {
        for ranks in [1, 2, 3] {
            let proofs = Job::threads(ranks, |job| {
                contest(job.team(), 12, |contest| {
                    let threads = (contest.threads)(2);
                    (contest.search)(2)?;
                    Ok((contest.proof, contest.counted.get(), threads))
                })
            });
            for (rank, proof) in proofs.unwrap().into_iter().enumerate() {
                let (proof, counted, threads) = proof.unwrap();
                // What benches/peers/bfs.c says of the same.
                assert_eq!(proof, 0x2144_c29c_9d53_98aa, "{ranks} ranks");
                if rank == 0 {
                    assert!(threads.0 > 0.0 && threads.1 == counted, "{threads:?}");
                }
                assert!(counted > 2.0 * 60_000.0 && counted <= 2.0 * 65_536.0, "{counted}");
            }
        }
    }
}
