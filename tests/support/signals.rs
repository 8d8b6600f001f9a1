//! Signals of the programs that tests start.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets interrupts reach a program even where the tests themselves ignore them, as what a shell starts
/// in the background does: to ignore is inherited, and a shell sets no trap for what it inherited so.
pub fn interruptible(command: &mut Command) -> &mut Command {
    let usual = || {
        // SAFETY: changes what a signal does in the new process only; safe between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: what is called is async-signal-safe.
    unsafe { command.pre_exec(usual) }
}
