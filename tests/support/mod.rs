//! What the tests that are programs of their own have in common: their command lines, the jobs
//! they start, the processes these consist of, and repeatable sequences.

#![allow(dead_code, reason = "every test uses a part of it")]

pub mod everything;
pub mod options;
pub mod processes;
pub mod random;
pub mod ranks;
pub mod signals;
pub mod sweep;
