//! Epochs of some operations on rank 1's part, under one of the synchronisations.

use super::operation::{Operation, Work, words};
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::rma::LockKind;
use hither::{Rank, Result, Window};

/// Which synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Fence,
    Pscw,
    LockShared,
    LockExclusive,
    /// Lock-all over all epochs, a flush at the end of each.
    LockAll,
}

impl Sync {
    pub const ALL: [Sync; 5] =
        [Sync::Fence, Sync::Pscw, Sync::LockShared, Sync::LockExclusive, Sync::LockAll];

    pub fn name(self) -> &'static str {
        match self {
            Sync::Fence => "fence",
            Sync::Pscw => "post-start-complete-wait",
            Sync::LockShared => "lock shared",
            Sync::LockExclusive => "lock exclusive",
            Sync::LockAll => "flush",
        }
    }

    /// What it is compared with.
    pub fn limit(self) -> &'static str {
        match self {
            Sync::Fence => "flag barrier",
            Sync::Pscw => "flags there and back",
            Sync::LockShared | Sync::LockExclusive => "robust mutex",
            Sync::LockAll => "full fence",
        }
    }
}

/// Epochs of `per_epoch` operations each. An operation of the side is an operation.
pub struct Epochs {
    window: Window<u64>,
    work: Work,
    sync: Sync,
    per_epoch: u64,
    rank: u32,
}

impl Epochs {
    pub fn new(
        crew: &Crew,
        operation: Operation,
        sync: Sync,
        bytes: usize,
        per_epoch: u64,
    ) -> Result<Epochs> {
        let team = crew.job()?.team();
        let window = Window::allocate(team, words(bytes))?;
        let work = Work::new(operation, bytes)?;
        Ok(Epochs { window, work, sync, per_epoch, rank: crew.rank() })
    }
}

impl Side for Epochs {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (window, work, per_epoch) = (&self.window, &mut self.work, self.per_epoch);
        let epochs = count.div_ceil(per_epoch);
        // The last one may be shorter.
        let operations = |epoch: u64| per_epoch.min(count - epoch * per_epoch);
        let target = Rank(1);
        match self.sync {
            Sync::Fence => {
                let mut fence = window.fence()?;
                meter.run(epochs, |epoch| {
                    for _ in 0..operations(epoch) {
                        work.once(&fence)?;
                    }
                    fence.next()
                })?;
                fence.end()
            }
            Sync::Pscw => meter.run(epochs, |epoch| {
                let access = window.start(&[target])?;
                for _ in 0..operations(epoch) {
                    work.once(&access)?;
                }
                access.complete()
            }),
            Sync::LockShared | Sync::LockExclusive => {
                let exclusive = self.sync == Sync::LockExclusive;
                let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
                meter.run(epochs, |epoch| {
                    let lock = window.lock(target, kind)?;
                    for _ in 0..operations(epoch) {
                        work.once(&lock)?;
                    }
                    lock.unlock()
                })
            }
            Sync::LockAll => {
                let all = window.lock_all()?;
                meter.run(epochs, |epoch| {
                    for _ in 0..operations(epoch) {
                        work.once(&all)?;
                    }
                    all.flush(target)
                })?;
                all.unlock_all()
            }
        }
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let epochs = count.div_ceil(self.per_epoch);
        match self.sync {
            Sync::Fence => {
                let mut fence = self.window.fence()?;
                for _ in 0..epochs {
                    fence.next()?;
                }
                fence.end()
            }
            Sync::Pscw if self.rank == 1 => {
                (0..epochs).try_for_each(|_| self.window.post(&[Rank(0)])?.wait())
            }
            _ => Ok(()),
        }
    }
}
