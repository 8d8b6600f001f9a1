//! The search by atomics as a loop that is timed again and again, for comparisons with others' programs
//! (`benches/peers/bfs.c`): first from each root once, every tree checked by the five rules, with a
//! fingerprint of all levels that theirs must have too.

use super::super::random::mark;
use super::super::slices::slice;
use super::bitmap::Bitmap;
use super::kronecker::{Edge, Kronecker};
use super::partition::NONE;
use super::search::Search;
use super::shared::Shared;
use super::{atomics, validate};
use crate::demo::work::total;
use hither::layout::Op;
use hither::{Error, Result, Team};
use std::cell::Cell;

const SEED: u64 = 1;
const ROOTS: usize = 8;

/// Collective: calls `measured` with the fingerprint of what was computed on the generated graph of
/// 2^`scale` vertices, a cell, and a function that searches so many times more, from one root after
/// the other, and puts into the cell how many edges the trees had.
pub fn contest<R>(
    team: &Team,
    scale: u32,
    measured: impl FnOnce(u64, &Cell<f64>, &mut dyn FnMut(u64) -> Result<()>) -> Result<R>,
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
    let result = measured(proof[0], &counted, &mut |times| {
        counted.set(0.0);
        for _ in 0..times {
            search.run(roots[next])?;
            counted.set(counted.get() + inside[next]);
            next = (next + 1) % roots.len();
        }
        Ok(())
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
                contest(job.team(), 12, |proof, counted, more| {
                    more(2).map(|()| (proof, counted.get()))
                })
            });
            for proof in proofs.unwrap() {
                let (proof, counted) = proof.unwrap();
                // What benches/peers/bfs.c says of the same.
                assert_eq!(proof, 0x2144_c29c_9d53_98aa, "{ranks} ranks");
                assert!(counted > 2.0 * 60_000.0 && counted <= 2.0 * 65_536.0, "{counted}");
            }
        }
    }
}
