//! The origin's side: messages wait in line, go out as credit allows, and are done with their last
//! note.
//!
//! ```text
//!   issue --> lineup, per target: who must not overtake whom --> credit: is there room?
//!                                                                  | unit, or a reservation
//!   noted <-- Done, Granted, Refused                               v
//!     |  place is free, result lands                      body --- operate --> engine
//!     +--> done: the call, the request or the flush is told
//! ```
//! One unit's stream goes to a target at a time; several units are under way (pipelining, paper 001
//! §6.4.1). [`super::sending`] makes the bodies, [`super::ending`] sees to what becomes of them: notes,
//! deaths, and what is given up. All of this runs under one lock, after each look into the inboxes. Memory: a peer for
//! each target with something under way, a message for each that is not done.

use super::message::{Message, Outcome};
use super::spent::{Spends, Spent};
use crate::am::body::Work;
use crate::am::credit::Credit;
use crate::am::order::Lineup;
use crate::base::{Error, Rank, Result};
use crate::rma::info::{AmOrdering, UserBuffers};
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// Peers kept that have nothing under way.
const IDLE_PEERS: usize = 64;

/// What is under way to one target.
#[derive(Debug)]
pub(super) struct Peer {
    pub credit: Credit,
    pub lineup: Lineup<u64>,
    /// Messages in the line.
    pub unsent: usize,
    /// Messages that are not done, but for those that were given up.
    pub outstanding: usize,
    /// Units under way of which no end of an epoch waits for: one has given them up.
    pub forsaken: u64,
    /// The message whose unit is being sent.
    pub streaming: Option<u64>,
    /// A body that is to be sent next, if `full`.
    pub body: Vec<u8>,
    pub full: bool,
    /// Bodies that were thrown away with an epoch, and that the target must get all the same.
    pub again: VecDeque<Vec<u8>>,
    /// There may be something to send.
    pub work: bool,
    /// There is, but no epoch to send it in: it waits for the next message.
    pub dormant: bool,
    /// The target is locked exclusively.
    pub exclusive: bool,
    /// What went wrong and has not been told.
    pub trouble: Option<Error>,
}

impl Peer {
    /// Whether there is something that has been begun and can be sent without room at the target.
    pub fn has_bodies(&self) -> bool {
        self.full || !self.again.is_empty()
    }

    /// Whether there is something to send.
    pub fn has_left(&self) -> bool {
        self.unsent > 0 || self.has_bodies() || self.credit.has_outgoing()
    }

    /// Whether something is waited for at the ends of epochs.
    fn is_awaited(&self) -> bool {
        !self.dormant
            && (self.outstanding > 0
                || self.unsent > 0
                || self.has_bodies()
                || !self.credit.is_quiet()
                || self.credit.under_way() > self.forsaken)
    }
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub messages: u64,
    pub units: u64,
    pub asked: u64,
    pub unasked: u64,
    pub bytes: u64,
    pub at_origin: u64,
    pub too_large: u64,
    pub strays: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Client {
    system: u64,
    promised: UserBuffers,
    wanted: AmOrdering,
    interleave: bool,
    pub(super) peers: HashMap<u32, Peer>,
    pub(super) messages: HashMap<u64, Message>,
    next: u64,
    /// Futures to be woken at the next occasion.
    pub(super) woken: Vec<Waker>,
    /// Something has happened that calls may wait for, since it was last asked.
    pub(super) news: bool,
    pub(super) ready: Vec<u64>,
    pub(super) spent: Spent,
    pub done: Done,
}

impl Spends for Client {
    fn spent(&mut self) -> &mut Spent {
        &mut self.spent
    }
}

impl Client {
    pub fn new(system: u64, promised: UserBuffers, wanted: AmOrdering, interleave: bool) -> Client {
        Client {
            system,
            promised,
            wanted,
            interleave,
            peers: HashMap::new(),
            messages: HashMap::new(),
            next: 0,
            woken: Vec::new(),
            news: false,
            ready: Vec::new(),
            spent: Spent::default(),
            done: Done::default(),
        }
    }

