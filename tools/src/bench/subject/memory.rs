//! Private memory of a process that takes part in a job, for growing jobs: what it has after the
//! first barrier, less what it had before it joined. Nobody communicates.
//!
//! Three figures, of the largest process each:
//! - *allocated*: what the library keeps, as the allocator counts it, small pieces that were freed
//!   and are kept for the next request included (`tests/node_memory` counts without those);
//! - *resident, anonymous*: private pages of heap, stacks and nameless mappings, as `smaps` counts
//!   them: the same in pages, with what the allocator keeps besides;
//! - *resident, all*: private pages of all mappings. Pages of files (this program, the node's
//!   memory) count as private as long as no other process has them mapped; the kernel maps a
//!   program's pages 16 at a time around each that is touched. So this one depends on what the
//!   others happen to have touched, and differs between runs by some multiple of 64 KiB.

use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::{median, summarise};
use crate::bench::suite;
use hither::{Error, Job, Op, Rank, Result};
use std::io::{BufRead, BufReader};

/// Name of the part that runs inside the jobs.
pub const PART: &str = "memory-part";
/// Name of the benchmark.
const NAME: &str = "node-memory";

/// The figures, and what is asked of them: flat where that can be seen to the byte.
const FIGURES: [(&str, Goal); 3] = [
    ("allocated", Goal::Both(1.01, 256.0)),
    ("resident, anonymous", Goal::Value(256.0)),
    ("resident, all", Goal::None),
];

/// Bytes that this process has allocated and not freed.
pub fn allocated() -> f64 {
    // SAFETY: only reads the allocator's own counters.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}

/// The figures of this process in KiB: allocated, resident in anonymous pages, resident in all.
pub fn figures() -> Result<[f64; 3]> {
    // Freed pages that the allocator keeps would hide what is taken from them later.
    // SAFETY: gives back what nobody uses.
    unsafe { libc::malloc_trim(0) };
    let allocated = allocated() / 1024.0;
    let smaps = std::fs::File::open("/proc/self/smaps");
    let figures = smaps.and_then(|smaps| private_kib(BufReader::new(smaps)));
    let (anonymous, all) = figures.map_err(|e| Error::os("reading /proc/self/smaps", e))?;
    Ok([allocated, anonymous, all])
}

/// Private KiB in a text like `smaps`: of anonymous mappings, and of all.
fn private_kib(mut smaps: impl BufRead) -> std::io::Result<(f64, f64)> {
    let (mut anonymous, mut all) = (0.0, 0.0);
    let mut is_anonymous = false;
    // A line at a time: what is looked at must not become what is seen.
    let mut line = String::new();
    while smaps.read_line(&mut line)? > 0 {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or(":"), words.next());
        if !first.ends_with(':') {
            // address, rights, offset, device, inode
            is_anonymous = line.split_whitespace().nth(4) == Some("0");
        } else if first == "Private_Clean:" || first == "Private_Dirty:" {
            let kib = second.and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
            all += kib;
            anonymous += if is_anonymous { kib } else { 0.0 };
        }
        line.clear();
    }
    Ok((anonymous, all))
}

fn heading(bench: &'static str, what: &str) -> Heading {
    Heading {
        bench,
        what: what.to_owned(),
        size: 0,
        limit: "2 ranks",
        unit: "KiB",
        goal: Goal::None,
        point: None,
    }
}

/// The part inside one job.
pub fn part() -> Result<Vec<Row>> {
    // Whatever asking takes is taken before.
    figures()?;
    let before = figures()?;
    let job = Job::init()?;
    job.team().barrier()?;
    let after = figures()?;
    let mut grown: [f64; 3] = std::array::from_fn(|i| after[i] - before[i]);
    // What is asked of one process is asked of the largest.
    job.team().allreduce(Op::Max, &mut grown)?;
    let row = |(&kib, (what, _)): (&f64, (&str, Goal))| {
        heading(PART, what).row(job.size(), summarise(&[(kib, kib)]), None)
    };
    let rows = grown.iter().zip(FIGURES).map(row).collect();
    let leads = job.rank() == Rank(0);
    job.finish()?;
    Ok(if leads { rows } else { vec![] })
}

/// `node-memory`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let sizes: &[u32] = if options.quick { &[2, 16] } else { &[2, 8, 32, 128, 512] };
    let rounds = if options.quick { 1 } else { 3 };
    let mut rows = Vec::new();
    let mut smallest = [None; 3];
    for &ranks in sizes {
        let mut seen: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            let measured = jobs::measure(suite::find(PART)?, ranks, options)?;
            seen.iter_mut().zip(&measured).for_each(|(seen, row)| seen.push(row.value));
        }
        for (i, (what, goal)) in FIGURES.into_iter().enumerate() {
            let value = median(&seen[i]);
            let floor = *smallest[i].get_or_insert(value);
            let mut summary = summarise(&[(value, floor)]);
            summary.rounds = rounds;
            let heading = Heading { goal, ..heading(NAME, what) };
            rows.push(heading.row(ranks, summary, None));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_lines_are_summed_and_others_not() {
        let text = "\
5555-5556 r-xp 00000000 fe:00 1234   /bin/program\n\
Rss:                  90 kB\nPrivate_Clean:        12 kB\nPrivate_Dirty:        30 kB\n\
7777-7778 rw-p 00000000 00:00 0      [heap]\n\
Private_Clean:         0 kB\nPrivate_Dirty:         8 kB\nPrivate_Hugetlb:       7 kB\n\
VmFlags: rd wr mr mw me ac\n\
7779-777a rw-s 00000000 00:01 77     /memfd:hither (deleted)\n\
Private_Dirty:         4 kB\n";
        assert_eq!(private_kib(text.as_bytes()).unwrap(), (8.0, 54.0));
        let [allocated, anonymous, all] = figures().unwrap();
        assert!(allocated > 0.0 && anonymous > 0.0 && all >= anonymous);
    }
}
