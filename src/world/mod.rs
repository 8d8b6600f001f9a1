//! What a program holds: the job, its teams, and the means to launch one.

mod job;
pub mod launch;

pub use crate::coll::Team;
pub use job::{Builder, Job};
pub use launch::{Exit, Launcher, Outcome, Output, Running};
