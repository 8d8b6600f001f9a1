//! Handing a node's memory out, where no launcher has brought it along.
//!
//! ```text
//! leader: makes the memory, listens on an abstract socket with a random 128-bit name, which the
//!         others learn in whatever way the job has
//! leader                          others of its node
//!                    <-----         Claim{job, rank}      (same user, checked both ways)
//!   Memory + fd      ----->
//! ```

use super::socket::{self, Received};
use super::wire::{self, Message};
use crate::base::{Deadline, Error, Rank, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::collections::HashSet;
use std::time::Duration;

/// Where the leader waits for the others.
pub(super) struct Offer {
    listener: OwnedFd,
    name: Vec<u8>,
}

impl Offer {
    /// One to which so many come.
    pub fn open(count: u32) -> Result<Offer> {
        let name = format!("hither-{:016x}{:016x}", super::random()?, super::random()?);
        let name = name.into_bytes();
        let address = SocketAddrUnix::new_abstract_name(&name)
            .map_err(|e| Error::os("naming the wiring's socket", e))?;
        let listener = socket::unconnected()?;
        rustix::net::bind(&listener, &address)
            .and_then(|()| rustix::net::listen(&listener, count.min(4096) as i32))
            .map_err(|e| Error::os("listening for the other ranks", e))?;
        Ok(Offer { listener, name })
    }

    /// What the others have to know.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Gives `memory` to each of `ranks`, once.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names those that have not come.
    pub fn serve(
        self,
        job: u64,
        ranks: impl Iterator<Item = u32>,
        memory: BorrowedFd<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        let mut missing: HashSet<u32> = ranks.collect();
        let mut callers: Vec<OwnedFd> = Vec::new();
        while !missing.is_empty() {
            let fds: Vec<_> =
                std::iter::once(&self.listener).chain(&callers).map(|fd| fd.as_fd()).collect();
            let Some(ready) = socket::any_readable(&fds, deadline)? else {
                let mut missing: Vec<u32> = missing.into_iter().collect();
                missing.sort_unstable();
                return Err(Error::TimedOut {
                    during: "handing out the node's memory",
                    waited: deadline.waited(),
                    missing: wire::some_of(missing.into_iter()),
                });
            };
            if ready == 0 {
                match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    // A stranger's connection is dropped without a word.
                    Ok(caller) if socket::check_same_user(caller.as_fd()).is_ok() => {
                        callers.push(caller);
                    }
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                    Err(e) => return Err(Error::os("accept in the wiring", e)),
                }
                continue;
            }
            let caller = callers.swap_remove(ready - 1);
            let now = Deadline::after(Duration::ZERO);
            if let Ok(Received::Message(Message::Claim { job: theirs, rank }, _)) =
                socket::receive(caller.as_fd(), now)
            {
                if theirs == job && missing.contains(&rank) {
                    if socket::send(caller.as_fd(), &Message::Memory, Some(memory))? {
                        missing.remove(&rank);
                    }
                } else {
                    let why = format!("rank {rank} does not belong here, or came twice");
                    socket::send(caller.as_fd(), &Message::Refused { why }, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Fetches, as `rank`, what `leader` offers under a name.
///
/// # Errors
/// [`Error::RankDied`] or [`Error::TimedOut`] name the leader.
pub(super) fn claim(
    name: &[u8],
    job: u64,
    rank: Rank,
    leader: Rank,
    deadline: Deadline,
) -> Result<OwnedFd> {
    let gone = || Error::RankDied {
        rank: leader,
        cause: "it closed the socket on which it hands out the node's memory".into(),
        during: "wiring the job up",
    };
    let late = || Error::TimedOut {
        during: "fetching the node's memory",
        waited: deadline.waited(),
        missing: vec![leader],
    };
    let address = SocketAddrUnix::new_abstract_name(name)
        .map_err(|_| Error::boot(format!("rank {leader} sent a name that is not a socket's")))?;
    let socket = socket::unconnected()?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            // The queue is full for the moment.
            Err(Errno::AGAIN) if !deadline.passed() => {
                std::thread::sleep(deadline.clamp(Duration::from_millis(1)));
            }
            Err(Errno::AGAIN) => return Err(late()),
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Err(gone()),
            Err(e) => return Err(Error::os("connecting to the leader of the node", e)),
        }
    }
    socket::check_same_user(socket.as_fd())?;
    if !socket::send(socket.as_fd(), &Message::Claim { job, rank: rank.0 }, None)? {
        return Err(gone());
    }
    match socket::receive(socket.as_fd(), deadline)? {
        Received::Message(Message::Memory, Some(memory)) => Ok(memory),
        Received::Message(Message::Refused { why }, _) => Err(Error::boot(why)),
        Received::Late => Err(late()),
        Received::Message(..) | Received::Closed => Err(gone()),
    }
}
