//! Words that the results of updates arrive in: a few, registered once (the pre-registered pool of paper
//! 004, for what is too short to be worth a registration of its own).

use crate::base::Result;
use crate::base::sync::{AtomicU64, Ordering};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Device, Local, Region};
use std::sync::Arc;

/// How many: one bit each.
const WORDS: u32 = u64::BITS;

/// See the [module](self).
pub(super) struct Words {
    region: Region,
    /// A bit for each that is somebody's.
    taken: AtomicU64,
}

/// One of them, until this is dropped: when the device does nothing to it any more.
pub(super) struct Word {
    words: Arc<Words>,
    index: u32,
}

impl Words {
    /// # Errors
    /// No memory; the device's limits.
    pub fn new(device: &dyn Device) -> Result<Words> {
        let memory = Memory::zeroed((u64::from(WORDS) * Word::BYTES) as usize)?;
        let region = device.register(&memory, Access::LOCAL_WRITE)?;
        Ok(Words { region, taken: AtomicU64::new(0) })
    }

    /// One that is nobody's, if there is one.
    pub fn take(self: &Arc<Words>) -> Option<Word> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let index = taken.trailing_ones();
            if index == WORDS {
                return None;
            }
            // Acquire: its last owner has read it.
            let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.taken.compare_exchange_weak(taken, taken | 1 << index, done, failed) {
                Ok(_) => return Some(Word { words: self.clone(), index }),
                Err(now) => taken = now,
            }
        }
    }
}

impl Word {
    /// Bytes of one.
    pub const BYTES: u64 = 8;

    fn at(&self) -> u64 {
        u64::from(self.index) * Word::BYTES
    }

    /// As operations name it.
    pub fn local(&self) -> Option<Local> {
        self.words.region.local(self.at(), Word::BYTES as u32).ok()
    }

    /// What has arrived.
    pub fn value(&self) -> u64 {
        self.words.region.memory().load(self.at()).unwrap_or(0)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.words.taken.fetch_and(!(1 << self.index), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::sim::{Network, Parameters};

    #[test]
    fn each_is_one_owners_and_there_are_no_more_than_there_are() {
        let network = Network::in_real_time(Parameters::default()).unwrap();
        let words = Arc::new(Words::new(&*network.device(1)).unwrap());
        let mut all: Vec<Word> = (0..WORDS).map(|_| words.take().unwrap()).collect();
        assert!(words.take().is_none());
        let mut places: Vec<u64> = all.iter().map(|word| word.local().unwrap().address).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[1] - two[0] >= 8) && places[0].is_multiple_of(8));
        let back = all.swap_remove(17);
        let place = back.local().unwrap().address;
        drop(back);
        assert_eq!(words.take().unwrap().local().unwrap().address, place);
    }
}
