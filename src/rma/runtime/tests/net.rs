//! A world for engines in one thread: streams of messages with bounded room, delivered in any
//! order between pairs, and memories that check what is done to them.

use crate::rma::runtime::{
    Class, Engine, Fault, Handled, Host, Limits, LockFlags, LockKind, Message, Sent, Trouble,
    WindowId,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Poll;

/// Reproducible random numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A message under way, with its bytes.
struct Packet {
    window: WindowId,
    message: Message<'static>,
    bytes: Vec<u8>,
}

impl Packet {
    fn new(window: WindowId, message: &Message<'_>) -> Packet {
        let (message, bytes): (Message<'static>, &[u8]) = match *message {
            Message::Operation { seq, request, lock, riders, body } => {
                (Message::Operation { seq, request, lock, riders, body: &[] }, body)
            }
            Message::Answer { seq, acked, request, result } => (
                Message::Answer { seq, acked, request, result: result.map(|_| &[][..]) },
                result.unwrap_or_default(),
            ),
            Message::Reduce { instance, round, counts } => {
                (Message::Reduce { instance, round, counts: &[] }, counts)
            }
            Message::Control { seq, riders } => (Message::Control { seq, riders }, &[]),
            Message::Lock(query) => (Message::Lock(query), &[]),
            Message::Granted { recovered, clock } => (Message::Granted { recovered, clock }, &[]),
            Message::Discarded { from } => (Message::Discarded { from }, &[]),
            Message::Barrier { instance, round } => (Message::Barrier { instance, round }, &[]),
            Message::Post { number } => (Message::Post { number }, &[]),
            Message::GaveUp { number, died } => (Message::GaveUp { number, died }, &[]),
            Message::Note { body } => (Message::Note { body: &[] }, body),
            Message::Ask => (Message::Ask, &[]),
            Message::Gone { fences } => (Message::Gone { fences }, &[]),
            Message::Where { stale, updates } => (Message::Where { stale, updates }, &[]),
            Message::Place { region } => (Message::Place { region: &[] }, region),
        };
        Packet { window, message, bytes: bytes.to_vec() }
    }

    fn message(&self) -> Message<'_> {
        let bytes = &self.bytes[..];
        match self.message {
            Message::Operation { seq, request, lock, riders, .. } => {
                Message::Operation { seq, request, lock, riders, body: bytes }
            }
            Message::Answer { seq, acked, request, result } => {
                Message::Answer { seq, acked, request, result: result.map(|_| bytes) }
            }
            Message::Reduce { instance, round, .. } => {
                Message::Reduce { instance, round, counts: bytes }
            }
            Message::Note { .. } => Message::Note { body: bytes },
            other => other,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Put,
    Add,
    Get,
    /// One that the target refuses.
    Fail,
}

/// An operation as the memories understand it.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    pub action: Action,
    pub cell: u32,
    pub value: u64,
    /// Its place among all operations of its origin on this target and window.
    pub serial: u64,
    /// Of active epochs: the number of the origin's epoch on this window; 0 for locks.
    pub epoch: u64,
    /// Bytes that make it long.
    pub padding: usize,
}

impl Body {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.action as u8];
        bytes.extend(self.cell.to_le_bytes());
        for number in [self.value, self.serial, self.epoch] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(bytes.len() + self.padding, 0xa5);
        bytes
    }

    fn parse(bytes: &[u8]) -> Body {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let action = [Action::Put, Action::Add, Action::Get, Action::Fail][bytes[0] as usize];
        let cell = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
        let padding = bytes.len() - 29;
        assert!(bytes[29..].iter().all(|byte| *byte == 0xa5));
        Body { action, cell, value: number(5), serial: number(13), epoch: number(21), padding }
    }
}

pub const CELLS: usize = 8;

/// One rank's part of one window, and what is known of the epochs at it.
#[derive(Default)]
pub struct Part {
    pub cells: [u64; CELLS],
    /// Operations performed, by origin.
    pub performed: HashMap<u32, u64>,
    /// Notes that have come, by sender: how many, each with its number.
    pub notes: HashMap<u32, u64>,
    /// Operations of this rank that were refused without anybody waiting for them.
    pub refused: u64,
}

