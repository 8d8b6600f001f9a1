//! What a process has of a device: a datagram queue pair, the memory that it sends from and receives
//! into, and connected queue pairs ([`Pairs`]).
//!
//! ```text
//!  region   | receive 0 | receive 1 | ... | send 0 | send 1 | ...       DEPTH places each
//! ```
//! A datagram is copied once on its way out (into a free place) and once on its way in. Receives are
//! posted again as soon as their datagrams have been looked at.

use super::Flow;
use super::deliver::from_number;
use super::pairs::{BATCH, Came, MOST, Pairs};
use crate::base::adapt::Limits;
use crate::base::hints::Hints;
use crate::base::{Rank, Result};
use crate::net::memory::Memory;
use crate::net::promotion::Settings;
use crate::net::provider::{
    Access, Address, Channel, Completion, CompletionQueue, Data, Datagram, Device, Peer as Handle,
    Queues, Receive, Region, Status, Time, UdQueuePair,
};
use crate::net::wire::Header;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Datagrams that can come, and that can go, at a time.
const DEPTH: u32 = 256;

/// What has come, or happened.
pub(super) enum News<'a> {
    /// A datagram of the job: its flow, header and body, and where it came from.
    Datagram(Flow, Header, &'a [u8], Address),
    /// Something about a flow's queue pair to a peer, of this number in the device.
    Pair(Rank, Flow, u32, Came<'a>),
}

/// What is called with each.
pub(super) type Each<'f> = dyn FnMut(News<'_>) + 'f;

/// See the [module](self).
pub(super) struct Outlet {
    device: Arc<dyn Device>,
    channel: Arc<dyn Channel>,
    /// Of all but sent datagrams: what peers want noticed ends the thread's sleep.
    queue: Arc<dyn CompletionQueue>,
    /// Of sends: nobody waits for them, they are taken when places run out.
    sent: Arc<dyn CompletionQueue>,
    ud: Arc<dyn UdQueuePair>,
    region: Region,
    stride: u64,
    prefix: u64,
    datagram: u16,
    cookie: u64,
    number: u32,
    free: Mutex<Vec<u32>>,
    /// What one thread at a time works with that takes completions.
    taking: Mutex<Scratch>,
    pairs: Pairs,
}

/// Room for what is looked at: a datagram, and completions.
struct Scratch {
    bytes: Vec<u8>,
    completions: Vec<Completion>,
}

/// Of one thread at a time.
pub(super) struct Taking<'a> {
    outlet: &'a Outlet,
    scratch: MutexGuard<'a, Scratch>,
}

impl Taking<'_> {
    /// Calls `f` with everything that has come until now.
    pub fn take(&mut self, f: &mut Each<'_>) {
        self.outlet.take(&mut self.scratch, f);
    }
}

