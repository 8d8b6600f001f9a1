//! The engine in a simulated world.

mod net;
mod protocol;
mod random;
mod scale;
