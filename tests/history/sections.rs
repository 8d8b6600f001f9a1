//! Random sections under locks. Each part has words that are only changed together, under an
//! exclusive lock, and a counter that is added to under shared ones:
//!
//! - an exclusive section reads the words, which must be equal, and writes a new value to each, by
//!   puts that could interleave with anybody's: to the checker one atomic swap of the part's first
//!   watched word;
//! - it also replaces the counter, by a get and a put: a swap of the second watched word;
//! - a shared section reads the words twice: equal, and the same both times; it adds to the
//!   counter atomically.

use super::check::{Event, What};
use super::program::Word;
use super::round::{Clock, Round};
use super::support::random::Random;
use hither::{Epoch, Job, LockKind, Op, Rank, Result, Window};

/// Words that change together.
const TOGETHER: usize = 6;
const COUNTER: usize = TOGETHER + 3;
const LEN: usize = COUNTER + 1;

/// One rank's side of a program, and its events.
pub fn run<T: Word>(job: &Job, round: &Round, clock: &Clock) -> Result<Vec<Event>> {
    let window: Window<T> = round.window(job, LEN)?;
    let mut random = Random::new(round.seed ^ u64::from(job.rank().0) << 32);
    job.team().barrier()?;
    let mut player = Player { round, clock, me: job.rank(), unique: 0, events: Vec::new() };
    for _ in 0..round.operations {
        let target = Rank(random.below(round.targets.min(job.size()).into()) as u32);
        let call = clock.tick()?;
        let first = player.events.len();
        match random.below(5) {
            0 | 1 => {
                let epoch = window.lock(target, LockKind::Exclusive)?;
                assert_eq!(epoch.recovered_from(), None, "nobody has died");
                player.exclusive(&epoch, target, &mut random, || epoch.flush())?;
                epoch.unlock()?;
            }
            2 | 3 => {
                let epoch = window.lock(target, LockKind::Shared)?;
                player.shared(&epoch, target, &mut random)?;
                epoch.unlock()?;
            }
            _ => {
                let epoch = window.lock_all()?;
                player.shared(&epoch, target, &mut random)?;
                epoch.unlock_all()?;
            }
        }
        let ended = clock.tick()?;
        for event in &mut player.events[first..] {
            (event.call, event.ended) = (call, ended);
        }
        if random.below(3) == 0 {
            std::thread::yield_now();
        }
    }
    job.team().barrier()?;
    let mut mine = vec![T::of(0); LEN];
    window.local().read(0, &mut mine)?;
    player.event(job.rank(), 0, What::Read, Some(mine[0]));
    player.event(job.rank(), 1, What::Read, Some(mine[COUNTER]));
    let now = clock.tick()?;
    let last = player.events.len() - 2;
    player.events[last..].iter_mut().for_each(|e| (e.call, e.ended) = (now, now + 1));
    job.team().barrier()?;
    Ok(player.events)
}

struct Player<'p> {
    round: &'p Round,
    clock: &'p Clock,
    me: Rank,
    unique: u64,
    events: Vec<Event>,
}

impl Player<'_> {
    fn event<T: Word>(&mut self, target: Rank, word: u32, what: What, saw: Option<T>) {
        let word = self.round.word(target, word);
        let saw = saw.map(T::value);
        self.events.push(Event { origin: self.me.0, call: 0, ended: 0, word, what, saw });
    }

    fn words<T: Word>(&self, epoch: &Epoch<'_, T>, target: Rank) -> Result<T> {
        let mut words = [T::of(0); TOGETHER];
        epoch.get(target, 0, &mut words)?;
        let equal = words.iter().all(|word| *word == words[0]);
        let seed = self.round.seed;
        assert!(equal, "seed {seed}: {words:?} under a lock, written by halves");
        Ok(words[0])
    }

    fn exclusive<T: Word>(
        &mut self,
        epoch: &Epoch<'_, T>,
        target: Rank,
        random: &mut Random,
        flush: impl Fn() -> Result<()>,
    ) -> Result<()> {
        self.unique += 1;
        let new = 1000 * (u64::from(self.me.0) + 1) + self.unique;
        let old = self.words(epoch, target)?;
        for at in 0..TOGETHER {
            epoch.put(target, at, &[T::of(new)])?;
            if random.below(6) == 0 {
                std::thread::yield_now();
            }
        }
        let mut counter = [T::of(0)];
        epoch.get(target, COUNTER, &mut counter)?;
        epoch.put(target, COUNTER, &[T::of(new)])?;
        if random.below(3) == 0 {
            // What was put can be read back once it is complete.
            flush()?;
            assert_eq!(self.words(epoch, target)?, T::of(new), "what was put under the lock");
            self.clock.tick()?;
        }
        self.event(target, 0, What::Swap(new), Some(old));
        self.event(target, 1, What::Swap(new), Some(counter[0]));
        Ok(())
    }

    fn shared<T: Word>(
        &mut self,
        epoch: &Epoch<'_, T>,
        target: Rank,
        random: &mut Random,
    ) -> Result<()> {
        let first = self.words(epoch, target)?;
        let amount = 1 + random.below(9);
        if random.below(2) == 0 {
            epoch.accumulate(target, COUNTER, Op::Sum, &[T::of(amount)])?;
            self.event::<T>(target, 1, What::Add(amount), None);
        } else {
            let old = epoch.fetch_and_op(target, COUNTER, Op::Sum, T::of(amount))?;
            self.event(target, 1, What::Add(amount), Some(old));
        }
        std::thread::yield_now();
        let seed = self.round.seed;
        assert_eq!(self.words(epoch, target)?, first, "seed {seed}: changed under a shared lock");
        self.event(target, 0, What::Read, Some(first));
        Ok(())
    }
}
