//! Bounce buffers, for what is too short to be worth a registration of its own: a few of one size,
//! registered once (the pre-registered pool of paper 004). Results of updates arrive in words; short puts
//! and gets go through longer ones.
//!
//! Of an operation whose queue pair failed something may yet arrive. Its buffer is nobody's any more then, nor
//! are those beside it that are free: others are made, and the memory is registered no more, as that of any
//! transfer that failed, when the last owner of one of them is through.

use crate::base::Result;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Device, Local, Region};
use std::sync::{Arc, Mutex, PoisonError};

/// How many: one bit each.
const COUNT: u32 = u64::BITS;

/// Those of one size.
struct Bounces {
    region: Region,
    /// Bytes of each.
    each: u64,
    /// A bit for each that is somebody's.
    taken: AtomicU64,
    /// Something may yet arrive in one that has no owner.
    spoiled: AtomicBool,
}

/// One of them, until this is dropped: when the device does nothing to it any more.
pub(super) struct Bounce {
    bounces: Arc<Bounces>,
    index: u32,
}

/// Bytes of the results of updates.
pub(super) const WORD: u64 = 8;
/// Bytes of transfers that are copied rather than registered for, at most.
const SHORT: u64 = 1024;

/// Those of a process.
pub(super) struct Supplies {
    device: Arc<dyn Device>,
    words: Supply,
    short: Supply,
}

/// Bounce buffers of one size, which are there once one was wanted.
struct Supply {
    each: u64,
    bounces: Mutex<Option<Arc<Bounces>>>,
}

impl Bounces {
    fn new(device: &dyn Device, each: u64) -> Result<Bounces> {
        let memory = Memory::zeroed((u64::from(COUNT) * each) as usize)?;
        let region = device.register(&memory, Access::LOCAL_WRITE)?;
        Ok(Bounces { region, each, taken: AtomicU64::new(0), spoiled: AtomicBool::new(false) })
    }
}

impl Supplies {
    pub fn new(device: Arc<dyn Device>) -> Supplies {
        Supplies { device, words: Supply::new(WORD), short: Supply::new(SHORT) }
    }

    /// A word for the result of an update; nothing if all are somebody's, or there can be none.
    pub fn word(&self) -> Option<Bounce> {
        self.words.take(&*self.device)
    }

    /// What a transfer of so many bytes is to go through; nothing if it is long, or as above.
    pub fn short(&self, bytes: u64) -> Option<Bounce> {
        if bytes <= SHORT { self.short.take(&*self.device) } else { None }
    }
}

impl Supply {
    /// Of buffers of `each` bytes, a multiple of eight.
    fn new(each: u64) -> Supply {
        Supply { each, bounces: Mutex::default() }
    }

    /// One that is nobody's; nothing if there is none, or the device knows no more memory.
    fn take(&self, device: &dyn Device) -> Option<Bounce> {
        let mut made = self.bounces.lock().unwrap_or_else(PoisonError::into_inner);
        if made.as_ref().is_none_or(|bounces| bounces.spoiled.load(Ordering::Acquire)) {
            *made = Bounces::new(device, self.each).ok().map(Arc::new);
        }
        let bounces = made.as_ref()?;
        let mut taken = bounces.taken.load(Ordering::Relaxed);
        loop {
            let index = taken.trailing_ones();
            if index == COUNT {
                return None;
            }
            // Acquire: its last owner has read it.
            let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match bounces.taken.compare_exchange_weak(taken, taken | 1 << index, done, failed) {
                Ok(_) => return Some(Bounce { bounces: bounces.clone(), index }),
                Err(now) => taken = now,
            }
        }
    }
}

impl Bounce {
    fn at(&self) -> u64 {
        u64::from(self.index) * self.bounces.each
    }

    /// Some of it, as operations name it.
    pub fn local(&self, offset: u64, length: u32) -> Option<Local> {
        let inside = offset.checked_add(length.into()).is_some_and(|end| end <= self.bounces.each);
        self.bounces.region.local(self.at() + offset, length).ok().filter(|_| inside)
    }

    /// Gives it back although the device may yet do something to it.
    pub fn spoil(self) {
        self.bounces.spoiled.store(true, Ordering::Release);
    }

    /// The first word of what has arrived.
    pub fn word(&self) -> u64 {
        self.bounces.region.memory().load(self.at()).unwrap_or(0)
    }

    /// Copies all of `from`, which is no longer than it.
    pub fn fill(&self, from: &Memory) -> bool {
        from.length() <= self.bounces.each
            && self.bounces.region.memory().copy(self.at(), from, 0, from.length())
    }

    /// Copies what has arrived to all of `to`, which is no longer than it.
    pub fn empty(&self, to: &Memory) -> bool {
        to.length() <= self.bounces.each
            && to.copy(0, self.bounces.region.memory(), self.at(), to.length())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // Who is just taking one may not know yet that they are spoiled: it finds none free that is.
        if !self.bounces.spoiled.load(Ordering::Relaxed) {
            self.bounces.taken.fetch_and(!(1 << self.index), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::sim::{Network, Parameters};

    #[test]
    fn each_is_one_owners_and_there_are_no_more_than_there_are() {
        let network = Network::in_real_time(Parameters::default()).unwrap();
        let (device, supply) = (network.device(1), Supply::new(48));
        let mut all: Vec<Bounce> = (0..COUNT).map(|_| supply.take(&*device).unwrap()).collect();
        assert!(supply.take(&*device).is_none());
        let place = |bounce: &Bounce| bounce.local(0, 48).unwrap().address;
        let mut places: Vec<u64> = all.iter().map(place).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[1] - two[0] >= 48) && places[0].is_multiple_of(8));
        let back = all.swap_remove(17);
        let there = place(&back);
        drop(back);
        assert_eq!(place(&supply.take(&*device).unwrap()), there);
    }

    #[test]
    fn nothing_reaches_beyond_its_own() {
        let network = Network::in_real_time(Parameters::default()).unwrap();
        let (device, supply) = (network.device(1), Supply::new(16));
        let two = [(); 2].map(|()| supply.take(&*device).unwrap());
        let memory = |length, value| {
            let memory = Memory::zeroed(length).unwrap();
            assert!(memory.write(0, &vec![value; length]));
            memory
        };
        assert!(two[0].fill(&memory(16, 1)) && two[1].fill(&memory(3, 2)));
        assert!(!two[0].fill(&memory(17, 3)) && !two[0].empty(&memory(17, 3)));
        assert!(two[0].local(8, 8).is_some() && two[0].local(8, 9).is_none());
        assert!(two[0].local(u64::MAX, 2).is_none());
        for (bounce, want) in
            [(&two[0], [1; 16]), (&two[1], [2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])]
        {
            let (found, mut bytes) = (memory(16, 9), [0; 16]);
            assert!(bounce.empty(&found) && found.read(0, &mut bytes));
            assert_eq!(bytes, want);
        }
    }

    #[test]
    fn where_something_may_yet_arrive_nobody_has_a_buffer() {
        let network = Network::in_real_time(Parameters::default()).unwrap();
        let (device, supply) = (network.device(1), Supply::new(8));
        let [one, other] = [(); 2].map(|()| supply.take(&*device).unwrap());
        let there = Arc::downgrade(&one.bounces);
        one.spoil();
        let next = supply.take(&*device).unwrap();
        assert!(!Arc::ptr_eq(&next.bounces, &other.bounces));
        assert!(there.upgrade().is_some(), "it is registered while somebody has one");
        drop(other);
        assert!(there.upgrade().is_none(), "the device knows it still");
    }
}
