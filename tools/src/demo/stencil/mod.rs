//! Halo exchange.
mod field;
mod grid;
mod serial;
