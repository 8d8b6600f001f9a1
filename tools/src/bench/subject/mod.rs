//! The library's side of the comparisons.

pub mod active;
pub mod bfs;
pub mod coll;
pub mod collectives;
pub mod echo;
pub mod idle;
pub mod instructions;
pub mod limits;
pub mod link;
pub mod memory;
pub mod messages;
pub mod metadata;
pub mod net;
pub mod net_switch;
pub mod net_windows;
pub mod overhead;
pub mod oversub;
pub mod rma;
pub mod scale;
pub mod start;
pub mod stencil3d;
pub mod talk;
pub mod variants;
pub mod window;
