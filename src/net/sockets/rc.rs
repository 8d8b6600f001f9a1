//! Connected queue pairs: a connection for this side's operations, one for the peer's.

use super::address::Spot;
use super::device::Owner;
use super::engine::Token;
use super::hello::Hello;
use super::stream::{Got, OUT, Stream, Written};
use crate::base::{Error, Result};
use crate::net::alarm::now;
use crate::net::provider::{Address, RcQueuePair, Receive, Refused, State, Status, Time, Work};
use crate::net::soft::core::Core;
use crate::net::soft::count;
use crate::net::soft::objects::Counted;
use rustix::event::epoll::EventFlags;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Callers kept until this side is connected.
const EARLY: usize = 8;
/// How long a failed queue pair waits for its peer to have read why.
const LINGER: Duration = Duration::from_secs(2);
/// Reads in one go, so that one queue pair does not keep the others waiting.
const AT_ONCE: usize = 4;

struct Line {
    core: Core,
    incarnation: u32,
    peer: Option<Spot>,
    requests: Option<Stream>,
    answers: Option<Stream>,
    early: Vec<(Spot, TcpStream)>,
    /// Failed; the connections end then at the latest.
    ends: Option<Time>,
}

pub(super) struct SocketRc {
    number: u32,
    line: Mutex<Line>,
    owner: Arc<Owner>,
    _counted: Counted,
}

impl Drop for SocketRc {
    fn drop(&mut self) {
        self.owner.engine.remove(self.number);
    }
}

impl SocketRc {
    pub fn new(owner: &Arc<Owner>, core: Core, counted: Counted) -> Arc<SocketRc> {
        let number = core.number;
        let line = Line {
            core,
            incarnation: 1,
            peer: None,
            requests: None,
            answers: None,
            early: Vec::new(),
            ends: None,
        };
        let (line, owner) = (Mutex::new(line), owner.clone());
        let rc = Arc::new(SocketRc { number, line, owner, _counted: counted });
        rc.owner.engine.add_rc(&rc, number);
        rc
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spot(&self, line: &Line) -> Spot {
        Spot {
            socket: self.owner.engine.here,
            number: self.number,
            incarnation: line.incarnation,
            connected: true,
        }
    }

    /// Writes what there is to write, and says what this queue pair is to be woken for.
    fn settle(&self, line: &mut Line) {
        let Line { core, requests, answers, .. } = line;
        let mut broken = false;
        let mut idle = true;
        if let Some(stream) = requests {
            let (written, moved) = stream.write(|out| core.emit_requests(out, OUT));
            stream.want(true, written == Written::Blocked);
            if moved {
                core.moved(now());
            }
            broken |= written == Written::Broken;
        }
        if let Some(stream) = answers {
            let (written, _) = stream.write(|out| core.emit_answers(out, OUT));
            stream.want(!core.waits(), written == Written::Blocked);
            broken |= written == Written::Broken;
            idle = written != Written::Blocked;
        }
        if broken {
            core.fail(Status::RetryExceeded);
            (*requests, *answers) = (None, None);
        }
        if core.state == State::Error {
            // The peer's operations end with what this side has to say of them; its own end here.
            *requests = None;
            line.early.clear();
            if line.ends.is_none() {
                line.ends = Some(now().plus(LINGER));
            }
            if let Some(stream) = answers
                && idle
            {
                // Not closed: what has not been read here would make the peer lose what it has not
                // read yet.
                stream.finish();
            }
            let ends = line.ends.filter(|_| line.answers.is_some());
            return self.owner.engine.due(ends);
        }
        self.owner.engine.due(line.core.deadline());
    }

    /// A connection has something.
    pub fn ready(&self, requests: bool, flags: EventFlags, scratch: &mut [u8]) {
        let mut line = self.lock();
        let line = &mut *line;
        let stream = if requests { &mut line.requests } else { &mut line.answers };
        let Some(open) = stream else { return };
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let mut broken = (flags.contains(EventFlags::OUT) || failed) && !open.connected(failed);
        for _ in 0..AT_ONCE {
            if broken || (!requests && line.core.waits() && !failed) {
                break;
            }
            match open.read(scratch) {
                Got::Bytes(count) => {
                    if line.core.state != State::Error {
                        match requests {
                            true => line.core.feed_answers(&scratch[..count], now()),
                            false => line.core.feed_requests(&scratch[..count], now()),
                        }
                    }
                    // There was no more: asking again would be a system call for nothing. (If the
                    // connection has ended, it is still to be told so.)
                    if count < scratch.len() && !failed {
                        break;
                    }
                }
                Got::Nothing => break,
                Got::Broken => broken = true,
            }
        }
        if broken {
            *stream = None;
            line.core.fail(Status::RetryExceeded);
        }
        self.settle(line);
    }

    pub fn tick(&self, time: Time) {
        let mut line = self.lock();
        line.core.tick(time);
        if line.ends.is_some_and(|end| time >= end) {
            line.answers = None;
        }
        self.settle(&mut line);
    }

    /// Someone who knows the cookie calls this queue pair.
    pub fn called(&self, hello: &Hello, socket: TcpStream) {
        let mut line = self.lock();
        let unwanted = line.incarnation != hello.incarnation
            || line.core.state == State::Error
            || line.answers.is_some();
        match line.peer {
            _ if unwanted => count(&self.owner.engine.shared.unwanted),
            Some(peer) if peer == hello.caller => {
                self.attach(&mut line, socket);
                self.settle(&mut line);
            }
            None if line.early.len() < EARLY => line.early.push((hello.caller, socket)),
            _ => count(&self.owner.engine.shared.unwanted),
        }
    }

    fn attach(&self, line: &mut Line, socket: TcpStream) {
        match Stream::adopt(&self.owner.engine, Token::answers(self.number), socket) {
            Ok(stream) => line.answers = Some(stream),
            Err(_) => line.core.fail(Status::Fatal),
        }
    }
}

impl RcQueuePair for SocketRc {
    fn number(&self) -> u32 {
        self.number
    }

