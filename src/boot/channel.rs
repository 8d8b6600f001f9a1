//! What the messages of a rendezvous go over: a Unix socket that keeps packets apart, or a TCP
//! connection to a process on any machine.
//!
//! ```text
//! TCP    | length, 4 bytes | a message (see `wire`) | length | ...
//! ```
//! Of a TCP connection no more is read than the message under way, so that what the kernel says of it
//! (something to read or not) is all that has to be looked at. Until the other side has shown that it
//! belongs here, its messages are short.

use super::socket::{self, Received};
use super::wire::{MAX_PACKET, Message};
use crate::base::{Deadline, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::time::Duration;

/// Longest message of somebody not known yet.
const MOST_OF_STRANGERS: usize = 128;
/// Shortest message: see `wire`.
const LEAST: usize = 8;
const LENGTH: usize = 4;

/// A connection to another process of a rendezvous.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
    stream: Option<Incoming>,
}

/// A message that has come in part, with its length in front.
#[derive(Debug)]
struct Incoming {
    bytes: Vec<u8>,
    most: usize,
}

impl Channel {
    /// Over a connected Unix socket.
    pub fn of_packets(socket: OwnedFd) -> Channel {
        Channel { socket, stream: None }
    }

    /// Over a TCP connection that does not block, with somebody not known yet.
    pub fn of_stream(socket: OwnedFd) -> Channel {
        let stream = Some(Incoming { bytes: Vec::new(), most: MOST_OF_STRANGERS });
        Channel { socket, stream }
    }

    /// Takes messages of any length from now on.
    pub fn trust(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.most = MAX_PACKET;
        }
    }

    /// The socket, to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message without waiting: false if the other side is gone, or has stopped reading.
    pub fn send(&self, message: &Message) -> Result<bool> {
        match self.stream {
            None => socket::send(self.fd(), message, None),
            Some(_) => self.write(message, Deadline::after(Duration::ZERO)),
        }
    }

    /// As [`Channel::send`], but waits until the deadline for room.
    pub fn send_patiently(&self, message: &Message, deadline: Deadline) -> Result<bool> {
        match self.stream {
            None => socket::send_patiently(self.fd(), message, deadline),
            Some(_) => self.write(message, deadline),
        }
    }

    /// Waits for a message until the deadline.
    pub fn receive(&mut self, deadline: Deadline) -> Result<Received> {
        let Some(stream) = &mut self.stream else {
            return socket::receive(self.socket.as_fd(), deadline);
        };
        loop {
            let wanted = match stream.bytes.first_chunk() {
                None => LENGTH,
                Some(length) => {
                    let length = u32::from_le_bytes(*length) as usize;
                    if !(LEAST..=stream.most).contains(&length) {
                        return Err(Error::boot("what came is no message of hither's"));
                    }
                    LENGTH + length
                }
            };
            let had = stream.bytes.len();
            if had == wanted {
                let bytes = std::mem::take(&mut stream.bytes);
                return Ok(Received::Message(Message::decode(&bytes[LENGTH..])?, None));
            }
            if !socket::readable(self.socket.as_fd(), deadline)? {
                return Ok(Received::Late);
            }
            stream.bytes.resize(wanted, 0);
            let flags = RecvFlags::DONTWAIT;
            let came = rustix::net::recv(&self.socket, &mut stream.bytes[had..], flags);
            stream
                .bytes
                .truncate(had + came.as_ref().map_or(0, |(_, came)| (*came).min(wanted - had)));
            match came {
                Ok((_, 0)) => return Ok(Received::Closed),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                // Whatever cut it.
                Err(_) => return Ok(Received::Closed),
            }
        }
    }

    /// Writes a message, all of it or for the other side's eyes the last one.
    fn write(&self, message: &Message, deadline: Deadline) -> Result<bool> {
        let message = message.encode();
        let frame = [&(message.len() as u32).to_le_bytes()[..], &message].concat();
        let mut left = &frame[..];
        while !left.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, left, flags) {
                Ok(sent) => left = &left[sent.min(left.len())..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !deadline.passed() => {
                    let mut polls = [PollFd::new(&self.socket, PollFlags::OUT)];
                    let slice = deadline.clamp(Duration::from_millis(100));
                    let slice = Timespec { tv_sec: 0, tv_nsec: slice.subsec_nanos().into() };
                    // Only room matters; an interrupted poll is just another round.
                    let _ = rustix::event::poll(&mut polls, Some(&slice));
                }
                Err(_) => {
                    // A part of a message may have gone: nothing can follow it.
                    let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, OwnedFd) {
        let (ours, theirs) = socket::stream_pair().unwrap();
        (Channel::of_stream(ours), theirs)
    }

    fn now() -> Deadline {
        Deadline::after(Duration::ZERO)
    }

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let (mut channel, other) = pair();
        let (lobby, hello) =
            (Message::Lobby { present: 3 }, Message::Hello { version: 1, pid: 2, size: 3 });
        let frames: Vec<u8> = [&lobby, &hello]
            .into_iter()
            .flat_map(|message| {
                let bytes = message.encode();
                [(bytes.len() as u32).to_le_bytes().to_vec(), bytes].concat()
            })
            .collect();
        let mut came = Vec::new();
        for byte in &frames {
            rustix::io::write(&other, &[*byte]).unwrap();
            match channel.receive(now()).unwrap() {
                Received::Message(message, None) => came.push(message),
                Received::Late => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(came, [lobby.clone(), hello.clone()]);
        // Both at once: the second one is still to be seen in the socket.
        rustix::io::write(&other, &frames).unwrap();
        for expected in [lobby, hello] {
            assert!(socket::readable(channel.fd(), now()).unwrap());
            let Received::Message(message, _) = channel.receive(now()).unwrap() else { panic!() };
            assert_eq!(message, expected);
        }
        rustix::io::write(&other, &frames[..9]).unwrap();
        drop(other);
        assert!(matches!(channel.receive(Deadline::NEVER).unwrap(), Received::Closed));
    }

    #[test]
    fn strangers_say_little_and_nothing_else_is_taken_from_them() {
        let long = Message::Piece { rank: 0, bytes: vec![7; 1000] };
        let (mut channel, other) = pair();
        let sender = Channel::of_stream(other);
        assert!(sender.send(&long).unwrap());
        assert!(channel.receive(now()).is_err(), "more than a stranger may say");
        let (mut channel, other) = pair();
        let sender = Channel::of_stream(other);
        channel.trust();
        assert!(sender.send(&long).unwrap());
        assert!(matches!(channel.receive(now()).unwrap(), Received::Message(m, _) if m == long));
        for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 4], &[7, 0, 0, 0], &[255; 4]] {
            let (mut channel, other) = pair();
            rustix::io::write(&other, garbage).unwrap();
            assert!(channel.receive(now()).is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn who_does_not_read_counts_as_gone_and_gets_no_half_message_more() {
        let (channel, other) = pair();
        let long = Message::Piece { rank: 0, bytes: vec![7; 30_000] };
        let sent = (0..1000).take_while(|_| channel.send(&long).unwrap()).count();
        assert!((1..1000).contains(&sent));
        assert!(!channel.send(&Message::Fence).unwrap());
        let mut reader = Channel::of_stream(other);
        reader.trust();
        for _ in 0..sent {
            assert!(matches!(reader.receive(now()).unwrap(), Received::Message(..)));
        }
        assert!(matches!(reader.receive(Deadline::NEVER).unwrap(), Received::Closed));
    }
}
