//! The connected queue pairs of a process: what they send from and receive into, and what they have
//! done.
//!
//! ```text
//!   queue pairs (one for a flow and a peer) --+--> one shared receive queue --> places  \  of one
//!        with larger eager thresholds --.     '--> places of what is under way          /  message
//!                                       '--> stock: the same for each size class
//! ```
//! A message ([`head`](super::head)) is copied into a place, which it keeps until the peer's device
//! has it: of a queue pair that fails everything that may be lost is still there. At the receiver it
//! is copied out of its place at once, and the place is posted again; large ones stay where they are
//! until they are taken ([`stock`](super::stock)). Memory is made when the first queue pair is, and
//! grows with what is under way: a device whose queue pairs find no receive makes them wait, so there
//! are more when half of them were found used, up to as many as peers have promised not to exceed.

use super::Flow;
use super::bounce::Supplies;
use super::counters::PairCounts;
use super::head::{HEAD, Head};
use super::kept::{Kept, Registered};
use super::outlet::PairSettings;
use super::places::{Places, Spot};
use super::stock::{self, Held, Stocks, USUAL};
use super::transfer::{ABREAST, Direction, Motion, Part, Update};
use crate::base::adapt::Class;
use crate::base::hints::Hints;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::base::{Error, Rank, Result};
use crate::link::MAX_MESSAGE;
use crate::net::memory::Memory;
use crate::net::promotion::Promotion;
use crate::net::provider::{
    Access, Arm, Capabilities, Completion, CompletionQueue, Data, Device, Event, Operation,
    PostError, Queues, RcOptions, RcQueuePair, Region, SharedReceiveQueue, Status, Work,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Messages that a peer may have sent by a queue pair and that nobody has taken.
pub(super) const ROOM: u32 = 64;

/// Completions that are taken at a time.
pub(super) const BATCH: u32 = 64;

/// What is posted by one queue pair at a time: its window, and what goes beside it.
const SEND_DEPTH: u32 = 2 * ROOM + ABREAST;

/// What parts of transfers are called in completions; no place is.
const PART: u64 = 1 << 63;

/// Places that are made at a time.
const CHUNK: u32 = 32;

/// Places of each kind at most.
pub(super) const MOST: u32 = 2048;

/// What has happened to a queue pair.
pub(super) enum Came<'a> {
    /// A message has come: all of it, or its head and what is behind.
    Message(&'a [u8], Option<Held>),
    /// The first of what was posted and is under way is with the peer.
    Sent,
    /// It failed; whether because the peer refuses the first of what is under way.
    Failed { refused: bool },
}

/// How posting went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is under way, from this place.
    Sent(Spot),
    /// There is no room now.
    Full,
    /// The queue pair cannot send.
    Failed,
}

struct Known {
    rank: Rank,
    flow: Flow,
    /// Of the stock that it receives into, if it is one.
    class: Option<Class>,
    /// Posted and not completed.
    under_way: u32,
    /// Nothing is sent by it any more.
    retired: Option<Arc<dyn RcQueuePair>>,
}

struct State {
    queue: Option<Arc<dyn SharedReceiveQueue>>,
    receives: Places,
    sends: Places,
    free: Vec<u32>,
    /// Of larger messages.
    stocks: Stocks,
    known: HashMap<u32, Known>,
    retired: u32,
}

impl State {
    /// The queue of messages of the usual size.
    fn usual_queue(&mut self, device: &dyn Device) -> Result<Arc<dyn SharedReceiveQueue>> {
        let depth = MOST.min(device.capabilities().shared_receive_depth);
        if depth == 0 {
            return Err(Error::boot("the network device has no shared receive queues"));
        }
        let queue = match &self.queue {
            Some(queue) => queue.clone(),
            None => self.queue.insert(device.shared_receive_queue(depth, 1)?).clone(),
        };
        if self.receives.count() == 0 {
            self.post_more(device)?;
        }
        Ok(queue)
    }

