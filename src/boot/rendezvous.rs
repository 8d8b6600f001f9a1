//! Processes of one user that meet under a name: servers and clients started one by one.
//!
//! ```text
//! first comer (leader, rank 0)             the others, in order of arrival
//!                               <-----       Hello{version, pid, size}
//!   Lobby{present}              ----->       (whenever somebody comes or goes)
//!   ... all are in: the socket is removed ...
//!   Welcome{rank, size, job}    ----->
//!   Memory + fd                 ----->       node_memory
//!                               <-----       Piece{...}*, Fence     each fence
//!   Piece{...}*, Fence          ----->
//! ```
//! If the leader is killed before all are in, the others see their connections end, go back to
//! the meeting place, remove the stale socket and elect the next leader there. One that comes when
//! all are in meets the same: it opens the next job of that name.

use super::meeting::{Found, Leading, Place};
use super::pairs::Pairs;
use super::socket::{self, Received};
use super::wire::{self, MAX_SIZE, MAX_VALUE, Message};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::time::Duration;

/// A process's part in a named rendezvous.
#[derive(Debug)]
pub struct Rendezvous {
    rank: u32,
    size: u32,
    job: u64,
    pairs: Pairs,
    /// At the leader: connections to ranks 1, 2, ...; elsewhere: the one to the leader.
    links: Vec<OwnedFd>,
}

impl Rendezvous {
    /// Meets the other `size - 1` processes of this user that ask for the same name. The first
    /// to arrive is rank 0. Blocks until all are there or the deadline has passed; then the
    /// error says how many had come.
    pub fn join(name: &str, size: u32, deadline: Deadline) -> Result<Rendezvous> {
        Self::join_at(&Place::new(name)?, name, size, deadline)
    }

    fn join_at(place: &Place, name: &str, size: u32, deadline: Deadline) -> Result<Rendezvous> {
        if size == 0 || size > MAX_SIZE {
            let why = format!("a job has 1 to {MAX_SIZE} ranks, not {size}");
            return Err(Error::invalid("rendezvous", why));
        }
        let gathering = Gathering { name, size, deadline };
        loop {
            match place.enter(deadline)? {
                Found::Nobody(leading) => return gathering.lead(leading),
                Found::Leader(link) => {
                    if let Some(joined) = gathering.attend(link)? {
                        return Ok(joined);
                    }
                }
            }
        }
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
            let link = self.links[0].as_fd();
            // A leader that takes nothing any more may have said why before it closed.
            let _ = send_blob(link, self.rank, &own, deadline)?
                && socket::send_patiently(link, &Message::Fence, deadline)?;
            let mut all: Vec<(u32, Vec<u8>)> = Vec::new();
            loop {
                match socket::receive(link, deadline)? {
                    Received::Message(Message::Piece { rank, bytes }, _) => match all.last_mut() {
                        Some((last, so_far)) if *last == rank => so_far.extend(bytes),
                        _ => all.push((rank, bytes)),
                    },
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
            let fds: Vec<_> = awaited.iter().map(|r| self.links[*r as usize - 1].as_fd()).collect();
            let Some(at) = socket::any_readable(&fds, deadline)? else {
                return Err(late(during, deadline, wire::some_of(awaited.into_iter())));
            };
            match socket::receive(fds[at], deadline)? {
                Received::Message(Message::Piece { bytes, .. }, _) => {
                    all[awaited[at] as usize].1.extend(bytes);
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
                        socket::send(link.as_fd(), &news, None)?;
                    }
                    return Err(Error::RankDied { rank: Rank(rank), cause, during });
                }
            }
        }
        for (rank, link) in (1..).zip(&self.links) {
            // Whoever dies now is noticed by the next call that needs it.
            for (of, bytes) in &all {
                send_blob(link.as_fd(), *of, bytes, deadline)?;
            }
            if !socket::send_patiently(link.as_fd(), &Message::Fence, deadline)?
                && deadline.passed()
            {
                return Err(late(during, deadline, vec![Rank(rank)]));
            }
        }
        Ok(all)
    }
}

/// One attempt to get everybody together.
struct Gathering<'a> {
    name: &'a str,
    size: u32,
    deadline: Deadline,
}

