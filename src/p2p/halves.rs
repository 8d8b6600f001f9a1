//! Large messages between private memories, for whose end both sides wait: each has the kernel copy a half, at
//! the same time. One copy, by two cores, and nothing in between.
//!
//! ```text
//!  receiver                                        sender
//!    RTS came: claims the send's word
//!    HELP(address, from where on, word) -------->  claims the receive's word
//!    reads the first half                          writes the second half
//!    both are there: done      <-----------------  HELPED
//!    FIN --------------------------------------->  done
//! ```
//! The words (see `claim`) keep both memories as they are: neither side gets its own back while the other
//! copies. Who gives up before the sender has begun takes the receive's word back; the sender finds that out
//! and says that it has not helped. If either side's kernel does not copy after all, the message goes
//! another way once both are through, and halves are tried no more.
//!
//! Where messages of middle size follow each other, each side copies whole ones, with half as many system calls and
//! half as many messages in between: the sender is asked for one that it copies and one that comes next, and the
//! receiver copies those that come meanwhile itself, so that none waits for the other.

use super::claim::{self, claim};
use super::copiers::Who;
use super::counters::count;
use super::engine::{Half, Stream};
use super::messenger::Messenger;
use super::reach::{self, Direction, Reach};
use super::record::RecordRef;
use super::transfer::Due;
use super::wire::{self, Words};
use crate::base::{Error, Result, Slot};
use crate::link::core::Wire;
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::ring::Label;

/// Bytes that the receiver copies meanwhile.
const AHEAD: usize = 4096;
/// Largest message that one side may copy as a whole: the other one has as much to do at the end.
const WHOLE: usize = 128 << 10;
/// Messages that a sender is asked to copy at a time.
const ASKED: usize = 2;

/// Who copies how much of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// Each side a half.
    Half,
    /// The sender all of it.
    Sender,
    /// The receiver does.
    Receiver,
}

/// What the receiver leaves its sender of a message behind which so many others are due, while so many are
/// the sender's already.
fn share(asked: usize, behind: usize) -> Share {
    match (asked, behind) {
        (0, 0) => Share::Half,
        _ if asked < ASKED.min(behind) => Share::Sender,
        _ => Share::Receiver,
    }
}

impl Messenger {
    /// Receiver: who copies how much of a message of `from`'s that is to be copied now.
    pub(super) fn share_of(&self, wire: Wire<'_>, from: Slot, total: usize) -> Share {
        if total > WHOLE {
            return Share::Half;
        }
        let mut asked = self.asked_of(from);
        if asked > 0 {
            // Maybe it is through. Damage is reported by the next call that is about messages.
            let _ = self.take_all(wire);
            asked = self.asked_of(from);
        }
        share(asked, self.pulls_behind(from, ASKED))
    }

    /// Messages that a sender is to copy, or a half of them.
    fn asked_of(&self, from: Slot) -> usize {
        let engine = self.engine();
        let its = |stream: &Stream| stream.from == from && stream.half.is_some();
        // More there are only while many peers send at once.
        engine.streams.iter().take(8 * ASKED).filter(|(_, stream)| its(stream)).count()
    }

