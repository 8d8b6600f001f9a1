//! A rank that a launcher started: client of the launcher's control socket.
//!
//! ```text
//! rank                                   launcher (see `server`)
//!   Hello{version, pid}        ----->
//!                              <-----      Welcome{rank, size, job, blocks} + the node's memory
//!   Put{key, value}            ----->      (no answer)
//!   Fence                      ----->
//!                              <-----      Fence, once all have sent it
//!   Get{rank, key}             ----->
//!                              <-----      Value
//!   WhoIsMissing               ----->      (past a deadline)
//!                              <-----      Missing{ranks}
//!                              <-----      Died{rank, cause}, instead of any answer
//! ```
//! The socket is inherited; `HITHER_LAUNCH_FD` names it as `descriptor:inode`. A process that
//! inherits the variable but not the socket, or whose descriptor is by now something else, is
//! found out by the inode number, before anything is written or closed.

use super::socket::{self, Received};
use super::wire::{self, Message};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result, settings};
use crate::topo::{Placement, Places};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// How long the launcher may take to say who is missing, past the deadline.
const ANSWER: Duration = Duration::from_secs(1);

/// A rank of a launcher.
#[derive(Debug)]
pub struct Launched {
    socket: OwnedFd,
    rank: Rank,
    size: u32,
    placement: Placement,
    job: u64,
    memory: Option<OwnedFd>,
}

impl Launched {
    /// Joins the launcher that the environment names; `None` if it names none.
    ///
    /// A launcher's socket can be joined through once. A second attempt in the same process, or
    /// one by another process that inherited the socket, gets an error.
    pub fn from_environment(deadline: Deadline) -> Result<Option<Launched>> {
        let text = settings::LAUNCH_FD.text();
        if text.is_empty() {
            return Ok(None);
        }
        let socket = claim(&text)?;
        Launched::join(socket, deadline).map(Some)
    }

    /// Joins over a connected control socket.
    pub fn join(socket: OwnedFd, deadline: Deadline) -> Result<Launched> {
        let hello = Message::Hello { version: wire::VERSION, pid: std::process::id(), size: 0 };
        if !socket::send(socket.as_fd(), &hello, None)? {
            return Err(gone());
        }
        match socket::receive(socket.as_fd(), deadline)? {
            Received::Message(Message::Welcome { rank, size, job, blocks }, Some(memory)) => {
                let (rank, memory) = (Rank(rank), Some(memory));
                let places = Places::of_blocks(size, &blocks)?;
                let placement = Placement::of(places, 0)?.seen_from(rank);
                Ok(Launched { socket, rank, size, placement, job, memory })
            }
            Received::Message(Message::Refused { why }, _) => Err(Error::boot(why)),
            Received::Message(other, _) => Err(unexpected(&other)),
            Received::Closed => Err(gone()),
            Received::Late => Err(Error::TimedOut {
                during: "joining the launcher",
                waited: deadline.waited(),
                missing: Vec::new(),
            }),
        }
    }

    fn ask(&self, question: &Message) -> Result<()> {
        let patience = Deadline::after(ANSWER);
        if socket::send_patiently(self.socket.as_fd(), question, patience)? {
            return Ok(());
        }
        Err(gone())
    }

