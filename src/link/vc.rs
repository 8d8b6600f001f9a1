//! One virtual connection, the sender's side.
//!
//! ```text
//!            LANE_AFTER messages, or a hint:
//!            take a free lane, send SWITCH through the inbox
//!   Cold  ------------------------------------------------->  Hot
//!   peer's                                                    a lane in the
//!   inbox  <----------------  Leaving  <--------------------  peer's memory
//!            LEFT is in                  the peer has taken
//!            the inbox                   the lane back
//! ```
//! SWITCH and LEFT keep the order of messages across the change: the peer looks into the lane
//! only once it has met SWITCH, and empties it when it meets LEFT. A connection whose lane was
//! taken back waits for twice as many messages before it takes another, so that more pairs than
//! lanes do not pass the lanes to and fro.

use super::Push;
use super::biased::{Biased, Guard};
use super::control::{self, LEFT, SWITCH};
use super::core::Wire;
use super::table::OfPeer;
use crate::base::sync::{AtomicU16, AtomicU32, Ordering};
use crate::base::{Error, Offset, Result, Slot};
use crate::shm::park::WaitCell;
use crate::shm::region::SharedRef;
use crate::shm::ring::inbox::{InboxMemory, InboxSender};
use crate::shm::ring::lane::LaneMemory;
use crate::shm::ring::lane_sender::{LanePush, LaneSender};
use crate::shm::ring::{Headed, Label, Payload, tag};
use crate::shm::segment::{LANE_BYTES, LANES, Port, RankSlot, SHORT_LANE_BYTES};
use crate::shm::standing::is_gone;
use std::collections::VecDeque;

/// A threshold is doubled at most up to this many times its first value.
const LARGEST_BACKOFF: u32 = 64;

/// A connection to one peer.
pub(super) struct Vc {
    peer: Slot,
    sending: Biased<Sending>,
}

/// What the thread that sends on the connection works with.
pub(super) struct Sending {
    peer: Slot,
    inbox: SharedRef<InboxMemory>,
    to_inbox: InboxSender,
    state: State,
    threshold: u32,
    backoff: u32,
    pub sent_cold: u64,
    /// Messages sent that were not numbered.
    plain: u64,
    pub promotions: u64,
    /// Numbered messages sent, see [`Sending::try_send_numbered`].
    numbered: u64,
    /// Somebody is between two numbers: no other numbered message may be sent now.
    closed: bool,
    /// The latest numbered messages, while somebody wants to know.
    log: Option<Box<Log>>,
}

/// Messages that are looked back at.
const LOGGED: usize = 64;
/// Messages in a row that nobody wanted to know of after which no more are logged: the short way is for those
/// that are not.
const FORGOTTEN: u32 = 256;

/// Labels and notes of the latest numbered messages.
struct Log {
    /// Messages sent before the log began.
    since: u64,
    latest: VecDeque<(u64, u64, u64)>,
    /// Messages since somebody wanted to know.
    unasked: u32,
}

/// What came of an attempt to send a numbered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbered {
    /// It is on its way.
    Sent,
    /// There is no room now.
    Full,
    /// The connection is [closed](Sending::close_numbers) to numbered messages.
    Closed,
}

/// What came of the short way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Express {
    /// Nothing has happened.
    Not,
    /// The message is on its way.
    Sent,
    /// It is, and the peer's bell is to be rung.
    Awaited,
}

impl From<Push> for Numbered {
    fn from(push: Push) -> Numbered {
        match push {
            Push::Sent => Numbered::Sent,
            Push::Full => Numbered::Full,
        }
    }
}

enum State {
    Cold { sent: u32 },
    Hot(Box<Hot>),
    Leaving(Box<Hot>),
    Dead,
}

struct Hot {
    lane: SharedRef<LaneMemory>,
    to_lane: LaneSender,
    index: usize,
    /// Which of this process's `sending` words stands for the lane.
    word: usize,
    /// That word, the peer's port, and how the peer stands: found once.
    sending: SharedRef<AtomicU32>,
    there: SharedRef<Port>,
    standing: SharedRef<RankSlot>,
}

