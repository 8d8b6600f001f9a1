//! What has come on a flow and was not taken: a line for each endpoint that is open here.
//!
//! ```text
//!   a peer, in order   --->  endpoint 0   | | | |        --> calls of that endpoint take
//!                      --->  endpoint 3   | | | | | |    --> as above; if they do not, and others
//!                                                            cannot come meanwhile: *pressed*, and
//!                                                            after [`PATIENCE`] *overdue*
//! ```
//! Messages of a peer come in one order, whichever endpoint they are for, and one that finds its line
//! full stays with its peer, with all that are behind it; so does what a queue pair may not send as
//! long as nobody has taken what came by it. So an endpoint at which nobody looks could stop all
//! others. What is overdue is therefore taken by whoever looks, for its endpoint
//! ([`relieve`](crate::link::relieve)).

use super::known::Arrived;
use super::word;
use crate::base::Rank;
use crate::shm::ring::Label;
use std::collections::VecDeque;

/// Messages that wait in a line at most, unless they come by queue pairs, which count for themselves.
pub(super) const INBOX: usize = 256;

/// Nanoseconds that an endpoint's own calls have to take what others wait for.
pub(super) const PATIENCE: u64 = 100_000;

/// Nanoseconds after which all are woken again, if nobody has taken it.
const AGAIN: u64 = 10_000_000;

/// No time.
const NEVER: u64 = u64::MAX;

/// The bit of an endpoint.
pub(in crate::link) fn bit(endpoint: u8) -> u64 {
    1u64.checked_shl(endpoint.into()).unwrap_or(0)
}

/// Endpoints of which a bit is set.
pub(in crate::link) fn bits(endpoints: u64) -> impl Iterator<Item = u8> {
    let mut rest = endpoints;
    std::iter::from_fn(move || {
        let lowest = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest as u8)
    })
}

/// See the [module](self).
pub(super) struct Inboxes {
    /// By number; as many as the highest one that is open needs.
    lines: Vec<VecDeque<Arrived>>,
    /// Endpoints that are open, those of which something waits, and those of which something has come
    /// or was taken since that was last asked. A bit each.
    open: u64,
    waiting: u64,
    changed: u64,
    /// Those whose lines were full when something came for them. All, if it found no room elsewhere.
    held: u64,
    /// Those that keep others' messages from coming; when that is seen to next.
    pressed: u64,
    see_at: u64,
    overdue: u64,
    alarm: bool,
    /// Messages that made no sense, or were for endpoints that are not open.
    senseless: u64,
}

impl Inboxes {
    /// Nothing has come; the process's own endpoint is open.
    pub fn new() -> Inboxes {
        Inboxes {
            lines: vec![VecDeque::new()],
            open: bit(0),
            waiting: 0,
            changed: 0,
            held: 0,
            pressed: 0,
            see_at: NEVER,
            overdue: 0,
            alarm: false,
            senseless: 0,
        }
    }

    /// Takes messages for an endpoint from now on.
    pub fn open(&mut self, endpoint: u8) {
        self.open |= bit(endpoint);
        while self.lines.len() <= endpoint.into() {
            self.lines.push(VecDeque::new());
        }
    }

    /// Where a message with this word goes, and its label. Endpoints are opened in all members of a
    /// team before anybody sends by them, and stay open: what is for another one was made up, as was
    /// what has no label, and stands in line 0 to be thrown away by whoever comes to it.
    pub fn admit(&mut self, word: u64) -> (u8, Option<Label>) {
        match word::decode(word) {
            Some((endpoint, label)) if self.open & bit(endpoint) != 0 => (endpoint, Some(label)),
            _ => (0, None),
        }
    }

    /// Messages that made no sense.
    pub fn senseless(&self) -> u64 {
        self.senseless
    }

    /// How many wait.
    pub fn len(&self, endpoint: u8) -> usize {
        self.lines.get(usize::from(endpoint)).map_or(0, VecDeque::len)
    }

    /// Whether a message that comes by a datagram has to stay with its peer.
    pub fn is_full(&self, endpoint: u8) -> bool {
        self.len(endpoint) >= INBOX
    }

