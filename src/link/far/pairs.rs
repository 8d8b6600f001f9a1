//! The connected queue pairs of a process: what they send from and receive into, and what they have
//! done.
//!
//! ```text
//!   queue pairs (one for a flow and a peer) --+--> one shared receive queue --> places  \  of one
//!                                             '--> places of what is under way          /  message
//!   message:   number 8 | label 8 | room 4 | kind 4 | bytes
//! ```
//! A message is copied into a place, which it keeps until the peer's device has it: of a queue pair
//! that fails everything that may be lost is still there. At the receiver it is copied out of its
//! place at once, and the place is posted again. Memory is made when the first queue pair is, and
//! grows with what is under way: a device whose queue pairs find no receive makes them wait, so there
//! are more when half of them were found used, up to as many as peers have promised not to exceed.

use super::Flow;
use super::counters::PairCounts;
use super::transfer::{ABREAST, Direction, Part, Registered};
use crate::base::hints::Hints;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::base::{Error, Rank, Result};
use crate::link::MAX_MESSAGE;
use crate::net::memory::Memory;
use crate::net::promotion::{Promotion, Settings};
use crate::net::provider::{
    Access, Arm, Completion, CompletionQueue, Data, Device, Event, Operation, PostError, Queues,
    RcOptions, RcQueuePair, Receive, Region, SharedReceiveQueue, Status, Work,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes before a message's own.
pub(super) const HEAD: usize = 24;

/// Messages that a peer may have sent by a queue pair and that nobody has taken.
pub(super) const ROOM: u32 = 64;

/// Completions that are taken at a time.
pub(super) const BATCH: u32 = 64;

/// What is posted by one queue pair at a time: its window, and what goes beside it.
const SEND_DEPTH: u32 = 2 * ROOM + ABREAST;

/// What parts of transfers are called in completions: places have lower numbers.
const PART: u64 = 1 << 32;

/// Places that are made at a time.
const CHUNK: u32 = 32;

/// Places of each kind at most.
pub(super) const MOST: u32 = 2048;

/// A message in a process's hands: its head, as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Of the message on its flow; of nothing else.
    pub number: u64,
    pub label: u64,
    /// Messages that its receiver may have sent by this queue pair in all.
    pub room: u32,
    pub kind: Kind,
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One of the flow.
    Message = 0,
    /// A packet about queue pairs.
    Control = 1,
    /// Only its head matters.
    Room = 2,
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.label.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.room.to_le_bytes());
        bytes[20..].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    /// What a peer has sent, and what is behind its head.
    pub fn decode(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let kind = match short(20)? {
            0 => Kind::Message,
            1 => Kind::Control,
            2 => Kind::Room,
            _ => return None,
        };
        Some((Head { number: long(0)?, label: long(8)?, room: short(16)?, kind }, rest))
    }
}

/// What has happened to a queue pair.
pub(super) enum Came<'a> {
    /// A message has come.
    Message(&'a [u8]),
    /// The first of what was posted and is under way is with the peer.
    Sent,
    /// It failed.
    Failed,
}

/// How posting went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is under way, from this place.
    Sent(u32),
    /// There is no room now.
    Full,
    /// The queue pair cannot send.
    Failed,
}

/// Registered memory, in places of one message each.
struct Places {
    stride: u64,
    access: Access,
    chunks: Vec<Arc<Region>>,
}

impl Places {
    fn count(&self) -> u32 {
        self.chunks.len() as u32 * CHUNK
    }

    /// Adds a chunk; its places.
    fn grow(&mut self, device: &dyn Device) -> Result<std::ops::Range<u32>> {
        let memory = Memory::zeroed((self.stride * u64::from(CHUNK)) as usize)?;
        let first = self.count();
        self.chunks.push(Arc::new(device.register(&memory, self.access)?));
        Ok(first..first + CHUNK)
    }

