//! An atomic instruction by somebody whom others can outwait: a word of its own, which they can read, says
//! before that it is under way, and after that it is not. That is all that an update of a window does whose
//! elements may also be updated many at a time (`hither::rma`, the atomic domain): who changes the way has to know
//! when updates by the old one are over.

use crate::bench::block::{APART, Area};
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};

/// Which instruction, and where what was there goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// fetch_add.
    FetchAdd,
    /// fetch_add whose result goes to memory.
    FetchAddKept,
    /// compare_exchange that succeeds.
    CompareSwap,
}

/// Rank 0 at a word that the last rank touched first.
pub struct Announced {
    /// The word, and 128 bytes on what says that it is being updated.
    area: Area,
    update: Update,
    result: Box<u64>,
}

#[inline(always)]
fn said<R>(word: &AtomicU64, update: impl FnOnce() -> R) -> R {
    word.store(1, Relaxed);
    compiler_fence(SeqCst);
    let done = update();
    word.store(0, Release);
    done
}

impl Announced {
    /// One of it.
    pub fn new(crew: &Crew, update: Update) -> Result<Announced> {
        let area = crew.block().take(2 * APART)?;
        if crew.rank() == crew.size() - 1 {
            area.word(0).store(0, Relaxed);
        }
        Ok(Announced { area, update, result: Box::new(0) })
    }
}

impl Side for Announced {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (word, says) = (self.area.word(0), self.area.word(APART));
        let one = black_box(1u64);
        match self.update {
            Update::FetchAdd => {
                let mut total = 0u64;
                let done = meter.run(count, |_| {
                    total = total.wrapping_add(said(says, || word.fetch_add(one, AcqRel)));
                    Ok(())
                });
                black_box(total);
                done
            }
            Update::FetchAddKept => meter.run(count, |_| {
                *black_box(&mut *self.result) = said(says, || word.fetch_add(one, AcqRel));
                Ok(())
            }),
            Update::CompareSwap => {
                let mut old = word.load(Relaxed);
                meter.run(count, |_| {
                    let next = old.wrapping_add(one);
                    old = match said(says, || word.compare_exchange(old, next, AcqRel, Acquire)) {
                        Ok(_) => next,
                        Err(found) => found,
                    };
                    Ok(())
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::with_crew;

    #[test]
    fn who_looks_meanwhile_sees_that_one_is_under_way() {
        let word = AtomicU64::new(0);
        assert_eq!(said(&word, || word.load(Relaxed)), 1);
        assert_eq!(word.load(Relaxed), 0);
    }

    #[test]
    fn every_update_counts_and_is_over_afterwards() {
        for update in [Update::FetchAdd, Update::FetchAddKept, Update::CompareSwap] {
            with_crew(1, |crew| {
                let mut side = Announced::new(&crew, update).unwrap();
                side.lead(400, &mut Meter::whole()).unwrap();
                assert_eq!(side.area.word(0).load(Relaxed), 400);
                assert_eq!(side.area.word(APART).load(Relaxed), 0);
                assert!(*side.result == if update == Update::FetchAddKept { 399 } else { 0 });
            });
        }
    }
}