    /// From now on, before the first message: what an origin has at each target without asking.
    pub fn furnish(&mut self, system: u64) {
        self.system = system;
    }

    pub(super) fn peer(&mut self, target: Rank) -> &mut Peer {
        let (system, promised, wanted) = (self.system, self.promised.get(target), self.wanted);
        self.peers.entry(target.0).or_insert_with(|| Peer {
            credit: Credit::new(system, promised),
            lineup: Lineup::new(wanted),
            unsent: 0,
            outstanding: 0,
            forsaken: 0,
            streaming: None,
            body: Vec::new(),
            full: false,
            again: VecDeque::new(),
            work: false,
            dormant: false,
            exclusive: false,
            trouble: None,
        })
    }

    /// Takes a message; its number.
    pub fn add(&mut self, mut message: Message, exclusive: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        message.mark.message = id;
        self.done.messages += u64::from(message.work == Work::Run);
        let peer = self.peer(message.target);
        if exclusive != peer.exclusive {
            peer.exclusive = exclusive;
            peer.credit.exclusive(exclusive);
        }
        peer.lineup.push(message.mark, id);
        peer.unsent += 1;
        peer.outstanding += 1;
        (peer.work, peer.dormant) = (true, false);
        self.messages.insert(id, message);
        id
    }

    /// Messages to `target` that have not been sent.
    pub fn unsent(&self, target: Rank) -> usize {
        self.peers.get(&target.0).map_or(0, |peer| peer.unsent)
    }

    /// Has a look at a message; nothing if it has been forgotten.
    pub fn get(&mut self, id: u64) -> Option<&mut Message> {
        self.messages.get_mut(&id)
    }

    /// What became of a message, if that is known. It is forgotten then, or goes on by itself if it
    /// was given up.
    pub fn take(&mut self, id: u64) -> Option<Outcome> {
        let message = self.messages.get_mut(&id)?;
        if message.done {
            let mut message = self.messages.remove(&id)?;
            let outcome = message.outcome();
            return Some(Outcome { _spent: Some(message), ..outcome });
        }
        message.over.then(|| message.outcome())
    }

    /// Whether everything at `target` is done. At the end of an epoch (`ends`), and where buffers
    /// may be detached after it, the room there is given up first.
    pub fn idle(&mut self, target: Option<Rank>, ends: bool) -> Result<bool> {
        let mut idle = true;
        for (_, peer) in self.peers.iter_mut().filter(|(rank, _)| concerns(target, **rank)) {
            if peer.dormant {
                continue;
            }
            if peer.outstanding > 0 || peer.unsent > 0 || peer.has_bodies() {
                idle = false;
                continue;
            }
            if ends && peer.exclusive {
                peer.exclusive = false;
                peer.credit.exclusive(false);
            } else if ends || self.interleave {
                peer.credit.surrender();
            }
            peer.work |= peer.credit.has_outgoing();
            idle &= !peer.is_awaited();
        }
        if !idle {
            return Ok(false);
        }
        let mut peers = self.peers.iter_mut().filter(|(rank, _)| concerns(target, **rank));
        if let Some(error) = peers.find_map(|(_, peer)| peer.trouble.take()) {
            return Err(error);
        }
        if ends && self.peers.len() > IDLE_PEERS {
            self.peers.retain(|_, peer| {
                peer.is_awaited() || peer.has_left() || peer.credit.under_way() > 0
            });
        }
        Ok(true)
    }

    /// Targets at which something is waited for.
    pub fn awaited(&self, target: Option<Rank>) -> Vec<Rank> {
        let peers = self.peers.iter().filter(|(rank, _)| concerns(target, **rank));
        let awaited = peers.filter(|(_, peer)| peer.is_awaited());
        let mut ranks: Vec<Rank> = awaited.map(|(rank, _)| Rank(*rank)).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Peers, messages.
    pub fn held(&self) -> (u64, u64) {
        (self.peers.len() as u64, self.messages.len() as u64)
    }
}

/// Whether a call about `target`, or about all, is one about `rank`.
pub(super) fn concerns(target: Option<Rank>, rank: u32) -> bool {
    target.is_none_or(|target| target.0 == rank)
}
