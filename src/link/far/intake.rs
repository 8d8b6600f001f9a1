//! What a peer's reliable delivery hands on: messages, in the order of their numbers, packets about
//! queue pairs, and the peer's end.

use super::deliver::{End, from_number};
use super::known::{Arrived, Body, HEAD, PACKETS};
use super::order::{KEPT, Order, Place};
use crate::base::Rank;
use crate::link::control::FIRST_RESERVED;
use crate::net::ud::{Event, Upper, Verdict};
use crate::shm::beyond::Standing;
use crate::shm::ring::Label;
use std::collections::VecDeque;
use std::time::Duration;

/// Messages that wait in an inbox at most.
pub(super) const INBOX: usize = 256;

/// Takes what a peer's reliable delivery hands on.
pub(super) struct Intake<'a> {
    pub inbox: &'a mut VecDeque<Arrived>,
    pub ends: &'a mut Vec<End>,
    pub packets: &'a mut Vec<(Rank, Vec<u8>)>,
    pub order: &'a mut Order<Arrived>,
    pub held: &'a mut bool,
    pub silence: Duration,
}

/// The label in a word of a peer's. Kinds that the link has for itself mean something in this node's
/// memory only: what has one makes no sense here, and nobody could do anything with it.
pub(super) fn label(word: u64) -> Option<Label> {
    let kind = u8::try_from(word & 0xff).ok().filter(|kind| *kind < FIRST_RESERVED)?;
    Label::new(kind, word >> 8).ok()
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
        let (number, label) = (long(0), label(long(8)));
        let place = self.order.place(number, KEPT);
        if place == Place::TooEarly || place == Place::Next && self.inbox.len() >= INBOX {
            *self.held = true;
            return Verdict::Later;
        }
        if place != Place::Again {
            put(
                self.order,
                self.inbox,
                place,
                number,
                Arrived { from, label, bytes: Body::Own(rest.into()), by: 0 },
            );
        }
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
    inbox: &mut VecDeque<Arrived>,
    place: Place,
    number: u64,
    message: Arrived,
) {
    match place {
        Place::Next => order.take(message, |message| inbox.push_back(message)),
        _ => order.keep(number, message),
    }
}
