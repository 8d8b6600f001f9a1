//! Breadth-first search.
mod bitmap;
mod edge_list;
mod kronecker;
mod partition;
mod serial;
mod validate;

/// The edge list that ships.
pub const GNUTELLA: &[u8] = include_bytes!("../../../../data/p2p-Gnutella24.txt");