/// What a rank has said of its active epochs, to hold what others do against it.
#[derive(Default)]
pub struct Said {
    /// Fences called.
    pub fences: u64,
    /// By number of the fence: operations given before it, by target.
    pub given_before: Vec<HashMap<u32, u64>>,
    /// Origins of the exposure epoch.
    pub exposed: Vec<u32>,
    /// Its number, which operations of numbered epochs must have.
    pub exposure: u64,
}

/// Everything outside the engines.
pub struct Net {
    pub size: u32,
    pub dice: Dice,
    streams: Vec<VecDeque<Packet>>,
    /// Messages that a stream may hold.
    pub room: usize,
    pub parts: HashMap<(u32, WindowId), Part>,
    pub said: HashMap<(u32, WindowId), Said>,
    /// Windows whose operations are of fences, by number of fences called.
    pub fenced: Vec<WindowId>,
    /// Windows whose operations are of exposure epochs.
    pub exposed: Vec<WindowId>,
    /// Results by rank and token.
    pub results: Vec<HashMap<u64, Result<u64, Trouble>>>,
    pub dead: Vec<bool>,
    pub sent: [u64; 2],
    /// Ranks that take nothing in.
    pub asleep: Vec<bool>,
    /// Operations may be dropped by those who give up.
    pub dropping: bool,
    /// Those of which that was told: window, origin, target, serial.
    pub dropped: HashSet<(WindowId, u32, u32, u64)>,
    /// One operation in so many cannot be performed at once; 0 for none.
    pub busy: u64,
    longest: usize,
}

impl Net {
    pub fn new(size: u32, room: usize, seed: u64) -> Net {
        let ranks = size as usize;
        Net {
            size,
            dice: Dice::new(seed),
            streams: (0..ranks * ranks * 2).map(|_| VecDeque::new()).collect(),
            room,
            parts: HashMap::new(),
            said: HashMap::new(),
            fenced: Vec::new(),
            exposed: Vec::new(),
            results: vec![HashMap::new(); ranks],
            dead: vec![false; ranks],
            sent: [0; 2],
            asleep: vec![false; ranks],
            dropping: false,
            dropped: HashSet::new(),
            busy: 0,
            longest: 0,
        }
    }

    fn stream(&self, from: u32, to: u32, class: Class) -> usize {
        ((from * self.size + to) * 2) as usize + usize::from(class == Class::Reply)
    }

    pub fn part(&mut self, rank: u32, window: WindowId) -> &mut Part {
        self.parts.entry((rank, window)).or_default()
    }

    pub fn said(&mut self, rank: u32, window: WindowId) -> &mut Said {
        self.said.entry((rank, window)).or_default()
    }

    fn alive_streams_empty(&self) -> bool {
        let dead = |stream: usize| self.dead[stream / 2 % self.size as usize];
        self.streams.iter().enumerate().all(|(i, stream)| stream.is_empty() || dead(i))
    }

    fn check_epoch(&self, target: u32, origin: u32, window: WindowId, body: &Body) {
        // Unless it had come before its origin's death was noticed.
        assert!(self.dropping || !self.dead[origin as usize], "an operation of the dead was done");
        let said = self.said.get(&(target, window));
        if self.fenced.contains(&window) {
            let fences = said.map_or(0, |said| said.fences);
            assert!(fences >= body.epoch, "an operation came before its target's fence");
            // All of earlier epochs has been done here.
            for other in 0..self.size {
                let given = self.said.get(&(other, window));
                let given = given.and_then(|said| said.given_before.get(body.epoch as usize - 1));
                let given = given.expect("all have called the fence before").get(&target);
                let done = self.parts[&(target, window)].performed.get(&other);
                assert!(
                    done.copied().unwrap_or(0) >= given.copied().unwrap_or(0),
                    "an operation of a later epoch was done before one of an earlier"
                );
            }
        }
        if self.exposed.contains(&window) {
            let open = said.is_some_and(|said| {
                let this = body.epoch == 0 || body.epoch == said.exposure;
                this && said.exposed.contains(&origin)
            });
            assert!(open, "an operation came outside the exposure epoch");
        }
    }
}

