//! A round: what a seed decides for all ranks, and what is done with their events.

use super::check::{Event, Verdict, judge};
use super::program::{self, Word};
use super::sections;
use super::support::random::Random;
use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{Error, Job, Op, Rank, Result, Window};
use std::collections::BTreeMap;

/// What all ranks know about a round.
#[derive(Clone, Debug)]
pub struct Round {
    pub seed: u64,
    pub way: &'static str,
    pub elements: &'static str,
    /// Sections under locks instead of atomic operations.
    pub sections: bool,
    /// Ranks whose parts are used.
    pub targets: u32,
    /// Words watched in each part.
    pub words: u32,
    /// Operations of each rank.
    pub operations: u64,
    /// Operations between two flushes, at most.
    pub batch: u64,
    /// Additions are done in two steps, to see whether that is noticed.
    pub racy: bool,
}

impl Round {
    pub fn new(seed: u64, way: &'static str, ranks: u32) -> Round {
        let mut random = Random::new(seed);
        let mut pick = |names: &[&'static str]| names[random.below(names.len() as u64) as usize];
        let elements = pick(&["u32", "i32", "u64", "i64", "f32", "f64"]);
        let sections = random.below(3) == 0;
        let targets = 1 + random.below(2) as u32;
        let words = if sections { 2 } else { 1 + random.below(3) as u32 };
        // So that the checker has enough to do, and not too much.
        let operations = (10 + random.below(30)).min(240 / u64::from(ranks));
        let batch = [1, 2, 4, 8][random.below(4) as usize];
        Round { seed, way, elements, sections, targets, words, operations, batch, racy: false }
    }

    /// The window on which the program runs.
    pub fn window<T: Word>(&self, job: &Job, len: usize) -> Result<Window<T>> {
        let medium = if self.way == "packets" { Medium::Packets } else { Medium::Auto };
        Window::builder(job.team()).info(Info { medium, ..Info::default() }).allocate(len)
    }

    /// The number of a word among all parts'.
    pub fn word(&self, target: Rank, word: u32) -> u32 {
        target.0 * self.words + word
    }
}

/// Time that all ranks agree on: a counter.
pub struct Clock(Window<u64>);

impl Clock {
    pub fn new(job: &Job) -> Result<Clock> {
        Window::allocate(job.team(), 1).map(Clock)
    }

    /// The next moment.
    pub fn tick(&self) -> Result<u64> {
        self.0.part(Rank(0))?.fetch_and_op(0, Op::Sum, 1)
    }
}

/// Plays a round and judges it. All ranks call it; all learn the verdict.
pub fn play(job: &Job, round: &Round) -> Result<()> {
    let clock = Clock::new(job)?;
    let mine = match round.elements {
        "u32" => run::<u32>(job, round, &clock),
        "i32" => run::<i32>(job, round, &clock),
        "u64" => run::<u64>(job, round, &clock),
        "i64" => run::<i64>(job, round, &clock),
        "f32" => run::<f32>(job, round, &clock),
        _ => run::<f64>(job, round, &clock),
    }?;
    let events = gather(job, &mine)?;
    let mut good = [1u32];
    if job.rank().0 == 0 {
        good[0] = u32::from(explained(round, &events));
    }
    job.team().broadcast(Rank(0), &mut good)?;
    if good == [1] {
        return Ok(());
    }
    if round.racy {
        return Err(Error::invalid("a history", "nothing explains it, as intended"));
    }
    Err(Error::Misuse { what: "a history", why: format!("nothing explains it; {round:?}") })
}

fn run<T: Word>(job: &Job, round: &Round, clock: &Clock) -> Result<Vec<Event>> {
    if round.sections {
        sections::run::<T>(job, round, clock)
    } else {
        program::run::<T>(job, round, clock)
    }
}

/// The events of all ranks.
fn gather(job: &Job, mine: &[Event]) -> Result<Vec<Event>> {
    let mut most = [mine.len() as u64];
    job.team().allreduce(Op::Max, &mut most)?;
    let row = most[0] as usize * 9;
    let mut coded: Vec<u64> = mine.iter().flat_map(Event::encode).collect();
    coded.resize(row, u64::MAX);
    let mut all = vec![0u64; row * job.size() as usize];
    job.team().allgather(&coded, &mut all)?;
    let (rows, _) = all.as_chunks();
    let rows = rows.iter().filter(|row| row[0] != u64::MAX);
    Ok(rows.map(Event::decode).collect())
}

fn explained(round: &Round, events: &[Event]) -> bool {
    let mut words: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    for event in events {
        words.entry(event.word).or_default().push(*event);
    }
    let mut good = true;
    for (word, events) in words {
        match judge(0, &events) {
            Verdict::Explained => {}
            Verdict::TooLarge => println!("seed {}: word {word} was not judged", round.seed),
            Verdict::Impossible if round.racy => good = false,
            Verdict::Impossible => {
                good = false;
                let mut events = events;
                events.sort_by_key(|event| event.call);
                eprintln!("no order explains word {word} ({}) of {round:?}:", round.way);
                for event in events {
                    eprintln!("    {event:?}");
                }
            }
        }
    }
    good
}
