//! What the formulations of breadth-first search have in common.

use super::partition::Partition;
use hither::layout::Datum;
use hither::{Rank, Result, View, Window};

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

/// What stands in `words` for each vertex, made into its parent by `parent`. Collective: returns
/// when nobody reads any more, so that the next search may begin.
pub fn parents_of<T: Datum>(
    words: &Window<T>,
    part: Partition,
    zero: T,
    parents: &mut [u32],
    parent: impl Fn(T) -> u32,
) -> Result<()> {
    let epoch = words.lock_all()?;
    let mut values = vec![zero; part.capacity()];
    for rank in 0..part.ranks {
        let values = &mut values[..part.owned_by(rank)];
        epoch.get(Rank(rank), 0, values)?;
        for (local, &value) in values.iter().enumerate() {
            parents[part.vertex(rank, local) as usize] = parent(value);
        }
    }
    epoch.unlock_all()?;
    words.team().barrier()
}
