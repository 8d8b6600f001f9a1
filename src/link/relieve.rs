//! What calls of one endpoint do for another's: they take what has come for it from other nodes, and has
//! lain so long that nothing else can come.
//!
//! ```text
//!   a poll of endpoint 1:  its own messages;  overdue? --> those of endpoint 3, to its sink
//!                                                          (if nobody is at it just now)
//! ```
//! Endpoints have one connection to a peer on another node, so one at which nobody looks would stop all
//! of them. Its messages are matched where they belong, as if one of its own calls had come by; what
//! follows from that (copies of large ones, answers) is left to those, and to who looks after it. What
//! was not asked for counts as what is held there. So this is done for one, too, by which one thread
//! alone communicates.

use super::core::{Core, Wire};
use super::far::{bit, bits};
use super::{KINDS, Message};
use crate::base::Result;
use crate::shm::node::Node;
use crate::shm::segment::PORTS;
use std::ops::ControlFlow::Continue;
use std::sync::{Arc, OnceLock, Weak};

/// The connections of a process's endpoints but its own, by their numbers. One for each process.
#[derive(Default)]
pub(super) struct Others(Vec<OnceLock<Weak<Core>>>);

impl Others {
    fn of(node: &Node) -> Result<Arc<Others>> {
        node.attachment(|| Ok(Others((0..=PORTS).map(|_| OnceLock::new()).collect())))
    }

    /// Has those of an endpoint found.
    pub fn enter(node: &Node, core: &Arc<Core>) -> Result<()> {
        let others = Others::of(node)?;
        others.0.get(usize::from(core.number())).map(|place| place.set(Arc::downgrade(core)));
        Ok(())
    }

    fn find(node: &Node, number: u8) -> Option<Arc<Core>> {
        match number {
            0 => Core::of(node).ok(),
            _ => Others::of(node).ok()?.0.get(usize::from(number))?.get()?.upgrade(),
        }
    }
}

impl Wire<'_> {
    /// Takes what is overdue of other endpoints, if anything is. No lock is held.
    ///
    /// Cost if nothing is: a load of a line that is seldom written, where there are other nodes.
    #[inline]
    pub(super) fn relieve_others(self) {
        if let Some(far) = self.core.far() {
            let overdue = far.overdue() & !bit(self.core.number());
            if overdue != 0 {
                self.relieve(overdue);
            }
        }
    }

    #[cold]
    fn relieve(self, overdue: u64) {
        for number in bits(overdue) {
            let Some(other) = Others::find(self.node, number) else { continue };
            let wire = Wire { node: self.node, core: &other };
            let (Some(far), Some(sink)) = (other.far(), other.sink.get()) else { continue };
            // If the program leaves its own lying there is no help.
            if other.held.admit().is_err() {
                continue;
            }
            let Some(mut receiver) = other.receiver.try_lock() else { continue };
            let mut take = |message: Message<'_>| {
                if message.kind < KINDS {
                    other.held.keep(message);
                } else {
                    sink.arrive(wire, message);
                }
                Continue(())
            };
            let count = receiver.poll_far((&**far, number), &mut take);
            drop(receiver);
            wire.left(count > 0);
        }
    }
}
