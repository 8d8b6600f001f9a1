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

#[doc(hidden)]
pub mod adapt;
#[doc(hidden)]
pub mod matching;
