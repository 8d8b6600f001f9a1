//! What waits for the sockets of a device: one epoll descriptor, one thread that sleeps on it (the
//! device's own, or whoever waits in a channel), and whoever polls meanwhile.
//!
//! The thread sleeps until a socket has something or the next patience ends; `due` wakes it only for
//! a patience that ends before all others. An idle device does nothing at all.

use super::hello::{HELLO, Hello};
use super::rc::SocketRc;
use super::ud::SocketUd;
use crate::base::slab::Slab;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Error, Result, forked};
use crate::net::alarm::{Alarm, now, sleep};
use crate::net::provider::Time;
use crate::net::soft::objects::Progress;
use crate::net::soft::{Shared, count};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Callers that have not said who they are, and for how long.
const CALLERS: usize = 256;
const CALLER_PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is let in after there were no descriptors.
const DEAF: Duration = Duration::from_millis(100);

/// What a descriptor in the epoll set is: kind above, number below.
#[derive(Clone, Copy)]
pub(super) struct Token(pub u64);

impl Token {
    const LISTENER: u64 = 1 << 62;
    const ALARM: u64 = 1 << 62 | 1;
    const UD: u64 = 1 << 32;
    const REQUESTS: u64 = 2 << 32;
    const ANSWERS: u64 = 3 << 32;
    /// And above: numbers of callers have up to 61 bits.
    const CALLER: u64 = 1 << 63;

    pub fn ud(number: u32) -> Token {
        Token(Token::UD | u64::from(number))
    }
    /// The connection that this side made.
    pub fn requests(number: u32) -> Token {
        Token(Token::REQUESTS | u64::from(number))
    }
    /// The one that the peer made.
    pub fn answers(number: u32) -> Token {
        Token(Token::ANSWERS | u64::from(number))
    }
}

struct Caller {
    socket: TcpStream,
    bytes: [u8; HELLO],
    got: usize,
    since: Time,
}

/// What only one thread at a time does.
struct Io {
    scratch: Vec<u8>,
    callers: Slab<Caller>,
    waiting: Vec<u64>,
    /// No descriptors were left for callers: the listener is not watched until the next tick.
    deaf: bool,
}

