//! The origin's sending: messages of a line become bodies of operations, one after the other, as
//! credit and the engine have room.
//!
//! ```text
//!   again     what the engine threw away and the target must be told all the same
//!   credit    releases, withdrawals
//!   streaming the rest of the unit that was begun             --- body ---> operate
//!   lineup    the next unit of a message that may go
//! ```

use super::client::{Client, Peer};
use super::message::Message;
use crate::am::body::{MORE_HEAD, Place, Request, UNIT_HEAD, Unit, Work};
use crate::am::credit::{Need, Next};
use crate::base::{Error, Rank};
use crate::rma::foreign::Outgoing;
use std::task::Poll;

impl Client {
    /// Whether there may be something to send or to tell.
    pub fn is_busy(&self) -> bool {
        let works = |peer: &Peer| peer.work && !peer.dormant;
        let told = self.woken.is_empty() && self.spent.is_empty() && !self.news;
        !told || self.peers.values().any(works)
    }

    /// Sends what can be sent; whether anything.
    pub fn pump(&mut self, out: &mut dyn Outgoing, most: usize) -> bool {
        let works = |(rank, peer): (&u32, &Peer)| (peer.work && !peer.dormant).then_some(*rank);
        let ranks: Vec<u32> = self.peers.iter().filter_map(works).collect();
        let mut sent = false;
        for rank in ranks {
            sent |= self.pump_peer(Rank(rank), out, most);
        }
        self.tell(out);
        sent
    }

    /// Sends what can be sent to one target; whether anything.
    pub(super) fn pump_peer(&mut self, target: Rank, out: &mut dyn Outgoing, most: usize) -> bool {
        let mut sent = false;
        while let Some(peer) = self.peers.get_mut(&target.0) {
            if !peer.full {
                peer.work = false;
                if !self.fill(target, most) {
                    break;
                }
                continue;
            }
            peer.work = true;
            match out.operate(target, &peer.body) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {
                    peer.full = false;
                    sent = true;
                }
                Poll::Ready(Err(error)) => {
                    self.strand(target, &error);
                    break;
                }
            }
        }
        if sent {
            out.push(target);
        }
        sent
    }

    /// Makes the next body for a target; whether there is one.
    fn fill(&mut self, target: Rank, most: usize) -> bool {
        let Some(peer) = self.peers.get_mut(&target.0) else { return false };
        if let Some(body) = peer.again.pop_front() {
            (peer.body, peer.full) = (body, true);
            return true;
        }
        if let Some(request) = peer.credit.outgoing() {
            request.encode(&mut peer.body);
            peer.full = true;
            return true;
        }
        if let Some(id) = peer.streaming {
            let message = self.messages.get_mut(&id);
            let Some((message, (unit, position))) =
                message.and_then(|message| message.sending().map(|at| (message, at)))
            else {
                peer.streaming = None;
                return self.fill(target, most);
            };
            Request::More { message: id, unit, position, data: &[] }.encode(&mut peer.body);
            message.send(most - MORE_HEAD, &mut peer.body);
            peer.full = true;
            // A call may wait for its input to be read.
            self.news |= message.unread() == 0;
            if message.stream.is_none() {
                peer.streaming = None;
                self.settle(id);
            }
            return true;
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(peer.lineup.ready());
        let made = ready.iter().any(|&id| self.fill_from(target, id, most));
        self.ready = ready;
        // Failing may have something to say.
        made || self.peers.get_mut(&target.0).is_some_and(|peer| {
            let request = peer.credit.outgoing();
            if let Some(request) = &request {
                request.encode(&mut peer.body);
                peer.full = true;
            }
            request.is_some()
        })
    }

    /// Makes the next body out of a message that may go; whether there is one.
    fn fill_from(&mut self, target: Rank, id: u64, most: usize) -> bool {
        let Some(peer) = self.peers.get_mut(&target.0) else { return false };
        let Some(message) = self.messages.get_mut(&id) else { return false };
        if message.next == message.segments {
            let closes = message.begun;
            if closes {
                message.begun = false;
                Request::Unit(closing(id, message)).encode(&mut peer.body);
                peer.full = true;
            }
            self.settle(id);
            return closes;
        }
        let (fixed, segment) = message.need;
        let segments = (message.segments - message.next) as u64;
        let need = Need { message: id, fixed, segment, segments, most: message.most, behind: 0 };
        match peer.credit.next(&need) {
            Next::Send { place, segments, release } => {
                self.done.units += 1;
                self.done.unasked += u64::from(place.space <= crate::am::buffers::GUARANTEED);
                let head = message.unit(id, place, segments as usize, release);
                self.done.bytes += head.input;
                Request::Unit(head).encode(&mut peer.body);
                message.send(most - UNIT_HEAD, &mut peer.body);
                peer.full = true;
                peer.streaming = message.stream.is_some().then_some(id);
                self.settle(id);
                true
            }
            Next::Reserve(request) => {
                self.done.asked += 1;
                request.encode(&mut peer.body);
                peer.full = true;
                true
            }
            Next::Wait => false,
            Next::Never { least, largest, private } => {
                message.too_large = true;
                message.fail(too_small(target, least, largest, private));
                self.settle(id);
                self.fill_from(target, id, most)
            }
        }
    }
}

/// Tells the target that nothing more comes of a message.
fn closing(id: u64, message: &Message) -> Unit<'static> {
    Unit {
        message: id,
        unit: message.units,
        handler: message.entry.index(),
        work: Work::Run,
        vector: false,
        concurrent: false,
        release: false,
        ends: true,
        place: Place { space: 0, position: 0, bytes: 0 },
        at: 0,
        span: 0,
        first: 0,
        segments: 0,
        input: 0,
        output: 0,
        described: 0,
        data: &[],
    }
}

#[cold]
fn too_small(target: Rank, least: u64, largest: u64, private: u64) -> Error {
    let why = format!(
        "one segment takes {least} bytes of staging at rank {target}, where the largest attached \
         buffer has {largest} and the system buffer {private}; attach a larger one there \
         (Window::attach_buffer), or make segments smaller"
    );
    Error::invalid("an active message", why)
}
