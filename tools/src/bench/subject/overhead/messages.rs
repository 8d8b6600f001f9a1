//! The two-sided transfers of paper 002: isend or irecv, work, wait. Which side comes first is
//! fixed by two words of raw shared memory, as the library's protocol depends on it.
//!
//! ```text
//! rank 0 first                               rank 1 first
//! 0   post; begun; work; wait   timed        ...waits for "there"... post; work; wait   timed
//! 1   ...waits for "begun"... its side       its side posted; there; waits for it
//!
//! flags   0: begun (rank 0)   128: there (rank 1)
//! ```
//! The library lets whoever comes second copy, so that a side which came first has its time for
//! itself.

use super::{AVAILABILITY, REPEATS, Titles, Transfer, sweep};
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::overhead::Outcome;
use crate::bench::row::{Goal, Row};
use crate::bench::subject::variants::{self, Sweep, Table, Variant};
use hither::{Error, Rank, Result, Team};
use std::sync::atomic::Ordering::{Acquire, Release};

/// The part inside the jobs.
pub const PART: &str = "overhead-messages-part";

const MODES: &[Variant] = &[
    Variant { name: "adaptive", settings: &[] },
    Variant { name: "fixed", settings: &[("HITHER_EAGER", "fixed")] },
    Variant {
        name: "fixed, no single copy",
        settings: &[("HITHER_EAGER", "fixed"), ("HITHER_CMA", "0")],
    },
];

/// Modes that are held against the goal: those in which somebody can copy.
const JUDGED: usize = 2;
/// What names of transfers end with whose side came first.
const FIRST: &str = "peer late";

/// Sends and receives, in each of the modes.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let sweep = Sweep { bench: "overhead", part: PART, ranks: 2, variants: MODES };
    let mut rows = variants::run(&sweep, options)?;
    let of_goal = format!("{FIRST}{AVAILABILITY}");
    for row in &mut rows {
        let judged = MODES[..JUDGED].iter().any(|mode| {
            let name = row.what.strip_prefix(mode.name);
            name.is_some_and(|name| name.starts_with(": ") && name.ends_with(&of_goal))
        });
        if judged && row.size == 1 << 20 {
            row.judge(Goal::Least(95.0));
        }
    }
    Ok(rows)
}

const TAG: u32 = 2;

/// One of the four.
struct Message<'c> {
    crew: &'c Crew,
    name: &'static str,
    /// Rank 0 sends, and rank 1 receives.
    sends: bool,
    /// Rank 0 comes first.
    first: bool,
    flags: Area,
    /// Absent while a request has it.
    buffer: Option<Vec<u8>>,
    turn: u64,
}

impl<'c> Message<'c> {
    fn new(crew: &'c Crew, name: &'static str, sends: bool, first: bool) -> Result<Message<'c>> {
        let flags = crew.block().take(2 * APART)?;
        Ok(Message { crew, name, sends, first, flags, buffer: Some(Vec::new()), turn: 0 })
    }

    fn buffer(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let lost = || Error::invalid("bench", "a buffer was lost by an earlier error");
        let mut buffer = self.buffer.take().ok_or_else(lost)?;
        if buffer.len() != bytes {
            buffer = vec![1; bytes];
        }
        Ok(buffer)
    }

    fn await_flag(&self, at: usize) -> Result<()> {
        let (flag, turn) = (self.flags.word(at), self.turn);
        spin_for(self.crew.polls(), || flag.load(Acquire) == turn)
    }

    /// Post, whatever comes between, wait.
    fn side(
        &mut self,
        (bytes, peer, sends): (usize, Rank, bool),
        between: impl FnOnce(&Self),
    ) -> Result<()> {
        let buffer = self.buffer(bytes)?;
        let team: &Team = self.crew.job()?.team();
        let back = if sends {
            let request = team.isend(peer, TAG, buffer)?;
            between(self);
            request.wait()?
        } else {
            let request = team.irecv(peer, TAG, buffer)?;
            between(self);
            request.wait()?.0
        };
        self.buffer = Some(back);
        Ok(())
    }
}

impl Transfer for Message<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ready(&mut self) -> Result<()> {
        self.turn += 1;
        if self.first { Ok(()) } else { self.await_flag(APART) }
    }

    fn lead(&mut self, bytes: usize, work: &mut dyn FnMut()) -> Result<()> {
        self.side((bytes, Rank(1), self.sends), |side| {
            side.flags.word(0).store(side.turn, Release);
            work();
        })
    }

    fn follow(&mut self, bytes: usize) -> Result<()> {
        self.turn += 1;
        if self.first {
            self.await_flag(0)?;
        }
        self.side((bytes, Rank(0), !self.sends), |side| {
            side.flags.word(APART).store(side.turn, Release);
        })
    }
}

/// One of the four alone, for comparisons with others' programs (`benches/peers/overhead.c`): whether
/// rank 0 sends, and whether it comes first. Collective; rank 0 has the outcome.
pub fn alone(crew: &Crew, (sends, first): (bool, bool), bytes: usize) -> Result<Outcome> {
    let table = Table::new(crew, Effort::QUICK)?;
    let mut message = Message::new(crew, "", sends, first)?;
    super::measure(crew, &table, &mut message, (bytes, REPEATS))
}

/// Inside a job: all four, by size.
pub fn part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let titles = Titles {
        overhead: "Overhead of isend and irecv, by size (002, figures 3 and 5)",
        availability: "Application availability of isend and irecv, by size (002, figures 4 and 6)",
    };
    let mut send_first = Message::new(crew, "isend, peer late", true, true)?;
    let mut send_second = Message::new(crew, "isend, peer there", true, false)?;
    let mut receive_first = Message::new(crew, "irecv, peer late", false, true)?;
    let mut receive_second = Message::new(crew, "irecv, peer there", false, false)?;
    let transfers: &mut [&mut dyn Transfer] =
        &mut [&mut send_first, &mut send_second, &mut receive_first, &mut receive_second];
    sweep(crew, effort, transfers, &titles)
}
