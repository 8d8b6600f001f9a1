//! Which of several ways to copy messages of one size is the soonest over: now and then another one is tried.
//!
//! ```text
//!   BLOCK messages one way, BLOCK another --> the faster one for a while --> BLOCK another way --.
//!                                                     ^                                          |
//!                                                     '- twice as long, if it is still faster <--+
//!                                                     '- as long as at first, if it is not <-----'
//! ```
//! A trial is over when all its messages have ended, which may be after the next ones have begun; when half have, where
//! these take clearly longer; at once, and of that way there is none in some of the next turns, where it takes several times as
//! long: else trials alone would take as much time as all other messages. The first messages of a trial do not
//! count, up to as many as the others: they find data, and buffers, in the caches where the other way
//! has left them, and in the very first one pages that nobody has touched.
//!
//! Where messages take longer than they did, and have for a while, the next trial is soon, of what was hopeless, too;
//! not too soon after the last one, and not as long as they are far from what the other way takes: times of messages that follow each other vary by a factor of two.
//!
//! What counts is the time from when the copy could begin, which is at the end of the one before if that was
//! later, until its end: so both the time of a message alone and the rate of many. Of many that are under way
//! some end together, of which the first has taken all the time; so means count, over more messages than that.

use super::copiers::Who;

/// Messages of a trial: at least so many, and so many bytes; more of those of which many are under way at a time.
const BLOCK: u32 = 8;
const BLOCK_BYTES: usize = 4 << 20;
pub(super) const BLOCK_OF_MANY: u32 = 32;
/// As many messages ahead of these do not count as bring so many bytes: one at least, and no more than those that do.
/// (Halves become faster for longer than that, but that takes more than it brings.)
pub(super) const WARMING_BYTES: usize = 16 << 20;
/// The same of messages that cross: after more of these the one way was taken for the other's equal more often.
pub(super) const CROSSING_BYTES: usize = 8 << 20;
/// The first messages of a size, which are not counted; and where they go by halves: those of the first windows take
/// up to twice as long as later ones, and would have another way chosen that is slower.
const COLD: u32 = 8;
const COLD_HALVES: u32 = 16;
const COLD_OF_MANY: u32 = 24;
/// The first ones through shared buffers, likewise: so many touch all of these.
const FRESH: u32 = 2;
/// Several times as many as are under way, over which a mean is one.
const SPAN_OF_MANY: u32 = 256;
/// The largest of these.
const MANY: usize = (256 << 10) - 1;
/// Trials' messages between trials, at first and at most.
const SHORTEST: u32 = 4;
pub(super) const LONGEST: u32 = 64;
/// Messages under way that are told from one, at most.
const TOGETHER: u32 = 64;
/// By how many quarters of a trial's messages these numbers vary.
const UNEVEN: u32 = 13;
/// How many times as long the other way takes that is not worth a whole trial, and how many messages tell.
const HOPELESS: f64 = 2.5;
const TELLING: f64 = 3.0;
/// Turns in which it is not tried then.
const SKIPPED: u32 = 16;
/// The same that is not worth the second half of a trial: of messages that end one by one, and of others.
const WORSE: f64 = 1.5;
const WORSE_TOGETHER: f64 = 2.0;
/// How many times as often as otherwise there are trials, at most, where messages take longer than they did.
const ALARMS: u32 = 4;
/// For how many times as many messages as make a mean that has to be so: what interrupts a few is soon over.
const STEADY: u32 = 4;
/// Which part of what the other way takes is near it.
const NEAR: f64 = 0.6;

/// What is not open to a message.
#[derive(Clone, Copy)]
pub(super) struct Open {
    /// Halves: they are not possible.
    pub whole: bool,
    /// Both sides through shared buffers: it might have been lent.
    pub lent: bool,
}

/// Times of messages that went one way: nanoseconds for each KiB, of which older ones fade.
#[derive(Clone, Copy, Default, Debug)]
struct Times {
    sum: f64,
    count: f64,
}

impl Times {
    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Whether what is interrupted can be told from what is not.
    fn is_settled(&self) -> bool {
        self.count >= 2.0
    }

    /// One more; means are over so many to twice as many.
    fn add(&mut self, time: f64, span: u32) {
        (self.sum, self.count) = (self.sum + time, self.count + 1.0);
        if self.count >= f64::from(2 * span) {
            (self.sum, self.count) = (self.sum / 2.0, self.count / 2.0);
        }
    }
}

