//! The library's side of the comparisons.

pub mod limits;
