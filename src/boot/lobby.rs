//! Getting everybody of a rendezvous together: the first comer's side, and the others'.
//!
//! Somebody who only connects, or says what makes no sense, or does not know the secret where there is
//! one, is sent away after a while at most, and keeps nobody who belongs here from coming: so many such
//! connections are looked after at a time, and the oldest goes for the next.

use super::admission::{self, Nonce, Secret, Side};
use super::channel::Channel;
use super::meeting::Leading;
use super::port;
use super::socket::{self, Received};
use super::wire::{self, Message};
use crate::base::{Deadline, Error, Result};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::net::TcpListener;
use std::time::Duration;

/// How long somebody may take to say who he is.
const GREETING: Duration = Duration::from_secs(5);
/// Connections of those who have not said it, at a time.
const MOST_CALLERS: usize = 256;
/// How long those have where more wait outside.
const CROWDED: Duration = Duration::from_millis(10);

/// One attempt to get everybody together.
pub(super) struct Gathering<'a> {
    /// What it is called in messages, and what the others have to have in common.
    pub name: String,
    pub shared: &'static str,
    pub size: u32,
    pub deadline: Deadline,
    /// What has to be known to come in.
    pub secret: Option<&'a Secret>,
}

/// Where the leader hears others come.
pub(super) enum Door {
    Named(Leading),
    Port(TcpListener),
}

/// All are in: this process's rank, the job, and the connections to the others (the leader's) or to
/// the leader.
pub(super) struct Gathered {
    pub rank: u32,
    pub size: u32,
    pub job: u64,
    pub links: Vec<Channel>,
}

/// Somebody who has not said yet who he is.
struct Caller {
    channel: Channel,
    /// The number by which he is to show that he knows the secret.
    nonce: Option<Nonce>,
    until: Deadline,
}

/// What becomes of a caller.
enum Heard {
    Stays(Caller),
    Member(Channel),
    /// Told why not.
    Refused,
    Stranger,
}

