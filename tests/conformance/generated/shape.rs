//! The dimension of layouts: which elements an operation touches, written down plainly.

use super::dimension::Shape;

impl Shape {
    /// Elements of a block that an operation of this shape stays in.
    pub fn span(self) -> usize {
        match self {
            Shape::Contiguous => 12,
            Shape::Long => 2600,
        }
    }

    /// The elements touched, in order.
    pub fn places(self) -> Vec<usize> {
        match self {
            Shape::Contiguous => (4..9).collect(),
            Shape::Long => (2..2501).collect(),
        }
    }
}
