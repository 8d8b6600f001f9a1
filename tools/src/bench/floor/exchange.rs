//! Everybody's data to everybody, or summed, by hand: what collectives cost at the least.
//!
//! ```text
//! areas   one of `size` bytes for each rank, in shared memory
//!
//! Copied    own buffer -> own area | barrier | others' areas -> own buffer | barrier
//! Mapped                  barrier | others' areas -> own buffer | barrier
//! Reduced   barrier | own area's piece += others' pieces | barrier      (a piece for each rank)
//!           and, if the whole is wanted: others' pieces -> own area | barrier
//! ```
//! Bytes that stay the same would lie in all caches: of large ones an operation is one exchange of
//! bytes that everybody has just written ([`Renewed`]), of small ones two, as a round trip is two
//! messages.

use super::barrier::FlagBarrier;
use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::cell::RefCell;
use std::hint::black_box;

/// What is done with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From private to private buffers, through shared memory.
    Copied,
    /// Out of the others' shared memory.
    Mapped,
    /// Summed in place in shared memory.
    Reduced {
        /// Everybody gets the whole sum, not a piece of it.
        whole: bool,
    },
}

/// All ranks.
pub struct Exchange {
    kind: Kind,
    barrier: FlagBarrier,
    areas: Vec<Area>,
    rank: usize,
    private: Vec<u64>,
}

impl Exchange {
    /// Of `size` bytes for each rank, a multiple of 8. Collective.
    pub fn new(crew: &Crew, size: usize, kind: Kind) -> Result<Exchange> {
        let areas: Result<Vec<Area>> = (0..crew.size()).map(|_| crew.block().take(size)).collect();
        let (areas, rank) = (areas?, crew.rank() as usize);
        let private = vec![1u64; size / 8];
        let mut exchange =
            Exchange { kind, barrier: FlagBarrier::new(crew, false)?, areas, rank, private };
        exchange.copy_in();
        Ok(exchange)
    }

    fn words(&self, rank: usize) -> *mut u64 {
        self.areas[rank].bytes(0, self.private.len() * 8).cast()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.areas.len()).filter(move |rank| *rank != own)
    }

    fn copy_in(&mut self) {
        let (from, to) = (self.private.as_ptr(), self.words(self.rank));
        // SAFETY: both have that length; nobody reads this rank's area before the next barrier.
        unsafe { std::ptr::copy_nonoverlapping(black_box(from), to, self.private.len()) };
    }

    fn copy_out(&mut self) {
        for rank in self.others() {
            let (from, to) = (self.words(rank), self.private.as_mut_ptr());
            // SAFETY: both have that length; the other leaves its area alone until the next
            // barrier.
            unsafe { std::ptr::copy_nonoverlapping(from, black_box(to), self.private.len()) };
        }
    }

    /// The words of which rank `rank` makes the sum.
    fn piece(&self, rank: usize) -> (usize, usize) {
        let (len, ranks) = (self.private.len(), self.areas.len());
        let (start, end) = (rank * len / ranks, (rank + 1) * len / ranks);
        (start, end - start)
    }

    fn sum(&mut self) {
        let (start, len) = self.piece(self.rank);
        for rank in self.others() {
            // SAFETY: inside of both areas. Between two barriers only this rank touches its piece
            // of its own area, and nobody writes to that piece of the others'.
            let (own, other) = unsafe {
                let own = self.words(self.rank).add(start);
                let other = self.words(rank).add(start);
                (std::slice::from_raw_parts_mut(own, len), std::slice::from_raw_parts(other, len))
            };
            for (own, other) in own.iter_mut().zip(other) {
                *own = own.wrapping_add(*other);
            }
        }
    }

    fn spread(&mut self) {
        for rank in self.others() {
            let (start, len) = self.piece(rank);
            // SAFETY: inside of both areas. Between two barriers others read only this rank's own
            // piece of its area, and nobody writes to the other's own piece of its.
            unsafe {
                let (from, to) = (self.words(rank).add(start), self.words(self.rank).add(start));
                std::ptr::copy_nonoverlapping(from, to, len);
            }
        }
    }

    fn once(&mut self) -> Result<()> {
        match self.kind {
            Kind::Copied => {
                self.copy_in();
                self.barrier.once()?;
                self.copy_out();
                self.barrier.once()
            }
            Kind::Mapped => {
                self.barrier.once()?;
                self.copy_out();
                self.barrier.once()
            }
            Kind::Reduced { whole } => {
                self.barrier.once()?;
                self.sum();
                self.barrier.once()?;
                if whole {
                    self.spread();
                    self.barrier.once()?;
                }
                Ok(())
            }
        }
    }
}

impl Side for Exchange {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| self.once().and_then(|()| self.once()))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..2 * count).try_for_each(|_| self.once())
    }
}

/// What everybody does at the same time with data of its own.
pub trait Collective {
    /// Writes the data anew.
    fn renew(&mut self, value: u64);
    /// Does it.
    fn once(&mut self) -> Result<()>;
}

impl Collective for Exchange {
    fn renew(&mut self, value: u64) {
        self.private.fill(value);
        if self.kind != Kind::Copied {
            self.copy_in();
        }
    }

    fn once(&mut self) -> Result<()> {
        Exchange::once(self)
    }
}

/// All ranks write their data anew, meet, and then do it. An operation is one of them, without the
/// writing.
pub struct Renewed<C> {
    inner: C,
    meeting: FlagBarrier,
    turn: u64,
}

impl<C: Collective> Renewed<C> {
    /// Collective.
    pub fn new(crew: &Crew, inner: C) -> Result<Renewed<C>> {
        Ok(Renewed { inner, meeting: FlagBarrier::new(crew, false)?, turn: 0 })
    }

    fn prepare(&mut self) -> Result<()> {
        self.turn += 1;
        self.inner.renew(self.turn);
        self.meeting.once()
    }
}

impl<C: Collective> Side for Renewed<C> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let side = RefCell::new(self);
        meter.parts(count, |_| side.borrow_mut().prepare(), |_| side.borrow_mut().inner.once())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.prepare().and_then(|()| self.inner.once()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::{exercise, with_crew};

    #[test]
    fn everybody_has_everything_or_its_sum() {
        const KINDS: [Kind; 4] = [
            Kind::Copied,
            Kind::Mapped,
            Kind::Reduced { whole: false },
            Kind::Reduced { whole: true },
        ];
        for kind in KINDS {
            with_crew(3, |crew| {
                let mut side = Exchange::new(&crew, 800, kind).unwrap();
                side.private.fill(7 + u64::from(crew.rank()));
                side.copy_in();
                side.once().unwrap();
                let area = side.words(side.rank);
                // SAFETY: nobody writes to this rank's area any more.
                let area = unsafe { std::slice::from_raw_parts(area, 100) };
                let (start, len) = side.piece(side.rank);
                match kind {
                    Kind::Copied | Kind::Mapped => {
                        let last = if crew.rank() == 2 { 8 } else { 9 };
                        assert_eq!(side.private, [last; 100]);
                    }
                    Kind::Reduced { whole: true } => assert_eq!(area, [24; 100]),
                    Kind::Reduced { whole: false } => {
                        assert!(area[start..start + len].iter().all(|word| *word == 24));
                    }
                }
            });
            exercise(2, |crew| Exchange::new(crew, 8000, kind));
            exercise(3, |crew| Renewed::new(crew, Exchange::new(crew, 8000, kind)?));
        }
    }
}
