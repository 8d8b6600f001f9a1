//! The engine in a simulated world.

mod groups;
mod locks;
mod net;
mod programs;
mod protocol;
mod random;
mod reach;
mod scale;
mod threads;
mod turns;
