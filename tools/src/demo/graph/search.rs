//! What the formulations of breadth-first search have in common.

use super::partition::Partition;
use hither::layout::Datum;
use hither::{Rank, Result, View};

/// One formulation, with its windows.
pub trait Search {
    /// Collective: searches from a root. Forgetting the previous search is part of it.
    fn run(&mut self, root: u32) -> Result<()>;

    /// Collective: every vertex's parent after a search, in `parents`.
    fn parents(&mut self, parents: &mut [u32]) -> Result<()>;
}

/// Sets `count` elements from `start` to one value.
pub fn fill<T: Datum>(view: &View<'_, T>, start: usize, count: usize, value: T) -> Result<()> {
    const CHUNK: usize = 1024;
    let values = [value; CHUNK];
    let mut done = 0;
    while done < count {
        let length = CHUNK.min(count - done);
        view.write(start + done, &values[..length])?;
        done += length;
    }
    Ok(())
}

/// Spreads the parts of all ranks, read by `read(rank, part)`, over the vertices they belong to.
pub fn gather<T: Datum>(
    part: Partition,
    zero: T,
    mut read: impl FnMut(Rank, &mut [T]) -> Result<()>,
    mut place: impl FnMut(u32, T),
) -> Result<()> {
    let mut values = vec![zero; part.capacity()];
    for rank in 0..part.ranks {
        let values = &mut values[..part.owned_by(rank)];
        read(Rank(rank), values)?;
        for (local, &value) in values.iter().enumerate() {
            place(part.vertex(rank, local), value);
        }
    }
    Ok(())
}
