//! What this process is in a team: its place, the number of the step it has reached, and the end
//! of the team's collectives, which all members learn from one word.
//!
//! ```text
//! whole --+-- a member died -------------> broken: slot + 1
//!         +-- a member left -------------> broken: LEFT | slot + 1
//!         +-- a member gave up ----------> broken: OUT_OF_STEP | slot + 1
//!         +-- calls did not match -------> pair: the two ranks; broken: MISMATCH | slot + 1
//! ```

use super::block::{Block, CALLS, Doing, MemberLines};
use super::direct::NEVER;
use super::post::Posted;
use super::select::{Algorithm, Choice, Table};
use super::sign::{Sign, What, describe};
use super::span::Span;
use super::ways::Ways;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Rank, Result, Slot};
use crate::shm::park::WaitCell;
use std::sync::Arc;
use std::time::Duration;

/// In the `broken` word: no death but a member that fell out of step.
pub(super) const OUT_OF_STEP: u32 = 1 << 31;
/// In the `broken` word: two members made different calls.
const MISMATCH: u32 = 1 << 30;
/// In the `broken` word: not dead but left. Not everybody on a node knows that of other nodes.
pub(super) const LEFT: u32 = 1 << 29;

/// This process's place in a team, without what goes on there.
#[derive(Debug)]
pub(super) struct Core {
    /// The members of this node, who are all members unless there is a span.
    pub block: Block,
    /// This member among them.
    pub rank: u32,
    /// The whole team, if it is on several nodes.
    pub span: Option<Box<Span>>,
    /// Number of the last synchronising step.
    pub phase: AtomicU32,
    /// What was posted between those.
    pub posted: Posted,
    /// Number of the last count barrier.
    pub counted: AtomicU64,
    /// What `arrived` is to be after it: see `barrier`.
    pub tally: AtomicU64,
    /// Whether every rank of the job can have a core of its own: the same in all members.
    cores_for_all: bool,
    /// Whether barriers are by dissemination; else by count.
    pub disseminates: bool,
    /// What goes over boards: asked on every call.
    pub small: Small,
    table: Arc<Table>,
    /// Whether the kernel copies from the private memory of all other members, see `direct`.
    pub by_kernel: AtomicU64,
    /// Whether that is the faster way, where either is possible.
    pub ways: Ways,
}

/// How many lengths, from 0 on, go over boards by the short way, which knows the members of one node only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Small {
    pub allreduce: usize,
    pub broadcast: usize,
    /// Of a block.
    pub alltoall: usize,
}

/// Where a member sleeps: its own or another's lines, or the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header,
    /// Where messages to this process ring.
    Bell,
    Lines(u32),
}

impl Place {
    /// As a number; never 0.
    pub fn to_raw(self) -> u64 {
        match self {
            Place::Header => 1,
            Place::Bell => 2,
            Place::Lines(rank) => u64::from(rank) + 3,
        }
    }

    pub fn from_raw(raw: u64) -> Place {
        match raw {
            0 | 1 => Place::Header,
            2 => Place::Bell,
            _ => Place::Lines((raw - 3) as u32),
        }
    }
}

impl Core {
    pub fn new(block: Block, rank: u32, table: Arc<Table>, span: Option<Box<Span>>) -> Core {
        let node = &block.node;
        let cores_for_all = node.size() <= node.header().cpus.load(Ordering::Relaxed);
        let small = |what, members: usize| {
            let first = |bytes| table.choose(what, bytes as u64, block.size, cores_for_all).first;
            let boards = |bytes: &usize| {
                bytes * members <= super::block::BOARD && first(*bytes) == Algorithm::Boards
            };
            (0..).take_while(boards).count()
        };
        let small = match &span {
            Some(_) => Small::default(),
            None => Small {
                allreduce: small(What::Allreduce, 1),
                broadcast: small(What::Broadcast, 1),
                alltoall: small(What::Alltoall, block.size as usize),
            },
        };
        let barrier = table.choose(What::Barrier, 0, block.size, cores_for_all).first;
        Core {
            rank,
            phase: AtomicU32::new(0),
            posted: Posted::default(),
            counted: AtomicU64::new(0),
            tally: AtomicU64::new(0),
            cores_for_all,
            disseminates: barrier == Algorithm::Dissemination,
            small,
            table,
            span,
            by_kernel: AtomicU64::new(NEVER),
            ways: Ways::default(),
            block,
        }
    }

