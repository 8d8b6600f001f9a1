//! A word that says how elements in shared memory are updated: by native atomics, which are fast
//! for single elements, or under locks, which are fast for many. It changes while they are
//! updated, and nobody waits for that.
//!
//! ```text
//!               updates of single elements      updates of many elements
//!  Native         native                          native
//!  Both           lock + native                   lock + native
//!  Locked         lock + native                   lock + plain loads and stores
//! ```
//! Neighbours go together: native updates never lose one another, and whoever holds the lock is
//! alone but for native updates, which it answers with native ones in all states but Locked. So
//! what matters is that nobody is Native while another is Locked, and that is what Both and the
//! sections (see [`super::section`]) keep apart:
//!
//! ```text
//!            CAS                     outwait, CAS
//!   Native --------> Both, n       ---------------> Locked, n + 1
//!   Locked --------> Both, n       ---------------> Native, n + 1
//! ```
//! Every look at the word and the access that follows from it are one section; *lock + native*
//! needs no look, for it is right in every state. A lock is taken before the section begins, so
//! sections stay short. Whoever finds Both may finish the change, in either direction, by outwaiting
//! all sections begun before. The count `n` in the word changes with every step, so the last CAS
//! succeeds only if the word said Both all the while. A process that dies half-way leaves Both,
//! which is slow, and right.

use super::crash;
use crate::base::sync::{AtomicU64, Ordering};

/// How elements are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Way {
    /// By native atomics.
    Native = 0,
    /// Under locks by native atomics.
    Both = 1,
    /// Under locks.
    Locked = 2,
}

/// The word. All zeros is [`Way::Native`].
///
/// ```text
///  63          2 1   0
/// +-------------+-----+
/// |    count    | way |
/// +-------------+-----+
/// ```
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Bias {
    word: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bias>() == 8);

#[cfg(not(loom))]
// SAFETY: one atomic, every bit pattern valid.
unsafe impl super::region::SharedLayout for Bias {}

impl Default for Bias {
    fn default() -> Self {
        Bias { word: AtomicU64::new(0) }
    }
}

/// A value that no process of this library writes counts as Both, which is right at any time.
fn way_of(word: u64) -> Way {
    match word & 3 {
        0 => Way::Native,
        2 => Way::Locked,
        _ => Way::Both,
    }
}

fn next(word: u64, way: Way) -> u64 {
    ((word >> 2).wrapping_add(1) << 2) | way as u64
}

impl Bias {
    /// How elements are to be updated. What follows from it must be done in the section in which
    /// it is called.
    #[inline(always)]
    pub fn way(&self) -> Way {
        way_of(self.word.load(Ordering::Acquire))
    }

    /// Whether the way is [`Way::Native`]; as [`Bias::way`], in one comparison.
    #[inline(always)]
    pub fn is_native(&self) -> bool {
        self.word.load(Ordering::Acquire) & 3 == 0
    }

    /// Changes the way to `to` (Native or Locked); `outwait` waits for the sections of all that
    /// use the word, and is false if it gave up. False then, and when somebody else changes the
    /// way at the same time: it may be tried again whenever somebody cares.
    ///
    /// The caller is not inside a section.
    #[cold]
    pub fn turn(&self, to: Way, mut outwait: impl FnMut() -> bool) -> bool {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let way = way_of(word);
            if way == to {
                return true;
            }
            crash::point();
            if way != Way::Both {
                self.cas(word, next(word, Way::Both));
                continue;
            }
            if !outwait() {
                return false;
            }
            crash::point();
            return self.cas(word, next(word, to));
        }
    }

    /// Sequentially consistent like the fences it goes with.
    fn cas(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}