    /// A place for a message of so many bytes, to go by a queue pair of a class.
    fn free_place(
        &mut self,
        device: &dyn Device,
        length: usize,
        class: Class,
    ) -> Option<(Spot, Arc<Region>, u64)> {
        if length > MAX_MESSAGE + HEAD {
            return self.stocks.sends(device, class).map(|(spot, region)| (spot, region, 0));
        }
        if self.free.is_empty() && self.sends.count() < MOST {
            // Without memory it is as if all were under way.
            let fresh = self.sends.grow(device).ok()?;
            self.free.extend(fresh);
        }
        let place = self.free.pop()?;
        let spot = Spot { exponent: 0, place };
        self.sends.at(place).map(|(region, at)| (spot, region, at))
    }

    fn give_place(&mut self, spot: Spot) {
        if spot.exponent == 0 { self.free.push(spot.place) } else { self.stocks.free(spot) }
    }

    /// Adds a chunk of receives.
    fn post_more(&mut self, device: &dyn Device) -> Result<()> {
        let Some(queue) = self.queue.clone() else { return Ok(()) };
        for place in self.receives.grow(device)? {
            self.receives.post(&*queue, place)?;
        }
        Ok(())
    }
}

/// See the [module](self).
pub(super) struct Pairs {
    device: Arc<dyn Device>,
    /// Where everything completes; who looks there finds others' completions, too.
    queue: Arc<dyn CompletionQueue>,
    patience: Duration,
    state: Mutex<State>,
    /// Who gets a queue pair.
    policy: Mutex<Promotion>,
    /// Those of a flow that are to lose theirs.
    victims: Mutex<Vec<u32>>,
    /// Whether there has been one.
    any: AtomicBool,
    /// Somebody waits until something that was sent has completed.
    awaited: AtomicBool,
    /// Where the results of updates arrive, and what short transfers go through.
    bounces: Supplies,
    /// Parts of transfers that are under way, for all of which somebody waits.
    parts: AtomicU32,
    hints: Arc<Hints>,
    kept: Arc<Kept>,
    /// What its queue pairs have done.
    pub counts: PairCounts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pairs {
    /// None yet. They complete in `queue`.
    pub fn new(
        device: Arc<dyn Device>,
        queue: Arc<dyn CompletionQueue>,
        settings: PairSettings,
    ) -> Result<Pairs> {
        let PairSettings { policy, patience, limits, hints, kept } = settings;
        let places = |access| Places::new(0, (MAX_MESSAGE + HEAD) as u64, CHUNK, access);
        let state = State {
            queue: None,
            receives: places(Access::LOCAL_WRITE),
            sends: places(Access::LOCAL_READ),
            free: Vec::new(),
            stocks: Stocks::new(limits),
            known: HashMap::new(),
            retired: 0,
        };
        Ok(Pairs {
            queue,
            patience,
            state: Mutex::new(state),
            policy: Mutex::new(Promotion::new(policy)),
            victims: Mutex::default(),
            any: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            bounces: Supplies::new(device.clone()),
            parts: AtomicU32::new(0),
            hints,
            kept: Kept::new(device.clone(), kept),
            counts: PairCounts::default(),
            device,
        })
    }

    /// Who gets a queue pair, and who loses one.
    pub fn policy(&self) -> MutexGuard<'_, Promotion> {
        lock(&self.policy)
    }

    /// Whether the program is where it has to be fast.
    #[inline]
    pub fn in_kernel(&self) -> bool {
        self.hints.in_kernel()
    }

    /// These flows to peers are to go back to datagrams.
    pub fn condemn(&self, victim: u32) {
        lock(&self.victims).push(victim);
    }

    /// Those of a flow that are to go back.
    pub fn victims(&self, flow: Flow) -> Vec<u32> {
        let mut all = lock(&self.victims);
        if all.is_empty() {
            return Vec::new();
        }
        all.extract_if(.., |victim| super::deliver::from_number(*victim).1 == Some(flow)).collect()
    }

    /// Whether a queue pair of a class could be made for a flow now: only messages have large ones.
    pub fn can_join(&self, flow: Flow, class: Class) -> bool {
        let longest = u64::from(self.device.capabilities().message);
        class <= USUAL
            || flow == Flow::Messages
                && class.threshold() <= longest
                && lock(&self.state).stocks.can_join(class)
    }

