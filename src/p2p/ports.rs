//! Endpoints of their own: connections, matching, and a bell that no other part of the process
//! uses, so that threads with one each share neither a lock nor a line that is written.
//!
//! ```text
//!   number 0      the process's own: all teams, unless they were given another one
//!   1..=PORTS     leased to a team in all of its members alike; made at the first lease, and kept
//!                 for the next one, since peers may be connected to it
//! ```
//! What a team leaves behind does not meet what comes after it: messages have the team's context.
//!
//! Nobody looks at an endpoint but the calls that are about it, so nobody contends with its thread. But
//! that thread may wait for something else, while a peer waits for its part in a message: so who is
//! about to sleep looks after the endpoints at which nobody has looked since the last such time.

use super::messenger::{Common, Messenger};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Result};
use crate::link::core::{Core, Wire};
use crate::shm::node::Node;
use crate::shm::segment::PORTS;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One endpoint's connections and messages.
struct Entry {
    number: usize,
    core: Arc<Core>,
    messenger: Arc<Messenger>,
    /// How often it had been looked at when a thread that went to sleep last asked.
    seen: AtomicU32,
}

/// See the [module](self). One for each process.
#[derive(Default)]
pub(crate) struct Endpoints {
    all: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Numbers that are leased, one bit each; bit 0 means nothing.
    taken: u64,
    entries: Vec<Arc<Entry>>,
}

const _: () = assert!(PORTS < 64);

/// A number that belongs to an endpoint of this process until dropped.
pub(crate) struct Lease {
    endpoints: Arc<Endpoints>,
    number: usize,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "endpoint {}", self.number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoints.table().taken &= !(1 << self.number);
    }
}

impl Endpoints {
    /// Those of this process.
    pub fn of(node: &Node) -> Result<Arc<Endpoints>> {
        node.attachment(|| Ok(Endpoints::default()))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers that are leased, and what can never be.
    pub fn taken(&self) -> u64 {
        self.table().taken | 1
    }

    /// Takes a number that no endpoint of this process has.
    pub fn lease(self: &Arc<Self>, number: usize) -> Option<Lease> {
        let mut table = self.table();
        let bit = 1u64.checked_shl(number as u32).filter(|_| (1..=PORTS).contains(&number))?;
        if table.taken & bit != 0 {
            return None;
        }
        table.taken |= bit;
        Some(Lease { endpoints: self.clone(), number })
    }

    /// Counts the process's own among those that are looked after.
    pub(super) fn enter(&self, core: Arc<Core>, messenger: Arc<Messenger>) {
        let seen = AtomicU32::new(0);
        self.table().entries.push(Arc::new(Entry { number: 0, core, messenger, seen }));
    }

    /// Looks after the endpoints but number `but` that nobody has looked at since the last time,
    /// as far as other threads may.
    pub(super) fn help(&self, node: &Node, but: usize) {
        let table = self.table();
        if table.entries.iter().all(|entry| entry.number == but) {
            return;
        }
        // What is the program's may run, so no lock is held.
        let entries = table.entries.clone();
        drop(table);
        for entry in entries.iter().filter(|entry| entry.number != but) {
            let looks = entry.core.looks();
            if entry.seen.load(Ordering::Relaxed) == looks && entry.messenger.may_communicate() {
                // Damage is reported by the next call that is about these messages.
                let _ = entry.messenger.progress_thoroughly(Wire { node, core: &entry.core });
            }
            entry.seen.store(entry.core.looks(), Ordering::Relaxed);
        }
    }
}

impl Lease {
    /// Connections and messages of the number. `beyond`: between nodes, too.
    ///
    /// # Errors
    /// Settings that are none; [`Error::OutOfMemory`].
    pub(super) fn open(&self, node: &Node, beyond: bool) -> Result<(Arc<Core>, Arc<Messenger>)> {
        let (core, messenger) = self.open_near(node)?;
        if beyond {
            core.reach_beyond(node)?;
        }
        Ok((core, messenger))
    }

    fn open_near(&self, node: &Node) -> Result<(Arc<Core>, Arc<Messenger>)> {
        let common = Common::of(node)?;
        let mut table = self.endpoints.table();
        if let Some(made) = table.entries.iter().find(|entry| entry.number == self.number) {
            return Ok((made.core.clone(), made.messenger.clone()));
        }
        let core = Core::at_port(node, self.number)?;
        let others = Some((Arc::downgrade(&self.endpoints), self.number));
        let messenger = Arc::new(Messenger::open(common, node.pace(), others)?);
        if !core.attach(messenger.clone()) {
            return Err(Error::invalid("endpoints", "a new endpoint has messages already"));
        }
        let seen = AtomicU32::new(0);
        let made = (core.clone(), messenger.clone());
        table.entries.push(Arc::new(Entry { number: self.number, core, messenger, seen }));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_leased_once_at_a_time() {
        let all = Arc::new(Endpoints::default());
        assert!(all.lease(0).is_none() && all.lease(PORTS + 1).is_none());
        assert!(all.lease(usize::MAX).is_none());
        let first = all.lease(1).unwrap();
        assert!(all.lease(1).is_none());
        let last = all.lease(PORTS);
        assert_eq!(all.taken(), 0b11 | 1 << PORTS);
        drop(first);
        drop(last);
        assert_eq!(all.taken(), 1);
        assert!(all.lease(1).is_some());
    }
}
