//! The dimension of synchronisations: opens epochs, lets operations be carried out in them, and
//! returns when they are complete at the targets.

use super::dimension::{Case, Promise, Sync};
use hither::{Assertions, Datum, Epoch, Job, LockKind, Rank, Result, Window};

/// What is done in an epoch to one target.
pub type Body<'b, T> = &'b mut dyn FnMut(&Epoch<'_, T>, Rank) -> Result<()>;

/// Lets `body` access every rank's part under the case's synchronisation. All ranks call it; when
/// it returns this rank's operations are complete.
pub fn access<T: Datum>(
    case: &Case,
    job: &Job,
    window: &Window<T>,
    body: Body<'_, T>,
) -> Result<()> {
    let checked = case.promise != Promise::NoCheck;
    let plain = Assertions { no_check: !checked, ..Assertions::default() };
    let edges = case.promise == Promise::Edges;
    let first = Assertions { no_precede: edges, ..Assertions::default() };
    let last = Assertions { no_succeed: edges, no_store: edges, ..Assertions::default() };
    let everybody: Vec<Rank> = job.team().ranks().collect();
    let unguarded = window.unguarded();
    match case.sync {
        Sync::Fence => {
            let epoch = window.fence_with(first)?;
            every(job, |target| body(&epoch, target))?;
            epoch.end_with(last)
        }
        Sync::FenceNext => {
            let mut epoch = window.fence_with(first)?;
            // One target per phase.
            for target in turns(job) {
                body(&epoch, target)?;
                epoch.next()?;
            }
            epoch.end_with(last)
        }
        Sync::FenceDropped => {
            let epoch = window.fence_with(first)?;
            every(job, |target| body(&epoch, target))?;
            drop(epoch);
            Ok(())
        }
        Sync::LockAll => {
            let epoch = window.lock_all_with(plain)?;
            every(job, |target| body(&epoch, target))?;
            epoch.unlock_all()
        }
        Sync::LockAllFlush => {
            let epoch = window.lock_all_with(plain)?;
            for target in turns(job) {
                body(&epoch, target)?;
                epoch.flush_local(target)?;
                epoch.flush(target)?;
            }
            epoch.flush_local_all()?;
            epoch.flush_all()?;
            epoch.sync();
            epoch.unlock_all()
        }
        Sync::LockShared | Sync::LockExclusive => {
            let shared = case.sync == Sync::LockShared;
            let kind = if shared { LockKind::Shared } else { LockKind::Exclusive };
            for target in turns(job) {
                let epoch = window.lock_with(target, kind, plain)?;
                body(&epoch, target)?;
                epoch.unlock()?;
                // Nobody wants a lock that conflicts: true only if all keep step.
                if !checked && !shared {
                    job.team().barrier()?;
                }
            }
            Ok(())
        }
        Sync::LocksHeld => {
            // Shared locks of all parts at the same time, given back in another order.
            let locks: Result<Vec<_>> = everybody
                .iter()
                .map(|&target| window.lock_with(target, LockKind::Shared, plain))
                .collect();
            let mut locks = locks?;
            for epoch in &locks {
                body(epoch, epoch.target())?;
                epoch.flush()?;
            }
            locks.rotate_left(1);
            locks.into_iter().try_for_each(|epoch| epoch.unlock())
        }
        Sync::Groups | Sync::GroupsTested => {
            let mut exposure = window.post_with(&everybody, plain)?;
            if !checked {
                job.team().barrier()?;
            }
            let epoch = window.start_with(&everybody, plain)?;
            every(job, |target| body(&epoch, target))?;
            epoch.complete()?;
            if case.sync == Sync::Groups {
                return exposure.wait();
            }
            while !exposure.test()? {
                std::thread::yield_now();
            }
            Ok(())
        }
        Sync::GroupsInTurn => {
            // Each rank in turn exposes its part to all others, who access nothing else.
            for target in everybody.iter().copied() {
                let origins: Vec<Rank> =
                    everybody.iter().copied().filter(|&rank| rank != target).collect();
                if job.rank() == target {
                    let exposure = window.post_with(&origins, plain)?;
                    if !checked {
                        job.team().barrier()?;
                    }
                    exposure.wait()?;
                    // Its own operations on its own part.
                    let own = [target];
                    let exposure = window.post(&own)?;
                    let epoch = window.start(&own)?;
                    body(&epoch, target)?;
                    epoch.complete()?;
                    exposure.wait()?;
                } else {
                    if !checked {
                        job.team().barrier()?;
                    }
                    let epoch = window.start_with(&[target], plain)?;
                    body(&epoch, target)?;
                    epoch.complete()?;
                }
            }
            Ok(())
        }
        Sync::FreeFence => {
            unguarded.fence(first)?;
            every(job, |target| body(&unguarded.epoch(target)?, target))?;
            unguarded.fence(Assertions { no_succeed: true, ..last })
        }
        Sync::FreeLockAll => {
            unguarded.lock_all(plain)?;
            every(job, |target| {
                body(&unguarded.epoch(target)?, target)?;
                unguarded.flush(target)
            })?;
            unguarded.flush_all()?;
            unguarded.unlock_all()
        }
        Sync::FreeLock => every(job, |target| {
            let kind = if checked { LockKind::Exclusive } else { LockKind::Shared };
            unguarded.lock(target, kind, plain)?;
            body(&unguarded.epoch(target)?, target)?;
            unguarded.unlock(target)
        }),
        Sync::FreeGroups => {
            unguarded.post(&everybody, plain)?;
            if !checked {
                job.team().barrier()?;
            }
            unguarded.start(&everybody, plain)?;
            every(job, |target| body(&unguarded.epoch(target)?, target))?;
            unguarded.complete()?;
            unguarded.wait()
        }
    }
}

/// The ranks, beginning with the next one: not all at the same target at the same time.
fn turns(job: &Job) -> impl Iterator<Item = Rank> + use<> {
    let (me, size) = (job.rank().0, job.size());
    (1..=size).map(move |step| Rank((me + step) % size))
}

fn every(job: &Job, body: impl FnMut(Rank) -> Result<()>) -> Result<()> {
    turns(job).try_for_each(body)
}
