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
//! | `messenger`, `engine` | one per process: progress, waiting; what is known, behind one lock |
//! | `arrive` | what becomes of a message that has come |
//! | `endpoint`, `send`, `receive` | what the rooms above call |
//! | `express`, `direct` | the short ways of short messages |
//! | `record`, `request` | a send or receive that goes on, its memory and its outcome; requests that own theirs |
//! | `wire`, `outgoing` | how messages look; those that found no room |
//! | `transfer`, `reach`, `claim` | copying large ones from their senders; whether and how; who has the buffer |
//! | `words` | the words in shared memory by which that is agreed, and their models |
//! | `advert` | telling the sender where a large message is wanted |
//! | `stream` | large messages in pieces, where nobody can copy, or both are sooner there together |
//! | `awake` | when that is |
//! | `halves` | large messages of which each side has the kernel copy a part |
//! | `copiers`, `trials` | which of these is the fastest; when that is tried |
//! | `far` | the same over the network; what peers of other nodes are told |
//! | `fetch` | large messages of other nodes that are read out of their senders' memory |
//! | `awaited` | wakers of requests, and the thread that makes progress for them |
//! | `lend`, `lent`, `borrow` | messages of middle size in buffers of their sender's; the buffers, and what their receivers have of them |
//! | `lead` | how far a sender gets ahead of its receiver in them |
//! | `middle`, `judge`, `means` | which of them are announced instead, where that is faster; what each way takes |
//! | `eager`, `pool` | large messages that travel with their data, and the buffers they do so in |
//! | `switch` | what [`adapt`] decides, at work |
//! | `ports` | endpoints of their own, for threads |
//! | `dues` | copies that are due, and in which order |
//! | `budget` | memory that the pools of all endpoints of a process may have |
//! | `shown` | what may be known of the queues without their lock |
//! | `watch` | when a program posts large messages, and when it waits for them |
//! | `counters` | what was done |

#[doc(hidden)]
#[cfg(not(loom))]
pub mod adapt;
#[cfg(not(loom))]
mod advert;
#[cfg(not(loom))]
mod arrive;
#[cfg(not(loom))]
mod awaited;
#[cfg(not(loom))]
mod awake;
#[cfg(not(loom))]
mod borrow;
#[cfg(not(loom))]
mod budget;
#[cfg(not(loom))]
mod claim;
#[cfg(not(loom))]
mod copiers;
#[cfg(not(loom))]
mod counters;
#[cfg(all(test, not(loom)))]
mod damage_tests;
#[cfg(not(loom))]
mod direct;
#[cfg(not(loom))]
mod dues;
#[cfg(not(loom))]
mod eager;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
pub(crate) mod express;
#[cfg(not(loom))]
mod far;
#[cfg(not(loom))]
mod fetch;
#[cfg(not(loom))]
mod halves;
#[cfg(not(loom))]
mod judge;
#[cfg(not(loom))]
mod lead;
#[cfg(not(loom))]
mod lend;
#[cfg(not(loom))]
mod lent;
#[cfg(all(test, not(loom)))]
mod lent_tests;
#[doc(hidden)]
#[cfg(not(loom))]
pub mod matching;
#[cfg(not(loom))]
mod means;
#[cfg(not(loom))]
mod messenger;
#[cfg(not(loom))]
mod middle;
#[cfg(all(test, not(loom)))]
mod middle_tests;
#[cfg(not(loom))]
mod outgoing;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod ports;
#[cfg(not(loom))]
mod reach;
#[cfg(not(loom))]
mod receive;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod send;
#[cfg_attr(loom, allow(dead_code))]
mod shown;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod switch;
#[cfg(not(loom))]
mod transfer;
#[cfg(not(loom))]
mod trials;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod wire;
#[cfg_attr(loom, allow(dead_code))]
mod words;

#[cfg(not(loom))]
pub(crate) use endpoint::Endpoint;
#[cfg(not(loom))]
#[cfg(not(loom))]
pub(crate) use matching::Pattern;
#[cfg(not(loom))]
pub(crate) use ports::Endpoints;
#[cfg(not(loom))]
pub(crate) use reach::{read_private, reads_private, wants_kernel};
#[cfg(not(loom))]
pub(crate) use receive::Taken;
#[cfg(not(loom))]
pub(crate) use record::{Arrived, Buffer, Place, Record};
#[cfg(not(loom))]
pub(crate) use request::{Borrowed, Going, Owned, Records};
#[cfg(not(loom))]
pub(crate) use send::{Letter, Mode};
#[cfg(not(loom))]
pub(crate) use wire::element_code;

#[cfg(not(loom))]
pub use counters::MessageCounters;
#[cfg(not(loom))]
pub use reach::Reach;
