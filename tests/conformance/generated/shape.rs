//! The dimension of layouts: which elements an operation touches, written down plainly, and the
//! same as the library's layouts.

use super::dimension::Shape;
use hither::{Datum, Layout, Order, Result};

impl Shape {
    /// Whether there are many elements.
    pub fn is_long(self) -> bool {
        matches!(self, Shape::Long | Shape::LongVector)
    }

    /// Elements of a block of the window that an operation of this shape stays in; even.
    pub fn span(self) -> usize {
        match self {
            Shape::Contiguous | Shape::VectorOrigin => 12,
            Shape::Vector | Shape::VectorBoth | Shape::Resized => 14,
            Shape::Indexed | Shape::IndexedBoth | Shape::Structure => 16,
            Shape::Subarray => 22,
            Shape::Long | Shape::LongVector => 2600,
        }
    }

    /// Element of the block at which an operation starts.
    pub fn start(self) -> usize {
        2
    }

    /// The elements touched, in order, counted from the start.
    pub fn places(self) -> Vec<usize> {
        match self {
            Shape::Contiguous | Shape::VectorOrigin => (0..6).collect(),
            Shape::Long => (0..2501).collect(),
            Shape::Vector | Shape::VectorBoth => vec![0, 1, 4, 5, 8, 9],
            Shape::Indexed | Shape::IndexedBoth => vec![5, 1, 2, 9, 10, 11],
            Shape::Structure => vec![0, 3, 4, 8, 10, 1],
            Shape::Subarray => vec![6, 7, 8, 11, 12, 13],
            Shape::Resized => vec![0, 2, 6, 8],
            Shape::LongVector => (0..800).flat_map(|i| [3 * i, 3 * i + 1]).collect(),
        }
    }

    /// The layout at the target and its count, if it is not contiguous.
    pub fn at_target<T: Datum>(self) -> Result<Option<(Layout, usize)>> {
        let one = Layout::of::<T>();
        let size = size_of::<T>() as isize;
        Ok(Some(match self {
            Shape::Contiguous | Shape::Long => return Ok(None),
            Shape::VectorOrigin => (one, 6),
            Shape::Vector | Shape::VectorBoth => (one.vector(3, 2, 4)?, 1),
            Shape::Indexed | Shape::IndexedBoth => {
                (one.indexed(&[(5, 1), (1, 2), (9, 3), (77, 0)])?, 1)
            }
            Shape::Structure => {
                let pair = one.vector(2, 1, 2)?;
                let members =
                    [(0, 1, one.clone()), (3 * size, 2, one.clone()), (8 * size, 1, pair)];
                let rest = Layout::structure(&members)?;
                (Layout::structure(&[(0, 1, rest), (size, 1, one)])?, 1)
            }
            Shape::Subarray => (one.subarray(&[4, 5], &[2, 3], &[1, 1], Order::C)?, 1),
            Shape::Resized => (one.vector(2, 1, 2)?.resized(0, 6 * size)?, 2),
            Shape::LongVector => (one.vector(800, 2, 3)?, 1),
        }))
    }

    /// The layout at the origin, its count, and which elements of the buffer those are.
    pub fn at_origin<T: Datum>(self) -> Result<(Layout, usize, Vec<usize>)> {
        let one = Layout::of::<T>();
        let count = self.places().len();
        Ok(match self {
            Shape::VectorOrigin | Shape::VectorBoth => {
                (one.vector(2, 3, 5)?, 1, vec![0, 1, 2, 5, 6, 7])
            }
            // Backwards.
            Shape::IndexedBoth => {
                let blocks: Vec<(isize, usize)> = (0..6).rev().map(|i| (2 * i, 1)).collect();
                (one.indexed(&blocks)?, 1, (0..6).rev().map(|i| 2 * i).collect())
            }
            _ => (one, count, (0..count).collect()),
        })
    }
}
