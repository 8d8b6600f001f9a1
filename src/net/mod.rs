//! What leaves the node.

pub mod ranks;
pub mod ud;
pub mod wire;