    /// Whether one of a peer waits.
    pub fn has_from(&self, endpoint: u8, rank: Rank) -> bool {
        let line = self.lines.get(usize::from(endpoint));
        line.is_some_and(|line| line.iter().any(|one| one.from == rank))
    }

    /// One has come, which was [admitted](Inboxes::admit).
    pub fn push(&mut self, message: Arrived) {
        let endpoint = message.endpoint;
        if let Some(line) = self.lines.get_mut(usize::from(endpoint)) {
            self.senseless += u64::from(message.label.is_none());
            line.push_back(message);
            self.waiting |= bit(endpoint);
            self.changed |= bit(endpoint);
        }
    }

    /// The next one of an endpoint.
    pub fn take(&mut self, endpoint: u8) -> Option<Arrived> {
        let line = self.lines.get_mut(usize::from(endpoint))?;
        let next = line.pop_front();
        self.changed |= bit(endpoint);
        if line.is_empty() {
            let others = !bit(endpoint);
            self.waiting &= others;
            self.pressed &= others;
            self.overdue &= others;
            if self.pressed == 0 {
                self.see_at = NEVER;
            }
        }
        next
    }

    /// One was left with its peer for lack of room in the line of an endpoint; or anywhere.
    pub fn hold(&mut self, endpoint: Option<u8>) {
        self.held |= endpoint.map_or(u64::MAX, bit);
    }

    /// Whether something was left with a peer.
    pub fn holds(&self) -> bool {
        self.held != 0
    }

    /// Whether something that was left with its peer may find room now that one of an endpoint was
    /// taken. In each line of which something was left there is much room then.
    pub fn has_room_again(&self, endpoint: u8) -> bool {
        self.held & bit(endpoint) != 0 && self.len(endpoint) <= INBOX / 2
    }

    /// The same after something else has changed: some line has room.
    pub fn may_have_room(&self) -> bool {
        let full = |number: &u8| self.held & bit(*number) != 0 && !self.is_full(*number);
        (0..self.lines.len() as u8).any(|number| full(&number))
    }

    /// What was left is offered again: what stays is told anew.
    pub fn offer(&mut self) {
        self.held = 0;
    }

    /// As long as what waits now was not taken, something else cannot come.
    pub fn press(&mut self, now: u64) {
        // Where one endpoint is open there are no others.
        if self.open != bit(0) && self.waiting & !self.pressed != 0 {
            self.pressed |= self.waiting;
            self.see_at = self.see_at.min(now.saturating_add(PATIENCE));
        }
    }

    /// Whether all that waits keeps something from coming.
    #[cfg(test)]
    pub fn presses_all(&self) -> bool {
        self.waiting & !self.pressed == 0
    }

    /// When something is due; of no use before.
    pub fn next(&self) -> u64 {
        self.see_at
    }

    /// What is due: whose calls have not taken what others wait for is overdue.
    pub fn tick(&mut self, now: u64) {
        if now >= self.see_at {
            self.overdue = self.pressed;
            self.alarm = true;
            self.see_at = now.saturating_add(AGAIN);
        }
    }

    /// Endpoints of which others are to take what waits.
    pub fn overdue(&self) -> u64 {
        self.overdue
    }

    /// Whether everybody is to be woken for that.
    pub fn take_alarm(&mut self) -> bool {
        std::mem::take(&mut self.alarm)
    }