    /// Makes a queue pair of a class for a flow of a peer.
    ///
    /// # Errors
    /// The device's limits, and those of memory for messages; no memory.
    pub fn open(&self, rank: Rank, flow: Flow, class: Class) -> Result<Arc<dyn RcQueuePair>> {
        if !self.can_join(flow, class) {
            return Err(Error::boot("no queue pair for messages of that size is to be had"));
        }
        let class = (class > USUAL).then_some(class);
        let mut state = lock(&self.state);
        let queue = match class {
            Some(class) => state.stocks.join(&*self.device, class, self.now())?,
            None => state.usual_queue(&*self.device)?,
        };
        let queues = Queues {
            send: &self.queue,
            receive: &self.queue,
            send_depth: SEND_DEPTH,
            receive_depth: 0,
            pieces: 1,
            inline: 0,
            shared: Some(&queue),
        };
        let options = RcOptions {
            patience: self.patience,
            receiver_patience: self.patience,
            keepalive: None,
        };
        let pair = match self.device.rc(&queues, &options) {
            Ok(pair) => pair,
            Err(error) => {
                let now = self.now();
                class.into_iter().for_each(|class| state.stocks.leave(class, now));
                return Err(error);
            }
        };
        let known = Known { rank, flow, class, under_way: 0, retired: None };
        state.known.insert(pair.number(), known);
        self.any.store(true, Ordering::Release);
        Ok(pair)
    }

    fn now(&self) -> u64 {
        self.device.now().0
    }

    /// Bytes that larger messages are received into, now and at most.
    pub fn stock_bytes(&self) -> (u64, u64) {
        lock(&self.state).stocks.bytes()
    }

    /// Nothing is sent by a queue pair any more. It goes when everything that was posted, and that
    /// had come, has been looked at.
    pub fn retire(&self, pair: Arc<dyn RcQueuePair>) {
        let mut state = lock(&self.state);
        if let Some(known) = state.known.get_mut(&pair.number())
            && known.retired.replace(pair).is_none()
        {
            state.retired += 1;
        }
    }

    /// Sends a message by a queue pair of a class, which it is not too long for.
    pub fn post(
        &self,
        pair: &dyn RcQueuePair,
        class: Class,
        head: &Head,
        bytes: [&[u8]; 2],
    ) -> Posted {
        let length = HEAD + bytes[0].len() + bytes[1].len();
        let free = lock(&self.state).free_place(&*self.device, length, class);
        let Some((spot, region, at)) = free else { return Posted::Full };
        let (first, second) = (at + HEAD as u64, at + (HEAD + bytes[0].len()) as u64);
        let memory = region.memory();
        let written = memory.write(at, &head.encode())
            && memory.write(first, bytes[0])
            && memory.write(second, bytes[1]);
        let posted = match region.local(at, length as u32) {
            Ok(piece) if written => {
                let data = Data::Pieces(std::slice::from_ref(&piece));
                let send = Operation::Send { data, immediate: None };
                // Counted before: its completion may be there at once.
                self.count(pair.number());
                // Whoever sleeps at the other end is to have it; that it was sent wakes nobody.
                let work = Work { solicited: true, ..Work::new(spot.id(), send) };
                match pair.post(&[work]) {
                    Ok(()) => return Posted::Sent(spot),
                    Err(refused) => {
                        self.uncount(pair.number());
                        if refused.why == PostError::Full { Posted::Full } else { Posted::Failed }
                    }
                }
            }
            _ => Posted::Failed,
        };
        lock(&self.state).give_place(spot);
        posted
    }

