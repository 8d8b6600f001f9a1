//! What a program holds: the job, its teams, and the means to launch one.

mod agent;
mod edge;
mod job;
pub mod launch;
mod simulation;

pub use crate::coll::Team;
pub use crate::net::sim::Parameters as VirtualNetwork;
pub use job::{Builder, Job};
pub use launch::{Exit, Launcher, Outcome, Output, Running};
pub use simulation::Simulation;
