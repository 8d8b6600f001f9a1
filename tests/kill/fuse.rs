//! Dying at a point of the work: ranks call [`at`] where they hold something or are inside
//! something, and the one that was told to dies there.

use super::campaign::{MISSED, VICTIM};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest time that a victim looks for its point.
const PATIENCE: Duration = Duration::from_secs(20);

struct Fuse {
    point: String,
    left: AtomicU64,
}

static FUSE: OnceLock<Fuse> = OnceLock::new();

/// Lights the fuse if the arguments say that this rank is to die.
pub fn light(args: &[String], rank: u32) {
    let Some(at) = args.iter().position(|arg| arg == VICTIM) else { return };
    let [_, victim, point, times] = &args[at..at + 4] else { return };
    if victim.parse() != Ok(rank) {
        return;
    }
    let left = AtomicU64::new(times.parse().expect("a number of passes"));
    let _ = FUSE.set(Fuse { point: point.clone(), left });
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        eprintln!("this rank {MISSED}");
        die();
    });
}

/// Passes a point.
pub fn at(point: &str) {
    if let Some(fuse) = FUSE.get()
        && fuse.point == point
        && fuse.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        die();
    }
}

fn die() {
    let me = rustix::process::getpid();
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
}
