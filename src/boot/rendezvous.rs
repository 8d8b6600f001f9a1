//! Processes that meet under a name, or at an address: servers and clients started one by one.
//!
//! ```text
//! first comer (leader, rank 0)             the others, in order of arrival
//!   (at an address: both show that they know the secret, see `admission`)
//!                               <-----       Hello{version, pid, size}
//!   Lobby{present}              ----->       (whenever somebody comes or goes)
//!   ... all are in: nobody listens any more ...
//!   Welcome{rank, size, job}    ----->
//!   Memory + fd                 ----->       node_memory (under a name)
//!                               <-----       Piece{...}*, Fence     each fence
//!   Piece{...}*, Fence          ----->
//! ```
//! If the leader is killed before all are in, the others see their connections end, go back to
//! the meeting place and elect the next leader there. One that comes when all are in meets the same: it
//! opens the next job there.
//!
//! Those who meet under a name are on one machine, in one directory of their user's: a node, whose
//! memory the leader sends along. Those who meet at an address are anywhere. In a first fence they tell
//! each other where (see `card`); in another one each node's first rank says where the others of the
//! node get its memory (see `neighbours`).

use super::admission::Secret;
use super::card::Card;
use super::channel::Channel;
use super::lobby::{Door, Gathered, Gathering, unexpected};
use super::meeting::{Found, Place};
use super::neighbours;
use super::pairs::Pairs;
use super::port::{self, Port};
use super::socket::{self, Received};
use super::wire::{self, MAX_SIZE, MAX_VALUE, Message};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use crate::topo::Placement;
use rustix::fd::{AsFd, OwnedFd};
use std::net::SocketAddr;
use std::time::Duration;

/// Most bytes that a rank puts between two fences.
const MOST: usize = 4 << 20;
/// When to call again where the leader hung up.
const AGAIN: Duration = Duration::from_millis(2);

/// A process's part in a rendezvous.
#[derive(Debug)]
pub struct Rendezvous {
    rank: u32,
    size: u32,
    job: u64,
    placement: Placement,
    /// Whether a rank is where this one's loopback address does not reach.
    beyond: bool,
    /// Whether they met under a name: descriptors go over their connections.
    named: bool,
    pairs: Pairs,
    /// At the leader: connections to ranks 1, 2, ...; elsewhere: the one to the leader.
    links: Vec<Channel>,
}

impl Rendezvous {
    /// Meets the other `size - 1` processes of this user that ask for the same name. The first
    /// to arrive is rank 0. Blocks until all are there or the deadline has passed; then the
    /// error says how many had come.
    pub fn join(name: &str, size: u32, deadline: Deadline) -> Result<Rendezvous> {
        Self::join_at(&Place::new(name)?, name, size, deadline)
    }

    /// Meets the other `size - 1` processes, on any machines, that know the same address, secret (8 to
    /// 1024 bytes; a random one is best) and size. The first to arrive of those on the machine that has the address
    /// listens there, and is rank 0; the others connect. Nobody listens anywhere else, nor after all
    /// have come. Blocks until then or the deadline; the error says how many had come.
    ///
    /// Ranks of one user on one machine, in one network namespace, are a node and share memory. What
    /// goes between nodes goes over the network: on different machines each needs an address there that
    /// the others reach (`HITHER_NET_ADDRESS`).
    ///
    /// The secret keeps strangers out; it is not sent. What the processes tell each other is not hidden
    /// from who reads the network.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if that is no size, address or secret; [`Error::Boot`] if not all
    /// came, or something else listens there, or the secrets or versions differ.
    pub fn join_over(
        address: SocketAddr,
        secret: &str,
        size: u32,
        deadline: Deadline,
    ) -> Result<Rendezvous> {
        Self::meet(address, secret, size, Card::of_this_process(0, size)?, deadline)
    }

    /// As [`Rendezvous::join_over`], on a node with this name (1 to 256 bytes): processes that give
    /// different names are on different nodes, also where they could share memory.
    ///
    /// # Errors
    /// Those of [`Rendezvous::join_over`]; [`Error::InvalidArgument`] if that is no name.
    pub fn join_over_on_node(
        node: &str,
        address: SocketAddr,
        secret: &str,
        size: u32,
        deadline: Deadline,
    ) -> Result<Rendezvous> {
        let own = Card::of_this_process(0, size)?.on_node(node)?;
        Self::meet(address, secret, size, own, deadline)
    }

