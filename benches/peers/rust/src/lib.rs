//! What programs that measure peers written in Rust have in common: who measures together, the clock, how
//! many operations make a batch, the order of batches, and what is written; as `benches/peers/common.h` has
//! it for C.

use std::io::Write;
use std::time::Instant;

/// What figures are counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of an operation.
    Nanoseconds,
    /// Millions of operations a second.
    MillionPerSecond,
    /// Gigabytes a second, of the item's bytes.
    GigabytesPerSecond,
}

/// One workload, on one rank.
pub struct Workload<'a> {
    /// Does so many turns.
    pub run: Box<dyn FnMut(u64) + 'a>,
    /// Counted operations of a turn.
    pub steps: f64,
    /// What the figure is.
    pub unit: Unit,
}

/// How there will be a figure.
pub enum Measured<'a> {
    /// By batches of a workload, of which the median is taken.
    Batches(Workload<'a>),
    /// It is known.
    Is(f64),
}

/// Processes that measure together: all are asked for the same workloads, and one of them is timed.
pub trait Ranks {
    /// Whether this one is timed, and says what there is to say.
    fn leads(&self) -> bool;
    /// Returns when all have come here.
    fn meet(&self);
    /// On all the number of the one that leads.
    fn tell(&self, number: u64) -> u64;
}

/// One process that is timed, whatever others it may have.
pub struct Alone;

impl Ranks for Alone {
    fn leads(&self) -> bool {
        true
    }

    fn meet(&self) {}

    fn tell(&self, number: u64) -> u64 {
        number
    }
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

    /// Measures all items for which `make` has something, by name and bytes, and on all ranks the same.
    pub fn measure<'a>(
        &self,
        ranks: &impl Ranks,
        mut make: impl FnMut(&str, usize) -> Option<Measured<'a>>,
    ) {
        let say = |line: &str| {
            if ranks.leads() {
                say(line);
            }
        };
        for item in &self.items {
            let parts =
                item.split_once(':').and_then(|(name, size)| Some((name, size.parse().ok()?)));
            say(&format!("@ {item}"));
            let made = parts.and_then(|(name, size)| Some((make(name, size)?, size)));
            match made {
                None => say(&format!("? {item}")),
                Some((Measured::Is(figure), _)) => say(&format!("= {item} {figure:.6}")),
                Some((Measured::Batches(mut workload), size)) => {
                    if ranks.leads() {
                        let figure = self.lead(ranks, &mut workload, size);
                        say(&format!("= {item} {figure:.6e}"));
                    } else {
                        follow(ranks, &mut workload);
                    }
                }
            }
        }
    }

    /// All batches, on the rank that is timed.
    fn lead(&self, ranks: &impl Ranks, workload: &mut Workload<'_>, size: usize) -> f64 {
        let count = self.calibrate(ranks, workload);
        let mut figures: Vec<f64> = (0..self.batches.max(1))
            .map(|_| {
                let operations = count as f64 * workload.steps;
                let took = batch(ranks, workload, count);
                match workload.unit {
                    Unit::Nanoseconds => took / operations,
                    Unit::MillionPerSecond => operations * 1e3 / took,
                    Unit::GigabytesPerSecond => operations * size as f64 / took,
                }
            })
            .collect();
        ranks.tell(0);
        figures.sort_by(f64::total_cmp);
        let half = figures.len() / 2;
        match figures.len() % 2 {
            1 => figures[half],
            _ => (figures[half - 1] + figures[half]) / 2.0,
        }
    }

    fn calibrate(&self, ranks: &impl Ranks, workload: &mut Workload<'_>) -> u64 {
        let mut count = 16;
        loop {
            let mut took = batch(ranks, workload, count);
            if took >= self.batch / 3.0 {
                took = batch(ranks, workload, count);
            }
            if took >= self.batch / 3.0 || count > 1 << 30 {
                return ((count as f64 * self.batch / took) as u64).clamp(4, 1 << 30);
            }
            count = (count as f64 * (self.batch / took).clamp(1.5, 8.0)) as u64;
        }
    }
}

/// One batch of `count` turns, on the rank that is timed: its nanoseconds.
fn batch(ranks: &impl Ranks, workload: &mut Workload<'_>, count: u64) -> f64 {
    ranks.tell(count);
    ranks.meet();
    let start = Instant::now();
    (workload.run)(count);
    let took = start.elapsed().as_nanos() as f64;
    ranks.meet();
    took.max(1.0)
}

/// The same batches on another rank, until there are no more.
fn follow(ranks: &impl Ranks, workload: &mut Workload<'_>) {
    loop {
        let count = ranks.tell(0);
        if count == 0 {
            return;
        }
        ranks.meet();
        (workload.run)(count);
        ranks.meet();
    }
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

/// Binds this process to `cores`, if there are any, and has it end with whoever started it.
pub fn settle(cores: &[usize]) {
    // SAFETY: the set is plain memory of this function's own, of the size that is given, and the cores, which
    // come from such a set, are in it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if cores.is_empty() {
            return;
        }
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(core, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
