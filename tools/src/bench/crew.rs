//! The ranks that measure together, and how the leader tells the others what to do next.
//!
//! ```text
//! control area      0: sequence of the order   8: side   16: count    written by rank 0
//!          128 * (r): arrived, 64 further on: done                    written by rank r
//!
//! rank 0 (leads)                          the others (follow)
//!   side, count, sequence += 1     --->     see the sequence
//!   wait for all arrived           <---     arrived = sequence
//!   lead(count)                   <--->     follow(count)
//!   wait for all done              <---     done = sequence
//! ```
//! It uses nothing of the library and nothing that is measured, and none of it is timed.

use super::block::{APART, Area, Block};
use crate::demo::threads::Places;
use hither::{Error, Job, Rank, Result};
use rustix::fd::AsRawFd;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The order that ends a comparison.
const END: u64 = u64::MAX;
/// Polls between two looks at the clock.
const POLLS: u32 = 1 << 14;
/// How long to wait for another rank before giving up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Spins until `condition` holds, giving the processor away now and then; an error after a
/// minute. The loop of every limit: one load and one branch per poll.
#[inline(always)]
pub fn spin_until(condition: impl FnMut() -> bool) -> Result<()> {
    spin_for(POLLS, condition)
}

/// The same, giving the processor away after `polls` polls: few where others need it.
#[inline(always)]
pub fn spin_for(polls: u32, mut condition: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..polls {
        if condition() {
            return Ok(());
        }
    }
    spin_on(polls, &mut condition)
}

#[cold]
#[inline(never)]
fn spin_on(polls: u32, condition: &mut dyn FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        std::thread::yield_now();
        for _ in 0..polls {
            if condition() {
                return Ok(());
            }
        }
    }
    Err(Error::TimedOut {
        during: "a benchmark's limit",
        waited: start.elapsed(),
        missing: Vec::new(),
    })
}

