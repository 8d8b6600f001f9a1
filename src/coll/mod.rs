//! Groups of processes and what they do together, straight on shared memory.
//!
//! A [`Team`] owns one block of the node's commons (`block`). All collectives are built from two
//! synchronising steps: a barrier (`barrier`) and a flat exchange of up to 48 bytes with every
//! member (`board`); larger data goes through each member's pieces (`exchange`, `reduce`).
//! `shrink` makes a team of the survivors after a death.

mod barrier;
mod block;
mod board;
mod exchange;
pub mod message;
mod reduce;
mod shrink;
mod split;
mod team;

pub use team::Team;
