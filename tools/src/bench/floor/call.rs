//! Lock, call a function on the other rank's memory, unlock: what is left of an active message
//! when the origin runs it and everything a library does is taken away.

use super::mutex::RobustMutex;
use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A handler that adds its input to a word and returns what was there.
type Handler = fn(&AtomicU64, u64) -> u64;

fn handler(word: &AtomicU64, input: u64) -> u64 {
    let old = word.load(Relaxed);
    word.store(old + input, Relaxed);
    old
}

/// Which lock.
pub enum Lock {
    /// One that survives its holder, as the library's does.
    Robust(RobustMutex),
    /// One word: free or taken. The least that excludes at all.
    Word,
}

/// Lock, call, unlock; rank 0 alone.
pub struct LockedCall {
    area: Area,
    lock: Lock,
    handler: Handler,
    calls: u64,
}

impl LockedCall {
    /// With the robust mutex, or with a bare word.
    pub fn new(crew: &Crew, robust: bool) -> Result<LockedCall> {
        let lock = if robust { Lock::Robust(RobustMutex::new(crew)?) } else { Lock::Word };
        // Through a pointer the compiler cannot see through, as a registered handler is.
        let handler = black_box(handler as Handler);
        Ok(LockedCall { area: crew.block().take(4096)?, lock, handler, calls: 0 })
    }
}

impl Side for LockedCall {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (word, flag, handler) = (self.area.word(0), self.area.word(64), self.handler);
        match &self.lock {
            Lock::Robust(mutex) => meter.run(count, |_| {
                black_box(mutex.with(|| handler(word, 1)));
                Ok(())
            })?,
            Lock::Word => meter.run(count, |_| {
                while flag.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
                    std::hint::spin_loop();
                }
                black_box(handler(word, 1));
                flag.store(0, Release);
                Ok(())
            })?,
        }
        self.calls += count;
        if word.load(Relaxed) != self.calls {
            return Err(Error::invalid("bench", "a bare call was lost"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn every_call_counts() {
        exercise(2, |crew| LockedCall::new(crew, true));
        exercise(2, |crew| LockedCall::new(crew, false));
    }
}
