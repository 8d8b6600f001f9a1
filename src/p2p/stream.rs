//! Large messages piece by piece, where neither side can copy from or to the other's memory, the
//! data do not lie together, or both wait for them (see `awake`): through buffers of the receiver's
//! in the node's memory.
//!
//! ```text
//!  receiver                                        sender
//!    CTS(buffer a), CTS(buffer b) ... ------------->  fills a         DATA(a, 0)
//!    empties a <------------------------------------  fills b         DATA(b, 128K)
//!    CTS(buffer a) -------------------------------->  ...
//! ```
//! Both sides take part in their calls. The sender fills pieces in the order in which they are
//! asked for; its record is done when the last one is filled. All streams of a receiver share its
//! buffers: one that finds too few waits for another's end, and then gets as many as it may have before the
//! next one gets any. (One for each of many was a third slower: their sender went from one message to another with each
//! piece.) A receiver that does not wait yet has only messages
//! come this way for which there are buffers at once: their sender needs it no more.

use super::copiers::Who;
use super::counters::count;
use super::engine::Stream;
use super::far::NO_BUFFER;
use super::messenger::Messenger;
use super::record::Arrived;
use super::transfer::{Due, taken_back};
use super::wire::{self, Words};
use crate::base::{Offset, Result, Slot};
use crate::link::core::Wire;
use crate::shm::copy::{copy_out, touch};
use crate::shm::node::Node;
use crate::shm::region::locate;
use crate::shm::ring::Label;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer: what a piece takes besides its copy is a tenth of it.
const BUFFER: usize = 128 << 10;
/// Buffers that a process makes at a time, when it needs any, and of those that it has at most. All are used in turn,
/// so that both cores have other lines in their own caches, mostly, when one is filled again: of half as many each would
/// be filled half as fast.
const BUFFERS: usize = 16;
const MOST: usize = 32;
/// Buffers that one stream has at most.
const ABREAST: usize = 4;

/// Bytes of a piece: as much as a buffer holds, if there are other messages to fill and empty meanwhile; less of one
/// that is alone, so that one side fills while the other empties.
fn piece(total: usize, alone: bool) -> usize {
    match alone {
        true => {
            let quarter = (total / ABREAST).clamp(BUFFER / 8, BUFFER / 2);
            (total / (2 * ABREAST)).clamp(quarter, BUFFER).next_multiple_of(4096)
        }
        false => BUFFER,
    }
}

/// A process's buffers.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    made: usize,
    /// The one that was given back last comes last.
    free: VecDeque<u64>,
    /// Streams that have fewer than they may, once for each that they lack.
    waiting: VecDeque<u64>,
}

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to `most` buffers; `stream` is noted as waiting for the others.
    fn take(&self, node: &Node, stream: u64, most: usize) -> Result<Vec<u64>> {
        let mut state = self.lock();
        if state.made == 0 {
            state.make(node)?;
        }
        let count = most.min(state.free.len());
        let taken: Vec<u64> = state.free.drain(..count).collect();
        state.waiting.extend(std::iter::repeat_n(stream, most - taken.len()));
        Ok(taken)
    }

    /// `count` buffers, or none if there are not so many.
    fn take_all(&self, node: &Node, count: usize) -> Option<Vec<u64>> {
        let mut state = self.lock();
        if state.free.len() < count && state.made < MOST && state.waiting.is_empty() {
            // Who gets none has another way.
            state.make(node).ok()?;
        }
        (count <= state.free.len()).then(|| state.free.drain(..count).collect())
    }

    /// The one to be filled next, for one that was emptied.
    fn turn(&self, buffer: u64) -> u64 {
        let mut state = self.lock();
        state.free.push_back(buffer);
        state.free.pop_front().unwrap_or(buffer)
    }

    /// Gives one back; the stream that gets it instead, if one waits.
    fn give(&self, buffer: u64) -> Option<u64> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.free.push_back(buffer);
        }
        next
    }
}

impl State {
    /// Makes more of them.
    fn make(&mut self, node: &Node) -> Result<()> {
        // For ever: a peer may still be filling one when this process has died.
        let at = node.alloc_for_job((BUFFER * BUFFERS) as u64)?;
        node.reserve(at, (BUFFER * BUFFERS) as u64, "buffers for large messages")?;
        // Here rather than page by page in the first copies, which would seem slow.
        node.warm(at, (BUFFER * BUFFERS) as u64);
        self.free.extend((0..BUFFERS).map(|i| at.0 + (i * BUFFER) as u64));
        self.made += BUFFERS;
        Ok(())
    }
}