impl Gathering<'_> {
    fn too_few(&self, present: u32) -> Error {
        let missing = self.size.saturating_sub(present);
        Error::boot(format!(
            "rendezvous \"{}\": {present} of {} processes came within {:.1?}, {missing} missing; \
             start the others, with the same name, size and user, or allow more time",
            self.name,
            self.size,
            self.deadline.waited()
        ))
    }

    /// The others' side; `None` if the leader went away before all were in.
    fn attend(&self, link: OwnedFd) -> Result<Option<Rendezvous>> {
        socket::check_same_user(link.as_fd())?;
        let pid = std::process::id();
        let hello = Message::Hello { version: wire::VERSION, pid, size: self.size };
        if !socket::send(link.as_fd(), &hello, None)? {
            return Ok(None);
        }
        let mut present = 1;
        loop {
            match socket::receive(link.as_fd(), self.deadline)? {
                Received::Message(Message::Lobby { present: now }, _) => present = now,
                // Rank 0 is who says it.
                Received::Message(Message::Welcome { rank, size, job, .. }, _) if rank > 0 => {
                    let pairs = Pairs::new(size);
                    return Ok(Some(Rendezvous { rank, size, job, pairs, links: vec![link] }));
                }
                Received::Message(Message::Refused { why }, _) => return Err(Error::boot(why)),
                Received::Message(other, _) => return Err(unexpected(&other)),
                Received::Closed => return Ok(None),
                Received::Late => return Err(self.too_few(present)),
            }
        }
    }

    /// The leader's side. The place is left when `leading` is dropped, in any case.
    fn lead(&self, leading: Leading) -> Result<Rendezvous> {
        let job = super::random()?;
        let mut members: Vec<OwnedFd> = Vec::new();
        let mut callers: Vec<OwnedFd> = Vec::new();
        while members.len() + 1 < self.size as usize {
            let fds: Vec<BorrowedFd<'_>> = std::iter::once(leading.listener())
                .chain(members.iter().chain(&callers).map(|fd| fd.as_fd()))
                .collect();
            let Some(ready) = socket::any_readable(&fds, self.deadline)? else {
                return Err(self.too_few(members.len() as u32 + 1));
            };
            if ready == 0 {
                match rustix::net::accept_with(leading.listener(), SocketFlags::CLOEXEC) {
                    Ok(caller) if socket::check_same_user(caller.as_fd()).is_ok() => {
                        callers.push(caller);
                    }
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                    Err(e) => return Err(Error::os("accept in the rendezvous", e)),
                }
                continue;
            }
            if ready <= members.len() {
                // Members have nothing to say now: this one has gone.
                members.remove(ready - 1);
            } else {
                let caller = callers.swap_remove(ready - 1 - members.len());
                members.extend(self.greet(caller)?);
            }
            let present = Message::Lobby { present: members.len() as u32 + 1 };
            for member in &members {
                socket::send(member.as_fd(), &present, None)?;
            }
        }
        drop(leading);
        for (rank, member) in (1..).zip(&members) {
            let welcome = Message::Welcome { rank, size: self.size, job, blocks: Vec::new() };
            // One that has died just now is noticed by the first call that needs it.
            socket::send(member.as_fd(), &welcome, None)?;
        }
        let pairs = Pairs::new(self.size);
        Ok(Rendezvous { rank: 0, size: self.size, job, pairs, links: members })
    }

    /// Hears a caller's greeting; gives it back if it may stay.
    fn greet(&self, caller: OwnedFd) -> Result<Option<OwnedFd>> {
        let why = match socket::receive(caller.as_fd(), Deadline::after(Duration::ZERO)) {
            Ok(Received::Message(Message::Hello { version, size, .. }, _)) => {
                if version != wire::VERSION {
                    format!(
                        "the leader of rendezvous \"{}\" uses another version of hither",
                        self.name
                    )
                } else if size != self.size {
                    format!(
                        "rendezvous \"{}\": its first comer expects {} processes, this one {size}",
                        self.name, self.size
                    )
                } else {
                    return Ok(Some(caller));
                }
            }
            Ok(Received::Message(..)) => "a rendezvous begins with a greeting".into(),
            // Gone, or not one of ours.
            _ => return Ok(None),
        };
        socket::send(caller.as_fd(), &Message::Refused { why }, None)?;
        Ok(None)
    }
}

