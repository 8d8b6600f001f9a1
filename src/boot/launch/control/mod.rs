//! The control thread: one loop from the first rank's start to the last one's end.
//!
//! ```text
//! running --first failure (not with survive)--> ending --grace--> SIGTERM --grace--> SIGKILL
//!    |                                                               ^
//!    +-------------------------- time is up -------------------------+
//! ```
//! SIGINT and SIGTERM are passed on; the second of them kills.

mod away;

use super::frame::Down;
use super::guardian::Guardian;
use super::output::Printer;
use super::spawn::{self, Limits, Started};
use super::{Exit, Outcome, Output, Plan, Process, Shared, Watcher};
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Result};
use crate::boot::server::{Answer, Server};
use crate::boot::socket::{self, Received};
use crate::boot::wire::Message;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{WaitId, WaitIdOptions};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const SIGNALS: u64 = 1;
const GUARDIAN: u64 = 2;
const PRINTED: u64 = 3;
const RANKS: u64 = 4;
const HOSTS: u64 = 1 << 32;

/// How far the end of the job has come.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    /// The others may end by themselves until then.
    Ending(Instant),
    /// SIGTERM has been sent; SIGKILL follows then.
    Terminating(Instant),
    Killed,
}

struct Rank {
    pid: i32,
    pidfd: Option<OwnedFd>,
    control: Option<OwnedFd>,
    /// Its host, where that is not this machine.
    away: Option<u32>,
    exit: Option<Exit>,
}

struct Control {
    plan: Plan,
    watcher: Box<dyn Watcher>,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    guardian: Guardian,
    server: Server,
    ranks: Vec<Rank>,
    hosts: Vec<away::Host>,
    /// Why ranks cannot be started on a host.
    cannot: Option<String>,
    /// When agents are to hear from here next.
    next_beat: Option<Instant>,
    printer: Option<Printer>,
    /// Whether the printer knows that no more comes, and whether it has written all.
    told: bool,
    printed: bool,
    phase: Phase,
    end_at: Option<Instant>,
    interrupts: u32,
    outcome: Outcome,
}

/// Runs a job to its end. Reports over `started` whether all ranks could be started.
pub fn run(
    plan: Plan,
    watcher: Box<dyn Watcher>,
    shared: Arc<Shared>,
    started: &mpsc::Sender<Result<()>>,
) -> Outcome {
    let mut control = match Control::new(plan, watcher, shared) {
        Ok(control) => control,
        Err(e) => {
            let _ = started.send(Err(e));
            return Outcome::default();
        }
    };
    match control.start_all() {
        Ok(()) => {
            let _ = started.send(Ok(()));
            control.look_after();
        }
        Err(e) => {
            control.reap_all();
            let _ = started.send(Err(e));
        }
    }
    control.finish()
}