/// What is known of messages of one size.
#[derive(Debug)]
pub(super) struct Trials {
    /// Messages of a trial, those ahead of them, and over how many of the chosen way the mean is.
    block: u32,
    warms: u32,
    span: u32,
    /// Who copies the messages that begin now.
    now: Who,
    /// Who does but for trials.
    chosen: Who,
    /// Messages that are still to begin before that changes.
    left: u32,
    /// Messages between trials.
    rest: u32,
    /// What was tried last, and whether it is still open what came of it.
    tried: Who,
    open: bool,
    /// Of the last trial if it is not the chosen one's.
    times: [Times; 3],
    /// Turns so far, and from which on each way may be tried.
    turns: u32,
    again: [u32; 3],
    /// Messages through shared buffers that are not to be counted yet, and of a trial.
    fresh: u32,
    warming: u32,
    /// What the chosen one's mean was when it was chosen, or a trial began; and messages since.
    expected: f64,
    since: u32,
    /// In how many of these, up to the last one, it was longer.
    slower: u32,
    /// Messages that have begun and not ended.
    under_way: u32,
    /// Of the first ones, how many are still to end: they find pages that were never touched, and cold caches,
    /// and say nothing of the way that they went.
    cold: u32,
    /// When the last one ended.
    last: u64,
    /// Who copied the last of this side's that crossed one of such a peer.
    seen: Who,
}

impl Trials {
    /// Of messages of so many bytes and more; `warming`: [`WARMING_BYTES`] or what stands for them.
    pub fn new(bytes: usize, first: Who, warming: usize) -> Trials {
        let many = bytes <= MANY;
        let enough = ((BLOCK_BYTES / bytes) as u32).max(BLOCK);
        let (block, span) = if many { (BLOCK_OF_MANY, SPAN_OF_MANY) } else { (enough, enough) };
        let (cold, fresh) = match first {
            _ if many => (COLD_OF_MANY, block),
            Who::Halves => (COLD_HALVES, FRESH),
            Who::Both | Who::Receiver => (COLD, FRESH),
        };
        // A trial of many is long enough for some of these not to matter.
        let warms = if many { 0 } else { ((warming / bytes) as u32).clamp(1, block) };
        // What counts of it must be known before another way is tried.
        let counted = if first == Who::Both { fresh + block } else { block };
        Trials {
            block,
            warms,
            span,
            now: first,
            chosen: first,
            left: cold + counted,
            rest: SHORTEST * block,
            tried: if first == Who::Both { Who::Both } else { Who::Receiver },
            open: false,
            times: [Times::default(); 3],
            turns: 0,
            again: [0; 3],
            fresh,
            warming: 0,
            expected: 0.0,
            since: 0,
            slower: 0,
            under_way: 0,
            cold,
            last: 0,
            seen: first,
        }
    }

    /// Who copies messages that are not part of a trial.
    pub fn chosen(&self) -> Who {
        self.chosen
    }

    /// Who copied the last of this side's that crossed such a one.
    pub fn seen(&self) -> Who {
        self.seen
    }

    /// See [`Trials::seen`].
    pub fn saw(&mut self, who: Who) {
        self.seen = who;
    }

    /// Who copies the next one.
    pub fn choose(&mut self, open: Open) -> Who {
        let whole = open.whole;
        if whole && self.chosen == Who::Halves {
            // A trial among messages that do not count would say nothing.
            let left = self.block + self.cold;
            (self.chosen, self.now, self.left) = (Who::Receiver, Who::Receiver, left);
            (self.open, self.expected) = (false, 0.0);
        } else if whole && self.now == Who::Halves {
            (self.now, self.left, self.open) = (self.chosen, self.rest, false);
        }
        if self.left == 0 {
            self.turn(open);
        }
        self.left -= 1;
        self.under_way = (self.under_way + 1).min(TOGETHER);
        self.now
    }

    /// What is to be tried, if anything is: what was not tried last time.
    fn candidate(&self, open: Open) -> Option<Who> {
        let after = |i| Who::ALL[(self.tried as usize + i) % Who::ALL.len()];
        let out = |who| match who {
            Who::Halves => open.whole,
            Who::Both => open.lent,
            Who::Receiver => false,
        };
        let due = |who: Who| self.again[who as usize] <= self.turns;
        (1..=Who::ALL.len()).map(after).find(|&who| who != self.chosen && !out(who) && due(who))
    }

    /// Messages until the next trial: some more each time, lest trials fall into step with times that go up and down.
    fn pause(&self) -> u32 {
        self.rest + self.turns % UNEVEN * self.block / 4
    }

    fn mean(&self, who: Who) -> Option<f64> {
        self.times[who as usize].mean()
    }

