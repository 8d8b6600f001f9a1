//! Who is dead.
//!
//! Each process holds an exclusive record lock (an open-file-description lock) on one byte of the
//! node's memory file: byte `slot`. The kernel drops it when the process ends, however it ends,
//! so anyone can ask "is that lock still held?" with one system call and one descriptor, without
//! pids, parents, or a descriptor per peer.
//!
//! ```text
//!  EMPTY --attach--> JOINING --mapped--> READY --finish--> LEFT
//!    |                  |                  |
//!    +---- launcher ----+---- probe or launcher ----> DEAD   (deaths += 1)
//! ```
//! The lock has a description of its own, which is closed at exec, and given up by a child that a
//! rank forks off without one (see `forked`): a rank lives as long as its process, whoever else
//! there is.

use super::segment::{NodeHeader, RankSlot, STATE_DEAD, STATE_JOINING, STATE_LEFT, STATE_READY};
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot, signals::signal_name};
use rustix::fd::{AsRawFd, BorrowedFd};

fn lock_record(slot: Slot) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(slot.0),
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes the byte of `slot` for this open file description; an error if it is taken.
pub fn hold(fd: BorrowedFd<'_>, slot: Slot) -> Result<()> {
    let record = lock_record(slot);
    // SAFETY: F_OFD_SETLK reads one flock, which outlives the call.
    let rc = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &record) };
    if rc == 0 {
        return Ok(());
    }
    let source = std::io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(Error::Misuse {
            what: "joining the node",
            why: format!("slot {slot} is held by a live process; is a rank number used twice?"),
        }),
        _ => Err(Error::os("locking this rank's byte of the node's memory", source)),
    }
}

/// Whether some other open file description holds the byte of `slot`. When the kernel cannot
/// tell, the answer is yes: nobody is declared dead by mistake.
pub fn held_by_other(fd: BorrowedFd<'_>, slot: Slot) -> bool {
    let mut record = lock_record(slot);
    // SAFETY: F_OFD_GETLK reads and writes one flock, which outlives the call.
    let rc = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &mut record) };
    rc != 0 || record.l_type != libc::F_UNLCK as libc::c_short
}

/// Records a death once. `cause` is 0 when nothing is known (see [`RankSlot::cause`]).
pub fn mark_dead(header: &NodeHeader, slot: &RankSlot, cause: u32) {
    if cause != 0 {
        slot.cause.store(cause, Ordering::Relaxed);
    }
    let mut state = slot.state.load(Ordering::Acquire);
    while state != STATE_DEAD && state != STATE_LEFT {
        match slot.state.compare_exchange(state, STATE_DEAD, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                header.deaths.fetch_add(1, Ordering::AcqRel);
                header.wiring.notify();
                slot.port.doorbell.notify();
            }
            Err(now) => state = now,
        }
    }
}

/// Whether a process in this state can still do anything.
pub fn may_act(state: u32) -> bool {
    matches!(state, STATE_JOINING | STATE_READY)
}

/// The recorded cause of an end, in words.
pub fn describe_end(slot: &RankSlot) -> String {
    if slot.state.load(Ordering::Acquire) == STATE_LEFT {
        return "it had left the job".into();
    }
    let cause = slot.cause.load(Ordering::Relaxed);
    let code = cause & 0xff;
    match cause >> 8 {
        1 => format!("killed by signal {code}{}", signal_name(code)),
        2 => format!("it ended with exit code {code} without leaving the job"),
        _ => "its process is gone".into(),
    }
}

/// Waits, in tests, for what follows from a description's end. It may come a little later: while
/// another test of this process starts a child, the child holds a copy of every descriptor
/// between its fork and its exec.
#[cfg(test)]
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let limit = crate::base::Deadline::after(std::time::Duration::from_secs(30));
    while !condition() {
        assert!(!limit.passed(), "never came true: {what}");
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::map::{create_memfd, reopen};
    use rustix::fd::AsFd;

    #[test]
    fn a_byte_is_held_until_its_description_closes() {
        let fd = create_memfd("test", 4096).unwrap();
        let mine = reopen(&fd).unwrap();
        let other = reopen(&fd).unwrap();
        hold(mine.as_fd(), Slot(3)).unwrap();
        assert!(held_by_other(other.as_fd(), Slot(3)));
        assert!(!held_by_other(other.as_fd(), Slot(2)));
        assert!(!held_by_other(mine.as_fd(), Slot(3)), "one's own lock is no other's");
        let err = hold(other.as_fd(), Slot(3)).unwrap_err();
        assert!(matches!(err, Error::Misuse { .. }), "{err}");
        drop(mine);
        eventually("the byte is free", || !held_by_other(other.as_fd(), Slot(3)));
    }
}
