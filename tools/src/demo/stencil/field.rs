//! One rank's block of cells in private memory, with a layer of ghost cells around it, and the
//! Jacobi sweep over it.
//!
//! Ghosts hold the neighbours' cells or, at the rim of the whole grid, the fixed boundary. Only
//! faces are needed: the stencil has no diagonal neighbours.

use super::super::random::Stream;
use super::grid::Extent;
use std::ops::Range;

/// Value of a cell of the grid with its rim (so coordinates start at 0 for the rim) before the
/// first sweep; the rim keeps it.
pub fn initial(cells: Extent, [z, y, x]: Extent) -> f64 {
    let index = (z * (cells[1] + 2) + y) * (cells[2] + 2) + x;
    // 53 bits: exact, so that every rank has the same value.
    (Stream::new(11).at(index as u64) >> 11) as f64 / (1u64 << 53) as f64
}

/// A block of cells.
pub struct Field {
    size: Extent,
    /// Ghost layers below each axis: none along z in two dimensions.
    ghost: Extent,
    /// Distance in `now` between neighbours along each axis.
    stride: Extent,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Field {
    /// The cells `block` of a grid of `cells`, before the first sweep.
    pub fn new(cells: Extent, block: &[Range<usize>; 3]) -> Field {
        let ghost = [usize::from(cells[0] > 1), 1, 1];
        let size: Extent = std::array::from_fn(|a| block[a].len());
        let full: Extent = std::array::from_fn(|a| size[a] + 2 * ghost[a]);
        let mut now = Vec::with_capacity(full.iter().product());
        for z in 0..full[0] {
            for y in 0..full[1] {
                for x in 0..full[2] {
                    let at = [block[0].start + z, block[1].start + y, block[2].start + x];
                    now.push(initial(cells, at));
                }
            }
        }
        let next = now.clone();
        Field { size, ghost, stride: [full[1] * full[2], full[2], 1], now, next }
    }

    /// Number of cells of a face across an axis.
    pub fn face_len(&self, axis: usize) -> usize {
        self.size.iter().product::<usize>() / self.size[axis]
    }

    fn at(&self, [z, y, x]: Extent) -> usize {
        (z + self.ghost[0]) * self.stride[0]
            + (y + self.ghost[1]) * self.stride[1]
            + (x + self.ghost[2])
    }

    /// Where each line of the layer of cells from `start` on begins, across an axis; with how many cells a line
    /// has, and how far apart they are.
    fn layer(
        &self,
        axis: usize,
        start: usize,
    ) -> (impl Iterator<Item = usize> + use<>, usize, usize) {
        let (outer, inner) = match axis {
            0 => (1, 2),
            1 => (0, 2),
            _ => (0, 1),
        };
        let stride = self.stride[outer];
        let lines = (0..self.size[outer]).map(move |line| start + line * stride);
        (lines, self.size[inner], self.stride[inner])
    }

    /// Packs the outermost cells across an axis, at its lower or upper end.
    pub fn pack(&self, axis: usize, above: bool, face: &mut Vec<f64>) {
        let mut corner = [0; 3];
        if above {
            corner[axis] = self.size[axis] - 1;
        }
        face.clear();
        let (lines, count, apart) = self.layer(axis, self.at(corner));
        for at in lines {
            match apart {
                1 => face.extend_from_slice(&self.now[at..at + count]),
                _ => face.extend(self.now[at..].iter().step_by(apart).take(count)),
            }
        }
    }

    /// Fills the ghosts beyond the lower or upper end of an axis.
    pub fn unpack(&mut self, axis: usize, above: bool, face: &[f64]) {
        let start = if above {
            let mut corner = [0; 3];
            corner[axis] = self.size[axis];
            self.at(corner)
        } else {
            self.at([0; 3]) - self.stride[axis]
        };
        let (lines, count, apart) = self.layer(axis, start);
        for (at, values) in lines.zip(face.chunks_exact(count.max(1))) {
            match apart {
                1 => self.now[at..at + count].copy_from_slice(values),
                _ => {
                    let cells = self.now[at..].iter_mut().step_by(apart);
                    cells.zip(values).for_each(|(cell, value)| *cell = *value);
                }
            }
        }
    }

    /// One Jacobi sweep: every cell becomes the mean of its neighbours.
    pub fn sweep(&mut self) {
        let [nz, ny, nx] = self.size;
        for z in 0..nz {
            for y in 0..ny {
                let start = self.at([z, y, 0]);
                let row = |from: usize| &self.now[from..from + nx];
                let (south, north) = (row(start - self.stride[1]), row(start + self.stride[1]));
                let (west, east) = (row(start - 1), row(start + 1));
                let target = &mut self.next[start..start + nx];
                if self.ghost[0] == 0 {
                    for x in 0..nx {
                        target[x] = ((south[x] + north[x]) + (west[x] + east[x])) * 0.25;
                    }
                } else {
                    let (down, up) = (row(start - self.stride[0]), row(start + self.stride[0]));
                    for x in 0..nx {
                        let sum = (down[x] + up[x]) + (south[x] + north[x]) + (west[x] + east[x]);
                        target[x] = sum * (1.0 / 6.0);
                    }
                }
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Copies the cells without ghosts, x fastest.
    pub fn cells(&self) -> Vec<f64> {
        let [nz, ny, nx] = self.size;
        let mut cells = Vec::with_capacity(nz * ny * nx);
        for (z, y) in (0..nz).flat_map(|z| (0..ny).map(move |y| (z, y))) {
            let start = self.at([z, y, 0]);
            cells.extend_from_slice(&self.now[start..start + nx]);
        }
        cells
    }
}
