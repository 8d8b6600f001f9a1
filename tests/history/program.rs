//! Random programs of atomic operations on a few words: every rank does what its seed says, and
//! writes down when it called what and what came back.

use super::check::{Event, What};
use super::round::{Clock, Round};
use super::support::random::Random;
use hither::{Element, Epoch, Job, Op, Rank, Result, Window};

/// An element that the words are made of.
pub trait Word: Element {
    fn of(value: u64) -> Self;
    fn value(self) -> u64;
}

macro_rules! words {
    ($($t:ty),+) => { $(
        impl Word for $t {
            fn of(value: u64) -> Self {
                value as $t
            }
            fn value(self) -> u64 {
                self as u64
            }
        }
    )+ };
}
// Values stay below 2^24, so floats hold them exactly and nothing wraps.
words!(u32, i32, u64, i64, f32, f64);

/// Elements of a part: the words that are watched lie in the middle of it, so that operations on
/// many elements cover them.
const LEN: usize = 1200;
/// Where the watched words of a part begin.
pub const FIRST: usize = 500;

/// One rank's side of a program, and its events.
pub fn run<T: Word>(job: &Job, round: &Round, clock: &Clock) -> Result<Vec<Event>> {
    let window: Window<T> = round.window(job, LEN)?;
    let mut random = Random::new(round.seed ^ u64::from(job.rank().0) << 32);
    job.team().barrier()?;
    let mut player = Player { job, round, clock, window: &window, events: Vec::new() };
    let epoch = window.lock_all()?;
    let mut left = round.operations;
    while left > 0 {
        let batch = (1 + random.below(round.batch)).min(left);
        left -= batch;
        let silent_from = player.events.len();
        for _ in 0..batch {
            player.operation(&epoch, &mut random, left)?;
        }
        epoch.flush_all()?;
        let ended = clock.tick()?;
        player.events[silent_from..]
            .iter_mut()
            .filter(|event| event.saw.is_none())
            .for_each(|event| event.ended = ended);
        if random.below(4) == 0 {
            std::thread::yield_now();
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut events = std::mem::take(&mut player.events);
    // The last look, at one's own part.
    for word in 0..round.words {
        let call = clock.tick()?;
        let saw = window.local().get(FIRST + word as usize)?.value();
        let word = round.word(job.rank(), word);
        let ended = clock.tick()?;
        let origin = job.rank().0;
        events.push(Event { origin, call, ended, word, what: What::Read, saw: Some(saw) });
    }
    job.team().barrier()?;
    Ok(events)
}

struct Player<'p, T> {
    job: &'p Job,
    round: &'p Round,
    clock: &'p Clock,
    window: &'p Window<T>,
    events: Vec<Event>,
}

impl<T: Word> Player<'_, T> {
    fn operation(&mut self, epoch: &Epoch<'_, T>, random: &mut Random, number: u64) -> Result<()> {
        let me = self.job.rank();
        let target = Rank(random.below(self.round.targets.min(self.job.size()).into()) as u32);
        let word = random.below(self.round.words.into()) as u32;
        let at = FIRST + word as usize;
        let unique = 1000 * (u64::from(me.0) + 1) + number;
        let amount = 1 + random.below(50);
        let call = self.clock.tick()?;
        // Some operations of an owner on its own part go by its view.
        let local = (target == me && random.below(3) == 0).then(|| self.window.local());
        let fetch = |op: Op, value: u64| -> Result<Option<u64>> {
            if self.round.racy && op == Op::Sum {
                let mut old = [T::of(0)];
                epoch.get(target, at, &mut old)?;
                std::thread::yield_now();
                epoch.put(target, at, &[T::of(old[0].value() + value)])?;
                return Ok(Some(old[0].value()));
            }
            let old = match &local {
                Some(view) => view.fetch_and_op(at, op, T::of(value))?,
                None => epoch.fetch_and_op(target, at, op, T::of(value))?,
            };
            Ok(Some(old.value()))
        };
        let (what, saw) = match random.below(9) {
            0 => (What::Add(amount), fetch(Op::Sum, amount)?),
            1 => (What::Max(amount * 100), fetch(Op::Max, amount * 100)?),
            2 => (What::Swap(unique), fetch(Op::Replace, unique)?),
            3 => (What::Read, fetch(Op::NoOp, 0)?),
            4 => {
                // What was there a moment ago, so that it often succeeds.
                let recent = self.recent(target, word);
                let (old, new) = (T::of(recent), T::of(unique));
                let saw = match &local {
                    Some(view) => view.compare_and_swap(at, old, new)?,
                    None => epoch.compare_and_swap(target, at, old, new)?,
                };
                (What::Cas { expected: recent, new: unique }, Some(saw.value()))
            }
            5 => {
                epoch.accumulate(target, at, Op::Sum, &[T::of(amount)])?;
                (What::Add(amount), None)
            }
            6 => {
                epoch.accumulate(target, at, Op::Replace, &[T::of(unique)])?;
                (What::Swap(unique), None)
            }
            7 => return self.wide(epoch, random, target, call, amount),
            _ => (What::Read, fetch(Op::NoOp, 0)?),
        };
        let ended = if saw.is_some() { self.clock.tick()? } else { u64::MAX };
        let word = self.round.word(target, word);
        // Packets do not come in between what an owner does to its own memory: to the checker
        // that is somebody else.
        let apart = local.is_some() && saw.is_some() && self.round.way == "packets";
        let origin = me.0 + if apart { self.job.size() } else { 0 };
        self.events.push(Event { origin, call, ended, word, what, saw });
        Ok(())
    }

    /// An accumulate on many elements, the watched ones among them: atomic for each.
    fn wide(
        &mut self,
        epoch: &Epoch<'_, T>,
        random: &mut Random,
        target: Rank,
        call: u64,
        amount: u64,
    ) -> Result<()> {
        let before = random.below(FIRST as u64) as usize;
        let start = FIRST - before;
        let count = before + self.round.words as usize + random.below(600) as usize;
        epoch.accumulate(target, start, Op::Sum, &vec![T::of(amount); count])?;
        for word in 0..self.round.words {
            let word = self.round.word(target, word);
            let what = What::Add(amount);
            let origin = self.job.rank().0;
            self.events.push(Event { origin, call, ended: u64::MAX, word, what, saw: None });
        }
        Ok(())
    }

    /// What this rank last saw or left in a word.
    fn recent(&self, target: Rank, word: u32) -> u64 {
        let word = self.round.word(target, word);
        let last = self.events.iter().rev().find(|e| e.word == word);
        last.map_or(0, |event| match (event.what, event.saw) {
            (What::Swap(new) | What::Cas { new, .. }, _) => new,
            (What::Add(add), Some(saw)) => saw + add,
            (_, Some(saw)) => saw,
            _ => 0,
        })
    }
}
