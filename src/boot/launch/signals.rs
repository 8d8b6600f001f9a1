//! Signals of the launcher's own process, as a descriptor. Only a program that is a launcher and
//! nothing else (the `hither` command) takes them; a launcher inside another program leaves that
//! program's signals alone.

use crate::base::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that are passed on to the ranks.
const FORWARDED: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// The forwarded signals, blocked in the thread that made this (and in threads it starts) and
/// readable here instead.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Signals {
    /// Blocks the signals. To be called before the program starts threads: a thread that does
    /// not block them would receive them instead.
    pub fn take() -> Result<Signals> {
        let failed = |call| Error::os(call, std::io::Error::last_os_error());
        // SAFETY: sigset_t is plain data; all calls get valid pointers to local sets.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in FORWARDED {
                // One that is ignored (nohup, a shell's background job) stays ignored.
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action);
                if action.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&mut set, signal);
                }
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(failed("signalfd for the launcher"));
            }
            // The descriptor is new and ours.
            let fd = OwnedFd::from_raw_fd(fd);
            let mut before: libc::sigset_t = std::mem::zeroed();
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) != 0 {
                return Err(failed("blocking the launcher's signals"));
            }
            Ok(Signals { fd, before })
        }
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mask of before: what ranks get.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next signal that has come, if any. Does not wait.
    pub fn next(&self) -> Option<i32> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        let got = rustix::io::read(&self.fd, &mut bytes).ok()?;
        let (number, _) = bytes.split_first_chunk::<4>()?;
        (got == bytes.len()).then(|| u32::from_ne_bytes(*number) as i32)
    }
}
