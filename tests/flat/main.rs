//! Memory stays flat while one epoch posts millions of operations by packets to targets that are
//! slow: stopped and continued all the time, by signals.
//!
//! ```text
//! flat [--operations N]        10^7 in a release build, 10^6 in a debug build
//! ```
//! What is watched is the private resident memory of every process. It may grow at the beginning,
//! while pools fill; then not any more, however many operations are posted.

#[path = "../support/mod.rs"]
mod support;

use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{Job, Op, Rank, Result, Window};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::options::Options;
use support::ranks;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-flat";
/// Origin and slow targets.
const RANKS: u32 = 3;
/// Of the operations, those after which memory may grow no more.
const WARM: u64 = 10;
/// What may still come: a page here and there, of stacks and the like.
const SLACK: u64 = 1 << 20;
/// Words of each target.
const WORDS: usize = 512;

fn main() {
    let options = Options::read(&["--operations"]);
    let usual = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };
    let operations = options.number("--operations").unwrap_or(usual);
    if options.behind(RANK).is_some() {
        let job = Job::init().expect("joining the job");
        post(&job, operations).unwrap_or_else(|error| panic!("rank {}: {error}", job.rank()));
        job.finish().expect("leaving the job");
        return;
    }
    let began = Instant::now();
    let launcher = ranks::launcher()
        .args([RANK, "--operations", &operations.to_string()])
        .ranks(RANKS)
        .timeout(Duration::from_secs(1200));
    let outcome = ranks::run(launcher);
    print!("{}", ranks::said(&outcome, 0));
    if !ranks::well(&outcome) {
        println!("test {operations} operations in one epoch ... FAILED");
        std::process::exit(1);
    }
    println!("test {operations} operations in one epoch ... ok ({:.1?})", began.elapsed());
}

/// Bytes of a process's memory that are resident and private.
fn private(pid: Pid) -> u64 {
    let path = format!("/proc/{}/statm", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).expect("the memory of a rank");
    let pages: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    (pages[1] - pages[2]) * rustix::param::page_size() as u64
}

fn post(job: &Job, operations: u64) -> Result<()> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    let window = Window::<u64>::builder(job.team()).info(info).allocate(WORDS)?;
    let mine = [getpid().as_raw_nonzero().get() as u64];
    let mut pids = vec![0u64; job.size() as usize];
    job.team().allgather(&mine, &mut pids)?;
    let pids: Vec<Pid> = pids.iter().filter_map(|&pid| Pid::from_raw(pid as i32)).collect();
    let posted = if job.rank().0 == 0 { origin(&window, &pids, operations)? } else { [0; 2] };
    let mut posted = posted;
    job.team().broadcast(Rank(0), &mut posted)?;
    if job.rank().0 > 0 {
        let mut words = vec![0; WORDS];
        window.local().read(0, &mut words)?;
        assert_eq!(words[0], posted[job.rank().index() - 1], "sums of what was posted");
    }
    job.team().barrier()
}

/// Posts to all others in one epoch; returns how much it added to each.
fn origin(window: &Window<u64>, pids: &[Pid], operations: u64) -> Result<[u64; 2]> {
    let over = AtomicBool::new(false);
    let mut added = [0; 2];
    std::thread::scope(|scope| -> Result<()> {
        let slow = scope.spawn(|| hinder(&pids[1..], &over));
        let result = (|| {
            let epoch = window.lock_all()?;
            let mut warm = vec![0; pids.len()];
            let mut most = vec![0; pids.len()];
            for number in 0..operations {
                let which = (number % 2) as usize;
                let target = Rank(which as u32 + 1);
                let word = 1 + (number as usize * 7) % (WORDS - 16);
                match number % 5 {
                    0 | 1 => epoch.accumulate(target, 0, Op::Sum, &[number & 3])?,
                    2 => epoch.put(target, word, &[number; 12])?,
                    _ => epoch.put(target, word, &[number])?,
                }
                added[which] += if number % 5 < 2 { number & 3 } else { 0 };
                if number % 2000 == 0 {
                    for (at, &pid) in pids.iter().enumerate() {
                        most[at] = private(pid).max(most[at]);
                    }
                    if number <= operations / WARM {
                        warm.clone_from(&most);
                    }
                }
            }
            println!("posted; private bytes of the ranks after a tenth {warm:?}, at most {most:?}");
            for (at, most) in most.iter().enumerate() {
                assert!(*most <= warm[at] + SLACK, "rank {at} grew: {} to {most}", warm[at]);
            }
            epoch.flush_all()?;
            epoch.unlock_all()
        })();
        over.store(true, Ordering::Relaxed);
        slow.join().expect("the thread that hinders");
        result
    })?;
    Ok(added)
}

/// Stops and continues processes in turn.
fn hinder(pids: &[Pid], over: &AtomicBool) {
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        let pid = pids[turn % pids.len()];
        let _ = kill_process(pid, Signal::STOP);
        std::thread::sleep(Duration::from_millis(3));
        let _ = kill_process(pid, Signal::CONT);
        std::thread::sleep(Duration::from_millis(2));
        turn += 1;
    }
}
