//! Locks of the parts of something that a group shares: each part can be held by one member
//! exclusively or by any number of them shared, and a member can hold all parts shared at the cost
//! of one. Fair, and robust against the death of any holder or waiter at any instruction.
//!
//! ```text
//!  group:  everywhere   set of members that hold every part shared        vacated  (waiting)
//!  part:   gate         queue lock: passed by everybody who cannot go straight through
//!          exclusive    member + 1 that holds the part exclusively
//!          lost         member + 1 that held it exclusively and was lost
//!          drained      where the holder of the gate waits for the readers to go
//!          readers      set of members that hold the part shared
//! ```
//! **Exclusive.** Take the gate (first come, first served among those who stand in line); then wait until `readers` and
//! `everywhere` are empty; note oneself in `exclusive`. Release: clear `exclusive`, pass the gate
//! on. The gate is held all the time, so readers that come later line up behind.
//!
//! **Shared.** If the gate is free, put the own bit into `readers` and look at the gate again: if it
//! is still free the part is held. Otherwise take the bit out, line up at the gate, put the bit in
//! while holding it (nobody is exclusive then), and pass it on. Release: take the bit out, and wake
//! the holder of the gate if there is one.
//!
//! **All.** Put the own bit into `everywhere`, then look at every gate: if all are free, everything
//! is held. Otherwise take it out again; stand in line at the gate that was not free, holding
//! nothing, and try again. After a few rounds: take part after part shared, put the bit into
//! `everywhere` while holding them all, and take the bits of the parts out.
//!
//! **Why they exclude each other.** Bit in, fence, gate seen free; gate taken, fence, bit seen clear:
//! of two that do this at the same time, at least one sees the other (the fences). A bit set while
//! holding the gate is seen by whoever takes the gate next. The set of `everywhere` is looked at
//! after `readers`, and whoever moves from the parts to `everywhere` is in the latter first.
//!
//! **Why nobody overtakes for ever.** While a gate is not free, members that come stand in line for
//! it. Those that saw it free put their bit in, at most once each, see it taken, and stand in line
//! too. So whoever holds the gate waits for a fixed set of holders.
//!
//! **Why taking all cannot deadlock.** While it waits at a gate in its first rounds it holds
//! nothing. Later, when it holds parts while it waits for another, it waits for a limited time;
//! then it lets go of all of them and stands in line for the one that kept it, holding nothing; and
//! it starts again with twice the limit. So in a circle of members that wait for each other it
//! always gives way, and where there is no circle the limit becomes large enough in the end.
//! Members that hold one part while they wait for another must do that in one order, as with all
//! fair locks, also if they only read: readers line up behind a writer.
//!
//! **Death.** The queue lock passes the gate on for a dead holder. Whoever gets the gate and finds
//! `exclusive` set knows that its holder was lost in the midst of its work: it moves the name to
//! `lost`, where all who are granted the part find it until one of them was granted it exclusively
//! and so could repair it. Bits of dead members are taken out by whoever waits for them to go.

#[cfg(test)]
mod model;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use super::{LockEnv, QueueLock, Sole};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, fence_after_rmw};
use crate::base::{Deadline, Error, Result, Slot, prefetch};
use crate::shm::bits::Bits;
use crate::shm::crash;
use crate::shm::park::WaitCell;
use std::time::Duration;

const DURING: &str = "waiting for a lock";
/// Rounds in which a member that wants all parts waits at gates holding nothing.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 4 };
/// How long it waits at first for a part while it holds others. Under loom, where time does not
/// pass in a way that can be repeated, for ever.
const FIRST_LIMIT: Duration =
    if cfg!(loom) { Duration::from_secs(1 << 20) } else { Duration::from_millis(4) };

/// The lock of one part, but for its set of readers. All zeros is a free one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PartLock {
    /// Held by whoever holds the part exclusively or waits for its readers to go; passed through
    /// by readers that found it taken.
    pub gate: QueueLock,
    exclusive: AtomicU32,
    lost: AtomicU32,
    drained: WaitCell,
    _pad: [AtomicU64; 5],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<PartLock>() == 64);
    assert!(offset_of!(PartLock, exclusive) == 8);
    assert!(offset_of!(PartLock, lost) == 12);
    assert!(offset_of!(PartLock, drained) == 16);
};

#[cfg(not(loom))]
// SAFETY: repr(C) of atomics (locks and cells are some).
unsafe impl crate::shm::region::SharedLayout for PartLock {}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The part is held. `lost`: a former exclusive holder that was lost, see the module.
    Granted { lost: Option<u32> },
    /// This member holds the part already, or another of its threads is just taking it. Nothing
    /// has changed.
    Already,
}

