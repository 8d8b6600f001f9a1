//! Requests of one-sided operations by packets: the result of a ticket.

use super::remote::{Remote, Ticket};
use crate::base::Result;
use crate::base::request::{Going, Request};
use std::sync::Arc;
use std::task::Waker;

struct Waiting<R> {
    remote: Arc<dyn Remote>,
    ticket: Ticket,
    /// Makes the result from the bytes that come.
    finish: fn(Vec<u8>) -> Result<R>,
    /// Whether the ticket is used up.
    over: bool,
}

impl<R> Going<R> for Waiting<R> {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<R>> {
        let come = self.remote.poll(self.ticket, waker).transpose()?;
        self.over = true;
        Some(come.and_then(self.finish))
    }

    fn wait(mut self: Box<Self>) -> Result<R> {
        self.over = true;
        self.remote.wait(self.ticket).and_then(self.finish)
    }
}

impl<R> Drop for Waiting<R> {
    fn drop(&mut self) {
        if !self.over {
            self.remote.abandon(self.ticket);
        }
    }
}

/// The request for what a ticket brings.
pub(super) fn later<R: 'static>(
    remote: Arc<dyn Remote>,
    ticket: Ticket,
    finish: fn(Vec<u8>) -> Result<R>,
) -> Request<R> {
    Request::going(Box::new(Waiting { remote, ticket, finish, over: false }))
}
