//! Connected queue pairs through the virtual network.
//!
//! Of a queue pair's requests WINDOW bytes are under way at most, so that a receiver without receives
//! keeps that much and no more. Answers are not held up by anything.

use super::network::{Happening, Network, Place};
use crate::base::{Error, Result};
use crate::net::provider::{Address, RcQueuePair, Receive, Refused, State, Status, Time, Work};
use crate::net::soft::core::Core;
use crate::net::soft::objects::Counted;
use crate::net::soft::{Shared, count};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const WINDOW: usize = 256 << 10;
/// Bytes that travel as one.
const BATCH: usize = 64 << 10;

pub(super) struct Line {
    pub core: Core,
    pub incarnation: u32,
    pub peer: Option<Place>,
    /// Bytes of requests under way.
    under_way: usize,
    /// Bytes of the peer's requests that wait here for a receive.
    held: usize,
    /// What came before this end was connected.
    early: Vec<(Place, bool, Vec<u8>)>,
    /// For when a tick is under way.
    tick: Time,
}

impl Line {
    pub fn new(core: Core) -> Line {
        Line {
            core,
            incarnation: 1,
            peer: None,
            under_way: 0,
            held: 0,
            early: Vec::new(),
            tick: Time::NEVER,
        }
    }
}

pub(super) struct SimRc {
    pub node: u32,
    pub number: u32,
    pub cookie: u64,
    pub network: Arc<Network>,
    pub shared: Arc<Shared>,
    pub line: Mutex<Line>,
    pub _counted: Counted,
}

impl Drop for SimRc {
    fn drop(&mut self) {
        self.network.remove(Place { node: self.node, number: self.number, incarnation: 0 });
    }
}

impl SimRc {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, line: &Line) -> Place {
        Place { node: self.node, number: self.number, incarnation: line.incarnation }
    }

    /// Sends what there is to send, and sees to it that time is looked at.
    fn pump(&self, line: &mut Line) {
        let from = self.place(line);
        if let Some(to) = line.peer {
            for requests in [false, true] {
                loop {
                    let mut bytes = Vec::new();
                    if !requests {
                        line.core.emit_answers(&mut bytes, BATCH);
                    } else if line.under_way < WINDOW {
                        line.core.emit_requests(&mut bytes, BATCH);
                    }
                    if bytes.is_empty() {
                        break;
                    }
                    let length = bytes.len();
                    line.under_way += if requests { length } else { 0 };
                    let cookie = self.cookie;
                    let happening = Happening::Bytes { from, to, requests, cookie, bytes };
                    self.network.send(self.node, length, happening);
                }
            }
            if line.held > 0 && !line.core.waits() {
                let bytes = std::mem::take(&mut line.held);
                let latency = self.network.parameters.latency;
                let at = self.network.now().plus(latency);
                self.network.at(at, Happening::Room { to, bytes });
            }
        }
        if let Some(at) = line.core.deadline().filter(|at| *at < line.tick) {
            line.tick = at;
            self.network.at(at.max(self.network.now()), Happening::Tick { to: from });
        }
    }

    pub fn tick(&self) {
        let mut line = self.lock();
        let now = self.network.now();
        if line.tick > now {
            return;
        }
        line.tick = Time::NEVER;
        line.core.tick(now);
        self.pump(&mut line);
    }

    /// Bytes came. Whether they were taken, so that the sender may send more.
    pub fn arrive(
        &self,
        from: Place,
        incarnation: u32,
        requests: bool,
        cookie: u64,
        bytes: &[u8],
    ) -> bool {
        if cookie != self.cookie {
            count(&self.shared.strangers);
            return false;
        }
        let mut line = self.lock();
        if line.incarnation != incarnation || line.core.state == State::Error {
            return false;
        }
        match line.peer {
            None => {
                let kept: usize = line.early.iter().map(|(_, _, bytes)| bytes.len()).sum();
                if kept < 2 * WINDOW {
                    line.early.push((from, requests, bytes.to_vec()));
                }
                false
            }
            Some(peer) if peer == from => self.take(&mut line, requests, bytes),
            Some(_) => false,
        }
    }

    fn take(&self, line: &mut Line, requests: bool, bytes: &[u8]) -> bool {
        let now = self.network.now();
        if requests {
            line.core.feed_requests(bytes, now);
        } else {
            line.core.feed_answers(bytes, now);
        }
        let waits = requests && line.core.waits();
        line.held += if waits { bytes.len() } else { 0 };
        self.pump(line);
        !waits && line.core.state != State::Error
    }

    /// The peer took `bytes` of what this end sent.
    pub fn room(&self, incarnation: u32, requests: bool, bytes: usize) {
        let mut line = self.lock();
        if line.incarnation != incarnation {
            return;
        }
        if requests {
            line.under_way = line.under_way.saturating_sub(bytes);
            line.core.moved(self.network.now());
        }
        self.pump(&mut line);
    }
}

impl RcQueuePair for SimRc {
    fn number(&self) -> u32 {
        self.number
    }

    fn address(&self) -> Address {
        self.place(&self.lock()).address(true)
    }

    fn state(&self) -> State {
        self.lock().core.state
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        let place = Place::from_address(peer, true).ok_or_else(|| {
            Error::invalid("a peer's address", "it is not of a simulated connected queue pair")
        })?;
        let mut line = self.lock();
        line.core.connect(self.network.now())?;
        line.peer = Some(place);
        for (from, requests, bytes) in std::mem::take(&mut line.early) {
            if from == place && self.take(&mut line, requests, &bytes) && requests {
                let at = self.network.now().plus(self.network.parameters.latency);
                self.network.at(at, Happening::Room { to: from, bytes: bytes.len() });
            }
        }
        self.pump(&mut line);
        Ok(())
    }

    fn post(&self, works: &[Work<'_>]) -> Result<(), Refused> {
        let mut line = self.lock();
        let result = line.core.post(works, self.network.now());
        self.pump(&mut line);
        result
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        let mut line = self.lock();
        let result = line.core.receive(receives);
        line.core.retry(self.network.now());
        self.pump(&mut line);
        result
    }

    fn fail(&self) {
        let mut line = self.lock();
        line.core.fail(Status::Flushed);
        self.pump(&mut line);
    }

    fn reset(&self) -> Result<()> {
        let mut line = self.lock();
        line.core.reset();
        line.incarnation = line.incarnation.wrapping_add(1);
        line.peer = None;
        (line.under_way, line.held, line.tick) = (0, 0, Time::NEVER);
        line.early = Vec::new();
        Ok(())
    }
}
