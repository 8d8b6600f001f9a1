//! Which way messages of middle size go that are larger than what always travels with its data: lent, or
//! announced as larger ones are. Lent ones are copied twice, by both sides, and need nothing but the
//! message that tells of them; announced ones once, by the kernel, or by whoever
//! [`copiers`](super::copiers) says. Which is sooner over depends on the processor, on whether both sides
//! have messages for each other, and on whose caches have the data: it is found out while the program runs.
//!
//! ```text
//!  sender                                           receiver
//!    lends; note: filling took so long -----------> copies out; how long since the one before,
//!                                                   at most filling and copying out?
//!    takes the buffer back <----- note: verdict     longer than what announced ones take?
//!    counts votes
//!
//!    lent, the last BLOCK of them timed --> TRIAL announced --> lent, the last BLOCK of them timed
//!      ^  ^                                                          |          |
//!      |  '- LONGER times as long, up to LONGEST <---- against ------'         for
//!      '---- against ---- announced; in between some lent and timed <----------'
//! ```
//! Where announced ones take several times as long, some of the next turns are
//! without a trial; where lent ones take less than the kernel could, all are. Verdicts come back
//! as buffers do, which may be after the next phase has begun; [`ENOUGH`] of them decide, whenever they come.
//!
//! What both ways take, and whether it is late for its messages, only the receiver knows: see [`judge`](super::judge).
//! Where messages cross, each side has the copies of both ways to make, and one that goes another way alone waits for the
//! other one's copies: it would find both equal. So the side with the lower rank finds out, and the other one sends as it
//! was sent to last. There the kernel's copy of a lent message tells what announced ones take before any was, and where that
//! is less than half they are announced at once.
//!
//! Nothing is announced, not even for a trial, to a receiver that comes later than what is sent to it. (Where
//! ranks share cores it is the system that is late; what is sent by a call that blocks is lent there.)

/// Lent messages that are timed in a row.
pub(super) const BLOCK: u32 = 16;
/// Lent messages ahead of these where announced ones came before: their buffers and data are in no cache then, or in
/// others than they will be, and one takes half as long again.
const SETTLING: u32 = 128;
/// Announced ones, several times as many as a program has under way that waits for the end of many: the first ones meet
/// lent ones that are still under way.
const TRIAL: u32 = 256;
/// Of lent ones in a row, those whose verdict does not count: the time since the one before says nothing yet.
const UNSETTLED: u32 = 4;
/// Messages between trials, at first, where lent ones take several times as long, and at most; and how many times
/// as many as before.
const SHORTEST: u32 = 64;
const LONG: u32 = 512;
const LONGEST: u32 = 8192;
const LONGER: u32 = 4;
/// Verdicts that make a decision.
const ENOUGH: u32 = 8;
/// Turns without a trial where the last one was hopeless; and where one would be, until the next verdicts.
const SKIPPED: u32 = 7;
const SKIPPED_VAIN: u32 = 2;
/// Nanoseconds that no copy takes.
const FOR_EVER: u64 = 1 << 30;

/// Codes of notes, above the nanoseconds.
const UNSETTLED_NOTE: u64 = 1;
const TIMED_NOTE: u64 = 2;
const VERDICT_NOTE: u64 = 4;

/// How a message is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Lent(Timed),
    Announced,
}

/// Whether the receiver is asked how long a message took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timed {
    No,
    /// It is, for the next ones.
    Unsettled,
    Yes,
}

impl Timed {
    /// The note beside a message whose buffer took so many nanoseconds to fill.
    pub fn note(self, filling: u64) -> u64 {
        let filling = filling.clamp(1, FOR_EVER);
        match self {
            Timed::No => 0,
            Timed::Unsettled => UNSETTLED_NOTE << 32 | filling,
            Timed::Yes => TIMED_NOTE << 32 | filling,
        }
    }
}

/// What a receiver is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// Nanoseconds that the sender took.
    pub filling: u64,
    pub counts: bool,
}

