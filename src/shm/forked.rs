//! What becomes of a rank's shared memory in a child that it forks off without an exec.
//!
//! ```text
//!                    rank                       child, before fork returns in it
//!   lock file    --> description that holds     now another description: the lock is the
//!                    the record lock            rank's alone, and goes when the rank goes
//!   file         --> description without lock   the same (nobody writes through it: `map`)
//!   mapping          shared                     private: reads the job's memory, and keeps to
//!                                               itself what it writes; `deaths` says FORKED
//! ```
//! A lock would live on with any copy of its descriptor, and the rank would count as alive; so the
//! lock has a description of its own, which nothing maps, and which the child gives up. And whatever
//! the child does with a copy of the rank's windows and teams, its destructors too, finds private
//! memory. What it does short of a wait is lost for the others; the count of deaths, which flushes
//! and messages look at, sends it to where the error comes from ([`crate::base::forked`]).
//!
//! This is done by handlers of `fork` (`pthread_atfork`). What makes a child beside it, a bare
//! `clone` or `vfork`, is on its own until it executes a program, which closes all.

use super::liveness;
use super::map::{self, Mapping};
use super::region::SharedRef;
use super::segment::NodeHeader;
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot, forked};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::cell::Cell;
use std::mem::{ManuallyDrop, offset_of};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::Duration;

/// In a child's own view of the count of deaths.
pub const FORKED: u32 = 1 << 31;

/// Longest wait of a fork for a thread that is just joining or leaving a job.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes the process known as a rank: holds its record lock until dropped, and has children give
/// up the lock and the memory.
#[derive(Debug)]
pub struct Presence {
    lock: ManuallyDrop<OwnedFd>,
}

/// What a child gives up.
#[derive(Debug)]
struct Entry {
    lock: RawFd,
    /// The same file, by another description.
    file: RawFd,
    /// Where it is mapped; no bytes: nowhere yet.
    base: *mut u8,
    bytes: u64,
    /// It has been given up, here or by a parent that was a child itself.
    given_up: bool,
}

// SAFETY: the address is used by the handler only, as a number for the kernel and for one atomic
// of a mapping that outlives the entry.
unsafe impl Send for Entry {}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presence {
    /// Takes the lock of `slot` in the memory file `file`, which must stay open longer.
    pub fn take(file: BorrowedFd<'_>, slot: Slot) -> Result<Presence> {
        watch_forks()?;
        // Under the lock, so that no child comes between.
        let mut all = entries();
        let lock = map::reopen(file)?;
        liveness::hold(lock.as_fd(), slot)?;
        let (raw, file) = (lock.as_raw_fd(), file.as_raw_fd());
        let (base, bytes) = (std::ptr::null_mut(), 0);
        all.push(Entry { lock: raw, file, base, bytes, given_up: false });
        Ok(Presence { lock: ManuallyDrop::new(lock) })
    }

    /// Where the file is mapped, from now on and until this is dropped.
    pub fn mapped(&self, mapping: &Arc<Mapping>) -> Result<()> {
        // The handler will write there.
        let _: SharedRef<NodeHeader> = SharedRef::new(mapping, Offset(0))?;
        let raw = self.lock.as_raw_fd();
        if let Some(entry) = entries().iter_mut().find(|entry| entry.lock == raw) {
            (entry.base, entry.bytes) = (mapping.base().as_ptr(), mapping.length());
        }
        Ok(())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut all = entries();
        let raw = self.lock.as_raw_fd();
        all.retain(|entry| entry.lock != raw);
        // SAFETY: taken once, here. Closed before a fork can come between.
        drop(unsafe { ManuallyDrop::take(&mut self.lock) });
    }
}

impl Entry {
    /// In the child. `seen`: its mapping is another entry's, which has been given up.
    fn give_up(&mut self, seen: bool) {
        self.given_up = true;
        // The number stays taken, so that whoever owns it here closes what it owns.
        // SAFETY: plain system calls.
        unsafe {
            if libc::dup3(self.file, self.lock, libc::O_CLOEXEC) < 0 {
                libc::close(self.lock);
            }
        }
        if self.bytes == 0 || seen {
            return;
        }
        // SAFETY: `mapped` was called with the mapping, which outlives the entry; this thread is
        // the only one.
        if unsafe { map::make_private(self.file, self.base, self.bytes) } {
            let at = self.base.wrapping_add(offset_of!(NodeHeader, deaths));
            // SAFETY: `mapped` saw that there is a header; it can be written.
            let deaths = unsafe { &*at.cast::<crate::base::sync::AtomicU32>() };
            deaths.fetch_or(FORKED, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// The table's lock, while this thread is inside `fork`. Without destructor, which would have
    /// to be registered.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Vec<Entry>>>>> =
        const { Cell::new(None) };
}

/// Has the handlers called at every fork from now on.
fn watch_forks() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut code = 0;
    ONCE.call_once(|| {
        // SAFETY: the handlers do what is allowed to them, see there.
        code = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
    match code {
        0 => Ok(()),
        code => Err(Error::os("pthread_atfork", std::io::Error::from_raw_os_error(code))),
    }
}

/// In the thread that forks, before. The table stays as it is until the fork is done.
unsafe extern "C" fn before() {
    forked::prepare();
    let end = std::time::Instant::now() + PATIENCE;
    let held = loop {
        match ENTRIES.try_lock() {
            Ok(held) => break Some(held),
            Err(TryLockError::Poisoned(held)) => break Some(held.into_inner()),
            // A fork by a signal's handler may have interrupted the owner itself.
            Err(TryLockError::WouldBlock) if std::time::Instant::now() > end => break None,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    };
    HELD.set(held.map(ManuallyDrop::new));
}

/// In the thread that forks, after.
unsafe extern "C" fn after() {
    if let Some(held) = HELD.take() {
        drop(ManuallyDrop::into_inner(held));
    }
}

/// In the child, whose only thread this is, before `fork` returns. Async-signal-safe: system calls
/// and memory that exists; the lock was taken by this thread.
unsafe extern "C" fn in_child() {
    let Some(held) = HELD.take() else {
        // Nobody knows what state the table is in: at least nothing is sent.
        forked::declare_forked();
        return;
    };
    let mut all = ManuallyDrop::into_inner(held);
    if !all.is_empty() || forked::is_forked() {
        forked::declare_forked();
    }
    for i in 0..all.len() {
        let (earlier, rest) = all.split_at_mut(i);
        let Some(entry) = rest.first_mut().filter(|entry| !entry.given_up) else { continue };
        // Ranks that are threads share one mapping.
        let seen = earlier.iter().any(|other| other.bytes > 0 && other.base == entry.base);
        entry.give_up(seen);
    }
}