/// Waits without keeping others from a core: between orders nothing is measured on this rank, but it may be on
/// others, which `share` cores with it.
fn wait_until(share: bool, mut condition: impl FnMut() -> bool) -> Result<()> {
    let (polls, yields) = if share { (1, 4) } else { (1000, 200) };
    let start = Instant::now();
    for round in 0.. {
        for _ in 0..polls {
            if condition() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if round < yields {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
        if start.elapsed() > PATIENCE {
            break;
        }
    }
    let waited = start.elapsed();
    Err(Error::TimedOut { during: "a benchmark's next step", waited, missing: Vec::new() })
}

/// Cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// What the leader asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take part in a batch of `count` operations of one side.
    Batch {
        /// 0 or 1.
        side: usize,
        /// Operations.
        count: u64,
    },
    /// The comparison is over.
    End,
}

/// The ranks of a measuring job.
pub struct Crew {
    rank: u32,
    size: u32,
    block: Block,
    control: Area,
    sequence: Cell<u64>,
    job: Option<Arc<Job>>,
    /// Whether there are more ranks than cores.
    shares_cores: bool,
    /// Polls, if somebody has chosen them.
    pace: Cell<Option<u32>>,
}

impl Crew {
    /// Sets up the ranks of `job`. Collective.
    pub fn new(job: Job) -> Result<Crew> {
        let mut at = [0u64; 2];
        let own = if job.rank() == Rank(0) {
            let fd = Block::create()?;
            at = [u64::from(std::process::id()), fd.as_raw_fd() as u64];
            Some(fd)
        } else {
            None
        };
        job.team().broadcast(Rank(0), &mut at)?;
        let fd = match own {
            Some(fd) => fd,
            None => Block::open(at[0] as u32, at[1] as i32)?,
        };
        let block = Block::map(&fd)?;
        // Rank 0's descriptor must stay open until the others have opened it.
        job.team().barrier()?;
        // Of all ranks together: each may be bound to one.
        let cores = Places::of(job.team())?.processors().len();
        let crew = Self::assemble(job.rank().0, job.size(), block)?;
        let shares_cores = cores > 0 && job.size() as usize > cores;
        Ok(Crew { job: Some(Arc::new(job)), shares_cores, ..crew })
    }

    /// Sets up one rank of a crew that has no job, on its own mapping of a common block.
    #[cfg(test)]
    pub fn bare(rank: u32, size: u32, block: Block) -> Result<Crew> {
        Self::assemble(rank, size, block)
    }

    fn assemble(rank: u32, size: u32, block: Block) -> Result<Crew> {
        let control = block.take((size as usize + 1) * APART)?;
        let shares_cores = size as usize > cores();
        let (sequence, pace) = (Cell::new(0), Cell::new(None));
        Ok(Crew { rank, size, block, control, sequence, job: None, shares_cores, pace })
    }

    /// The ranks in parts of `members` each, the first ones first: this rank's part as a crew that measures
    /// a limit beside the other parts, in `bytes` of memory of its own. None for ranks that are left over.
    pub fn part(&self, members: u32, bytes: usize) -> Result<Option<Crew>> {
        let (parts, at) = (self.size / members, self.rank / members);
        if parts == 0 {
            return Ok(None);
        }
        let control = (members as usize + 1) * APART;
        let bytes = bytes + control.next_multiple_of(4096);
        let block = self.block.part(at.min(parts - 1) as usize, parts as usize, bytes)?;
        if at >= parts {
            return Ok(None);
        }
        let part = Self::assemble(self.rank % members, members, block)?;
        Ok(Some(Crew { shares_cores: self.shares_cores, pace: self.pace.clone(), ..part }))
    }

    /// Whether this rank measures.
    pub fn leads(&self) -> bool {
        self.rank == 0
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Makes limits that give the processor away after so many polls, where ranks share cores.
    pub fn at_pace<R>(&self, polls: u32, make: impl FnOnce() -> R) -> R {
        let before = self.pace.replace(Some(polls));
        let made = make();
        self.pace.set(before);
        made
    }

    /// How often to poll before giving the processor away, so that ranks which share a core do
    /// not wait for each other's polls.
    pub fn polls(&self) -> u32 {
        match self.pace.get() {
            Some(polls) => polls,
            None if self.shares_cores => 64,
            None => POLLS,
        }
    }

    /// Whether there are more ranks than cores.
    pub fn shares_cores(&self) -> bool {
        self.shares_cores
    }

    /// Memory for limits.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The job the crew measures in.
    pub fn job(&self) -> Result<&Arc<Job>> {
        self.job.as_ref().ok_or_else(|| Error::invalid("bench", "this side needs a job"))
    }

    /// Leaves the job. Collective.
    pub fn finish(self) -> Result<()> {
        // The sides, which may hold on to the job, are gone by now.
        self.job.and_then(Arc::into_inner).map_or(Ok(()), Job::finish)
    }

    fn arrived(rank: u32) -> usize {
        rank as usize * APART
    }

    fn done(rank: u32) -> usize {
        Self::arrived(rank) + 64
    }

    fn await_all(&self, place: fn(u32) -> usize) -> Result<()> {
        let now = self.sequence.get();
        let all = || (1..self.size).all(|r| self.control.word(place(r)).load(Acquire) == now);
        wait_until(self.shares_cores, all)
    }

    /// Leader: ends a comparison, and hands on what came of it. After an error nobody is waited for, who may be
    /// dead; the others must not wait for ever.
    pub fn conclude<R>(&self, outcome: Result<R>) -> Result<R> {
        self.announce(Order::End);
        let value = outcome?;
        self.await_all(Self::arrived)?;
        Ok(value)
    }

    /// Leader: gives an order and waits until everybody has seen it.
    pub fn order(&self, order: Order) -> Result<()> {
        self.announce(order);
        self.await_all(Self::arrived)
    }

    fn announce(&self, order: Order) {
        let (side, count) = match order {
            Order::Batch { side, count } => (side as u64, count),
            Order::End => (END, 0),
        };
        self.sequence.set(self.sequence.get() + 1);
        self.control.word(8).store(side, Relaxed);
        self.control.word(16).store(count, Relaxed);
        self.control.word(0).store(self.sequence.get(), Release);
    }

    /// Leader: waits until everybody is through with the last order.
    pub fn completed(&self) -> Result<()> {
        self.await_all(Self::done)
    }

    /// The others: the next order.
    pub fn next(&self) -> Result<Order> {
        let next = self.sequence.get() + 1;
        wait_until(self.shares_cores, || self.control.word(0).load(Acquire) == next)?;
        self.sequence.set(next);
        let (side, count) =
            (self.control.word(8).load(Relaxed), self.control.word(16).load(Relaxed));
        self.control.word(Self::arrived(self.rank)).store(next, Release);
        Ok(if side == END { Order::End } else { Order::Batch { side: side as usize, count } })
    }

    /// The others: through with the last order.
    pub fn complete(&self) {
        self.control.word(Self::done(self.rank)).store(self.sequence.get(), Release);
    }
}
