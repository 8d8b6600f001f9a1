//! The engine in a simulated world.

mod net;
mod programs;
mod protocol;
mod random;
mod scale;
