//! How this process gets at a peer's private memory: it is mapped (both are threads of one
//! process), the kernel copies (CMA: `process_vm_readv`, `process_vm_writev`), or not at all.
//!
//! Whether the kernel does, is found out per peer when it first matters, by reading a random
//! number that the peer published with its address: a process identifier of another namespace, a
//! sandbox, or a security module that forbids it all end in "not at all", silently. No setting of
//! privileges is touched, except that where Yama restricts tracing to ancestors a rank that was
//! launched allows its launcher's descendants, its fellow ranks, to copy.

use super::copiers::{Copiers, Who};
use crate::base::keys::ByNumber;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Error, Result, Slot, settings};
use crate::shm::copy::{Between, LONG, is_slow, opaque_copy};
use crate::shm::node::Node;
use crate::shm::wiring::random;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes copied between two looks at whether the peer lives.
const CHUNK: usize = 1 << 20;

/// How a peer's memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Its addresses are this process's.
    Mapped,
    /// By system calls on this process.
    Kernel(i32),
    /// Not at all.
    Never,
}

/// What is known about peers.
#[derive(Debug)]
pub(super) struct Reaches {
    known: Mutex<ByNumber<Slot, Reach>>,
    /// What was asked lately, by the low bits of slots: no lock, as every large message asks.
    lately: [AtomicU64; LATELY],
    allowed: bool,
    /// Who copies what both sides wait for, as taken for granted; else it is found out.
    granted: Option<Who>,
    copiers: Copiers,
    crossing: Copiers,
    /// What peers look for.
    _cookie: Box<u64>,
}

/// Answers kept at hand.
const LATELY: usize = 16;

impl Reach {
    /// Of `peer`, in a word that is never 0.
    fn pack(self, peer: Slot) -> u64 {
        let (how, pid) = match self {
            Reach::Never => (0, 0),
            Reach::Mapped => (1, 0),
            Reach::Kernel(pid) => (2, pid as u32),
        };
        1 << 63 | u64::from(peer.0) << 40 | how << 32 | u64::from(pid)
    }

    /// That of `peer`, if that is what the word says.
    fn unpack(word: u64, peer: Slot) -> Option<Reach> {
        (word >> 40 == 1 << 23 | u64::from(peer.0)).then_some(match word >> 32 & 0xff {
            0 => Reach::Never,
            1 => Reach::Mapped,
            _ => Reach::Kernel(word as u32 as i32),
        })
    }
}

/// A name of this process's address space: random, and told from a forked child's by the process
/// identifier that goes with it.
fn own_space() -> Result<[u64; 2]> {
    static SPACE: OnceLock<[u64; 2]> = OnceLock::new();
    if let Some(space) = SPACE.get() {
        return Ok(*space);
    }
    let fresh = [random()?, random()?];
    Ok(*SPACE.get_or_init(|| fresh))
}

impl Reaches {
    /// Publishes what peers need to find out about this process.
    pub fn open(node: &Node) -> Result<Reaches> {
        let (allowed, granted) = match settings::CMA.text().as_str() {
            "auto" => (true, None),
            "fast" => (true, Some(Who::Receiver)),
            "slow" => (true, Some(Who::Both)),
            "halves" => (true, Some(Who::Halves)),
            "0" => (false, Some(Who::Both)),
            other => {
                let why = format!("\"{other}\" is none of auto, fast, slow, halves and 0");
                return Err(Error::invalid(settings::CMA.name, why));
            }
        };
        if allowed {
            allow_fellows();
        }
        let cookie = Box::new(random()?);
        let here = &node.rank_slot(node.slot()).copying;
        let [a, b] = own_space()?;
        here.space[0].store(a, Ordering::Relaxed);
        here.space[1].store(b, Ordering::Relaxed);
        let at = if allowed { std::ptr::from_ref(&*cookie).addr() as u64 } else { 0 };
        here.cookie_at.store(at, Ordering::Relaxed);
        here.cookie.store(*cookie, Ordering::Relaxed);
        here.ready.store(1, Ordering::Release);
        let (known, copiers) = (Mutex::default(), Copiers::default());
        let crossing = Copiers::of_crossing();
        let lately = Default::default();
        Ok(Reaches { known, lately, allowed, granted, copiers, crossing, _cookie: cookie })
    }

