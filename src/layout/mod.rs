//! Describing data: element types, the predefined operations on them, and layouts that say which
//! bytes of memory an operation moves.

pub mod cursor;
pub mod datum;
pub mod describe;
pub mod kind;
pub mod located;
mod node;
pub mod op;
pub mod wire;

#[cfg(test)]
mod tests;

pub use cursor::{Comb, Cursor, Piece};
pub use datum::Datum;
pub use describe::{Layout, Order, Shape};
pub use kind::Kind;
pub use located::Located;
pub use op::{Numeric, Op};