    fn meet(
        address: SocketAddr,
        secret: &str,
        size: u32,
        own: Card,
        deadline: Deadline,
    ) -> Result<Rendezvous> {
        check_size(size)?;
        let (port, secret) = (Port::new(address)?, Secret::new(secret)?);
        let gathering = Gathering {
            name: format!("rendezvous at {}", port.address()),
            shared: match address.ip().is_loopback() {
                true => {
                    "the same address, secret and size, on this machine, as that address is no other's"
                }
                false => "the same address, secret and size",
            },
            size,
            deadline,
            secret: Some(&secret),
        };
        let gathered = loop {
            match port.enter(deadline)? {
                port::Found::Nobody(listener) => break gathering.lead(Door::Port(listener))?,
                port::Found::Somebody(link) => {
                    if let Some(gathered) = gathering.attend(Channel::of_stream(link))? {
                        break gathered;
                    }
                    // The leader went away; or it is something that lets nobody in, again and again.
                    if deadline.passed() {
                        return Err(gathering.too_few(1, ", and who listens there hangs up"));
                    }
                    std::thread::sleep(deadline.clamp(AGAIN));
                }
                port::Found::Late(why) => {
                    let more = format!(", and nobody can be reached there ({why})");
                    return Err(gathering.too_few(1, &more));
                }
            }
        };
        let mut ranks = Rendezvous::of(gathered, false)?;
        let own = Card { rank: ranks.rank, ..own };
        let (placement, known) = neighbours::meet(&mut ranks, &own, deadline)?;
        (ranks.placement, ranks.beyond) = (placement, known.beyond);
        Ok(ranks)
    }

    fn join_at(place: &Place, name: &str, size: u32, deadline: Deadline) -> Result<Rendezvous> {
        check_size(size)?;
        let gathering = named(name, size, deadline);
        loop {
            match place.enter(deadline)? {
                Found::Nobody(leading) => {
                    return Rendezvous::of(gathering.lead(Door::Named(leading))?, true);
                }
                Found::Leader(link) => {
                    socket::check_same_user(link.as_fd())?;
                    if let Some(gathered) = gathering.attend(Channel::of_packets(link))? {
                        return Rendezvous::of(gathered, true);
                    }
                }
            }
        }
    }

    /// One of those who have met; on one node until more is known.
    fn of(gathered: Gathered, named: bool) -> Result<Rendezvous> {
        let Gathered { rank, size, job, links } = gathered;
        let placement = Placement::one_node(size)?;
        let pairs = Pairs::new(size);
        Ok(Rendezvous { rank, size, job, placement, beyond: false, named, pairs, links })
    }

    fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Gathers everybody's bytes at the leader and hands them to all.
    fn exchange(&mut self, own: Vec<u8>, deadline: Deadline) -> Result<Vec<(u32, Vec<u8>)>> {
        let during = "a fence of the wiring";
        let leader =
            || Error::RankDied { rank: Rank(0), cause: "it closed its connections".into(), during };
        if !self.leads() {
            let (size, link) = (self.size, &mut self.links[0]);
            // A leader that takes nothing any more may have said why before it closed.
            let _ = send_blob(link, self.rank, &own, deadline)?
                && link.send_patiently(&Message::Fence, deadline)?;
            let mut all: Vec<(u32, Vec<u8>)> = Vec::new();
            loop {
                match link.receive(deadline)? {
                    Received::Message(Message::Piece { rank, bytes }, _) if rank < size => {
                        match all.last_mut() {
                            Some((last, so_far))
                                if *last == rank && so_far.len() + bytes.len() <= MOST =>
                            {
                                so_far.extend(bytes);
                            }
                            // In order, so that it comes to an end.
                            Some((last, _)) if *last >= rank => return Err(too_much(Rank(0))),
                            _ => all.push((rank, bytes)),
                        }
                    }
                    Received::Message(Message::Fence, _) => return Ok(all),
                    Received::Message(Message::Died { rank, cause }, _) => {
                        return Err(Error::RankDied { rank: Rank(rank), cause, during });
                    }
                    Received::Message(other, _) => return Err(unexpected(&other)),
                    Received::Closed => return Err(leader()),
                    Received::Late => return Err(late(during, deadline, vec![Rank(0)])),
                }
            }
        }
        let mut all = vec![(0, own)];
        all.extend((1..self.size).map(|rank| (rank, Vec::new())));
        let mut awaited: Vec<u32> = (1..self.size).collect();
        while !awaited.is_empty() {
            let fds: Vec<_> = awaited.iter().map(|r| self.links[*r as usize - 1].fd()).collect();
            let Some(at) = socket::any_readable(&fds, deadline)? else {
                return Err(late(during, deadline, wire::some_of(awaited.into_iter())));
            };
            let now = Deadline::after(Duration::ZERO);
            match self.links[awaited[at] as usize - 1].receive(now)? {
                Received::Message(Message::Piece { bytes, .. }, _) => {
                    let so_far = &mut all[awaited[at] as usize].1;
                    if so_far.len() + bytes.len() > MOST {
                        return Err(too_much(Rank(awaited[at])));
                    }
                    so_far.extend(bytes);
                }
                Received::Message(Message::Fence, _) => {
                    awaited.swap_remove(at);
                }
                Received::Message(other, _) => return Err(unexpected(&other)),
                Received::Late => {}
                Received::Closed => {
                    let (rank, cause) = (awaited[at], "its connection ended".to_owned());
                    for link in &self.links {
                        let news = Message::Died { rank, cause: cause.clone() };
                        link.send(&news)?;
                    }
                    return Err(Error::RankDied { rank: Rank(rank), cause, during });
                }
            }
        }
        for (rank, link) in (1..).zip(&self.links) {
            // Whoever dies now is noticed by the next call that needs it.
            for (of, bytes) in &all {
                send_blob(link, *of, bytes, deadline)?;
            }
            if !link.send_patiently(&Message::Fence, deadline)? && deadline.passed() {
                return Err(late(during, deadline, vec![Rank(rank)]));
            }
        }
        Ok(all)
    }
}