    /// How `peer` is reached. Found out at the first call: then a system call. One load, if it was asked
    /// lately.
    #[inline]
    pub fn of(&self, node: &Node, peer: Slot) -> Reach {
        let lately = &self.lately[usize::from(peer.0) % LATELY];
        Reach::unpack(lately.load(Ordering::Relaxed), peer)
            .unwrap_or_else(|| self.look_up(node, peer))
    }

    #[cold]
    fn look_up(&self, node: &Node, peer: Slot) -> Reach {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reach) = known.get(&peer) {
            // Under the lock, as `forget`: what is forgotten stays so.
            self.remember(peer, *reach);
            return *reach;
        }
        let there = node.rank_slot(peer);
        if there.copying.ready.load(Ordering::Acquire) == 0 {
            // Not yet: to be asked again.
            return Reach::Never;
        }
        let reach = self.find(node, peer);
        known.insert(peer, reach);
        self.remember(peer, reach);
        reach
    }

    fn remember(&self, peer: Slot, reach: Reach) {
        let lately = &self.lately[usize::from(peer.0) % LATELY];
        lately.store(reach.pack(peer), Ordering::Relaxed);
    }

    /// Whether it is known that `peer` is not reached at all.
    pub fn is_out_of_reach(&self, node: &Node, peer: Slot) -> bool {
        if !node.is_local(peer) {
            return false;
        }
        let ready = node.rank_slot(peer).copying.ready.load(Ordering::Acquire) != 0;
        ready && self.of(node, peer) == Reach::Never
    }

    /// Copies from or to `peer` fail after all: no more are tried.
    pub fn forget(&self, peer: Slot) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(peer, Reach::Never);
        self.remember(peer, Reach::Never);
    }

    /// Whether two copies may be sooner over than the kernel's one, if two processes make them at the same
    /// time, each of its own pieces.
    pub fn may_share(&self) -> bool {
        self.granted != Some(Who::Receiver)
    }

    /// Who copies a message for whose end both sides wait, where that is to be found out; else who does. Of messages
    /// that cross, of which each side has some to copy, none goes by halves.
    pub fn copiers(&self, crossing: bool) -> std::result::Result<&Copiers, Who> {
        match (self.granted, crossing) {
            (None, false) => Ok(&self.copiers),
            (None, true) => Ok(&self.crossing),
            (Some(Who::Halves), true) => Err(Who::Receiver),
            (Some(who), _) => Err(who),
        }
    }

    fn find(&self, node: &Node, peer: Slot) -> Reach {
        let (there, here) = (node.rank_slot(peer), node.rank_slot(node.slot()));
        let pid = there.pid.load(Ordering::Relaxed);
        let space = |slot: &crate::shm::segment::RankSlot| {
            slot.copying.space.each_ref().map(|word| word.load(Ordering::Relaxed))
        };
        if pid == here.pid.load(Ordering::Relaxed) && space(there) == space(here) {
            return Reach::Mapped;
        }
        let at = there.copying.cookie_at.load(Ordering::Relaxed);
        let (Ok(pid), true, true) = (i32::try_from(pid), self.allowed, at != 0) else {
            return Reach::Never;
        };
        let mut cookie = 0u64;
        let to = (&raw mut cookie).cast();
        // SAFETY: eight bytes of this function's own.
        let read = unsafe { by_kernel(pid, to, at, 8, Direction::In) };
        if read == Ok(8) && cookie == there.copying.cookie.load(Ordering::Relaxed) {
            Reach::Kernel(pid)
        } else {
            Reach::Never
        }
    }
}

/// Where Yama restricts tracing to ancestors, lets the launcher's descendants trace this process.
fn allow_fellows() {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "1" && settings::LAUNCH_FD.is_set() {
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::getppid(), 0, 0, 0) };
    }
}

