//! The applications of the demo, as loops: what they compute is checked first.

use super::{Counted, Item, Loop};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use crate::demo::{genome, graph, stencil};
use hither::Result;
use std::cell::Cell;
use std::time::Duration;

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
    graph::contest::contest(team, item.size as u32, |contest| {
        item.prove(contest.proof);
        let counted = Cell::new(0.0);
        let threads = Threads { run: contest.threads, counted: &counted };
        let sides: Vec<Box<dyn Side + '_>> =
            vec![Box::new(Loop(Box::new(contest.search))), Box::new(threads)];
        item.time_sides(sides, &[contest.counted, &counted])
    })
}

/// The search by threads of rank 0, which take their time themselves.
struct Threads<'a> {
    run: &'a mut dyn FnMut(u64) -> (f64, f64),
    counted: Counted<'a>,
}

impl Side for Threads<'_> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (seconds, edges) = (self.run)(count);
        meter.took(Duration::from_secs_f64(seconds));
        self.counted.set(edges);
        Ok(())
    }
}

/// The loop of `benches/peers/genome.c`, by active messages.
pub fn genome(item: &Item<'_>) -> Result<Option<Vec<f64>>> {
    let team = item.crew.job()?.team();
    genome::contest::contest(team, item.size as u64, |proof, searches| {
        item.prove(proof);
        item.time(Box::new(searches))
    })
}
