//! Programs that end with the process that starts them.
//!
//! ```text
//! a rank --- spawns ---> this program: asks to be ended with its parent --- becomes ---> the program
//! ```
//! A rank that has registered memory with a device had better not fork, as asking between fork and
//! exec would take: where libibverbs keeps registered pages from children, the child lacks whatever
//! else lies on them. To spawn shares all memory until the program begins.

use crate::bench::jobs::own_path;
use hither::{Error, Result};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The name that clap gives the command.
const NAME: &str = "tied";

/// Arguments of `hither bench tied`.
#[derive(clap::Args)]
pub struct Args {
    /// The process with which it is to end
    parent: i32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A command for `program`, to be given arguments, that ends when the thread does that starts it.
pub fn command(program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(own_path()?);
    command.args(["bench", NAME, &std::process::id().to_string(), "--"]).arg(program);
    Ok(command)
}

/// Becomes the program.
pub fn run(args: &Args) -> Result<ExitCode> {
    let failed = |e: std::io::Error| Error::os("starting a program", e);
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| failed(e.into()))?;
    // Who died before that call sends no signal any more.
    if getppid() != Pid::from_raw(args.parent) {
        return Err(Error::invalid("bench tied", "the process with which it is to end has ended"));
    }
    let [program, rest @ ..] = args.words.as_slice() else {
        return Err(Error::invalid("bench tied", "which program?"));
    };
    Err(failed(Command::new(program).args(rest).exec()))
}
