//! The yardstick: the search of `atomics` by threads of one process over private arrays, without
//! the library. Same queues by level, same chunks and batches, same private bitmaps.

use super::atomics::chunk;
use super::bitmap::Bitmap;
use super::partition::NONE;
use super::serial::Graph;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

const BATCH: usize = 128;

/// A cursor on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Cursor(AtomicU64);

/// The graph and the arrays of the search.
pub struct Baseline {
    graph: Graph,
    parents: Vec<AtomicU32>,
    queues: [Vec<AtomicU32>; 2],
    ends: [Cursor; 3],
    nexts: [Cursor; 3],
    seen: Vec<Bitmap>,
    barrier: Barrier,
}

/// A barrier that spins: what threads with a core each use.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
}

impl Barrier {
    fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::Release);
            return;
        }
        let mut spins = 0u32;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            if spins < 10_000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Baseline {
    /// Arrays for a graph and a number of threads.
    pub fn new(graph: Graph, threads: usize) -> Baseline {
        let vertices = graph.rows.len() - 1;
        let array = || (0..vertices).map(|_| AtomicU32::new(NONE)).collect::<Vec<_>>();
        Baseline {
            parents: array(),
            queues: [array(), array()],
            ends: Default::default(),
            nexts: Default::default(),
            seen: vec![Bitmap::new(vertices); threads],
            barrier: Barrier { threads, arrived: AtomicUsize::new(0), round: AtomicUsize::new(0) },
            graph,
        }
    }

    /// Searches from a root; seconds from when all threads began until the last one was done.
    /// `prepare` runs first on each thread.
    pub fn run(&mut self, root: u32, prepare: impl Fn(usize) + Sync) -> f64 {
        let mut seen = std::mem::take(&mut self.seen);
        let shared = &*self;
        let seconds = std::thread::scope(|scope| {
            let threads: Vec<_> = seen
                .iter_mut()
                .enumerate()
                .map(|(thread, seen)| {
                    let prepare = &prepare;
                    scope.spawn(move || {
                        prepare(thread);
                        shared.barrier.wait();
                        let start = Instant::now();
                        shared.search(thread, root, seen);
                        start.elapsed().as_secs_f64()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
        });
        self.seen = seen;
        seconds
    }

    /// Parents found by the last search.
    pub fn parents(&self) -> Vec<u32> {
        self.parents.iter().map(|p| p.load(Ordering::Relaxed)).collect()
    }

    fn search(&self, thread: usize, root: u32, seen: &mut Bitmap) {
        let threads = self.barrier.threads;
        let share = |i: usize| self.parents.len() * i / threads;
        for parent in &self.parents[share(thread)..share(thread + 1)] {
            parent.store(NONE, Ordering::Relaxed);
        }
        seen.clear();
        seen.insert(root);
        if thread == 0 {
            for cursor in self.ends.iter().chain(&self.nexts) {
                cursor.0.store(0, Ordering::Relaxed);
            }
            self.ends[0].0.store(1, Ordering::Relaxed);
            self.queues[0][0].store(root, Ordering::Relaxed);
        }
        self.barrier.wait();
        // Another thread may have cleared the root's parent until the barrier.
        self.parents[root as usize].store(root, Ordering::Relaxed);
        let mut batch = Vec::with_capacity(BATCH);
        for level in 0usize.. {
            let queue = &self.queues[level % 2];
            let length = self.ends[level % 3].0.load(Ordering::Relaxed);
            if length == 0 {
                break;
            }
            if thread == 0 {
                self.ends[(level + 2) % 3].0.store(0, Ordering::Relaxed);
                self.nexts[(level + 2) % 3].0.store(0, Ordering::Relaxed);
            }
            let chunk = chunk(length, threads as u32);
            loop {
                let at = self.nexts[level % 3].0.fetch_add(chunk, Ordering::Relaxed);
                if at >= length {
                    break;
                }
                for vertex in &queue[at as usize..(at + chunk).min(length) as usize] {
                    let vertex = vertex.load(Ordering::Relaxed);
                    let row =
                        self.graph.rows[vertex as usize]..self.graph.rows[vertex as usize + 1];
                    for &reached in &self.graph.columns[row] {
                        if seen.insert(reached) && self.claim(reached, vertex) {
                            batch.push(reached);
                            if batch.len() == BATCH {
                                self.append(level + 1, &mut batch);
                            }
                        }
                    }
                }
            }
            self.append(level + 1, &mut batch);
            self.barrier.wait();
        }
    }

    fn claim(&self, vertex: u32, parent: u32) -> bool {
        self.parents[vertex as usize]
            .compare_exchange(NONE, parent, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn append(&self, level: usize, batch: &mut Vec<u32>) {
        let length = batch.len() as u64;
        let at = self.ends[level % 3].0.fetch_add(length, Ordering::Relaxed) as usize;
        for (slot, &vertex) in self.queues[level % 2][at..].iter().zip(batch.iter()) {
            slot.store(vertex, Ordering::Relaxed);
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::kronecker::Kronecker;
    use super::super::validate::levels;
    use super::*;

    #[test]
    fn threads_find_the_serial_levels() {
        let kronecker = Kronecker::new(9, 2);
        let edges: Vec<_> = (0..kronecker.edges()).map(|i| kronecker.edge(i)).collect();
        let serial = Graph::new(kronecker.vertices(), &edges);
        for threads in 1..=3 {
            let graph = Graph::new(kronecker.vertices(), &edges);
            let mut baseline = Baseline::new(graph, threads);
            for root in (0..kronecker.vertices()).step_by(61) {
                baseline.run(root, |_| ());
                assert_eq!(levels(&baseline.parents(), root), Ok(serial.search(root).1));
            }
        }
    }
}
