//! Messages to and from processes of other nodes: no memory is shared, so large ones go piece by
//! piece over the connection, and what this node's processes would read in each other's slots is
//! told.
//!
//! ```text
//!  receiver                                        sender
//!    (RTS has met its receive)
//!    CTS(room for 512 KiB) ----------------------->  PIECE(0) PIECE(1) ...
//!    half of it has come: CTS(256 KiB) ----------->  ...        as the connection has room
//! ```
//! Both sides take part in their calls. The sender's record is done when its last piece is sent.
//!
//! Up to the eager threshold the data go with the message. Which threshold is wanted is found out as in a
//! node ([`adapt`](super::adapt)); the link agrees on it with the peer's.

use super::adapt::Class;
use super::counters::count;
use super::engine::Stream;
use super::messenger::Messenger;
use super::record::Arrived;
use super::switch::{HEADER, State, lock};
use super::wire::{self, Words};
use crate::base::Slot;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::link::core::Wire;
use crate::link::far::WIDEST;
use crate::link::{MAX_MESSAGE, Push};
use crate::shm::ring::Label;
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

/// Stands for the place of a buffer where pieces carry their data.
pub(super) const NO_BUFFER: u64 = u64::MAX;

/// Bytes that a receiver grants at a time. A stream has two grants at most.
const GRANT: usize = 256 << 10;

/// Data in one piece: behind the words for the stream and the position.
const PIECE: usize = MAX_MESSAGE - 16;

/// Small messages to other nodes between two looks at what has come.
const LOOK_EVERY: u32 = 32;

/// A grant that is being used.
#[derive(Clone, Copy, Debug)]
struct Pushing {
    number: u64,
    to: Slot,
    stream: u64,
    left: usize,
}

/// What a process knows of its messages beyond its node.
#[derive(Debug, Default)]
pub(super) struct Beyond {
    pushes: Mutex<VecDeque<Pushing>>,
    /// Peers that have said that they hold too many messages that nobody has asked for.
    pressed: Mutex<HashSet<Slot>>,
    /// Whether there is one.
    any_pressed: AtomicBool,
    /// Small messages sent, as looks are counted.
    sends: AtomicU32,
    /// Those that this process has told so.
    told: Mutex<HashSet<Slot>>,
}

impl Messenger {
    /// Whether `to` wants even small messages only announced: it holds too many.
    ///
    /// Cost: a load of a line of the peer's that seldom changes.
    #[inline(always)]
    pub(super) fn is_pressed(&self, wire: Wire<'_>, to: Slot) -> bool {
        if wire.node.is_local(to) {
            return wire.port(to).pressure.load(Ordering::Relaxed) != 0;
        }
        self.beyond.any_pressed.load(Ordering::Relaxed) && lock(&self.beyond.pressed).contains(&to)
    }

    /// Before a small message to another node: looks now and then at what has come. Who only sends
    /// would not hear that the receiver holds too many.
    #[cold]
    pub(super) fn look_before_far_sends(&self, wire: Wire<'_>) {
        if self.beyond.sends.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY == LOOK_EVERY - 1 {
            // Damage is reported by the next call that receives.
            let _ = self.progress(wire);
        }
    }

    /// This process holds too many messages: tells the sender of one, if it has not been told.
    #[cold]
    pub(super) fn press(&self, wire: Wire<'_>, sender: Slot) {
        if wire.node.is_local(sender) || !lock(&self.beyond.told).insert(sender) {
            return;
        }
        self.tell_pressure(wire, sender, 1);
    }

    /// It holds few again: tells those that were told otherwise.
    #[cold]
    pub(super) fn unpress(&self, wire: Wire<'_>) {
        let told = std::mem::take(&mut *lock(&self.beyond.told));
        told.into_iter().for_each(|peer| self.tell_pressure(wire, peer, 0));
    }

    fn tell_pressure(&self, wire: Wire<'_>, to: Slot, pressed: u64) {
        if let Ok(label) = Label::new(wire::PRESSURE, 0) {
            self.outgoing.note(wire, to, label, Words::new([pressed]));
        }
    }