impl Door {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Named(leading) => leading.listener(),
            Door::Port(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> Result<Option<Channel>> {
        let leading = match self {
            Door::Named(leading) => leading,
            Door::Port(listener) => {
                return Ok(port::accept(listener)?.map(Channel::of_stream));
            }
        };
        match rustix::net::accept_with(leading.listener(), SocketFlags::CLOEXEC) {
            Ok(caller) if socket::check_same_user(caller.as_fd()).is_ok() => {
                Ok(Some(Channel::of_packets(caller)))
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(e) => Err(Error::os("accept in the rendezvous", e)),
        }
    }
}

impl Gathering<'_> {
    /// Why it did not come to be, when `present` had come; `more` is what else there is to say.
    pub fn too_few(&self, present: u32, more: &str) -> Error {
        let missing = self.size.saturating_sub(present);
        Error::boot(format!(
            "{}: {present} of {} processes came within {:.1?}, {missing} missing{more}; start the \
             others, with {}, or allow more time",
            self.name,
            self.size,
            self.deadline.waited(),
            self.shared
        ))
    }

    fn refused(&self, why: &str) -> Error {
        Error::boot(format!("{}: {why}", self.name))
    }

    /// The others' side; `None` if the leader went away before all were in.
    pub fn attend(&self, mut link: Channel) -> Result<Option<Gathered>> {
        if let Some(secret) = self.secret
            && !self.introduce(secret, &mut link)?
        {
            return Ok(None);
        }
        let pid = std::process::id();
        let hello = Message::Hello { version: wire::VERSION, pid, size: self.size };
        if !link.send(&hello)? {
            return Ok(None);
        }
        let mut present = 1;
        loop {
            match link.receive(self.deadline)? {
                Received::Message(Message::Lobby { present: now }, _) => present = now,
                // Rank 0 is who says it.
                Received::Message(Message::Welcome { rank, size, job, .. }, _)
                    if rank > 0 && size == self.size =>
                {
                    return Ok(Some(Gathered { rank, size, job, links: vec![link] }));
                }
                Received::Message(Message::Refused { why }, _) => return Err(Error::boot(why)),
                Received::Message(other, _) => return Err(unexpected(&other)),
                Received::Closed => return Ok(None),
                Received::Late => return Err(self.too_few(present, "")),
            }
        }
    }

    /// Shows the leader that this process knows the secret, and sees that the leader does; false if it
    /// went away.
    fn introduce(&self, secret: &Secret, link: &mut Channel) -> Result<bool> {
        let foreign = |_| self.refused("something else than a rendezvous of hither listens there");
        let silent = ", and who listens there does not answer";
        let caller = admission::nonce()?;
        let leader = match link.receive(self.deadline).map_err(foreign)? {
            Received::Message(Message::Challenge { version: wire::VERSION, nonce }, _) => nonce,
            Received::Message(Message::Challenge { .. }, _) => {
                return Err(self.refused("its leader uses another version of hither"));
            }
            Received::Message(other, _) => return Err(unexpected(&other)),
            Received::Closed => return Ok(false),
            Received::Late => return Err(self.too_few(1, silent)),
        };
        let proof = secret.proof(Side::Caller, &leader, &caller)?;
        if !link.send(&Message::Proof { nonce: caller, proof })? {
            return Ok(false);
        }
        match link.receive(self.deadline).map_err(foreign)? {
            Received::Message(Message::Proof { nonce, proof }, _)
                if nonce == leader
                    && secret.is_shown(Side::Leader, &leader, &caller, &proof)? =>
            {
                link.trust();
                Ok(true)
            }
            Received::Message(Message::Proof { .. }, _) => {
                Err(self.refused("its leader does not know the secret"))
            }
            Received::Message(Message::Refused { why }, _) => Err(Error::boot(why)),
            Received::Message(other, _) => Err(unexpected(&other)),
            Received::Closed => Ok(false),
            Received::Late => Err(self.too_few(1, silent)),
        }
    }

    /// The leader's side. The place is left when the door is dropped, in any case.
    pub fn lead(&self, door: Door) -> Result<Gathered> {
        let job = super::random()?;
        let mut members: Vec<Channel> = Vec::new();
        let mut callers: Vec<Caller> = Vec::new();
        let mut strangers = 0u64;
        while members.len() + 1 < self.size as usize {
            let before = (members.len(), callers.len());
            callers.retain(|caller| !caller.until.passed());
            strangers += (before.1 - callers.len()) as u64;
            // In a crowd those inside are heard first.
            let crowded = callers.len() >= MOST_CALLERS;
            let fds: Vec<BorrowedFd<'_>> = (members.iter().map(Channel::fd))
                .chain(callers.iter().map(|caller| caller.channel.fd()))
                .chain((!crowded).then(|| door.fd()))
                .collect();
            let next = callers.iter().filter_map(|caller| caller.until.left()).min();
            let next = next.into_iter().chain(crowded.then_some(CROWDED)).min();
            let limit =
                next.map_or(self.deadline, |next| Deadline::after(self.deadline.clamp(next)));
            let ready = socket::any_readable(&fds, limit)?;
            match ready {
                None if self.deadline.passed() => {
                    let more = match strangers + callers.len() as u64 {
                        0 => String::new(),
                        some => format!(", and {some} connections that are none of theirs"),
                    };
                    return Err(self.too_few(members.len() as u32 + 1, &more));
                }
                None if crowded => {
                    callers.remove(0);
                    strangers += 1;
                }
                None => {}
                // Members have nothing to say now: this one has gone.
                Some(at) if at < members.len() => drop(members.remove(at)),
                Some(at) if at < members.len() + callers.len() => {
                    let at = at - members.len();
                    match self.hear(callers.remove(at))? {
                        Heard::Stays(caller) => callers.insert(at, caller),
                        Heard::Member(member) => members.push(member),
                        Heard::Stranger => strangers += 1,
                        Heard::Refused => {}
                    }
                }
                Some(_) => {
                    if let Some(channel) = door.accept()? {
                        callers.extend(self.ask(channel)?);
                    }
                }
            }
            if members.len() != before.0 {
                let present = Message::Lobby { present: members.len() as u32 + 1 };
                for member in &members {
                    member.send(&present)?;
                }
            }
        }
        drop(door);
        for (rank, member) in (1..).zip(&members) {
            let welcome = Message::Welcome { rank, size: self.size, job, blocks: Vec::new() };
            // One that has died just now is noticed by the first call that needs it.
            member.send(&welcome)?;
        }
        Ok(Gathered { rank: 0, size: self.size, job, links: members })
    }

    /// Asks somebody who has come who he is; nothing if he has gone.
    fn ask(&self, channel: Channel) -> Result<Option<Caller>> {
        let nonce = match self.secret {
            Some(_) => Some(admission::nonce()?),
            None => None,
        };
        if let Some(nonce) = nonce
            && !channel.send(&Message::Challenge { version: wire::VERSION, nonce })?
        {
            return Ok(None);
        }
        Ok(Some(Caller { channel, nonce, until: Deadline::after(GREETING) }))
    }

    /// Hears what a caller says next.
    fn hear(&self, mut caller: Caller) -> Result<Heard> {
        let said = match caller.channel.receive(Deadline::after(Duration::ZERO)) {
            Ok(Received::Message(said, _)) => said,
            // A part of it.
            Ok(Received::Late) => return Ok(Heard::Stays(caller)),
            // Gone, or not one of ours.
            Ok(Received::Closed) | Err(_) => return Ok(Heard::Stranger),
        };
        if let (Some(secret), Some(leader)) = (self.secret, caller.nonce) {
            let Message::Proof { nonce, proof } = said else { return Ok(Heard::Stranger) };
            if !secret.is_shown(Side::Caller, &leader, &nonce, &proof)? {
                let why = format!("{}: its leader was given another secret", self.name);
                caller.channel.send(&Message::Refused { why })?;
                return Ok(Heard::Stranger);
            }
            let proof = secret.proof(Side::Leader, &leader, &nonce)?;
            if !caller.channel.send(&Message::Proof { nonce: leader, proof })? {
                return Ok(Heard::Stranger);
            }
            return Ok(Heard::Stays(Caller { nonce: None, ..caller }));
        }
        let why = match said {
            Message::Hello { version, .. } if version != wire::VERSION => {
                format!("the leader of {} uses another version of hither", self.name)
            }
            Message::Hello { size, .. } if size != self.size => {
                format!(
                    "{}: its first comer expects {} processes, this one {size}",
                    self.name, self.size
                )
            }
            Message::Hello { .. } => {
                caller.channel.trust();
                return Ok(Heard::Member(caller.channel));
            }
            _ => "a rendezvous begins with a greeting".into(),
        };
        caller.channel.send(&Message::Refused { why })?;
        Ok(Heard::Refused)
    }
}

pub(super) fn unexpected(message: &Message) -> Error {
    Error::boot(format!("the rendezvous got {message:?} where it should not have"))
}
