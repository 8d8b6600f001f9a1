//! The place where a named rendezvous happens: a socket in a directory that only this user can
//! enter.
//!
//! Everything that creates or removes the socket happens under a record on the directory itself
//! (`flock`), which the kernel drops with its holder, so no lock files exist and none can be left
//! behind:
//!
//! ```text
//! lock the directory -> connect to NAME.sock
//!    connected            -> unlock, join the leader
//!    no such file         -> bind, listen, unlock: lead
//!    refused (leader gone)-> unlink, bind, listen, unlock: lead
//! ```
//! Paths are never followed twice: the directory is opened once, checked by its descriptor, and
//! the socket is reached through that.

use super::socket;
use crate::base::{Deadline, Error, Result, settings};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a process finds at the meeting place.
#[derive(Debug)]
pub enum Found {
    /// Nobody: it leads, and listens on this socket.
    Nobody(Leading),
    /// A leader, to whom this socket is connected.
    Leader(OwnedFd),
}

/// A meeting place, by name.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    /// Whether the directory is hither's own, to be removed when it is empty.
    own: bool,
    socket: String,
}

/// The leader's hold on a place; dropping it removes the socket.
#[derive(Debug)]
pub struct Leading {
    place: Place,
    directory: OwnedFd,
    listener: OwnedFd,
    inode: u64,
}

impl Place {
    /// The place called `name` (letters, digits, `-`, `_`, `.`; at most 64, not starting with a
    /// dot) in this user's rendezvous directory.
    pub fn new(name: &str) -> Result<Place> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fine) {
            let why = format!(
                "\"{name}\" is not a name: 1 to 64 letters, digits, '-', '_', '.', not starting \
                 with '.'"
            );
            return Err(Error::invalid("rendezvous", why));
        }
        let given = settings::RENDEZVOUS_DIR.text();
        let runtime = settings::environment("XDG_RUNTIME_DIR").filter(|p| p.starts_with('/'));
        let (path, own) = if !given.is_empty() {
            (PathBuf::from(given), false)
        } else if let Some(runtime) = runtime.filter(|p| Path::new(p).is_dir()) {
            (Path::new(&runtime).join("hither"), true)
        } else {
            let user = rustix::process::geteuid().as_raw();
            let temporary = settings::environment("TMPDIR").filter(|p| p.starts_with('/'));
            let temporary = PathBuf::from(temporary.unwrap_or_else(|| "/tmp".into()));
            (temporary.join(format!("hither-{user}")), true)
        };
        Ok(Place::at(path, own, name))
    }

    fn at(path: PathBuf, own: bool, name: &str) -> Place {
        Place { path, own, socket: format!("{name}.sock") }
    }

    /// Goes there: connects to the leader, or becomes it.
    pub fn enter(&self, deadline: Deadline) -> Result<Found> {
        loop {
            let Some(directory) = self.lock(deadline)? else {
                return Err(Error::boot(format!(
                    "the rendezvous directory {} is locked by another process for too long",
                    self.path.display()
                )));
            };
            let address = self.address(&directory)?;
            let caller = socket::unconnected()?;
            match rustix::net::connect(&caller, &address) {
                Ok(()) => return Ok(Found::Leader(caller)),
                Err(Errno::NOENT) => {}
                Err(Errno::CONNREFUSED) => {
                    // Its leader was killed. Nobody else can be about to listen on it: that
                    // happens under the lock.
                    remove(&directory, &self.socket)?;
                }
                Err(Errno::AGAIN | Errno::INTR) if !deadline.passed() => {
                    drop(directory);
                    std::thread::sleep(deadline.clamp(Duration::from_millis(1)));
                    continue;
                }
                Err(e) => return Err(Error::os("connecting to the rendezvous", e)),
            }
            let listener = socket::unconnected()?;
            let bound = rustix::net::bind(&listener, &address)
                .and_then(|()| rustix::net::listen(&listener, 4096))
                .and_then(|()| {
                    rustix::fs::statat(&directory, &self.socket, AtFlags::SYMLINK_NOFOLLOW)
                });
            match bound {
                Ok(stat) => {
                    let unlock = rustix::fs::flock(&directory, FlockOperation::Unlock);
                    let inode = stat.st_ino;
                    let place = self.clone();
                    let leading = Leading { place, directory, listener, inode };
                    unlock.map_err(|e| Error::os("unlocking the rendezvous directory", e))?;
                    return Ok(Found::Nobody(leading));
                }
                Err(e) => {
                    let _ = remove(&directory, &self.socket);
                    return Err(Error::os("binding the rendezvous socket", e));
                }
            }
        }
    }

    /// Where in this directory, without following its path again, and short enough.
    fn address(&self, directory: &OwnedFd) -> Result<SocketAddrUnix> {
        let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), self.socket);
        SocketAddrUnix::new(path).map_err(|e| Error::os("naming the rendezvous socket", e))
    }

    /// Opens and locks the directory; `None` past the deadline.
    fn lock(&self, deadline: Deadline) -> Result<Option<OwnedFd>> {
        loop {
            let directory = self.open()?;
            loop {
                match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::INTR) => {}
                    Err(Errno::WOULDBLOCK) if !deadline.passed() => {
                        std::thread::sleep(deadline.clamp(Duration::from_millis(1)));
                    }
                    Err(Errno::WOULDBLOCK) => return Ok(None),
                    Err(e) => return Err(Error::os("locking the rendezvous directory", e)),
                }
            }
            // It may have been removed while we waited for it.
            if rustix::fs::fstat(&directory).is_ok_and(|stat| stat.st_nlink > 0) {
                return Ok(Some(directory));
            }
        }
    }

    fn open(&self) -> Result<OwnedFd> {
        let refused = |what: String| {
            Error::boot(format!(
                "{} {what}; set {} to a directory that only you can write to",
                self.path.display(),
                settings::RENDEZVOUS_DIR.name
            ))
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut tries = 0;
        let directory = loop {
            match rustix::fs::mkdir(&self.path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(refused(format!("cannot be created: {e}"))),
            }
            match rustix::fs::open(&self.path, flags, Mode::empty()) {
                Ok(directory) => break directory,
                // Removed by one who left it empty, in between.
                Err(Errno::NOENT) if tries < 1000 => tries += 1,
                Err(e) => return Err(refused(format!("is not a usable directory: {e}"))),
            }
        };
        let stat = rustix::fs::fstat(&directory)
            .map_err(|e| Error::os("fstat of the rendezvous directory", e))?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(refused(format!("belongs to user {}, not to {user}", stat.st_uid)));
        }
        let forbidden = if self.own { 0o077 } else { 0o022 };
        if stat.st_mode & forbidden != 0 {
            return Err(refused(format!("is open to others (mode {:o})", stat.st_mode & 0o777)));
        }
        Ok(directory)
    }
}