/// Of connected queue pairs.
#[derive(Clone, Debug)]
pub(crate) struct PairSettings {
    /// Who gets one.
    pub policy: Settings,
    /// Time without an answer after which one has failed.
    pub patience: Duration,
    /// What large messages may be received into that go at once.
    pub limits: Limits,
    /// What the program says of itself.
    pub hints: Arc<Hints>,
    /// Bytes of registrations that are kept.
    pub kept: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outlet {
    /// Opens the end of a process of the job with `cookie`.
    pub fn open(device: Arc<dyn Device>, cookie: u64, pairs: PairSettings) -> Result<Outlet> {
        let capabilities = device.capabilities();
        let datagram = capabilities.datagram.min(u16::MAX.into());
        let prefix = u64::from(capabilities.datagram_prefix);
        let stride = (u64::from(datagram) + prefix).next_multiple_of(64);
        let channel = device.channel()?;
        let depth = (DEPTH + 2 * MOST).min(capabilities.completion_depth);
        let queue = device.completion_queue(depth, Some(&channel))?;
        let sent = device.completion_queue(DEPTH, None)?;
        let queues = Queues {
            send: &sent,
            receive: &queue,
            send_depth: DEPTH,
            receive_depth: DEPTH,
            pieces: 1,
            inline: 0,
            shared: None,
        };
        let ud = device.ud(&queues)?;
        let memory = Memory::zeroed((2 * u64::from(DEPTH) * stride) as usize)?;
        let region = device.register(&memory, Access::LOCAL_WRITE)?;
        let outlet = Outlet {
            pairs: Pairs::new(device.clone(), queue.clone(), pairs)?,
            channel,
            queue,
            sent,
            number: ud.number(),
            ud,
            region,
            stride,
            prefix,
            datagram: datagram as u16,
            cookie,
            free: Mutex::new((0..DEPTH).collect()),
            taking: Mutex::new(Scratch {
                bytes: vec![0; datagram as usize],
                completions: vec![Completion::NONE; BATCH as usize],
            }),
            device,
        };
        for place in 0..DEPTH {
            outlet.post(place)?;
        }
        Ok(outlet)
    }

    /// For people.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Where peers reach it.
    pub fn address(&self) -> Address {
        self.ud.address()
    }

    /// Bytes of a datagram at most.
    pub fn datagram(&self) -> u16 {
        self.datagram
    }

    /// The device's time, in ns.
    pub fn now(&self) -> u64 {
        self.device.now().0
    }

    /// Resolves a peer's address.
    pub fn open_peer(&self, address: &Address) -> Result<Handle> {
        self.ud.open_peer(address)
    }

    fn post(&self, place: u32) -> Result<()> {
        let at = u64::from(place) * self.stride;
        let length = self.prefix as u32 + u32::from(self.datagram);
        let piece = self.region.local(at, length).map_err(|why| why.error())?;
        let receive = Receive { id: place.into(), pieces: &[piece] };
        self.ud.receive(&[receive]).map_err(|refused| refused.error())
    }

    /// Sends a datagram, or says that there is no place for it now.
    pub fn send(&self, to: Handle, bytes: &[u8]) -> bool {
        // What the device refuses may fit when it has got rid of what it has sent.
        self.try_send(to, bytes) || self.reclaim() > 0 && self.try_send(to, bytes)
    }

    fn try_send(&self, to: Handle, bytes: &[u8]) -> bool {
        let Some(place) = self.free_place() else { return false };
        let at = u64::from(DEPTH + place) * self.stride;
        let sent = self.region.memory().write(at, bytes)
            && self.region.local(at, bytes.len() as u32).is_ok_and(|piece| {
                let datagram = Datagram {
                    id: place.into(),
                    to,
                    data: Data::Pieces(&[piece]),
                    immediate: None,
                    signalled: true,
                    solicited: true,
                };
                self.ud.send(&[datagram]).is_ok()
            });
        if !sent {
            lock(&self.free).push(place);
        }
        sent
    }

    fn free_place(&self) -> Option<u32> {
        let place = lock(&self.free).pop();
        place.or_else(|| {
            self.reclaim();
            lock(&self.free).pop()
        })
    }

    /// Takes back the places of some that have been sent; how many.
    #[cold]
    fn reclaim(&self) -> usize {
        let mut completions = [Completion::NONE; BATCH as usize];
        let count = self.sent.poll(&mut completions);
        lock(&self.free).extend(completions[..count].iter().map(|done| done.id as u32));
        count
    }

    /// The right to take what has come. If another thread has it: waits for it if `thorough`, else
    /// nothing.
    pub fn begin(&self, thorough: bool) -> Option<Taking<'_>> {
        let scratch = if thorough { Some(lock(&self.taking)) } else { self.taking.try_lock().ok() };
        scratch.map(|scratch| Taking { outlet: self, scratch })
    }

    fn take(&self, scratch: &mut Scratch, f: &mut Each<'_>) {
        let retired = self.pairs.retired();
        let Scratch { bytes: scratch, completions } = scratch;
        loop {
            let count = self.queue.poll(completions);
            let taken = &completions[..count];
            let of_pairs = |done: &&Completion| done.queue_pair != self.number;
            let used = taken.iter().filter(of_pairs).filter(|done| Pairs::is_usual_receive(done));
            self.pairs.need_receives(used.count() as u32);
            for done in taken {
                if done.queue_pair == self.number {
                    self.datagram_came(done, scratch, f);
                } else {
                    self.pairs.completed(done, scratch, |rank, flow, came| {
                        f(News::Pair(rank, flow, done.queue_pair, came));
                    });
                }
            }
            if count < completions.len() {
                break;
            }
        }
        self.pairs.bury(&retired);
    }

    fn datagram_came(&self, done: &Completion, scratch: &mut [u8], f: &mut Each<'_>) {
        let place = done.id as u32;
        let len = (done.length as usize).min(scratch.len());
        let at = u64::from(place) * self.stride + self.prefix;
        let bytes = &mut scratch[..len];
        if done.status == Status::Success
            && self.region.memory().read(at, bytes)
            && let Ok((header, body)) = Header::decode(bytes, self.cookie)
            && let (_, Some(flow)) = from_number(header.to)
        {
            f(News::Datagram(flow, header, body, done.source));
        }
        // It was taken from there; failing this, there is a place less to receive into.
        let _ = self.post(place);
    }

    /// Connected queue pairs.
    #[inline]
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Has what comes from now on end the next sleep.
    pub fn arm(&self) {
        // Without a channel only.
        let _ = self.queue.arm(self.pairs.arms());
    }

    /// Sleeps until something comes, or until `until`.
    pub fn sleep(&self, until: u64) {
        self.channel.wait(Time(until));
    }

    /// Ends the sleep of the thread.
    pub fn wake(&self) {
        self.channel.wake();
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outlet({})", self.name())
    }
}