    /// Posts a part of a transfer by a queue pair. Its place is none.
    pub fn post_part(&self, pair: &dyn RcQueuePair, part: &Part) -> Posted {
        let here = std::slice::from_ref(&part.here);
        let (into, at) = (part.here, part.there);
        let operation = match part.motion {
            Motion::Copy(Direction::Read) => Operation::Read { into: here, from: at },
            Motion::Copy(Direction::Write) => {
                Operation::Write { data: Data::Pieces(here), to: at, immediate: None }
            }
            Motion::Update(Update::Add(add)) => Operation::FetchAdd { into, at, add },
            Motion::Update(Update::CompareSwap { compare, swap }) => {
                Operation::CompareSwap { into, at, compare, swap }
            }
        };
        self.count(pair.number());
        self.parts.fetch_add(1, Ordering::AcqRel);
        // Whoever asked sleeps until the network's thread, which may sleep too, has seen it.
        let armed = self.queue.arm(Arm::Any);
        match armed.is_ok().then(|| pair.post(&[Work::new(PART, operation)])) {
            Some(Ok(())) => Posted::Sent(Spot::from_id(PART)),
            Some(Err(refused)) if refused.why == PostError::Full => {
                self.part_ended(pair.number());
                Posted::Full
            }
            _ => {
                self.part_ended(pair.number());
                Posted::Failed
            }
        }
    }

    fn part_ended(&self, pair: u32) {
        self.uncount(pair);
        self.parts.fetch_sub(1, Ordering::AcqRel);
    }

    /// Has the device know memory, for as long as the result lives.
    ///
    /// # Errors
    /// The device's limits; memory of a kind that it does not take.
    pub fn register(&self, memory: &Memory, access: Access) -> Result<Registered> {
        self.kept.register(memory, access)
    }

    /// Registrations that stay.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// What the device can do.
    pub fn capabilities(&self) -> Capabilities {
        *self.device.capabilities()
    }

    /// Memory for what is short.
    pub fn bounces(&self) -> &Supplies {
        &self.bounces
    }

    /// Bytes of one part of a transfer at most.
    pub fn longest(&self) -> u64 {
        self.device.capabilities().message.into()
    }

    fn count(&self, pair: u32) {
        if let Some(known) = lock(&self.state).known.get_mut(&pair) {
            known.under_way += 1;
        }
    }

    fn uncount(&self, pair: u32) {
        if let Some(known) = lock(&self.state).known.get_mut(&pair) {
            known.under_way = known.under_way.saturating_sub(1);
        }
    }

    /// A message as it lies in the place that it was posted from: its head, and what is behind.
    pub fn read_back(&self, spot: Spot, length: usize) -> Option<(Head, Vec<u8>)> {
        let mut state = lock(&self.state);
        let (region, at) = match spot.exponent {
            0 => state.sends.at(spot.place)?,
            _ => (state.stocks.sent(spot)?, 0),
        };
        drop(state);
        let mut bytes = Vec::new();
        let there = region.memory().append(at, HEAD + length, &mut bytes);
        let (head, _) = there.then(|| Head::decode(&bytes))??;
        bytes.drain(..HEAD);
        Some((head, bytes))
    }

    /// Has completions of what was sent end the next sleep, too; whether they would not have.
    pub fn await_sent(&self) -> bool {
        self.are_there() && !self.awaited.swap(true, Ordering::AcqRel)
    }

    /// What is to end the next sleep.
    pub fn arms(&self) -> Arm {
        let parts = self.parts.load(Ordering::Acquire) > 0;
        if self.awaited.swap(false, Ordering::AcqRel) || parts { Arm::Any } else { Arm::Solicited }
    }

    /// Whether there has been a queue pair.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Those by which nothing is sent any more: what comes of them is there already.
    pub fn retired(&self) -> Vec<u32> {
        let state = lock(&self.state);
        if state.retired == 0 {
            return Vec::new();
        }
        let old = state.known.iter().filter(|(_, known)| known.retired.is_some());
        old.map(|(pair, _)| *pair).collect()
    }