/// A buffer that a peer named, if it can be one.
fn buffer_at(node: &Node, buffer: u64, len: usize) -> Option<NonNull<u8>> {
    let (commons, length) = node.areas().commons();
    let within = buffer.checked_sub(commons.0)?;
    let fits = len <= BUFFER && within.checked_add(len as u64)? <= length;
    locate(node.mapping(), Offset(buffer), len as u64, 1).ok().filter(|_| fits)
}

impl Messenger {
    /// Begins a stream: asks the sender for its data.
    pub(super) fn ask(&self, wire: Wire<'_>, mut stream: Stream) {
        count(&self.counting.streamed);
        let (from, total) = (stream.from, stream.arrived.bytes);
        let mut engine = self.engine();
        stream.piece = piece(total, engine.streams.len() == 0);
        let wanted = total.div_ceil(stream.piece).clamp(1, ABREAST);
        let number = engine.streams.insert(stream);
        drop(engine);
        match self.buffers.take(wire.node, number, wanted) {
            Ok(buffers) => buffers.into_iter().for_each(|b| self.grant(wire, number, b)),
            Err(error) => {
                let taken = self.engine().streams.remove(number);
                if let Some(Stream { number, record: Some(record), .. }) = taken {
                    self.tell_finished(wire, from, number, wire::GIVEN_UP);
                    record.finish(Err(error));
                }
            }
        }
    }

    /// Begins a stream of a message whose receiver does not wait for it yet, if there are buffers for all of
    /// it: its sender fills them alone. Else the stream comes back.
    pub(super) fn keep(
        &self,
        wire: Wire<'_>,
        mut stream: Stream,
    ) -> std::result::Result<(), Stream> {
        stream.piece = piece(stream.arrived.bytes, false);
        let wanted = stream.arrived.bytes.div_ceil(stream.piece);
        let taken =
            (1..=ABREAST).contains(&wanted).then(|| self.buffers.take_all(wire.node, wanted));
        let Some(buffers) = taken.flatten() else { return Err(stream) };
        count(&self.counting.streamed);
        let number = self.engine().streams.insert(stream);
        buffers.into_iter().for_each(|buffer| self.grant(wire, number, buffer));
        Ok(())
    }

    /// Gives a buffer to the sender of a stream; if it needs none any more, to another.
    fn grant(&self, wire: Wire<'_>, mut number: u64, buffer: u64) {
        loop {
            let mut engine = self.engine();
            if let Some(stream) = engine.streams.get_mut(number)
                && (stream.granted < stream.arrived.bytes || stream.arrived.bytes == 0)
            {
                let piece = stream.piece;
                stream.granted += piece.min(stream.arrived.bytes - stream.granted);
                stream.buffers.push(buffer);
                let (to, theirs) = (stream.from, stream.number);
                drop(engine);
                if let Ok(label) = Label::new(wire::CTS, 0) {
                    let words = Words::new([theirs, number, buffer, piece as u64]);
                    self.outgoing.note(wire, to, label, words);
                }
                return;
            }
            drop(engine);
            match self.buffers.give(buffer) {
                Some(next) => number = next,
                None => return,
            }
        }
    }

    /// Sender: a buffer was given.
    pub(super) fn asked_for(
        &self,
        wire: Wire<'_>,
        from: Slot,
        number: u64,
        stream: u64,
        buffer: u64,
        size: u64,
    ) {
        if buffer == NO_BUFFER && !wire.node.is_local(from) {
            return self.granted_far(from, number, stream, size);
        }
        if buffer_at(wire.node, buffer, size.min(u64::from(u32::MAX)) as usize).is_none() {
            return self.damage(from, "the place of a buffer");
        }
        self.defer(Due::Push { number, to: from, stream, buffer, size: size as usize });
    }

