//! The applications of the demo, as loops: what they compute is checked first.

use super::Item;
use crate::demo::{genome, graph, stencil};
use hither::Result;

/// The loops of `benches/peers/halo.c`; puts, flush and barrier where that has messages.
pub fn halo(item: &Item<'_>) -> Result<Option<Vec<f64>>> {
    let name = item.workload.name;
    let depth = if name.ends_with("2d") { 1 } else { item.size };
    let cells = [depth, item.size, item.size];
    let team = item.crew.job()?.team();
    stencil::contest::contest(team, cells, name.contains("fence"), |proof, sweeps| {
        item.prove(proof);
        item.time(Box::new(sweeps))
    })
}

/// The loop of `benches/peers/bfs.c`, by the formulation that is ours.
pub fn graph(item: &Item<'_>) -> Result<Option<Vec<f64>>> {
    let team = item.crew.job()?.team();
    graph::contest::contest(team, item.size as u32, |proof, counted, searches| {
        item.prove(proof);
        item.time_counting(Box::new(searches), Some(counted))
    })
}

/// The loop of `benches/peers/genome.c`, by active messages.
pub fn genome(item: &Item<'_>) -> Result<Option<Vec<f64>>> {
    let team = item.crew.job()?.team();
    genome::contest::contest(team, item.size as u64, |proof, searches| {
        item.prove(proof);
        item.time(Box::new(searches))
    })
}
