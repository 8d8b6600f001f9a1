//! The target's side: units are staged as they come, queued, run elsewhere, and answered.
//!
//! ```text
//!   first packet   place checked and taken (buffers)      more packets   input put where it belongs
//!        |                                                     |
//!        +--> arriving --- stream complete ---> queue --- take ---> running --- finish --> reply
//!                  (intake)                           |  turn of the part           |   (results)
//!                                                     |  (executor)            Done notes, in
//!                                                     |                        pieces; the last
//!                                                     |                        frees the place
//! ```
//! Memory: a place is either in memory that the program attached, or in the origin's system
//! buffer, which exists while something of the origin is in it, or in what origins share
//! ([`crate::am::room`]). Besides there is a head for each unit, bounded by the places; a
//! description for each message that has begun and not ended, at most [`MOST_OPEN`] per origin; and
//! an answer for each reservation, one per origin. A unit for which there is no memory is taken in,
//! forgotten byte by byte, and answered like one that failed: its place counts as taken till then,
//! so that origin and target go on agreeing about what is free.
//!
//! Nothing here blocks or runs handlers: it is called with the engine's lock held, but for `take`
//! and `finish`.

mod intake;
mod results;
#[cfg(test)]
mod tests;

use super::arriving::{Arriving, Told};
use super::memory::Block;
use super::reply::Reply;
use super::run::Job;
use super::spent::{Spends, Spent};
use super::why::fault;
use crate::am::body::Request;
use crate::am::buffers::{BufferId, Buffers, rounded};
use crate::am::queue::{Queue, Turn};
use crate::am::room::Room;
use crate::base::{Rank, Result};
use crate::rma::core::Handlers;
use crate::rma::info::AmOrdering;
use crate::rma::runtime::Fault;
use results::Told as Note;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most messages of an origin that have begun to arrive and not ended.
pub(super) const MOST_OPEN: usize = 256;

/// What is known of one origin.
#[derive(Debug, Default)]
struct Origin {
    system: Option<Block>,
    stand_in: Option<Block>,
    open: HashMap<u64, Arc<Told>>,
    arriving: HashMap<(u64, u32), Arriving>,
}

/// Attached memory.
#[derive(Debug)]
pub(super) struct Attached {
    pub first: *mut u8,
    /// Memory of the library's own, if the program brought none.
    pub _block: Option<Block>,
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub units: u64,
    pub fetched: u64,
    pub stored: u64,
    pub stale: u64,
    pub packed: u64,
    pub whole: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub stood_in: u64,
    pub granted: u64,
    pub refused: u64,
    pub no_memory: u64,
    /// Most bytes that there were at a time of what origins have without asking.
    pub system_most: u64,
}

/// Bytes of the memory that is there without the program's doing.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    system: usize,
    promised: usize,
    shared: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Server {
    pub buffers: Buffers,
    pub attached: HashMap<BufferId, Attached>,
    handlers: Arc<Handlers>,
    sizes: Sizes,
    /// What origins share; its memory comes with the first unit in it.
    shared: Option<BufferId>,
    threshold: f64,
    origins: HashMap<u32, Origin>,
    queue: Queue<Job>,
    replies: VecDeque<Reply>,
    notes: VecDeque<Note>,
    note: Vec<u8>,
    closed: bool,
    /// Memory of dead origins, until nothing runs that may be in it.
    graves: Vec<Block>,
    spent: Spent,
    pub done: Done,
}

// SAFETY: the addresses are of memory that this owns, or that the program has lent until it is
// detached; places in them belong to one unit each.
unsafe impl Send for Server {}

impl Spends for Server {
    fn spent(&mut self) -> &mut Spent {
        &mut self.spent
    }
}

impl Server {
    pub fn new(
        handlers: Arc<Handlers>,
        promised: u64,
        wanted: AmOrdering,
        threshold: f64,
    ) -> Server {
        // As it is accounted: the last unit's place ends where the account does.
        let sizes = Sizes { system: 0, promised: rounded(promised) as usize, shared: 0 };
        Server {
            buffers: Buffers::new(0, promised),
            attached: HashMap::new(),
            handlers,
            sizes,
            shared: None,
            threshold,
            origins: HashMap::new(),
            queue: Queue::new(wanted),
            replies: VecDeque::new(),
            notes: VecDeque::new(),
            note: Vec::new(),
            closed: false,
            graves: Vec::new(),
            spent: Spent::default(),
            done: Done::default(),
        }
    }

