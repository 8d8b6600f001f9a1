//! One flow of a process: its peers, what goes to them, and what has come and not been taken.

use super::Flow;
use super::outlet::Outlet;
use crate::base::{Error, Rank, Result};
use crate::link::control::FIRST_RESERVED;
use crate::link::{MAX_MESSAGE, Push};
use crate::net::provider::{Address, Peer as Handle};
use crate::net::ud::{Config, Event, Peer, Refused, Sent, Shared, Upper, Verdict};
use crate::net::wire::Header;
use crate::shm::beyond::Standing;
use crate::shm::ring::Label;
use crate::topo::Placement;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Messages that wait in an inbox at most.
const INBOX: usize = 256;

/// Bytes before a message's own: its label.
const LABEL: usize = 8;

/// The number of a process on a flow.
pub(super) fn number(rank: Rank, flow: Flow) -> u32 {
    rank.0 << 2 | flow as u32
}

/// Whose number on which flow it is.
pub(super) fn from_number(number: u32) -> (Rank, Option<Flow>) {
    let flow = Flow::ALL.into_iter().find(|flow| *flow as u32 == number & 3);
    (Rank(number >> 2), flow)
}

/// A message that has come.
pub(super) struct Arrived {
    pub from: Rank,
    pub label: Label,
    pub bytes: Box<[u8]>,
}

struct Known {
    peer: Peer,
    handle: Handle,
    /// It had something for an inbox that was full.
    held: bool,
    /// A message that was taken in part.
    rest: Option<Vec<u8>>,
}

/// What became of a peer, for those who wait.
pub(super) type End = (Rank, Standing, String);

/// See the [module](self).
pub(super) struct FlowState {
    flow: Flow,
    ranks: u32,
    shared: Shared,
    peers: HashMap<Rank, Known>,
    inbox: VecDeque<Arrived>,
    ends: Vec<End>,
    /// A message was refused for lack of room, and nobody has been told of any since.
    refused: bool,
    room: bool,
    held: bool,
    leaving: bool,
}

/// Takes what a peer's reliable delivery hands on.
struct Intake<'a> {
    inbox: &'a mut VecDeque<Arrived>,
    ends: &'a mut Vec<End>,
    held: &'a mut bool,
    silence: Duration,
}

impl Upper for Intake<'_> {
    fn message(&mut self, peer: u32, _channel: u8, bytes: &[u8]) -> Verdict {
        if self.inbox.len() >= INBOX {
            *self.held = true;
            return Verdict::Later;
        }
        let label = bytes.split_first_chunk::<LABEL>().and_then(|(label, rest)| {
            let word = u64::from_le_bytes(*label);
            // Kinds that the link has for itself mean something in this node's memory only.
            let kind = u8::try_from(word & 0xff).ok().filter(|kind| *kind < FIRST_RESERVED)?;
            Some((Label::new(kind, word >> 8).ok()?, rest))
        });
        // What makes no sense is dropped: nobody could do anything with it.
        if let Some((label, rest)) = label {
            let from = from_number(peer).0;
            self.inbox.push_back(Arrived { from, label, bytes: rest.into() });
        }
        Verdict::Taken
    }

    fn event(&mut self, peer: u32, event: Event) {
        let (standing, why) = match event {
            Event::Opened => return,
            Event::Left(_) => (Standing::Left, "it had left the job".into()),
            Event::Silent(_) => {
                (Standing::Dead, format!("it did not answer for {:?}", self.silence))
            }
            Event::Restarted(_) => (Standing::Dead, "its connection was begun anew".into()),
            Event::Broken(_) => (Standing::Dead, "it sent what makes no sense".into()),
        };
        self.ends.push((from_number(peer).0, standing, why));
    }
}

impl FlowState {
    /// A flow of the process with rank `me`, in datagrams that the outlet takes.
    pub fn new(
        flow: Flow,
        me: Rank,
        placement: &Placement,
        cookie: u64,
        silence: Duration,
        outlet: &Outlet,
    ) -> Result<FlowState> {
        let ranks = placement.ranks();
        let mut config = Config::new(cookie, number(me, flow), ranks << 2, 1);
        config.datagram = outlet.datagram();
        config.message = (MAX_MESSAGE + LABEL) as u32;
        config.buffers = 1024;
        config.silence = silence.as_nanos().min(1 << 58) as u64;
        config.keepalive = config.keepalive.min(config.silence / 4).max(1);
        Ok(FlowState {
            flow,
            ranks,
            shared: Shared::new(config)?,
            peers: HashMap::new(),
            inbox: VecDeque::new(),
            ends: Vec::new(),
            refused: false,
            room: false,
            held: false,
            leaving: false,
        })
    }

    pub fn inbox_len(&self) -> usize {
        self.inbox.len()
    }

    /// What has become of peers, and whether there is room again where there was none.
    pub fn take_news(&mut self) -> (Vec<End>, bool) {
        let room = std::mem::take(&mut self.room) && std::mem::take(&mut self.refused);
        (std::mem::take(&mut self.ends), room)
    }

    /// Whether a peer has been met.
    pub fn knows(&self, rank: Rank) -> bool {
        self.peers.contains_key(&rank)
    }

    /// Meets a peer at its address.
    pub fn meet(&mut self, outlet: &Outlet, rank: Rank, address: &Address) -> Result<()> {
        if self.knows(rank) {
            return Ok(());
        }
        if rank.0 >= self.ranks {
            let why = format!("there is no rank {rank} in a job of {}", self.ranks);
            return Err(Error::invalid("a message to another node", why));
        }
        let handle = outlet.open_peer(address)?;
        let peer = Peer::new(number(rank, self.flow), self.shared.config(), outlet.now());
        self.peers.insert(rank, Known { peer, handle, held: false, rest: None });
        Ok(())
    }

