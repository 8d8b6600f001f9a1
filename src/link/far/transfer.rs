//! One-sided transfers: memory that a device knows, and reads and writes of a peer's by the queue pair
//! of a flow.
//!
//! ```text
//!   copying A   |##|##|==|==|  |  |      ## done   == under way, ABREAST at most of all   the rest waits
//!   copying B   |  |  |  |               after it, in the order in which they were begun
//! ```
//! A copying is over when all of it is where it was to go; or it was stopped between two parts; or it
//! has failed, with its queue pair. In any case nothing is done to its memory any more when that is
//! told: whoever asked may have the data moved another way. Of a *write* that
//! has failed the peer's device may yet carry parts out, until its end of the queue pair has failed as
//! well or the memory is registered there no more.
//!
//! An *update* is a transfer of one word: the device at the peer adds to it or compares and swaps it, and
//! what was there comes back, into one of a few words that stay registered ([`bounce`](super::bounce)). It
//! cannot be done again another way once it may have been carried out. So of one that has failed it is
//! told whether it may: one that was never posted, or that the peer's device has refused (the memory is
//! not registered any more), counts as stopped, and has not been carried out.
//!
//! What is *short* goes through a bounce buffer that stays registered, too: a copy costs less than a registration.
//!
//! Of memory whose life the library controls the registration may stay after a transfer that has not
//! failed ([`kept`](super::kept)).

use super::bounce::{Bounce, WORD};
use super::kept::Registered;
use super::pairs::Pairs;
use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Local, Remote};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of one part.
const PART: u64 = 256 << 10;

/// Parts of one queue pair under way at most: few enough for every device.
pub(super) const ABREAST: u32 = 4;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the peer's memory into this process's.
    Read,
    /// From this process's into the peer's.
    Write,
}

impl Direction {
    /// What this process's device must be allowed to do with this process's memory.
    pub(super) fn access(self) -> Access {
        match self {
            Direction::Read => Access::LOCAL_WRITE,
            Direction::Write => Access::LOCAL_READ,
        }
    }
}

/// What is done to eight aligned bytes of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Update {
    /// Added to, wrapping.
    Add(u64),
    /// Replaced by `swap` if they are `compare`.
    CompareSwap { compare: u64, swap: u64 },
}

/// What a device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Motion {
    Copy(Direction),
    Update(Update),
}

/// How a transfer has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All bytes are where they were to go.
    Done,
    /// Some are, and no more will come: it was stopped, or its queue pair is not used any more.
    Stopped,
    /// Its queue pair failed. Of a write more may yet come; an update may have been carried out, or
    /// may yet be.
    Failed,
}

const UNDER_WAY: u32 = 0;
const DONE: u32 = 1;
const STOPPED: u32 = 2;
const FAILED: u32 = 3;

/// A transfer as whoever asked for it sees it.
pub(crate) struct Transfer {
    state: AtomicU32,
    stopped: AtomicBool,
    /// Of an update that is done: what was there.
    old: AtomicU64,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transfer({:?})", self.outcome())
    }
}

impl Transfer {
    /// `tell` is called when it is over.
    pub(super) fn new(tell: impl Fn() + Send + Sync + 'static) -> Transfer {
        let (state, stopped) = (AtomicU32::new(UNDER_WAY), AtomicBool::new(false));
        Transfer { state, stopped, old: AtomicU64::new(0), tell: Box::new(tell) }
    }

    /// How it has ended, if it has. Then nobody has its memory. One load.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state.load(Ordering::Acquire) {
            UNDER_WAY => None,
            DONE => Some(Outcome::Done),
            STOPPED => Some(Outcome::Stopped),
            _ => Some(Outcome::Failed),
        }
    }

    /// Whether it has ended well.
    pub fn is_done(&self) -> bool {
        self.outcome() == Some(Outcome::Done)
    }

    /// What an update that is done has found.
    pub fn old(&self) -> u64 {
        self.old.load(Ordering::Acquire)
    }

    /// Asks for no more of it. It is over soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn end(&self, outcome: Outcome) {
        let state = match outcome {
            Outcome::Done => DONE,
            Outcome::Stopped => STOPPED,
            Outcome::Failed => FAILED,
        };
        self.state.store(state, Ordering::Release);
        (self.tell)();
    }
}

/// This process's memory of a transfer.
enum Here {
    Memory(Registered),
    /// The device has the bounce buffer, which is filled before or emptied afterwards.
    Short(Bounce, Memory),
    Word(Bounce),
}

impl Here {
    fn length(&self) -> u64 {
        match self {
            Here::Memory(memory) => memory.length(),
            Here::Short(_, memory) => memory.length(),
            Here::Word(_) => WORD,
        }
    }

    fn local(&self, offset: u64, length: u32) -> Option<Local> {
        match self {
            Here::Memory(memory) => memory.local(offset, length),
            Here::Short(bounce, _) | Here::Word(bounce) => bounce.local(offset, length),
        }
    }
}

/// A transfer as its queue pair sees it.
pub(super) struct Copying {
    transfer: Arc<Transfer>,
    motion: Motion,
    here: Here,
    there: Remote,
    /// Bytes that were asked for, and parts that are not done of them.
    asked: u64,
    under_way: u32,
    /// It is an update, and the peer has refused it.
    refused: bool,
    number: u64,
}

impl Copying {
    /// Of all of `memory`, and as much at the peer from `there` on.
    pub fn new(
        transfer: Arc<Transfer>,
        direction: Direction,
        memory: Registered,
        there: Remote,
    ) -> Copying {
        Copying::of(transfer, Motion::Copy(direction), Here::Memory(memory), there)
    }

