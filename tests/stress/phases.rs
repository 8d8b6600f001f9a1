//! The phases: all ranks do the same kind at the same time, with random numbers of their own, and
//! check at the end that nothing was lost.

use super::support::random::Random;
use super::watch::Watch;
use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{Datum, Job, LockKind, Op, Rank, Result, Team, Window};

/// What a phase has.
pub struct Stage<'s> {
    pub job: &'s Job,
    pub way: &'s str,
    pub watch: &'s Watch,
}

type Phase = fn(&Stage<'_>, u64) -> Result<()>;

pub const PHASES: &[(&str, Phase)] = &[
    ("fences", fences),
    ("counters under lock_all", counters),
    ("a lock by compare_and_swap", cas_lock),
    ("locks", locks),
    ("groups", groups),
    ("active messages", messages),
    ("windows come and go", come_and_go),
    ("windows of parts of the team", halves),
    ("large and small accumulates", sizes),
];

impl Stage<'_> {
    fn team(&self) -> &Team {
        self.job.team()
    }

    fn window<T: Datum>(&self, team: &Team, len: usize) -> Result<Window<T>> {
        self.watch.step("allocating a window");
        let medium = if self.way == "packets" { Medium::Packets } else { Medium::Auto };
        Window::builder(team).info(Info { medium, ..Info::default() }).allocate(len)
    }

    /// Random numbers of this rank.
    fn random(&self, seed: u64) -> Random {
        Random::new(seed ^ (u64::from(self.job.rank().0) + 1) << 40)
    }

    fn any(&self, random: &mut Random) -> Rank {
        Rank(random.below(self.job.size().into()) as u32)
    }

    fn barrier(&self) -> Result<()> {
        self.watch.step("barrier");
        self.team().barrier()
    }

    /// The sum of what all ranks have.
    fn sum(&self, value: u64) -> Result<u64> {
        self.watch.step("adding up");
        let mut sum = [value];
        self.team().allreduce(Op::Sum, &mut sum)?;
        Ok(sum[0])
    }
}

fn fences(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let size = stage.job.size() as usize;
    let me = stage.job.rank();
    let window = stage.window::<u64>(stage.team(), size)?;
    let rounds = 1 + Random::new(seed).below(20);
    stage.watch.step("opening a fence epoch");
    let mut epoch = window.fence()?;
    for round in 0..rounds {
        for target in stage.team().ranks() {
            epoch.put(target, me.index(), &[round << 32 | u64::from(me.0)])?;
        }
        stage.watch.step("fence after the puts");
        epoch.next()?;
        for origin in 0..size {
            let got = window.local().get(origin)?;
            assert_eq!(got, round << 32 | origin as u64, "what rank {origin} put");
        }
        stage.watch.step("fence after the look");
        epoch.next()?;
    }
    epoch.end()
}

fn counters(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut random = stage.random(seed);
    let window = stage.window::<u64>(stage.team(), 4)?;
    stage.watch.step("lock_all");
    let epoch = window.lock_all()?;
    let mut added = 0;
    for _ in 0..random.below(300) {
        let target = stage.any(&mut random);
        let amount = random.below(1000);
        match random.below(3) {
            0 => epoch.accumulate(target, 0, Op::Sum, &[amount, 0])?,
            1 => drop(epoch.fetch_and_op(target, 0, Op::Sum, amount)?),
            _ => {
                let mut old = epoch.fetch_and_op(target, 0, Op::NoOp, 0)?;
                loop {
                    let found = epoch.compare_and_swap(target, 0, old, old + amount)?;
                    if found == old {
                        break;
                    }
                    old = found;
                }
            }
        }
        added += amount;
        if random.below(10) == 0 {
            stage.watch.step("flush");
            epoch.flush(target)?;
        }
    }
    stage.watch.step("unlock_all");
    epoch.unlock_all()?;
    stage.barrier()?;
    let there = stage.sum(window.local().get(0)?)?;
    assert_eq!(there, stage.sum(added)?, "what is there, what was added");
    Ok(())
}

