//! Packets, with or without a descriptor, over Unix `SOCK_SEQPACKET` sockets, with deadlines.

use super::wire::{MAX_PACKET, Message};
use crate::base::{Deadline, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// What came of waiting for a packet.
#[derive(Debug)]
pub enum Received {
    /// A message, and the descriptor that came with it.
    Message(Message, Option<OwnedFd>),
    /// The other side is gone.
    Closed,
    /// The deadline passed first.
    Late,
}

/// A connected pair, closed on exec.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
        .map_err(|e| Error::os("socketpair for a control socket", e))
}

/// A connected pair of byte streams, closed on exec.
#[cfg(test)]
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
        .map_err(|e| Error::os("socketpair of streams", e))
}

/// Takes ownership of a socket that was left open over exec for this library under the number `fd`,
/// with this inode if that is known: if it is still there, and nobody in this process has taken it.
///
/// # Errors
/// Why not, in words.
pub fn inherit(fd: RawFd, inode: Option<u64>) -> std::result::Result<OwnedFd, &'static str> {
    if fd < 0 {
        return Err("that is no descriptor");
    }
    // SAFETY: only for the calls of this block, which fail cleanly if the number is no open
    // descriptor; it is not -1.
    let looked_at = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = rustix::fs::fstat(looked_at).map_err(|_| "no such descriptor is open")?;
    let same = inode.is_none_or(|inode| inode == stat.st_ino);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || !same {
        return Err("that descriptor is now something else");
    }
    let flags = rustix::io::fcntl_getfd(looked_at).map_err(|_| "it has no flags")?;
    if flags.contains(rustix::io::FdFlags::CLOEXEC) {
        return Err("that socket has been taken already");
    }
    rustix::io::fcntl_setfd(looked_at, flags | rustix::io::FdFlags::CLOEXEC)
        .map_err(|_| "its flags cannot be set")?;
    // SAFETY: it is an open socket that was left open over exec, as no descriptor that this
    // process makes for itself is, under the number that the launcher names as the one for this
    // library; and the close-on-exec flag, clear until now, tells that nobody here has taken it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An unconnected socket, non-blocking and closed on exec.
pub fn unconnected() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|e| Error::os("socket for the wiring", e))
}

/// Waits until `fd` is readable (or closed); false when the deadline passed first.
pub fn readable(fd: BorrowedFd<'_>, deadline: Deadline) -> Result<bool> {
    any_readable(&[fd], deadline).map(|ready| ready.is_some())
}

/// Waits until one of `fds` is readable or closed, and says which; `None` when the deadline
/// passed first.
pub fn any_readable(fds: &[BorrowedFd<'_>], deadline: Deadline) -> Result<Option<usize>> {
    let mut polls: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.left().map(|left| Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        match rustix::event::poll(&mut polls, left.as_ref()) {
            Ok(0) if deadline.passed() => return Ok(None),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(polls.iter().position(|p| !p.revents().is_empty())),
            Err(e) => return Err(Error::os("poll of the wiring's sockets", e)),
        }
    }
}

/// Sends one message, with a descriptor or without. False if the other side is gone. Does not
/// wait: a peer has at most a few small packets outstanding, so a full buffer means that it has
/// stopped reading, which counts as gone.
pub fn send(socket: BorrowedFd<'_>, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<bool> {
    send_with(socket, message, fd, SendFlags::DONTWAIT)
}

/// As [`send`], but waits while the buffer is full, at most until the deadline; past it the
/// other side counts as gone.
pub fn send_patiently(
    socket: BorrowedFd<'_>,
    message: &Message,
    deadline: Deadline,
) -> Result<bool> {
    loop {
        if send_with(socket, message, None, SendFlags::DONTWAIT)? {
            return Ok(true);
        }
        let mut polls = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        let slice = deadline.clamp(std::time::Duration::from_millis(100));
        let slice = Timespec { tv_sec: 0, tv_nsec: slice.subsec_nanos().into() };
        // Only the flags matter; an interrupted poll is just another round.
        let _ = rustix::event::poll(&mut polls, Some(&slice));
        if polls[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) || deadline.passed() {
            return Ok(false);
        }
    }
}

fn send_with(
    socket: BorrowedFd<'_>,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<bool> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() {
        // The space was made for exactly this one.
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::AGAIN) => {
                return Ok(false);
            }
            Err(e) => return Err(Error::os("sendmsg on a control socket", e)),
        }
    }
}

