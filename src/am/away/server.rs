//! The target's side: units are staged as they come, queued, run elsewhere, and answered.
//!
//! ```text
//!   first packet   place checked and taken (buffers)      more packets   input put where it belongs
//!        |                                                     |
//!        +--> arriving --- stream complete ---> queue --- take ---> running --- finish --> reply
//!                                     in the order of      |  turn of the part           |
//!                                     each origin          |  (executor)            Done notes, in
//!                                                          |                        pieces; the last
//!                                                          |                        frees the place
//! ```
//! Memory: a place is either in memory that the program attached, or in the origin's system
//! buffer, which exists while something of the origin is in it. Besides there is a head for each
//! unit, bounded by the places; and a description for each message that has begun and not ended,
//! at most [`MOST_OPEN`] per origin.
//!
//! Nothing here blocks or runs handlers: it is called with the engine's lock held, but for `take`
//! and `finish`.

use super::arriving::{Arriving, Told};
use super::describe::{self, Staging};
use super::fault;
use super::memory::Block;
use super::reply::Reply;
use super::run::{Job, Outcome};
use crate::am::body::{Note, Request, Spaces, Status, Unit, Work, put_space};
use crate::am::buffers::{Answer, BufferId, Buffers, Where, rounded};
use crate::am::order::{Lineup, Mark};
use crate::am::pack::{Form, Output, put_counts};
use crate::base::{Rank, Result};
use crate::rma::core::Handlers;
use crate::rma::foreign::Outgoing;
use crate::rma::info::AmOrdering;
use crate::rma::runtime::{Fault, Sent};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most messages of an origin that have begun to arrive and not ended.
pub(super) const MOST_OPEN: usize = 256;
/// Queued units looked at to find one that may run beside others.
const LOOK_AHEAD: usize = 64;

/// What is known of one origin.
#[derive(Debug)]
struct Origin {
    system: Option<Block>,
    stand_in: Option<Block>,
    open: HashMap<u64, Arc<Told>>,
    arriving: HashMap<(u64, u32), Arriving>,
    lineup: Lineup<u64>,
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
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Server {
    pub buffers: Buffers,
    pub attached: HashMap<BufferId, Attached>,
    handlers: Arc<Handlers>,
    sizes: (usize, usize),
    wanted: AmOrdering,
    threshold: f64,
    origins: HashMap<u32, Origin>,
    queue: VecDeque<u64>,
    jobs: HashMap<u64, Job>,
    next: u64,
    /// Handlers running, and whether one of them wants to be alone.
    running: usize,
    alone: bool,
    replies: VecDeque<Reply>,
    notes: VecDeque<(Rank, Vec<u8>)>,
    note: Vec<u8>,
    closed: bool,
    /// Memory of dead origins, until nothing runs that may be in it.
    graves: Vec<Block>,
    pub done: Done,
}

// SAFETY: the addresses are of memory that this owns, or that the program has lent until it is
// detached; places in them belong to one unit each.
unsafe impl Send for Server {}

impl Server {
    pub fn new(
        handlers: Arc<Handlers>,
        system: u64,
        promised: u64,
        wanted: AmOrdering,
        threshold: f64,
    ) -> Server {
        Server {
            buffers: Buffers::new(system, promised),
            attached: HashMap::new(),
            handlers,
            // As they are accounted: the last unit's place ends where the account does.
            sizes: (rounded(system) as usize, rounded(promised) as usize),
            wanted,
            threshold,
            origins: HashMap::new(),
            queue: VecDeque::new(),
            jobs: HashMap::new(),
            next: 0,
            running: 0,
            alone: false,
            replies: VecDeque::new(),
            notes: VecDeque::new(),
            note: Vec::new(),
            closed: false,
            graves: Vec::new(),
            done: Done::default(),
        }
    }

