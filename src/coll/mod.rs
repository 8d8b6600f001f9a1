//! Groups of processes and what they do together, straight on shared memory.
//!
//! ```text
//! broadcast gather scatter alltoall reduce reduce_scatter scan barrier agree   what a program calls
//!      |        |  algorithms of each, as asynchronous functions
//!      |   operation, blocks, pieces, direct    combining, where data lie, how they are passed
//!      |        |
//! step (run through, or asked again and again) <- queue (what was begun and does not block)
//!      |
//! barrier, board      the two synchronising steps of which everything is made
//!      |
//! core, sign          a member's place, the number of its step, and what it is in
//!      |
//! block               the team's memory
//! ```
//! A [`Team`] owns one block of the node's commons. Which algorithm does what, [`select`] says.
//! `shrink` makes a team of the survivors after a death, `split` teams of parts.
//!
//! A job has one node in this version, so all members share memory. Where a team spans nodes, each
//! algorithm has its node step (among the members of a node, which is what is here) before or after
//! a leader step (among one member of each node).

mod agree;
mod alltoall;
mod aside;
mod barrier;
mod block;
mod blocks;
mod board;
mod broadcast;
mod call;
mod compare;
mod core;
mod direct;
mod far;
mod far_reduce;
#[cfg(test)]
mod far_tests;
mod gather;
pub mod message;
mod operation;
mod pieces;
mod post;
mod queue;
mod reduce;
mod reduce_scatter;
mod revoke;
mod scan;
mod scatter;
pub mod select;
mod shrink;
mod sign;
mod span;
mod split;
mod step;
mod survivors;
mod team;
#[cfg(test)]
mod tests;
mod ways;

pub use blocks::Parts;
pub use operation::{Each, Operation, Slices, each, slices};
pub use sign::What;
pub use team::Team;
