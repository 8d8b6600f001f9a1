//! One-sided communication: symmetric windows, epochs as guards, operations that the origin
//! carries out itself, directly on the target's memory.

pub mod atomic;
mod block;
pub mod epoch;
pub mod view;
pub mod window;

pub use atomic::Element;
pub use epoch::{Assertions, Epoch, FenceEpoch, LockAllEpoch};
pub use view::View;
pub use window::Window;
