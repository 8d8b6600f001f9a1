//! What leaves the node.

pub mod pools;
pub mod ranks;
pub mod ud;
pub mod wire;