/// Waits for one message until the deadline. A descriptor that comes with it is closed on exec.
pub fn receive(socket: BorrowedFd<'_>, deadline: Deadline) -> Result<Received> {
    let mut bytes = vec![0u8; MAX_PACKET];
    let mut reset = false;
    loop {
        if !readable(socket, deadline)? {
            return Ok(Received::Late);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Ok(got) => got,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // Reported once, before what the peer sent ahead of closing, which is still there:
            // mostly it says why.
            Err(Errno::CONNRESET) if !reset => {
                reset = true;
                continue;
            }
            Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(Received::Closed),
            Err(e) => return Err(Error::os("recvmsg on a control socket", e)),
        };
        let mut fd = None;
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = item {
                // More than one would be a protocol error; the others close here.
                fd = fds.into_iter().next();
            }
        }
        // No message is empty, so an empty read is the end of the stream.
        if got.bytes == 0 {
            return Ok(Received::Closed);
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            return Err(Error::boot("a packet on the control socket is larger than any message"));
        }
        return Ok(Received::Message(Message::decode(&bytes[..got.bytes])?, fd));
    }
}

/// Fails unless the process at the other end belongs to this process's user.
pub fn check_same_user(socket: BorrowedFd<'_>) -> Result<()> {
    let mine = rustix::process::geteuid().as_raw();
    let theirs = peer(socket)?;
    if theirs.uid == mine {
        return Ok(());
    }
    Err(Error::boot(format!(
        "the process at the other end of the socket (pid {}) belongs to user {}, this one to {mine}; \
         all processes of a job must belong to one user",
        theirs.pid, theirs.uid
    )))
}

/// Credentials of the process at the other end. Not rustix's: its pid type cannot hold the 0
/// that a process outside our pid namespace shows.
fn peer(socket: BorrowedFd<'_>) -> Result<libc::ucred> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` is a valid ucred of `length` bytes for the kernel to fill in.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut length,
        )
    };
    if rc != 0 {
        let source = std::io::Error::last_os_error();
        return Err(Error::os("asking who is at the other end of a socket", source));
    }
    Ok(cred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_descriptor_travels_with_its_message() {
        let (a, b) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(send(a.as_fd(), &Message::Memory, Some(writer.as_fd())).unwrap());
        drop(writer);
        let Received::Message(Message::Memory, Some(fd)) =
            receive(b.as_fd(), Deadline::NEVER).unwrap()
        else {
            panic!("no descriptor");
        };
        rustix::io::write(&fd, b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0u8; 4]).unwrap(), 1);
        check_same_user(a.as_fd()).unwrap();
    }

    #[test]
    fn late_closed_and_gone_are_told_apart() {
        let (a, b) = pair().unwrap();
        let soon = || Deadline::after(Duration::from_millis(5));
        assert!(matches!(receive(a.as_fd(), soon()).unwrap(), Received::Late));
        drop(b);
        assert!(matches!(receive(a.as_fd(), Deadline::NEVER).unwrap(), Received::Closed));
        assert!(!send(a.as_fd(), &Message::Fence, None).unwrap());
        assert!(!send_patiently(a.as_fd(), &Message::Fence, Deadline::NEVER).unwrap());
    }

    #[test]
    fn garbage_is_an_error_not_a_message() {
        let (a, b) = pair().unwrap();
        rustix::io::write(&a, b"GET / HTTP/1.0\r\n").unwrap();
        assert!(receive(b.as_fd(), Deadline::NEVER).is_err());
        rustix::io::write(&a, &vec![0u8; MAX_PACKET + 1]).unwrap();
        assert!(receive(b.as_fd(), Deadline::NEVER).is_err());
    }
}
