//! What a process keeps of its own as a member of a job does not depend on how large the job is:
//! counted by the byte, with an allocator that counts, before anybody communicates.

#[path = "../support/mod.rs"]
mod support;

use hither::Job;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use support::options::Options;
use support::ranks;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-node-memory";
/// More than this is no constant-size state.
const MOST: i64 = 64 << 10;

/// The system's allocator, with a count of the bytes that are out.
struct Counting;

static OUT: AtomicI64 = AtomicI64::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        OUT.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        OUT.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let options = Options::read(&["--most"]);
    if options.behind(RANK).is_some() {
        return rank();
    }
    let most = options.number("--most").unwrap_or(16) as u32;
    let few = bytes_of(2);
    let many = bytes_of(most);
    println!("bytes in each process: {few:?} of 2, {many:?} of {most}");
    let alike = few.iter().chain(&many).all(|bytes| *bytes == few[0]);
    let verdict = if alike && few[0] > 0 && few[0] <= MOST { "ok" } else { "FAILED" };
    println!("test private memory of 2 and of {most} ranks ... {verdict}");
    if verdict != "ok" {
        std::process::exit(1);
    }
}

/// What each process of a job of `size` keeps.
fn bytes_of(size: u32) -> Vec<i64> {
    let launcher = ranks::launcher().args([RANK]).ranks(size).timeout(Duration::from_secs(120));
    let outcome = ranks::run(launcher);
    assert!(ranks::well(&outcome), "a job of {size}");
    (0..size as usize)
        .map(|rank| ranks::said(&outcome, rank).trim().parse().expect("a number of bytes"))
        .collect()
}

fn rank() {
    let before = OUT.load(Ordering::Relaxed);
    let job = Job::init().expect("joining the job");
    // Who has to wait looks for messages meanwhile, and keeps a few bytes from then on: so all do.
    job.link().poll(|_| {}).expect("a look for messages");
    job.team().barrier().expect("the first barrier");
    println!("{}", OUT.load(Ordering::Relaxed) - before);
    job.finish().expect("leaving the job");
}
