//! The system's lock that survives its holder: a robust, process-shared pthread mutex.

use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};

/// A robust mutex in shared memory.
pub struct RobustMutex {
    area: Area,
    at: *mut libc::pthread_mutex_t,
    owner: bool,
}

impl RobustMutex {
    /// Takes memory and, on rank 0, initialises the mutex.
    pub fn new(crew: &Crew) -> Result<RobustMutex> {
        let area = crew.block().take(4096)?;
        let at: *mut libc::pthread_mutex_t =
            area.bytes(0, size_of::<libc::pthread_mutex_t>()).cast();
        if crew.leads() {
            let mut attributes = std::mem::MaybeUninit::uninit();
            // SAFETY: the attributes are initialised by the first call before they are used; `at`
            // is page-aligned zeroed memory that nobody else touches yet.
            let rc = unsafe {
                libc::pthread_mutexattr_init(attributes.as_mut_ptr())
                    | libc::pthread_mutexattr_setpshared(
                        attributes.as_mut_ptr(),
                        libc::PTHREAD_PROCESS_SHARED,
                    )
                    | libc::pthread_mutexattr_setrobust(
                        attributes.as_mut_ptr(),
                        libc::PTHREAD_MUTEX_ROBUST,
                    )
                    | libc::pthread_mutex_init(at, attributes.as_ptr())
            };
            if rc != 0 {
                return Err(Error::invalid("bench", "this system has no robust mutexes"));
            }
        }
        Ok(RobustMutex { area, at, owner: crew.leads() })
    }

    /// Runs `f` under the lock.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        debug_assert_eq!(self.at.cast(), self.area.bytes(0, 8));
        // SAFETY: the mutex was initialised by rank 0 before it gave its first order, and the
        // area keeps it mapped. Holders do not die here, so the results carry no news.
        unsafe { libc::pthread_mutex_lock(self.at) };
        let result = f();
        // SAFETY: as above, and this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.at) };
        result
    }
}

impl Drop for RobustMutex {
    fn drop(&mut self) {
        if self.owner {
            // SAFETY: the comparison is over, so nobody holds it or will use it again.
            unsafe { libc::pthread_mutex_destroy(self.at) };
        }
    }
}

/// Lock and unlock, rank 0 alone. An operation is both.
pub struct LockUnlock(pub RobustMutex);

impl Side for LockUnlock {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| {
            self.0.with(|| ());
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::with_crew;
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn it_excludes_across_mappings() {
        let barrier = Barrier::new(3);
        with_crew(3, |crew| {
            let mutex = RobustMutex::new(&crew).unwrap();
            let word = mutex.area.word(1024);
            barrier.wait();
            for _ in 0..1000 {
                mutex.with(|| word.store(word.load(Relaxed) + 1, Relaxed));
            }
            barrier.wait();
            assert_eq!(word.load(Relaxed), 3000);
        });
    }
}
