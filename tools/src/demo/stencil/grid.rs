//! How a grid of cells is divided among the ranks.

use std::ops::Range;

/// Axes are ordered z, y, x; x is contiguous in memory. Two-dimensional grids have one z.
pub type Extent = [usize; 3];

/// A block decomposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Cells in all.
    pub cells: Extent,
    /// Ranks along each axis.
    pub ranks: Extent,
}

impl Grid {
    /// Divides `cells` among `ranks` so that the largest number of cells a rank must send is
    /// smallest. None if there are fewer cells along the axes than ranks.
    pub fn new(cells: Extent, ranks: usize) -> Option<Grid> {
        let mut best: Option<(usize, Extent)> = None;
        for z in (1..=ranks).filter(|z| ranks.is_multiple_of(*z)) {
            for y in (1..=ranks / z).filter(|y| (ranks / z).is_multiple_of(*y)) {
                let split = [z, y, ranks / z / y];
                if (0..3).any(|axis| split[axis] > cells[axis]) {
                    continue;
                }
                let block: Extent = std::array::from_fn(|a| cells[a].div_ceil(split[a]));
                let surface = (0..3)
                    .map(|axis| {
                        let sides = (split[axis] - 1).min(2);
                        sides * block.iter().product::<usize>() / block[axis]
                    })
                    .sum();
                // Among equals the later axes stay whole: their faces are strided.
                if best.is_none_or(|(least, old)| (surface, old) < (least, split)) {
                    best = Some((surface, split));
                }
            }
        }
        best.map(|(_, ranks)| Grid { cells, ranks })
    }

    /// Place of a rank in the grid of ranks.
    pub fn place(&self, rank: usize) -> Extent {
        let [_, y, x] = self.ranks;
        [rank / (y * x), rank / x % y, rank % x]
    }

    /// The cells of a rank.
    pub fn block(&self, rank: usize) -> [Range<usize>; 3] {
        let place = self.place(rank);
        std::array::from_fn(|a| {
            let cut = |i: usize| self.cells[a] * i / self.ranks[a];
            cut(place[a])..cut(place[a] + 1)
        })
    }

    /// The neighbour of a rank along an axis, below (`false`) or above (`true`) it.
    pub fn neighbour(&self, rank: usize, axis: usize, above: bool) -> Option<usize> {
        let mut place = self.place(rank);
        if above {
            place[axis] += 1;
            if place[axis] == self.ranks[axis] {
                return None;
            }
        } else {
            place[axis] = place[axis].checked_sub(1)?;
        }
        let [_, y, x] = self.ranks;
        Some((place[0] * y + place[1]) * x + place[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_tile_the_cells_and_neighbours_are_mutual() {
        for ranks in 1..=12 {
            for cells in [[1, 37, 41], [13, 17, 12], [1, 5, 100]] {
                let Some(grid) = Grid::new(cells, ranks) else {
                    panic!("{ranks} ranks must fit {cells:?}");
                };
                assert_eq!(grid.ranks.iter().product::<usize>(), ranks);
                let mut owner = vec![usize::MAX; cells.iter().product()];
                for rank in 0..ranks {
                    let [zs, ys, xs] = grid.block(rank);
                    for (z, y) in zs.flat_map(|z| ys.clone().map(move |y| (z, y))) {
                        for x in xs.clone() {
                            let cell = &mut owner[(z * cells[1] + y) * cells[2] + x];
                            assert_eq!(std::mem::replace(cell, rank), usize::MAX);
                        }
                    }
                    for axis in 0..3 {
                        if let Some(above) = grid.neighbour(rank, axis, true) {
                            assert_eq!(grid.neighbour(above, axis, false), Some(rank));
                            assert_eq!(grid.block(rank)[axis].end, grid.block(above)[axis].start);
                        }
                    }
                }
                assert!(owner.iter().all(|&o| o < ranks));
            }
        }
    }

    #[test]
    fn divisions_have_little_surface() {
        assert_eq!(Grid::new([1, 100, 100], 4).map(|g| g.ranks), Some([1, 2, 2]));
        assert_eq!(Grid::new([1, 100, 100], 2).map(|g| g.ranks), Some([1, 2, 1]));
        assert_eq!(Grid::new([64, 64, 64], 8).map(|g| g.ranks), Some([2, 2, 2]));
        assert_eq!(Grid::new([1, 1000, 10], 8).map(|g| g.ranks), Some([1, 8, 1]));
        assert_eq!(Grid::new([1, 2, 2], 8), None);
    }
}
