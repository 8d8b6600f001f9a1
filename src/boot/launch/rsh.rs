//! Running an agent on another host by a remote shell (`ssh`).
//!
//! All that the remote shell's command line has is the agent's command, quoted for a POSIX shell. What
//! is to be run, and the job's cookie, go through its standard input.

use super::guardian;
use super::output::MAX_LINE;
use crate::base::{Error, Result};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A remote shell under way, leader of a process group of its own.
pub struct Shell {
    pub child: Child,
    pub input: OwnedFd,
    pub output: OwnedFd,
    pub errors: OwnedFd,
}

/// Runs `agent` on `host` by the command `rsh`. As for ranks, the calling thread must live on.
pub fn start(
    rsh: &[OsString],
    host: &str,
    agent: &[OsString],
    guardian: BorrowedFd<'_>,
) -> Result<Shell> {
    let Some((program, args)) = rsh.split_first() else {
        return Err(Error::invalid("HITHER_RSH", "it names no command"));
    };
    let mut command = Command::new(program);
    if program.as_bytes().rsplit(|byte| *byte == b'/').next() == Some(b"ssh") {
        // No terminal, no questions, and an end to waiting for hosts that are down.
        command.args(["-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]);
    }
    command.args(args).arg(host).arg(quoted(agent));
    // That of a session of the user's own would be taken for that of the agent's.
    command.env_remove("SSH_CONNECTION");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let launcher = rustix::process::getpid().as_raw_nonzero().get();
    let guardian = guardian.as_raw_fd();
    let prepare = move || {
        // SAFETY: system calls with valid arguments, on the child's own state.
        unsafe {
            if libc::setpgid(0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            if libc::getppid() != launcher {
                libc::_exit(1);
            }
            guardian::announce(guardian, libc::getpid());
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: `prepare` makes async-signal-safe system calls only and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let failed = |e: std::io::Error| {
        let program = program.to_string_lossy();
        Error::boot(format!(
            "cannot run \"{program}\" to reach host {host}: {e}; HITHER_RSH (or --rsh) names the \
             command that runs others on hosts"
        ))
    };
    let mut child = command.spawn().map_err(failed)?;
    let (Some(input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::boot("the remote shell has no pipes"));
    };
    Ok(Shell { child, input: input.into(), output: output.into(), errors: errors.into() })
}

/// Words as one command line of a POSIX shell.
pub fn quoted(words: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        line.push(b'\'');
        for byte in word.as_bytes() {
            match byte {
                b'\'' => line.extend_from_slice(b"'\\''"),
                byte => line.push(*byte),
            }
        }
        line.push(b'\'');
    }
    OsString::from_vec(line)
}

/// A command as a user writes it: words separated by white space.
pub fn words(text: &OsStr) -> Vec<OsString> {
    let words = text.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// The last lines of what a remote shell wrote to its standard error.
pub fn last_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MAX_LINE.min(2000))..]);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn a_shell_reads_what_was_quoted(
            args in proptest::collection::vec("[ -~\n\té'\"$`\\\\*ß漢]{0,12}", 1..6),
        ) {
            let mut all: Vec<OsString> = vec!["printf".into(), "%s\\0".into()];
            all.extend(args.iter().map(OsString::from));
            let out = Command::new("sh").arg("-c").arg(quoted(&all)).output().unwrap();
            let want: String = args.iter().map(|arg| format!("{arg}\0")).collect();
            prop_assert_eq!(String::from_utf8(out.stdout).unwrap(), want);
        }
    }

    #[test]
    fn commands_are_cut_into_words() {
        assert_eq!(words(OsStr::new(" ssh -p  22\n")), ["ssh", "-p", "22"]);
        assert_eq!(last_words(b"a\n\nb\nc\nd\ne\n"), "b; c; d; e");
    }
}
