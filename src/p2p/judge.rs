//! Receiver: what messages of middle size take, lent or announced, and what it says of that to their senders (see
//! [`middle`](super::middle)).
//!
//! Only it knows both: the time from the end of one copy to the end of the next is
//! what a message takes in a stream of them, whoever is the slower; where they are further apart, it is the
//! time of both copies. So it is where the receiver has filled buffers of its own meanwhile: each side has
//! two copies to make for each message that it gets, though it may fill many before it empties one. And where
//! ranks share cores: each copy takes time from all of them. And it
//! has the kernel copy the data of a few lent ones, too, from their sender's memory: half of that is the least
//! that an announced one takes, and where lent ones take less, none is tried; of messages that cross it is what one takes,
//! and where that is less than half they are announced without a trial. Whoever
//! is late for its messages, since it does something else, loses nothing by lent ones, whose sender has gone on: its
//! verdict is that. (Who copies one after the other finds the next one there, too, and is not late.)

use super::lent::{self, CLASSES};
use super::means::Means;
use super::middle::{Asked, BLOCK, Verdict};
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Announced messages of which each mean is: several times as many as are under way.
pub(super) const MEAN: u32 = 64;
/// Messages over which the time of one is smoothed.
const SMOOTH: f64 = 4.0;
/// Which part of the time of lent ones others may take at most to be worth the change.
const BETTER: f64 = 0.95;
/// The same where both sides have messages for each other: what announcing them takes beside the copies is more than
/// [`HANDSHAKE`] then, and lent ones take a fifth longer than later on when they are judged, for buffers of both sides
/// have left the caches; and of large ones, which go in pieces: what sender and receiver are late for these is in no
/// time of theirs.
const CLEARLY_BETTER: f64 = 0.7;
const MUCH_BETTER: f64 = 0.75;
/// How many times as long as the other ones those take that are not worth a trial soon.
const HOPELESS: f64 = 2.0;
/// Lent messages of which it is found out what the kernel takes to copy one.
const PROBES: u32 = 4;
/// Messages of its own that a receiver may have sent before it gets as many.
const AHEAD: u32 = 64;
/// Nanoseconds that a message takes both sides beside the copies: what tells of it, and the answer.
pub(super) const HANDSHAKE: u64 = 500;

/// Receiver: what lent messages of each size take.
#[derive(Debug, Default)]
pub(super) struct Judge {
    cases: [Mutex<Case>; CLASSES],
    /// Messages that it has sent itself, either way, less those that it got since. Where threads race, one may
    /// be lost.
    own: [AtomicU32; CLASSES],
    /// Whether the last one from a peer that finds out which way messages go that cross came announced.
    seen: [AtomicBool; CLASSES],
}

#[derive(Debug, Default)]
struct Case {
    /// Nanoseconds for each KiB, smoothed; 0 as long as nothing is known.
    cost: f64,
    /// When the last one was copied out.
    last: u64,
    /// Of announced ones; and how many lent ones came since.
    announced: Means,
    lent: u32,
    /// What was said last.
    said: bool,
    /// The least that the kernel took to copy one, for each KiB; and how many times that was to be found out.
    kernel: Option<f64>,
    probes: u32,
}

impl Case {
    /// What one would take announced, for each KiB, where each side has others to copy meanwhile: the kernel's copy. (A
    /// little less, from memory that its sender does not write to each time.)
    fn crossing(&self, bytes: usize) -> Option<f64> {
        Some(self.kernel? + per_kib(HANDSHAKE, bytes))
    }

    /// The same at least; half of the copy where its sender, too, has no others.
    fn least_announced(&self, it: &Drained) -> Option<f64> {
        match it.both_ways {
            true => self.crossing(it.bytes),
            false => Some(self.kernel? / 2.0 + per_kib(HANDSHAKE, it.bytes)),
        }
    }
}

/// Nanoseconds for each KiB.
fn per_kib(time: u64, bytes: usize) -> f64 {
    time as f64 * 1024.0 / bytes.max(1) as f64
}

/// One more, of messages that are smoothed.
fn smooth(known: &mut f64, time: u64, bytes: usize) -> f64 {
    let cost = per_kib(time, bytes);
    // One that was interrupted tells little.
    *known = match *known {
        0.0 => cost,
        known => known + (cost.min(2.0 * known) - known) / SMOOTH,
    };
    *known
}