impl Hot {
    fn control(&self) -> u64 {
        control::pack(self.index, self.word, self.to_lane.generation().low_bits())
    }

    /// Has the rest of the lane's memory for it, if there is some.
    #[cold]
    fn grow(&mut self, wire: Wire<'_>, peer: Slot) {
        let at = Offset(wire.ports().lane(peer, self.index).0 + SHORT_LANE_BYTES);
        let rest = LANE_BYTES - SHORT_LANE_BYTES;
        // The pages that are filled now need not be asked for one by one in the first long lap, at the price
        // of one message each (2 us).
        let reserve = || {
            let reserved = wire.node.reserve_spare(at, rest, "a longer lane").is_ok();
            if reserved {
                wire.node.warm(at, rest);
            }
            reserved
        };
        self.to_lane.grow(&self.lane, &self.sending, reserve);
    }
}

const _: () = assert!(size_of::<Vc>() <= 256);

impl Vc {
    pub fn new(wire: Wire<'_>, peer: Slot, threshold: u32) -> Result<Vc> {
        let inbox = SharedRef::new(wire.node.mapping(), wire.ports().inbox(peer))?;
        let sending = Biased::new(Sending {
            peer,
            inbox,
            to_inbox: InboxSender::default(),
            state: State::Cold { sent: 0 },
            threshold,
            backoff: 1,
            sent_cold: 0,
            plain: 0,
            promotions: 0,
            numbered: 0,
            closed: false,
            log: None,
        });
        Ok(Vc { peer, sending })
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, Sending> {
        self.sending.lock()
    }

    /// What [`Vc::lock`] gives, if the calling thread is the one that usually sends here.
    #[inline(always)]
    pub fn lock_as_owner(&self) -> Option<Guard<'_, Sending>> {
        self.sending.lock_as_owner()
    }
}

impl OfPeer for Vc {
    #[inline(always)]
    fn peer(&self) -> Slot {
        self.peer
    }
}

impl Sending {
    /// Sends, or says that there is no room. See [`super::Link::try_send`].
    #[inline]
    pub fn try_send(&mut self, wire: Wire<'_>, label: Label, bytes: impl Payload) -> Result<Push> {
        let push = self.push(wire, label, bytes)?;
        self.plain += u64::from(push == Push::Sent);
        Ok(push)
    }

    /// Messages sent by lanes.
    pub fn sent_hot(&self) -> u64 {
        // Not counted each time: that would be one store more on the short way.
        self.plain + self.numbered - self.sent_cold
    }

    #[inline(always)]
    fn push(&mut self, wire: Wire<'_>, label: Label, bytes: impl Payload) -> Result<Push> {
        let node = wire.node;
        if is_gone(node.rank_slot(self.peer)) {
            return Err(self.bury(wire));
        }
        if let State::Hot(hot) = &mut self.state {
            let push = hot.to_lane.try_send_guarded(&hot.lane, &hot.sending, label, bytes)?;
            if hot.to_lane.wants_more() {
                hot.grow(wire, self.peer);
            }
            match push {
                LanePush::Sent => {
                    wire.port(self.peer).doorbell.notify();
                    return Ok(Push::Sent);
                }
                LanePush::Full => return Ok(Push::Full),
                LanePush::Revoked => {}
            }
        }
        self.send_cold(wire, label, bytes)
    }

    /// The short way of [`Sending::try_send_numbered`] for a message of one cell, on a connection that is
    /// hot, whose numbers are neither closed nor logged, and whose peer is there and not pressed.
    ///
    /// Everything that it looks at was found when the connection became hot, and what came of it fits a
    /// register: what the general way keeps on the stack fills the processor's store buffer, and then the
    /// line of the next message is asked for only when the one before has come.
    #[inline(always)]
    pub fn express(&mut self, label: Label, payload: impl Payload) -> Express {
        self.expressly(
            #[inline(always)]
            |sender, lane, sending| sender.try_one_guarded(lane, sending, label, payload),
        )
    }

