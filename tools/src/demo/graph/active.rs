//! Breadth-first search by active messages: an origin collects what it wants to tell a rank, and
//! the handler sets parents and appends to the target's queue. Messages to one target run one
//! after the other, so the handler is plain sequential code.
//!
//! ```text
//!   window of a rank:  | parents | queue, even levels | queue, odd levels | their lengths |
//! ```

use super::super::work::total;
use super::bitmap::Bitmap;
use super::partition::NONE;
use super::search::{Search, fill, parents_of};
use super::shared::Shared;
use hither::{Handler, LockAllEpoch, Rank, Result, Team, View, Window};

/// A proposal to a rank: the place of a vertex there, and its parent.
type Proposal = [u32; 2];

/// Proposals in a message.
const BATCH: usize = 512;

/// The formulation's window and private state.
pub struct Active<'g> {
    team: &'g Team,
    graph: &'g Shared,
    window: Window<u32>,
    reach: Handler<u32, Proposal, u32>,
    seen: Bitmap,
    batches: Vec<Vec<Proposal>>,
}

/// The handler: takes what is new among the proposals. The first one says which queue.
fn take(proposals: &[Proposal], memory: &View<'_, u32>, capacity: usize) -> Result<u32> {
    let Some((&[queue, _], proposals)) = proposals.split_first() else { return Ok(0) };
    let queue = queue as usize;
    let queue_at = capacity * (1 + queue);
    let length_at = 3 * capacity + queue;
    let before = memory.get(length_at)?;
    let mut length = before;
    for &[place, parent] in proposals {
        if memory.get(place as usize)? == NONE {
            memory.set(place as usize, parent)?;
            memory.set(queue_at + length as usize, place)?;
            length += 1;
        }
    }
    memory.set(length_at, length)?;
    Ok(length - before)
}

impl<'g> Active<'g> {
    /// Collective.
    pub fn new(team: &'g Team, graph: &'g Shared) -> Result<Self> {
        let capacity = graph.part.capacity();
        let window = Window::<u32>::allocate(team, 3 * capacity + 2)?;
        let reach = window.register::<Proposal, u32>(0, move |call| {
            // Places come from the partition: they are inside the window on every rank.
            call.output[0] = take(call.input, &call.persistent, capacity).unwrap_or(NONE);
        })?;
        let ranks = team.size() as usize;
        Ok(Active {
            team,
            graph,
            window,
            reach,
            seen: Bitmap::new(graph.part.vertices as usize),
            batches: vec![Vec::with_capacity(BATCH + 1); ranks],
        })
    }
}

impl Search for Active<'_> {
    fn run(&mut self, root: u32) -> Result<()> {
        let part = self.graph.part;
        let capacity = part.capacity();
        let local = self.window.local();
        fill(&local, 0, capacity, NONE)?;
        fill(&local, 3 * capacity, 2, 0)?;
        self.seen.clear();
        self.seen.insert(root);
        let (owner, place) = part.place(root);
        if owner.0 == part.rank {
            local.set(place, root)?;
            local.set(capacity, place as u32)?;
            local.set(3 * capacity, 1)?;
        }
        self.team.barrier()?;
        let rows = self.graph.reader()?;
        let epoch = self.window.lock_all()?;
        let mut frontier = Vec::new();
        for level in 0usize.. {
            let (queue, next_queue) = (level % 2, (level as u32 + 1) % 2);
            // Messages of this level go to the other queue, so this one can be emptied at once.
            let length = local.get(3 * capacity + queue)? as usize;
            frontier.resize(length, 0);
            local.read(capacity * (1 + queue), &mut frontier)?;
            local.set(3 * capacity + queue, 0)?;
            let mut taken = 0;
            let mut send =
                |epoch: &LockAllEpoch<'_, u32>, owner: usize, batch: &mut Vec<Proposal>| {
                    let mut new = [0];
                    let target = Rank(owner as u32);
                    epoch.am(&self.reach, target, 0..3 * capacity + 2, batch, &mut new)?;
                    taken += u64::from(new[0]);
                    batch.clear();
                    Ok(())
                };
            for &place in &frontier {
                let vertex = part.vertex(part.rank, place as usize);
                let row = rows.row(Rank(part.rank), place as usize)?;
                for index in 0..row.len() {
                    let next = row.get(index)?;
                    if self.seen.insert(next) {
                        let (owner, place) = part.place(next);
                        let batch = &mut self.batches[owner.index()];
                        if batch.is_empty() {
                            batch.push([next_queue, 0]);
                        }
                        batch.push([place as u32, vertex]);
                        if batch.len() > BATCH {
                            send(&epoch, owner.index(), batch)?;
                        }
                    }
                }
            }
            for step in 0..self.batches.len() {
                let owner = (part.rank as usize + step) % self.batches.len();
                if !self.batches[owner].is_empty() {
                    send(&epoch, owner, &mut self.batches[owner])?;
                }
            }
            epoch.flush_all()?;
            if total(self.team, taken)? == 0 {
                break;
            }
        }
        epoch.unlock_all()
    }

    fn parents(&mut self, parents: &mut [u32]) -> Result<()> {
        parents_of(&self.window, self.graph.part, NONE, parents, |parent| parent)
    }
}
