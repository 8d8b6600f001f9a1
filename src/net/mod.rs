//! What leaves the node.

pub mod wire;
