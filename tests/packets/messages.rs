//! Active messages in epochs that a death ends: no wait has a deadline, so each ends because of the
//! death or not at all.

use hither::{Error, Handler, Job, LockKind, Placement, Rank, Result, Window};

type Add = Handler<u64, u64, u64>;

/// A handler that adds its input to an element.
fn adding(job: &Job) -> Result<(Window<u64>, Add)> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let add = window.register::<u64, u64>(1, |call| {
        for input in call.input {
            let was = call.persistent.get(0).unwrap_or(0);
            let _ = call.persistent.set(0, was + input);
            call.output.fill(was + input);
        }
    })?;
    job.team().barrier()?;
    Ok((window, add))
}

fn die() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
    unreachable!("SIGKILL cannot be caught")
}

fn died<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::RankDied { rank: Rank(2), .. })), "{result:?}");
}

/// Small messages, which the engine keeps, and large ones, for which it has no room.
const SIZES: [usize; 3] = [1, 40, 3000];

/// Rank 2 dies; rank 1, of the same group, has not posted and does not before rank 0 is through.
pub fn groups_end_after_a_death(job: &Job) -> Result<()> {
    let (window, add) = adding(job)?;
    let me = job.rank();
    if me == Rank(2) {
        die();
    }
    if me == Rank(0) {
        let epoch = window.start(&[Rank(1), Rank(2)])?;
        let input = vec![1000; 3000];
        for target in [Rank(1), Rank(2)] {
            for size in SIZES {
                let message = epoch.message(&add, target).persistent(0..1).segments(size);
                let posted = message.input(&input[..size]).placement(Placement::Target).post();
                if let Err(error) = posted {
                    assert!(error.is_death(), "{error}");
                }
            }
        }
        died(epoch.complete());
    }
    let living = job.team().shrink()?;
    if me == Rank(1) {
        // The post that rank 0 has forgone.
        died(window.post(&[Rank(0)])?.wait());
        assert_eq!(window.local().get(0)?, 0, "nothing of that epoch was done here");
    }
    living.barrier()?;
    for round in 1..4 {
        if me == Rank(1) {
            window.post(&[Rank(0)])?.wait()?;
            assert_eq!(window.local().get(0)?, round * 2);
        } else {
            let epoch = window.start(&[Rank(1)])?;
            let mut sum = [0];
            epoch.am(&add, Rank(1), 0..1, &[1], &mut sum)?;
            assert_eq!(sum, [2 * round - 1]);
            epoch.message(&add, Rank(1)).persistent(0..1).input(&[1]).post()?;
            epoch.complete()?;
        }
        living.barrier()?;
    }
    Ok(())
}

/// Rank 2 dies before the fence that would open the epoch: nothing of it can ever be sent.
pub fn fences_end_after_a_death(job: &Job) -> Result<()> {
    let (window, add) = adding(job)?;
    let me = job.rank();
    if me == Rank(2) {
        die();
    }
    let other = Rank(1 - me.0);
    match window.fence() {
        Ok(epoch) => {
            let input = vec![1000; 3000];
            for size in SIZES {
                let message = epoch.message(&add, other).persistent(0..1).segments(size);
                let posted = message.input(&input[..size]).placement(Placement::Target).post();
                if let Err(error) = posted {
                    assert!(error.is_death(), "{error}");
                }
            }
            died(epoch.end());
        }
        Err(error) => assert!(error.is_death(), "{error}"),
    }
    let living = job.team().shrink()?;
    assert_eq!(window.local().get(0)?, 0, "nothing of that epoch was done here");
    living.barrier()?;
    for round in 1..4 {
        let lock = window.lock(other, LockKind::Exclusive)?;
        let mut sum = [0];
        lock.am(&add, other, 0..1, &[1], &mut sum)?;
        assert_eq!(sum, [2 * round - 1]);
        lock.message(&add, other).persistent(0..1).input(&[1]).post()?;
        lock.unlock()?;
        living.barrier()?;
    }
    Ok(())
}
