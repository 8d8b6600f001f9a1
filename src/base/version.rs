//! A version of some words: readers look without a lock and without writing, and know afterwards
//! whether a writer was at work meanwhile.
//!
//! ```text
//! writer (one at a time)                    reader
//!   version = v + 1 (odd)                     before = version        Acquire; odd: give up
//!   words stored            Release           words loaded            Acquire
//!   version = v + 2         Release           version == before?      else what was read is void
//! ```
//! A reader that loads a word of a write in progress synchronises with that store, so it sees the
//! odd version (or a later one) afterwards. It never waits: what to do instead is its caller's.

use super::sync::{AtomicU32, Ordering};

/// The version.
#[derive(Debug)]
pub(crate) struct Version(AtomicU32);

impl Version {
    /// Of words that nobody has written yet.
    pub fn new() -> Version {
        Version(AtomicU32::new(0))
    }

    /// What `look` returns, if no writer was at work while it ran. `look` loads the words with
    /// Acquire and must cope with any mixture of old and new ones. Cost: two loads.
    #[inline(always)]
    pub fn read<R>(&self, look: impl FnOnce() -> R) -> Option<R> {
        let before = self.0.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let seen = look();
        (self.0.load(Ordering::Relaxed) == before).then_some(seen)
    }

    /// Runs `change`, which stores words with Release. Writers exclude each other by other means.
    pub fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(1), Ordering::Relaxed);
        let result = change();
        self.0.store(before.wrapping_add(2), Ordering::Release);
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_inside_a_write_sees_nothing() {
        let version = Version::new();
        assert_eq!(version.read(|| 1), Some(1));
        version.write(|| assert_eq!(version.read(|| 2), None));
        assert_eq!(version.read(|| version.write(|| 3)), None);
        assert_eq!(version.read(|| 4), Some(4));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::sync::AtomicU64;
    use loom::sync::Arc;

    #[test]
    fn loom_words_read_together_were_written_together() {
        loom::model(|| {
            let shared = Arc::new((Version::new(), AtomicU64::new(0), AtomicU64::new(0)));
            let writer = shared.clone();
            let thread = loom::thread::spawn(move || {
                let (version, a, b) = &*writer;
                for value in 1..=2 {
                    version.write(|| {
                        a.store(value, Ordering::Release);
                        b.store(value, Ordering::Release);
                    });
                }
            });
            let (version, a, b) = &*shared;
            let look = || (a.load(Ordering::Acquire), b.load(Ordering::Acquire));
            if let Some((a, b)) = version.read(look) {
                assert_eq!(a, b);
            }
            thread.join().unwrap();
            assert_eq!(version.read(look), Some((2, 2)));
        });
    }
}
