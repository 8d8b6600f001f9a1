//! A sequence lock: small tables that one process changes and many read, without a store by the
//! readers.
//!
//! ```text
//! writer                       reader
//!   word += 1 (odd)              s = word, even?            (Acquire)
//!   fence Release                look: relaxed loads
//!   change: relaxed stores       fence Acquire
//!   word += 1 (Release)          word still s?  -> what was seen is of one moment
//! ```
//! What is read meanwhile may be of two moments; it is thrown away then. So readers must be able
//! to read anything without harm: they check every offset they follow. A writer killed between its
//! two steps leaves the word odd; whoever reads then asks whether it lives.

use crate::base::sync::{AtomicU64, Ordering, fence};

/// The word that guards a table. All zeros is one that nobody writes.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct SeqWord {
    word: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SeqWord>() == 8);

#[cfg(not(loom))]
// SAFETY: one atomic.
unsafe impl super::region::SharedLayout for SeqWord {}

impl Default for SeqWord {
    fn default() -> Self {
        SeqWord { word: AtomicU64::new(0) }
    }
}

impl SeqWord {
    /// Runs `change`, which stores to the table by relaxed atomics. One writer at a time: the
    /// caller sees to that.
    pub fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        let before = self.word.load(Ordering::Relaxed) & !1;
        self.word.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let result = change();
        self.word.store(before + 2, Ordering::Release);
        result
    }

    /// Runs `look`, which reads the table by relaxed atomics; `None` if the table was being
    /// changed, or has changed meanwhile. Never waits.
    #[inline]
    pub fn read<R>(&self, look: impl FnOnce() -> R) -> Option<R> {
        let before = self.word.load(Ordering::Acquire);
        if before & 1 != 0 {
            return None;
        }
        let seen = look();
        fence(Ordering::Acquire);
        (self.word.load(Ordering::Relaxed) == before).then_some(seen)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_meanwhile_voids_what_was_seen() {
        let (word, value) = (SeqWord::default(), AtomicU64::new(1));
        let read = || word.read(|| value.load(Ordering::Relaxed));
        assert_eq!(read(), Some(1));
        word.write(|| {
            assert_eq!(read(), None);
            value.store(2, Ordering::Relaxed);
        });
        assert_eq!(read(), Some(2));
        let disturbed = word.read(|| word.write(|| value.store(3, Ordering::Relaxed)));
        assert_eq!(disturbed, None);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn loom_a_reader_sees_values_of_one_moment() {
        loom::model(|| {
            let table = Arc::new((SeqWord::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
            let writer = {
                let table = table.clone();
                thread::spawn(move || {
                    for round in 1..3 {
                        table.0.write(|| {
                            table.1[0].store(round, Ordering::Relaxed);
                            table.1[1].store(round, Ordering::Relaxed);
                        });
                    }
                })
            };
            let both =
                |t: &[AtomicU64; 2]| (t[0].load(Ordering::Relaxed), t[1].load(Ordering::Relaxed));
            let mut last = 0;
            for _ in 0..2 {
                if let Some((a, b)) = table.0.read(|| both(&table.1)) {
                    assert_eq!(a, b);
                    assert!(a >= last, "a later read went back in time");
                    last = a;
                }
            }
            writer.join().unwrap();
            assert_eq!(table.0.read(|| both(&table.1)), Some((2, 2)));
        });
    }
}
