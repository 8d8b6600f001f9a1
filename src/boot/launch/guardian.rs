//! The guardian: a process that outlives a killed launcher just long enough to kill what the
//! launcher started.
//!
//! ```text
//! launcher, or a rank between fork and exec          guardian
//!   ADD group        ---------------------------->     table += group
//!   REMOVE group     (before the rank is reaped) ->    table -= group
//!   QUIT             (all is over) -------------->     exit
//!   <end of stream, or of the process>    ------->     SIGKILL every group in the table; exit
//! ```
//! The launcher's end is seen in two ways because a process that it forked without exec would
//! keep the stream open; the guardian also holds a process descriptor of the launcher.
//!
//! Ranks also have a parent-death signal, but what they started has not: that is why the groups
//! are killed. A group is removed before its leader is reaped, so a number that the system has
//! given to somebody else is never in the table.
//!
//! The guardian is forked and not executed: a program that uses the launcher as a library has
//! no second executable to run. Its body makes system calls only, all of them safe in the child
//! of a process with threads; it allocates nothing and takes no lock. It closes every descriptor
//! but its socket, so it keeps nobody's pipe or memory file open, and lives in a session of its
//! own with all signals blocked, where a terminal does not reach it.

use crate::base::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const ADD: i32 = 1;
const REMOVE: i32 = 2;
const QUIT: i32 = 3;

/// Handle of a running guardian. Dropping it without [`Guardian::finish`] makes the guardian kill
/// every group it knows.
#[derive(Debug)]
pub struct Guardian {
    socket: OwnedFd,
    pid: libc::pid_t,
}

impl Guardian {
    /// Starts a guardian for at most `capacity` groups at a time, `groups` being there already.
    pub fn start(capacity: usize, groups: &[libc::pid_t]) -> Result<Guardian> {
        let (ours, theirs) = crate::boot::socket::pair()?;
        let launcher = rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        )
        .map_err(|e| Error::Os {
            call: "pidfd_open",
            source: e.into(),
            hint: "the launcher needs Linux 5.3 or later",
        })?;
        let mut table = groups.to_vec();
        table.resize(capacity.max(groups.len()), 0);
        // SAFETY: the child runs only `watch`, which makes async-signal-safe system calls and
        // touches only its own copy of `table`; it never returns.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(Error::os("fork of the guardian", std::io::Error::last_os_error())),
            // SAFETY: this is the forked child, and the descriptors are open in it.
            0 => unsafe {
                watch(theirs.as_raw_fd(), launcher.as_raw_fd(), &mut table, groups.len())
            },
            pid => Ok(Guardian { socket: ours, pid }),
        }
    }

    /// The socket over which groups are announced.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes a group back, before its leader is reaped.
    pub fn remove(&self, group: libc::pid_t) -> bool {
        tell(self.socket.as_raw_fd(), REMOVE, group)
    }

    /// Ends the guardian in peace, and reaps it.
    pub fn finish(self) {
        tell(self.socket.as_raw_fd(), QUIT, 0);
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The end of the stream ends it in any case.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let mut status = 0;
        // SAFETY: waits for our own child, which nobody else reaps; `status` is a valid int.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
}

/// Announces a group, its own, for a rank between fork and exec. False if the guardian is gone.
///
/// Async-signal-safe: one system call.
pub fn announce(socket: libc::c_int, group: libc::pid_t) -> bool {
    tell(socket, ADD, group)
}

fn tell(socket: libc::c_int, what: i32, group: libc::pid_t) -> bool {
    let record = [what, group];
    // SAFETY: sends the eight bytes of a local array; NOSIGNAL keeps a dead guardian from
    // raising SIGPIPE.
    let sent = unsafe {
        libc::send(socket, record.as_ptr().cast(), size_of_val(&record), libc::MSG_NOSIGNAL)
    };
    sent == size_of_val(&record) as isize
}

/// Where the guardian keeps its two descriptors.
const SOCKET: libc::c_int = 3;
const LAUNCHER: libc::c_int = 4;

/// The guardian's life. The first `known` entries of the table count.
///
/// # Safety
/// To be called in a freshly forked child only, with both descriptors open.
unsafe fn watch(
    socket: libc::c_int,
    launcher: libc::c_int,
    table: &mut [libc::pid_t],
    mut known: usize,
) -> ! {
    // SAFETY: plain system calls with valid arguments; see the module's text on forking.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"hither-guardian".as_ptr());
        keep_only(socket, launcher);
        loop {
            let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut polls = [wanted(SOCKET), wanted(LAUNCHER)];
            libc::poll(polls.as_mut_ptr(), 2, -1);
            // What the launcher said last still counts: the socket comes first.
            let mut record = [0i32; 2];
            let length = size_of_val(&record);
            let flags = libc::MSG_DONTWAIT;
            let got = libc::recv(SOCKET, record.as_mut_ptr().cast(), length, flags);
            let again = got < 0
                && matches!(*libc::__errno_location(), libc::EAGAIN | libc::EINTR)
                && polls[1].revents == 0;
            if got == length as isize {
                match record {
                    [ADD, group] if group > 1 && known < table.len() => {
                        table[known] = group;
                        known += 1;
                    }
                    [REMOVE, group] => {
                        if let Some(at) = table[..known].iter().position(|g| *g == group) {
                            known -= 1;
                            table[at] = table[known];
                        }
                    }
                    [QUIT, _] => libc::_exit(0),
                    _ => {}
                }
            } else if !again {
                for group in &table[..known] {
                    libc::kill(-group, libc::SIGKILL);
                }
                libc::_exit(0);
            }
        }
    }
}

/// Moves the two descriptors to fixed numbers and closes all others.
///
/// # Safety
/// As for [`watch`].
unsafe fn keep_only(socket: libc::c_int, launcher: libc::c_int) {
    // SAFETY: system calls on descriptors of this process, whose other users are gone: threads
    // do not survive a fork.
    unsafe {
        // Out of the way first, in case one of them has a number that the other one gets.
        let socket = libc::fcntl(socket, libc::F_DUPFD, 16);
        let launcher = libc::fcntl(launcher, libc::F_DUPFD, 16);
        libc::dup2(socket, SOCKET);
        libc::dup2(launcher, LAUNCHER);
        libc::close(0);
        libc::close(1);
        libc::close(2);
        if libc::syscall(libc::SYS_close_range, LAUNCHER + 1, libc::c_uint::MAX, 0) != 0 {
            // Kernels before 5.9. Higher numbers than these would only delay others' ends.
            for fd in LAUNCHER + 1..65536 {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null()).process_group(0).spawn().unwrap()
    }

    #[test]
    fn groups_in_the_table_die_with_the_stream_and_others_do_not() {
        let mut known = sleeper();
        let guardian = Guardian::start(3, &[known.id() as i32]).unwrap();
        let (mut kept, mut removed) = (sleeper(), sleeper());
        let announce = |child: &Child| announce(guardian.socket().as_raw_fd(), child.id() as i32);
        assert!(announce(&kept) && announce(&removed));
        assert!(guardian.remove(removed.id() as i32));
        drop(guardian);
        assert_eq!(known.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(kept.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(removed.try_wait().unwrap(), None);
        removed.kill().unwrap();
        removed.wait().unwrap();
    }

    #[test]
    fn finishing_kills_nobody() {
        let guardian = Guardian::start(1, &[]).unwrap();
        let mut group = sleeper();
        announce(guardian.socket().as_raw_fd(), group.id() as i32);
        guardian.finish();
        assert_eq!(group.try_wait().unwrap(), None);
        group.kill().unwrap();
        group.wait().unwrap();
    }
}