    /// A peer says whether it holds too many messages.
    pub(super) fn pressure_came(&self, from: Slot, pressed: u64) {
        let mut all = lock(&self.beyond.pressed);
        if pressed != 0 {
            all.insert(from);
        } else {
            all.remove(&from);
        }
        self.beyond.any_pressed.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// Begins a stream from another node: asks its sender for the data.
    pub(super) fn ask_far(&self, wire: Wire<'_>, stream: Stream) {
        count(&self.counting.streamed);
        let mut engine = self.engine();
        let number = engine.streams.insert(stream);
        let grant = engine.streams.get_mut(number).map(|stream| stream.grant(2 * GRANT));
        drop(engine);
        if let Some((to, theirs, size)) = grant {
            self.tell_grant(wire, to, theirs, number, size);
        }
    }

    fn tell_grant(&self, wire: Wire<'_>, to: Slot, theirs: u64, stream: u64, size: usize) {
        if let Ok(label) = Label::new(wire::CTS, 0) {
            let words = Words::new([theirs, stream, NO_BUFFER, size as u64]);
            self.outgoing.note(wire, to, label, words);
        }
    }

    /// Sender: room was granted.
    pub(super) fn granted_far(&self, to: Slot, number: u64, stream: u64, size: u64) {
        let left = usize::try_from(size).unwrap_or(usize::MAX);
        lock(&self.beyond.pushes).push_back(Pushing { number, to, stream, left });
        self.outgoing.more();
    }

    /// Sender: sends pieces as long as there is room, of all grants in turn.
    pub(super) fn push_far(&self, wire: Wire<'_>) {
        let count = lock(&self.beyond.pushes).len();
        for _ in 0..count {
            let Some(push) = lock(&self.beyond.pushes).pop_front() else { return };
            match self.push_pieces(wire, push) {
                Some(rest) => lock(&self.beyond.pushes).push_back(rest),
                None => self.outgoing.less(),
            }
        }
    }

    /// Sends pieces; what is left of the grant if there was no room for all of it.
    fn push_pieces(&self, wire: Wire<'_>, mut push: Pushing) -> Option<Pushing> {
        let mut data = Vec::new();
        loop {
            let mut engine = self.engine();
            let sending = engine.sendings.get_mut(push.number).filter(|one| one.to == push.to);
            let Some(sending) = sending else {
                drop(engine);
                // It was given up.
                if let Ok(label) = Label::new(wire::ABORT, 0) {
                    self.outgoing.note(wire, push.to, label, Words::new([push.stream]));
                }
                return None;
            };
            if sending.busy > 0 {
                // Another thread is at it.
                return Some(push);
            }
            let (record, position) = (sending.record, sending.pushed);
            let total = record.get().buffer.place.len();
            let len = PIECE.min(push.left).min(total - position);
            if len == 0 && total > 0 {
                return None;
            }
            sending.busy += 1;
            drop(engine);
            data.clear();
            data.extend_from_slice(&push.stream.to_ne_bytes());
            data.extend_from_slice(&(position as u64).to_ne_bytes());
            data.reserve(len);
            // SAFETY: room for `len` bytes was reserved, all of which are written (the piece lies
            // inside the place); the record is the engine's while `busy`.
            unsafe {
                record.get().buffer.place.read(position, data.as_mut_ptr().add(16), len);
                data.set_len(16 + len);
            }
            let sent = match Label::new(wire::PIECE, 0) {
                Ok(label) => wire.try_send(push.to, label, &data[..]),
                Err(error) => Err(error),
            };
            let mut engine = self.engine();
            let sending = engine.sendings.get_mut(push.number)?;
            sending.busy -= 1;
            match sent {
                Ok(Push::Sent) => {}
                Ok(Push::Full) => return Some(push),
                // Its end is found by whoever waits for it.
                Err(_) => return None,
            }
            sending.pushed += len;
            push.left -= len;
            if sending.pushed == total
                && let Some(sending) = engine.sendings.remove(push.number)
            {
                drop(engine);
                sending.claim.into_iter().for_each(|claim| self.claims.release(wire.node, claim));
                sending.withdraw().finish(Ok(Arrived::default()));
                return None;
            }
        }
    }

    /// Receiver: a piece has come, which goes where it belongs. Nothing if that cannot be.
    pub(super) fn far_piece_came(&self, wire: Wire<'_>, from: Slot, bytes: &[u8]) -> Option<()> {
        let (words, data) = bytes.split_at_checked(16)?;
        let [number, position] = wire::words(words)?;
        let mut engine = self.engine();
        let Some(stream) = engine.streams.get_mut(number) else {
            // Buried meanwhile.
            return Some(());
        };
        let come = stream.come as u64;
        let fits = stream.come + data.len() <= stream.granted;
        if stream.from != from || position != come || !fits {
            return None;
        }
        let (record, at) = (stream.record, stream.come);
        stream.busy += 1;
        drop(engine);
        if let Some(record) = record {
            // SAFETY: the record is the engine's while `busy`; pieces come one after another.
            unsafe { record.get().buffer.place.write(at, data) };
        }
        let mut engine = self.engine();
        let stream = engine.streams.get_mut(number)?;
        stream.busy -= 1;
        stream.come += data.len();
        if stream.come == stream.arrived.bytes {
            let stream = engine.streams.remove(number);
            drop(engine);
            if let Some(Stream { record: Some(record), arrived, began, .. }) = stream {
                self.switching.came_far(arrived.bytes, began);
                record.finish(Ok(arrived));
            }
            return Some(());
        }
        let more = stream.granted < stream.arrived.bytes && stream.granted - stream.come <= GRANT;
        let grant = more.then(|| stream.grant(GRANT));
        drop(engine);
        if let Some((to, theirs, size)) = grant {
            self.tell_grant(wire, to, theirs, number, size);
        }
        Some(())
    }

    /// Has large messages go at once to a peer on another node, if that is wanted: the link agrees on it
    /// with the peer's.
    #[cold]
    pub(super) fn widen(&self, wire: Wire<'_>, to: Slot, state: &mut State) {
        let Some(far) = wire.core.far() else { return };
        let current = Class::within(far.eager(to) as u64 + HEADER);
        let Some(class) = self.switching.wish(state, current).map(|class| class.min(WIDEST)) else {
            return;
        };
        if Some(class) > current {
            state.estimator.settle();
            // That nobody knows where it is, its messages find, too.
            let _ = far.widen(to, class);
        }
    }

    /// Whether a large message goes to a peer on another node with its data.
    pub(super) fn goes_far(&self, wire: Wire<'_>, to: Slot, len: usize) -> bool {
        let (switching, far) = (&self.switching, wire.core.far());
        let (Some(peer), Some(far)) = (switching.known(to), far) else { return false };
        let may = switching.allows(&lock(&peer.state), len);
        may && len.saturating_add(size_of::<u64>()) <= far.eager(to)
    }

    /// Forgets what a peer that is gone had said.
    pub(super) fn bury_far(&self, peer: Slot) {
        self.pressure_came(peer, 0);
        lock(&self.beyond.told).remove(&peer);
    }
}

impl Stream {
    /// Grants more room: to whom that is to be told, of which message, and how much.
    fn grant(&mut self, most: usize) -> (Slot, u64, usize) {
        let size = most.min(self.arrived.bytes - self.granted);
        self.granted += size;
        (self.from, self.number, size)
    }
}
