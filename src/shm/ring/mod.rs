//! Rings in shared memory (being built).
