//! Starting one rank.

use super::Plan;
use super::guardian;
use super::output::{Origin, Source};
use crate::base::{Error, Result, settings};
use crate::boot::{launched, socket};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A rank that has been started.
pub struct Started {
    /// Its process, leader of a process group of its own.
    pub pid: i32,
    /// Readable once that has ended.
    pub pidfd: OwnedFd,
    /// The launcher's end of its control socket.
    pub control: OwnedFd,
    /// Its standard output and standard error, if they are not inherited.
    pub sources: Vec<Source>,
}

/// What a launcher that is nothing else has changed in its own process and ranks get back.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    mask: Option<libc::sigset_t>,
    files: Option<libc::rlimit>,
}

impl Limits {
    /// For a launcher of `ranks` ranks that has taken its process's signals, and so may change
    /// the process: allows it as many descriptors as it needs, as far as the hard limit goes.
    pub fn adapt(signals: &super::Signals, ranks: u32) -> Limits {
        Limits { mask: Some(signals.mask_before()), ..Limits::of_files(ranks) }
    }

    /// The same without signals, for an agent.
    pub fn of_files(ranks: u32) -> Limits {
        let wanted = 64 + DESCRIPTORS * libc::rlim_t::from(ranks);
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls get valid pointers to local structures.
        let raised = unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) == 0
                && before.rlim_cur < wanted
                && before.rlim_cur < before.rlim_max
                && {
                    let rlim_cur = wanted.min(before.rlim_max);
                    libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur, ..before }) == 0
                }
        };
        Limits { mask: None, files: raised.then_some(before) }
    }
}

/// Descriptors that the launcher needs for each rank.
const DESCRIPTORS: libc::rlim_t = 4;

/// Starts `rank`. The calling thread must live until the rank has been reaped: the rank's
/// parent-death signal is tied to the thread.
pub fn start(plan: &Plan, rank: u32, guardian: BorrowedFd<'_>, limits: &Limits) -> Result<Started> {
    let (control, theirs) = socket::pair()?;
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).envs(plan.env.iter().map(|(k, v)| (k, v)));
    command.env(settings::LAUNCH_FD.name, launched::address_of(theirs.as_fd())?);
    command.env(settings::RANK.name, rank.to_string());
    command.env(settings::SIZE.name, plan.places.ranks().to_string());
    // Not a terminal: a rank's group is in the background, where reading from one means being
    // stopped.
    let input = plan.input && rank == 0 && !io::stdin().is_terminal();
    command.stdin(if input { Stdio::inherit() } else { Stdio::null() });
    if plan.output != super::Output::Inherit {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let cpus = plan.cpus.get(rank as usize).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.map(|cpus| mask_of(cpus));
    let launcher = rustix::process::getpid().as_raw_nonzero().get();
    let (guardian, inherited) = (guardian.as_raw_fd(), theirs.as_raw_fd());
    let limits = *limits;
    let prepare = move || prepare(launcher, guardian, inherited, &limits, cpus.as_deref());
    // SAFETY: `prepare` makes async-signal-safe system calls only and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let mut child = command.spawn().map_err(|e| cannot_start(plan, rank, e))?;
    drop(theirs);
    let pid = child.id() as i32;
    let pidfd = rustix::process::Pid::from_raw(pid)
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()));
    let pidfd = match pidfd {
        Ok(pidfd) => pidfd,
        Err(e) => {
            // Without a way to watch it, it must not run.
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Os {
                call: "pidfd_open",
                source: e.into(),
                hint: "the launcher needs Linux 5.3 or later",
            });
        }
    };
    let stdout =
        child.stdout.take().map(|p| Source { rank, stream: 0, from: Origin::Pipe(p.into()) });
    let stderr =
        child.stderr.take().map(|p| Source { rank, stream: 1, from: Origin::Pipe(p.into()) });
    Ok(Started { pid, pidfd, control, sources: stdout.into_iter().chain(stderr).collect() })
}

/// What happens in the forked child before the program replaces it. Async-signal-safe.
fn prepare(
    launcher: i32,
    guardian: i32,
    control: i32,
    limits: &Limits,
    cpus: Option<&[u64]>,
) -> io::Result<()> {
    // SAFETY: system calls with valid arguments, on the child's own state.
    unsafe {
        if libc::setpgid(0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        // The launcher may have died before the line above; then no signal will come.
        if libc::getppid() != launcher {
            libc::_exit(1);
        }
        guardian::announce(guardian, libc::getpid());
        if let Some(mask) = &limits.mask {
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
        }
        if let Some(files) = &limits.files {
            libc::setrlimit(libc::RLIMIT_NOFILE, files);
        }
        if let Some(cpus) = cpus {
            // A core may have gone offline since it was chosen. Binding is for speed only: the
            // rank then runs anywhere.
            libc::sched_setaffinity(0, size_of_val(cpus), cpus.as_ptr().cast());
        }
        if libc::fcntl(control, libc::F_SETFD, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The CPUs as the kernel's bit mask.
fn mask_of(cpus: &[usize]) -> Vec<u64> {
    let words = cpus.iter().max().map_or(0, |most| most / 64 + 1);
    let mut mask = vec![0u64; words.max(1)];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    mask
}

fn cannot_start(plan: &Plan, rank: u32, e: io::Error) -> Error {
    let program = plan.program.to_string_lossy();
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Error::Os {
            call: "starting a rank",
            source: e,
            hint: "see ulimit -u (processes) and ulimit -n (descriptors; each rank needs four)",
        },
        _ => Error::invalid("program", format!("cannot start \"{program}\" as rank {rank}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_bits_of_their_cpus() {
        assert_eq!(mask_of(&[0, 2]), [5]);
        assert_eq!(mask_of(&[1500]).len(), 24);
        assert_eq!(mask_of(&[1500])[23], 1 << 28);
        assert_eq!(mask_of(&[]), [0]);
    }
}
