//! The path from an operation to the target's memory, without a transport.