/// How far a request came by a look and a read-modify-write, without waiting; the rest is done by
/// [`go_on_exclusive`] or [`go_on_shared`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The part is held, and nobody who held it before was lost.
    Granted,
    /// The gate is held (exclusive), or the own bit is among the readers' (shared), and somebody
    /// else may be in the way.
    Halfway,
    /// Nothing has changed.
    Not,
}

/// What is shared about the parts, and who this member is.
pub(crate) trait Parts {
    /// What the locks need.
    type Env: LockEnv;
    fn env(&self) -> &Self::Env;
    /// This member.
    fn me(&self) -> u32;
    /// Where it sits.
    #[inline]
    fn slot(&self) -> Slot {
        self.env().slot()
    }
    /// Members, which is also the number of parts.
    fn size(&self) -> u32;
    /// Where a member sits; `None` if shared memory does not say so in a way that can be right.
    fn slot_of(&self, member: u32) -> Option<Slot>;
    fn lock_of(&self, part: u32) -> &PartLock;
    fn readers(&self, part: u32) -> Bits<'_>;
    fn everywhere(&self) -> Bits<'_>;
    /// Where holders of gates wait for `everywhere` to become empty.
    fn vacated(&self) -> &WaitCell;
}

impl PartLock {
    /// As the holder of the gate: moves the name of an exclusive holder that was lost.
    #[inline]
    fn note_lost(&self) {
        let left = self.exclusive.load(Ordering::Relaxed);
        if left != 0 {
            self.lost.store(left, Ordering::Relaxed);
            crash::point();
            self.exclusive.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn granted(&self) -> Taken {
        Taken::Granted { lost: self.lost.load(Ordering::Relaxed).checked_sub(1) }
    }

    /// Whether `member` holds the part exclusively; for a member that asks about itself.
    #[inline]
    pub fn is_exclusive_of(&self, member: u32) -> bool {
        self.exclusive.load(Ordering::Relaxed) == member + 1
    }
}

/// Takes a part exclusively.
///
/// Cost if nobody else wants it: one read-modify-write of the part's line, reads of `readers` and
/// `everywhere`.
///
/// # Errors
/// [`Error::TimedOut`]; [`Error::Incompatible`] if a peer overwrote the lock.
#[cfg(test)]
pub(crate) fn lock_exclusive<P: Parts>(parts: &P, part: u32, deadline: Deadline) -> Result<Taken> {
    go_on_exclusive(parts, part, begin_exclusive(parts, part), deadline)
}

/// Takes a part exclusively if nobody else has it or wants it.
#[inline(always)]
pub(crate) fn begin_exclusive<P: Parts>(parts: &P, part: u32) -> Begun {
    let lock = parts.lock_of(part);
    if !lock.gate.take_alone(Sole::of(parts.slot())) {
        return Begun::Not;
    }
    crash::point();
    fence_after_rmw();
    let empty = parts.readers(part).is_empty() && parts.everywhere().is_empty();
    let relaxed = Ordering::Relaxed;
    if !empty || lock.exclusive.load(relaxed) != 0 || lock.lost.load(relaxed) != 0 {
        return Begun::Halfway;
    }
    lock.exclusive.store(parts.me() + 1, relaxed);
    crash::point();
    Begun::Granted
}

/// Waits for a part that [`begin_exclusive`] did not get, or not quite.
///
/// # Errors
/// As [`lock_exclusive`].
#[cold]
pub(crate) fn go_on_exclusive<P: Parts>(
    parts: &P,
    part: u32,
    begun: Begun,
    deadline: Deadline,
) -> Result<Taken> {
    let lock = parts.lock_of(part);
    let me = parts.me();
    match begun {
        Begun::Granted => return Ok(Taken::Granted { lost: None }),
        Begun::Halfway => {}
        Begun::Not => {
            if lock.is_exclusive_of(me) {
                return Ok(Taken::Already);
            }
            let _gate = lock.gate.acquire(parts.env(), deadline)?;
            crash::point();
            fence_after_rmw();
        }
    }
    if !(parts.readers(part).is_empty() && parts.everywhere().is_empty()) {
        let drained = drain(parts, part, deadline);
        if !matches!(drained, Ok(true)) {
            // What the last holder left undone stays noted for the next.
            lock.note_lost();
            lock.gate.release_own(parts.env())?;
            return drained.map(|_| Taken::Already);
        }
    }
    lock.note_lost();
    let granted = lock.granted();
    lock.exclusive.store(me + 1, Ordering::Relaxed);
    crash::point();
    if granted != (Taken::Granted { lost: None }) {
        lock.lost.store(0, Ordering::Relaxed);
    }
    Ok(granted)
}

/// Gives back a part that this member holds exclusively. `sound`: what it did to the part is
/// complete; otherwise the next ones are told that it was lost.
#[inline]
pub(crate) fn unlock_exclusive<P: Parts>(parts: &P, part: u32, sound: bool) -> Result<()> {
    let lock = parts.lock_of(part);
    if !sound {
        lock.lost.store(parts.me() + 1, Ordering::Relaxed);
    }
    crash::point();
    lock.exclusive.store(0, Ordering::Relaxed);
    crash::point();
    lock.gate.release_own(parts.env())
}

/// As [`unlock_exclusive`] of a part in good order for which nobody waits; false, and nothing has
/// changed, if somebody does, or this member does not hold it.
#[inline(always)]
pub(crate) fn end_exclusive<P: Parts>(parts: &P, part: u32) -> bool {
    let lock = parts.lock_of(part);
    let (mine, relaxed) = (parts.me() + 1, Ordering::Relaxed);
    // Whoever has come to stand in line has the line: one transfer, not one to read and one to write.
    prefetch::to_write(&raw const lock.exclusive);
    if lock.exclusive.load(relaxed) != mine || !lock.gate.is_alone(parts.slot()) {
        return false;
    }
    lock.exclusive.store(0, relaxed);
    crash::point();
    let done = lock.gate.release_alone(Sole::of(parts.slot()));
    if !done {
        // Somebody has come. The gate is held still, so nobody has seen the word.
        lock.exclusive.store(mine, relaxed);
    }
    done
}

/// As [`unlock_exclusive`], where several threads may try it at the same time: false if this
/// member does not hold the part exclusively (any more). One more read-modify-write.
pub(crate) fn try_unlock_exclusive<P: Parts>(parts: &P, part: u32) -> Result<bool> {
    let lock = parts.lock_of(part);
    let (mine, relaxed) = (parts.me() + 1, Ordering::Relaxed);
    let ours = lock.exclusive.compare_exchange(mine, 0, relaxed, relaxed).is_ok();
    if ours {
        lock.gate.release_own(parts.env())?;
    }
    Ok(ours)
}

/// Takes a part shared.
///
/// Cost if nobody wants it exclusively: one read-modify-write of the set's line, two reads of the
/// part's.
///
/// # Errors
/// As [`lock_exclusive`].
pub(crate) fn lock_shared<P: Parts>(parts: &P, part: u32, deadline: Deadline) -> Result<Taken> {
    go_on_shared(parts, part, begin_shared(parts, part), deadline)
}

/// Takes a part shared if nobody has it or wants it exclusively.
#[inline(always)]
pub(crate) fn begin_shared<P: Parts>(parts: &P, part: u32) -> Begun {
    let lock = parts.lock_of(part);
    if !lock.gate.is_free() {
        return Begun::Not;
    }
    crash::point();
    if !parts.readers(part).insert(parts.me()) {
        return Begun::Not;
    }
    crash::point();
    fence_after_rmw();
    let sound = lock.lost.load(Ordering::Relaxed) == 0;
    if sound && lock.gate.is_free() { Begun::Granted } else { Begun::Halfway }
}

/// Waits for a part that [`begin_shared`] did not get, or not quite.
///
/// # Errors
/// As [`lock_exclusive`].
#[cold]
pub(crate) fn go_on_shared<P: Parts>(
    parts: &P,
    part: u32,
    begun: Begun,
    deadline: Deadline,
) -> Result<Taken> {
    let lock = parts.lock_of(part);
    let (me, readers) = (parts.me(), parts.readers(part));
    match begun {
        Begun::Granted => return Ok(Taken::Granted { lost: None }),
        Begun::Halfway => {
            if lock.gate.is_free() {
                return Ok(lock.granted());
            }
            readers.remove(me);
            crash::point();
            lock.drained.notify();
        }
        Begun::Not => {
            if readers.contains(me) || lock.is_exclusive_of(me) {
                return Ok(Taken::Already);
            }
        }
    }
    shared_in_line(parts, part, deadline)
}

fn shared_in_line<P: Parts>(parts: &P, part: u32, deadline: Deadline) -> Result<Taken> {
    let lock = parts.lock_of(part);
    let _gate = lock.gate.acquire(parts.env(), deadline)?;
    crash::point();
    lock.note_lost();
    let fresh = parts.readers(part).insert(parts.me());
    crash::point();
    let granted = lock.granted();
    lock.gate.release_own(parts.env())?;
    Ok(if fresh { granted } else { Taken::Already })
}

/// Gives back a part that this member holds shared; false if it does not.
#[inline]
pub(crate) fn unlock_shared<P: Parts>(parts: &P, part: u32) -> bool {
    let lock = parts.lock_of(part);
    crash::point();
    let held = parts.readers(part).remove(parts.me());
    crash::point();
    fence_after_rmw();
    if !lock.gate.is_free() {
        lock.drained.notify();
    }
    held
}

/// Takes all parts shared.
///
/// Cost if nobody wants one exclusively: one read-modify-write of the set's line, and a read of
/// each part's line.
///
/// # Errors
/// As [`lock_exclusive`].
pub(crate) fn lock_all<P: Parts>(parts: &P, deadline: Deadline) -> Result<Taken> {
    let everywhere = parts.everywhere();
    for _ in 0..ROUNDS {
        crash::point();
        if !everywhere.insert(parts.me()) {
            return Ok(Taken::Already);
        }
        crash::point();
        fence_after_rmw();
        let taken = (0..parts.size()).map(|p| &parts.lock_of(p).gate).find(|g| !g.is_free());
        let Some(gate) = taken else { return Ok(Taken::Granted { lost: None }) };
        unlock_all(parts);
        let _turn = gate.acquire(parts.env(), deadline)?;
        crash::point();
        pass_on(parts, gate)?;
    }
    part_after_part(parts, deadline)
}

/// Gives a gate back that was taken only to stand in line for it.
fn pass_on<P: Parts>(parts: &P, gate: &QueueLock) -> Result<()> {
    gate.release_own(parts.env())
}

#[cold]
fn part_after_part<P: Parts>(parts: &P, deadline: Deadline) -> Result<Taken> {
    let size = parts.size();
    let mut limit = FIRST_LIMIT;
    // The part to begin with, for which we may wait as long as it takes.
    let mut first = 0;
    'again: loop {
        for i in 0..size {
            let part = (first + i) % size;
            let within = if i == 0 { deadline } else { Deadline::after(deadline.clamp(limit)) };
            let taken = lock_shared(parts, part, within);
            if matches!(taken, Ok(Taken::Granted { .. })) {
                continue;
            }
            for held in 0..i {
                unlock_shared(parts, (first + held) % size);
            }
            match taken {
                Err(Error::TimedOut { .. }) if i > 0 && !deadline.passed() => {
                    first = part;
                    limit *= 2;
                    continue 'again;
                }
                other => return other,
            }
        }
        parts.everywhere().insert(parts.me());
        crash::point();
        for part in 0..size {
            unlock_shared(parts, part);
        }
        return Ok(Taken::Granted { lost: None });
    }
}

/// Gives all parts back; false if this member does not hold them.
#[inline]
pub(crate) fn unlock_all<P: Parts>(parts: &P) -> bool {
    crash::point();
    let held = parts.everywhere().remove(parts.me());
    crash::point();
    fence_after_rmw();
    parts.vacated().notify();
    held
}

/// Whether this member holds one of the parts, or a thread of it is just taking one. Reads two
/// lines per part.
pub(crate) fn holds_any<P: Parts>(parts: &P) -> Result<bool> {
    for part in 0..parts.size() {
        let own = parts.lock_of(part).gate.is_own(parts.env())?;
        if own || parts.readers(part).contains(parts.me()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As the holder of a part's gate: waits until nobody holds the part shared. False if this member
/// does so itself.
#[cold]
fn drain<P: Parts>(parts: &P, part: u32, deadline: Deadline) -> Result<bool> {
    let me = parts.me();
    let (readers, everywhere) = (parts.readers(part), parts.everywhere());
    if readers.contains(me) || everywhere.contains(me) {
        return Ok(false);
    }
    until_empty(parts, readers, &parts.lock_of(part).drained, deadline)?;
    until_empty(parts, everywhere, parts.vacated(), deadline)?;
    Ok(true)
}

fn until_empty<P: Parts>(
    parts: &P,
    set: Bits<'_>,
    cell: &WaitCell,
    deadline: Deadline,
) -> Result<()> {
    let env = parts.env();
    let bury = || {
        env.waiting(0);
        let mut gone = false;
        for member in set.iter() {
            if parts.slot_of(member).is_none_or(|slot| env.probe(slot)) {
                gone |= set.remove(member);
            }
        }
        if gone {
            // Those who wait for the same, and ourselves, look again at once.
            cell.notify();
        }
        Ok(())
    };
    let mut turn = 0u32;
    let empty = || {
        env.waiting(turn);
        turn = turn.wrapping_add(1);
        set.is_empty().then_some(())
    };
    cell.wait(env.pace(), deadline, DURING, empty, bury).map_err(|error| match error {
        Error::TimedOut { during, waited, .. } => {
            let ranks = set.iter().filter_map(|member| parts.slot_of(member));
            Error::TimedOut { during, waited, missing: ranks.map(|s| env.rank(s)).collect() }
        }
        other => other,
    })
}
