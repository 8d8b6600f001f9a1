//! The computing of a step: cells in three dimensions, each of which becomes the mean of its six
//! neighbours. Its amount depends on the messages' size and number alone, not on how they travel.

/// Layers of cells for each message of a step: then computing takes about as long as the messages,
/// and whatever is not hidden behind it shows.
const LAYERS: usize = 1;

/// Layers of cells as large as a message, with a rim that stays as it is.
pub struct Block {
    side: usize,
    layers: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Block {
    /// For so many messages of `bytes` bytes in a step.
    pub fn new(bytes: usize, messages: usize) -> Block {
        let side = (bytes / size_of::<f64>()).isqrt();
        let layers = LAYERS * messages.max(1);
        let cells = (side + 2) * (side + 2) * (layers + 2);
        let now: Vec<f64> = (0..cells).map(|at| (at % 17) as f64).collect();
        Block { side, layers, next: now.clone(), now }
    }

    /// One sweep over all cells.
    pub fn sweep(&mut self) {
        let (row, n) = (self.side + 2, self.side);
        let layer = row * row;
        for z in 1..=self.layers {
            for y in 1..=n {
                let start = z * layer + y * row + 1;
                let of = |from: usize| &self.now[from..from + n];
                let (down, up) = (of(start - layer), of(start + layer));
                let (south, north) = (of(start - row), of(start + row));
                let (west, east) = (of(start - 1), of(start + 1));
                let target = &mut self.next[start..start + n];
                for x in 0..n {
                    let sum = (down[x] + up[x]) + (south[x] + north[x]) + (west[x] + east[x]);
                    target[x] = sum * (1.0 / 6.0);
                }
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// A cell of the middle: what ranks tell each other at the end of a step.
    pub fn middle(&self) -> f64 {
        self.now[self.now.len() / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_become_means_and_the_rim_stays() {
        let mut block = Block::new(4 * 8, 3);
        block.now.fill(6.0);
        block.next.fill(6.0);
        let middle = 2 * 16 + 4 + 1;
        block.now[middle] = 0.0;
        block.sweep();
        assert_eq!(block.now[middle], 6.0);
        // Its six neighbours, of which those in the rim do not change.
        for (at, want) in [(middle + 1, 5.0), (middle + 4, 5.0), (middle - 16, 5.0)] {
            assert_eq!(block.now[at], want);
        }
        assert_eq!(block.now[middle - 1], 6.0);
        assert_eq!(block.now.len(), 4 * 4 * 5);
    }
}
