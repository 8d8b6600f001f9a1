//! Describing data: element types, and the predefined operations on them.

pub mod datum;
pub mod kind;
pub mod located;
pub mod op;

pub use datum::Datum;
pub use kind::Kind;
pub use located::Located;
pub use op::{Numeric, Op};
