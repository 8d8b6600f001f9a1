//! The edge of a node: traffic that leaves it.

pub mod pools;
pub mod promotion;
pub mod ranks;
pub mod regcache;
pub mod switch;
pub mod ud;
pub mod wire;
