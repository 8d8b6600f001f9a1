//! A network for tests: ranks that are threads of one process, on nodes that share nothing but
//! this. It has the rules of [`Far`] and no speed; queues are short, so that senders often find no
//! room.

use super::{Direction, Each, Far, Flow, Line, NetworkCounters, Registered, Transfer, Update};
use crate::base::adapt::Class;
use crate::base::{Rank, Result, Slot};
use crate::link::Push;
use crate::net::memory::Memory;
use crate::net::provider::{Access, Capabilities, Remote};
use crate::shm::beyond::{Beyond, Standing};
use crate::shm::node::Node;
use crate::shm::region::SharedRef;
use crate::shm::ring::Label;
use crate::shm::segment::{PORTS, Port};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

/// Messages that wait on one line to one process at most.
const ROOM: usize = 24;

struct Waiting {
    from: Rank,
    label: Label,
    bytes: Vec<u8>,
}

/// One rank's end.
struct End {
    node: Weak<Node>,
    /// Of the messages of each endpoint that is open, of requests, of replies.
    lines: Vec<Mutex<VecDeque<Waiting>>>,
    ports: [OnceLock<SharedRef<Port>>; PORTS + 1],
}

impl End {
    fn new(node: &Arc<Node>) -> End {
        let lines = (0..PORTS + 3).map(|_| Mutex::default()).collect();
        let ports = std::array::from_fn(|_| OnceLock::new());
        End { node: Arc::downgrade(node), lines, ports }
    }

    fn line(&self, by: Line) -> MutexGuard<'_, VecDeque<Waiting>> {
        let at = match by.flow {
            Flow::Messages => usize::from(by.endpoint),
            flow => PORTS + flow as usize,
        };
        self.lines[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, by: Line) {
        if let Some(node) = self.node.upgrade() {
            let slot = node.rank_slot(node.slot());
            match (by.flow, by.endpoint) {
                (Flow::Messages, 0) => slot.port.doorbell.notify(),
                (Flow::Messages, other) => {
                    let port = self.ports[usize::from(other)].get();
                    port.into_iter().for_each(|port| port.doorbell.notify());
                }
                (Flow::Requests | Flow::Replies, _) => slot.service.notify(),
            }
        }
    }
}

/// The network. One for a job.
#[derive(Default)]
pub(crate) struct Hub {
    ends: RwLock<Vec<Option<Arc<End>>>>,
}

impl Hub {
    fn end(&self, rank: Rank) -> Option<Arc<End>> {
        let ends = self.ends.read().unwrap_or_else(PoisonError::into_inner);
        ends.get(rank.index()).cloned().flatten()
    }

    fn all(&self) -> Vec<Arc<End>> {
        let ends = self.ends.read().unwrap_or_else(PoisonError::into_inner);
        ends.iter().flatten().cloned().collect()
    }

    /// Connects a rank.
    pub fn join(self: &Arc<Hub>, node: &Arc<Node>) -> Arc<Joined> {
        let rank = node.rank_of(node.slot());
        let end = Arc::new(End::new(node));
        let mut ends = self.ends.write().unwrap_or_else(PoisonError::into_inner);
        if ends.len() <= rank.index() {
            ends.resize_with(rank.index() + 1, || None);
        }
        ends[rank.index()] = Some(end.clone());
        drop(ends);
        Arc::new(Joined { hub: self.clone(), rank, end, node: Arc::downgrade(node) })
    }
}

/// A rank's connection to the network.
pub(crate) struct Joined {
    hub: Arc<Hub>,
    rank: Rank,
    end: Arc<End>,
    node: Weak<Node>,
}

impl std::fmt::Debug for Joined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Joined({})", self.rank)
    }
}

impl Joined {
    fn rank_of(&self, slot: Slot) -> Option<Rank> {
        self.node.upgrade()?.placement().rank_of(slot)
    }
}

impl Far for Joined {
    fn try_send(&self, to: Slot, by: Line, label: Label, bytes: [&[u8]; 2]) -> Result<Push> {
        let Some(end) = self.rank_of(to).and_then(|rank| self.hub.end(rank)) else {
            return Ok(Push::Full);
        };
        let mut queue = end.line(by);
        if queue.len() >= ROOM {
            return Ok(Push::Full);
        }
        queue.push_back(Waiting { from: self.rank, label, bytes: bytes.concat() });
        drop(queue);
        end.ring(by);
        Ok(Push::Sent)
    }

    fn eager(&self, _to: Slot) -> usize {
        crate::link::MAX_MESSAGE
    }

    fn widen(&self, _to: Slot, _class: Class) -> Result<()> {
        Ok(())
    }

    fn has_come(&self, by: Line) -> bool {
        !self.end.line(by).is_empty()
    }

    fn open(&self, endpoint: u8, port: SharedRef<Port>) -> Result<()> {
        self.end.ports[usize::from(endpoint)].get_or_init(|| port);
        Ok(())
    }

    fn overdue(&self) -> u64 {
        0
    }

    fn poll(&self, by: Line, most: usize, f: &mut Each<'_>) -> usize {
        let Some(node) = self.node.upgrade() else { return 0 };
        for count in 0..most {
            let mut queue = self.end.line(by);
            let full = queue.len() >= ROOM;
            let Some(next) = queue.pop_front() else { return count };
            drop(queue);
            if full {
                self.hub.all().iter().for_each(|end| end.ring(by));
            }
            let Some(from) = node.placement().slot_of(next.from) else { continue };
            if f(from, next.label, &next.bytes).is_break() {
                return count + 1;
            }
        }
        most
    }

    fn promote(&self, _to: Slot) -> Result<bool> {
        Ok(false)
    }

    fn is_hot(&self, _to: Slot, _flow: Flow) -> bool {
        false
    }

    unsafe fn own(&self, _first: NonNull<u8>, _bytes: usize) {}

    fn disown(&self, _first: NonNull<u8>, _bytes: usize) -> bool {
        true
    }

    fn expose(&self, _memory: &Memory, _access: Access) -> Option<Registered> {
        None
    }

    fn copy(
        &self,
        _peer: Slot,
        _by: Line,
        _direction: Direction,
        _there: Remote,
        _here: &Memory,
    ) -> Option<Arc<Transfer>> {
        None
    }

    fn update(
        &self,
        _peer: Slot,
        _by: Line,
        _update: Update,
        _there: Remote,
    ) -> Option<Arc<Transfer>> {
        None
    }

    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    fn break_off(&self, _peer: Slot, _flow: Flow) {}

    fn has_drained(&self, peer: Slot, endpoint: u8) -> bool {
        let rank = self.rank_of(peer);
        !self.end.line(Line::messages(endpoint)).iter().any(|one| Some(one.from) == rank)
    }

    fn counters(&self) -> NetworkCounters {
        NetworkCounters::default()
    }
}

impl Beyond for Joined {
    fn standing(&self, slot: Slot) -> Standing {
        let Some(rank) = self.rank_of(slot) else { return Standing::Dead };
        let Some(end) = self.hub.end(rank) else { return Standing::There };
        match end.node.upgrade() {
            Some(_) => Standing::There,
            None => Standing::Left,
        }
    }

    fn probe(&self, slot: Slot) -> Standing {
        self.standing(slot)
    }

    fn cause(&self, _slot: Slot) -> String {
        "its thread is gone".into()
    }

    fn drain(&self) {}

    fn rest(&self) {}

    fn leave(&self) {}

    fn deaths(&self) -> u32 {
        0
    }
}
