//! Processes and a network with a virtual clock and seeded faults, and an oracle that knows what
//! was sent.

use crate::net::ud::*;
use crate::net::wire::Header;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const COOKIE: u64 = 77;
pub const US: u64 = 1000;
pub const MS: u64 = 1000 * US;

/// A small generator of numbers that look random (xorshift, multiplied).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// With so many parts of a thousand.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// What the network does. Chances in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u64,
    pub doubling: u64,
    /// Nanoseconds that a datagram takes, and up to how many more.
    pub latency: u64,
    pub jitter: u64,
    /// Nanoseconds from one datagram to the next of the same sender; 0: none.
    pub gap: u64,
    /// A byte of the datagram is changed.
    pub garbling: u64,
}

impl Faults {
    pub const NONE: Faults =
        Faults { loss: 0, doubling: 0, latency: 10 * US, jitter: 0, gap: 0, garbling: 0 };
}

/// A process: one connection, to the other one.
pub struct Process {
    pub shared: Shared,
    pub peer: Peer,
    pub host: Host,
    /// What it sends when there is room: channel and length, and how many there were.
    pub queue: VecDeque<usize>,
    pub begun: u64,
    /// The message of which some is taken.
    pub current: Option<Vec<u8>>,
    pub alive: bool,
    /// When its device is free again.
    device: u64,
}

/// The program above the connection, and what it knows.
pub struct Host {
    /// Numbers of messages that came: life of the sender's process, number.
    pub came: Vec<(u8, u64)>,
    pub events: Vec<Event>,
    /// Lengths of what the other one sends, by life and number.
    pub refuses: u64,
    pub random: Random,
}

impl Upper for Host {
    fn message(&mut self, _peer: u32, channel: u8, bytes: &[u8]) -> Verdict {
        if self.random.chance(self.refuses) {
            return Verdict::Later;
        }
        let number = check(channel, bytes);
        self.came.push((channel, number));
        Verdict::Taken
    }

    fn event(&mut self, _peer: u32, event: Event) {
        self.events.push(event);
    }
}

/// A message of `length` bytes with `number` in it, of the sender's life `life`.
pub fn message(life: u8, number: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(number << 8 | u64::from(life));
    let mut bytes = vec![0; length.max(8)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].iter_mut().for_each(|byte| *byte = random.next() as u8);
    bytes
}

/// The number of a message that came, whose bytes are as they were.
pub fn check(life: u8, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == message(life, number, bytes.len()), "message {number} has other bytes");
    number
}

pub type Flight = Reverse<(u64, u64, usize, Vec<u8>)>;

pub struct World {
    pub now: u64,
    pub processes: [Process; 2],
    pub faults: Faults,
    pub random: Random,
    flights: BinaryHeap<Flight>,
    count: u64,
    /// Datagrams of each process are lost until then.
    pub cut: [u64; 2],
    /// Datagrams that were sent, doubled ones not counted.
    pub datagrams: u64,
    /// How often what others may join stays for some time, in thousandths.
    pub corks: u64,
}

pub fn config(me: u32) -> Config {
    Config {
        datagram: 264,
        message: 4000,
        buffers: 128,
        assembling: 8000,
        ack_delay: 20 * US,
        first_timeout: MS,
        least_timeout: 100 * US,
        most_timeout: 10 * MS,
        silence: 2_000 * MS,
        keepalive: 0,
        cool: 100 * MS,
        ..Config::new(COOKIE, me, 2, 1)
    }
}

pub fn process(config: Config, now: u64, random: Random, refuses: u64) -> Process {
    let peer = Peer::new(1 - config.me, &config, now);
    let host = Host { came: Vec::new(), events: Vec::new(), refuses, random };
    let shared = Shared::new(config).unwrap();
    let (queue, begun, current) = (VecDeque::new(), 0, None);
    Process { shared, peer, host, queue, begun, current, alive: true, device: 0 }
}

impl World {
    pub fn new(seed: u64, faults: Faults, change: impl Fn(&mut Config)) -> World {
        let mut random = Random::new(seed);
        let processes = [0, 1].map(|me| {
            let mut config = config(me);
            change(&mut config);
            process(config, 0, Random::new(random.next()), 0)
        });
        World {
            now: 0,
            processes,
            faults,
            random,
            flights: BinaryHeap::new(),
            count: 0,
            cut: [0; 2],
            datagrams: 0,
            corks: 0,
        }
    }