/// A message that was copied out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    pub bytes: usize,
    /// Nanoseconds, when that began and ended.
    pub began: u64,
    pub ended: u64,
    /// Whether a receive was there before it.
    pub awaited: bool,
    /// Whether this process has sent one, too, for this one.
    pub both_ways: bool,
    /// What the kernel took to copy it, if it was to ([`Judge::is_curious`]): its own times tell nothing then.
    pub by_kernel: Option<u64>,
}

impl Judge {
    /// The process has sent one itself, either way: whether it gets hardly any.
    pub fn sent(&self, class: usize) -> bool {
        let own = self.own[class].load(Ordering::Relaxed);
        self.own[class].store((own + 1).min(AHEAD), Ordering::Relaxed);
        own == AHEAD
    }

    /// It has got one, either way: whether it had sent one for it.
    pub fn got(&self, class: usize) -> bool {
        let own = self.own[class].load(Ordering::Relaxed);
        if own > 0 {
            self.own[class].store(own - 1, Ordering::Relaxed);
        }
        own > 0
    }

    /// One has come from a peer that finds out which way messages go that cross.
    pub fn saw(&self, class: usize, announced: bool) {
        self.seen[class].store(announced, Ordering::Relaxed);
    }

    /// Whether the last such one was announced: who does not find that out goes the same way.
    pub fn follows_announced(&self, class: usize) -> bool {
        self.seen[class].load(Ordering::Relaxed)
    }

    fn case(&self, class: usize) -> MutexGuard<'_, Case> {
        self.cases[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An announced one has come, so many nanoseconds after the one before, or since its copy began.
    pub fn announced(&self, class: usize, bytes: usize, nanoseconds: u64) {
        let mut case = self.case(class);
        if std::mem::take(&mut case.lent) >= BLOCK / 2 {
            case.announced.begin();
        }
        let time = nanoseconds.saturating_add(HANDSHAKE);
        let cost = per_kib(time, bytes);
        // One that was interrupted counts as no more than all that may be under way.
        let known = case.announced.middle();
        case.announced.add(known.map_or(cost, |mean| cost.min(f64::from(MEAN) * mean)), MEAN);
    }

    /// Whether the kernel should copy one, before it is copied out, to tell what that takes.
    pub fn is_curious(&self, class: usize) -> bool {
        let mut case = self.case(class);
        let curious = case.probes < PROBES;
        case.probes += u32::from(curious);
        curious
    }

    /// A verdict on a message, if one was wanted.
    pub fn judge(&self, class: usize, asked: Asked, it: Drained) -> Option<Verdict> {
        let mut case = self.case(class);
        case.lent = case.lent.saturating_add(1);
        if let Some(time) = it.by_kernel {
            let cost = per_kib(time, it.bytes);
            case.kernel = Some(case.kernel.map_or(cost, |least| least.min(cost)));
            case.last = case.last.max(it.ended);
            return None;
        }
        let emptying = it.ended.saturating_sub(it.began);
        let both = emptying.saturating_add(asked.filling).saturating_add(HANDSHAKE);
        // In a stream of them each side has its copy to make.
        let least = if it.both_ways { both } else { emptying.max(asked.filling) };
        let since = it.ended.saturating_sub(case.last.max(1));
        let time = since.clamp(least, both);
        case.last = case.last.max(it.ended);
        let cost = smooth(&mut case.cost, time, it.bytes);
        if !asked.counts {
            return None;
        }
        // Who copies one after the other is not late for them: it is what the sender waits for.
        if !it.awaited && since > both {
            return Some(Verdict::Late);
        }
        if case.least_announced(&it).is_some_and(|least| cost < least) {
            case.said = false;
            return Some(Verdict::Vain);
        }
        let Some(announced) = case.announced.middle() else {
            // Where that is clear none has to be tried.
            let guess = case.crossing(it.bytes).filter(|_| it.both_ways);
            let clear = guess.is_some_and(|announced| HOPELESS * announced < cost);
            case.said = clear;
            return Some(if clear { Verdict::Clearly } else { Verdict::Unknown });
        };
        let better = match class > lent::class_of(lent::SINGLE) {
            true => MUCH_BETTER,
            false if it.both_ways => CLEARLY_BETTER,
            false => BETTER,
        };
        // What is about equal stays as it was.
        let stays = if case.said { 1.0 / (BETTER * BETTER) } else { 1.0 };
        case.said = announced < stays * better * cost;
        Some(match case.said {
            true if HOPELESS * announced < cost => Verdict::Clearly,
            true => Verdict::Announced,
            false if announced > HOPELESS * cost => Verdict::Hopeless,
            false => Verdict::Lent,
        })
    }
}
