//! Tagged messages between two processes: who gets what, and how large ones travel.
//!
//! ```text
//!   send -> [ eager | pool | rendezvous ]  --link, in order-->  [ matching ] -> receive
//!                        ^ thresholds adapt per direction
//! ```
//! This room knows slots and context numbers; what a team is, the room above knows. It rests on
//! one promise of [`crate::link`]: what one peer sends arrives in the order in which it was sent.
//!
//! | module | owns |
//! |---|---|
//! | [`adapt`] | eager thresholds that adapt by direction, and memory that goes back; no input, no output |
//! | [`matching`] | posted receives and unexpected messages of one process; no input, no output |
//! | `messenger`, `engine` | one per process: taking what comes, progress, waiting; what is known, behind one lock |
//! | `endpoint`, `send`, `receive` | what the rooms above call |
//! | `record`, `request` | a send or receive that goes on, its memory and its outcome; requests that own theirs |
//! | `wire`, `outgoing` | how messages look; those that found no room |
//! | `transfer`, `reach`, `claim` | copying large ones from their senders; whether and how; who has the buffer |
//! | `advert` | telling the sender where a large message is wanted |
//! | `stream` | large messages in pieces, where nobody can copy |
//! | `awaited` | wakers of requests, and the thread that makes progress for them |
//! | `eager`, `pool` | large messages that travel with their data, and the buffers they do so in |
//! | `switch` | what [`adapt`] decides, at work |
//! | `watch` | when a program posts large messages, and when it waits for them |
//! | `counters`, `slab` | what was done; numbers that peers are told |

#[doc(hidden)]
pub mod adapt;
mod advert;
mod awaited;
mod claim;
mod counters;
#[cfg(test)]
mod damage_tests;
mod eager;
mod endpoint;
mod engine;
#[doc(hidden)]
pub mod matching;
mod messenger;
mod outgoing;
mod pool;
mod reach;
mod receive;
mod record;
mod request;
mod send;
mod slab;
mod stream;
mod switch;
mod transfer;
mod watch;
mod wire;

pub(crate) use endpoint::Endpoint;
pub(crate) use matching::Pattern;
pub(crate) use receive::Taken;
pub(crate) use record::{Arrived, Place, Record};
pub(crate) use request::{Borrowed, Going, Owned};
pub(crate) use send::{Letter, Mode};
pub(crate) use wire::element_code;

pub use counters::MessageCounters;
pub use reach::Reach;
