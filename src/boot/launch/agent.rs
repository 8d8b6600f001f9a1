//! An agent: starts and looks after a job's ranks on one host, as a launcher on another one says.
//!
//! ```text
//! launcher                                agent (standard input and output)
//!                          <-----           PREAMBLE Hello
//!   Prepare{order}         ----->           makes the node's memory
//!                          <-----           Ready{address}, or Failed
//!   Go                     ----->           starts its ranks
//!                          <-----           Started{pids}, or Failed
//!   Wiring, Signal, ...    <---->           Wiring, Output (within credit), Exited
//!                          <-----           Done
//!   Alive, each second     <---->           Alive
//! ```
//! It decides nothing: the launcher does. When the launcher is gone (the end of the stream, or
//! silence), or the agent is (see `guardian`), its ranks are killed. Each stream of a rank has
//! [`CREDIT`] bytes of output under way at most, so a reader who stops reading stops the rank.

use super::frame::{self, Down, Order, Up};
use super::guardian::Guardian;
use super::output::Origin;
use super::spawn::{self, Limits};
use super::stream::{Incoming, Outgoing};
use super::{Exit, Output, Plan, Watcher};
use crate::base::{Deadline, Error, Result};
use crate::boot::socket::{self, Received};
use crate::topo::Places;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// Bytes of output of one stream that are sent before the first are known to be written.
const CREDIT: usize = 128 << 10;
/// How often it says that it is alive.
pub const BEAT: Duration = Duration::from_secs(1);
/// Most ranks of a host: as many as a job can have.
const MOST_RANKS: usize = 4096;
/// What a pipe may hold when its last writer has ended.
const PIPE_MOST: usize = 1 << 20;

const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const GUARDIAN: u64 = 2;
const RANKS: u64 = 4;

/// What the room above makes for the ranks of a node.
pub struct Prepared {
    /// The node's memory.
    pub memory: OwnedFd,
    /// Is told of the ends of ranks.
    pub watcher: Box<dyn Watcher>,
    /// CPUs for each rank, by rank of the job.
    pub cpus: Vec<Vec<usize>>,
    /// More variables of the ranks' environment.
    pub env: Vec<(OsString, OsString)>,
    /// The address that their network will use.
    pub address: String,
}

struct Stream {
    pipe: OwnedFd,
    credit: usize,
    watched: bool,
}

struct Rank {
    rank: u32,
    pid: i32,
    pidfd: Option<OwnedFd>,
    control: Option<OwnedFd>,
    streams: [Option<Stream>; 2],
}

struct Agent {
    from: Incoming,
    to: Outgoing,
    epoll: OwnedFd,
    guardian: Guardian,
    plan: Option<(Plan, Prepared, Vec<u32>)>,
    ranks: Vec<Rank>,
    heard: Instant,
    silence: Duration,
    /// The launcher has been stopped by its user: it says nothing until it goes on.
    stopped: bool,
    next_beat: Instant,
    gone: bool,
    done: bool,
}

/// Serves a launcher over these two pipes to the end of the job. `prepare` makes what an order needs.
///
/// # Errors
/// What keeps it from beginning. Later failures are told to the launcher.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    prepare: impl Fn(&Order, &Places) -> Result<Prepared>,
) -> Result<()> {
    let now = Instant::now();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|e| Error::os("epoll for the agent", e))?;
    let mut agent = Agent {
        from: Incoming::new(input)?,
        to: Outgoing::new(output)?,
        epoll,
        guardian: Guardian::start(MOST_RANKS, &[])?,
        plan: None,
        ranks: Vec::new(),
        heard: now,
        silence: Duration::from_secs(60),
        stopped: false,
        next_beat: now + BEAT,
        gone: false,
        done: false,
    };
    agent.watch(agent.from.fd(), INPUT, epoll::EventFlags::IN)?;
    let writable = epoll::EventFlags::OUT | epoll::EventFlags::ET;
    agent.watch(agent.to.fd(), OUTPUT, writable)?;
    agent.watch(agent.guardian.socket(), GUARDIAN, epoll::EventFlags::IN)?;
    agent.to.send(frame::PREAMBLE);
    agent.say(&Up::Hello { version: frame::VERSION });
    while !(agent.gone || agent.done && agent.to.is_idle()) {
        agent.turn(&prepare);
    }
    agent.end();
    Ok(())
}

