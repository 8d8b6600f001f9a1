//! Which process a rank of a group is, and how processes are reached, without a table of all ranks
//! wherever there is a rule.
//!
//! ```text
//!   rank in a group --Numbers--> process of the job --Addresses--> where datagrams go: asked for
//!                                                                  once, the latest ones are kept
//! ```
//! In the manner of the maps of local process ids of paper 001 §5.3: what is above knows ranks only,
//! what is below is found through a map that is computed where it can be. The regular ones have a
//! constant size, those with runs one that grows with the number of runs; only where nothing else is
//! smaller is there a table. [`Numbers::detect`] finds the rule in a list. On which node a process is
//! says `topo::Places`, in the same manner.

mod addresses;
mod numbers;
#[cfg(test)]
mod tests;

pub use addresses::{Address, Addresses};
pub use numbers::Numbers;
