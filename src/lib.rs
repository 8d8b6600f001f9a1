//! Shared-memory-first communication for the processes of one node.
//!
//! Processes of a [`world::Job`] share symmetric memory: every process sees every other's
//! windows at the speed of the memory itself. The origin of an operation carries it out (put,
//! get, accumulate, atomics, and user-defined active messages) directly on the target's memory;
//! the target never has to call the library for that to progress. Where a part is private to its
//! owner, operations travel as packets and the owner's progress thread carries them out.
//!
//! Where to begin: [`Job::init`], [`Team`], [`Window`] (and [`rma`] for all that windows do),
//! [`Layout`] for data that are not contiguous, [`Window::register`] for active messages. Every
//! call that can fail returns [`Error`]; every wait ends when a rank that it depends on dies.
//!
//! The rooms of the house, and which may use which, stand in `ARCHITECTURE.md`; what windows
//! promise and cost, in `docs/windows.md`; the settings in [`base::settings`]. Messages
//! between ranks are methods of [`Team`] too; see `docs/messages.md`.

pub mod base;
// Public for the tests and benchmarks of its pieces; it promises programs nothing.
#[doc(hidden)]
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
// Pieces of the link alone, for their models.
#[cfg(all(loom, test))]
#[path = "link/far/alarm.rs"]
mod alarm;
#[cfg(all(loom, test))]
#[path = "link/biased.rs"]
mod biased;
#[cfg(all(loom, test))]
#[path = "link/overlooked.rs"]
mod overlooked;
// Public for its tests and benchmarks; it promises programs nothing yet.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod net;
pub mod p2p;
#[cfg(not(loom))]
pub mod rma;
#[cfg(not(loom))]
pub mod topo;
#[cfg(not(loom))]
pub mod world;

pub use base::{Deadline, Error, Rank, Result};
#[cfg(not(loom))]
pub use {
    am::{
        Call, Handler, HandlerFunction, Message, Placement, RawCall, RawMessage, UntypedHandler,
        VectorCall, VectorHandler, VectorOutput,
    },
    base::hints::{Hint, Hinted, KernelRegion},
    coll::message::{
        Any, Cancelled, Exchange, Exchanged, Funneled, MatchedMessage, Pending, Persistent,
        PersistentReceive, PersistentSend, ReceiveBuffer, ReceiveRequest, SendBuffer, SendRequest,
        Source, Status, Tag, finish_all, start_all, test_all, test_any, wait_all, wait_any,
    },
    layout::{Datum, Kind, Layout, Located, Numeric, Op, Order, Shape},
    rma::{
        AccessEpoch, AmOrdering, Assertions, Attached, Attributes, Compare, Element, Epoch,
        ExposureEpoch, FenceEpoch, Flavour, Info, LockAllEpoch, LockEpoch, LockKind, Medium,
        Memory, Request, SignalOp, Unguarded, UserBuffers, View, Window, WindowBuilder,
    },
    world::{Job, Team},
};

/// Compiles and runs the example in the page on active messages.
#[cfg(doctest)]
#[doc = include_str!("../docs/active-messages.md")]
struct ActiveMessages;

/// Compiles and runs the example in the page on collectives.
#[cfg(doctest)]
#[doc = include_str!("../docs/collectives.md")]
struct Collectives;

/// Compiles and runs the example in the page on messages.
#[cfg(doctest)]
#[doc = include_str!("../docs/messages.md")]
struct Messages;

/// Compiles and runs the examples in the page on several nodes.
#[cfg(doctest)]
#[doc = include_str!("../docs/nodes.md")]
struct Nodes;

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