fn cas_lock(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut random = stage.random(seed);
    let window = stage.window::<u64>(stage.team(), 2)?;
    let host = Rank(Random::new(seed).below(stage.job.size().into()) as u32);
    let times = random.below(20);
    let epoch = window.lock_all()?;
    for _ in 0..times {
        stage.watch.step("taking a lock by compare_and_swap");
        while epoch.compare_and_swap(host, 0, 0, 1)? != 0 {
            std::thread::yield_now();
        }
        let mut count = [0];
        epoch.get(host, 1, &mut count)?;
        epoch.put(host, 1, &[count[0] + 1])?;
        epoch.flush(host)?;
        assert_eq!(epoch.compare_and_swap(host, 0, 1, 0)?, 1);
    }
    epoch.unlock_all()?;
    stage.barrier()?;
    let there = if stage.job.rank() == host { window.local().get(1)? } else { 0 };
    assert_eq!(stage.sum(there)?, stage.sum(times)?);
    Ok(())
}

fn messages(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut random = stage.random(seed);
    // On mapped memory whatever the way of the others.
    let window = Window::<u64>::allocate(stage.team(), 1)?;
    stage.watch.step("registering a handler");
    let add = window.register::<u64, u64>(1, |call| {
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + call.input[0]);
        call.output[0] = old;
    })?;
    let epoch = window.lock_all()?;
    let mut added = 0;
    for _ in 0..random.below(200) {
        let target = stage.any(&mut random);
        let amount = random.below(9);
        stage.watch.step("an active message");
        epoch.am(&add, target, 0..1, &[amount], &mut [0])?;
        added += amount;
    }
    epoch.unlock_all()?;
    stage.barrier()?;
    let there = stage.sum(window.local().get(0)?)?;
    assert_eq!(there, stage.sum(added)?);
    Ok(())
}

fn come_and_go(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut common = Random::new(seed);
    let mut held: Vec<Window<u32>> = Vec::new();
    for round in 0..1 + common.below(12) {
        if held.len() > 3 {
            let window = held.swap_remove(common.below(held.len() as u64) as usize);
            stage.watch.step("freeing a window");
            // Some are freed together, some are dropped.
            if common.below(2) == 0 {
                window.free()?;
            }
        }
        let len = 1 + common.below(20_000) as usize;
        let window = stage.window::<u32>(stage.team(), len)?;
        assert_eq!(window.local().get(len - 1)?, 0, "a fresh window is not zero");
        let next = Rank((stage.job.rank().0 + 1) % stage.job.size());
        stage.watch.step("fence on a fresh window");
        let mut epoch = window.fence()?;
        epoch.put(next, len - 1, &[round as u32 + 1])?;
        stage.watch.step("second fence on a fresh window");
        epoch.next()?;
        assert_eq!(window.local().get(len - 1)?, round as u32 + 1);
        epoch.end()?;
        held.push(window);
    }
    drop(held);
    stage.barrier()
}

/// Different parts of the team work on windows of their own, without knowing of each other.
fn halves(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let colours = 1 + Random::new(seed).below(3) as u32;
    let me = stage.job.rank().0;
    stage.watch.step("split");
    let Some(part) = stage.team().split(Some(me % colours), me)? else { return Ok(()) };
    let window = stage.window::<u64>(&part, 3)?;
    let rounds = 10 + u64::from(me % colours) * 30;
    let epoch = window.lock_all()?;
    for round in 0..rounds {
        let target = Rank((round % u64::from(part.size())) as u32);
        epoch.accumulate(target, 1, Op::Sum, &[1])?;
    }
    epoch.unlock_all()?;
    stage.watch.step("barrier of a part");
    part.barrier()?;
    let mut sum = [window.local().get(1)?];
    part.allreduce(Op::Sum, &mut sum)?;
    assert_eq!(sum[0], rounds * u64::from(part.size()));
    drop(window);
    drop(part);
    stage.barrier()
}

