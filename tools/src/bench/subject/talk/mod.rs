//! `p2p`: tagged messages between ranks. Latency by size, no cliff, rate, bandwidth from and to
//! private and shared memory, several pairs, several threads.

mod large;
mod pair;
pub mod pairs;
pub mod threads;

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::handed::{Handed, HandedBack};
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::Ring;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Point, Row, Unit};
use crate::bench::subject::echo::BackAndForth;
use crate::bench::suite;
use hither::Result;
use large::{KINDS, Large};
use pair::{End, Stream};
use pairs::Pairs;

/// The part of one pair.
pub const PAIR: &str = "p2p-pair-part";
/// The part of several.
pub const PAIRS: &str = "p2p-pairs-part";

const BENCH: &str = "p2p";

/// Sizes of latencies, up to 4 KiB those of `lane`, so that the two can be held against each
/// other.
const SIZES: [usize; 15] =
    [8, 16, 32, 40, 64, 128, 256, 512, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// From here on the limit is one copy by the kernel, not two through shared memory.
const LARGE: usize = 64 << 10;

/// `p2p`.
pub fn p2p(options: &Options) -> Result<Vec<Row>> {
    let mut rows = jobs::measure(suite::find(PAIR)?, 2, options)?;
    rows.extend(jobs::measure(suite::find(PAIRS)?, options.ranks.unwrap_or(4), options)?);
    rows.extend(threads::run(options)?);
    Ok(rows)
}

/// Of two ranks.
pub fn pair_cases() -> Vec<Case> {
    let first = |crew: &Crew| {
        let floor = Box::new(PingPong::new(crew, 2)?);
        Ok(Pair { subject: Box::new(BackAndForth::new(End::new(crew, 8)?)), floor })
    };
    let (what, goal) = ("one-way latency", Goal::AtMost(1.6));
    let mut cases =
        vec![Case::latency(BENCH, what, 8, "ping-pong, two lines", goal, first).one_way()];
    for size in SIZES {
        let setup = move |crew: &Crew| {
            let floor: Box<dyn Side> = if size < LARGE {
                Box::new(CopyCells::new(crew, size)?)
            } else {
                Box::new(HandedBack::new(crew, size)?)
            };
            Ok(Pair { subject: Box::new(BackAndForth::new(End::new(crew, size)?)), floor })
        };
        let limit = if size < LARGE { "copy in + copy out" } else { "CMA by the receiver" };
        let point = Point::new("Tagged messages: latency by size", what, "bytes", size as f64);
        let case = Case::latency(BENCH, what, size, limit, Goal::None, setup);
        cases.push(case.one_way().on(point));
    }
    for (size, any, goal) in [
        (8, false, Goal::AtLeast(0.35)),
        (8, true, Goal::None),
        (128, false, Goal::None),
        (512, false, Goal::None),
    ] {
        let setup = move |crew: &Crew| {
            let subject = Box::new(Stream::new(crew, size, any)?);
            Ok(Pair { subject, floor: Box::new(Ring::new(crew, size)?) })
        };
        let what = if any { "message rate, any source" } else { "message rate" };
        let case = Case::latency(BENCH, what, size, "bare ring", goal, setup);
        cases.push(case.counted_in(Unit::MillionPerSecond));
    }
    for kind in &KINDS {
        for size in [64 << 10, 1 << 20, 16 << 20] {
            let setup = move |crew: &Crew| {
                let subject = Box::new(Large::new(crew, size, kind)?);
                Ok(Pair { subject, floor: Box::new(Handed::new(crew, size, kind.way)?) })
            };
            let figure = "Tagged messages: bandwidth by size";
            let point = Point::new(figure, kind.what, "bytes", size as f64);
            let goal = Goal::AtLeast(kind.least);
            let case = Case::latency(BENCH, kind.what, size, kind.way.name(), goal, setup);
            cases.push(case.counted_in(Unit::GigabytesPerSecond).on(point));
        }
    }
    cases
}

/// Of several pairs at once; figures are those of each.
pub fn pairs_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [8, 128, 512] {
        let setup = move |crew: &Crew| {
            let subject = Box::new(Pairs::new(crew, Stream::new(crew, size, false)?)?);
            let floor = Box::new(Pairs::new(
                crew,
                Ring::of_pair(crew, size, |part| Ring::new(part, size))?,
            )?);
            Ok(Pair { subject, floor })
        };
        let what = "message rate of each pair";
        let case = Case::latency(BENCH, what, size, "bare rings", Goal::None, setup);
        cases.push(case.counted_in(Unit::MillionPerSecond));
    }
    cases
}