impl Agent {
    fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: epoll::EventFlags) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
            .map_err(|e| Error::os("epoll_ctl for the agent", e))
    }

    fn say(&self, up: &Up) {
        self.to.send(&up.encode());
    }

    fn turn(&mut self, prepare: &impl Fn(&Order, &Places) -> Result<Prepared>) {
        let left = self.next_beat.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut events = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, room, Some(&left)).is_err() {
            std::thread::yield_now();
        }
        for event in &events {
            match event.data.u64() {
                INPUT => self.hear(prepare),
                OUTPUT => self.to.flush(),
                GUARDIAN => self.replace_guardian(),
                token => {
                    let (index, what) = ((token - RANKS) / 4, (token - RANKS) % 4);
                    match what {
                        0 => self.take_exit(index as usize),
                        1 => self.relay(index as usize),
                        stream => drop(self.pump(index as usize, stream as usize - 2)),
                    }
                }
            }
        }
        let now = Instant::now();
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            if self.to.is_idle() {
                self.say(&Up::Alive);
            }
            self.gone |= !self.stopped && now.duration_since(self.heard) > self.silence;
        }
        self.finish_output();
    }

    fn hear(&mut self, prepare: &impl Fn(&Order, &Places) -> Result<Prepared>) {
        self.gone |= !self.from.read();
        loop {
            let frame = match frame::next(&mut self.from.bytes) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(_) => return self.gone = true,
            };
            (self.heard, self.stopped) = (Instant::now(), false);
            match Down::decode(&frame) {
                Some(Down::Prepare(order)) => {
                    let said = self.prepare(*order, prepare);
                    self.answer(said.map(|address| Up::Ready { address }));
                }
                Some(Down::Go) => {
                    let said = self.go();
                    self.answer(said.map(|pids| Up::Started { pids }));
                }
                Some(down) => self.obey(down),
                None => self.gone = true,
            }
        }
    }

    fn answer(&self, said: Result<Up>) {
        self.say(&said.unwrap_or_else(|error| Up::Failed { why: error.to_string() }));
    }

    fn obey(&mut self, down: Down) {
        match down {
            Down::Wiring { rank, with_memory, message } => {
                let Some(index) = self.index_of(rank) else { return };
                let Some(control) = &self.ranks[index].control else { return };
                let memory = self.plan.as_ref().filter(|_| with_memory);
                let memory = memory.map(|(_, prepared, _)| prepared.memory.as_fd());
                if !socket::send(control.as_fd(), &message, memory).unwrap_or(false) {
                    self.ranks[index].control = None;
                }
            }
            Down::Signal { rank, signal } => {
                self.stopped = signal == libc::SIGTSTP as u32;
                if let Some(index) = self.index_of(rank) {
                    self.kill(index, signal as i32);
                }
            }
            Down::Ending => {
                if let Some((_, prepared, _)) = &mut self.plan {
                    prepared.watcher.ending();
                }
            }
            Down::Credit { rank, stream, bytes } => {
                let Some(index) = self.index_of(rank) else { return };
                let token = RANKS + 4 * index as u64 + 2 + u64::from(stream);
                let streams = &mut self.ranks[index].streams;
                let Some(Some(stream)) = streams.get_mut(stream as usize) else { return };
                stream.credit = (stream.credit + bytes as usize).min(CREDIT);
                if !stream.watched {
                    let token = epoll::EventData::new_u64(token);
                    let flags = epoll::EventFlags::IN;
                    stream.watched = epoll::add(&self.epoll, &stream.pipe, token, flags).is_ok();
                }
            }
            Down::Close { rank, stream } => {
                let index = self.index_of(rank);
                if let Some(stream) =
                    index.and_then(|index| self.ranks[index].streams.get_mut(stream as usize))
                {
                    *stream = None;
                }
            }
            Down::Alive | Down::Prepare(_) | Down::Go => {}
        }
    }

    fn index_of(&self, rank: u32) -> Option<usize> {
        self.ranks.iter().position(|known| known.rank == rank)
    }

    fn prepare(
        &mut self,
        order: Order,
        prepare: &impl Fn(&Order, &Places) -> Result<Prepared>,
    ) -> Result<String> {
        let places = Places::of_blocks(order.ranks, &order.blocks)?;
        let os = OsString::from_vec;
        let directory = os(order.directory.clone());
        std::env::set_current_dir(&directory).map_err(|e| {
            let directory = directory.to_string_lossy();
            Error::boot(format!("there is no directory \"{directory}\" to run in: {e}"))
        })?;
        let prepared = prepare(&order, &places)?;
        let ranks: Vec<u32> = places.ranks_on(order.node).collect();
        self.silence = Duration::from_millis(order.silence);
        let mut words = order.env.into_iter().map(os);
        let mut env = Vec::new();
        while let Some(pair) = words.next().zip(words.next()) {
            env.push(pair);
        }
        env.extend(prepared.env.iter().cloned());
        let plan = Plan {
            program: os(order.program),
            args: order.args.into_iter().map(os).collect(),
            env,
            input: false,
            cpus: prepared.cpus.clone(),
            output: Output::Forward,
            label: false,
            survive: true,
            timeout: None,
            grace: Duration::ZERO,
            job: 0,
            memories: Vec::new(),
            places,
            signals: None,
            remote: None,
        };
        if ranks.len() > MOST_RANKS {
            let why =
                format!("{} are too many on one host; {MOST_RANKS} are the most", ranks.len());
            return Err(Error::invalid("number of ranks", why));
        }
        let address = prepared.address.clone();
        self.plan = Some((plan, prepared, ranks));
        Ok(address)
    }

    fn go(&mut self) -> Result<Vec<u32>> {
        let Some((plan, _, ranks)) = &self.plan else {
            return Err(Error::boot("the agent was told to go before it was told what to do"));
        };
        let limits = Limits::of_files(ranks.len() as u32);
        for &rank in ranks {
            let started = spawn::start(plan, rank, self.guardian.socket(), &limits)?;
            let mut streams = [None, None];
            for source in started.sources {
                if let Origin::Pipe(pipe) = source.from {
                    rustix::io::ioctl_fionbio(&pipe, true)
                        .map_err(|e| Error::os("making a pipe non-blocking", e))?;
                    streams[source.stream] = Some(Stream { pipe, credit: CREDIT, watched: true });
                }
            }
            self.ranks.push(Rank {
                rank,
                pid: started.pid,
                pidfd: Some(started.pidfd),
                control: Some(started.control),
                streams,
            });
        }
        for (index, rank) in self.ranks.iter().enumerate() {
            let pipe = |which: usize| rank.streams[which].as_ref().map(|stream| &stream.pipe);
            let fds = [rank.pidfd.as_ref(), rank.control.as_ref(), pipe(0), pipe(1)];
            for (what, fd) in fds.into_iter().enumerate() {
                if let Some(fd) = fd {
                    let token = RANKS + 4 * index as u64 + what as u64;
                    self.watch(fd.as_fd(), token, epoll::EventFlags::IN)?;
                }
            }
        }
        Ok(self.ranks.iter().map(|rank| rank.pid as u32).collect())
    }

    /// What a rank says to the launcher.
    fn relay(&mut self, index: usize) {
        loop {
            let known = &mut self.ranks[index];
            let Some(control) = &known.control else { return };
            match socket::receive(control.as_fd(), Deadline::after(Duration::ZERO)) {
                Ok(Received::Message(message, _)) => {
                    self.to.send(&Up::Wiring { rank: known.rank, message }.encode());
                }
                Ok(Received::Late) => return,
                Ok(Received::Closed) => return known.control = None,
                Err(e) => {
                    let text = format!("rank {}: {e}; its control socket is closed", known.rank);
                    self.to.send(&Up::Note { text }.encode());
                    return known.control = None;
                }
            }
        }
    }

    /// Sends what is in a pipe, once, within the credit; 0 when there is nothing.
    fn pump(&mut self, index: usize, which: usize) -> usize {
        let known = &mut self.ranks[index];
        let Some(stream) = &mut known.streams[which] else { return 0 };
        let mut bytes = [0; 32 << 10];
        let room = stream.credit.min(bytes.len());
        if room == 0 {
            if std::mem::take(&mut stream.watched) {
                let _ = epoll::delete(&self.epoll, &stream.pipe);
            }
            return 0;
        }
        match rustix::io::read(&stream.pipe, &mut bytes[..room]) {
            Ok(got) if got > 0 => {
                stream.credit -= got;
                let bytes = bytes[..got].to_vec();
                let (rank, stream) = (known.rank, which as u32);
                self.to.send(&Up::Output { rank, stream, bytes }.encode());
                got
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => 0,
            _ => {
                known.streams[which] = None;
                0
            }
        }
    }

    /// Once all ranks have ended: what is in their pipes is all that counts.
    fn finish_output(&mut self) {
        let over = !self.ranks.is_empty() && self.ranks.iter().all(|rank| rank.pidfd.is_none());
        if !over || self.done {
            return;
        }
        let mut waits = false;
        for index in 0..self.ranks.len() {
            for which in 0..2 {
                let mut total = 0;
                while total < PIPE_MOST {
                    match self.pump(index, which) {
                        0 => break,
                        got => total += got,
                    }
                }
                let stream = &mut self.ranks[index].streams[which];
                // Without credit there may be more.
                if stream.as_ref().is_some_and(|stream| stream.credit > 0) {
                    *stream = None;
                }
                waits |= stream.is_some();
            }
        }
        if !waits {
            self.done = true;
            self.say(&Up::Done);
        }
    }

    fn kill(&self, index: usize, signal: i32) {
        let rank = &self.ranks[index];
        if rank.pidfd.is_some() {
            // SAFETY: no memory involved. The group's leader is not reaped, so the number is its.
            unsafe { libc::kill(-rank.pid, signal) };
        }
    }

    fn take_exit(&mut self, index: usize) {
        let Some(pidfd) = &self.ranks[index].pidfd else { return };
        let wait = |options| rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let exit = match wait(options | WaitIdOptions::NOWAIT) {
            Ok(None) | Err(rustix::io::Errno::INTR) => return,
            Ok(Some(status)) => Exit::of_status(&status),
            Err(_) => Exit::Code(1),
        };
        self.kill(index, libc::SIGKILL);
        self.guardian.remove(self.ranks[index].pid);
        let _ = wait(options);
        // What it had sent before counts, and what it had to say comes before the news of its end.
        self.relay(index);
        self.pump(index, 0);
        self.pump(index, 1);
        let known = &mut self.ranks[index];
        (known.pidfd, known.control) = (None, None);
        let rank = known.rank;
        if let Some((_, prepared, _)) = &mut self.plan {
            prepared.watcher.ended(rank, exit);
        }
        self.say(&Up::Exited { rank, exit });
    }

    /// Somebody killed the guardian: another one takes over.
    fn replace_guardian(&mut self) {
        let _ = epoll::delete(&self.epoll, self.guardian.socket());
        let alive = self.ranks.iter().filter(|rank| rank.pidfd.is_some());
        let groups: Vec<i32> = alive.map(|rank| rank.pid).collect();
        if let Ok(next) = Guardian::start(MOST_RANKS, &groups) {
            self.guardian = next;
            let _ = self.watch(self.guardian.socket(), GUARDIAN, epoll::EventFlags::IN);
        }
    }

    /// Ends what is left.
    fn end(mut self) {
        for index in 0..self.ranks.len() {
            self.kill(index, libc::SIGKILL);
        }
        for rank in &mut self.ranks {
            if let Some(pidfd) = rank.pidfd.take() {
                let wait =
                    || rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
                while matches!(wait(), Err(rustix::io::Errno::INTR)) {}
            }
        }
        self.guardian.finish();
    }
}