    /// The same for a message of several cells.
    #[inline(always)]
    pub fn express_several(&mut self, label: Label, payload: Headed<'_>) -> Express {
        self.expressly(
            #[inline(always)]
            |sender, lane, sending| sender.try_several_guarded(lane, sending, label, payload),
        )
    }

    #[inline(always)]
    fn expressly(
        &mut self,
        send: impl FnOnce(&mut LaneSender, &LaneMemory, &AtomicU32) -> bool,
    ) -> Express {
        let State::Hot(hot) = &mut self.state else { return Express::Not };
        if self.closed
            || self.log.is_some()
            || is_gone(&hot.standing)
            || hot.there.pressure.load(Ordering::Relaxed) != 0
        {
            return Express::Not;
        }
        if !send(&mut hot.to_lane, &hot.lane, &hot.sending) {
            return Express::Not;
        }
        self.numbered += 1;
        if hot.there.doorbell.is_awaited() { Express::Awaited } else { Express::Sent }
    }

    /// The short way of [`Sending::try_send`] for a message of one cell, on a connection that is hot and whose peer
    /// is there.
    #[inline(always)]
    pub fn express_plain(&mut self, label: Label, payload: impl Payload) -> Express {
        self.plainly(
            #[inline(always)]
            |sender, lane, sending| sender.try_one_guarded(lane, sending, label, payload),
        )
    }

    /// The same for a message of several cells.
    #[inline(always)]
    pub fn express_plain_several(&mut self, label: Label, payload: Headed<'_>) -> Express {
        self.plainly(
            #[inline(always)]
            |sender, lane, sending| sender.try_several_guarded(lane, sending, label, payload),
        )
    }

    #[inline(always)]
    fn plainly(
        &mut self,
        send: impl FnOnce(&mut LaneSender, &LaneMemory, &AtomicU32) -> bool,
    ) -> Express {
        let State::Hot(hot) = &mut self.state else { return Express::Not };
        if is_gone(&hot.standing) || !send(&mut hot.to_lane, &hot.lane, &hot.sending) {
            return Express::Not;
        }
        self.plain += 1;
        if hot.there.doorbell.is_awaited() { Express::Awaited } else { Express::Sent }
    }

    /// As [`Sending::try_send`], for messages that the two sides count alike. `note` is what the
    /// log keeps of it.
    #[inline]
    pub fn try_send_numbered(
        &mut self,
        wire: Wire<'_>,
        label: Label,
        bytes: impl Payload,
        note: u64,
    ) -> Result<Numbered> {
        if self.closed {
            return Ok(Numbered::Closed);
        }
        let sent = self.push_numbered(wire, label, bytes)?;
        if let (Some(log), Numbered::Sent) = (&mut self.log, sent) {
            if log.latest.len() == LOGGED {
                log.latest.pop_front();
            }
            log.latest.push_back((self.numbered, label.imm(), note));
            log.unasked += 1;
            if log.unasked > FORGOTTEN {
                // Who asks now is told that it is not known, and has another begun.
                self.log = None;
            }
        }
        Ok(sent)
    }

    /// As [`Sending::try_send_numbered`], by the one that has closed the connection; not logged.
    #[inline]
    pub fn push_numbered(
        &mut self,
        wire: Wire<'_>,
        label: Label,
        bytes: impl Payload,
    ) -> Result<Numbered> {
        Ok(match self.push(wire, label, bytes)? {
            Push::Sent => {
                self.numbered += 1;
                Numbered::Sent
            }
            Push::Full => Numbered::Full,
        })
    }

    /// Lets nobody else send numbered messages, and says how many there were; `None` if somebody
    /// did so before.
    pub fn close_numbers(&mut self) -> Option<u64> {
        (!std::mem::replace(&mut self.closed, true)).then_some(self.numbered)
    }

    /// Keeps a log of numbered messages from now on, as long as it is wanted now and then.
    pub fn keep_log(&mut self) {
        let since = self.numbered;
        let begin = || Box::new(Log { since, latest: VecDeque::new(), unasked: 0 });
        self.log.get_or_insert_with(begin).unasked = 0;
    }

