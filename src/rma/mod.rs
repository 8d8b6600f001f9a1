//! One-sided communication: windows, epochs as guards, operations that the origin carries out
//! itself where it has the target's memory mapped, and the target where not.
//!
//! ```text
//!    Window --- fence, lock, start .. ---> guard, derefs to Epoch --- put, accumulate .. --+
//!      |                                                                                   |
//!      | kind, memory: made of what          epoch: may it be, when is it complete         | ops
//!      v                                                                                   v
//!    Core: block, epochs' state, domain                     place(target, start, count)
//!                                                             |                  |
//!                                                      Here(address)        Away(bytes)
//!                                                             |                  |
//!                     direct path                             |                  |  packet path
//!         puts, gets: loads and stores (shm::copy) <----------+                  v
//!         updates:    accumulate (the domain)      <----------+           remote: dyn Remote
//!                            ^                                                   |
//!                            |                               packet: cut into units, wire, inboxes
//!                            |                               runtime: when to send, locks, fences
//!                            +------- the target executes <----------------------+
//! ```
//! Both paths end in the same memory and the same atomic domain, so they go together in one window.
//!
//! | module | owns |
//! |---|---|
//! | `window`, `core` | what a program holds, with and without the element type; the hot path to an address |
//! | `block`, `turns` | what all members share about a window; what active messages look at first of it |
//! | [`kind`] | the kinds of windows: making them, where their parts lie, dynamic attachments, how long memory lives |
//! | [`memory`] | memory that a program brings along |
//! | `directory` | places of irregular parts in constant memory per process |
//! | [`info`] | hints |
//! | [`epoch`] | synchronisation and its rules: guards, unguarded calls, assertions |
//! | `ops` | the operations on an epoch, contiguous and with layouts |
//! | [`Request`], [`signal`] | operations that are completed on their own; puts that tell |
//! | `accumulate` | the atomic domain of a window |
//! | [`view`] | loads and stores on mapped parts |
//! | `remote` | the seam to parts that are not mapped; a network will be one more implementation |
//! | `foreign` | the seam to the room above: messages whose units travel among the operations |
//! | `packet` | the implementation of that by packets: transport, wire form, execution, progress |
//! | `runtime` | its engine: the protocol as state machines, without input or output |
//!
//! **Memory model.** Unified (MPI-3.1 §11.4): a part is one memory, not a public and a private
//! copy, by either path. Loads and stores of its owner (through a [`View`]) and operations of others
//! need order, which synchronisation gives, and no call that copies. `docs/windows.md` has what is
//! legal when, what is atomic, what is ordered, what it costs and what deaths do.

pub(crate) mod accumulate;
pub(crate) mod block;
pub(crate) mod core;
// Public for the benchmarks of it; it promises programs nothing.
#[doc(hidden)]
pub mod directory;
pub mod epoch;
pub(crate) mod foreign;
pub mod info;
pub mod kind;
pub mod memory;
mod ops;
mod packet;
pub(crate) mod remote;
mod request;
pub(crate) mod runtime;
pub mod signal;
pub(crate) mod turns;
pub mod view;
pub mod window;

pub use crate::base::Request;
pub use accumulate::Element;
pub use epoch::{
    AccessEpoch, Assertions, Epoch, ExposureEpoch, FenceEpoch, LockAllEpoch, LockEpoch, LockKind,
    Unguarded,
};
pub use info::{AccumulateOps, AmOrdering, Info, Medium, UserBuffers};
pub(crate) use kind::attend_locks;
pub use kind::{Attached, Attributes, Flavour, Model, WindowBuilder};
pub use memory::Memory;
pub(crate) use ops::{reshape, zeroed};
pub use signal::{Compare, SignalOp};
pub use view::View;
pub use window::Window;