    fn at(&self, place: u32) -> Option<(Arc<Region>, u64)> {
        let region = self.chunks.get((place / CHUNK) as usize)?.clone();
        Some((region, u64::from(place % CHUNK) * self.stride))
    }
}

struct Known {
    rank: Rank,
    flow: Flow,
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
    known: HashMap<u32, Known>,
    retired: u32,
}

impl State {
    /// Adds a chunk of receives.
    fn post_more(&mut self, device: &dyn Device) -> Result<()> {
        let Some(queue) = self.queue.clone() else { return Ok(()) };
        for place in self.receives.grow(device)? {
            post_receive(&self.receives, &queue, place)?;
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
    /// Parts of transfers that are under way, for all of which somebody waits.
    parts: AtomicU32,
    hints: Arc<Hints>,
    /// What its queue pairs have done.
    pub counts: PairCounts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pairs {
    /// None yet. They complete in `queue`; what does not answer for `patience` has failed.
    pub fn new(
        device: Arc<dyn Device>,
        queue: Arc<dyn CompletionQueue>,
        settings: Settings,
        patience: Duration,
        hints: Arc<Hints>,
    ) -> Result<Pairs> {
        let stride = ((MAX_MESSAGE + HEAD) as u64).next_multiple_of(64);
        let places = |access| Places { stride, access, chunks: Vec::new() };
        let state = State {
            queue: None,
            receives: places(Access::LOCAL_WRITE),
            sends: places(Access::LOCAL_READ),
            free: Vec::new(),
            known: HashMap::new(),
            retired: 0,
        };
        Ok(Pairs {
            queue,
            patience,
            state: Mutex::new(state),
            policy: Mutex::new(Promotion::new(settings)),
            victims: Mutex::default(),
            any: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            parts: AtomicU32::new(0),
            hints,
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

    /// Makes a queue pair for a flow of a peer.
    ///
    /// # Errors
    /// The device's limits; no memory.
    pub fn open(&self, rank: Rank, flow: Flow) -> Result<Arc<dyn RcQueuePair>> {
        let mut state = lock(&self.state);
        let depth = MOST.min(self.device.capabilities().shared_receive_depth);
        if depth == 0 {
            return Err(Error::boot("the network device has no shared receive queues"));
        }
        let queue = match &state.queue {
            Some(queue) => queue.clone(),
            None => state.queue.insert(self.device.shared_receive_queue(depth, 1)?).clone(),
        };
        if state.receives.count() == 0 {
            state.post_more(&*self.device)?;
        }
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
        let pair = self.device.rc(&queues, &options)?;
        let known = Known { rank, flow, under_way: 0, retired: None };
        state.known.insert(pair.number(), known);
        self.any.store(true, Ordering::Release);
        Ok(pair)
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

    /// Sends a message by a queue pair.
    pub fn post(&self, pair: &dyn RcQueuePair, head: &Head, bytes: [&[u8]; 2]) -> Posted {
        let Some((place, region, at)) = self.free_place() else { return Posted::Full };
        let (first, second) = (at + HEAD as u64, at + (HEAD + bytes[0].len()) as u64);
        let length = (HEAD + bytes[0].len() + bytes[1].len()) as u32;
        let memory = region.memory();
        let written = memory.write(at, &head.encode())
            && memory.write(first, bytes[0])
            && memory.write(second, bytes[1]);
        let posted = match region.local(at, length) {
            Ok(piece) if written => {
                let data = Data::Pieces(std::slice::from_ref(&piece));
                let send = Operation::Send { data, immediate: None };
                // Counted before: its completion may be there at once.
                self.count(pair.number());
                // Whoever sleeps at the other end is to have it; that it was sent wakes nobody.
                let work = Work { solicited: true, ..Work::new(place.into(), send) };
                match pair.post(&[work]) {
                    Ok(()) => return Posted::Sent(place),
                    Err(refused) => {
                        self.uncount(pair.number());
                        if refused.why == PostError::Full { Posted::Full } else { Posted::Failed }
                    }
                }
            }
            _ => Posted::Failed,
        };
        lock(&self.state).free.push(place);
        posted
    }

    /// Posts a part of a transfer by a queue pair. Its place is none.
    pub fn post_part(&self, pair: &dyn RcQueuePair, part: &Part) -> Posted {
        let here = std::slice::from_ref(&part.here);
        let operation = match part.direction {
            Direction::Read => Operation::Read { into: here, from: part.there },
            Direction::Write => {
                Operation::Write { data: Data::Pieces(here), to: part.there, immediate: None }
            }
        };
        self.count(pair.number());
        self.parts.fetch_add(1, Ordering::AcqRel);
        // Whoever asked sleeps until the network's thread, which may sleep too, has seen it.
        let armed = self.queue.arm(Arm::Any);
        match armed.is_ok().then(|| pair.post(&[Work::new(PART, operation)])) {
            Some(Ok(())) => Posted::Sent(u32::MAX),
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
        Registered::new(&*self.device, memory, access)
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

    fn free_place(&self) -> Option<(u32, Arc<Region>, u64)> {
        let mut state = lock(&self.state);
        if state.free.is_empty() && state.sends.count() < MOST {
            // Without memory it is as if all were under way.
            let fresh = state.sends.grow(&*self.device).ok()?;
            state.free.extend(fresh);
        }
        let place = state.free.pop()?;
        state.sends.at(place).map(|(region, at)| (place, region, at))
    }

    /// A message as it lies in the place that it was posted from: its head, and what is behind.
    pub fn read_back(&self, place: u32, length: usize) -> Option<(Head, Vec<u8>)> {
        let (region, at) = lock(&self.state).sends.at(place)?;
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
            let well = done.status == Status::Success;
            f(rank, flow, if well { Came::Sent } else { Came::Failed });
        }
        if done.id == PART {
            return self.part_ended(done.queue_pair);
        }
        self.uncount(done.queue_pair);
        // Not before: what it holds may have been asked for.
        lock(&self.state).free.push(done.id as u32);
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
        let (place, whose) = (done.id as u32, self.whose(done.queue_pair));
        let at = lock(&self.state).receives.at(place);
        scratch.resize(scratch.len().max(MAX_MESSAGE + HEAD), 0);
        let length = (done.length as usize).min(scratch.len());
        let bytes = &mut scratch[..length];
        match (whose, at) {
            (Some((rank, flow)), _) if done.status != Status::Success => {
                f(rank, flow, Came::Failed);
            }
            (Some((rank, flow)), Some((region, at))) if region.memory().read(at, bytes) => {
                f(rank, flow, Came::Message(bytes));
            }
            _ => {}
        }
        let state = lock(&self.state);
        if let Some(queue) = &state.queue {
            // It was taken from there; failing this, there is a place less to receive into.
            let _ = post_receive(&state.receives, queue, place);
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

fn post_receive(places: &Places, queue: &Arc<dyn SharedReceiveQueue>, place: u32) -> Result<()> {
    let Some((region, at)) = places.at(place) else { return Ok(()) };
    let piece = region.local(at, places.stride as u32).map_err(|why| why.error())?;
    let receive = Receive { id: place.into(), pieces: &[piece] };
    queue.post(&[receive]).map_err(|refused| refused.error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire_and_senseless_ones_are_nothing() {
        for kind in [Kind::Message, Kind::Control, Kind::Room] {
            let head = Head { number: u64::MAX - 1, label: 7, room: 9, kind };
            let bytes = [&head.encode()[..], b"rest"].concat();
            assert_eq!(Head::decode(&bytes), Some((head, &b"rest"[..])));
        }
        let mut bytes = Head { number: 0, label: 0, room: 0, kind: Kind::Room }.encode();
        assert_eq!(Head::decode(&bytes[..HEAD - 1]), None);
        bytes[20] = 3;
        assert_eq!(Head::decode(&bytes), None);
    }
}
