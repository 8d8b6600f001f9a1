//! One TCP connection that is never waited for.

use super::engine::{Engine, Token};
use crate::base::{Error, Result};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

/// Bytes kept for a socket that does not take them.
pub(super) const OUT: usize = 64 << 10;
/// How often that much is written in one go, so that one queue pair does not keep the others (and
/// whoever posts) waiting.
const AT_ONCE: usize = 8;

/// How far writing came.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// Everything is out.
    All,
    /// The socket takes no more now, or others have a turn before the rest.
    Blocked,
    /// The connection is broken.
    Broken,
}

/// What reading gave.
pub(super) enum Got {
    Bytes(usize),
    Nothing,
    Broken,
}

pub(super) struct Stream {
    socket: TcpStream,
    out: Vec<u8>,
    sent: usize,
    connecting: bool,
    /// Connecting was refused at once.
    refused: bool,
    interest: EventFlags,
    engine: Arc<Engine>,
    token: Token,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.engine.forget(&self.socket);
    }
}

impl Stream {
    /// Begins to connect from `here` (a port of its own) to `there`; `first` goes before anything.
    pub fn connect(
        engine: &Arc<Engine>,
        token: Token,
        here: IpAddr,
        there: SocketAddr,
        first: &[u8],
    ) -> Result<Stream> {
        let family = if there.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let failed = |e| Error::os("making a TCP socket for a queue pair", e);
        let fd =
            rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
        if here.is_ipv4() == there.is_ipv4() {
            rustix::net::bind(&fd, &SocketAddr::new(here, 0)).map_err(failed)?;
        }
        // What goes wrong later is told by the socket, as for a peer that does not answer.
        let connected = rustix::net::connect(&fd, &there);
        let mut stream = Stream::adopt(engine, token, TcpStream::from(fd))?;
        stream.connecting = true;
        stream.refused = !matches!(connected, Ok(()) | Err(rustix::io::Errno::INPROGRESS));
        stream.out.extend_from_slice(first);
        stream.want(true, true);
        Ok(stream)
    }

    /// Takes over a connection.
    pub fn adopt(engine: &Arc<Engine>, token: Token, socket: TcpStream) -> Result<Stream> {
        let _ = socket.set_nodelay(true);
        let interest = EventFlags::IN;
        engine.watch(&socket, token, interest)?;
        let engine = engine.clone();
        let (out, sent, connecting, refused) = (Vec::new(), 0, false, false);
        Ok(Stream { socket, out, sent, connecting, refused, interest, engine, token })
    }

    /// What to be woken for.
    pub fn want(&mut self, input: bool, output: bool) {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, input);
        interest.set(EventFlags::OUT, output || self.connecting);
        if interest != self.interest {
            self.interest = interest;
            let data = epoll::EventData::new_u64(self.token.0);
            let _ = epoll::modify(self.engine.epoll(), &self.socket, data, interest);
        }
    }

    /// The socket said that it can be written or (`failed`) is broken: false if it will never be
    /// connected.
    pub fn connected(&mut self, failed: bool) -> bool {
        if self.connecting {
            match self.socket.take_error() {
                Ok(None) if self.socket.peer_addr().is_ok() => self.connecting = false,
                // Not yet.
                Ok(None) if !failed && !self.refused => {}
                _ => return false,
            }
        }
        true
    }

    /// Writes what is kept and what `more` adds until that adds nothing or the socket is full. Says
    /// how far it came, and whether the socket took anything.
    pub fn write(&mut self, mut more: impl FnMut(&mut Vec<u8>)) -> (Written, bool) {
        let mut moved = false;
        if self.connecting {
            return (Written::Blocked, false);
        }
        let mut rounds = 0;
        loop {
            if self.sent == self.out.len() {
                if rounds == AT_ONCE {
                    return (Written::Blocked, moved);
                }
                rounds += 1;
                self.out.clear();
                self.sent = 0;
                more(&mut self.out);
                if self.out.is_empty() {
                    if self.out.capacity() > OUT / 8 {
                        self.out = Vec::new();
                    }
                    return (Written::All, moved);
                }
            }
            match self.socket.write(&self.out[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return (Written::Blocked, moved),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (Written::Broken, moved),
            }
        }
    }

    pub fn read(&mut self, into: &mut [u8]) -> Got {
        if self.connecting {
            return Got::Nothing;
        }
        loop {
            return match self.socket.read(into) {
                Ok(0) => Got::Broken,
                Ok(count) => Got::Bytes(count),
                Err(e) if e.kind() == ErrorKind::WouldBlock => Got::Nothing,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Got::Broken,
            };
        }
    }

    /// Says that no more comes; the peer can still read what was sent.
    pub fn finish(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}