impl Asked {
    /// What a note of a sender says, if it asks something.
    pub fn read(note: u64) -> Option<Asked> {
        let counts = match note >> 32 {
            UNSETTLED_NOTE => false,
            TIMED_NOTE => true,
            _ => return None,
        };
        Some(Asked { filling: (note & u64::from(u32::MAX)).min(FOR_EVER), counts })
    }
}

/// What a receiver says of the way a message came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It was here before anybody asked for it.
    Late = 1,
    /// What announced ones take is not known.
    Unknown,
    Lent,
    Announced,
    /// Lent ones take so much longer that they need not be tried again soon.
    Clearly,
    /// Announced ones take so much longer that they need not be tried again soon.
    Hopeless,
    /// Announced ones cannot but take longer, whatever they took.
    Vain,
}

impl Verdict {
    pub fn note(self) -> u64 {
        VERDICT_NOTE << 32 | self as u64
    }

    /// What a note of a receiver says, if it is a verdict.
    pub fn read(note: u64) -> Option<Verdict> {
        use Verdict::*;
        let all = [Late, Unknown, Lent, Announced, Clearly, Hopeless, Vain];
        all.into_iter().find(|verdict| verdict.note() == note)
    }
}

/// Sender: which way messages of a size go. See the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    state: State,
    /// Messages that are still to begin before that changes.
    left: u32,
    /// Messages between trials.
    rest: u32,
    /// Verdicts since the last decision: all, those that say that the receiver is late, and how many more
    /// are for announced ones than against; how many say that these are hopeless, or in vain, or clearly faster.
    counted: u32,
    late: u32,
    votes: i32,
    hopeless: u32,
    vain: u32,
    clear: u32,
    /// A trial is over of which nothing was decided yet; turns that are still without one.
    tried: bool,
    skip: u32,
    /// The receiver was not late, by the last decision.
    awaited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Lent,
    /// Announced ones are tried, then lent ones judged.
    TryAnnounced,
    JudgeLent,
    Announced,
    /// Lent ones are judged again.
    TryLent,
}

impl State {
    fn is_lent(self) -> bool {
        !matches!(self, State::TryAnnounced | State::Announced)
    }
}

impl Default for Turns {
    fn default() -> Turns {
        let (state, left, rest) = (State::Lent, SETTLING + BLOCK, SHORTEST);
        Turns {
            state,
            left,
            rest,
            counted: 0,
            late: 0,
            votes: 0,
            hopeless: 0,
            vain: 0,
            clear: 0,
            tried: false,
            skip: 0,
            awaited: false,
        }
    }
}

impl Turns {
    /// Which way the next message goes.
    pub fn next(&mut self) -> Way {
        if self.left == 0 {
            self.turn();
        }
        self.left -= 1;
        match BLOCK.checked_sub(self.left + 1) {
            _ if !self.state.is_lent() => Way::Announced,
            None => Way::Lent(Timed::No),
            Some(done) if done < UNSETTLED => Way::Lent(Timed::Unsettled),
            Some(_) => Way::Lent(Timed::Yes),
        }
    }

    /// Whether buffers that come back are to be looked at though none is wanted.
    pub fn is_curious(&self) -> bool {
        !self.state.is_lent()
    }

    fn change(&mut self, state: State, rest: u32) {
        self.left = match state {
            State::Lent | State::Announced => rest,
            State::TryAnnounced => TRIAL,
            State::JudgeLent | State::TryLent => SETTLING + BLOCK,
        };
        (self.state, self.rest) = (state, rest);
    }

    fn longer(&self) -> u32 {
        (self.rest * LONGER).min(LONGEST)
    }

    /// What was to last so long is over.
    fn turn(&mut self) {
        match self.state {
            State::Lent if self.awaited && self.skip == 0 => {
                self.change(State::TryAnnounced, self.rest)
            }
            State::Lent => {
                self.skip = self.skip.saturating_sub(1);
                self.change(State::Lent, self.rest.max(LONGER * SHORTEST));
            }
            State::TryAnnounced => {
                self.tried = true;
                self.change(State::JudgeLent, self.rest);
            }
            State::JudgeLent => self.change(State::Lent, self.longer()),
            State::Announced => self.change(State::TryLent, self.rest),
            State::TryLent => self.change(State::Announced, self.longer()),
        }
    }