    /// A request of `origin`; whether there is a unit more to run.
    pub fn arrived(&mut self, origin: Rank, body: &[u8]) -> Result<bool, Fault> {
        if self.closed {
            return Err(fault(1));
        }
        let ready = match Request::decode(body).map_err(|_| fault(2))? {
            Request::Unit(unit) => self.unit(origin, unit)?,
            Request::More { message, unit, position, data } => {
                let key = (message, unit);
                let own = self.origins.get_mut(&origin.0).ok_or(fault(3))?;
                let arriving = own.arriving.get(&key).ok_or(fault(4))?;
                if arriving.received != position {
                    return Err(fault(5));
                }
                self.feed(origin, key, data)?
            }
            Request::Reserve { ticket, least, most, all } => {
                let asked = self.buffers.reserve(origin.0, ticket, least, most, all);
                asked.map_err(|refusal| fault(20 + refusal as u64))?;
                false
            }
            Request::Withdraw { ticket } => {
                self.buffers.withdraw(origin.0, ticket);
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

    fn origin(&mut self, origin: Rank) -> &mut Origin {
        let wanted = self.wanted;
        self.origins.entry(origin.0).or_insert_with(|| Origin {
            system: None,
            stand_in: None,
            open: HashMap::new(),
            arriving: HashMap::new(),
            lineup: Lineup::new(wanted),
        })
    }

    fn unit(&mut self, origin: Rank, unit: Unit<'_>) -> Result<bool, Fault> {
        let own = self.origin(origin);
        if unit.place.bytes == 0 {
            own.open.remove(&unit.message);
            return Ok(false);
        }
        let key = (unit.message, unit.unit);
        if own.arriving.contains_key(&key) || unit.described as usize > describe::MOST {
            return Err(fault(6));
        }
        self.done.bytes_in += unit.input;
        let there = self.buffers.enter(origin.0, unit.place, unit.release);
        let there = there.map_err(|refusal| fault(10 + refusal as u64))?;
        let first = self.memory(origin, there).inspect_err(|_| {
            self.buffers.leave(origin.0, unit.place);
        })?;
        let own = self.origin(origin);
        let told = own.open.get(&unit.message).cloned();
        let staging = Staging { input: 0, output: 0, counts: 0, bytes: 0 };
        let head = Unit { data: &[], ..unit };
        let arriving = Arriving {
            head,
            first,
            description: Vec::new(),
            told: if unit.described == 0 { told } else { None },
            staging,
            received: 0,
            wrong: None,
        };
        own.arriving.insert(key, arriving);
        self.feed(origin, key, unit.data)
    }

    /// The address of a place.
    fn memory(&mut self, origin: Rank, there: Where) -> Result<*mut u8, Fault> {
        let (system, promised) = self.sizes;
        let short = |_| fault(7);
        match there {
            Where::Buffer(id, offset) => {
                let attached = self.attached.get(&id).ok_or(fault(8))?;
                Ok(attached.first.wrapping_add(offset as usize))
            }
            Where::System(offset) => {
                let own = self.origin(origin);
                if own.system.is_none() {
                    own.system = Some(Block::new("a system buffer", system).map_err(short)?);
                }
                let block = own.system.as_ref().ok_or(fault(8))?;
                Ok(block.first().wrapping_add(offset as usize))
            }
            Where::StandIn(offset) => {
                self.done.stood_in += 1;
                let own = self.origin(origin);
                if own.stand_in.is_none() {
                    own.stand_in = Some(Block::new("a promised buffer", promised).map_err(short)?);
                }
                let block = own.stand_in.as_ref().ok_or(fault(8))?;
                Ok(block.first().wrapping_add(offset as usize))
            }
        }
    }

    /// The next bytes of a unit's stream; whether it is complete and to be run.
    fn feed(&mut self, origin: Rank, key: (u64, u32), data: &[u8]) -> Result<bool, Fault> {
        let handlers = self.handlers.clone();
        let own = self.origin(origin);
        let Some(arriving) = own.arriving.get_mut(&key) else { return Err(fault(4)) };
        let head = arriving.head;
        let total = head.stream().ok_or(fault(9))?;
        let described = u64::from(head.described);
        if data.len() as u64 > total - arriving.received {
            return Err(fault(9));
        }
        let missing = (described - described.min(arriving.received)) as usize;
        let (description, input) = data.split_at(missing.min(data.len()));
        arriving.description.extend_from_slice(description);
        // With the description complete, or none to come, everything can be checked.
        let begins =
            arriving.received <= described && arriving.received + data.len() as u64 >= described;
        if begins && arriving.staging.bytes == 0 && arriving.wrong.is_none() {
            match arriving.begin(&handlers) {
                Ok(()) => {}
                Err(status) => arriving.wrong = Some(status),
            }
        }
        if begins
            && described > 0
            && !head.ends
            && let Some(told) = &arriving.told
        {
            let told = told.clone();
            if own.open.len() >= MOST_OPEN {
                return Err(fault(40));
            }
            own.open.insert(head.message, told);
        }
        if head.ends {
            own.open.remove(&head.message);
        }
        let Some(arriving) = own.arriving.get_mut(&key) else { return Err(fault(4)) };
        if arriving.wrong.is_none() {
            let position = (arriving.received + description.len() as u64).saturating_sub(described);
            arriving.put(position as usize, input);
        }
        arriving.received += data.len() as u64;
        if arriving.received < total {
            return Ok(false);
        }
        let Some(arriving) = own.arriving.remove(&key) else { return Err(fault(4)) };
        Ok(self.complete(origin, arriving))
    }

    /// A unit has come: whether it is to be run.
    fn complete(&mut self, origin: Rank, arriving: Arriving) -> bool {
        let Arriving { head, first, told, staging, wrong, .. } = arriving;
        if let Some(status) = wrong {
            self.reply(origin, head, told, Outcome::failed(status), std::ptr::null());
            return false;
        }
        let id = self.next;
        self.next += 1;
        let mark =
            Mark { message: head.message, handler: head.handler, at: head.at, span: head.span };
        self.origin(origin).lineup.push(mark, id);
        self.jobs.insert(id, Job { id, origin, head, first, told, staging });
        self.queue.push_back(id);
        true
    }

    /// Whether something could be run now.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next unit to run, if one may be run beside those that are.
    pub fn take(&mut self) -> Option<Job> {
        let may = |id: &u64| {
            let Some(job) = self.jobs.get(id) else { return true };
            if self.running == 0 {
                return true;
            }
            let own = self.origins.get(&job.origin.0);
            !self.alone
                && job.head.concurrent
                && own.is_some_and(|own| own.lineup.ready().any(|ready| ready == *id))
        };
        let at = self.queue.iter().take(LOOK_AHEAD).position(may)?;
        let id = self.queue.remove(at)?;
        let job = self.jobs.remove(&id)?;
        self.running += 1;
        self.alone |= !job.head.concurrent;
        Some(job)
    }

    /// A unit has been run.
    pub fn finish(&mut self, job: Job, outcome: Outcome) {
        self.running -= 1;
        if self.running == 0 {
            self.alone = false;
            self.graves.clear();
        }
        if let Some(own) = self.origins.get_mut(&job.origin.0) {
            own.lineup.remove(job.id);
        }
        match (job.head.work, outcome.status) {
            (Work::Run, _) => self.done.units += 1,
            (Work::Fetch, _) => self.done.fetched += 1,
            (Work::Store, Status::Stale) => self.done.stale += 1,
            (Work::Store, _) => self.done.stored += 1,
        }
        let output = job.first.wrapping_add(job.staging.output);
        self.reply(job.origin, job.head, job.told, outcome, output);
        self.answer();
    }

    fn reply(
        &mut self,
        origin: Rank,
        head: Unit<'static>,
        told: Option<Arc<Told>>,
        outcome: Outcome,
        output: *const u8,
    ) {
        let Outcome { status, counts, text } = outcome;
        if !self.origins.contains_key(&origin.0) {
            // It has died meanwhile.
            self.buffers.leave(origin.0, head.place);
            return;
        }
        let (mut lead, mut form, mut bytes) = (text.into_bytes(), Form::Whole, 0);
        let mut short = None;
        if status == Status::Done {
            lead.clear();
            bytes = head.output as usize;
            if let (Some(counts), Some(told)) = (counts, &told) {
                let kept = &told.described.output;
                let counts: Vec<u32> = counts.iter().map(|&count| count as u32).collect();
                put_counts(kept.count, &counts, &mut lead);
                let all = Output {
                    entry: kept.layout.size(),
                    most: kept.count,
                    segments: counts.len(),
                    counts: Some(&counts),
                };
                form = all.form(self.threshold);
                bytes = all.bytes(form);
                match form {
                    Form::Packed => self.done.packed += 1,
                    Form::Whole => self.done.whole += 1,
                }
                short = Some(counts);
            }
        }
        let total = (lead.len() + bytes) as u64;
        self.done.bytes_out += total;
        self.replies.push_back(Reply {
            origin,
            head,
            status,
            form,
            lead,
            counts: short,
            told,
            output,
            position: 0,
            total,
        });
    }

    /// Turns what the buffers have to say into notes.
    fn answer(&mut self) {
        for answer in self.buffers.answers() {
            let (origin, note) = match answer {
                Answer::Granted { origin, ticket, spaces } => {
                    self.done.granted += 1;
                    let mut bytes = Vec::new();
                    for (space, size) in spaces {
                        put_space(&mut bytes, space, size);
                    }
                    let mut out = Vec::new();
                    let Ok(spaces) = Spaces::new(&bytes) else { continue };
                    Note::Granted { ticket, spaces }.encode(&mut out);
                    (origin, out)
                }
                Answer::Refused { origin, ticket, largest, attached } => {
                    self.done.refused += 1;
                    let mut out = Vec::new();
                    Note::Refused { ticket, largest, attached }.encode(&mut out);
                    (origin, out)
                }
            };
            self.notes.push_back((Rank(origin), note));
        }
    }

    /// Lets notes out that have to go out by themselves.
    pub fn answers(&mut self) {
        self.answer();
    }

    /// Whether there are notes to be sent.
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty() || !self.replies.is_empty()
    }

    /// Sends notes, as far as there is room; whether any.
    pub fn pump(&mut self, out: &mut dyn Outgoing, most: usize) -> bool {
        let (mut sent, mut full) = (false, Vec::new());
        for _ in 0..self.notes.len() {
            let Some((to, note)) = self.notes.pop_front() else { break };
            if full.contains(&to) || out.note(to, &note) == Sent::Full {
                full.push(to);
                self.notes.push_back((to, note));
            } else {
                sent = true;
            }
        }
        for _ in 0..self.replies.len() {
            let Some(mut reply) = self.replies.pop_front() else { break };
            let mut left = full.contains(&reply.origin);
            while !left {
                let mut note = std::mem::take(&mut self.note);
                let (data, last) = reply.next(most);
                let Unit { message, unit, .. } = reply.head;
                let Reply { status, form, position, .. } = reply;
                Note::Done { message, unit, status, form, position, last, data: &data }
                    .encode(&mut note);
                let put = out.note(reply.origin, &note);
                self.note = note;
                if put == Sent::Full {
                    full.push(reply.origin);
                    left = true;
                    break;
                }
                sent = true;
                reply.position += data.len() as u64;
                if last {
                    break;
                }
            }
            if left {
                self.replies.push_back(reply);
                continue;
            }
            self.buffers.leave(reply.origin.0, reply.head.place);
            self.shrink(reply.origin);
            self.answer();
        }
        sent
    }

    /// Gives back an origin's memory when nothing of it is here.
    fn shrink(&mut self, origin: Rank) {
        // Of few origins they stay, to spare their making.
        if self.origins.len() <= 16 || !self.buffers.is_idle(origin.0) {
            return;
        }
        if let Some(own) = self.origins.get_mut(&origin.0) {
            (own.system, own.stand_in) = (None, None);
            if own.open.is_empty() && own.arriving.is_empty() && own.lineup.is_empty() {
                self.origins.remove(&origin.0);
            }
        }
    }

    /// An origin is gone: what it has here is dropped, but for what is running.
    pub fn died(&mut self, origin: Rank) {
        let Some(own) = self.origins.remove(&origin.0) else {
            self.buffers.died(origin.0);
            return self.answer();
        };
        let mut places: Vec<_> =
            own.arriving.values().map(|arriving| arriving.head.place).collect();
        let jobs = &mut self.jobs;
        self.queue.retain(|id| {
            let gone = jobs.get(id).is_some_and(|job| job.origin == origin);
            if gone && let Some(job) = jobs.remove(id) {
                places.push(job.head.place);
            }
            !gone
        });
        self.notes.retain(|(to, _)| *to != origin);
        self.replies.retain(|reply| {
            if reply.origin == origin {
                places.push(reply.head.place);
            }
            reply.origin != origin
        });
        self.buffers.died(origin.0);
        for place in places {
            self.buffers.leave(origin.0, place);
        }
        if self.running > 0 {
            // Its memory may be in use.
            self.graves.extend([own.system, own.stand_in].into_iter().flatten());
        }
        self.answer();
    }

    /// Nothing more is run; whether nothing is running.
    pub fn close(&mut self) -> bool {
        self.closed = true;
        self.queue.clear();
        self.jobs.clear();
        self.running == 0
    }

    /// Origins that are known, units that wait, handlers that run.
    pub fn held(&self) -> (u64, u64, u64) {
        (self.origins.len() as u64, self.queue.len() as u64, self.running as u64)
    }
}
