//! The dimension of synchronisations: opens epochs, lets operations be carried out in them, and
//! returns when they are complete at the targets.

use super::dimension::{Case, Sync};
use hither::{Datum, Epoch, Job, Rank, Result, Window};

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
    match case.sync {
        Sync::Fence => {
            let epoch = window.fence()?;
            every(job, |target| body(&epoch, target))?;
            epoch.end()
        }
        Sync::FenceNext => {
            let mut epoch = window.fence()?;
            // One target per phase.
            for target in turns(job) {
                body(&epoch, target)?;
                epoch.next()?;
            }
            epoch.end()
        }
        Sync::LockAll => {
            let epoch = window.lock_all()?;
            every(job, |target| body(&epoch, target))?;
            epoch.unlock_all()
        }
        Sync::LockAllFlush => {
            let epoch = window.lock_all()?;
            for target in turns(job) {
                body(&epoch, target)?;
                epoch.flush(target)?;
            }
            epoch.flush_all()?;
            epoch.unlock_all()
        }
    }
}

/// The ranks, beginning with the next one: not all at the same target at the same time.
fn turns(job: &Job) -> impl Iterator<Item = Rank> {
    let (me, size) = (job.rank().0, job.size());
    (1..=size).map(move |step| Rank((me + step) % size))
}

fn every(job: &Job, body: impl FnMut(Rank) -> Result<()>) -> Result<()> {
    turns(job).try_for_each(body)
}
