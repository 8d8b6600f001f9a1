//! The virtual network: what is under way, and when it arrives.

use super::clock::{Alarm, Clock};
use super::device::SimDevice;
use super::rc::SimRc;
use super::ud::SimUd;
use crate::base::{Error, Result};
use crate::net::provider::{Address, Device, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What a virtual network is like.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Of the jitter.
    pub seed: u64,
    /// From one node to another.
    pub latency: Duration,
    /// Of each node's way out, in bytes per second.
    pub bandwidth: u64,
    /// Up to this much more latency for each datagram, so that datagrams overtake each other.
    pub jitter: Duration,
    /// Bytes that devices put before datagrams in receive buffers (40 is as RDMA devices do).
    pub datagram_prefix: u32,
    /// Longest datagram.
    pub datagram: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            seed: 1,
            latency: Duration::from_micros(2),
            bandwidth: 12_500_000_000,
            jitter: Duration::ZERO,
            datagram_prefix: 40,
            datagram: 4096,
        }
    }
}

/// A queue pair: node, number, incarnation (of connected ones).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub node: u32,
    pub number: u32,
    pub incarnation: u32,
}

const UD: u8 = b'u';
const RC: u8 = b'c';

impl Place {
    pub fn address(self, connected: bool) -> Address {
        let mut bytes = [0; 13];
        bytes[0] = if connected { RC } else { UD };
        bytes[1..5].copy_from_slice(&self.node.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.number.to_le_bytes());
        bytes[9..].copy_from_slice(&self.incarnation.to_le_bytes());
        Address::from_bytes(&bytes).unwrap_or_default()
    }

    pub fn from_address(address: &Address, connected: bool) -> Option<Place> {
        let bytes: &[u8; 13] = address.as_bytes().try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = if connected { RC } else { UD };
        (bytes[0] == kind).then(|| Place { node: word(1), number: word(5), incarnation: word(9) })
    }
}

pub(super) enum Happening {
    Datagram {
        from: Place,
        to: Place,
        bytes: Vec<u8>,
    },
    Bytes {
        from: Place,
        to: Place,
        requests: bool,
        cookie: u64,
        bytes: Vec<u8>,
    },
    /// The receiver took that many bytes of this queue pair's requests.
    Room {
        to: Place,
        bytes: usize,
    },
    Tick {
        to: Place,
    },
}

struct Entry(Time, u64, Happening);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

#[derive(Default)]
struct State {
    events: BinaryHeap<Reverse<Entry>>,
    count: u64,
    dice: u64,
    /// When each node's way out is free.
    free: Vec<Time>,
    uds: HashMap<(u32, u32), Weak<SimUd>>,
    rcs: HashMap<(u32, u32), Weak<SimRc>>,
}

/// See the [module](super).
pub struct Network {
    pub(super) parameters: Parameters,
    clock: Clock,
    state: Mutex<State>,
}

impl Network {
    /// An empty network at time 1.
    pub fn new(parameters: Parameters) -> Arc<Network> {
        Self::with_clock(parameters, Clock::still())
    }

    /// An empty network whose time is the machine's, for programs that compute and wait by themselves:
    /// a thread of its own lets everything happen when its time has come. Not deterministic.
    ///
    /// # Errors
    /// [`crate::Error::Os`] if the thread cannot be started.
    pub fn in_real_time(parameters: Parameters) -> Result<Arc<Network>> {
        let alarm = Arc::new(Alarm::default());
        let network = Self::with_clock(parameters, Clock::running(alarm.clone()));
        let events = Arc::downgrade(&network);
        // It ends with the network.
        let thread = std::thread::Builder::new().name("hither-sim".into());
        let run = move || alarm.run(|| events.upgrade().map(|network| network.catch_up()));
        thread.spawn(run).map_err(|e| Error::os("starting a virtual network's thread", e))?;
        Ok(network)
    }

    fn with_clock(parameters: Parameters, clock: Clock) -> Arc<Network> {
        let state = State { dice: parameters.seed, ..State::default() };
        Arc::new(Network { parameters, clock, state: Mutex::new(state) })
    }

    /// Lets everything happen whose time has come; the time, and when something will next.
    fn catch_up(&self) -> (Time, Time) {
        while self.step(self.now()) {}
        let next = self.lock().events.peek().map_or(Time::NEVER, |Reverse(entry)| entry.0);
        (self.now(), next)
    }