    /// Whether there is one.
    pub fn keeps_log(&self) -> bool {
        self.log.is_some()
    }

    /// Whether one of the logged messages after number `from` is `such` (by label value and note);
    /// `None` if the log does not reach back so far.
    pub fn logged_since(&mut self, from: u64, such: impl Fn(u64, u64) -> bool) -> Option<bool> {
        let log = self.log.as_deref_mut()?;
        log.unasked = 0;
        let dropped =
            if log.latest.len() == LOGGED { log.latest.front().map(|e| e.0) } else { None };
        if from < log.since || dropped.is_some_and(|first| from + 1 < first) || from > self.numbered
        {
            return None;
        }
        Some(log.latest.iter().any(|&(number, imm, note)| number > from && such(imm, note)))
    }

    /// Ends [`Sending::close_numbers`].
    pub fn open_numbers(&mut self) {
        self.closed = false;
    }

    fn send_cold(&mut self, wire: Wire<'_>, label: Label, bytes: impl Payload) -> Result<Push> {
        if !self.settle_leaving(wire)? {
            return Ok(Push::Full);
        }
        let node = wire.node;
        // In the program's kernel region as soon as there is a lane.
        let hinted =
            self.threshold > 1 && self.threshold < u32::MAX && wire.core.hints().in_kernel();
        let threshold = if hinted { 1 } else { self.threshold };
        if let State::Cold { sent } = self.state
            && sent >= threshold.saturating_mul(self.backoff)
            && self.promote(wire)?
        {
            return self.push(wire, label, bytes);
        }
        let push = self.to_inbox.try_push(&self.inbox, node.slot(), label, bytes)?;
        if push == Push::Sent {
            self.sent_cold += 1;
            if let State::Cold { sent } = &mut self.state {
                *sent = sent.saturating_add(1);
            }
            wire.port(self.peer).doorbell.notify();
        }
        Ok(push)
    }

    /// Brings a connection whose lane was revoked back to Cold; false if LEFT finds no room yet.
    fn settle_leaving(&mut self, wire: Wire<'_>) -> Result<bool> {
        self.state = match std::mem::replace(&mut self.state, State::Dead) {
            State::Hot(hot) | State::Leaving(hot) => State::Leaving(hot),
            state => state,
        };
        let State::Leaving(hot) = &self.state else { return Ok(true) };
        let (control, word) = (hot.control(), hot.word);
        if self.push_control(wire, LEFT, control)? == Push::Full {
            return Ok(false);
        }
        wire.core.words().give_back(word);
        self.backoff = (self.backoff * 2).min(LARGEST_BACKOFF);
        self.state = State::Cold { sent: 0 };
        Ok(true)
    }

    fn push_control(&mut self, wire: Wire<'_>, kind: u8, imm: u64) -> Result<Push> {
        let node = wire.node;
        let label = Label::new(kind, imm)?;
        let push = self.to_inbox.try_send(&self.inbox, node.slot(), label, &[])?;
        if push == Push::Sent {
            wire.port(self.peer).doorbell.notify();
        }
        Ok(push)
    }

    /// Moves a cold connection to a lane, if one is to be had; true if it is hot afterwards.
    #[cold]
    pub fn promote(&mut self, wire: Wire<'_>) -> Result<bool> {
        let node = wire.node;
        match self.state {
            State::Hot(_) => return Ok(true),
            State::Cold { .. } if self.peer != node.slot() => {}
            _ => return Ok(false),
        }
        // Whatever the attempt comes to, the next one is a threshold away.
        self.state = State::Cold { sent: 0 };
        let Some(word) = wire.core.words().take() else { return Ok(false) };
        let Some((index, owner)) = take_lane(wire, self.peer) else {
            wire.core.words().give_back(word);
            let peer = wire.port(self.peer);
            if peer.lanes_wanted.load(Ordering::Relaxed) == 0 {
                peer.lanes_wanted.store(1, Ordering::Relaxed);
            }
            return Ok(false);
        };
        if let Some(hot) = self.open(wire, index, word) {
            let control = hot.control();
            match self.push_control(wire, SWITCH, control) {
                Ok(Push::Sent) => {
                    self.state = State::Hot(Box::new(hot));
                    self.promotions += 1;
                    return Ok(true);
                }
                Ok(Push::Full) => self.state = State::Cold { sent: u32::MAX },
                Err(e) => {
                    wire.core.words().give_back(word);
                    return Err(e);
                }
            }
        }
        // The peer never heard of it.
        wire.core.words().give_back(word);
        owner.store(0, Ordering::Release);
        Ok(false)
    }

