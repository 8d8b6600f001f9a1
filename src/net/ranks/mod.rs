//! Which process a rank is, where that process is, and how it is reached, without a table of all
//! ranks wherever there is a rule.
//!
//! ```text
//!   rank in a group --Numbers--> process of the job --Places--> (node, index there)
//!                                        |
//!                                        +----------Addresses--> where datagrams go: asked for
//!                                                                once, the latest ones are kept
//! ```
//! In the manner of the maps of local process ids of paper 001 §5.3: what is above knows ranks only,
//! what is below is found through a map that is computed where it can be. The regular ones have a
//! constant size, those with runs one that grows with the number of runs; only where nothing else is
//! smaller is there a table. [`Numbers::detect`] and [`Places::detect`] find the rule in a list.

mod addresses;
mod numbers;
mod places;
#[cfg(test)]
mod tests;

pub use addresses::{Address, Addresses};
pub use numbers::Numbers;
pub use places::{Place, Places};