    /// Endpoints of which something has come or was taken since this was last asked.
    pub fn take_changed(&mut self) -> u64 {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::{Body, Debt};
    use super::*;
    use crate::link::KINDS;

    fn message(endpoint: u8, from: u32) -> Arrived {
        let (from, label) = (Rank(from), Label::new(KINDS, 0).ok());
        let (bytes, debt) = (Body::Own([].into()), Debt::NONE);
        Arrived { from, label, endpoint, bytes, debt }
    }

    #[test]
    fn only_what_is_open_is_admitted() {
        let mut inboxes = Inboxes::new();
        let label = Label::new(KINDS, 7).unwrap();
        let [own, third] = [0, 3].map(|endpoint| word::encode(endpoint, label));
        assert_eq!(inboxes.admit(own), (0, Some(label)));
        assert_eq!(inboxes.admit(third), (0, None));
        inboxes.open(3);
        assert_eq!(inboxes.admit(third), (3, Some(label)));
        assert_eq!(inboxes.admit(word::encode(2, label)), (0, None));
        assert_eq!(inboxes.admit(word::encode(4, label)), (0, None));
        assert_eq!(inboxes.admit(u64::MAX), (0, None));
        assert_eq!(inboxes.senseless(), 0);
        inboxes.push(Arrived { label: None, ..message(0, 1) });
        assert_eq!((inboxes.senseless(), inboxes.len(0)), (1, 1));
    }

    #[test]
    fn lines_do_not_meet_and_say_what_has_changed() {
        let mut inboxes = Inboxes::new();
        inboxes.open(5);
        inboxes.push(message(5, 1));
        inboxes.push(message(0, 2));
        inboxes.push(message(5, 3));
        assert!(inboxes.has_from(5, Rank(3)) && !inboxes.has_from(0, Rank(3)));
        assert_eq!(inboxes.take_changed(), bit(0) | bit(5));
        assert_eq!(inboxes.take(5).map(|one| one.from), Some(Rank(1)));
        assert_eq!(inboxes.take_changed(), bit(5));
        assert_eq!(inboxes.take(0).map(|one| one.from), Some(Rank(2)));
        assert!(inboxes.take(0).is_none() && inboxes.take(4).is_none());
        assert!(inboxes.take(60).is_none());
        assert_eq!((inboxes.len(5), inboxes.len(0)), (1, 0));
    }

    #[test]
    fn who_is_in_the_way_has_some_time_and_is_overdue_then_until_its_line_is_empty() {
        let mut inboxes = Inboxes::new();
        inboxes.open(2);
        inboxes.press(5);
        assert_eq!(inboxes.next(), NEVER, "nothing waits");
        (0..2).for_each(|_| inboxes.push(message(2, 1)));
        inboxes.press(10);
        inboxes.press(20);
        assert_eq!(inboxes.next(), 10 + PATIENCE);
        inboxes.tick(9 + PATIENCE);
        assert_eq!((inboxes.overdue(), inboxes.take_alarm()), (0, false));
        inboxes.tick(10 + PATIENCE);
        assert_eq!((inboxes.overdue(), inboxes.take_alarm()), (bit(2), true));
        assert_eq!(inboxes.next(), 10 + PATIENCE + AGAIN);
        // What comes for others meanwhile has its own time, but no longer than that.
        inboxes.push(message(0, 1));
        inboxes.press(11 + PATIENCE);
        assert_eq!(inboxes.next(), 11 + 2 * PATIENCE);
        let _ = inboxes.take(2);
        assert_eq!(inboxes.overdue(), bit(2));
        let _ = inboxes.take(2);
        assert_eq!(inboxes.overdue(), 0);
        inboxes.tick(11 + 2 * PATIENCE);
        assert_eq!(inboxes.overdue(), bit(0));
        let _ = inboxes.take(0);
        assert_eq!((inboxes.overdue(), inboxes.next()), (0, NEVER));
    }

    #[test]
    fn what_was_held_is_offered_when_its_own_line_has_room() {
        let mut inboxes = Inboxes::new();
        inboxes.open(1);
        (0..INBOX).for_each(|_| inboxes.push(message(1, 1)));
        assert!(inboxes.is_full(1) && !inboxes.is_full(0));
        inboxes.hold(Some(1));
        inboxes.push(message(0, 1));
        let _ = inboxes.take(0);
        assert!(inboxes.holds() && !inboxes.has_room_again(0) && !inboxes.may_have_room());
        (0..INBOX / 2 - 1).for_each(|_| drop(inboxes.take(1)));
        assert!(!inboxes.has_room_again(1) && inboxes.may_have_room());
        let _ = inboxes.take(1);
        assert!(inboxes.has_room_again(1));
        inboxes.offer();
        assert!(!inboxes.holds() && !inboxes.has_room_again(1));
        inboxes.hold(None);
        assert!(inboxes.has_room_again(0) && inboxes.has_room_again(1) && inboxes.may_have_room());
    }
}