    /// Receiver: copies its share and has the sender copy the rest. False if that cannot be. The sender's word
    /// is claimed.
    ///
    /// Cost: a message there and two back, and on each side a system call for each MiB of its part.
    pub(super) fn halve(
        &self,
        wire: Wire<'_>,
        mut stream: Stream,
        share: Share,
        reach: Reach,
        address: u64,
    ) -> bool {
        let Some(record) = stream.record else { return false };
        let (from, theirs, total) = (stream.from, stream.number, stream.arrived.bytes);
        let Some(here) = record.get().buffer.place.address() else { return false };
        let Ok(label) = Label::new(wire::HELP, 0) else { return false };
        let Some(word) = self.claims.take(wire.node) else { return false };
        // Neither has part of a page that the other has. The sender begins later, by a message and two claims, and
        // has to say that it is through: so it has less.
        let half = (total / 2).saturating_add(AHEAD).next_multiple_of(PAGE as usize).min(total);
        let split = if share == Share::Sender { 0 } else { half };
        stream.half = Some(Half { word: Some(word), bytes: total - split });
        stream.busy = u32::from(split > 0);
        let number = self.engine().streams.insert(stream);
        let place = here.addr() as u64;
        let words = Words::new([theirs, number, place, split as u64, word.into()]);
        self.outgoing.note(wire, from, label, words);
        if split == 0 {
            return true;
        }
        let began = self.switching.now();
        // SAFETY: the record is the engine's while the stream is busy, and it was checked that there is room;
        // what the sender announced stays as it is until FIN.
        let copied =
            unsafe { reach::copy(wire.node, from, reach, here, address, split, Direction::In) };
        if copied.is_ok() && self.switching.has_adapted() {
            let took = self.switching.now().saturating_sub(began);
            self.switching.moved(split, took);
        }
        self.copied_half(wire, number, split, copied);
        true
    }

    /// Receiver: its half is over.
    fn copied_half(&self, wire: Wire<'_>, number: u64, split: usize, copied: Result<()>) {
        let mut engine = self.engine();
        let Some(stream) = engine.streams.get_mut(number) else { return };
        stream.busy -= 1;
        let from = stream.from;
        match copied {
            Ok(()) => stream.come += split,
            // Once the sender is through, too, it goes another way.
            Err(Error::Os { .. }) => {
                drop(engine);
                self.reaches.forget(from);
                return self.end_halves(wire, number);
            }
            // The sender is gone.
            Err(error) => {
                drop(engine);
                let stream = self.end_stream(wire, number, |_| true);
                if let Some(record) = stream.and_then(|stream| stream.record) {
                    record.finish(Err(error));
                }
                return;
            }
        }
        drop(engine);
        self.end_halves(wire, number);
    }

    /// Receiver: the sender is through; whether its half is there.
    pub(super) fn helped(&self, wire: Wire<'_>, from: Slot, number: u64, there: bool) {
        let mut engine = self.engine();
        let stream = engine.streams.get_mut(number).filter(|stream| stream.from == from);
        let Some((half, come)) =
            stream.and_then(|stream| Some((stream.half.take()?, &mut stream.come)))
        else {
            drop(engine);
            return self.damage(from, "the half of a message that has none");
        };
        if there {
            *come += half.bytes;
        }
        drop(engine);
        half.word.into_iter().for_each(|word| self.claims.release(wire.node, word));
        self.end_halves(wire, number);
    }

    /// Receiver: ends a message of halves once both sides are through.
    fn end_halves(&self, wire: Wire<'_>, number: u64) {
        let mut engine = self.engine();
        let through =
            engine.streams.get_mut(number).is_some_and(|it| it.busy == 0 && it.half.is_none());
        let Some(stream) = through.then(|| engine.streams.remove(number)).flatten() else { return };
        drop(engine);
        let copiers = self.reaches.copiers(false).ok().filter(|_| stream.chosen);
        let (from, total) = (stream.from, stream.arrived.bytes);
        // It was given up: its sender need not know.
        let Some(record) = stream.record else {
            return self.tell_finished(wire, from, stream.number, wire::RECEIVED);
        };
        if stream.come < total {
            copiers.into_iter().for_each(|copiers| copiers.keep_whole());
            return self.ask(wire, Stream { come: 0, chosen: false, ..stream });
        }
        count(&self.counting.halved);
        if copiers.is_some() {
            let now = self.switching.now();
            self.note_copied((Some(Who::Halves), false), total, stream.began, now);
        }
        self.tell_finished(wire, from, stream.number, wire::RECEIVED);
        record.finish(Ok(stream.arrived));
    }

