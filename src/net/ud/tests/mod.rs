//! Two processes and a network that does what it can to spoil everything.

mod crowd;
mod efficiency;
mod lives;
mod order;
mod world;
