//! Describing data: element types, the predefined operations on them, and layouts that say which
//! bytes of memory an operation moves.
//!
//! ```text
//!   type level     Datum (any plain data)  >  Numeric (Op applies)  >  rma's Element
//!   run time       Kind, a number per element type, for packets and untyped code
//!
//!   Layout::of::<T>() --- vector, indexed, structure, subarray ..---> Layout --- times(n) ---> Shape
//!                              describe, node (normal form)             |                        |
//!                                                            wire: encode, decode     Cursor: next_piece,
//!                                                                                     next_comb, seek
//! ```
//! | module | owns |
//! |---|---|
//! | [`datum`] | what may be carried at all |
//! | [`kind`] | element kinds at run time |
//! | [`op`] | the predefined operations and what they apply to |
//! | [`located`] | values with an index, for `MinLoc` and `MaxLoc` |
//! | [`describe`] | layouts and shapes, built as MPI derived datatypes are |
//! | `node` | their normal form: nested strides stay as small as they were described |
//! | [`cursor`] | walking through a shape in packed order, from any position, in bounded steps |
//! | [`wire`] | layouts as bytes, checked when they are read |
//!
//! A shape is bytes, not elements: both sides of an operation may have different ones, of the same
//! packed size. Nothing here knows windows or other processes.

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