    /// A verdict has come, on some message before.
    pub fn note(&mut self, verdict: Verdict) {
        self.counted += 1;
        match verdict {
            Verdict::Late => self.late += 1,
            Verdict::Announced => self.votes += 1,
            Verdict::Clearly => {
                self.votes += 1;
                self.clear += 1;
            }
            Verdict::Lent => self.votes -= 1,
            Verdict::Hopeless => {
                self.votes -= 1;
                self.hopeless += 1;
            }
            Verdict::Vain => {
                self.votes -= 1;
                self.vain += 1;
            }
            Verdict::Unknown => {}
        }
        if self.counted == ENOUGH {
            self.decide();
        }
    }

    fn decide(&mut self) {
        self.awaited = 2 * self.late < self.counted;
        let announced = self.votes > 0 && self.awaited;
        if self.tried && self.state != State::TryAnnounced {
            self.tried = false;
            self.skip = if 2 * self.hopeless > self.counted { SKIPPED } else { 0 };
        }
        if 2 * self.vain > self.counted {
            self.skip = self.skip.max(SKIPPED_VAIN);
        }
        let rest = LONGER * if 2 * self.clear > self.counted { LONG } else { SHORTEST };
        (self.counted, self.late, self.votes) = (0, 0, 0);
        (self.hopeless, self.vain, self.clear) = (0, 0, 0);
        match self.state {
            State::Lent | State::JudgeLent if announced => self.change(State::Announced, rest),
            State::Announced | State::TryLent if !announced => self.change(State::Lent, SHORTEST),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{Drained, HANDSHAKE, Judge, MEAN};
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A sender and a receiver whose copies take so many nanoseconds; verdicts come back after so many messages.
    struct Pair {
        turns: Turns,
        judge: Judge,
        filling: u64,
        emptying: u64,
        announced: u64,
        /// Both copies of a lent one after each other, or each beside those of its neighbours, or the receiver
        /// has sent as many, before.
        how: How,
        awaited: bool,
        kernel: Option<u64>,
        /// What the receiver does between messages.
        computing: u64,
        delay: usize,
        now: u64,
        /// Announced ones end so many at a time.
        together: u64,
        ends: Vec<u64>,
        sent: usize,
        under_way: VecDeque<(usize, u64)>,
    }

    const BYTES: usize = 64 << 10;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum How {
        Alone,
        Stream,
        BothWays,
    }

    fn how() -> impl Strategy<Value = How> {
        prop_oneof![Just(How::Alone), Just(How::Stream), Just(How::BothWays)]
    }

    impl Pair {
        fn new(filling: u64, emptying: u64, announced: u64, how: How) -> Pair {
            Pair {
                turns: Turns::default(),
                judge: Judge::default(),
                filling,
                emptying,
                announced,
                how,
                awaited: true,
                kernel: None,
                computing: 0,
                delay: 0,
                now: 1000,
                together: 1,
                ends: Vec::new(),
                sent: 0,
                under_way: VecDeque::new(),
            }
        }

        fn lent(&self) -> u64 {
            match self.how {
                How::Alone | How::BothWays => self.filling + self.emptying + HANDSHAKE,
                How::Stream => self.filling.max(self.emptying),
            }
        }

        /// So many messages: how many were announced.
        fn run(&mut self, count: u32) -> u32 {
            let mut announced = 0;
            for _ in 0..count {
                self.now += self.computing;
                match self.turns.next() {
                    Way::Announced => {
                        announced += 1;
                        self.now += self.announced;
                        // As many end together as are under way.
                        let together = self.together;
                        self.ends.push(self.announced);
                        if self.ends.len() as u64 == together {
                            for (i, each) in std::mem::take(&mut self.ends).into_iter().enumerate()
                            {
                                let took = if i == 0 { each * together } else { 0 };
                                self.judge.announced(4, BYTES, took);
                            }
                        }
                    }
                    Way::Lent(timed) => {
                        // Both ways the receiver has filled its own before it empties one.
                        self.now += match self.how {
                            How::BothWays => self.emptying,
                            How::Alone | How::Stream => self.lent(),
                        };
                        if self.how == How::BothWays {
                            self.judge.sent(4);
                        }
                        let both_ways = self.judge.got(4);
                        let mut note = timed.note(self.filling);
                        if let Some(asked) = Asked::read(note) {
                            let (began, ended) = (self.now - self.emptying, self.now);
                            let awaited = self.awaited;
                            let by_kernel =
                                self.kernel.filter(|_| asked.counts && self.judge.is_curious(4));
                            let bytes = BYTES;
                            let it = Drained { bytes, began, ended, awaited, both_ways, by_kernel };
                            let verdict = self.judge.judge(4, asked, it);
                            note = verdict.map_or(note, Verdict::note);
                        }
                        self.under_way.push_back((self.sent, note));
                    }
                }
                self.sent += 1;
                // One at a time, as buffers are looked at.
                if self.under_way.front().is_some_and(|(at, _)| at + self.delay < self.sent) {
                    let (_, note) = self.under_way.pop_front().unwrap();
                    Verdict::read(note).into_iter().for_each(|verdict| self.turns.note(verdict));
                }
            }
            announced
        }
    }

    proptest! {
        /// Whatever is cheaper by a fifth, both ways by two, gets most, also once that has changed, however late
        /// verdicts come back.
        #[test]
        fn the_cheaper_way_is_found_and_found_again(
            filling in 3000u64..20_000, emptying in 3000u64..20_000, how in how(), first: bool, together in 1u64..9, delay in 0usize..128,
        ) {
            let mut pair = Pair::new(filling, emptying, 0, how);
            (pair.delay, pair.together) = (delay, together);
            let dear = pair.lent() + pair.lent() / 4;
            let less = if how == How::BothWays { 2 * pair.lent() } else { pair.lent() };
            let cheap = pair.lent() - less / 5;
            for announce in [first, !first, first] {
                pair.announced = if announce { cheap } else { dear }.saturating_sub(HANDSHAKE);
                pair.run(2 * LONGEST + 4 * TRIAL + 2 * 128);
                let announced = pair.run(10_000);
                let right = if announce { announced } else { 10_000 - announced };
                prop_assert!(right > 8500, "{announced} of 10000 announced, {announce} is right");
            }
        }

        /// What takes several times as long is tried ever more seldom, and found again once it does not.
        #[test]
        fn what_is_hopeless_is_seldom_tried(copy in 3000u64..20_000, times in 3u64..10, how in how(), delay in 0usize..64) {
            let mut pair = Pair::new(copy, copy, 0, how);
            (pair.delay, pair.announced) = (delay, times * pair.lent());
            let wait = 2 * (SKIPPED + 2) * LONGEST;
            pair.run(wait);
            let tried = pair.run(4 * wait);
            prop_assert!((1..=10 * TRIAL).contains(&tried), "{tried} of {}", 4 * wait);
            pair.announced = (pair.lent() - pair.lent() / 3).saturating_sub(HANDSHAKE);
            pair.run(wait);
            let went = pair.run(10_000);
            prop_assert!(went > 8500, "{went} of 10000 announced");
        }

        /// What takes less than half of the kernel's copy is never tried another way, until it does no more.
        #[test]
        fn nothing_is_tried_that_cannot_be_faster(
            copy in 3000u64..20_000, how in how(), delay in 0usize..64, more in 1u64..5000,
        ) {
            let mut pair = Pair::new(copy, copy, 0, how);
            let half = if how == How::BothWays { 1 } else { 2 };
            // Clearly: the first times tell of cold buffers, or of both copies.
            pair.kernel = Some(half * (pair.lent() + pair.lent() / 2 + more));
            (pair.delay, pair.announced) = (delay, 10 * pair.lent());
            prop_assert_eq!(pair.run(4 * LONGEST), 0);
            (pair.filling, pair.emptying) = (4 * copy, 4 * copy);
            pair.announced = (pair.lent() - pair.lent() / 3).saturating_sub(HANDSHAKE);
            pair.run(4 * LONGEST);
            let went = pair.run(10_000);
            prop_assert!(went > 8500, "{went} of 10000 announced");
        }

        /// Nothing is announced to a receiver that comes late, and what is announced to one that becomes so
        /// comes to an end.
        #[test]
        fn who_is_late_is_lent_to(
            before in 0u32..4000, delay in 0usize..128, computing in 1u64..1_000_000,
        ) {
            let mut pair = Pair::new(5000, 5000, 3000, How::Alone);
            let late = |pair: &mut Pair, is: bool| {
                (pair.awaited, pair.computing) = (!is, if is { computing } else { 0 });
            };
            late(&mut pair, true);
            prop_assert_eq!(pair.run(8000), 0);
            late(&mut pair, false);
            pair.delay = delay;
            pair.run(before);
            late(&mut pair, true);
            pair.run(2 * LONGEST + 4 * TRIAL + 2 * 128);
            prop_assert_eq!(pair.run(4000), 0);
        }

        /// Who finds every message there because it copies one after the other is not late.
        #[test]
        fn who_does_nothing_else_is_not_late(delay in 0usize..128, dear: bool) {
            let announced = if dear { 7000 } else { 4000 };
            let mut pair = Pair::new(5000, 6000, announced, How::Stream);
            (pair.awaited, pair.delay) = (false, delay);
            pair.run(2 * LONGEST + 4 * TRIAL + 2 * 128);
            let went = pair.run(10_000);
            prop_assert!(if dear { went < 1500 } else { went > 8500 }, "{went} of 10000 announced");
        }

        /// A program that pauses now and then stays with what is cheaper.
        #[test]
        fn pauses_tell_nothing(every in 3 * MEAN..1000, pause in 100_000u64..100_000_000, delay in 0usize..128) {
            let mut pair = Pair::new(5000, 6000, 4000, How::Stream);
            pair.delay = delay;
            let mut announced = 0;
            let rounds = 40_000 / every;
            for round in 0..rounds {
                let some = pair.run(every);
                announced += if round < rounds / 2 { 0 } else { some };
                pair.judge.announced(4, BYTES, pause);
            }
            let all = (rounds - rounds / 2) * every;
            prop_assert!(announced > all / 100 * 85, "{announced} of {all}");
        }

        /// Whatever a peer writes is no more than a wrong verdict.
        #[test]
        fn notes_are_read_as_they_were_written_or_not_at_all(
            both_ways: bool, by_kernel: Option<u64>, note: u64, filling: u64, began: u64, ended: u64, bytes: usize, announced: u64,
        ) {
            prop_assert!(Asked::read(note).is_none() || Verdict::read(note).is_none());
            for timed in [Timed::No, Timed::Unsettled, Timed::Yes] {
                let asked = Asked::read(timed.note(filling));
                let counts = asked.map(|asked| asked.counts);
                let expected = match timed {
                    Timed::No => None,
                    Timed::Unsettled => Some(false),
                    Timed::Yes => Some(true),
                };
                prop_assert_eq!(counts, expected);
                prop_assert_eq!(Verdict::read(timed.note(filling)), None);
            }
            let judge = Judge::default();
            judge.announced(0, bytes, announced);
            for note in [note, Timed::Yes.note(filling), Timed::Yes.note(0)] {
                if let Some(asked) = Asked::read(note) {
                    let it = Drained { bytes, began, ended, awaited: true, both_ways, by_kernel };
                    let verdict = judge.judge(0, asked, it);
                    prop_assert!(verdict.is_none() || verdict.map(Verdict::note).and_then(Verdict::read) == verdict);
                }
            }
        }
    }

    #[test]
    fn what_is_about_equal_stays_as_it_is() {
        for (announced, expected) in [(5100, 0), (4800, 0)] {
            let mut pair = Pair::new(5000, 4000, announced, How::Stream);
            pair.run(10_000);
            let tried = pair.run(LONGEST);
            assert!(
                tried <= TRIAL,
                "{tried} of {LONGEST} announced that take {announced}, {expected}"
            );
        }
    }
}
