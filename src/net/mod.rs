//! What leaves the node.

pub mod ud;
pub mod wire;
