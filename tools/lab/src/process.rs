//! Child processes that do not outlive the thread that started them.

use crate::error::{Error, Result};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Has the kernel kill the process that `command` starts when the calling thread ends, however it
/// ends; `inherited` are descriptors that the process is to have under the same numbers. They have
/// to stay open until it has been started.
pub fn tie(command: &mut Command, inherited: Vec<RawFd>) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // Who died before that call sends no signal any more.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        for fd in &inherited {
            // SAFETY: the caller keeps it open, and a forked process has it too.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: only system calls between fork and exec; nothing is allocated, no lock is taken.
    unsafe { command.pre_exec(before_exec) };
}

/// Runs `command` to its end; its standard output, or an error with what it said.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    tie(command, Vec::new());
    let done = command.stdin(Stdio::null()).output().map_err(|e| Error::system(&name, e))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = said[said.len().saturating_sub(3)..].join("; ");
    Err(Error::Failed(format!("{name} failed ({}): {last}", done.status)))
}