    /// Reserves and opens a lane that this process now owns; `None` if there is no memory for it,
    /// in which case the connection stays as it is.
    fn open(&self, wire: Wire<'_>, index: usize, word: usize) -> Option<Hot> {
        let node = wire.node;
        let at = wire.ports().lane(self.peer, index);
        node.reserve(at, SHORT_LANE_BYTES, "a lane").ok()?;
        let lane: SharedRef<LaneMemory> = SharedRef::new(node.mapping(), at).ok()?;
        let there = SharedRef::new(node.mapping(), wire.ports().control(self.peer)).ok()?;
        let at = Port::sending_at(wire.ports().control(node.slot()), word)?;
        let sending = SharedRef::new(node.mapping(), at).ok()?;
        let standing = SharedRef::new(node.mapping(), node.areas().slot(self.peer)).ok()?;
        let to_lane = LaneSender::open(&lane, node.slot()).ok()?;
        Some(Hot { lane, to_lane, index, word, sending, there, standing })
    }

    /// Whether messages go through a lane now.
    pub fn is_hot(&self) -> bool {
        matches!(self.state, State::Hot(_))
    }

    /// Runs `f` on the cell that is rung when there may be room again, and on whether it is a
    /// lane's.
    pub fn space(&self) -> Space {
        match &self.state {
            State::Hot(hot) => Space::Lane(hot.lane.clone()),
            _ => Space::Inbox(self.inbox.clone()),
        }
    }

    /// Gives the lane up in good order, as far as there is room to say so.
    pub fn close(&mut self, wire: Wire<'_>) {
        if !wire.node.is_dead(self.peer) {
            // A damaged inbox or a full one: the peer finds out when this process ends.
            let _ = self.settle_leaving(wire);
        }
    }

    /// Forgets the lane without a word to the peer, as a process that is killed does.
    #[cfg(test)]
    pub fn forget(&mut self) {
        self.state = State::Dead;
    }

    #[cold]
    fn bury(&mut self, wire: Wire<'_>) -> Error {
        if let State::Hot(hot) | State::Leaving(hot) =
            std::mem::replace(&mut self.state, State::Dead)
        {
            wire.core.words().give_back(hot.word);
        }
        wire.node.died(self.peer, "send")
    }
}

/// What a blocked sender waits on.
pub(super) enum Space {
    Inbox(SharedRef<InboxMemory>),
    Lane(SharedRef<LaneMemory>),
}

impl Space {
    pub fn cell(&self) -> &WaitCell {
        match self {
            Space::Inbox(inbox) => inbox.space(),
            Space::Lane(lane) => lane.space(),
        }
    }

    pub fn is_lane(&self) -> bool {
        matches!(self, Space::Lane(_))
    }
}

/// Takes a free lane into `peer`. One compare-exchange both takes it and says who has it, so a
/// process that dies at any point leaves a lane that the peer can take back.
fn take_lane<'w>(wire: Wire<'w>, peer: Slot) -> Option<(usize, &'w AtomicU16)> {
    let me = wire.node.slot().0 + 1;
    let owners = &wire.port(peer).lane_owners;
    (0..LANES).map(|i| (i, &owners[i])).find(|(_, owner)| {
        owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

const _: () = assert!(control::BITS <= tag::IMM_BITS);