    /// What the cheapest way that is not the chosen one took when it was tried; 0 if none was.
    fn other(&self) -> f64 {
        let others = Who::ALL.into_iter().filter(|&who| who != self.chosen);
        others.filter_map(|who| self.mean(who)).reduce(f64::min).unwrap_or(0.0)
    }

    /// A trial begins, or all its messages have begun.
    fn turn(&mut self, open: Open) {
        let free = self.now == self.chosen;
        self.turns = self.turns.saturating_add(free.into());
        if self.slower >= self.span {
            // What was hopeless may not be so any more.
            (self.again, self.slower) = ([0; 3], 0);
        }
        let candidate = self.candidate(open).filter(|_| free);
        let Some(candidate) = candidate else {
            (self.now, self.left) = (self.chosen, self.pause());
            return;
        };
        self.now = candidate;
        let fresh = if candidate == Who::Both { self.fresh } else { 0 };
        self.warming = self.warms;
        (self.tried, self.open, self.left) = (self.now, true, self.block + self.warming + fresh);
        self.times[self.now as usize] = Times::default();
        (self.expected, self.since) = (self.mean(self.chosen).unwrap_or(0.0), 0);
    }

    /// What has come of a trial.
    fn decide(&mut self, there: f64, here: f64) {
        self.open = false;
        // One that is hardly better is not worth the change.
        if there < 0.95 * here {
            // What was chosen until now has just been measured, and need not be soon: the third one is tried next.
            (self.chosen, self.tried) = (self.tried, self.chosen);
            self.again[self.tried as usize] = self.turns.saturating_add(2);
            self.rest = SHORTEST * self.block;
            (self.expected, self.since) = (there, 0);
            (self.now, self.left) = (self.chosen, self.rest);
            return;
        }
        if there > HOPELESS * here {
            self.again[self.tried as usize] = self.turns.saturating_add(SKIPPED);
        }
        self.rest = (self.rest * 2).min(LONGEST * self.block);
        (self.now, self.left) = (self.chosen, self.pause());
    }

    /// One has ended: see [`Copiers::took`](super::copiers::Copiers::took).
    pub fn took(&mut self, who: Who, bytes: usize, began: u64, now: u64) -> u64 {
        let time = now.saturating_sub(began.max(self.last));
        self.last = self.last.max(now);
        let together = self.under_way.max(1);
        self.under_way = together - 1;
        if self.cold > 0 {
            self.cold -= 1;
            return time;
        }
        if who == Who::Both && self.fresh > 0 {
            self.fresh -= 1;
            return time;
        }
        let chosen = self.mean(self.chosen).unwrap_or(0.0);
        let times = &mut self.times[who as usize];
        let mut cost = time as f64 * 1024.0 / bytes.max(1) as f64;
        // One that was interrupted tells little.
        if let Some(mean) = times.mean().filter(|_| times.is_settled()) {
            // By both sides many end at about the same time, and those that take none must not hide the one that
            // takes it all.
            let usual = if who == Who::Both { mean.max(chosen) } else { mean };
            cost = cost.min(2.0 * usual * f64::from(together));
        }
        times.add(cost, self.span);
        let (count, mean) = (times.count, times.mean().unwrap_or(0.0));
        let tried = self.open && who == self.tried;
        let warming = tried && self.warming > 0;
        if warming {
            self.warming -= 1;
            if self.warming == 0 || who == Who::Both {
                *times = Times::default();
            }
        }
        if who == self.chosen {
            self.since = self.since.saturating_add(1);
            let longer = self.expected > 0.0 && mean > 1.3 * self.expected;
            let deaf = self.span.max(self.rest / ALARMS);
            let slower = longer && self.now == who && mean > NEAR * self.other();
            self.slower = if slower { self.slower.saturating_add(1) } else { 0 };
            if self.slower >= STEADY * self.span && self.since >= deaf {
                // Something has changed: the cores' distance, or where the data lie.
                self.left = 0;
                (self.expected, self.since) = (mean, 0);
            }
        } else if tried {
            let here = self.mean(self.chosen);
            let hopeless = |here: f64| together <= 2 && count >= TELLING && mean > HOPELESS * here;
            let worse =
                |here: f64| mean > here * if together <= 2 { WORSE } else { WORSE_TOGETHER };
            let half = !warming && 2.0 * count >= f64::from(self.block);
            let enough = half && (count >= f64::from(self.block) || here.is_some_and(worse));
            if enough || here.is_some_and(hopeless) {
                self.decide(mean, here.unwrap_or(mean));
            }
        }
        time
    }
}