    /// Calls `f` with what a completion says has happened.
    pub fn completed(
        &self,
        done: &Completion,
        scratch: &mut Vec<u8>,
        f: impl FnOnce(Rank, Flow, Came<'_>),
    ) {
        if done.opcode.is_receive() {
            return self.received(done, scratch, f);
        }
        if let Some((rank, flow)) = self.whose(done.queue_pair) {
            let refused = matches!(done.status, Status::RemoteAccess | Status::RemoteInvalid);
            let well = done.status == Status::Success;
            f(rank, flow, if well { Came::Sent } else { Came::Failed { refused } });
        }
        if done.id == PART {
            return self.part_ended(done.queue_pair);
        }
        self.uncount(done.queue_pair);
        // Not before: what it holds may have been asked for.
        lock(&self.state).give_place(Spot::from_id(done.id));
    }

    /// Whether a message has come that is of the usual queue: others make their own buffers.
    pub fn is_usual_receive(done: &Completion) -> bool {
        done.opcode.is_receive() && Spot::from_id(done.id).exponent == 0
    }

    /// So many receives were found used at a time: makes more if they are getting few.
    pub fn need_receives(&self, used: u32) {
        if used < CHUNK / 2 {
            return;
        }
        let mut state = lock(&self.state);
        let (posted, open) = (state.receives.count(), state.known.len() as u32);
        let most = MOST.min(self.device.capabilities().shared_receive_depth) / CHUNK * CHUNK;
        if used >= (posted / 2).min(BATCH) && posted < most.min(CHUNK + open * ROOM) {
            // Without memory there are as many as there were.
            let _ = state.post_more(&*self.device);
        }
    }

    fn received(
        &self,
        done: &Completion,
        scratch: &mut Vec<u8>,
        f: impl FnOnce(Rank, Flow, Came<'_>),
    ) {
        let (spot, whose) = (Spot::from_id(done.id), self.whose(done.queue_pair));
        let well = done.status == Status::Success;
        let mut state = lock(&self.state);
        let (at, held) = if spot.exponent == 0 {
            (state.receives.at(spot.place), None)
        } else {
            let length = if well { done.length as usize } else { 0 };
            match state.stocks.came(&*self.device, spot, length, self.now()) {
                Some(stock::Came::Long(held)) => (None, Some(held)),
                Some(stock::Came::Short(region)) => (Some((region, 0)), None),
                None => (None, None),
            }
        };
        drop(state);
        let copied = held.is_none();
        match (whose, held, at) {
            (Some((rank, flow)), ..) if !well => {
                f(rank, flow, Came::Failed { refused: false });
            }
            (Some((rank, flow)), Some(held), _) => {
                let head = held.head();
                f(rank, flow, Came::Message(&head, Some(held)));
            }
            (Some((rank, flow)), None, Some((region, at))) => {
                let length =
                    (done.length as usize).min(stock::longest(Some(stock::LARGEST)) + HEAD);
                scratch.resize(scratch.len().max(length), 0);
                if region.memory().read(at, &mut scratch[..length]) {
                    f(rank, flow, Came::Message(&scratch[..length], None));
                }
            }
            _ => {}
        }
        // It was taken from there; failing this, there is a place less to receive into.
        let mut state = lock(&self.state);
        if spot.exponent != 0 && copied {
            state.stocks.done(&*self.device, spot, self.now());
        } else if let Some(queue) = state.queue.as_ref().filter(|_| spot.exponent == 0) {
            let _ = state.receives.post(&**queue, spot.place);
        }
    }

    fn whose(&self, pair: u32) -> Option<(Rank, Flow)> {
        lock(&self.state).known.get(&pair).map(|known| (known.rank, known.flow))
    }

    /// Everything that was there when these were [`retired`](Self::retired) has been looked at: those
    /// that have nothing under way go.
    pub fn bury(&self, retired: &[u32]) {
        for pair in retired {
            let mut state = lock(&self.state);
            let done = state.known.get(pair).is_some_and(|known| known.under_way == 0);
            let gone = if done { state.known.remove(pair) } else { None };
            state.retired -= u32::from(gone.is_some());
            if let Some(class) = gone.as_ref().and_then(|known| known.class) {
                state.stocks.leave(class, self.now());
            }
            drop(state);
            // Destroying it is a matter of the device.
            drop(gone);
        }
        // What events tell, completions tell too.
        while self.are_there() && self.device.events(&mut [Event::PortUp; 8]) == 8 {}
    }

    /// Queue pairs that there are.
    pub fn count_open(&self) -> usize {
        lock(&self.state).known.len()
    }
}
