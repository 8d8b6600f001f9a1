//! Shared-memory-first communication for the processes of one node.
//!
//! Processes of a [`world::Job`] share symmetric memory: every process sees every other's
//! windows at the speed of the memory itself. The origin of an operation carries it out (put,
//! get, accumulate, atomics, and user-defined active messages) directly on the target's memory;
//! the target never has to call the library for that to progress.
//!
//! The rooms of the house, and which may use which, stand in `ARCHITECTURE.md`.

pub mod base;
pub mod shm;

#[cfg(not(loom))]
pub mod am;
#[cfg(not(loom))]
pub mod boot;
#[cfg(not(loom))]
pub mod coll;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod link;
#[cfg(not(loom))]
pub mod rma;
#[cfg(not(loom))]
pub mod topo;
#[cfg(not(loom))]
pub mod world;

pub use base::{Deadline, Error, Rank, Result};
#[cfg(not(loom))]
pub use {
    am::{Call, Handler},
    layout::{Datum, Kind, Layout, Located, Numeric, Op, Order, Shape},
    rma::{
        AccessEpoch, Assertions, Compare, Element, Epoch, ExposureEpoch, FenceEpoch, LockAllEpoch,
        LockEpoch, LockKind, Request, SignalOp, Unguarded, View, Window,
    },
    world::{Job, Team},
};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
