//! How ranks and jobs end.

use crate::base::signals::signal_name;
use std::fmt;

/// How a rank's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It returned this exit code.
    Code(u8),
    /// A signal killed it.
    Signal(u8),
}

impl Exit {
    /// What the kernel says of a process that has ended.
    pub(super) fn of_status(status: &rustix::process::WaitIdStatus) -> Exit {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code as u8),
            (_, Some(signal)) => Exit::Signal(signal as u8),
            _ => Exit::Signal(libc::SIGKILL as u8),
        }
    }

    /// Whether it is exit code 0.
    pub fn ok(self) -> bool {
        self == Exit::Code(0)
    }

    /// The exit code, or 128 plus the signal, as shells have it.
    pub fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128u8.saturating_add(signal),
        }
    }

    /// As recorded in shared memory: `0x100 | signal` or `0x200 | exit code`.
    pub fn cause(self) -> u32 {
        match self {
            Exit::Code(code) => 0x200 | u32::from(code),
            Exit::Signal(signal) => 0x100 | u32::from(signal),
        }
    }

    /// The inverse of [`Exit::cause`].
    pub fn of_cause(cause: u32) -> Option<Exit> {
        let value = cause as u8;
        match cause >> 8 {
            1 => Some(Exit::Signal(value)),
            2 => Some(Exit::Code(value)),
            _ => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "ended with exit code {code}"),
            Exit::Signal(signal) => {
                write!(f, "was killed by signal {signal}{}", signal_name((*signal).into()))
            }
        }
    }
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// How each rank ended, by rank.
    pub ranks: Vec<Exit>,
    /// The first rank that did not end with exit code 0.
    pub first_failure: Option<u32>,
    /// Whether the job was ended because its time was up.
    pub timed_out: bool,
    /// Whether deaths were to be survived.
    pub survive: bool,
    /// What the launcher had to say, one message a line, in order.
    pub notes: Vec<String>,
    /// What each rank wrote to its standard output, if that was captured.
    pub stdout: Vec<Vec<u8>>,
    /// What each rank wrote to its standard error, if that was captured.
    pub stderr: Vec<Vec<u8>>,
}

impl Outcome {
    /// The exit code of the job: 0 if all ranks returned 0; 124 if its time was up; else that of
    /// the first rank that failed (128 plus the signal if one killed it).
    ///
    /// Where deaths were to be survived, a rank killed by a signal does not count as long as
    /// some rank returned 0: exit codes other than 0 do.
    pub fn code(&self) -> u8 {
        if self.timed_out {
            return 124;
        }
        let first = self.first_failure.and_then(|r| self.ranks.get(r as usize));
        if self.survive && self.ranks.iter().any(|e| e.ok()) {
            let failed = |e: &&Exit| matches!(e, Exit::Code(code) if *code != 0);
            return self.ranks.iter().find(failed).map_or(0, |e| e.code());
        }
        first.map_or(0, |e| e.code())
    }

    /// One line: how the job ended.
    pub fn summary(&self) -> String {
        let failed = self.ranks.iter().filter(|e| !e.ok()).count();
        let first = self.first_failure.and_then(|r| Some((r, self.ranks.get(r as usize)?)));
        match first {
            _ if self.timed_out => "the job was ended because its time was up".into(),
            None => format!("all {} ranks ended with exit code 0", self.ranks.len()),
            Some((rank, exit)) if failed == 1 => format!("rank {rank} {exit}"),
            Some((rank, exit)) => {
                format!("rank {rank} {exit}, the first of {failed} that failed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ranks: &[Exit], first: Option<u32>, survive: bool) -> Outcome {
        Outcome { ranks: ranks.to_vec(), first_failure: first, survive, ..Outcome::default() }
    }

    #[test]
    fn codes_follow_the_first_failure() {
        use Exit::{Code, Signal};
        assert_eq!(outcome(&[Code(0), Code(0)], None, false).code(), 0);
        assert_eq!(outcome(&[Signal(15), Code(3)], Some(1), false).code(), 3);
        assert_eq!(outcome(&[Signal(9), Code(3)], Some(0), false).code(), 137);
        assert_eq!(outcome(&[Signal(9), Code(0)], Some(0), true).code(), 0);
        assert_eq!(outcome(&[Signal(9), Code(0), Code(4)], Some(0), true).code(), 4);
        assert_eq!(outcome(&[Signal(9), Signal(11)], Some(1), true).code(), 139);
        let late = Outcome { timed_out: true, ..outcome(&[Signal(15)], Some(0), false) };
        assert_eq!(late.code(), 124);
    }

    #[test]
    fn the_summary_names_the_first_failure() {
        let text = outcome(&[Exit::Code(0), Exit::Signal(9)], Some(1), false).summary();
        assert_eq!(text, "rank 1 was killed by signal 9 (SIGKILL)");
    }
}