/// Large accumulates over the same elements as small ones.
fn sizes(stage: &Stage<'_>, seed: u64) -> Result<()> {
    const LEN: usize = 5000;
    let mut random = stage.random(seed);
    let window = stage.window::<i64>(stage.team(), LEN)?;
    let epoch = window.lock_all()?;
    let mut added = 0;
    for _ in 0..random.below(40) {
        let target = stage.any(&mut random);
        let count =
            if random.below(2) == 0 { 1 + random.below(3) } else { random.below(LEN as u64) };
        let start = random.below((LEN as u64) - count) as usize;
        stage.watch.step("accumulate");
        epoch.accumulate(target, start, Op::Sum, &vec![3; count as usize])?;
        added += 3 * count;
    }
    epoch.unlock_all()?;
    stage.barrier()?;
    let mut mine = vec![0; LEN];
    window.local().read(0, &mut mine)?;
    let there = stage.sum(mine.iter().sum::<i64>() as u64)?;
    assert_eq!(there, stage.sum(added)?);
    Ok(())
}

/// Pairs of words that are changed together under exclusive locks, looked at under shared ones.
fn locks(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut random = stage.random(seed);
    let window = stage.window::<u64>(stage.team(), 3)?;
    let mut changed = 0;
    for _ in 0..random.below(60) {
        let target = stage.any(&mut random);
        let mut words = [0; 2];
        match random.below(4) {
            0 | 1 => {
                stage.watch.step("an exclusive lock");
                let epoch = window.lock(target, LockKind::Exclusive)?;
                epoch.get(target, 0, &mut words)?;
                assert_eq!(words[0], words[1], "half a change seen under an exclusive lock");
                epoch.put(target, 0, &[words[0] + 1])?;
                if random.below(3) == 0 {
                    std::thread::yield_now();
                }
                epoch.put(target, 1, &[words[1] + 1])?;
                stage.watch.step("unlocking");
                epoch.unlock()?;
                changed += 1;
            }
            2 => {
                stage.watch.step("a shared lock");
                let epoch = window.lock(target, LockKind::Shared)?;
                epoch.get(target, 0, &mut words)?;
                assert_eq!(words[0], words[1], "half a change seen under a shared lock");
                epoch.accumulate(target, 2, Op::Sum, &[1])?;
                epoch.unlock()?;
            }
            _ => {
                stage.watch.step("lock_all");
                let epoch = window.lock_all()?;
                epoch.get(target, 0, &mut words)?;
                assert_eq!(words[0], words[1], "half a change seen under lock_all");
                stage.watch.step("unlock_all");
                epoch.unlock_all()?;
            }
        }
    }
    stage.barrier()?;
    let there = stage.sum(window.local().get(1)?)?;
    assert_eq!(there, stage.sum(changed)?);
    Ok(())
}

/// Rings of different widths, round after round without a barrier.
fn groups(stage: &Stage<'_>, seed: u64) -> Result<()> {
    let mut common = Random::new(seed);
    let (me, size) = (stage.job.rank().0, stage.job.size());
    let width = 1 + common.below(3).min(u64::from(size) - 1) as u32;
    let targets: Vec<Rank> = (1..=width).map(|by| Rank((me + by) % size)).collect();
    let origins: Vec<Rank> = (1..=width).map(|by| Rank((me + size - by) % size)).collect();
    let window = stage.window::<u64>(stage.team(), size as usize)?;
    for round in 1..=1 + common.below(15) {
        stage.watch.step("post");
        let mut exposure = window.post(&origins)?;
        stage.watch.step("start");
        let epoch = window.start(&targets)?;
        for &target in &targets {
            epoch.put(target, me as usize, &[round])?;
        }
        stage.watch.step("complete");
        epoch.complete()?;
        stage.watch.step("wait for the origins");
        if round % 2 == 0 {
            exposure.wait()?;
        } else {
            while !exposure.test()? {
                std::thread::yield_now();
            }
        }
        for origin in &origins {
            let got = window.local().get(origin.index())?;
            assert_eq!(got, round, "what rank {origin} put");
        }
    }
    stage.barrier()
}