    /// How a call on `bytes` bytes is carried out: the same in all members.
    pub fn choose(&self, what: What, bytes: u64) -> Choice {
        self.table.choose(what, bytes, self.block.size, self.cores_for_all)
    }

    /// Members of the team, wherever they are.
    #[inline]
    pub fn members(&self) -> u32 {
        self.span.as_ref().map_or(self.block.size, |span| span.members.size())
    }

    /// This member's rank in the team.
    #[inline]
    pub fn me(&self) -> u32 {
        self.span.as_ref().map_or(self.rank, |span| span.rank)
    }

    /// The slot of a member.
    pub fn slot(&self, rank: u32) -> Result<Slot> {
        match &self.span {
            Some(span) => span.slot(&self.block.node, rank),
            None => self.block.member(rank),
        }
    }

    pub fn cell(&self, place: Place) -> &WaitCell {
        match place {
            Place::Bell => &self.block.node.rank_slot(self.block.node.slot()).port.doorbell,
            Place::Header => &self.block.header().wait,
            Place::Lines(rank) => &self.block.lines(rank).wait,
        }
    }

    /// An error if the team's collectives have ended.
    #[inline]
    pub fn intact(&self, during: &'static str) -> Result<()> {
        match self.block.header().broken.load(Ordering::Acquire) {
            0 => Ok(()),
            raw => Err(self.broken_error(raw, during)),
        }
    }

    #[cold]
    fn broken_error(&self, raw: u32, during: &'static str) -> Error {
        if raw & OUT_OF_STEP != 0 {
            return Error::Misuse {
                what: during,
                why: format!(
                    "an earlier collective of this team was given up by rank {} of the job, so \
                     its members are no longer in step; make a new team with Team::shrink",
                    self.marked(raw).map_or(u32::MAX, |slot| self.block.node.rank_of(slot).0)
                ),
            };
        }
        if raw & MISMATCH != 0 {
            return self.mismatch_error();
        }
        let node = &self.block.node;
        match self.marked(raw) {
            Some(slot) if node.is_dead(slot) => node.died(slot, during),
            Some(slot) if raw & LEFT != 0 => Error::RankLeft { rank: node.rank_of(slot), during },
            Some(slot) => Error::RankDied {
                rank: node.rank_of(slot),
                cause: "as another node's ranks say".into(),
                during,
            },
            None => Error::Incompatible {
                what: "a team's block",
                why: format!("{raw:#x} says why its collectives have ended; end the job"),
            },
        }
    }

    /// The process that `broken` names.
    pub(super) fn marked(&self, raw: u32) -> Option<Slot> {
        let slot = Slot((raw & u32::from(u16::MAX)).checked_sub(1)? as u16);
        self.block.node.placement().rank_of(slot).map(|_| slot)
    }

    fn mismatch_error(&self) -> Error {
        let pair = self.block.header().pair.load(Ordering::Acquire);
        let (a, b) = (pair as u32, (pair >> 32) as u32);
        let apart = self.apart(a, b);
        let has = |rank: u32| describe(self.call_of(rank, apart).words());
        Error::Mismatch {
            what: "the collective call (its team cannot be used any more)",
            a: Rank(a),
            a_has: has(a),
            b: Rank(b),
            b_has: has(b),
        }
    }

    /// A member's entry for the call of a number.
    fn call_of(&self, rank: u32, number: u32) -> &Doing {
        self.block.lines(rank).call(number)
    }

    /// The number of the first call, of the latest ones, in which two members differ; if there is
    /// none, of the latest call of `a`.
    fn apart(&self, a: u32, b: u32) -> u32 {
        let latest = |rank: u32| {
            let steps = self.block.lines(rank).calls.iter();
            let numbers = steps.map(|call| call.step.load(Ordering::Acquire) as u32);
            numbers.reduce(|one, two| if two.wrapping_sub(one) < 1 << 31 { two } else { one })
        };
        let last = latest(a).unwrap_or(0);
        let numbers = (0..CALLS as u32).rev().map(|back| last.wrapping_sub(back));
        numbers.into_iter().find(|&number| self.differ(a, b, number)).unwrap_or(last)
    }

