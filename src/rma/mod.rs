//! One-sided communication: windows, epochs as guards, operations that the origin carries out
//! itself, directly on the target's memory.

pub mod accumulate;
mod block;
mod core;
pub mod directory;
pub mod epoch;
pub mod info;
pub mod kind;
pub mod memory;
mod ops;
mod packet;
pub(crate) mod remote;
pub mod request;
pub mod runtime;
pub mod signal;
pub mod view;
pub mod window;

pub use accumulate::Element;
pub use epoch::{
    AccessEpoch, Assertions, Epoch, ExposureEpoch, FenceEpoch, LockAllEpoch, LockEpoch, LockKind,
    Unguarded,
};
pub use info::Info;
pub use kind::{Attached, Attributes, Flavour, Model, WindowBuilder};
pub use memory::Memory;
pub use request::Request;
pub use signal::{Compare, SignalOp};
pub use view::View;
pub use window::Window;
