//! Collectives, and the fence of a window.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::meter::Meter;
use crate::bench::row::Goal;
use hither::coll::Team;
use hither::{Error, Op, Result, Window};

struct Barrier(Team);

impl Side for Barrier {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| self.0.barrier())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.0.barrier())
    }
}

struct Allreduce(Team);

impl Allreduce {
    #[inline(always)]
    fn once(&self, i: u64) -> Result<()> {
        let mut value = [i];
        self.0.allreduce(Op::Sum, &mut value)?;
        if value[0] != i * u64::from(self.0.size()) {
            return Err(Error::invalid("bench", "the all-reduce is wrong"));
        }
        Ok(())
    }
}

impl Side for Allreduce {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |i| self.once(i))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|i| self.once(i))
    }
}

struct Fence(Window<u64>);

impl Side for Fence {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let mut epoch = self.0.fence()?;
        meter.run(count, |_| epoch.next())?;
        epoch.end()
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let mut epoch = self.0.fence()?;
        for _ in 0..count {
            epoch.next()?;
        }
        epoch.end()
    }
}

fn against_flags<S: Side + 'static>(
    make: impl Fn(&Crew) -> Result<S>,
    reduce: bool,
) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        Ok(Pair {
            subject: Box::new(make(crew)?),
            floor: Box::new(FlagBarrier::new(crew, reduce)?),
        })
    }
}

/// `barrier`.
pub fn barrier() -> Vec<Case> {
    let goal = Goal::AtMost(1.3);
    let barrier = |crew: &Crew| Ok(Barrier(crew.job()?.team().clone()));
    let fence = |crew: &Crew| Ok(Fence(Window::allocate(crew.job()?.team(), 1)?));
    vec![
        Case::latency("barrier", "barrier", 0, "flag barrier", goal, against_flags(barrier, false)),
        Case::latency(
            "barrier",
            "empty fence",
            0,
            "flag barrier",
            goal,
            against_flags(fence, false),
        ),
    ]
}

/// `allreduce`.
pub fn allreduce() -> Vec<Case> {
    let goal = Goal::AtMost(1.3);
    let make = |crew: &Crew| Ok(Allreduce(crew.job()?.team().clone()));
    vec![Case::latency("allreduce", "sum", 8, "flag all-reduce", goal, against_flags(make, true))]
}
