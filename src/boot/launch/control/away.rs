//! The part of the control thread that talks to agents on other hosts (see `agent`).
//!
//! ```text
//! Calling --Hello--> Preparing --Ready--> Ready (all are) --Started--> Running --Done--> Over
//!    |                   |                   |                            |
//!    +-------------------+------ failure: the start fails                 +-- lost: its ranks
//!                                                                             count as killed
//! ```

use super::super::frame::{self, Down, Order, Up};
use super::super::output::{Origin, Printer, Source};
use super::super::stream::{Incoming, Outgoing};
use super::super::{Exit, Output, Process, agent::BEAT, rsh};
use super::{Control, HOSTS, Rank};
use crate::base::{Error, Result};
use crate::topo::Bind;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a remote shell may take to end once its connection is of no use.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most of a remote shell's error messages that is kept.
const MOST_ERRORS: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Calling,
    Preparing,
    Ready,
    Running,
    Over,
}

/// A host with ranks.
pub(super) struct Host {
    name: String,
    child: Child,
    to: Arc<Outgoing>,
    from: Incoming,
    errors: Incoming,
    state: State,
    greeted: bool,
    heard: Instant,
    address: String,
}

impl Control {
    /// Starts the agents and, by them, the ranks.
    pub(super) fn start_away(&mut self) -> Result<()> {
        let Some(remote) = self.plan.remote.clone() else { return Ok(()) };
        self.next_beat = Some(Instant::now() + BEAT);
        let mut sources = Vec::new();
        for (node, (host, _)) in (0u64..).zip(&remote.hosts) {
            let shell = rsh::start(&remote.rsh, &host.name, &remote.agent, self.guardian.socket())?;
            let host = Host {
                name: host.name.clone(),
                child: shell.child,
                to: Arc::new(Outgoing::new(shell.input)?),
                from: Incoming::new(shell.output)?,
                errors: Incoming::new(shell.errors)?,
                state: State::Calling,
                greeted: false,
                heard: Instant::now(),
                address: String::new(),
            };
            self.watch(host.from.fd(), HOSTS + 4 * node)?;
            self.watch(host.errors.fd(), HOSTS + 4 * node + 1)?;
            let token = epoll::EventData::new_u64(HOSTS + 4 * node + 2);
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&self.epoll, host.to.fd(), token, flags)
                .map_err(|e| Error::os("epoll_ctl for the launcher", e))?;
            self.hosts.push(host);
        }
        for rank in 0..self.plan.places.ranks() {
            let node = self.plan.places.node_of(rank).unwrap_or_default();
            let Some(host) = self.hosts.get(node as usize) else {
                return Err(Error::invalid("hosts", "there are fewer than nodes"));
            };
            let away = Some(Arc::clone(&host.to));
            self.shared.processes().push(Process { pid: 0, alive: true, away });
            let away = Some(node);
            self.ranks.push(Rank { pid: 0, pidfd: None, control: None, away, exit: None });
            for stream in 0..2 {
                sources.push(Source { rank, stream, from: Origin::Agent(Arc::clone(&host.to)) });
            }
        }
        let capture = self.plan.output == Output::Capture;
        let printer = Printer::start(sources, self.plan.places.ranks(), capture, self.plan.label)?;
        self.watch(printer.done(), super::PRINTED)?;
        self.printer = Some(printer);
        self.all_reach(State::Ready)?;
        self.check_addresses()?;
        self.tell_all(&Down::Go);
        self.all_reach(State::Running)
    }

    /// The groups of remote shells.
    pub(super) fn shells(&self) -> impl Iterator<Item = i32> + '_ {
        self.hosts.iter().map(|host| host.child.id() as i32)
    }

    /// The name of a host.
    pub(super) fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("", |host| &host.name)
    }

    /// Sends something to a host.
    pub(super) fn pass_on(&self, host: u32, down: Down) {
        if let Some(host) = self.hosts.get(host as usize) {
            host.to.send(&down.encode());
        }
    }

    fn tell_all(&self, down: &Down) {
        let bytes = down.encode();
        self.hosts.iter().for_each(|host| host.to.send(&bytes));
    }

    /// Goes on until all hosts have come so far.
    fn all_reach(&mut self, state: State) -> Result<()> {
        let reached = |host: &Host| host.state as u8 >= state as u8;
        while !self.hosts.iter().all(reached) {
            if let Some(why) = self.cannot.take() {
                return Err(Error::boot(why));
            }
            let stopped = self.shared.stop.load(crate::base::sync::Ordering::Acquire);
            if self.interrupts > 0 || self.outcome.timed_out || stopped {
                let waits: Vec<&str> =
                    self.hosts.iter().filter(|h| !reached(h)).map(|h| h.name.as_str()).collect();
                let hosts = waits.join(", ");
                return Err(Error::boot(format!("ended while starting ranks on {hosts}")));
            }
            self.turn();
        }
        match self.cannot.take() {
            Some(why) => Err(Error::boot(why)),
            None => Ok(()),
        }
    }

    /// An address that reaches its own host only is of no use where there are others.
    fn check_addresses(&self) -> Result<()> {
        let own = |host: &&Host| {
            host.address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        let inner = self.hosts.iter().find(own);
        let outer = self.hosts.iter().find(|host| !own(host));
        let (Some(inner), Some(outer)) = (inner, outer) else { return Ok(()) };
        Err(Error::boot(format!(
            "host {} would be reached at {}, which host {} cannot reach: name it as the others know \
             it, or choose an interface or subnet by --net-address (HITHER_NET_ADDRESS)",
            inner.name, inner.address, outer.name
        )))
    }

    /// Something happened to a host's descriptor.
    pub(super) fn take_host_event(&mut self, token: u64) {
        let (node, what) = ((token / 4) as usize, token % 4);
        let Some(host) = self.hosts.get_mut(node) else { return };
        match what {
            0 => self.hear(node),
            1 => {
                if !host.errors.read() {
                    let _ = epoll::delete(&self.epoll, host.errors.fd());
                }
                let have = &mut host.errors.bytes;
                have.drain(..have.len().saturating_sub(MOST_ERRORS));
            }
            _ => host.to.flush(),
        }
    }

    fn hear(&mut self, node: usize) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        let open = host.from.read();
        loop {
            let Some(host) = self.hosts.get_mut(node) else { return };
            let next = match host.greeted {
                true => frame::next(&mut host.from.bytes),
                false => frame::skip_preamble(&mut host.from.bytes).map(|found| {
                    host.greeted = found;
                    None
                }),
            };
            match next {
                Ok(Some(frame)) => {
                    host.heard = Instant::now();
                    let fit = Up::decode(&frame).is_some_and(|up| self.take_up(node, up));
                    if !fit {
                        return self.lose(node, "it sent what makes no sense");
                    }
                }
                // What follows the preamble may be there.
                Ok(None) if host.greeted && frame_waits(&host.from.bytes) => {}
                Ok(None) => break,
                Err(why) => return self.lose(node, why),
            }
        }
        if !open {
            self.lose(node, "the connection to it has ended");
        }
    }

    /// Acts on what an agent says; false if it makes no sense.
    fn take_up(&mut self, node: usize, up: Up) -> bool {
        let mine =
            |control: &Control, rank: u32| control.plan.places.node_of(rank) == Some(node as u32);
        let state = self.hosts[node].state;
        match up {
            Up::Hello { version } if state == State::Calling => {
                if version != frame::VERSION {
                    let why = "its hither is of another version; install the same on all hosts";
                    self.lose(node, why);
                    return true;
                }
                let order = Down::Prepare(Box::new(self.order(node))).encode();
                self.hosts[node].to.send(&order);
                self.hosts[node].state = State::Preparing;
            }
            Up::Ready { address } if state == State::Preparing => {
                self.hosts[node].address = address;
                self.hosts[node].state = State::Ready;
            }
            Up::Started { pids } if state == State::Ready => {
                let ranks: Vec<u32> = self.plan.places.ranks_on(node as u32).collect();
                if pids.len() != ranks.len() {
                    return false;
                }
                for (rank, pid) in ranks.into_iter().zip(pids) {
                    self.ranks[rank as usize].pid = pid as i32;
                    self.shared.processes()[rank as usize].pid = pid as i32;
                }
                self.hosts[node].state = State::Running;
            }
            Up::Failed { why } if state != State::Over => {
                let name = &self.hosts[node].name;
                self.cannot.get_or_insert(format!("host {name}: {why}"));
            }
            Up::Wiring { rank, message } if mine(self, rank) => {
                let answers = self.server.handle(rank, message);
                self.send(answers);
            }
            Up::Output { rank, stream, bytes } if mine(self, rank) => {
                if let Some(printer) = &self.printer {
                    printer.feed(rank, stream as usize, bytes);
                }
            }
            Up::Exited { rank, exit } if mine(self, rank) => {
                if self.ranks[rank as usize].exit.is_none() {
                    self.shared.processes()[rank as usize].alive = false;
                    self.note_exit(rank, exit);
                }
            }
            Up::Note { text } => self.note(text),
            Up::Done => self.hosts[node].state = State::Over,
            Up::Alive => {}
            _ => return false,
        }
        true
    }

    fn order(&self, node: usize) -> Order {
        let bytes = |text: &std::ffi::OsString| text.as_bytes().to_vec();
        let mut order = Order {
            node: node as u32,
            ranks: self.plan.places.ranks(),
            blocks: self.plan.places.blocks(),
            program: bytes(&self.plan.program),
            args: self.plan.args.iter().map(bytes).collect(),
            env: self.plan.env.iter().flat_map(|(k, v)| [bytes(k), bytes(v)]).collect(),
            ..Order::default()
        };
        if let Some(remote) = &self.plan.remote {
            order.directory = bytes(&remote.directory);
            order.heap = remote.heap;
            order.bind = match remote.bind {
                Bind::None => 0,
                Bind::Core => 1,
                Bind::Spread => 2,
            };
            order.address = remote.address.clone();
            order.silence = remote.silence.as_millis().min(u64::MAX.into()) as u64;
            if let Some((_, candidates)) = remote.hosts.get(node) {
                order.candidates = candidates.clone();
            }
        }
        order
    }

    /// A host's agent is gone, or of no use.
    fn lose(&mut self, node: usize, why: &str) {
        let host = &mut self.hosts[node];
        let _ = epoll::delete(&self.epoll, host.from.fd());
        let before = std::mem::replace(&mut host.state, State::Over);
        if before == State::Over {
            return;
        }
        // How it ended, and what it said of that.
        let deadline = Instant::now() + Duration::from_millis(500);
        let mut status = None;
        while status.is_none() && Instant::now() < deadline {
            status = host.child.try_wait().ok().flatten();
            let mut polls = [PollFd::from_borrowed_fd(host.errors.fd(), PollFlags::IN)];
            let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut polls, Some(&slice));
            host.errors.read();
        }
        host.errors.read();
        let mut text = why.to_owned();
        if let Some(status) = status {
            text = format!("{text} (the remote shell ended with {status})");
        }
        let said = rsh::last_words(&host.errors.bytes);
        if !said.is_empty() {
            text = format!("{text}: {said}");
        }
        let name = host.name.clone();
        if before != State::Running {
            let text = format!(
                "cannot start ranks on host {name}: {text}; check that the remote shell (--rsh, \
                 HITHER_RSH) runs commands there without asking, and that hither is there under \
                 the same path"
            );
            self.cannot.get_or_insert(text);
            return;
        }
        self.note(format!("host {name} is lost: {text}"));
        let ranks: Vec<u32> = self.plan.places.ranks_on(node as u32).collect();
        for rank in ranks {
            if self.ranks[rank as usize].exit.is_none() {
                self.shared.processes()[rank as usize].alive = false;
                // Its agent, or what watches over that, kills it.
                self.note_exit(rank, Exit::Signal(libc::SIGKILL as u8));
            }
        }
    }

    /// Says that the launcher is alive; notices hosts that do not.
    pub(super) fn beat(&mut self) {
        let now = Instant::now();
        if self.next_beat.is_none_or(|at| now < at) {
            return;
        }
        self.next_beat = Some(now + BEAT);
        let bytes = Down::Alive.encode();
        self.hosts.iter().filter(|host| host.to.is_idle()).for_each(|host| host.to.send(&bytes));
        let silence = self.plan.remote.as_ref().map_or(Duration::MAX, |remote| remote.silence);
        for node in 0..self.hosts.len() {
            let host = &self.hosts[node];
            if host.state != State::Over && now.duration_since(host.heard) > silence {
                let why = format!("it has said nothing for {silence:?} (HITHER_HOST_TIMEOUT)");
                self.lose(node, &why);
            }
        }
    }

    /// Says that the job is being ended.
    pub(super) fn tell_ending(&self) {
        self.tell_all(&Down::Ending);
    }

    /// Whether no host has output under way any more.
    pub(super) fn hosts_over(&self) -> bool {
        self.hosts.iter().all(|host| host.state == State::Over)
    }

    /// Ends all connections: what is left there ends with them.
    pub(super) fn hang_up(&mut self) {
        self.printer_lets_go();
        for Host { mut child, to, from, errors, .. } in self.hosts.drain(..) {
            drop((to, from));
            let deadline = Instant::now() + PATIENCE;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                let mut polls = [PollFd::from_borrowed_fd(errors.fd(), PollFlags::IN)];
                let slice = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                if !matches!(rustix::event::poll(&mut polls, Some(&slice)), Ok(0)) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            let group = child.id() as i32;
            if matches!(child.try_wait(), Ok(None)) {
                // SAFETY: no memory involved. The child is not reaped, so the number is its.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            self.guardian.remove(group);
            let _ = child.wait();
        }
    }

    /// The ways to the agents close once nobody has them.
    fn printer_lets_go(&mut self) {
        self.shared.processes().iter_mut().for_each(|process| process.away = None);
    }
}

fn frame_waits(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return false };
    rest.len() >= u32::from_le_bytes(*length) as usize
}
