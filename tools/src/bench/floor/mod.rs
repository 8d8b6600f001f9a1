//! The raw limits: each the smallest program that shows what the hardware (or the system) does,
//! without protection, waiting, naming or anything else a library adds.

pub mod announced;
pub mod atomics;
pub mod barrier;
pub mod broadcast;
pub mod call;
pub mod copied;
pub mod copy_cells;
pub mod exchange;
pub mod handed;
pub mod kernel;
pub mod memcpy;
pub mod mutex;
pub mod perfect;
pub mod ping_pong;
pub mod ring;
pub mod sockets;
pub mod spawn;
pub mod sum;
