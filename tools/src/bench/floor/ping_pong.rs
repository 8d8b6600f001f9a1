//! How long a cache line takes to the other core: a number goes back and forth.
//!
//! One line: both write the same word. Two lines: each writes its own and watches the other's,
//! which is what two rings do.

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Ping-pong between ranks 0 and 1. An operation is a round trip.
pub struct PingPong {
    area: Area,
    /// Where rank 0 writes, and where rank 1 writes.
    words: [usize; 2],
    rank: u32,
    polls: u32,
    turn: u64,
}

impl PingPong {
    /// On `lines` lines, 1 or 2.
    pub fn new(crew: &Crew, lines: usize) -> Result<PingPong> {
        let area = crew.block().take(2 * APART)?;
        let words = [0, if lines == 1 { 0 } else { APART }];
        let (rank, polls) = (crew.rank(), crew.polls());
        Ok(PingPong { area, words, rank, polls, turn: 0 })
    }
}

impl Side for PingPong {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (out, back) = (self.area.word(self.words[0]), self.area.word(self.words[1]));
        let mut turn = self.turn;
        meter.run(count, |_| {
            turn += 2;
            out.store(turn - 1, Release);
            spin_for(self.polls, || back.load(Acquire) == turn)
        })?;
        self.turn = turn;
        Ok(())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.rank != 1 {
            return Ok(());
        }
        let (out, back) = (self.area.word(self.words[0]), self.area.word(self.words[1]));
        for _ in 0..count {
            self.turn += 2;
            let turn = self.turn;
            spin_for(self.polls, || out.load(Acquire) == turn - 1)?;
            back.store(turn, Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn the_ball_comes_back_on_one_and_on_two_lines() {
        exercise(2, |crew| PingPong::new(crew, 1));
        exercise(3, |crew| PingPong::new(crew, 2));
    }
}