/// Which way bytes go, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// One system call: how many bytes it copied, which may be fewer, or the error's number.
///
/// # Safety
/// `len` bytes at `here` are writable (`In`) or readable (`Out`).
unsafe fn by_kernel(
    pid: i32,
    here: *mut u8,
    there: u64,
    len: usize,
    way: Direction,
) -> std::result::Result<usize, i32> {
    let (to, from) = match way {
        Direction::In => (here.addr(), there as usize),
        Direction::Out => (there as usize, here.addr()),
    };
    if len >= LONG && is_slow(to, from) {
        // SAFETY: the caller's.
        return unsafe { by_kernel_and_between(pid, here, there, len, way) };
    }
    // SAFETY: the caller's.
    unsafe { call_kernel(pid, here, there, len, way) }
}

/// Bytes that go by memory in between at a time, and the page that this takes.
const BETWEEN: usize = (32 << 10) + 4096;

/// As [`by_kernel`], where addresses are at a distance at which its copy would be slow.
///
/// # Safety
/// That of [`by_kernel`].
#[inline(never)]
unsafe fn by_kernel_and_between(
    pid: i32,
    here: *mut u8,
    there: u64,
    len: usize,
    way: Direction,
) -> std::result::Result<usize, i32> {
    let mut between = Between::<BETWEEN>::new();
    let piece = len.min(Between::<BETWEEN>::ROOM);
    // SAFETY: the caller's, and the place has room for a piece; what the kernel has written there is initialised.
    unsafe {
        match way {
            Direction::In => {
                let place = between.beside(there as usize);
                let read = call_kernel(pid, place, there, piece, way)?;
                opaque_copy(here, place, read.min(piece));
                Ok(read)
            }
            Direction::Out => {
                let place = between.beside(here.addr());
                opaque_copy(place, here, piece);
                call_kernel(pid, place, there, piece, way)
            }
        }
    }
}

/// Whether the kernel has copied `len` bytes of the process of `reach` here, in one go.
///
/// # Safety
/// `len` bytes at `here` are writable.
pub(super) unsafe fn is_copied(reach: Reach, here: *mut u8, there: u64, len: usize) -> bool {
    // SAFETY: the caller's.
    matches!(reach, Reach::Kernel(pid) if unsafe { by_kernel(pid, here, there, len, Direction::In) } == Ok(len))
}