    /// Sender: the receiver copies its half and asks for the other.
    pub(super) fn help_wanted(&self, node: &Node, from: Slot, words: [u64; 5]) {
        let [number, stream, address, split, word] = words;
        match u32::try_from(word) {
            Ok(word) => {
                claim::ask_for(node, from, word);
                self.defer(Due::Help { number, to: from, stream, address, split, word });
            }
            Err(_) => self.damage(from, "a claim's name"),
        }
    }

    /// Sender: copies its half to where the receiver wants it: the part of the message from `split` on to as
    /// far behind `address`, once `word` is claimed.
    pub(super) fn help(
        &self,
        wire: Wire<'_>,
        number: u64,
        to: Slot,
        stream: u64,
        (address, split, word): (u64, u64, u32),
    ) {
        let mut engine = self.engine();
        let sending = engine.sendings.get_mut(number).filter(|sending| sending.to == to);
        let mut there = false;
        if let Some(sending) = sending {
            let record = sending.record;
            sending.busy += 1;
            drop(engine);
            there = self.copy_half(wire, record, to, (address, split, word));
            if let Some(sending) = self.engine().sendings.get_mut(number) {
                sending.busy -= 1;
            }
        } else {
            drop(engine);
        }
        if let Ok(label) = Label::new(wire::HELPED, u64::from(!there)) {
            self.outgoing.note(wire, to, label, Words::new([stream]));
        }
    }

    fn copy_half(
        &self,
        wire: Wire<'_>,
        record: RecordRef,
        to: Slot,
        (address, split, word): (u64, u64, u32),
    ) -> bool {
        let place = &record.get().buffer.place;
        let total = place.len() as u64;
        let (Some(data), Some(_)) = (place.address(), address.checked_add(total)) else {
            return false;
        };
        let reach = self.reaches.of(wire.node, to);
        if split > total || reach == Reach::Never || !claim(wire.node, to, word, false) {
            return false;
        }
        let len = (total - split) as usize;
        let here = data.wrapping_add(split as usize);
        // SAFETY: `split` is within the record's data, which stay while it is busy and are only read. The
        // receiver's memory is the message's, as the claim says; that it has room, the receiver has checked.
        let copied = unsafe {
            reach::copy(wire.node, to, reach, here, address + split, len, Direction::Out)
        };
        if matches!(copied, Err(Error::Os { .. })) {
            self.reaches.forget(to);
        }
        copied.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_gets_whole_messages_only_while_as_many_are_left() {
        assert_eq!(share(0, 0), Share::Half);
        for (asked, behind, whose) in [
            (0, 1, Share::Sender),
            (0, 2, Share::Sender),
            (1, 2, Share::Sender),
            (1, 1, Share::Receiver),
            (1, 0, Share::Receiver),
            (2, 2, Share::Receiver),
        ] {
            assert_eq!(share(asked, behind), whose, "{asked} asked, {behind} behind");
        }
    }

    /// Both take so long for a message.
    #[test]
    fn both_sides_are_through_at_about_the_same_time() {
        for (receiver, sender) in [(10, 10), (10, 14), (14, 10), (10, 30), (20, 10)] {
            let (mut now, mut last, mut left) = (0, 0, 64usize);
            let mut ends: Vec<i32> = Vec::new();
            while left > 0 {
                left -= 1;
                ends.retain(|&end| end > now);
                match share(ends.len(), left.min(ASKED)) {
                    Share::Half => now += receiver / 2,
                    Share::Sender => {
                        last = now.max(last) + sender;
                        ends.push(last);
                    }
                    Share::Receiver => now += receiver,
                }
            }
            let most = ASKED as i32 * sender + receiver;
            assert!(last - now <= most, "{receiver}, {sender}: {now}, {last}");
            // Neither had nothing to do for long, if the receiver is not more than twice as slow.
            let rate = 1.0 / f64::from(receiver) + 1.0 / f64::from(sender);
            let both = 64.0 / rate + f64::from(most);
            assert!(f64::from(now.max(last)) <= both, "{receiver}, {sender}: {now}, {last}");
        }
    }
}