impl Leading {
    /// The socket on which the others arrive; non-blocking.
    pub fn listener(&self) -> rustix::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        // Bounded: holders of the lock do a few system calls. Past it the socket stays as a stale
        // one, which the next comer removes.
        let deadline = Deadline::after(Duration::from_secs(5));
        let flags = FlockOperation::NonBlockingLockExclusive;
        while let Err(Errno::WOULDBLOCK | Errno::INTR) = rustix::fs::flock(&self.directory, flags) {
            if deadline.passed() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let name = &self.place.socket;
        let ours = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_ino == self.inode);
        if ours {
            let _ = remove(&self.directory, name);
        }
        if self.place.own {
            // Fails while other rendezvous of this user are under way, as it should.
            let _ = rustix::fs::rmdir(&self.place.path);
        }
    }
}

fn remove(directory: &OwnedFd, name: &str) -> Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::os("removing a stale rendezvous socket", e)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A private directory for one test, removed on drop.
    pub struct Scratch(pub PathBuf);

    impl Scratch {
        pub fn new() -> Scratch {
            let name =
                format!("hither-test-{}-{:x}", std::process::id(), crate::boot::random().unwrap());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            Scratch(path)
        }
        pub fn place(&self) -> Place {
            Place::at(self.0.join("dir"), true, "x")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn the_first_leads_the_second_joins_and_nothing_stays() {
        let scratch = Scratch::new();
        let place = scratch.place();
        let Found::Nobody(leading) = place.enter(soon()).unwrap() else { panic!() };
        assert!(matches!(place.enter(soon()).unwrap(), Found::Leader(_)));
        drop(leading);
        assert!(!place.path.exists(), "the socket and its directory are gone");
        assert!(matches!(place.enter(soon()).unwrap(), Found::Nobody(_)));
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let scratch = Scratch::new();
        let place = scratch.place();
        let Found::Nobody(leading) = place.enter(soon()).unwrap() else { panic!() };
        // What a killed leader leaves: the file, and nobody who listens.
        let file = place.path.join("x.sock");
        rustix::net::shutdown(&leading.listener, rustix::net::Shutdown::Both).unwrap();
        assert!(file.exists());
        let Found::Nobody(second) = place.enter(soon()).unwrap() else { panic!() };
        drop(leading);
        assert!(file.exists(), "the first one must not remove the second one's socket");
        drop(second);
        assert!(!file.exists());
    }

    #[test]
    fn directories_that_others_can_enter_are_refused() {
        let scratch = Scratch::new();
        let place = scratch.place();
        std::fs::create_dir(&place.path).unwrap();
        std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let err = place.enter(soon()).unwrap_err().to_string();
        assert!(err.contains("open to others"), "{err}");
        std::fs::remove_dir(&place.path).unwrap();
        std::os::unix::fs::symlink("/tmp", &place.path).unwrap();
        assert!(place.enter(soon()).is_err(), "a symbolic link must not be followed");
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "a/b", "a b", ".x", &"x".repeat(65), "ä", "a\0b"] {
            assert!(Place::new(name).is_err(), "{name:?}");
        }
        assert!(Place::new("job-1_a.b").is_ok());
    }
}
