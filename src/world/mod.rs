//! What a program holds: the job, its teams, and the means to launch one.

pub mod launch;

pub use launch::{Exit, Launcher, Outcome, Output, Running};