impl Control {
    fn new(plan: Plan, watcher: Box<dyn Watcher>, shared: Arc<Shared>) -> Result<Control> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::os("epoll for the launcher", e))?;
        let guardian = Guardian::start(plan.places.ranks() as usize + 1, &[])?;
        let control = Control {
            server: Server::new(plan.job, &plan.places),
            end_at: plan.timeout.and_then(|t| Instant::now().checked_add(t)),
            outcome: Outcome { survive: plan.survive, ..Outcome::default() },
            plan,
            watcher,
            shared,
            epoll,
            guardian,
            ranks: Vec::new(),
            hosts: Vec::new(),
            cannot: None,
            next_beat: None,
            printer: None,
            told: false,
            printed: false,
            phase: Phase::Running,
            interrupts: 0,
        };
        control.watch(control.shared.wake.as_fd(), WAKE)?;
        control.watch(control.guardian.socket(), GUARDIAN)?;
        if let Some(signals) = &control.plan.signals {
            control.watch(signals.fd(), SIGNALS)?;
        }
        Ok(control)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> Result<()> {
        let token = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, fd, token, epoll::EventFlags::IN)
            .map_err(|e| Error::os("epoll_ctl for the launcher", e))
    }

    fn start_all(&mut self) -> Result<()> {
        if self.plan.remote.is_some() {
            return self.start_away();
        }
        let mut sources = Vec::new();
        let mut result = Ok(());
        let signals = self.plan.signals.as_ref();
        let limits =
            signals.map(|s| Limits::adapt(s, self.plan.places.ranks())).unwrap_or_default();
        for rank in 0..self.plan.places.ranks() {
            match spawn::start(&self.plan, rank, self.guardian.socket(), &limits) {
                Ok(started) => sources.extend(self.adopt(started)),
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        let capture = self.plan.output == Output::Capture;
        let printer = Printer::start(sources, self.plan.places.ranks(), capture, self.plan.label)?;
        self.watch(printer.done(), PRINTED)?;
        self.printer = Some(printer);
        for rank in 0..self.ranks.len() as u64 {
            let known = &self.ranks[rank as usize];
            let fds = [&known.pidfd, &known.control];
            for (which, fd) in fds.into_iter().enumerate() {
                if let Some(fd) = fd {
                    self.watch(fd.as_fd(), RANKS + 2 * rank + which as u64)?;
                }
            }
        }
        result
    }

    fn adopt(&mut self, started: Started) -> Vec<super::output::Source> {
        self.shared.processes().push(Process { pid: started.pid, alive: true, away: None });
        self.ranks.push(Rank {
            pid: started.pid,
            pidfd: Some(started.pidfd),
            control: Some(started.control),
            away: None,
            exit: None,
        });
        started.sources
    }

    /// The start has failed: ends the ranks that were started before that.
    fn reap_all(&mut self) {
        self.kill();
        for rank in 0..self.ranks.len() {
            if let Some(pidfd) = &self.ranks[rank].pidfd {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                let look = || rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options);
                while matches!(look(), Err(rustix::io::Errno::INTR)) {}
            }
            self.take_exit(rank as u32);
        }
        if let Some(printer) = &self.printer {
            printer.ranks_ended();
        }
    }

    fn alive(&self) -> usize {
        self.ranks.iter().filter(|r| r.exit.is_none()).count()
    }

    /// The loop. Ends when all ranks are reaped and all output is written, or when the user
    /// insists.
    fn look_after(&mut self) {
        self.printed = self.printer.is_none();
        loop {
            // The reader of our output may have stopped reading for good.
            if self.alive() == 0 && self.interrupts > 1 {
                return;
            }
            if self.alive() == 0 && self.hosts_over() {
                match &self.printer {
                    Some(printer) if !self.told => {
                        printer.ranks_ended();
                        self.told = true;
                    }
                    _ if self.printed => return,
                    _ => {}
                }
            }
            self.turn();
        }
    }

    /// Waits until something happens, and acts on it.
    fn turn(&mut self) {
        let timeout = self.next_step().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            let left = left.min(Duration::from_secs(3600));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut events = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, room, timeout.as_ref()).is_err() {
            std::thread::yield_now();
        }
        for event in &events {
            match event.data.u64() {
                WAKE => {
                    let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
                }
                SIGNALS => self.take_signals(),
                GUARDIAN => self.replace_guardian(),
                PRINTED => {
                    self.printed = true;
                    if let Some(printer) = &self.printer {
                        let _ = epoll::delete(&self.epoll, printer.done());
                    }
                }
                token if token >= HOSTS => self.take_host_event(token - HOSTS),
                token => {
                    let rank = ((token - RANKS) / 2) as u32;
                    if (token - RANKS).is_multiple_of(2) {
                        self.take_exit(rank);
                    } else {
                        self.serve(rank);
                    }
                }
            }
        }
        if self.shared.stop.load(Ordering::Acquire) {
            self.kill();
        }
        self.step();
        self.beat();
    }

    /// When something is to be done without an event.
    fn next_step(&self) -> Option<Instant> {
        if self.alive() == 0 {
            return self.next_beat;
        }
        let phase = match self.phase {
            Phase::Running | Phase::Killed => None,
            Phase::Ending(at) | Phase::Terminating(at) => Some(at),
        };
        let end_at = self.end_at.filter(|_| !self.outcome.timed_out);
        phase.into_iter().chain(end_at).chain(self.next_beat).min()
    }

    fn step(&mut self) {
        if self.alive() == 0 {
            return;
        }
        let now = Instant::now();
        if !self.outcome.timed_out && self.end_at.is_some_and(|at| now >= at) {
            self.outcome.timed_out = true;
            let limit = self.plan.timeout.unwrap_or_default();
            self.note(format!("the job's time ({limit:?}) is up; ending it"));
            self.watcher.ending();
            self.tell_ending();
            self.terminate();
        }
        match self.phase {
            Phase::Ending(at) if now >= at => {
                let alive = self.alive();
                let ranks = if alive == 1 { "rank goes" } else { "ranks go" };
                self.note(format!("{alive} {ranks} on regardless; sending SIGTERM"));
                self.terminate();
            }
            Phase::Terminating(at) if now >= at => {
                let alive = self.alive();
                let ranks = if alive == 1 { "rank" } else { "ranks" };
                self.note(format!("{alive} {ranks} ignored SIGTERM; killing"));
                self.kill();
            }
            _ => {}
        }
    }

    /// When the ranks' time to end by themselves is up, if that begins now.
    fn grace_ends(&self) -> Instant {
        // A clock need not reach as far as a user's "for ever"; a year is one.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        Instant::now() + self.plan.grace.min(LONGEST)
    }

    fn terminate(&mut self) {
        self.shared.kill_all(libc::SIGTERM);
        // A stopped process acts on it only once it goes on.
        self.shared.kill_all(libc::SIGCONT);
        self.phase = Phase::Terminating(self.grace_ends());
    }

    fn kill(&mut self) {
        self.shared.kill_all(libc::SIGKILL);
        self.phase = Phase::Killed;
    }

    fn note(&mut self, text: String) {
        if let Some(printer) = &self.printer {
            printer.note(&text);
        }
        self.outcome.notes.push(text);
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.plan.signals.as_ref().and_then(super::Signals::next) {
            match signal {
                libc::SIGINT | libc::SIGTERM => {
                    self.interrupts += 1;
                    if self.interrupts > 1 {
                        self.kill();
                    } else {
                        self.shared.kill_all(signal);
                        self.shared.kill_all(libc::SIGCONT);
                    }
                }
                libc::SIGTSTP => {
                    self.shared.kill_all(libc::SIGTSTP);
                    // Stops here, as the shell expects; SIGCONT comes in as the next signal.
                    // SAFETY: no memory involved.
                    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
                }
                other => {
                    self.shared.kill_all(other);
                }
            }
        }
    }

    /// Somebody killed the guardian: another one takes over.
    fn replace_guardian(&mut self) {
        let _ = epoll::delete(&self.epoll, self.guardian.socket());
        let alive = self.ranks.iter().filter(|r| r.exit.is_none());
        let local = alive.filter(|r| r.away.is_none()).map(|r| r.pid);
        let groups: Vec<i32> = local.chain(self.shells()).collect();
        let Ok(next) = Guardian::start(self.plan.places.ranks() as usize + 1, &groups) else {
            return;
        };
        self.guardian = next;
        // Failing this, the death of the new one would go unnoticed, no more.
        let _ = self.watch(self.guardian.socket(), GUARDIAN);
    }

    /// Messages on a rank's control socket.
    fn serve(&mut self, rank: u32) {
        loop {
            let Some(control) = &self.ranks[rank as usize].control else { return };
            let received = socket::receive(control.as_fd(), Deadline::after(Duration::ZERO));
            let answers = match received {
                Ok(Received::Message(message, _)) => self.server.handle(rank, message),
                Ok(Received::Late) => return,
                Ok(Received::Closed) => {
                    self.ranks[rank as usize].control = None;
                    return;
                }
                Err(e) => {
                    self.note(format!("rank {rank}: {e}; its control socket is closed"));
                    self.ranks[rank as usize].control = None;
                    return;
                }
            };
            self.send(answers);
        }
    }

    fn send(&mut self, answers: Vec<Answer>) {
        for Answer { to, message, with_memory } in answers {
            if let Some(host) = self.ranks[to as usize].away {
                self.pass_on(host, Down::Wiring { rank: to, with_memory, message });
                continue;
            }
            let Some(control) = &self.ranks[to as usize].control else { continue };
            let node = self.plan.places.node_of(to).filter(|_| with_memory);
            let memory = node.and_then(|node| self.plan.memories.get(node as usize));
            let fd = memory.map(AsFd::as_fd);
            if !socket::send(control.as_fd(), &message, fd).unwrap_or(false)
                && !matches!(message, Message::Died { .. })
            {
                self.ranks[to as usize].control = None;
            }
        }
    }

    /// A rank's process has ended: kill what is left of its group, reap it, let everybody know.
    fn take_exit(&mut self, rank: u32) {
        let index = rank as usize;
        let Some(pidfd) = &self.ranks[index].pidfd else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let look = || {
            rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options | WaitIdOptions::NOWAIT)
        };
        let status = match look() {
            Ok(None) | Err(rustix::io::Errno::INTR) => return,
            status => status.ok().flatten(),
        };
        let exit = match &status {
            Some(status) => Exit::of_status(status),
            // Reaped by somebody else in this process (a wait for any child): how it ended is
            // lost. Counted as a failure rather than as success.
            None => Exit::Code(1),
        };
        // What it had sent before counts: others may be waiting for it.
        self.serve(rank);
        self.shared.kill(index, libc::SIGKILL);
        self.guardian.remove(self.ranks[index].pid);
        {
            let mut processes = self.shared.processes();
            processes[index].alive = false;
            if let Some(pidfd) = self.ranks[index].pidfd.take() {
                let _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options);
            }
        }
        self.ranks[index].control = None;
        self.note_exit(rank, exit);
    }

    /// A rank has ended: lets everybody know.
    fn note_exit(&mut self, rank: u32, exit: Exit) {
        self.ranks[rank as usize].exit = Some(exit);
        self.watcher.ended(rank, exit);
        let answers = self.server.ended(rank, format!("it {exit}"));
        self.send(answers);
        if !exit.ok() {
            self.take_failure(rank, exit);
        }
    }

    fn take_failure(&mut self, rank: u32, exit: Exit) {
        let first = self.outcome.first_failure.is_none();
        self.outcome.first_failure.get_or_insert(rank);
        let (pid, alive) = (self.ranks[rank as usize].pid, self.alive());
        let running = matches!(self.phase, Phase::Running);
        let place = match self.ranks[rank as usize].away {
            Some(host) => format!("pid {pid} on {}", self.host_name(host)),
            None => format!("pid {pid}"),
        };
        let what = format!("rank {rank} ({place}) {exit}");
        if self.plan.survive && running {
            let what = if alive > 0 { format!("{what}; the others go on") } else { what };
            return self.note(what);
        }
        // Ends that are only the consequence of the first one are not reported one by one; nor
        // are those the user asked for by a signal.
        let ours = [libc::SIGTERM, libc::SIGKILL, libc::SIGINT].map(|s| Exit::Signal(s as u8));
        let consequence = matches!(exit, Exit::Code(_)) || ours.contains(&exit);
        if first && self.interrupts == 0 && !self.outcome.timed_out && running {
            let what = if alive > 0 { format!("{what}; ending the job") } else { what };
            self.note(what);
        } else if !consequence {
            self.note(what);
        }
        if running && alive > 0 {
            self.watcher.ending();
            self.tell_ending();
            self.phase = Phase::Ending(self.grace_ends());
        }
    }

    fn finish(mut self) -> Outcome {
        self.hang_up();
        self.guardian.finish();
        // After a second SIGINT nobody waits for a reader that has stopped reading.
        if let Some(printer) = self.printer.filter(|_| self.interrupts <= 1) {
            [self.outcome.stdout, self.outcome.stderr] = printer.collect();
        }
        self.outcome.ranks = self.ranks.iter().filter_map(|r| r.exit).collect();
        self.outcome
    }
}