    /// The same of memory that the device need not know yet; nothing if it knows no more. What is short goes
    /// through a bounce buffer, if there is one.
    pub fn begin(
        pairs: &Pairs,
        transfer: Arc<Transfer>,
        direction: Direction,
        memory: &Memory,
        there: Remote,
    ) -> Option<Copying> {
        let Some(bounce) = pairs.bounces().short(memory.length()) else {
            let memory = pairs.register(memory, direction.access()).ok()?;
            return Some(Copying::new(transfer, direction, memory, there));
        };
        if direction == Direction::Write && !bounce.fill(memory) {
            return None;
        }
        let here = Here::Short(bounce, memory.clone());
        Some(Copying::of(transfer, Motion::Copy(direction), here, there))
    }

    /// An update of the word at `there`; what was there arrives in `word`.
    pub fn update(transfer: Arc<Transfer>, update: Update, word: Bounce, there: Remote) -> Copying {
        Copying::of(transfer, Motion::Update(update), Here::Word(word), there)
    }

    fn of(transfer: Arc<Transfer>, motion: Motion, here: Here, there: Remote) -> Copying {
        let (asked, under_way, refused, number) = (0, 0, false, 0);
        Copying { transfer, motion, here, there, asked, under_way, refused, number }
    }

    fn wants_more(&self) -> bool {
        self.asked < self.here.length() && !self.transfer.stopped.load(Ordering::Acquire)
    }

    /// Ends it: the device forgets its memory before that is told, unless nothing of it is under way
    /// and the registration may stay.
    fn end(self, outcome: Outcome) {
        let Copying { transfer, motion, here, .. } = self;
        match (here, outcome) {
            (Here::Word(word), Outcome::Done) => {
                transfer.old.store(word.word(), Ordering::Release);
            }
            (Here::Short(bounce, memory), Outcome::Done)
                if motion == Motion::Copy(Direction::Read) =>
            {
                // All of it is there: the buffer had room.
                let _ = bounce.empty(&memory);
            }
            (Here::Memory(memory), Outcome::Done | Outcome::Stopped) => memory.give_back(),
            (Here::Short(bounce, _) | Here::Word(bounce), Outcome::Failed) => bounce.spoil(),
            (here, _) => drop(here),
        }
        transfer.end(outcome);
    }
}

/// A part that is to be posted.
pub(super) struct Part {
    /// Whose it is.
    pub copying: u64,
    pub motion: Motion,
    pub here: Local,
    pub there: Remote,
}

/// Those of one queue pair.
#[derive(Default)]
pub(super) struct Copyings {
    all: VecDeque<Copying>,
    under_way: u32,
    next: u64,
}

impl Copyings {
    /// Begins one behind the others.
    pub fn add(&mut self, copying: Copying) {
        self.next += 1;
        self.all.push_back(Copying { number: self.next, ..copying });
    }

    /// Ends those that are over.
    fn sweep(&mut self) {
        let over = |copying: &mut Copying| copying.under_way == 0 && !copying.wants_more();
        while let Some(at) = self.all.iter_mut().position(over) {
            if let Some(copying) = self.all.remove(at) {
                let all = copying.asked == copying.here.length();
                copying.end(if all { Outcome::Done } else { Outcome::Stopped });
            }
        }
    }

    /// The next part to be posted, of `longest` bytes at most, if one may be. Ends those that are over.
    pub fn next(&mut self, longest: u64) -> Option<Part> {
        self.sweep();
        if self.under_way >= ABREAST {
            return None;
        }
        let copying = self.all.iter().find(|copying| copying.wants_more())?;
        let length = (copying.here.length() - copying.asked).min(PART).min(longest.max(1));
        let here = copying.here.local(copying.asked, length as u32)?;
        let address = copying.there.address.wrapping_add(copying.asked);
        let there = Remote { address, ..copying.there };
        Some(Part { copying: copying.number, motion: copying.motion, here, there })
    }

    /// The part that [`Copyings::next`] told is under way.
    pub fn posted(&mut self, copying: u64, length: u32) {
        if let Some(copying) = self.all.iter_mut().find(|it| it.number == copying) {
            copying.asked += u64::from(length);
            copying.under_way += 1;
            self.under_way += 1;
        }
    }

    /// A part is done.
    pub fn completed(&mut self, copying: u64) {
        if let Some(copying) = self.all.iter_mut().find(|it| it.number == copying) {
            copying.under_way -= 1;
            self.under_way -= 1;
        }
        self.sweep();
    }

    /// There is no queue pair to post more of them by: those end of which nothing is under way, the
    /// others when that is done.
    pub fn stop(&mut self) {
        self.all.iter().for_each(|copying| copying.transfer.stop());
        self.sweep();
    }

    /// The peer has refused this one, or an update that was posted before it by the same queue pair; if it
    /// is an update, it is carried out neither now nor later. Whether it is one.
    pub fn refused(&mut self, copying: u64) -> bool {
        let Some(copying) = self.all.iter_mut().find(|it| it.number == copying) else {
            return false;
        };
        copying.refused = matches!(copying.motion, Motion::Update(_));
        copying.refused
    }

    /// Ends all: their queue pair has failed.
    pub fn fail(&mut self) {
        self.under_way = 0;
        for copying in self.all.drain(..) {
            let none = copying.under_way == 0 || copying.refused;
            copying.end(if none { Outcome::Stopped } else { Outcome::Failed });
        }
    }

    /// Whether something could be posted, or is over.
    pub fn have_more(&self) -> bool {
        let due = |copying: &Copying| copying.under_way == 0 || copying.wants_more();
        self.under_way < ABREAST && self.all.iter().any(due)
    }
}
