//! A simple engine: operations are sent at once and answered one by one.

use crate::rma::runtime::{
    Fault, Handled, Host, Message, RequestId, Riders, Sent, Trouble, WindowId,
};
use std::collections::{HashMap, HashSet};
use std::task::Poll;

/// Most operations on one target that are not answered.
const OUTSTANDING: u64 = 64;

#[derive(Debug, Default)]
struct Lane {
    sent: u64,
    answered: u64,
    fault: Option<Fault>,
    tokens: HashSet<u64>,
    dead: bool,
}

#[derive(Debug, Default)]
pub(super) struct Engine {
    lanes: HashMap<(WindowId, u32), Lane>,
    /// An answer that found no room: to whom, for which window and operation.
    unsent: Option<(WindowId, u32, u64, Result<Vec<u8>, Fault>)>,
}

pub(super) type Outcome<R> = Poll<Result<R, Trouble>>;

impl Engine {
    pub fn new() -> Engine {
        Engine::default()
    }

    pub fn add_window(&mut self, _: WindowId, _: u32, _: u32) {}

    pub fn remove_window(&mut self, id: WindowId) {
        self.lanes.retain(|(window, _), _| *window != id);
    }

    pub fn operate(
        &mut self,
        host: &mut impl Host,
        window: WindowId,
        target: u32,
        body: &[u8],
        token: Option<u64>,
    ) -> Outcome<()> {
        let lane = self.lanes.entry((window, target)).or_default();
        if lane.dead {
            return Poll::Ready(Err(Trouble::Dead(target)));
        }
        if lane.sent - lane.answered >= OUTSTANDING {
            return Poll::Pending;
        }
        let seq = lane.sent + 1;
        let riders = Riders { ack: true, ..Riders::default() };
        let request = token.map(RequestId);
        let message = Message::Operation { seq, request, lock: None, riders, body };
        match host.send(window, target, &message) {
            Sent::Full => Poll::Pending,
            Sent::Gone => Poll::Ready(Err(Trouble::Dead(target))),
            Sent::Yes => {
                lane.sent += 1;
                lane.tokens.extend(token);
                Poll::Ready(Ok(()))
            }
        }
    }

    pub fn push(&mut self, _: &mut impl Host, _: WindowId, _: u32) {}

    pub fn flush(&mut self, _: &mut impl Host, window: WindowId, target: u32) -> Outcome<()> {
        let Some(lane) = self.lanes.get_mut(&(window, target)) else { return Poll::Ready(Ok(())) };
        if lane.dead {
            return Poll::Ready(Err(Trouble::Dead(target)));
        }
        if lane.sent > lane.answered {
            return Poll::Pending;
        }
        Poll::Ready(lane.fault.take().map_or(Ok(()), |f| Err(Trouble::Remote(target, f))))
    }

    pub fn flush_all(&mut self, host: &mut impl Host, window: WindowId) -> Outcome<()> {
        let mine = self.lanes.keys().filter(|(w, _)| *w == window).map(|(_, t)| *t);
        let all: Vec<u32> = mine.collect();
        let mut first = Ok(());
        for target in all {
            match self.flush(host, window, target) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(Trouble::Dead(_))) => {}
                Poll::Ready(result) => first = first.and(result),
            }
        }
        Poll::Ready(first)
    }

    pub fn handle(
        &mut self,
        host: &mut impl Host,
        window: WindowId,
        from: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::Operation { seq, request, body, .. } => {
                let key = (window, from, seq);
                let done = match self.unsent.take() {
                    Some((w, f, s, done)) if (w, f, s) == key => done,
                    other => {
                        self.unsent = other;
                        let mut answer = Vec::new();
                        host.perform(window, from, body, &mut answer).map(|()| answer)
                    }
                };
                let result = done.as_ref().map(|v| v.as_slice()).map_err(|f| *f);
                let reply = Message::Answer { seq, acked: true, request, result };
                if host.send(window, from, &reply) == Sent::Full {
                    self.unsent = Some((window, from, seq, done));
                    return Handled::Busy;
                }
            }
            Message::Answer { seq, request, result, .. } => {
                let lane = self.lanes.entry((window, from)).or_default();
                lane.answered = seq.min(lane.sent);
                if let Some(RequestId(token)) = request
                    && lane.tokens.remove(&token)
                {
                    match result {
                        Ok(data) => host.data(token, data),
                        Err(fault) => host.failed(token, Trouble::Remote(from, fault)),
                    }
                } else if let Err(fault) = result {
                    lane.fault.get_or_insert(fault);
                }
            }
            _ => {}
        }
        Handled::Done
    }

    pub fn progress(&mut self, _: &mut impl Host) -> bool {
        self.unsent.is_some()
    }

    pub fn peer_dead(&mut self, host: &mut impl Host, window: WindowId, rank: u32) {
        let lane = self.lanes.entry((window, rank)).or_default();
        lane.dead = true;
        for token in std::mem::take(&mut lane.tokens) {
            host.failed(token, Trouble::Dead(rank));
        }
        self.unsent.take_if(|(w, f, ..)| (*w, *f) == (window, rank));
    }
}