    /// From now on, before the first message: what origins have without asking.
    pub fn furnish(&mut self, room: Room) {
        self.buffers.furnish(room.own);
        self.shared = (room.shared > 0).then(|| self.buffers.attach(room.shared));
        let [system, shared] = [room.own, room.shared].map(|bytes| rounded(bytes) as usize);
        self.sizes = Sizes { system, shared, ..self.sizes };
    }

    /// A request of `origin`; whether there is a unit more to run.
    pub fn arrived(&mut self, origin: Rank, body: &[u8]) -> Result<bool, Fault> {
        if self.closed {
            return Err(fault(1));
        }
        let ready = match Request::decode(body).map_err(|_| fault(2))? {
            Request::Unit(unit) => self.unit(origin, unit)?,
            Request::More { message, unit, position, data } => {
                self.more(origin, (message, unit), position, data)?
            }
            Request::Reserve { ticket, least, most, all } => {
                // Who has not taken the last answer has not asked for another.
                if self.notes.iter().any(|note| note.to == origin) {
                    return Err(fault(41));
                }
                let asked = self.buffers.reserve(origin.0, ticket, least, most, all);
                asked.map_err(|refusal| fault(20 + refusal as u64))?;
                false
            }
            Request::Withdraw { ticket } => {
                self.buffers.withdraw(origin.0, ticket);
                // Nor does anybody want to hear of it.
                self.notes.retain(|note| note.to != origin || note.ticket != ticket);
                false
            }
            Request::Release { space } => {
                let released = self.buffers.release(origin.0, space);
                released.map_err(|refusal| fault(30 + refusal as u64))?;
                false
            }
        };
        self.answer();
        Ok(ready)
    }

    /// Whether something waits to be run.
    pub fn waits(&self) -> bool {
        self.queue.len() > 0
    }

    /// Whether something could be run now, beside what is.
    pub fn may_run(&self) -> bool {
        self.queue.may_run()
    }

    /// The next unit to run, if one may be run beside those that are.
    pub fn take(&mut self) -> Option<(Turn, Job)> {
        self.queue.take()
    }

    /// An origin is gone: what it has here is dropped, but for what is running.
    pub fn died(&mut self, origin: Rank) {
        let mut places = Vec::new();
        for Job { head, told, .. } in self.queue.died(origin.0) {
            places.push(head.place);
            self.spent.told(told);
        }
        self.notes.retain(|note| note.to != origin);
        let replies = std::mem::take(&mut self.replies);
        let (gone, stay): (VecDeque<_>, _) = replies.into_iter().partition(|r| r.origin == origin);
        self.replies = stay;
        for Reply { head, told, .. } in gone {
            places.push(head.place);
            self.spent.told(told);
        }
        if let Some(own) = self.origins.remove(&origin.0) {
            for Arriving { head, told, .. } in own.arriving.into_values() {
                places.push(head.place);
                self.spent.told(told);
            }
            own.open.into_values().for_each(|told| self.spent.told(Some(told)));
            if self.queue.running() > 0 {
                // Its memory may be in use.
                self.graves.extend([own.system, own.stand_in].into_iter().flatten());
            }
        }
        self.buffers.died(origin.0);
        for place in places {
            self.buffers.leave(origin.0, place);
        }
        self.answer();
    }

    /// Nothing more is run; whether nothing is running.
    pub fn close(&mut self) -> bool {
        self.closed = true;
        for job in self.queue.clear() {
            self.spent.told(job.told);
        }
        self.queue.running() == 0
    }

    /// Bytes that there are of what origins have without asking.
    pub fn system_bytes(&self) -> u64 {
        let systems = self.origins.values().filter(|own| own.system.is_some()).count();
        let shared = self.shared.is_some_and(|id| self.attached.contains_key(&id));
        (systems * self.sizes.system) as u64 + u64::from(shared) * self.sizes.shared as u64
    }

    /// Origins that are known, units that wait, handlers that run.
    pub fn held(&self) -> (u64, u64, u64) {
        (self.origins.len() as u64, self.queue.len() as u64, self.queue.running() as u64)
    }
}