    /// Sender: fills a buffer.
    pub(super) fn push(
        &self,
        wire: Wire<'_>,
        number: u64,
        to: Slot,
        stream: u64,
        buffer: u64,
        size: usize,
    ) {
        let mut engine = self.engine();
        let sending = engine.sendings.get_mut(number).filter(|sending| sending.to == to);
        let (Some(sending), Some(at)) = (sending, buffer_at(wire.node, buffer, size)) else {
            drop(engine);
            // It was given up.
            if let Ok(label) = Label::new(wire::ABORT, 0) {
                self.outgoing.note(wire, to, label, Words::new([stream]));
            }
            return;
        };
        let record = sending.record;
        let total = record.get().buffer.place.len();
        let position = sending.granted;
        if position == 0 {
            self.saw_copied(wire.node, to, sending, Who::Both);
        }
        let len = size.min(total - position);
        sending.granted += len;
        sending.busy += 1;
        let manner = engine.filling.next(len);
        drop(engine);
        let place = &record.get().buffer.place;
        // SAFETY: `buffer_at` found these bytes inside of the node's mapping.
        unsafe { touch(at.as_ptr(), len) };
        let filled = match place.address() {
            // SAFETY: inside the record's memory, which is the engine's while `busy`; the buffer
            // is this sender's until DATA.
            Some(from) => Some(unsafe { manner.fill(at.as_ptr(), from.add(position), len) }),
            None => {
                // SAFETY: as above.
                unsafe { place.read(position, at.as_ptr(), len) };
                None
            }
        };
        if let Ok(label) = Label::new(wire::DATA, 0) {
            let words = Words::new([stream, buffer, position as u64, len as u64]);
            self.outgoing.note(wire, to, label, words);
        }
        let mut engine = self.engine();
        filled.into_iter().for_each(|filled| engine.filling.note(filled));
        let Some(sending) = engine.sendings.get_mut(number) else { return };
        sending.busy -= 1;
        sending.pushed += len;
        if sending.pushed == total
            && sending.busy == 0
            && let Some(sending) = engine.sendings.remove(number)
        {
            drop(engine);
            sending.claim.into_iter().for_each(|claim| self.claims.release(wire.node, claim));
            sending.withdraw().finish(Ok(Arrived::default()));
        }
    }

    /// Receiver: a buffer was filled.
    pub(super) fn piece_came(&self, from: Slot, stream: u64, buffer: u64, position: u64, len: u64) {
        let sound = len <= BUFFER as u64 && position <= isize::MAX as u64;
        let mut engine = self.engine();
        let known = engine.streams.get_mut(stream).filter(|stream| {
            stream.from == from
                && stream.buffers.contains(&buffer)
                && position.saturating_add(len) <= stream.arrived.bytes as u64
        });
        if known.is_none() || !sound {
            drop(engine);
            return self.damage(from, "a piece of a message");
        }
        drop(engine);
        let (position, len) = (position as usize, len as usize);
        self.defer(Due::Empty { stream, buffer, position, len });
    }

    /// Receiver: empties a buffer.
    pub(super) fn empty(
        &self,
        wire: Wire<'_>,
        number: u64,
        buffer: u64,
        position: usize,
        len: usize,
    ) {
        let mut engine = self.engine();
        // Gone if the sender was buried meanwhile: its buffers went with it.
        let Some(stream) = engine.streams.get_mut(number) else { return };
        let record = stream.record;
        stream.busy += 1;
        drop(engine);
        if let (Some(record), Some(at)) = (record, buffer_at(wire.node, buffer, len)) {
            let place = &record.get().buffer.place;
            match place.address() {
                // SAFETY: inside the record's memory (checked when the piece came), the engine's
                // while `busy`; the sender does not touch the buffer until it is given again.
                Some(to) => unsafe { copy_out(to.add(position), at.as_ptr(), len) },
                None => {
                    let mut pack = vec![0u8; len];
                    // SAFETY: as above.
                    unsafe {
                        copy_out(pack.as_mut_ptr(), at.as_ptr(), len);
                        place.write(position, &pack);
                    }
                }
            }
        }
        let mut engine = self.engine();
        let Some(stream) = engine.streams.get_mut(number) else { return };
        stream.busy -= 1;
        stream.come += len;
        stream.buffers.retain(|&b| b != buffer);
        if stream.come == stream.arrived.bytes
            && let Some(stream) = engine.streams.remove(number)
        {
            drop(engine);
            if stream.chosen {
                let now = self.switching.now();
                let chosen = (Some(Who::Both), stream.crossing);
                self.note_copied(chosen, stream.arrived.bytes, stream.began, now);
            }
            stream.record.into_iter().for_each(|record| record.finish(Ok(stream.arrived)));
            if let Some(next) = self.buffers.give(buffer) {
                self.grant(wire, next, buffer);
            }
            return;
        }
        drop(engine);
        let next = self.buffers.turn(buffer);
        self.grant(wire, number, next);
    }