    /// Asks a peer from now on whether it lives; false if it has not been met.
    pub fn watch(&mut self, rank: Rank) -> bool {
        self.peers.get_mut(&rank).map(|known| known.peer.watch(true)).is_some()
    }

    /// Whether something that came from a peer has not been taken.
    pub fn has_from(&self, rank: Rank) -> bool {
        let held = self.peers.get(&rank).is_some_and(|known| known.held);
        held || self.inbox.iter().any(|one| one.from == rank)
    }

    /// Sends a message to a peer that has been met; nothing if it is gone.
    pub fn send(
        &mut self,
        outlet: &Outlet,
        rank: Rank,
        label: Label,
        bytes: [&[u8]; 2],
    ) -> Option<Push> {
        let known = self.peers.get_mut(&rank)?;
        let now = outlet.now();
        let word = (label.imm() << 8 | u64::from(label.kind())).to_le_bytes();
        let parts = [&word[..], bytes[0], bytes[1]];
        let shared = &mut self.shared;
        // A message that is taken in part goes on here: its rest has room of its own.
        let sent = known.peer.send(shared, 0, &parts, now);
        let push = match sent {
            Ok(Sent::Whole(_)) => Push::Sent,
            Ok(Sent::Part) => {
                known.rest = Some(parts.concat());
                Push::Sent
            }
            Err(Refused::Full | Refused::Unfinished) => {
                self.refused = true;
                Push::Full
            }
            Err(Refused::TooLong | Refused::Left | Refused::Exhausted) => return None,
        };
        known.transmit(shared, outlet, now);
        Some(push)
    }

    /// A datagram of this flow has come, from `source`.
    pub fn receive(&mut self, outlet: &Outlet, header: &Header, body: &[u8], source: &Address) {
        let (rank, flow) = from_number(header.from);
        // One that this process has not met says where it is, with the job's cookie.
        if flow != Some(self.flow) || self.meet(outlet, rank, source).is_err() {
            return;
        }
        let Some(known) = self.peers.get_mut(&rank) else { return };
        let now = outlet.now();
        let before = known.peer.confirmed();
        let mut intake = Intake {
            inbox: &mut self.inbox,
            ends: &mut self.ends,
            held: &mut known.held,
            silence: Duration::from_nanos(self.shared.config().silence),
        };
        known.peer.receive(&mut self.shared, header, body, now, &mut intake);
        self.held |= known.held;
        known.go_on(&mut self.shared, now);
        self.room |= known.peer.confirmed() != before;
        known.transmit(&mut self.shared, outlet, now);
    }

    /// The next message; makes room for what was held back.
    pub fn take(&mut self, outlet: &Outlet) -> Option<Arrived> {
        let next = self.inbox.pop_front();
        if self.held && self.inbox.len() <= INBOX / 2 {
            self.offer_again(outlet);
        }
        next
    }

    fn offer_again(&mut self, outlet: &Outlet) {
        self.held = false;
        let now = outlet.now();
        let silence = Duration::from_nanos(self.shared.config().silence);
        for known in self.peers.values_mut().filter(|known| known.held) {
            known.held = false;
            let (inbox, ends) = (&mut self.inbox, &mut self.ends);
            let mut intake = Intake { inbox, ends, held: &mut known.held, silence };
            known.peer.deliver(&mut self.shared, &mut intake);
            self.held |= known.held;
            known.transmit(&mut self.shared, outlet, now);
        }
    }

    /// Does what is due; when something is next.
    pub fn tick(&mut self, outlet: &Outlet, now: u64) -> u64 {
        let silence = Duration::from_nanos(self.shared.config().silence);
        let mut next = u64::MAX;
        for known in self.peers.values_mut() {
            if known.peer.next(self.shared.config()).is_some_and(|at| at <= now) {
                let (inbox, ends) = (&mut self.inbox, &mut self.ends);
                let mut intake = Intake { inbox, ends, held: &mut known.held, silence };
                known.peer.tick(&mut self.shared, now, &mut intake);
                self.held |= known.held;
            }
            known.go_on(&mut self.shared, now);
            if !known.transmit(&mut self.shared, outlet, now) {
                // The device takes no more now: again soon.
                next = next.min(now + 100_000);
            }
            next = next.min(known.peer.next(self.shared.config()).unwrap_or(u64::MAX));
        }
        next
    }

    /// Takes leave of all peers.
    pub fn leave(&mut self, outlet: &Outlet) {
        let now = outlet.now();
        if !std::mem::replace(&mut self.leaving, true) {
            self.peers.values_mut().for_each(|known| known.peer.leave());
        }
        for known in self.peers.values_mut() {
            known.transmit(&mut self.shared, outlet, now);
        }
    }

    /// Whether all peers have what was sent to them, or are gone.
    pub fn is_drained(&self) -> bool {
        let mut all = self.peers.values();
        all.all(|known| known.rest.is_none() && known.peer.has_everything())
    }

    /// Whether all peers know that this process has left, or are gone.
    pub fn has_parted(&self) -> bool {
        self.peers.values().all(|known| known.peer.has_parted())
    }
}

impl Known {
    /// Goes on with a message of which some was taken.
    fn go_on(&mut self, shared: &mut Shared, now: u64) {
        if let Some(rest) = &self.rest
            && !matches!(self.peer.resume(shared, &[rest], now), Ok(Sent::Part))
        {
            self.rest = None;
        }
    }

    fn transmit(&mut self, shared: &mut Shared, outlet: &Outlet, now: u64) -> bool {
        let handle = self.handle;
        !self.peer.has_output()
            || self.peer.transmit(shared, now, &mut |datagram| outlet.send(handle, datagram))
    }
}
