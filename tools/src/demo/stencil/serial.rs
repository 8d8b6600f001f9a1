//! The serial computation that results are checked against, bit for bit: the plain loops over
//! the whole grid, adding in the same order as the distributed sweep.

use super::field::initial;
use super::grid::Extent;

/// The cells after `sweeps` sweeps, x fastest, without the rim.
pub fn run(cells: Extent, sweeps: usize) -> Vec<f64> {
    let flat = cells[0] == 1;
    let full = [if flat { 1 } else { cells[0] + 2 }, cells[1] + 2, cells[2] + 2];
    let index = |z: usize, y: usize, x: usize| (z * full[1] + y) * full[2] + x;
    let mut now = vec![0.0; full.iter().product()];
    for z in 0..full[0] {
        for y in 0..full[1] {
            for x in 0..full[2] {
                now[index(z, y, x)] = initial(cells, [z, y, x]);
            }
        }
    }
    let mut next = now.clone();
    let inner = if flat { 0..1 } else { 1..cells[0] + 1 };
    for _ in 0..sweeps {
        for z in inner.clone() {
            for y in 1..=cells[1] {
                for x in 1..=cells[2] {
                    let plane = (
                        now[index(z, y - 1, x)] + now[index(z, y + 1, x)],
                        now[index(z, y, x - 1)] + now[index(z, y, x + 1)],
                    );
                    next[index(z, y, x)] = if flat {
                        (plane.0 + plane.1) * 0.25
                    } else {
                        let column = now[index(z - 1, y, x)] + now[index(z + 1, y, x)];
                        (column + plane.0 + plane.1) * (1.0 / 6.0)
                    };
                }
            }
        }
        std::mem::swap(&mut now, &mut next);
    }
    let mut result = Vec::with_capacity(cells.iter().product());
    for z in inner {
        for y in 1..=cells[1] {
            result.extend_from_slice(&now[index(z, y, 1)..index(z, y, cells[2] + 1)]);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::field::Field;
    use super::super::grid::Grid;
    use super::*;

    /// All ranks' blocks in one process, faces handed over directly.
    fn blocks(cells: Extent, ranks: usize, sweeps: usize) -> Vec<f64> {
        let grid = Grid::new(cells, ranks).expect("the ranks fit");
        let mut fields: Vec<Field> =
            (0..ranks).map(|r| Field::new(cells, &grid.block(r))).collect();
        let mut face = Vec::new();
        for _ in 0..sweeps {
            for rank in 0..ranks {
                for (axis, above) in (0..3).flat_map(|a| [(a, false), (a, true)]) {
                    if let Some(other) = grid.neighbour(rank, axis, above) {
                        fields[rank].pack(axis, above, &mut face);
                        assert_eq!(face.len(), fields[rank].face_len(axis));
                        fields[other].unpack(axis, !above, &face);
                    }
                }
            }
            fields.iter_mut().for_each(Field::sweep);
        }
        let mut whole = vec![f64::NAN; cells.iter().product()];
        for (rank, field) in fields.iter().enumerate() {
            let [zs, ys, xs] = grid.block(rank);
            let places = zs.flat_map(|z| ys.clone().map(move |y| (z, y)));
            for ((z, y), row) in places.zip(field.cells().chunks(xs.len())) {
                let at = (z * cells[1] + y) * cells[2] + xs.start;
                whole[at..at + row.len()].copy_from_slice(row);
            }
        }
        whole
    }

    #[test]
    fn blocks_with_exchanged_faces_equal_the_serial_result_bit_for_bit() {
        for cells in [[1, 19, 23], [7, 9, 11], [2, 12, 8]] {
            for sweeps in [0, 1, 7] {
                let want: Vec<u64> = run(cells, sweeps).iter().map(|v| v.to_bits()).collect();
                for ranks in [1, 2, 3, 4, 8] {
                    let have: Vec<u64> =
                        blocks(cells, ranks, sweeps).iter().map(|v| v.to_bits()).collect();
                    assert!(have == want, "{cells:?} at {ranks} ranks, {sweeps} sweeps");
                }
            }
        }
    }

    #[test]
    fn a_single_cell_is_the_mean_of_its_rim() {
        let rim = [[0, 0, 1], [0, 2, 1], [0, 1, 0], [0, 1, 2]];
        let value = rim.map(|at| initial([1, 1, 1], at));
        let want = ((value[0] + value[1]) + (value[2] + value[3])) * 0.25;
        assert_eq!(run([1, 1, 1], 1), [want]);
    }
}
