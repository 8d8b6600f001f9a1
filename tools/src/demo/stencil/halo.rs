//! The distributed sweeps: faces are packed and put into the neighbours' halo slots, a
//! synchronisation makes them visible, the ghosts are filled, every cell is updated.
//!
//! ```text
//!   window of a rank:  | even sweeps | odd sweeps |, each: z below, z above, y below, ... x above
//! ```
//! Two sets of slots: a neighbour that is one sweep ahead puts into the set that is not being
//! read, and cannot be two ahead.

use super::field::Field;
use super::grid::Grid;
use hither::{FenceEpoch, LockAllEpoch, Rank, Result, Team, Window};

/// How a sweep's puts are completed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// A fence epoch.
    Fence,
    /// A lock_all epoch: flush, then a barrier.
    Flush,
}

enum Epoch<'w> {
    Fence(FenceEpoch<'w, f64>),
    Flush(LockAllEpoch<'w, f64>),
}

/// The halo slots over a team.
pub struct Halo<'t> {
    team: &'t Team,
    grid: Grid,
    window: Window<f64>,
    slot: usize,
}

impl<'t> Halo<'t> {
    /// Collective.
    pub fn new(team: &'t Team, grid: Grid) -> Result<Self> {
        let block: [usize; 3] = std::array::from_fn(|a| grid.cells[a].div_ceil(grid.ranks[a]));
        let cells: usize = block.iter().product();
        // The largest face across an axis that is divided at all.
        let slot = (0..3).filter(|&a| grid.ranks[a] > 1).map(|a| cells / block[a]).max();
        let slot = slot.unwrap_or(1);
        Ok(Halo { team, grid, window: Window::allocate(team, 12 * slot)?, slot })
    }

    fn slot_at(&self, sweep: usize, axis: usize, above: bool) -> usize {
        ((sweep % 2) * 6 + axis * 2 + usize::from(above)) * self.slot
    }

    /// Collective: sweeps over this rank's block.
    pub fn run(&self, field: &mut Field, sweeps: usize, sync: Sync) -> Result<()> {
        let rank = self.team.rank().index();
        let neighbours: Vec<(usize, bool, Rank)> = (0..3)
            .flat_map(|axis| [(axis, false), (axis, true)])
            .filter_map(|(axis, above)| {
                let other = self.grid.neighbour(rank, axis, above)?;
                Some((axis, above, Rank(other as u32)))
            })
            .collect();
        let mut epoch = match sync {
            Sync::Fence => Epoch::Fence(self.window.fence()?),
            Sync::Flush => Epoch::Flush(self.window.lock_all()?),
        };
        let halo = self.window.local();
        let mut face = Vec::new();
        for sweep in 0..sweeps {
            for &(axis, above, other) in &neighbours {
                field.pack(axis, above, &mut face);
                // What lies above this rank is below for its neighbour there.
                let at = self.slot_at(sweep, axis, !above);
                match &mut epoch {
                    Epoch::Fence(epoch) => epoch.put(other, at, &face)?,
                    Epoch::Flush(epoch) => epoch.put(other, at, &face)?,
                }
            }
            match &mut epoch {
                Epoch::Fence(epoch) => epoch.next()?,
                Epoch::Flush(epoch) => {
                    epoch.flush_all()?;
                    self.team.barrier()?;
                }
            }
            for &(axis, above, _) in &neighbours {
                face.resize(field.face_len(axis), 0.0);
                halo.read(self.slot_at(sweep, axis, above), &mut face)?;
                field.unpack(axis, above, &face);
            }
            field.sweep();
        }
        match epoch {
            Epoch::Fence(epoch) => epoch.end(),
            Epoch::Flush(epoch) => epoch.unlock_all(),
        }
    }
}