/// Sends bytes of any length in pieces. False if the other side is gone.
fn send_blob(link: BorrowedFd<'_>, rank: u32, bytes: &[u8], deadline: Deadline) -> Result<bool> {
    for piece in bytes.chunks(MAX_VALUE) {
        let message = Message::Piece { rank, bytes: piece.to_vec() };
        if !socket::send_patiently(link, &message, deadline)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn late(during: &'static str, deadline: Deadline, missing: Vec<Rank>) -> Error {
    Error::TimedOut { during, waited: deadline.waited(), missing }
}

fn unexpected(message: &Message) -> Error {
    Error::boot(format!("the rendezvous got {message:?} where it should not have"))
}

impl Bootstrap for Rendezvous {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn node_memory(&mut self, make: MakeMemory<'_>, deadline: Deadline) -> Result<OwnedFd> {
        let during = "fetching the node's memory";
        if self.leads() {
            let made = make();
            for link in &self.links {
                match &made {
                    Ok(fd) => socket::send(link.as_fd(), &Message::Memory, Some(fd.as_fd()))?,
                    Err(e) => {
                        let why = format!("the leader has no node memory for the job: {e}");
                        socket::send(link.as_fd(), &Message::Refused { why }, None)?
                    }
                };
            }
            return made;
        }
        match socket::receive(self.links[0].as_fd(), deadline)? {
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
        let all = self.exchange(own, deadline)?;
        all.iter().try_for_each(|(rank, bytes)| self.pairs.learn(*rank, bytes))
    }

    fn get(&mut self, rank: Rank, key: &str, _deadline: Deadline) -> Result<Option<Vec<u8>>> {
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::meeting::tests::Scratch;
    use super::*;

    fn within(ms: u64) -> Deadline {
        Deadline::after(Duration::from_millis(ms))
    }

    fn memory() -> Result<OwnedFd> {
        rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|e| Error::os("memfd_create", e))
    }

    fn on_threads<R: Send>(count: u32, body: impl Fn(u32) -> R + Sync) -> Vec<R> {
        std::thread::scope(|scope| {
            let body = &body;
            let all: Vec<_> = (0..count).map(|n| scope.spawn(move || body(n))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn everybody_gets_a_rank_the_memory_and_the_values() {
        let scratch = Scratch::new();
        // Twice under one name, one after the other.
        for _ in 0..2 {
            let seen = on_threads(6, |_| {
                let mut boot =
                    Rendezvous::join_at(&scratch.place(), "x", 6, within(20_000)).unwrap();
                let fd = boot.node_memory(&memory, within(20_000)).unwrap();
                let large = vec![boot.rank().0 as u8; MAX_VALUE];
                for key in ["a", "b", "c"] {
                    boot.put(key, &large).unwrap();
                }
                boot.fence(within(20_000)).unwrap();
                for rank in 0..6 {
                    let value = boot.get(Rank(rank), "c", within(0)).unwrap().unwrap();
                    assert_eq!(value, vec![rank as u8; MAX_VALUE]);
                }
                boot.fence(within(20_000)).unwrap();
                (boot.rank().0, boot.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
            });
            let mut ranks: Vec<u32> = seen.iter().map(|s| s.0).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, (0..6).collect::<Vec<u32>>());
            assert!(seen.iter().all(|s| (s.1, s.2) == (seen[0].1, seen[0].2)));
            assert!(!scratch.0.join("dir").exists(), "nothing is left");
        }
    }

    #[test]
    fn more_than_the_size_make_further_jobs() {
        let scratch = Scratch::new();
        let mut jobs = on_threads(9, |_| {
            let boot = Rendezvous::join_at(&scratch.place(), "x", 3, within(20_000)).unwrap();
            (boot.job(), boot.rank().0)
        });
        jobs.sort_unstable();
        for job in jobs.chunks(3) {
            assert!(job.iter().all(|j| j.0 == job[0].0), "{jobs:?}");
            assert_eq!(job.iter().map(|j| j.1).collect::<Vec<u32>>(), [0, 1, 2]);
        }
    }

    #[test]
    fn too_few_are_counted_and_nothing_is_left() {
        let scratch = Scratch::new();
        let errors = on_threads(2, |_| {
            Rendezvous::join_at(&scratch.place(), "x", 3, within(300)).unwrap_err().to_string()
        });
        assert!(errors.iter().any(|e| e.contains("2 of 3")), "{errors:?}");
        assert!(!scratch.0.join("dir").exists());
    }

    #[test]
    fn another_size_is_refused_and_does_not_disturb() {
        let scratch = Scratch::new();
        let Found::Nobody(leading) = scratch.place().enter(within(20_000)).unwrap() else {
            panic!("somebody else leads");
        };
        let place = scratch.place();
        std::thread::scope(|scope| {
            let gathering = Gathering { name: "x", size: 2, deadline: within(20_000) };
            let leader = scope.spawn(move || gathering.lead(leading).unwrap());
            let err = Rendezvous::join_at(&place, "x", 3, within(20_000)).unwrap_err();
            assert!(err.to_string().contains("expects 2 processes, this one 3"), "{err}");
            let second = Rendezvous::join_at(&place, "x", 2, within(20_000)).unwrap();
            assert_eq!(second.job(), leader.join().unwrap().job());
        });
    }

    #[test]
    fn those_that_leave_the_lobby_are_replaced() {
        let scratch = Scratch::new();
        let place = scratch.place();
        let Found::Nobody(leading) = place.enter(within(20_000)).unwrap() else {
            panic!("somebody else leads");
        };
        // One greets and goes, one connects and says nothing, one talks nonsense.
        let mut calls = (0..3).map(|_| match place.enter(within(20_000)).unwrap() {
            Found::Leader(link) => link,
            Found::Nobody(_) => panic!("the leader is there"),
        });
        let hello = Message::Hello { version: wire::VERSION, pid: 1, size: 2 };
        socket::send(calls.next().unwrap().as_fd(), &hello, None).unwrap();
        let silent = calls.next().unwrap();
        rustix::io::write(calls.next().unwrap(), b"hello?").unwrap();
        std::thread::scope(|scope| {
            let gathering = Gathering { name: "x", size: 3, deadline: within(20_000) };
            let leader = scope.spawn(move || gathering.lead(leading).unwrap().rank);
            let place = &place;
            let join = move || Rendezvous::join_at(place, "x", 3, within(20_000)).unwrap().rank;
            let others = [scope.spawn(join), scope.spawn(join)];
            let mut ranks = others.map(|t| t.join().unwrap());
            ranks.sort_unstable();
            assert_eq!((leader.join().unwrap(), ranks), (0, [1, 2]));
        });
        drop(silent);
    }

    #[test]
    fn the_death_of_a_member_is_told_to_all() {
        let scratch = Scratch::new();
        let errors = on_threads(4, |_| {
            let mut boot = Rendezvous::join_at(&scratch.place(), "x", 4, within(20_000)).unwrap();
            if boot.rank() == Rank(2) {
                return None;
            }
            Some(boot.fence(within(20_000)).unwrap_err().to_string())
        });
        let errors: Vec<String> = errors.into_iter().flatten().collect();
        assert_eq!(errors.len(), 3);
        assert!(errors.iter().all(|e| e.contains("rank 2 died")), "{errors:?}");
    }

    #[test]
    fn a_late_member_is_named() {
        let scratch = Scratch::new();
        let (held, hold) = std::sync::mpsc::channel::<()>();
        let hold = std::sync::Mutex::new(hold);
        let held = std::sync::Mutex::new(Some(held));
        let errors = on_threads(2, |_| {
            let mut boot = Rendezvous::join_at(&scratch.place(), "x", 2, within(20_000)).unwrap();
            if boot.rank() == Rank(1) {
                // Alive, but does not take part until the other one has given up.
                let _ = hold.lock().unwrap().recv();
                return None;
            }
            let err = boot.fence(within(100)).unwrap_err().to_string();
            drop(held.lock().unwrap().take());
            Some(err)
        });
        let err = errors.into_iter().flatten().next().unwrap();
        assert!(err.contains("missing: rank 1"), "{err}");
    }
}
