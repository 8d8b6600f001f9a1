//! A laboratory for RoCE on any machine: virtual machines with Debian's stock kernel and its
//! Soft-RoCE driver, under plain emulation, without privilege and without touching the host's
//! network. Real verbs through the real library, with a network that can be cut and machines that
//! can be switched off. Times mean nothing here.
//!
//! Guests see the host's files (read-only, as the user does; what they write stays in their own
//! memory), so that they run what the host runs, and above them the RDMA programs and libraries of
//! the packages. Nothing is left behind: sockets and files of a laboratory have no names, its
//! processes end with it.
//!
//! ```no_run
//! use hither_lab::{Lab, Options, Program};
//!
//! let lab = Lab::boot(&Options::default())?;
//! let server = lab.run(0, &Program::new("ibv_rc_pingpong").args(["-g", "1"]))?;
//! lab.cut(1)?;
//! # Ok::<(), hither_lab::Error>(())
//! ```

pub mod agent;
mod cache;
mod channel;
mod clock;
mod cpio;
mod error;
mod guest;
mod kernel;
mod lab;
mod modules;
mod monitor;
mod network;
mod packages;
mod process;
pub mod rsh;
mod running;
mod tree;
mod wire;

pub use cache::fetch;
pub use error::{Error, Result};
pub use lab::{Lab, MOST_GUESTS, Options};
pub use running::{Output, Program, Running};
