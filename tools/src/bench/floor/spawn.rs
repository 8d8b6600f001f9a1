//! What the system takes to start processes: fork and exec of this program, which does nothing
//! but print one byte, until all have done so.

use hither::{Error, Result};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts `count` processes of `command` at once; the time until the last has begun its main
/// function. They are reaped before this returns.
pub fn fork_exec(count: u32, command: impl Fn() -> Result<Command>) -> Result<Duration> {
    let start = Instant::now();
    let mut children = Vec::new();
    let mut failed = None;
    for _ in 0..count {
        match command()?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(child) => children.push(child),
            Err(e) => failed = Some(Error::os("starting a process", e)),
        }
    }
    for child in &mut children {
        let mut byte = [0];
        let begun = child.stdout.as_mut().map_or(Ok(()), |out| out.read_exact(&mut byte));
        if let Err(e) = begun {
            failed = Some(Error::os("waiting for a process to begin", e));
        }
    }
    let elapsed = start.elapsed();
    for mut child in children {
        if let Err(e) = child.wait() {
            failed = Some(Error::os("waiting for a process to end", e));
        }
    }
    failed.map_or(Ok(elapsed), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_all_and_notices_failures() {
        let echo = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "echo x"]);
            Ok(command)
        };
        assert!(fork_exec(3, echo).unwrap() > Duration::ZERO);
        assert!(fork_exec(1, || Ok(Command::new("/nonexistent"))).is_err());
        let silent = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", ":"]);
            Ok(command)
        };
        assert!(fork_exec(1, silent).is_err(), "ends without a byte");
    }
}
