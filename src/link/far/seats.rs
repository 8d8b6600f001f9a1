//! Where a process's endpoints look for what has come from other nodes, and are woken: each at lines of
//! memory of its own, which threads with other endpoints do not touch.
//!
//! An endpoint that has neither sent to another node nor been sent to looks at nothing else: what the
//! device brings first, the network's thread brings, which rings its bell. From then on its calls
//! look at the device as those of the process's own do.

use super::inboxes::bits;
use crate::base::Result;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::shm::region::SharedRef;
use crate::shm::segment::{PORTS, Port};
use std::sync::OnceLock;

/// Calls that look for messages in vain between two looks at the device.
const LOOK_EVERY: u32 = 16;

/// One endpoint's. Two lines, as processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Seat {
    bell: SharedRef<Port>,
    /// Messages that wait for it, as of the last change.
    come: AtomicU32,
    looks: AtomicU32,
    /// It has to do with other nodes.
    travels: AtomicBool,
}

impl Seat {
    /// Whether messages wait.
    #[inline]
    pub fn has_come(&self) -> bool {
        self.come.load(Ordering::Acquire) != 0
    }

    /// So many wait; whether these are more than before.
    pub fn set(&self, count: usize) -> bool {
        let more = self.come.swap(count as u32, Ordering::AcqRel) < count as u32;
        if more {
            self.travels();
        }
        more
    }

    /// It has to do with other nodes from now on.
    #[inline]
    pub fn travels(&self) {
        if !self.travels.load(Ordering::Relaxed) {
            self.travels.store(true, Ordering::Relaxed);
        }
    }

    /// A call looks in vain: whether it is to look at the device.
    #[inline]
    pub fn is_to_look(&self) -> bool {
        self.travels.load(Ordering::Relaxed)
            && self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY)
    }
}

/// Those of all endpoints that are open. See the [module](self).
pub(super) struct Seats {
    all: [OnceLock<Box<Seat>>; PORTS + 1],
}

impl Seats {
    /// None is open.
    pub fn new() -> Seats {
        Seats { all: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// Opens one, whose bell is in a port; does nothing if it is open. `travels`: it has to do with other
    /// nodes in any case.
    ///
    /// # Errors
    /// There is no such number.
    pub fn open(&self, endpoint: u8, bell: SharedRef<Port>, travels: bool) -> Result<()> {
        let seat = self.all.get(usize::from(endpoint)).ok_or_else(|| no_such(endpoint))?;
        seat.get_or_init(|| {
            let (come, looks) = (AtomicU32::new(0), AtomicU32::new(0));
            Box::new(Seat { bell, come, looks, travels: AtomicBool::new(travels) })
        });
        Ok(())
    }

    /// That of an endpoint.
    #[inline]
    pub fn get(&self, endpoint: u8) -> Option<&Seat> {
        Some(&**self.all.get(usize::from(endpoint))?.get()?)
    }

    /// Those of which a bit is set.
    pub fn of(&self, endpoints: u64) -> impl Iterator<Item = (u8, &Seat)> {
        bits(endpoints).filter_map(|number| Some((number, self.get(number)?)))
    }

    /// Wakes who waits at those of which a bit is set.
    pub fn ring(&self, endpoints: u64) {
        self.of(endpoints).for_each(|(_, seat)| {
            seat.bell.doorbell.notify();
        });
    }
}

#[cold]
fn no_such(endpoint: u8) -> crate::base::Error {
    crate::base::Error::invalid("endpoints", format!("number {endpoint} is above {PORTS}"))
}
