//! What programs that measure peers written in Rust have in common: the clock, how many operations make a
//! batch, the order of batches, and what is written; as `benches/peers/common.h` has it for C.

use std::io::Write;
use std::time::Instant;

/// What figures are counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of an operation.
    Nanoseconds,
    /// Millions of operations a second.
    MillionPerSecond,
}

/// One workload, on the rank that is timed.
pub struct Workload<'a> {
    /// Does so many turns.
    pub run: Box<dyn FnMut(u64) + 'a>,
    /// Counted operations of a turn.
    pub steps: f64,
    /// What the figure is.
    pub unit: Unit,
}

/// Arguments: nanoseconds of a batch, batches, items.
pub struct Args {
    batch: f64,
    batches: usize,
    /// What to measure, each `NAME:BYTES`.
    pub items: Vec<String>,
}

impl Args {
    /// Those of this program, if they are such.
    pub fn of_program() -> Option<Args> {
        let mut args = std::env::args().skip(1);
        let (batch, batches) = (args.next()?.parse().ok()?, args.next()?.parse().ok()?);
        Some(Args { batch, batches, items: args.collect() })
    }

    /// Measures all items of which `make` has a workload, by name and bytes.
    pub fn measure<'a>(&self, mut make: impl FnMut(&str, usize) -> Option<Workload<'a>>) {
        for item in &self.items {
            let parts =
                item.split_once(':').and_then(|(name, size)| Some((name, size.parse().ok()?)));
            say(&format!("@ {item}"));
            let Some(mut workload) = parts.and_then(|(name, size)| make(name, size)) else {
                say(&format!("? {item}"));
                continue;
            };
            let count = self.calibrate(&mut workload);
            let mut figures: Vec<f64> = (0..self.batches.max(1))
                .map(|_| {
                    let operations = count as f64 * workload.steps;
                    let took = timed(&mut workload, count);
                    match workload.unit {
                        Unit::Nanoseconds => took / operations,
                        Unit::MillionPerSecond => operations * 1e3 / took,
                    }
                })
                .collect();
            figures.sort_by(f64::total_cmp);
            let half = figures.len() / 2;
            let median = match figures.len() % 2 {
                1 => figures[half],
                _ => (figures[half - 1] + figures[half]) / 2.0,
            };
            say(&format!("= {item} {median:.6e}"));
        }
    }

    fn calibrate(&self, workload: &mut Workload<'_>) -> u64 {
        let mut count = 16;
        loop {
            let mut took = timed(workload, count);
            if took >= self.batch / 3.0 {
                took = timed(workload, count);
            }
            if took >= self.batch / 3.0 || count > 1 << 30 {
                return ((count as f64 * self.batch / took) as u64).clamp(4, 1 << 30);
            }
            count = (count as f64 * (self.batch / took).clamp(1.5, 8.0)) as u64;
        }
    }
}

fn timed(workload: &mut Workload<'_>, count: u64) -> f64 {
    let start = Instant::now();
    (workload.run)(count);
    (start.elapsed().as_nanos() as f64).max(1.0)
}

fn say(line: &str) {
    println!("{line}");
    // Whoever reads it may be gone: then nobody wants more.
    let _ = std::io::stdout().flush();
}

/// The cores that this process may use.
pub fn cores() -> Vec<usize> {
    // SAFETY: the set is plain memory of this function's own, of the size that is given.
    let all = unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&all), &mut all);
        all
    };
    // SAFETY: the numbers are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) }).collect()
}

/// Binds this process to one of the cores that it, or who started it, may use, and has it end with whoever
/// started it.
pub fn settle(cores: &[usize], number: usize) {
    let Some(&core) = cores.get(number % cores.len().max(1)) else { return };
    // SAFETY: the set is plain memory of this function's own, of the size that is given, and the core is in it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one);
    }
}