/// See the module.
pub(super) struct Engine {
    epoll: OwnedFd,
    alarm: Alarm,
    pub listener: TcpListener,
    pub here: SocketAddr,
    pub cookie: u64,
    pub shared: Arc<Shared>,
    io: Mutex<Io>,
    uds: RwLock<HashMap<u32, Weak<SocketUd>>>,
    rcs: RwLock<HashMap<u32, Weak<SocketRc>>>,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Engine {
    pub fn new(ip: IpAddr, cookie: u64) -> Result<Arc<Engine>> {
        let failed = |e: std::io::Error| Error::Os {
            call: "listening for network connections",
            source: e,
            hint: "HITHER_NET_ADDRESS must be an address of this machine",
        };
        let listener = TcpListener::bind((ip, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let here = listener.local_addr().map_err(failed)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::os("epoll for the network", e))?;
        let engine = Engine {
            epoll,
            alarm: Alarm::new()?,
            listener,
            here,
            cookie,
            shared: Arc::default(),
            io: Mutex::new(Io {
                scratch: vec![0; 128 << 10],
                callers: Slab::default(),
                waiting: Vec::new(),
                deaf: false,
            }),
            uds: RwLock::default(),
            rcs: RwLock::default(),
            next: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
        };
        engine.watch(&engine.listener, Token(Token::LISTENER), EventFlags::IN)?;
        engine.watch(&engine.alarm, Token(Token::ALARM), EventFlags::IN)?;
        Ok(Arc::new(engine))
    }

    pub fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub fn watch(&self, fd: impl AsFd, token: Token, interest: EventFlags) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token.0), interest)
            .map_err(|e| Error::os("watching a socket of the network", e))
    }

    pub fn forget(&self, fd: impl AsFd) {
        // The set is the parent's too, and what is taken out here is out there.
        if forked::is_forked() {
            return;
        }
        let _ = epoll::delete(&self.epoll, fd);
    }

    pub fn add_ud(&self, ud: &Arc<SocketUd>, number: u32) {
        write(&self.uds).insert(number, Arc::downgrade(ud));
    }

    pub fn add_rc(&self, rc: &Arc<SocketRc>, number: u32) {
        write(&self.rcs).insert(number, Arc::downgrade(rc));
    }

    pub fn remove(&self, number: u32) {
        write(&self.uds).remove(&number);
        write(&self.rcs).remove(&number);
    }

    // (The lock is given back before what is found is used: its last holder takes it out.)
    fn ud(&self, number: u32) -> Option<Arc<SocketUd>> {
        self.uds.read().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }

    fn rc(&self, number: u32) -> Option<Arc<SocketRc>> {
        self.rcs.read().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }

    /// The thread is to look at the time then at the latest. One atomic, mostly.
    pub fn due(&self, at: Option<Time>) {
        if let Some(at) = at
            && self.next.load(Ordering::Relaxed) > at.0
            && self.next.fetch_min(at.0, Ordering::AcqRel) > at.0
        {
            self.alarm.ring();
        }
    }

    /// The thread's whole life.
    pub fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            sleep(&[self.epoll.as_fd()], self.next_due());
            self.work();
        }
    }

    /// When a patience ends next.
    pub fn next_due(&self) -> Time {
        Time(self.next.load(Ordering::Acquire))
    }

    /// Does what has come and what is due: for whoever sleeps on the descriptor.
    pub fn work(&self) {
        let mut io = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut io, true);
        if now().0 >= self.next.load(Ordering::Acquire) {
            self.next.store(u64::MAX, Ordering::Release);
            self.tick(&mut io);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.alarm.ring();
    }

    fn tick(&self, io: &mut Io) {
        let time = now();
        if io.deaf {
            let token = Token(Token::LISTENER);
            io.deaf = self.watch(&self.listener, token, EventFlags::IN).is_err();
            if io.deaf {
                self.due(Some(time.plus(DEAF)));
            }
        }
        let rcs: Vec<Weak<SocketRc>> = {
            let rcs = self.rcs.read().unwrap_or_else(PoisonError::into_inner);
            rcs.values().cloned().collect()
        };
        for rc in rcs.iter().filter_map(Weak::upgrade) {
            rc.tick(time);
        }
        let mut late = Vec::new();
        for number in &io.waiting {
            match io.callers.get(*number).map(|caller| caller.since.plus(CALLER_PATIENCE)) {
                Some(end) if end > time => self.due(Some(end)),
                _ => late.push(*number),
            }
        }
        for number in late {
            self.hang_up(io, number);
            count(&self.shared.strangers);
        }
    }

    /// Handles what has come. The alarm is the thread's: whoever else silenced it would let it sleep on.
    fn look(&self, io: &mut Io, thread: bool) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&zero)) else { return };
        for event in events {
            // (By value: the structure is packed.)
            let (token, flags) = (event.data.u64(), event.flags);
            let number = token as u32;
            match token & !0xffff_ffff {
                _ if token & Token::CALLER != 0 => self.listen(io, token & !Token::CALLER),
                Token::UD => {
                    if let Some(ud) = self.ud(number) {
                        ud.readable(&mut io.scratch);
                    }
                }
                Token::REQUESTS | Token::ANSWERS => {
                    if let Some(rc) = self.rc(number) {
                        let requests = token & !0xffff_ffff == Token::REQUESTS;
                        rc.ready(requests, flags, &mut io.scratch);
                    }
                }
                _ if token == Token::ALARM && thread => self.alarm.silence(),
                _ if token == Token::ALARM => {}
                _ => self.accept(io),
            }
        }
    }

    fn accept(&self, io: &mut Io) {
        for _ in 0..16 {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // They would be told of again and again.
                Err(_) => {
                    self.forget(&self.listener);
                    io.deaf = true;
                    return self.due(Some(now().plus(DEAF)));
                }
            };
            if io.waiting.len() >= CALLERS || socket.set_nonblocking(true).is_err() {
                // Dropped: one that belongs here gets an error and is told.
                count(&self.shared.strangers);
                continue;
            }
            let since = now();
            let caller = Caller { socket, bytes: [0; HELLO], got: 0, since };
            let number = io.callers.insert(caller);
            io.waiting.push(number);
            let Some(caller) = io.callers.get(number) else { return };
            let token = Token(Token::CALLER | number);
            if self.watch(&caller.socket, token, EventFlags::IN).is_err() {
                self.hang_up(io, number);
                continue;
            }
            self.due(Some(since.plus(CALLER_PATIENCE)));
        }
    }

    fn hang_up(&self, io: &mut Io, number: u64) -> Option<Caller> {
        io.waiting.retain(|other| *other != number);
        let caller = io.callers.remove(number)?;
        self.forget(&caller.socket);
        Some(caller)
    }

    /// A caller says something.
    fn listen(&self, io: &mut Io, number: u64) {
        let Some(caller) = io.callers.get_mut(number) else { return };
        // No more than the hello: what comes behind it is the queue pair's.
        match caller.socket.read(&mut caller.bytes[caller.got..]) {
            Ok(count) if count > 0 => caller.got += count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            _ => {
                self.hang_up(io, number);
                return count(&self.shared.strangers);
            }
        }
        let known = Hello::cookie(&caller.bytes) == Some(self.cookie);
        if caller.got >= 8 && !known {
            self.hang_up(io, number);
            return count(&self.shared.strangers);
        }
        if caller.got < HELLO {
            return;
        }
        let Some(caller) = self.hang_up(io, number) else { return };
        match Hello::decode(&caller.bytes) {
            Some(hello) => match self.rc(hello.number) {
                Some(rc) => rc.called(&hello, caller.socket),
                None => count(&self.shared.unwanted),
            },
            None => count(&self.shared.malformed),
        }
    }
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for Engine {
    fn progress(&self) {
        // Held: someone else is at it.
        if let Ok(mut io) = self.io.try_lock() {
            self.look(&mut io, false);
        }
    }
}
