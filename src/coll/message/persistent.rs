//! Sends and receives that are described once and started many times.
//!
//! ```text
//!   send_init -> idle ---- start ---> under way ---- wait ---> idle
//!                 buffer: the program's              buffer: the library's meanwhile
//! ```

use super::super::Team;
use super::Told;
use super::name::{Source, Status, Tag};
use super::request::{Pending, ReceiveBuffer, ReceiveRequest, SendBuffer, SendRequest};
use crate::base::{Error, Rank, Result};

/// A send that can be started again and again. Dropping one that is under way lets it go on.
#[derive(Debug)]
pub struct PersistentSend<B: SendBuffer> {
    team: Team,
    to: Rank,
    tag: u32,
    synchronous: bool,
    buffer: Option<B>,
    request: Option<SendRequest<B>>,
}

/// A receive that can be started again and again. Dropping one that is under way lets it go on.
#[derive(Debug)]
pub struct PersistentReceive<B: ReceiveBuffer> {
    team: Team,
    from: Source,
    tag: Tag,
    buffer: Option<B>,
    request: Option<ReceiveRequest<B>>,
}

/// What can be started with others. It is over, as a [`Pending`] request, while it is idle too.
pub trait Persistent: Pending {
    /// Begins once more.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is under way, or if its buffer was lost with an error; those of
    /// [`Team::isend`] and [`Team::irecv`].
    fn start(&mut self) -> Result<()>;

    /// Waits for the end of what was started: what came, of a receive. Nothing if it is idle.
    ///
    /// # Errors
    /// Those of [`Team::send`] and [`Team::recv`].
    fn wait(&mut self) -> Result<Option<Status>>;
}

impl Team {
    /// Describes a send of `data` to a member, to be started with [`Persistent::start`].
    pub fn send_init<B: SendBuffer>(&self, to: Rank, tag: u32, data: B) -> PersistentSend<B> {
        let (team, buffer) = (self.clone(), Some(data));
        PersistentSend { team, to, tag, synchronous: false, buffer, request: None }
    }

    /// As [`Team::send_init`], of a synchronous send.
    pub fn ssend_init<B: SendBuffer>(&self, to: Rank, tag: u32, data: B) -> PersistentSend<B> {
        PersistentSend { synchronous: true, ..self.send_init(to, tag, data) }
    }

    /// Describes a receive into `into`, to be started with [`Persistent::start`].
    pub fn recv_init<B: ReceiveBuffer>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: B,
    ) -> PersistentReceive<B> {
        let (team, buffer) = (self.clone(), Some(into));
        PersistentReceive { team, from: from.into(), tag: tag.into(), buffer, request: None }
    }
}

/// The buffer of what is to be started.
fn take<B>(buffer: &mut Option<B>, under_way: bool) -> Result<B> {
    buffer.take().ok_or_else(|| {
        let why = match under_way {
            true => "it is under way; wait for it first",
            false => "its buffer was lost with an earlier error; describe it anew",
        };
        Error::Misuse { what: "starting a persistent request", why: why.into() }
    })
}

impl<B: SendBuffer> PersistentSend<B> {
    /// The buffer, while it is idle.
    pub fn buffer(&mut self) -> Option<&mut B> {
        self.buffer.as_mut()
    }
}

impl<B: SendBuffer> Persistent for PersistentSend<B> {
    fn start(&mut self) -> Result<()> {
        let buffer = take(&mut self.buffer, self.request.is_some())?;
        self.request = Some(if self.synchronous {
            self.team.issend(self.to, self.tag, buffer)?
        } else {
            self.team.isend(self.to, self.tag, buffer)?
        });
        Ok(())
    }

    fn wait(&mut self) -> Result<Option<Status>> {
        if let Some(request) = self.request.take() {
            self.buffer = Some(request.wait()?);
        }
        Ok(None)
    }
}

impl<B: ReceiveBuffer> PersistentReceive<B> {
    /// The buffer, while it is idle.
    pub fn buffer(&mut self) -> Option<&mut B> {
        self.buffer.as_mut()
    }
}

impl<B: ReceiveBuffer> Persistent for PersistentReceive<B> {
    fn start(&mut self) -> Result<()> {
        let buffer = take(&mut self.buffer, self.request.is_some())?;
        self.request = Some(self.team.irecv(self.from, self.tag, buffer)?);
        Ok(())
    }

    fn wait(&mut self) -> Result<Option<Status>> {
        let Some(request) = self.request.take() else { return Ok(None) };
        let (outcome, buffer) = request.end();
        self.buffer = buffer;
        outcome.map(Some)
    }
}

macro_rules! pending {
    ($request:ident, $buffer:ident) => {
        impl<B: $buffer> Pending for $request<B> {
            fn test(&mut self) -> Result<bool> {
                self.request.as_mut().map_or(Ok(true), Pending::test)
            }
            fn team(&self) -> &Team {
                &self.team
            }
            fn is_over(&self) -> bool {
                self.request.as_ref().is_none_or(Pending::is_over)
            }
            fn tend(&self, told: &Told) -> Result<()> {
                self.request.as_ref().map_or(Ok(()), |request| request.tend(told))
            }
        }
    };
}
pending!(PersistentSend, SendBuffer);
pending!(PersistentReceive, ReceiveBuffer);

/// Starts all.
///
/// # Errors
/// The first one; those behind it are not started.
pub fn start_all(requests: &mut [&mut dyn Persistent]) -> Result<()> {
    requests.iter_mut().try_for_each(|request| request.start())
}

/// Waits for all, which are idle then.
///
/// # Errors
/// The first one; the others are waited for all the same.
pub fn finish_all(requests: &mut [&mut dyn Persistent]) -> Result<()> {
    let mut first = Ok(());
    for request in requests {
        first = first.and(request.wait().map(drop));
    }
    first
}
