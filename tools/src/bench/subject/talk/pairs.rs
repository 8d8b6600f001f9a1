//! Several pairs of ranks at once: each even rank streams to the odd one above it.
//!
//! ```text
//! flags  128 p: batches that the sender of pair p has seen through    (p from 1 on)
//! ```
//! Rank 0 counts its own batch and waits for those of the other senders.

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::floor::ring::Ring;
use crate::bench::meter::Meter;
use hither::Result;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Two ends of a stream, one of which a rank is.
pub trait Streaming {
    /// Sends so many messages and returns when all have arrived.
    fn produce(&mut self, count: u64) -> Result<()>;
    /// Takes so many.
    fn consume(&mut self, count: u64) -> Result<()>;
}

impl Streaming for Ring {
    fn produce(&mut self, count: u64) -> Result<()> {
        Ring::produce(self, count)
    }

    fn consume(&mut self, count: u64) -> Result<()> {
        Ring::consume(self, count)
    }
}

/// All pairs. An operation is one message of each.
pub struct Pairs<S> {
    stream: S,
    flags: Area,
    rank: u32,
    pairs: u32,
    polls: u32,
    turn: u64,
}

impl<S: Streaming> Pairs<S> {
    /// Of this rank's end of its pair's stream.
    pub fn new(crew: &Crew, stream: S) -> Result<Pairs<S>> {
        let pairs = crew.size() / 2;
        let flags = crew.block().take(pairs as usize * APART)?;
        Ok(Pairs { stream, flags, rank: crew.rank(), pairs, polls: crew.polls(), turn: 0 })
    }
}

impl<S: Streaming> Side for Pairs<S> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        self.turn += 1;
        meter.batch(|| {
            self.stream.produce(count)?;
            (1..self.pairs).try_for_each(|pair| {
                let flag = self.flags.word(pair as usize * APART);
                spin_for(self.polls, || flag.load(Acquire) == self.turn)
            })
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        self.turn += 1;
        if self.rank % 2 == 1 {
            return self.stream.consume(count);
        }
        self.stream.produce(count)?;
        self.flags.word(self.rank as usize / 2 * APART).store(self.turn, Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn every_pair_has_a_ring_of_its_own() {
        for ranks in [2, 4, 6] {
            exercise(ranks, |crew| {
                Pairs::new(crew, Ring::of_pair(crew, 8, |part| Ring::new(part, 8))?)
            });
        }
    }
}