    /// Receiver: the sender has given the message up.
    pub(super) fn aborted(&self, wire: Wire<'_>, from: Slot, number: u64) {
        let stream = self.end_stream(wire, number, |stream| stream.from == from);
        let Some(stream) = stream else { return };
        stream
            .record
            .into_iter()
            .for_each(|record| record.finish(Err(taken_back(wire.node, from))));
        self.feed_streams(wire);
    }

    /// Takes a stream out once nobody copies from its buffers, which are free then.
    pub(super) fn end_stream(
        &self,
        wire: Wire<'_>,
        number: u64,
        which: impl Fn(&Stream) -> bool,
    ) -> Option<Stream> {
        loop {
            let mut engine = self.engine();
            let stream = engine.streams.get_mut(number).filter(|stream| which(stream))?;
            if stream.busy == 0 {
                let stream = engine.streams.remove(number)?;
                drop(engine);
                let word = stream.half.and_then(|half| half.word);
                word.into_iter().for_each(|word| self.claims.release(wire.node, word));
                let mut state = self.buffers.lock();
                state.free.extend(&stream.buffers);
                return Some(stream);
            }
            drop(engine);
            crate::base::sync::yield_now();
        }
    }

    /// Gives buffers that are free to streams that wait for one.
    pub(super) fn feed_streams(&self, wire: Wire<'_>) {
        loop {
            let mut state = self.buffers.lock();
            if state.waiting.is_empty() {
                return;
            }
            let Some(buffer) = state.free.pop_front() else { return };
            let Some(next) = state.waiting.pop_front() else { return };
            drop(state);
            self.grant(wire, next, buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::map::Mapping;
    use crate::shm::segment::Areas;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn node() -> Arc<Node> {
        let fd = Node::create_memory(1, 1 << 21).unwrap();
        let length = Areas::new(1, 1 << 21).unwrap().length;
        let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
        Node::attach_mapped(fd, Slot(0), map).unwrap()
    }

    #[test]
    fn all_buffers_are_used_before_one_is_used_again() {
        let (node, buffers) = (node(), Buffers::default());
        let mut taken = buffers.take(&node, 1, ABREAST).unwrap();
        let mut seen: BTreeSet<u64> = taken.iter().copied().collect();
        // Within a stream.
        for _ in 0..BUFFERS / 2 {
            let emptied = taken.remove(0);
            taken.push(buffers.turn(emptied));
            assert!(seen.insert(taken[ABREAST - 1]), "used again");
        }
        // And by the next one.
        taken.into_iter().for_each(|buffer| assert_eq!(buffers.give(buffer), None));
        for buffer in buffers.take_all(&node, BUFFERS - seen.len()).unwrap() {
            assert!(seen.insert(buffer), "used again");
        }
        assert_eq!(seen.len(), BUFFERS);
    }

    #[test]
    fn a_stream_gets_all_that_it_lacks_before_the_next_one_gets_any() {
        let (node, buffers) = (node(), Buffers::default());
        let mut out = buffers.take_all(&node, BUFFERS - 1).unwrap();
        // One is left for the first; the second has to wait for all of its own.
        out.extend(buffers.take(&node, 1, ABREAST).unwrap());
        assert_eq!(buffers.take(&node, 2, 2).unwrap(), []);
        assert_eq!(out.iter().collect::<BTreeSet<_>>().len(), BUFFERS, "one was given twice");
        assert!(buffers.take_all(&node, 1).is_none(), "more are made while some wait");
        // Of one that is emptied and used again by the same stream nobody else learns.
        assert_eq!(buffers.turn(out[0]), out[0]);
        let next: Vec<_> = out[..6].iter().map(|&buffer| buffers.give(buffer)).collect();
        assert_eq!(next, [Some(1), Some(1), Some(1), Some(2), Some(2), None]);
        // None waits now: as many again, and then no more.
        assert!(buffers.take_all(&node, BUFFERS).is_some());
        assert!(buffers.take_all(&node, BUFFERS).is_none());
    }
}
