//! What a peer's reliable delivery hands on: messages, in the order of their numbers, packets about
//! queue pairs, and the peer's end.

use super::deliver::{End, from_number};
use super::inboxes::Inboxes;
use super::known::{Arrived, Body, Debt, HEAD, PACKETS};
use super::order::{KEPT, Order, Place};
use crate::base::Rank;
use crate::net::ud::{Event, Upper, Verdict};
use crate::shm::beyond::Standing;
use std::time::Duration;

/// Takes what a peer's reliable delivery hands on.
pub(super) struct Intake<'a> {
    pub inboxes: &'a mut Inboxes,
    pub ends: &'a mut Vec<End>,
    pub packets: &'a mut Vec<(Rank, Vec<u8>)>,
    pub order: &'a mut Order<Arrived>,
    pub held: &'a mut bool,
    pub silence: Duration,
}

impl Upper for Intake<'_> {
    fn message(&mut self, peer: u32, channel: u8, bytes: &[u8]) -> Verdict {
        let from = from_number(peer).0;
        if channel == PACKETS {
            self.packets.push((from, bytes.to_vec()));
            return Verdict::Taken;
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Verdict::Taken };
        let long = |at: usize| {
            let mut long = [0; 8];
            long.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(long)
        };
        let number = long(0);
        let place = self.order.place(number, KEPT);
        if place == Place::Again {
            return Verdict::Taken;
        }
        if place == Place::TooEarly {
            *self.held = true;
            self.inboxes.hold(None);
            return Verdict::Later;
        }
        let (endpoint, label) = self.inboxes.admit(long(8));
        if place == Place::Next && self.inboxes.is_full(endpoint) {
            *self.held = true;
            self.inboxes.hold(Some(endpoint));
            return Verdict::Later;
        }
        let (bytes, debt) = (Body::Own(rest.into()), Debt::NONE);
        let message = Arrived { from, label, endpoint, bytes, debt };
        put(self.order, self.inboxes, place, number, message);
        Verdict::Taken
    }

    fn event(&mut self, peer: u32, event: Event) {
        let (standing, why) = match event {
            Event::Opened => return,
            Event::Left(_) => (Standing::Left, "it had left the job".into()),
            Event::Silent(_) => {
                (Standing::Dead, format!("it did not answer for {:?}", self.silence))
            }
            Event::Restarted(_) => (Standing::Dead, "its connection was begun anew".into()),
            Event::Broken(_) => (Standing::Dead, "it sent what makes no sense".into()),
        };
        self.ends.push((from_number(peer).0, standing, why));
    }
}

/// Puts a message where it belongs.
pub(super) fn put(
    order: &mut Order<Arrived>,
    inboxes: &mut Inboxes,
    place: Place,
    number: u64,
    message: Arrived,
) {
    match place {
        Place::Next => order.take(message, |message| inboxes.push(message)),
        _ => order.keep(number, message),
    }
}