    /// Whether two members are or were in different calls of one number.
    fn differ(&self, a: u32, b: u32, number: u32) -> bool {
        let [a, b] = [a, b].map(|rank| self.call_of(rank, number).step.load(Ordering::Acquire));
        a as u32 == number && b as u32 == number && a != b && a != 0 && b != 0
    }

    /// What `broken` says of this process.
    fn own_mark(&self) -> u32 {
        u32::from(self.block.node.slot().0) + 1
    }

    /// A call has failed: breaks the team; what to report. `grace`: how long it may wait to be told
    /// why somebody left.
    #[cold]
    pub fn failed(&self, error: Error, grace: Duration, during: &'static str) -> Error {
        // Who has left may have done so because of an end that others tell of.
        if matches!(error, Error::RankLeft { .. }) {
            if self.intact(during).is_ok()
                && let Some(mark) = self.await_told(grace, during)
            {
                self.break_part(mark);
            }
            if let Err(cause) = self.intact(during) {
                return cause;
            }
        }
        self.note_failure(&error);
        error
    }

    /// Breaks the team if the error leaves its members out of step.
    pub fn note_failure(&self, error: &Error) {
        match error {
            Error::RankDied { rank, .. } | Error::RankLeft { rank, .. } => {
                let slot = self.block.node.placement().slot_of(*rank);
                let how = if matches!(error, Error::RankLeft { .. }) { LEFT } else { 0 };
                self.break_team(slot.map_or(OUT_OF_STEP, |slot| how | (u32::from(slot.0) + 1)));
            }
            _ => self.give_up(),
        }
    }

    /// Breaks the team because this member will not do its part.
    pub fn give_up(&self) {
        self.break_team(OUT_OF_STEP | self.own_mark());
    }

    /// Breaks the team because this member and `other` are in different calls; the error.
    #[cold]
    pub fn mismatch(&self, other: u32) -> Error {
        let pair = &self.block.header().pair;
        // The first who sees one says which; ranks differ, so no pair is 0.
        let (a, b) = (self.rank.min(other), self.rank.max(other));
        let found = u64::from(b) << 32 | u64::from(a);
        let _ = pair.compare_exchange(0, found, Ordering::AcqRel, Ordering::Acquire);
        self.break_team(MISMATCH | self.own_mark());
        match self.intact("a collective") {
            Err(error) => error,
            Ok(()) => self.mismatch_error(),
        }
    }

    /// Ends the team's collectives for all, unless they have ended, and tells who waits.
    fn break_team(&self, mark: u32) {
        if self.break_part(mark) {
            self.tell_others(mark);
        }
    }