/// The system call itself.
///
/// # Safety
/// That of [`by_kernel`].
unsafe fn call_kernel(
    pid: i32,
    here: *mut u8,
    there: u64,
    len: usize,
    way: Direction,
) -> std::result::Result<usize, i32> {
    let here = libc::iovec { iov_base: here.cast(), iov_len: len };
    let there = libc::iovec { iov_base: there as *mut libc::c_void, iov_len: len };
    // SAFETY: the vectors outlive the call; here the caller's, there the kernel checks.
    let done = unsafe {
        match way {
            Direction::In => libc::process_vm_readv(pid, &here, 1, &there, 1, 0),
            Direction::Out => libc::process_vm_writev(pid, &here, 1, &there, 1, 0),
        }
    };
    match usize::try_from(done) {
        Ok(done) => Ok(done),
        Err(_) => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Copies `len` bytes between `here` and `there`, an address of `peer`'s. Looks whether the peer
/// lives before each piece.
///
/// # Errors
/// The end of the peer; [`Error::Os`].
///
/// # Safety
/// `len` bytes at `here` are writable (`In`) or readable (`Out`), and so are those at `there` in
/// the peer's address space as long as it lives; nobody else accesses them meanwhile.
pub(super) unsafe fn copy(
    node: &Node,
    peer: Slot,
    reach: Reach,
    here: *mut u8,
    there: u64,
    len: usize,
    way: Direction,
) -> Result<()> {
    const DURING: &str = "a copy of large data";
    let mut done = 0;
    while done < len {
        if node.is_dead(peer) {
            return Err(node.died(peer, DURING));
        }
        let piece = (len - done).min(CHUNK);
        // SAFETY: the caller's, in all three cases; `done + piece <= len`.
        let copied = unsafe {
            let (here, there) = (here.add(done), there + done as u64);
            match reach {
                Reach::Mapped => {
                    let there = there as *mut u8;
                    match way {
                        Direction::In => opaque_copy(here, there, piece),
                        Direction::Out => opaque_copy(there, here, piece),
                    }
                    Ok(piece)
                }
                Reach::Kernel(pid) => by_kernel(pid, here, there, piece, way),
                Reach::Never => Err(libc::EPERM),
            }
        };
        match copied {
            Ok(0) => return Err(Error::os(DURING, std::io::Error::from_raw_os_error(libc::EIO))),
            Ok(copied) => done += copied,
            Err(libc::EINTR) => {}
            Err(number) => {
                // Its memory goes before it is known to be dead.
                for _ in 0..100 {
                    if node.probe(peer) {
                        return Err(node.died(peer, DURING));
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                return Err(Error::Os {
                    call: DURING,
                    source: std::io::Error::from_raw_os_error(number),
                    hint: "HITHER_CMA=0 copies without the system calls",
                });
            }
        }
    }
    // What was read from memory that went meanwhile is not what was sent.
    if way == Direction::In && reach != Reach::Mapped && node.is_dead(peer) {
        return Err(node.died(peer, DURING));
    }
    Ok(())
}

/// Whether the kernel copies from the private memory of all of these. Finds out what is not known
/// yet; false for those who have not said how.
///
/// # Errors
/// Settings that are none.
pub(crate) fn reads_private(node: &Node, peers: &[Slot]) -> Result<bool> {
    let reaches = node.attachment(|| Reaches::open(node))?;
    Ok(peers.iter().all(|peer| matches!(reaches.of(node, *peer), Reach::Kernel(_))))
}

/// What the settings say of copies that the kernel, or both sides through shared memory could make: whether
/// the kernel is to; nothing if that is to be found out.
///
/// # Errors
/// Settings that are none.
pub(crate) fn wants_kernel(node: &Node) -> Result<Option<bool>> {
    let reaches = node.attachment(|| Reaches::open(node))?;
    Ok(reaches.granted.map(|who| who != Who::Both))
}

/// Copies what a peer has at an address of its own, by the kernel; what it has there by then, if it
/// has gone on.
///
/// # Errors
/// The end of the peer; [`Error::Os`], also where there is nothing any more.
pub(crate) fn read_private(node: &Node, peer: Slot, at: u64, into: &mut [u8]) -> Result<()> {
    let reaches = node.attachment(|| Reaches::open(node))?;
    let reach = match reaches.of(node, peer) {
        Reach::Kernel(pid) => Reach::Kernel(pid),
        // It was another one when this was asked before.
        Reach::Mapped | Reach::Never => Reach::Never,
    };
    // SAFETY: `into` is the caller's; the kernel looks what there is in the peer's address space, and
    // bytes may be any.
    unsafe { copy(node, peer, reach, into.as_mut_ptr(), at, into.len(), Direction::In) }
}

/// Whether `len` bytes at `address` lie in the node's memory, which everybody has mapped at the
/// same address.
pub(super) fn is_shared(node: &Node, address: u64, len: u64) -> bool {
    let base = node.mapping().base().addr().get() as u64;
    let end = address.checked_add(len);
    address >= base && end.is_some_and(|end| end <= base + node.mapping().length())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reach() -> impl Strategy<Value = Reach> {
        prop_oneof![Just(Reach::Never), Just(Reach::Mapped), any::<i32>().prop_map(Reach::Kernel)]
    }

    proptest! {
        /// An answer kept at hand is that of the one who was asked about, and of nobody else.
        #[test]
        fn answers_are_kept_with_their_peers(reach in reach(), peer: u16, other: u16) {
            let word = reach.pack(Slot(peer));
            prop_assert_ne!(word, 0);
            prop_assert_eq!(Reach::unpack(word, Slot(peer)), Some(reach));
            let expected = (other == peer).then_some(reach);
            prop_assert_eq!(Reach::unpack(word, Slot(other)), expected);
            prop_assert_eq!(Reach::unpack(0, Slot(other)), None);
        }
    }
}