    /// What a process does whenever it can: it sends what it has.
    fn work(&mut self, i: usize) {
        let now = self.now;
        let process = &mut self.processes[i];
        if !process.alive {
            return;
        }
        let Process { shared, peer, host, queue, begun, current, .. } = process;
        peer.deliver(shared, host);
        loop {
            let life = shared.config().incarnation as u8;
            let (bytes, resumes) = match current.take() {
                Some(bytes) => (bytes, true),
                None => match queue.front() {
                    Some(length) => (message(life, *begun, *length), false),
                    None => break,
                },
            };
            let parts = [&bytes[..3], &[], &bytes[3..]];
            let sent = if resumes {
                peer.resume(shared, &parts, now)
            } else {
                peer.send(shared, life, &parts, now)
            };
            match sent {
                Ok(Sent::Whole(number)) => {
                    assert_eq!(number, *begun);
                    queue.pop_front();
                    *begun += 1;
                }
                Ok(Sent::Part) => {
                    *current = Some(bytes);
                    break;
                }
                // The connection was given up in the middle of it.
                Err(Refused::Unfinished) if resumes => {
                    queue.pop_front();
                    *begun += 1;
                }
                Err(Refused::Full) => {
                    if resumes {
                        *current = Some(bytes);
                    }
                    break;
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::Left);
                    queue.clear();
                    break;
                }
            }
        }
        let (mut out, corked) = (Vec::new(), self.random.chance(self.corks));
        let mut take = |bytes: &[u8]| {
            out.push(bytes.to_vec());
            true
        };
        if corked {
            assert!(process.peer.transmit_most(&mut process.shared, now, &mut take));
        } else {
            assert!(process.peer.transmit(&mut process.shared, now, &mut take));
            assert!(!process.peer.has_output());
        }
        for bytes in out {
            self.fly(i, bytes);
        }
    }

    fn fly(&mut self, from: usize, bytes: Vec<u8>) {
        self.datagrams += 1;
        let Faults { loss, doubling, latency, jitter, gap, garbling } = self.faults;
        let free = &mut self.processes[from].device;
        *free = self.now.max(*free) + gap;
        let leaves = *free;
        if leaves < self.cut[from] || self.random.chance(loss) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(doubling));
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.random.chance(garbling) {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
            }
            let arrives = leaves + latency + self.random.below(jitter + 1);
            self.count += 1;
            self.flights.push(Reverse((arrives, self.count, 1 - from, bytes)));
        }
    }

    /// Goes to the next thing that happens, no later than `end`; whether anything is left to happen
    /// until then.
    pub fn step(&mut self, end: u64) -> bool {
        (0..2).for_each(|i| self.work(i));
        let arrival = self.flights.peek().map(|Reverse((at, ..))| *at);
        let due = |process: &Process| {
            let next = process.peer.next(process.shared.config());
            // Programs that have no room look again soon.
            let again = (process.host.refuses > 0).then_some(self.now + 50 * US);
            let stayed = process.peer.has_output().then_some(self.now + 5 * US);
            if process.alive { next.into_iter().chain(again).chain(stayed).min() } else { None }
        };
        let next = arrival.into_iter().chain(self.processes.iter().filter_map(due)).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.flights.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, to, bytes))) = self.flights.pop() else { break };
            let process = &mut self.processes[to];
            if !process.alive {
                continue;
            }
            match Header::decode(&bytes, COOKIE) {
                Ok((header, body)) => {
                    let Process { shared, peer, host, .. } = process;
                    peer.receive(shared, &header, body, self.now, host);
                }
                Err(reject) => process.shared.counters.rejects.note(reject),
            }
        }
        for process in self.processes.iter_mut().filter(|process| process.alive) {
            process.peer.tick(&mut process.shared, self.now, &mut process.host);
        }
        true
    }

    /// Runs until everything was sent and is acknowledged; not longer than until `end`.
    pub fn settle(&mut self, end: u64) {
        while !self.is_settled() {
            assert!(self.step(end), "not done at {} ms: {:?}", end / MS, self.processes[0].peer);
        }
    }

    pub fn is_settled(&self) -> bool {
        self.processes.iter().all(|p| p.queue.is_empty() && p.peer.is_drained())
            && self.processes.iter().all(|p| p.peer.confirmed() >= p.begun)
    }

    pub fn run(&mut self, end: u64) {
        while self.step(end) {}
    }

    /// The process is killed and started again, with another incarnation.
    pub fn restart(&mut self, i: usize) -> Process {
        let mut config = self.processes[i].shared.config().clone();
        config.incarnation += 1;
        let refuses = self.processes[i].host.refuses;
        let fresh = process(config, self.now, Random::new(self.random.next()), refuses);
        std::mem::replace(&mut self.processes[i], fresh)
    }

    /// Nothing is in use any more.
    pub fn check_idle(&mut self) {
        let refuses = self.processes.each_ref().map(|process| process.host.refuses);
        self.processes.iter_mut().for_each(|process| process.host.refuses = 0);
        let cool = self.processes[0].shared.config().cool;
        self.run(self.now + cool * 3);
        for (process, refuses) in self.processes.iter_mut().zip(refuses) {
            process.host.refuses = refuses;
            assert_eq!(process.shared.buffers().used(), 0);
            assert_eq!(process.shared.assembling(), 0);
            assert_eq!(process.peer.bytes(), size_of::<Peer>(), "{:?}", process.peer);
            if process.alive && process.shared.config().keepalive == 0 {
                assert_eq!(process.peer.next(process.shared.config()), None);
            }
        }
    }
}

/// Messages that came, by life of their sender: none twice, all in order.
pub fn by_life(came: &[(u8, u64)]) -> BTreeMap<u8, Vec<u64>> {
    let mut lives: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for (life, number) in came {
        let numbers = lives.entry(*life).or_default();
        assert!(numbers.last().is_none_or(|last| last < number), "{number} after {numbers:?}");
        numbers.push(*number);
    }
    lives
}

/// Ranges of messages that were reported as lost.
pub fn lost(events: &[Event]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for event in events {
        if let Event::Restarted(l) | Event::Silent(l) | Event::Left(l) | Event::Broken(l) = event {
            numbers.extend(l.first..l.first + l.count);
        }
    }
    numbers
}
