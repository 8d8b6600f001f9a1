//! Eager thresholds that adapt, by direction (paper 000): large messages that a program overlaps
//! with computation go eagerly, if the receiver has memory for that, and memory that is not
//! needed goes back. Pure: packets and times come in as arguments, what is to be done goes out.
//!
//! ```text
//!   sender                                      receiver
//!   Estimator: overlap? which class? (§3.1,§3.2)
//!       | wants
//!   Handshake <------------ packets ----------> Handshake             (§3.2, §4.2, §4.3)
//!       | Use(class)                                | JoinPool, LeavePool
//!   sends eagerly up to it                      Pools, Age            (§3.3, §4.4)
//! ```
//! What both media need of it (classes, the handshake, pools) is in [`crate::base::adapt`]; here is
//! when to want a change, and what there is to be shown of it.
//!
//! One [`Estimator`] and one [`Handshake`] per peer, one [`Pools`] and one [`Speed`] per process.
//! All times are nanoseconds since any one time, which need not be the same in two processes.

mod counters;
mod estimate;
mod speed;

pub use crate::base::adapt::{
    Action, Age, Class, Handshake, Limits, MOST_WEIGHT, OFFSET, Packet, Pool, Pools, REGRET,
    Refusal, Violation, Ways,
};
pub use counters::Counters;
pub use estimate::{Estimator, LEAST};
pub use speed::Speed;
