//! Messages taken out of the queue before they are received.

use super::super::Team;
use super::blocking::buffer;
use super::name::Status;
use crate::base::{Result, forked};
use crate::layout::Datum;
use crate::p2p::{Record, Taken};
use std::marker::PhantomData;

/// A message that nobody else can receive any more. Dropping it drops the message: a sender that
/// waits for it gets an error.
#[derive(Debug)]
#[must_use = "the message is lost if it is not received"]
pub struct MatchedMessage<T> {
    team: Team,
    status: Status,
    taken: Option<Taken>,
    _elements: PhantomData<T>,
}

impl<T: Datum> MatchedMessage<T> {
    pub(super) fn new(team: &Team, taken: Taken) -> Result<MatchedMessage<T>> {
        let status = team.status(taken.arrived(), size_of::<T>())?;
        Ok(MatchedMessage {
            team: team.clone(),
            status,
            taken: Some(taken),
            _elements: PhantomData,
        })
    }

    /// What it is.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it into the beginning of `into`. Waits while it is copied.
    ///
    /// # Errors
    /// Those of [`Team::recv`].
    pub fn recv(mut self, into: &mut [T]) -> Result<Status> {
        const WHAT: &str = "MatchedMessage::recv";
        let endpoint = self.team.messages(WHAT)?;
        // SAFETY: `into` is borrowed until `receive_taken` returns.
        let record = Record::new(unsafe { buffer(into.as_mut_ptr(), into.len()) });
        if let Some(taken) = self.taken.take() {
            endpoint.receive_taken(taken, &record, self.team.deadline(), WHAT)?;
        }
        Ok(self.status)
    }
}

impl<T> Drop for MatchedMessage<T> {
    fn drop(&mut self) {
        if let (Some(taken), Ok(endpoint)) = (&self.taken, self.team.member.endpoint())
            && !forked::is_forked()
        {
            endpoint.drop_taken(taken);
        }
    }
}