    /// The same for the members on this node; whether they had not ended before.
    fn break_part(&self, mark: u32) -> bool {
        let header = self.block.header();
        let first = header.broken.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            header.wait.notify();
            for rank in 0..self.block.size {
                self.block.lines(rank).wait.notify();
            }
        }
        first.is_ok()
    }

    /// The check of every wait: the team is intact, nobody in it is gone, and nobody who is at
    /// the same step is there in another call.
    pub fn check(&self, during: &'static str) -> Result<()> {
        self.answer_late();
        if let Some(mark) = self.told() {
            self.break_part(mark);
        }
        self.intact(during)?;
        let node = &self.block.node;
        let slots = || (0..self.members()).filter_map(|rank| Some((rank, self.slot(rank).ok()?)));
        let there = slots().filter(|&(rank, slot)| !self.excused(rank, slot)).map(|(_, slot)| slot);
        match node.check(there, during) {
            // It has left since it was looked at.
            Err(Error::RankLeft { rank, .. })
                if slots().any(|(member, slot)| {
                    node.rank_of(slot) == rank && self.excused(member, slot)
                }) => {}
            stands => stands?,
        }
        match self.other_call() {
            Some(other) => Err(self.mismatch(other)),
            None => Ok(()),
        }
    }

    /// Whether a member that has left the job is not missed in this member's call: because it was
    /// through with it. Of one on another node that is not known, but whoever waits for a message
    /// of it learns that it has left once all that it had sent is here, and ends the call for all.
    fn excused(&self, rank: u32, slot: Slot) -> bool {
        let node = &self.block.node;
        if !node.has_left(slot) {
            return false;
        }
        let local = match &self.span {
            None => rank,
            Some(_) if !node.is_local(slot) => return true,
            Some(span) => span.members.local_of(rank),
        };
        let through = |local| self.block.lines(local).been.through.load(Ordering::Acquire);
        through(local) > through(self.rank)
    }

    /// This member is through with a call.
    ///
    /// Cost: as for [`Core::next_phase`], one store.
    #[inline]
    pub fn note_through(&self) {
        let through = &self.block.lines(self.rank).been.through;
        // Only the thread that holds `busy`, or the queue when nobody does, gets here.
        through.store(through.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// A member that is or was in another call where this one is now.
    pub fn other_call(&self) -> Option<u32> {
        let number = self.number();
        (0..self.block.size).find(|&rank| self.differ(self.rank, rank, number))
    }

    /// A member that has been in another call than this one, as far as that is still known.
    pub fn other_history(&self) -> Option<u32> {
        let number = self.number();
        let before = move |rank| (0..CALLS as u32).map(move |n| (rank, number.wrapping_sub(n)));
        let mut calls = (0..self.block.size).flat_map(before);
        calls.find(|&(rank, number)| self.differ(self.rank, rank, number)).map(|(rank, _)| rank)
    }

    /// The number of this member's call, counting synchronising steps and posts.
    #[inline]
    pub fn number(&self) -> u32 {
        self.phase.load(Ordering::Relaxed).wrapping_add(self.posted.number())
    }

    /// Begins the next synchronising step of a call, which is written down in this member's `own` lines, and returns
    /// its number.
    ///
    /// Cost: three stores to a line that others read only where they wait in vain.
    #[inline]
    pub fn next_phase(&self, own: &MemberLines, sign: Sign) -> u32 {
        // Only the thread that holds `busy`, or the queue when nobody does, gets here.
        let phase = self.phase.load(Ordering::Relaxed).wrapping_add(1);
        self.phase.store(phase, Ordering::Relaxed);
        own.begin(phase.wrapping_add(self.posted.number()), sign);
        phase
    }

    /// Writes down in what call this member is now.
    #[inline]
    pub fn begin(&self, sign: Sign) {
        self.block.lines(self.rank).begin(self.number(), sign);
    }

    /// Whether a member's word, which it stores at each of its steps, says `step` now or a moment later, or, if it
    /// may be `PAST` that by one, the next one. No, too, if it says that it never will: the member is at this step in
    /// another call, or further on already.
    #[inline(always)]
    pub fn comes_at_once<const PAST: bool>(&self, word: &AtomicU64, step: u64) -> bool {
        for _ in 0..=self.block.node.polls_at_once() {
            let seen = word.load(Ordering::Acquire);
            if seen == step {
                return true;
            }
            let ahead = (seen as u32).wrapping_sub(step as u32);
            if ahead < 1 << 31 {
                return PAST && ahead == 1;
            }
        }
        false
    }

    /// A phase with the call's word, as flags and boards carry it. In the word there is what was
    /// posted before, so that members that have different ideas of that find out.
    #[inline]
    pub fn step_of(&self, phase: u32, sign: Sign) -> u64 {
        let word = sign.word.wrapping_add(self.posted.history());
        u64::from(word) << 32 | u64::from(phase)
    }

    /// The number of the step to come.
    #[inline]
    pub fn coming(&self) -> u32 {
        self.phase.load(Ordering::Relaxed).wrapping_add(1)
    }
}

impl MemberLines {
    /// The entry for the call of a number.
    #[inline]
    fn call(&self, number: u32) -> &Doing {
        &self.calls[number as usize % CALLS]
    }

    /// Writes down in what call their member is now.
    #[inline]
    fn begin(&self, number: u32, sign: Sign) {
        let step = u64::from(sign.word) << 32 | u64::from(number);
        self.call(number).begin(step, sign.words());
    }
}

impl Doing {
    #[inline]
    fn begin(&self, step: u64, [packed, bytes]: [u64; 2]) {
        self.packed.store(packed, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        // Release: whoever sees the step sees what it belongs to.
        self.step.store(step, Ordering::Release);
    }

    fn words(&self) -> [u64; 2] {
        [self.packed.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed)]
    }
}
