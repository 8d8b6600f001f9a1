//! Breadth-first search by accumulates in fence epochs.
//!
//! A vertex's word holds `level << 32 | parent`; reaching it is an accumulate of the minimum, so
//! no origin has to know whether it was reached before, and the tree does not depend on timing.
//! A second accumulate notes the vertex in a bitmap, so that its owner finds the new ones without
//! looking at all its words. One fence ends a level.
//!
//! ```text
//!   window of a rank:  | words, one a vertex | notes, even levels | notes, odd levels |
//! ```
//! Two sets of notes: the owner reads and clears one while the others fill the other.

use super::super::work::total;
use super::bitmap::Bitmap;
use super::partition::NONE;
use super::search::{Search, fill, parents_of};
use super::shared::Shared;
use hither::layout::Op;
use hither::{Result, Team, Window};

/// The formulation's windows and private state.
pub struct Accumulate<'g> {
    team: &'g Team,
    graph: &'g Shared,
    words: Window<u64>,
    seen: Bitmap,
    notes: Vec<u64>,
}

impl<'g> Accumulate<'g> {
    /// Collective.
    pub fn new(team: &'g Team, graph: &'g Shared) -> Result<Self> {
        let capacity = graph.part.capacity();
        let notes = capacity.div_ceil(64);
        Ok(Accumulate {
            team,
            graph,
            words: Window::allocate(team, capacity + 2 * notes)?,
            seen: Bitmap::new(graph.part.vertices as usize),
            notes: vec![0; notes],
        })
    }
}

impl Search for Accumulate<'_> {
    fn run(&mut self, root: u32) -> Result<()> {
        let part = self.graph.part;
        let capacity = part.capacity();
        let local = self.words.local();
        fill(&local, 0, capacity, u64::MAX)?;
        self.seen.clear();
        self.seen.insert(root);
        let mut frontier = Vec::new();
        let (owner, place) = part.place(root);
        if owner.0 == part.rank {
            local.set(place, u64::from(root))?;
            frontier.push(root);
        }
        let rows = self.graph.reader()?;
        let mut epoch = self.words.fence()?;
        for level in 1u64.. {
            let notes_at = capacity + (level % 2) as usize * self.notes.len();
            for &vertex in &frontier {
                let word = [level << 32 | u64::from(vertex)];
                let row = rows.neighbours(vertex)?;
                for index in 0..row.len() {
                    let next = row.get(index)?;
                    if self.seen.insert(next) {
                        let (owner, place) = part.place(next);
                        epoch.accumulate(owner, place, Op::Min, &word)?;
                        let note = [1u64 << (place % 64)];
                        epoch.accumulate(owner, notes_at + place / 64, Op::BitOr, &note)?;
                    }
                }
            }
            epoch.next()?;
            frontier.clear();
            local.read(notes_at, &mut self.notes)?;
            for (index, note) in self.notes.iter_mut().enumerate() {
                while *note != 0 {
                    let place = index * 64 + note.trailing_zeros() as usize;
                    *note &= *note - 1;
                    // Noted in vain if an earlier level had reached it.
                    if local.get(place)? >> 32 == level {
                        let vertex = part.vertex(part.rank, place);
                        self.seen.insert(vertex);
                        frontier.push(vertex);
                    }
                }
            }
            local.write(notes_at, &self.notes)?;
            if total(self.team, frontier.len() as u64)? == 0 {
                break;
            }
        }
        epoch.end()
    }

    fn parents(&mut self, parents: &mut [u32]) -> Result<()> {
        let parent = |word| if word == u64::MAX { NONE } else { word as u32 };
        parents_of(&self.words, self.graph.part, u64::MAX, parents, parent)
    }
}