    fn address(&self) -> Address {
        self.spot(&self.lock()).address()
    }

    fn state(&self) -> State {
        self.lock().core.state
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        let engine = &self.owner.engine;
        let spot = Spot::from_address(peer, true)
            .filter(|spot| spot.socket.is_ipv4() == engine.here.is_ipv4());
        let spot = spot.ok_or_else(|| {
            Error::invalid(
                "a peer's address",
                "it is not of a connected queue pair over sockets of the same IP version",
            )
        })?;
        let mut line = self.lock();
        let caller = self.spot(&line);
        let Spot { number, incarnation, .. } = spot;
        let hello = Hello { cookie: engine.cookie, number, incarnation, caller }.encode();
        line.core.connect(now())?;
        let token = Token::requests(self.number);
        match Stream::connect(engine, token, engine.here.ip(), spot.socket, &hello) {
            Ok(stream) => line.requests = Some(stream),
            Err(e) => {
                line.core.reset();
                return Err(e);
            }
        }
        line.peer = Some(spot);
        for (caller, socket) in std::mem::take(&mut line.early) {
            if caller == spot && line.answers.is_none() {
                self.attach(&mut line, socket);
            }
        }
        self.settle(&mut line);
        Ok(())
    }

    fn post(&self, works: &[Work<'_>]) -> Result<(), Refused> {
        let mut line = self.lock();
        let result = line.core.post(works, now());
        self.settle(&mut line);
        result
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        let mut line = self.lock();
        let result = line.core.receive(receives);
        if line.core.waits() {
            line.core.retry(now());
            self.settle(&mut line);
        }
        result
    }

    fn fail(&self) {
        let mut line = self.lock();
        line.core.fail(Status::Flushed);
        self.settle(&mut line);
    }

    fn reset(&self) -> Result<()> {
        let mut line = self.lock();
        (line.requests, line.answers) = (None, None);
        line.early.clear();
        (line.peer, line.ends) = (None, None);
        line.incarnation = line.incarnation.wrapping_add(1);
        line.core.reset();
        Ok(())
    }
}