    /// The next message for which `wanted` holds; others are answers that came too late.
    fn answer(
        &self,
        deadline: Deadline,
        during: &'static str,
        wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>> {
        loop {
            match socket::receive(self.socket.as_fd(), deadline)? {
                Received::Message(Message::Died { rank, cause }, _) => {
                    return Err(Error::RankDied { rank: Rank(rank), cause, during });
                }
                Received::Message(Message::Refused { why }, _) => return Err(Error::boot(why)),
                Received::Message(message, _) if wanted(&message) => return Ok(Some(message)),
                Received::Message(..) => {}
                Received::Closed => return Err(gone()),
                Received::Late => return Ok(None),
            }
        }
    }
}

impl Bootstrap for Launched {
    fn rank(&self) -> Rank {
        self.rank
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

    fn node_memory(&mut self, _make: MakeMemory<'_>, _deadline: Deadline) -> Result<OwnedFd> {
        self.memory.take().ok_or_else(|| Error::Misuse {
            what: "node_memory",
            why: "it was called before; it hands the descriptor over once".into(),
        })
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        wire::check_pair(key, value)?;
        self.ask(&Message::Put { key: key.into(), value: value.into() })
    }

    fn fence(&mut self, deadline: Deadline) -> Result<()> {
        self.ask(&Message::Fence)?;
        let during = "a fence of the wiring";
        if self.answer(deadline, during, |m| *m == Message::Fence)?.is_some() {
            return Ok(());
        }
        self.ask(&Message::WhoIsMissing)?;
        let late = Deadline::after(ANSWER);
        let known = |m: &Message| matches!(m, Message::Fence | Message::Missing { .. });
        let missing = match self.answer(late, during, known)? {
            // It was complete after all.
            Some(Message::Fence) => return Ok(()),
            Some(Message::Missing { ranks }) => wire::some_of(ranks.into_iter()),
            _ => Vec::new(),
        };
        Err(Error::TimedOut { during, waited: deadline.waited(), missing })
    }

    fn get(&mut self, rank: Rank, key: &str, deadline: Deadline) -> Result<Option<Vec<u8>>> {
        wire::check_pair(key, &[])?;
        if rank.0 >= self.size {
            let why = format!("rank {rank} is not below {}", self.size);
            return Err(Error::invalid("get", why));
        }
        self.ask(&Message::Get { rank: rank.0, key: key.into() })?;
        let during = "a look-up in the wiring";
        match self.answer(deadline, during, |m| matches!(m, Message::Value { .. }))? {
            Some(Message::Value { value }) => Ok(value),
            _ => Err(Error::TimedOut { during, waited: deadline.waited(), missing: Vec::new() }),
        }
    }
}

fn gone() -> Error {
    Error::boot("the launcher has ended or closed the control socket")
}

fn unexpected(message: &Message) -> Error {
    Error::boot(format!("the launcher sent {message:?} where it should not have"))
}

/// The value of `HITHER_LAUNCH_FD` for a socket: its number and its identity.
pub fn address_of(socket: BorrowedFd<'_>) -> Result<String> {
    let stat = rustix::fs::fstat(socket).map_err(|e| Error::os("fstat of a control socket", e))?;
    Ok(format!("{}:{}", socket.as_raw_fd(), stat.st_ino))
}

/// Takes ownership of the socket that `text` names, if it is still that socket and nobody in
/// this process has taken it.
fn claim(text: &str) -> Result<OwnedFd> {
    let bad = |why: &str| {
        Error::boot(format!(
            "{} is \"{text}\", but {why}; either the library was initialised twice in this \
             process, or this process was started by a rank in a way that passes the environment \
             on but not the socket: unset the variable to run it by itself",
            settings::LAUNCH_FD.name
        ))
    };
    let parts = text.split_once(':');
    let numbers = parts.and_then(|(fd, inode)| Some((fd.parse().ok()?, inode.parse().ok()?)));
    let (fd, inode): (RawFd, u64) = numbers.ok_or_else(|| bad("that is not descriptor:inode"))?;
    socket::inherit(fd, Some(inode)).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::IntoRawFd;

    #[test]
    fn only_the_very_socket_is_claimed_and_only_once() {
        let (_other, socket) = socket::pair().unwrap();
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
        let name = address_of(socket.as_fd()).unwrap();
        let raw = socket.into_raw_fd();
        assert!(claim(&format!("{raw}:1")).is_err(), "another inode");
        let claimed = claim(&name).unwrap();
        assert!(claim(&name).unwrap_err().to_string().contains("twice"), "taken already");
        drop(claimed);
        for nonsense in ["", "x", "3", "-1:5", "99999:5", ":", "0x3:1"] {
            assert!(claim(nonsense).is_err(), "{nonsense}");
        }
    }
}
