//! What adapting eager thresholds (paper 000) needs in both media, a node's memory and the network:
//! classes of sizes, pools of buffers and what of them to free, and the handshake that changes a
//! threshold while messages are under way. Pure: packets and times come in as arguments, what is to
//! be done goes out. When to want a change is decided above, in `p2p::adapt`.
//!
//! All times are nanoseconds since any one time, which need not be the same in two processes.

mod age;
mod class;
mod handshake;
mod pools;

pub use age::{Age, MOST_WEIGHT, REGRET};
pub use class::{Class, OFFSET};
pub use handshake::{Action, Handshake, Packet, Violation, Ways};
pub use pools::{Limits, Pool, Pools, Refusal};
