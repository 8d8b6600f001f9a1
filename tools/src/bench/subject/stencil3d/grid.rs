//! Ranks on a periodic grid of three dimensions, and who is next to whom.

use hither::Rank;

/// Directions: below and above along each axis, in turn; `direction ^ 1` is the opposite one.
pub const DIRECTIONS: usize = 6;

/// A grid of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid([u32; 3]);

impl Grid {
    /// As near to a cube as the number of ranks allows.
    pub fn new(ranks: u32) -> Grid {
        let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
        let all = divisors(ranks)
            .flat_map(|x| divisors(ranks / x).map(move |y| [x, y, ranks / x / y]))
            .filter(|[x, y, z]| x >= y && y >= z);
        Grid(all.min_by_key(|[x, y, z]| x * y + y * z + z * x).unwrap_or([ranks, 1, 1]))
    }

    /// The neighbour in a direction; none along an axis on which the rank is alone.
    pub fn neighbour(self, rank: Rank, direction: usize) -> Option<Rank> {
        let axis = direction / 2;
        let length = self.0[axis];
        if length == 1 {
            return None;
        }
        let step: u32 = self.0[..axis].iter().product();
        let at = rank.0 / step % length;
        let next = if direction.is_multiple_of(2) { at + length - 1 } else { at + 1 } % length;
        Some(Rank(rank.0 - at * step + next * step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_near_to_cubes() {
        let of = |ranks| Grid::new(ranks).0;
        assert_eq!([of(1), of(2), of(4)], [[1, 1, 1], [2, 1, 1], [2, 2, 1]]);
        assert_eq!([of(7), of(8), of(12)], [[7, 1, 1], [2, 2, 2], [3, 2, 2]]);
        assert_eq!(of(64), [4, 4, 4]);
    }

    #[test]
    fn the_way_back_is_the_opposite_direction() {
        for ranks in 1..=30 {
            let grid = Grid::new(ranks);
            for (rank, direction) in (0..ranks).flat_map(|r| (0..DIRECTIONS).map(move |d| (r, d))) {
                if let Some(next) = grid.neighbour(Rank(rank), direction) {
                    assert!(next.0 < ranks && next.0 != rank);
                    assert_eq!(grid.neighbour(next, direction ^ 1), Some(Rank(rank)));
                }
            }
        }
        let cube = Grid::new(8);
        assert!((0..DIRECTIONS).all(|d| cube.neighbour(Rank(5), d).is_some()));
    }
}
