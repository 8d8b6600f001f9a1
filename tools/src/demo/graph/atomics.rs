//! Breadth-first search by the origin's atomics on the owners' windows.
//!
//! The rank that reaches a vertex claims it by compare-and-swap on its parent and appends it to
//! its owner's queue (room by fetch-and-add, a batch at a time). The queues of a level are worked
//! off together: a rank takes chunks of its own queue first, then of the others', so that no rank
//! waits while another has work left; rows are read wherever they lie.
//!
//! ```text
//!   parents of a rank:  one a vertex
//!   queues of a rank:   | even levels | odd levels |
//!   cursors of a rank:  | end, next of levels 0 mod 3 | ... 1 mod 3 | ... 2 mod 3 |
//! ```
//! Three sets of cursors: one is worked off, one filled, one cleared by its owner.

use super::super::work::total;
use super::bitmap::Bitmap;
use super::partition::{NONE, Partition};
use super::search::{Search, fill, parents_of};
use super::shared::{Reader, Shared};
use hither::layout::Op;
use hither::{LockAllEpoch, Rank, Result, Team, Window};

/// Vertices collected for one owner before they are appended to its queue.
const BATCH: usize = 128;
/// Most vertices taken from a queue at once.
pub const CHUNK: u64 = 64;

/// How many vertices to take at once from a queue of `length`: small enough that every rank gets
/// several shares.
pub fn chunk(length: u64, ranks: u32) -> u64 {
    (length / (4 * u64::from(ranks))).clamp(1, CHUNK)
}

/// The formulation's windows and private state.
pub struct Atomics<'g> {
    team: &'g Team,
    graph: &'g Shared,
    parents: Window<u32>,
    queues: Window<u32>,
    cursors: Window<u64>,
    private: Private,
}

/// What only this rank knows.
struct Private {
    /// Vertices this rank has tried to claim: nobody needs to be asked about them again.
    seen: Bitmap,
    /// Claimed vertices not yet in their owners' queues.
    batches: Vec<Vec<u32>>,
}

impl<'g> Atomics<'g> {
    /// Collective.
    pub fn new(team: &'g Team, graph: &'g Shared) -> Result<Self> {
        let capacity = graph.part.capacity();
        let ranks = team.size() as usize;
        Ok(Atomics {
            team,
            graph,
            parents: Window::allocate(team, capacity)?,
            queues: Window::allocate(team, 2 * capacity)?,
            cursors: Window::allocate(team, 6)?,
            private: Private {
                seen: Bitmap::new(graph.part.vertices as usize),
                batches: vec![Vec::with_capacity(BATCH); ranks],
            },
        })
    }

    /// Forgets the previous search and puts the root into its owner's queue.
    fn start(&mut self, root: u32) -> Result<()> {
        let part = self.graph.part;
        fill(&self.parents.local(), 0, part.capacity(), NONE)?;
        fill(&self.cursors.local(), 0, 6, 0)?;
        self.private.seen.clear();
        self.private.seen.insert(root);
        let (owner, place) = part.place(root);
        if owner.0 == part.rank {
            self.parents.local().set(place, root)?;
            self.queues.local().set(0, root)?;
            self.cursors.local().set(0, 1)?;
        }
        self.team.barrier()
    }
}

/// The open epochs of a search.
struct Open<'w> {
    part: Partition,
    rows: Reader<'w>,
    parents: LockAllEpoch<'w, u32>,
    queues: LockAllEpoch<'w, u32>,
    cursors: LockAllEpoch<'w, u64>,
}

impl Open<'_> {
    /// Takes chunks of a rank's queue until it is empty; how many vertices were claimed.
    fn work_off(&self, victim: Rank, level: usize, private: &mut Private) -> Result<u64> {
        let (end, next) = (level % 3 * 2, level % 3 * 2 + 1);
        let start = level % 2 * self.part.capacity();
        let mut length = [0];
        self.cursors.get(victim, end, &mut length)?;
        let length = length[0];
        let chunk = chunk(length, self.part.ranks);
        let mut taken = [0u32; CHUNK as usize];
        let mut found = 0;
        if length == 0 {
            return Ok(0);
        }
        loop {
            let at = self.cursors.fetch_and_op(victim, next, Op::Sum, chunk)?;
            if at >= length {
                return Ok(found);
            }
            let taken = &mut taken[..chunk.min(length - at) as usize];
            self.queues.get(victim, start + at as usize, taken)?;
            for &vertex in taken.iter() {
                found += self.expand(vertex, level, private)?;
            }
        }
    }

    /// Claims the neighbours of a vertex that nobody had; how many.
    fn expand(&self, vertex: u32, level: usize, private: &mut Private) -> Result<u64> {
        let mut found = 0;
        let (parents, part) = (&self.parents, self.part);
        let row = self.rows.neighbours(vertex)?;
        for index in 0..row.len() {
            let reached = row.get(index)?;
            if !private.seen.insert(reached) {
                continue;
            }
            let (owner, place) = part.place(reached);
            if parents.compare_and_swap(owner, place, NONE, vertex)? == NONE {
                found += 1;
                let batch = &mut private.batches[owner.index()];
                batch.push(reached);
                if batch.len() == BATCH {
                    append(&self.cursors, &self.queues, (owner, level + 1), part, batch)?;
                }
            }
        }
        Ok(found)
    }
}

/// Appends a batch to its owner's queue of a level.
fn append(
    cursors: &LockAllEpoch<'_, u64>,
    queues: &LockAllEpoch<'_, u32>,
    (owner, level): (Rank, usize),
    part: Partition,
    batch: &mut Vec<u32>,
) -> Result<()> {
    let end = level % 3 * 2;
    let at = cursors.fetch_and_op(owner, end, Op::Sum, batch.len() as u64)? as usize;
    queues.put(owner, level % 2 * part.capacity() + at, batch)?;
    batch.clear();
    Ok(())
}

impl Search for Atomics<'_> {
    fn run(&mut self, root: u32) -> Result<()> {
        self.start(root)?;
        let part = self.graph.part;
        let cursors = self.cursors.local();
        let open = Open {
            part,
            rows: self.graph.reader()?,
            parents: self.parents.lock_all()?,
            queues: self.queues.lock_all()?,
            cursors: self.cursors.lock_all()?,
        };
        for level in 0usize.. {
            // Worked off in the last level, filled in the next but one.
            fill(&cursors, (level + 2) % 3 * 2, 2, 0)?;
            let mut found = 0;
            for step in 0..part.ranks {
                let victim = Rank((part.rank + step) % part.ranks);
                found += open.work_off(victim, level, &mut self.private)?;
            }
            for (owner, batch) in self.private.batches.iter_mut().enumerate() {
                if !batch.is_empty() {
                    let to = (Rank(owner as u32), level + 1);
                    append(&open.cursors, &open.queues, to, part, batch)?;
                }
            }
            open.queues.flush_all()?;
            if total(self.team, found)? == 0 {
                break;
            }
        }
        open.cursors.unlock_all()?;
        open.queues.unlock_all()?;
        open.parents.unlock_all()
    }

    fn parents(&mut self, parents: &mut [u32]) -> Result<()> {
        parents_of(&self.parents, self.graph.part, NONE, parents, |parent| parent)
    }
}