    /// A new node's device. Devices with different cookies do not talk with each other.
    pub fn device(self: &Arc<Network>, cookie: u64) -> Arc<dyn Device> {
        let mut state = self.lock();
        let node = state.free.len() as u32;
        state.free.push(Time(0));
        drop(state);
        SimDevice::new(self.clone(), node, cookie)
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Whether time passes by itself.
    pub(super) fn is_real(&self) -> bool {
        self.clock.alarm().is_some()
    }

    /// Lets the next event happen, if there is one until `until`. Otherwise the time is `until`
    /// (unless that is `Time::NEVER`), and it says false. In real time only the network itself may
    /// do so.
    pub fn step(&self, until: Time) -> bool {
        let mut state = self.lock();
        let next = state.events.peek().map(|Reverse(entry)| entry.0);
        if next.is_none_or(|next| next > until) {
            if until != Time::NEVER {
                self.clock.advance(until);
            }
            return false;
        }
        let Some(Reverse(Entry(at, _, happening))) = state.events.pop() else { return false };
        self.clock.advance(at);
        drop(state);
        self.happen(happening);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// SplitMix64.
    fn roll(state: &mut State) -> u64 {
        state.dice = state.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn at(&self, time: Time, happening: Happening) {
        self.push(self.lock(), time, happening);
    }

    fn push(&self, mut state: MutexGuard<'_, State>, time: Time, happening: Happening) {
        let first = state.events.peek().is_none_or(|Reverse(entry)| time < entry.0);
        state.count += 1;
        let entry = Entry(time, state.count, happening);
        state.events.push(Reverse(entry));
        drop(state);
        if let (true, Some(alarm)) = (first, self.clock.alarm()) {
            alarm.ring();
        }
    }

    /// Sends `bytes` bytes out of a node: they arrive when those before them and they are out, and
    /// the latency is over.
    pub(super) fn send(&self, node: u32, bytes: usize, happening: Happening) {
        let mut state = self.lock();
        let now = self.now();
        let busy = (bytes as u128 * 1_000_000_000 / u128::from(self.parameters.bandwidth.max(1)))
            .min(u128::from(u64::MAX / 4)) as u64;
        let start = state.free.get(node as usize).copied().unwrap_or(now).max(now);
        let out = Time(start.0.saturating_add(busy));
        if let Some(free) = state.free.get_mut(node as usize) {
            *free = out;
        }
        let mut at = out.plus(self.parameters.latency);
        let jitter = self.parameters.jitter.as_nanos() as u64;
        if jitter > 0 && matches!(happening, Happening::Datagram { .. }) {
            at.0 += Self::roll(&mut state) % (jitter + 1);
        }
        self.push(state, at, happening);
    }

    pub(super) fn add_ud(&self, place: Place, ud: &Arc<SimUd>) {
        self.lock().uds.insert((place.node, place.number), Arc::downgrade(ud));
    }

    pub(super) fn add_rc(&self, place: Place, rc: &Arc<SimRc>) {
        self.lock().rcs.insert((place.node, place.number), Arc::downgrade(rc));
    }

    pub(super) fn remove(&self, place: Place) {
        let mut state = self.lock();
        state.uds.remove(&(place.node, place.number));
        state.rcs.remove(&(place.node, place.number));
    }

    fn ud(&self, place: Place) -> Option<Arc<SimUd>> {
        self.lock().uds.get(&(place.node, place.number))?.upgrade()
    }

    fn rc(&self, place: Place) -> Option<Arc<SimRc>> {
        self.lock().rcs.get(&(place.node, place.number))?.upgrade()
    }

    fn happen(&self, happening: Happening) {
        match happening {
            Happening::Datagram { from, to, bytes } => {
                if let Some(ud) = self.ud(to) {
                    ud.arrive(&bytes, from.node);
                }
            }
            Happening::Bytes { from, to, requests, cookie, bytes } => {
                let taken = self
                    .rc(to)
                    .is_some_and(|rc| rc.arrive(from, to.incarnation, requests, cookie, &bytes));
                if taken && let Some(rc) = self.rc(from) {
                    rc.room(from.incarnation, requests, bytes.len());
                }
            }
            Happening::Room { to, bytes } => {
                if let Some(rc) = self.rc(to) {
                    rc.room(to.incarnation, true, bytes);
                }
            }
            Happening::Tick { to } => {
                if let Some(rc) = self.rc(to) {
                    rc.tick();
                }
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(alarm) = self.clock.alarm() {
            alarm.end();
        }
    }
}