/// Sends bytes of any length in pieces. False if the other side is gone.
fn send_blob(link: &Channel, rank: u32, bytes: &[u8], deadline: Deadline) -> Result<bool> {
    for piece in bytes.chunks(MAX_VALUE) {
        let message = Message::Piece { rank, bytes: piece.to_vec() };
        if !link.send_patiently(&message, deadline)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn late(during: &'static str, deadline: Deadline, missing: Vec<Rank>) -> Error {
    Error::TimedOut { during, waited: deadline.waited(), missing }
}

#[cold]
fn too_much(rank: Rank) -> Error {
    Error::boot(format!(
        "rank {rank} sends more in the wiring than {MOST} bytes of each rank, or out of order"
    ))
}

fn check_size(size: u32) -> Result<()> {
    if size == 0 || size > MAX_SIZE {
        let why = format!("a job has 1 to {MAX_SIZE} ranks, not {size}");
        return Err(Error::invalid("rendezvous", why));
    }
    Ok(())
}

fn named(name: &str, size: u32, deadline: Deadline) -> Gathering<'static> {
    let name = format!("rendezvous \"{name}\"");
    Gathering { name, shared: "the same name, size and user", size, deadline, secret: None }
}

impl Bootstrap for Rendezvous {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn placement(&self) -> Result<Placement> {
        Ok(self.placement.clone())
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn reaches_beyond(&self) -> bool {
        self.beyond
    }

    fn node_memory(&mut self, make: MakeMemory<'_>, deadline: Deadline) -> Result<OwnedFd> {
        if !self.named {
            let placement = self.placement.clone();
            return neighbours::node_memory(self, &placement, make, deadline);
        }
        let during = "fetching the node's memory";
        if self.leads() {
            let made = make();
            for link in &self.links {
                match &made {
                    Ok(fd) => socket::send(link.fd(), &Message::Memory, Some(fd.as_fd()))?,
                    Err(e) => {
                        let why = format!("the leader has no node memory for the job: {e}");
                        link.send(&Message::Refused { why })?
                    }
                };
            }
            return made;
        }
        match self.links[0].receive(deadline)? {
            Received::Message(Message::Memory, Some(fd)) => Ok(fd),
            Received::Message(Message::Refused { why }, _) => Err(Error::boot(why)),
            Received::Message(other, _) => Err(unexpected(&other)),
            Received::Closed => Err(Error::RankDied {
                rank: Rank(0),
                cause: "it closed its connections".into(),
                during,
            }),
            Received::Late => Err(late(during, deadline, vec![Rank(0)])),
        }
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.pairs.put(key, value)
    }

    fn fence(&mut self, deadline: Deadline) -> Result<()> {
        let own = self.pairs.take_fresh();
        if own.len() > MOST {
            let why = format!("{} bytes between two fences, and {MOST} are the most", own.len());
            return Err(Error::invalid("put", why));
        }
        let all = self.exchange(own, deadline)?;
        all.iter().try_for_each(|(rank, bytes)| self.pairs.learn(*rank, bytes))
    }

    fn get(&mut self, rank: Rank, key: &str, _deadline: Deadline) -> Result<Option<Vec<u8>>> {
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
