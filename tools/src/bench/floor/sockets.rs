//! What the kernel's sockets do between two processes of this machine: messages over UDP and over
//! TCP, without anything that a library adds.

use crate::bench::crew::{Crew, spin_until};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use crate::bench::subject::echo::End;
use hither::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

/// Datagrams under way: more could be lost.
const WINDOW: u64 = 32;

fn os(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::os(what, error)
}

/// What came of one try to send or to receive: whether it is done.
fn tried(what: &'static str, outcome: std::io::Result<usize>) -> Result<usize> {
    match outcome {
        Ok(count) => Ok(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Err(error) => Err(os(what)(error)),
    }
}

/// Tells each other of two ranks a number.
fn exchange(crew: &Crew, mine: u64) -> Result<u64> {
    let mut both = [0u64; 2];
    crew.job()?.team().allgather(&[mine], &mut both)?;
    Ok(both[usize::from(crew.leads())])
}

/// One end of a connected pair of UDP sockets, polled.
pub struct Udp {
    socket: UdpSocket,
    private: Vec<u8>,
}

impl Udp {
    /// Between ranks 0 and 1, for messages of `size` bytes. Collective.
    pub fn new(crew: &Crew, size: usize) -> Result<Udp> {
        let socket =
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(os("binding a UDP socket"))?;
        let port = socket.local_addr().map_err(os("asking for a port"))?.port();
        let other = exchange(crew, port.into())? as u16;
        socket.connect((Ipv4Addr::LOCALHOST, other)).map_err(os("connecting a UDP socket"))?;
        socket.set_nonblocking(true).map_err(os("setting up a UDP socket"))?;
        // Neither sends before both are connected: what came from others would be dropped.
        crew.job()?.team().barrier()?;
        Ok(Udp { socket, private: vec![0; size] })
    }
}

impl End for Udp {
    fn private(&mut self) -> &mut [u8] {
        &mut self.private
    }

    fn send(&mut self) -> Result<()> {
        let (socket, bytes) = (&self.socket, &self.private);
        let mut outcome = Ok(0);
        spin_until(|| {
            outcome = tried("sending a datagram", socket.send(bytes));
            !matches!(outcome, Ok(0))
        })?;
        outcome.map(drop)
    }

    fn receive(&mut self) -> Result<()> {
        let (socket, bytes) = (&self.socket, &mut self.private);
        let mut outcome = Ok(0);
        spin_until(|| {
            outcome = tried("receiving a datagram", socket.recv(bytes));
            !matches!(outcome, Ok(0))
        })?;
        outcome.map(drop)
    }
}

/// Datagrams from rank 0 to rank 1, which answers each window of them. An operation is a datagram.
pub struct Datagrams(Udp);

impl Datagrams {
    /// Of `size` bytes. Collective.
    pub fn new(crew: &Crew, size: usize) -> Result<Datagrams> {
        Udp::new(crew, size).map(Datagrams)
    }
}

impl Side for Datagrams {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| {
            for i in 0..count {
                self.0.send()?;
                if i % WINDOW == WINDOW - 1 || i == count - 1 {
                    self.0.receive()?;
                }
            }
            Ok(())
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        for i in 0..count {
            self.0.receive()?;
            if i % WINDOW == WINDOW - 1 || i == count - 1 {
                self.0.send()?;
            }
        }
        Ok(())
    }
}

/// One end of a TCP connection, polled.
pub struct Tcp {
    stream: TcpStream,
    private: Vec<u8>,
}

impl Tcp {
    /// Between ranks 0 and 1, for messages of `size` bytes. Collective.
    pub fn new(crew: &Crew, size: usize) -> Result<Tcp> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(os("listening on a TCP socket"))?;
        let port = listener.local_addr().map_err(os("asking for a port"))?.port();
        let other = exchange(crew, port.into())? as u16;
        let stream = if crew.leads() {
            listener.accept().map_err(os("accepting a connection"))?.0
        } else {
            TcpStream::connect((Ipv4Addr::LOCALHOST, other)).map_err(os("connecting by TCP"))?
        };
        stream.set_nodelay(true).map_err(os("setting up a TCP connection"))?;
        stream.set_nonblocking(true).map_err(os("setting up a TCP connection"))?;
        Ok(Tcp { stream, private: vec![0; size] })
    }
}

impl End for Tcp {
    fn private(&mut self) -> &mut [u8] {
        &mut self.private
    }

    fn send(&mut self) -> Result<()> {
        let (stream, bytes) = (&mut self.stream, &self.private);
        let (mut done, mut outcome) = (0, Ok(()));
        spin_until(|| {
            match tried("sending by TCP", stream.write(&bytes[done..])) {
                Ok(count) => done += count,
                Err(error) => outcome = Err(error),
            }
            done == bytes.len() || outcome.is_err()
        })?;
        outcome
    }

    fn receive(&mut self) -> Result<()> {
        let (stream, bytes) = (&mut self.stream, &mut self.private);
        let (mut done, mut outcome) = (0, Ok(()));
        spin_until(|| {
            match tried("receiving by TCP", stream.read(&mut bytes[done..])) {
                Ok(count) => done += count,
                Err(error) => outcome = Err(error),
            }
            done == bytes.len() || outcome.is_err()
        })?;
        outcome
    }
}

/// Messages from rank 0 to rank 1, which answers the last one. An operation is a message.
pub struct Flood<E> {
    end: E,
}

impl<E: End> Flood<E> {
    /// By one end.
    pub fn new(end: E) -> Flood<E> {
        Flood { end }
    }
}

impl<E: End> Side for Flood<E> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| {
            for i in 0..count {
                self.end.private()[..8].copy_from_slice(&i.to_ne_bytes());
                self.end.send()?;
            }
            self.end.receive()
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.end.receive()?;
        }
        if self.end.private()[..8] != (count - 1).to_ne_bytes() {
            return Err(Error::invalid("bench", "a stream of messages was not what was sent"));
        }
        self.end.send()
    }
}
