//! One-sided transfers: memory that a device knows, and reads of a peer's by the queue pair of a flow.
//!
//! ```text
//!   reading A   |##|##|==|==|  |  |      ## come   == under way, ABREAST at most of all   the rest waits
//!   reading B   |  |  |  |               after it, in the order in which they were begun
//! ```
//! A reading is over when all of it has come; or it has failed: its queue pair did, is given up, or it
//! was stopped. Either way its memory is registered no more when that is told, and nothing of it is
//! under way: whoever asked may get the data another way, into the same memory.
//!
//! Memory is registered for one transfer. (Where the library controls its life, registrations could
//! stay: [`crate::net::regcache`].)

use crate::base::Result;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Device, Local, Region, Remote};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that one read asks for.
const PART: u64 = 256 << 10;

/// Reads of one queue pair under way at most: few enough for every device.
pub(super) const ABREAST: u32 = 4;

/// Memory that a device knows, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    region: Region,
}

impl Registered {
    pub(super) fn new(device: &dyn Device, memory: &Memory, access: Access) -> Result<Registered> {
        Ok(Registered { region: device.register(memory, access)? })
    }

    /// Where peers find it, if they may access it.
    pub fn remote(&self) -> Remote {
        self.region.remote().at(0)
    }

    fn length(&self) -> u64 {
        self.region.memory().length()
    }

    fn local(&self, offset: u64, length: u32) -> Option<Local> {
        self.region.local(offset, length).ok()
    }
}

const UNDER_WAY: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;

/// A transfer as whoever asked for it sees it.
pub(crate) struct Transfer {
    state: AtomicU32,
    stopped: AtomicBool,
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
        Transfer { state, stopped, tell: Box::new(tell) }
    }

    /// Whether it is over: all has come, or it failed. Then nobody has its memory. One load.
    pub fn outcome(&self) -> Option<bool> {
        match self.state.load(Ordering::Acquire) {
            UNDER_WAY => None,
            state => Some(state == DONE),
        }
    }

    /// Asks for no more of it. It is over soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn end(&self, well: bool) {
        self.state.store(if well { DONE } else { FAILED }, Ordering::Release);
        (self.tell)();
    }
}

/// A transfer as its queue pair sees it.
pub(super) struct Reading {
    transfer: Arc<Transfer>,
    memory: Registered,
    from: Remote,
    /// Bytes that were asked for, and parts that have not come of them.
    asked: u64,
    under_way: u32,
    number: u64,
}

impl Reading {
    /// Of all of `memory`, from `from` on.
    pub fn new(transfer: Arc<Transfer>, memory: Registered, from: Remote) -> Reading {
        Reading { transfer, memory, from, asked: 0, under_way: 0, number: 0 }
    }

    fn wants_more(&self) -> bool {
        self.asked < self.memory.length() && !self.transfer.stopped.load(Ordering::Acquire)
    }

    /// Ends it: the device forgets its memory before that is told.
    fn end(self, well: bool) {
        let Reading { transfer, memory, .. } = self;
        drop(memory);
        transfer.end(well);
    }
}

/// Those of one queue pair.
#[derive(Default)]
pub(super) struct Readings {
    all: VecDeque<Reading>,
    under_way: u32,
    next: u64,
}

impl Readings {
    /// Begins one behind the others.
    pub fn add(&mut self, reading: Reading) {
        self.next += 1;
        self.all.push_back(Reading { number: self.next, ..reading });
    }

    /// Ends those that are over.
    fn sweep(&mut self) {
        let over = |reading: &mut Reading| reading.under_way == 0 && !reading.wants_more();
        while let Some(at) = self.all.iter_mut().position(over) {
            if let Some(reading) = self.all.remove(at) {
                let well = reading.asked == reading.memory.length();
                reading.end(well);
            }
        }
    }

    /// The next part to be posted, of `longest` bytes at most, if one may be: whose it is, where it
    /// goes, and where it is. Ends those that are over.
    pub fn next(&mut self, longest: u64) -> Option<(u64, Local, Remote)> {
        self.sweep();
        if self.under_way >= ABREAST {
            return None;
        }
        let reading = self.all.iter().find(|reading| reading.wants_more())?;
        let length = (reading.memory.length() - reading.asked).min(PART).min(longest.max(1));
        let into = reading.memory.local(reading.asked, length as u32)?;
        let address = reading.from.address.wrapping_add(reading.asked);
        Some((reading.number, into, Remote { address, ..reading.from }))
    }

    /// The part that [`Readings::next`] told is under way.
    pub fn posted(&mut self, reading: u64, length: u32) {
        if let Some(reading) = self.all.iter_mut().find(|it| it.number == reading) {
            reading.asked += u64::from(length);
            reading.under_way += 1;
            self.under_way += 1;
        }
    }

    /// A part has come.
    pub fn came(&mut self, reading: u64) {
        if let Some(reading) = self.all.iter_mut().find(|it| it.number == reading) {
            reading.under_way -= 1;
            self.under_way -= 1;
        }
        self.sweep();
    }

    /// There is no queue pair to post more of them by: those end of which nothing is under way, the
    /// others when that has come.
    pub fn stop(&mut self) {
        self.all.iter().for_each(|reading| reading.transfer.stop());
        self.sweep();
    }

    /// Ends all. Nothing is under way any more.
    pub fn fail(&mut self) {
        self.under_way = 0;
        self.all.drain(..).for_each(|reading| reading.end(false));
    }

    /// Whether something could be posted, or is over.
    pub fn have_more(&self) -> bool {
        let due = |reading: &Reading| reading.under_way == 0 || reading.wants_more();
        self.under_way < ABREAST && self.all.iter().any(due)
    }
}
