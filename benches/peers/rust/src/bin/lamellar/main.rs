//! Lamellar between processes of one machine: its "shmem" backend.
//!
//! ```text
//! LAMELLAR_NUM_PES=n lamellar ...   launch    starts n of itself as its processing elements (PEs), and waits
//!   each, with LAMELLAR_PE_ID too   this      joins, and measures with the others; the first is timed
//!                                   messages  active messages          memory  regions, arrays, collectives
//! ```

mod launch;
mod memory;
mod messages;

use hither_peers::{Args, Measured, Ranks, Unit, Workload};
use lamellar::active_messaging::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// One PE and what it knows of the others.
#[derive(Clone)]
struct Pe {
    world: LamellarWorld,
    number: usize,
    all: usize,
}

impl Pe {
    /// The other one of its pair.
    fn partner(&self) -> usize {
        self.number ^ 1
    }

    /// Of a pair, the one that asks. Without a partner there is nobody to ask.
    fn asks(&self) -> bool {
        self.number.is_multiple_of(2) && self.partner() < self.all
    }

    /// Whose memory it works on.
    fn target(&self) -> usize {
        (self.number + 1) % self.all
    }

    /// Of two, the first works on the other's memory; of more, all work at once.
    fn acts(&self) -> bool {
        self.all > 2 || self.number == 0
    }
}

/// What the first one has told.
static TOLD: AtomicU64 = AtomicU64::new(0);

#[AmData(Clone, Debug)]
struct Tell {
    number: u64,
}

#[am]
impl LamellarAM for Tell {
    async fn exec(&self) {
        TOLD.store(self.number, Ordering::Release);
    }
}

impl Ranks for Pe {
    fn leads(&self) -> bool {
        self.number == 0
    }

    fn meet(&self) {
        self.world.barrier();
    }

    fn tell(&self, number: u64) -> u64 {
        if self.leads() {
            self.world.exec_am_all(Tell { number }).block();
        }
        self.meet();
        let told = TOLD.load(Ordering::Acquire);
        // The next number must not come before this one was read.
        self.meet();
        told
    }
}

/// The most memory that any PE has grown by, in KiB.
static MOST: AtomicU64 = AtomicU64::new(0);

#[AmData(Clone, Debug)]
struct Grown {
    kib: u64,
}

#[am]
impl LamellarAM for Grown {
    async fn exec(&self) {
        MOST.fetch_max(self.kib, Ordering::AcqRel);
    }
}

/// Private pages of mappings without a file, in KiB.
fn private_kib() -> u64 {
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return 0 };
    let (mut sum, mut nameless) = (0, false);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Private_Clean:" | "Private_Dirty:", kib, ..] if nameless => {
                sum += kib.parse().unwrap_or(0);
            }
            // The range, its rights, the offset, the device, the file's number.
            [range, _, _, _, inode, ..] if range.contains('-') => nameless = inode == "0",
            _ => {}
        }
    }
    sum
}

/// Milliseconds on the clock by which whoever started this program knows when that was.
fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64() * 1e3
}

/// Takes the names from the memory that all have mapped: whatever becomes of this job, none of it stays
/// behind. Lamellar would do that at the very end.
fn unname(pe: &Pe) {
    pe.meet();
    if pe.leads() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        for path in paths.filter(|path| path.starts_with("/dev/shm/lamellar_")) {
            // One that is mapped twice has gone by the second time.
            let _ = std::fs::remove_file(path);
        }
    }
    pe.meet();
}

fn main() -> Result<(), Failure> {
    if std::env::var_os("LAMELLAR_PE_ID").is_none() {
        return launch::launch();
    }
    launch::settle_as_pe()?;
    let args = Args::of_program().ok_or("wants BATCH BATCHES NAME:BYTES ...")?;
    private_kib();
    let before = private_kib();
    let world = LamellarWorldBuilder::new().build();
    let pe = Pe { number: world.my_pe(), all: world.num_pes(), world };
    pe.meet();
    let joined = now();
    let kib = private_kib().saturating_sub(before);
    pe.world.exec_am_pe(0, Grown { kib }).block();
    unname(&pe);
    args.measure(&pe, |name, bytes| match name {
        "start" => Some(Measured::Is(joined)),
        "memory" => Some(Measured::Is(MOST.load(Ordering::Acquire) as f64)),
        _ => {
            let workload =
                messages::workload(&pe, name, bytes).or_else(|| memory::workload(&pe, name, bytes));
            // What it works on has been made by now.
            unname(&pe);
            workload.map(Measured::Batches)
        }
    });
    Ok(())
}

/// Of a loop: one operation a turn.
fn plain<'a>(unit: Unit, run: impl FnMut(u64) + 'a) -> Option<Workload<'a>> {
    Some(Workload { run: Box::new(run), steps: 1.0, unit })
}