/// What one engine sees of the world.
pub struct Port<'n> {
    pub rank: u32,
    pub net: &'n mut Net,
}

impl Host for Port<'_> {
    fn send(&mut self, window: WindowId, to: u32, message: &Message<'_>) -> Sent {
        if self.net.dead[to as usize] {
            return Sent::Gone;
        }
        let class = message.class();
        let stream = self.net.stream(self.rank, to, class);
        if self.net.streams[stream].len() >= self.net.room {
            return Sent::Full;
        }
        self.net.streams[stream].push_back(Packet::new(window, message));
        self.net.sent[usize::from(class == Class::Reply)] += 1;
        self.net.longest = self.net.longest.max(self.net.streams[stream].len());
        Sent::Yes
    }

    fn perform(
        &mut self,
        window: WindowId,
        origin: u32,
        body: &[u8],
        answer: &mut Vec<u8>,
    ) -> Poll<Result<(), Fault>> {
        let body = Body::parse(body);
        if self.net.busy > 0 && self.net.dice.one_in(self.net.busy) {
            return Poll::Pending;
        }
        self.net.part(self.rank, window);
        self.net.check_epoch(self.rank, origin, window, &body);
        let dropping = self.net.dropping;
        let serial = (window, origin, self.rank, body.serial);
        assert!(!self.net.dropped.contains(&serial), "an operation that was thrown away was done");
        let part = self.net.part(self.rank, window);
        let performed = part.performed.entry(origin).or_default();
        let next = body.serial == *performed + 1 || dropping && body.serial > *performed;
        assert!(next, "lost, doubled or out of order");
        *performed = body.serial;
        let cell = &mut part.cells[body.cell as usize];
        let before = *cell;
        match body.action {
            Action::Put => *cell = body.value,
            Action::Add => {
                *cell += body.value;
                answer.extend(before.to_le_bytes());
            }
            Action::Get => answer.extend(before.to_le_bytes()),
            Action::Fail => {
                return Poll::Ready(Err(Fault { code: 7, details: [body.serial, 0, 0] }));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn dropped(&mut self, window: WindowId, to: u32, body: &[u8], _trouble: Trouble) {
        let serial = Body::parse(body).serial;
        let new = self.net.dropped.insert((window, self.rank, to, serial));
        assert!(new, "an operation was thrown away twice");
    }

    fn abandoned(&mut self, _window: WindowId, _to: u32, _trouble: Trouble) {}

    fn data(&mut self, token: u64, data: &[u8]) {
        let value = u64::from_le_bytes(data.try_into().expect("eight bytes"));
        let old = self.net.results[self.rank as usize].insert(token, Ok(value));
        assert!(old.is_none(), "a result came twice");
    }

    fn failed(&mut self, token: u64, trouble: Trouble) {
        let old = self.net.results[self.rank as usize].insert(token, Err(trouble));
        assert!(old.is_none(), "a result came twice");
    }

    fn note(&mut self, window: WindowId, from: u32, body: &[u8]) {
        let number = u64::from_le_bytes(body.try_into().expect("eight bytes"));
        let come = self.net.part(self.rank, window).notes.entry(from).or_default();
        *come += 1;
        assert_eq!(number, *come, "a note was lost, doubled or out of order");
    }

    fn refused(&mut self, window: WindowId, _by: u32, fault: Fault) {
        assert_eq!(fault.code, 7);
        self.net.part(self.rank, window).refused += 1;
    }
}

/// Engines and their world.
pub struct World {
    pub engines: Vec<Engine>,
    pub net: Net,
    /// Given operations by (origin, target, window).
    given: HashMap<(u32, u32, WindowId), u64>,
    /// Notes sent by (sender, receiver, window).
    noted: HashMap<(u32, u32, WindowId), u64>,
    tokens: u64,
    /// Passed to every operation.
    pub padding: usize,
}

pub const W: WindowId = WindowId(1);

impl World {
    pub fn new(size: u32, room: usize, seed: u64, limits: &Limits, windows: &[WindowId]) -> World {
        let mut engines: Vec<Engine> = (0..size).map(|_| Engine::new(limits.clone())).collect();
        for (rank, engine) in engines.iter_mut().enumerate() {
            for window in windows {
                engine.add_window(*window, rank as u32, size);
            }
        }
        let net = Net::new(size, room, seed);
        let (given, noted) = Default::default();
        World { engines, net, given, noted, tokens: 0, padding: 0 }
    }

    /// Makes a call of one rank.
    pub fn call<T>(&mut self, rank: u32, call: impl FnOnce(&mut Engine, &mut Port<'_>) -> T) -> T {
        let mut port = Port { rank, net: &mut self.net };
        call(&mut self.engines[rank as usize], &mut port)
    }

    /// Gives an operation; its token if it was taken and gives data.
    pub fn operate(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        action: Action,
        (cell, value): (u32, u64),
        epoch: u64,
    ) -> Poll<Result<Option<u64>, Trouble>> {
        let key = (rank, target, window);
        let serial = self.given.get(&key).copied().unwrap_or(0) + 1;
        let body = Body { action, cell, value, serial, epoch, padding: self.padding };
        let data = matches!(action, Action::Add | Action::Get);
        let token = data.then_some(self.tokens);
        let answer = self
            .call(rank, |engine, port| engine.operate(port, window, target, &body.bytes(), token));
        answer.map(|result| {
            result.map(|()| {
                self.given.insert(key, serial);
                self.tokens += 1;
                token
            })
        })
    }

    /// Sends a note if there is room.
    pub fn note(&mut self, rank: u32, to: u32, window: WindowId) {
        let number = self.noted.get(&(rank, to, window)).copied().unwrap_or(0) + 1;
        let body = number.to_le_bytes();
        let sent = self.call(rank, |engine, port| engine.note(port, window, to, &body));
        if sent == Sent::Yes {
            self.noted.insert((rank, to, window), number);
        }
    }

    /// Holds the notes that have come against those that were sent; how many.
    pub fn check_notes(&self) -> u64 {
        for ((rank, to, window), sent) in &self.noted {
            let come = self.net.parts.get(&(*to, *window)).and_then(|part| part.notes.get(rank));
            assert_eq!(come, Some(sent), "notes of {rank} to {to}");
        }
        self.noted.values().sum()
    }

    /// Operations given by `rank` on `target`.
    pub fn given(&self, rank: u32, target: u32, window: WindowId) -> u64 {
        self.given.get(&(rank, target, window)).copied().unwrap_or(0)
    }

    pub fn performed(&self, rank: u32, target: u32, window: WindowId) -> u64 {
        let part = self.net.parts.get(&(target, window));
        part.and_then(|part| part.performed.get(&rank)).copied().unwrap_or(0)
    }

    /// Delivers the next message of one stream; whether it was taken.
    fn deliver(&mut self, from: u32, to: u32, class: Class) -> bool {
        if self.net.asleep[to as usize] || self.net.dead[to as usize] {
            return false;
        }
        let stream = self.net.stream(from, to, class);
        let Some(packet) = self.net.streams[stream].pop_front() else { return false };
        let handled = self
            .call(to, |engine, port| engine.handle(port, packet.window, from, &packet.message()));
        if handled == Handled::Busy {
            assert_eq!(class, Class::Request, "replies are always absorbed");
            self.net.streams[stream].push_front(packet);
        }
        handled == Handled::Done
    }

    /// Delivers all that is on its way from one rank to another, or as much as is taken.
    pub fn take_all(&mut self, from: u32, to: u32) {
        for class in [Class::Reply, Class::Request] {
            while self.deliver(from, to, class) {}
        }
    }

    /// One random step of the world at `to`: a message or progress. Whether anything moved.
    pub fn step(&mut self, to: u32) -> bool {
        let from = self.net.dice.below(self.net.size.into()) as u32;
        let class = if self.net.dice.one_in(2) { Class::Request } else { Class::Reply };
        if self.net.dice.one_in(3) {
            return self.progress(to);
        }
        self.deliver(from, to, class)
    }

    pub fn progress(&mut self, rank: u32) -> bool {
        if self.net.asleep[rank as usize] || self.net.dead[rank as usize] {
            return false;
        }
        self.call(rank, |engine, port| engine.progress(port))
    }

    /// Everything that can move moves once; whether anything did.
    pub fn sweep(&mut self) -> bool {
        let mut moved = false;
        for to in 0..self.net.size {
            for from in 0..self.net.size {
                for class in [Class::Reply, Class::Request] {
                    while self.deliver(from, to, class) {
                        moved = true;
                    }
                }
            }
            self.progress(to);
        }
        moved
    }

    /// Lets the world run until a call is ready.
    pub fn finish<T>(
        &mut self,
        rank: u32,
        mut call: impl FnMut(&mut Engine, &mut Port<'_>) -> Poll<Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        for _ in 0..10_000 {
            if let Poll::Ready(result) = self.call(rank, &mut call) {
                return result;
            }
            self.sweep();
        }
        panic!("a call of rank {rank} never ends");
    }

    pub fn finish_operate(
        &mut self,
        rank: u32,
        target: u32,
        action: Action,
        what: (u32, u64),
    ) -> Option<u64> {
        for _ in 0..10_000 {
            match self.operate(rank, W, target, action, what, 0) {
                Poll::Ready(result) => return result.unwrap(),
                Poll::Pending => self.sweep(),
            };
        }
        panic!("an operation never finds room");
    }

    pub fn lock(&mut self, rank: u32, target: u32, kind: LockKind) {
        self.finish(rank, |engine, port| engine.lock(port, W, target, kind, LockFlags::default()))
            .unwrap();
    }

    pub fn unlock(&mut self, rank: u32, target: u32) -> Result<(), Trouble> {
        self.finish(rank, |engine, port| engine.unlock(port, W, target))
    }

    /// Kills a rank and tells the others.
    pub fn kill(&mut self, rank: u32, windows: &[WindowId]) {
        self.net.dead[rank as usize] = true;
        for other in 0..self.net.size {
            for class in [Class::Request, Class::Reply] {
                let stream = self.net.stream(other, rank, class);
                self.net.streams[stream].clear();
            }
        }
        for other in (0..self.net.size).filter(|other| *other != rank) {
            // What it had sent is delivered first or lost, either way in order.
            for window in windows {
                self.call(other, |engine, port| engine.peer_dead(port, *window, rank));
            }
        }
    }

    /// Lets everything under way arrive, and checks that nothing is held any more.
    pub fn settle(&mut self) {
        let deaths = self.net.dead.contains(&true);
        for _ in 0..1000 {
            let moved = self.sweep();
            if !moved && self.net.alive_streams_empty() {
                break;
            }
        }
        for (rank, engine) in self.engines.iter().enumerate() {
            if self.net.dead[rank] {
                continue;
            }
            let pools = &engine.shared.pools;
            let used = (pools.targets.used(), pools.origins.used(), pools.operations.used());
            assert_eq!(used, (0, 0, 0), "rank {rank} holds objects: {:?}", engine.counters());
            assert_eq!((pools.held, pools.waiting()), (0, 0));
            assert_eq!(engine.outstanding(), 0);
            // Messages of the dead may come after the news of their death.
            assert!(deaths || engine.counters().strays == 0, "{rank}: {:?}", engine.counters());
            assert_eq!(engine.shared.waiting, Default::default(), "rank {rank}");
            assert_eq!((engine.shared.locks, engine.shared.open), (0, None), "rank {rank}");
            let bounds = engine.limits();
            let counters = engine.counters();
            assert!(counters.most_targets <= bounds.targets as u64);
            assert!(counters.most_origins <= bounds.origins as u64);
            assert!(counters.most_operations <= bounds.operations as u64);
            assert!(counters.most_outstanding <= bounds.outstanding as u64);
        }
        assert!(self.net.longest <= self.net.room);
    }

    /// Sum over the engines.
    pub fn total(&self, counter: impl Fn(&crate::rma::runtime::Counters) -> u64) -> u64 {
        self.engines.iter().map(|engine| counter(engine.counters())).sum()
    }
}
