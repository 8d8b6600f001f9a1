//! How a buffer in the node's memory is filled that another core has read last: by plain stores, or by non-temporal ones.
//!
//! A plain store needs its line in this core's cache. Where the two cores share no
//! cache such lines come one after the other, 2 GB/s on AMD's processors (family 25 model 17), whatever is asked for
//! ahead. Non-temporal stores need none: 24 there, and the reader has from memory what it else has from the other
//! core's cache, as fast. Where they share one plain stores make 30, and what went to memory is read from there: 18.
//! The system moves processes to and fro between such cores, so it is found out while they
//! run, from what filling takes. (What the reader takes is not asked: the one is several times faster, or not used.)
//!
//! ```text
//!   plain, some timed --- SLOW_ONES more slow ones than others ---> TRIED nontemporal --- GAIN times as fast ---> nontemporal
//!     ^  ^                                                                 |                                        |
//!     |  '------------------- no ------------------------------------------'                                        |
//!     '--- RETURNS trials in a row are not LOSS times as slow: one in `rest` begins with plain stores, timed -------'
//! ```
//! Of several times the shortest counts: what was interrupted, or found no page, takes longer.

use super::copy::{HAS_NONTEMPORAL, copy_in, copy_nontemporal};
use super::sync::full_fence;
use super::{Error, Result, settings};
use std::time::Instant;

/// Which part of plain ones is timed as long as none is slow; all from so many bytes on.
const SAMPLE: u32 = 8;
const LARGE: usize = 128 << 10;
/// Nanoseconds for a KiB from which on they are slow, of buffers that take turns. (Where cores share a cache one that was
/// emptied just before takes 100, and 150 where a core is shared, too; the next ones take 30.)
pub(crate) const IN_TURN: u32 = 200;
/// The same of memory that is written again and again: there it stays as it is.
pub(crate) const AGAIN: u32 = 115;
/// Slow ones, less those that are not, that are reason to try the others; how many are tried.
const SLOW_ONES: u32 = 3;
const TRIED: u32 = 4;
/// How many times as fast these must be, and how many times as fast not to go back: in halves.
const GAIN: u32 = 5;
const LOSS: u32 = 4;
/// Trials in a row that say so.
const RETURNS: u32 = 2;
/// Bytes that a trial fills plainly, at most; it waits until they are in the cache.
const PART: usize = 16 << 10;
/// Buffers between trials, at first and at most.
const FIRST: u32 = 64;
const MOST: u32 = 1024;

/// Which stores may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stores {
    Auto,
    Plain,
    Nontemporal,
}

impl Stores {
    /// What `HITHER_STORES` says.
    ///
    /// # Errors
    /// It says something else.
    pub fn from_settings() -> Result<Stores> {
        match settings::STORES.text().as_str() {
            "auto" if HAS_NONTEMPORAL => Ok(Stores::Auto),
            "auto" | "plain" => Ok(Stores::Plain),
            "nontemporal" => Ok(Stores::Nontemporal),
            other => {
                let why = format!("\"{other}\" is neither auto nor plain nor nontemporal");
                Err(Error::invalid(settings::STORES.name, why))
            }
        }
    }
}

/// How a buffer is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Plain,
    Nontemporal,
    /// The same, timed.
    PlainTimed,
    NontemporalTimed,
    /// The first bytes plainly, and these timed.
    Trial,
}

/// What it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    manner: Manner,
    /// Nanoseconds for a KiB.
    pace: u32,
}

/// What is known of buffers of one kind.
#[derive(Debug)]
pub(crate) struct Filling {
    stores: Stores,
    slow: u32,
    state: State,
    /// Buffers until something is timed again.
    left: u32,
    /// Buffers between two trials.
    rest: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many more slow ones than others; the shortest of them.
    Plain { slow: u32, pace: u32 },
    /// Still to be tried; the shortest so far; what plain ones took.
    Trying { left: u32, pace: u32, plain: u32 },
    /// What it takes; trials in a row that say that plain ones are as fast.
    Nontemporal { pace: u32, equal: u32 },
}

const NONE_SLOW: State = State::Plain { slow: 0, pace: u32::MAX };

impl Filling {
    /// `slow`: [`IN_TURN`] or [`AGAIN`].
    pub fn new(stores: Stores, slow: u32) -> Filling {
        Filling { stores, slow, state: NONE_SLOW, left: 0, rest: FIRST }
    }

    /// How the next one, of so many bytes, is filled.
    #[inline]
    pub fn next(&mut self, len: usize) -> Manner {
        let timed = self.left == 0;
        self.left = self.left.saturating_sub(1);
        match (self.stores, self.state) {
            (Stores::Plain, _) => Manner::Plain,
            (Stores::Nontemporal, _) => Manner::Nontemporal,
            (_, State::Plain { .. }) if !timed => Manner::Plain,
            (_, State::Plain { slow, .. }) => {
                self.left = if slow == 0 && len < LARGE { SAMPLE - 1 } else { 0 };
                Manner::PlainTimed
            }
            (_, State::Trying { .. }) => Manner::NontemporalTimed,
            (_, State::Nontemporal { .. }) if timed => Manner::Trial,
            (_, State::Nontemporal { .. }) if self.left == 0 => Manner::NontemporalTimed,
            (_, State::Nontemporal { .. }) => Manner::Nontemporal,
        }
    }

    /// What one took.
    #[inline]
    pub fn note(&mut self, filled: Filled) {
        if !matches!(filled.manner, Manner::Plain | Manner::Nontemporal) {
            self.judge(filled);
        }
    }

    fn judge(&mut self, Filled { manner, pace: took }: Filled) {
        match (self.state, manner) {
            (State::Plain { slow, pace }, Manner::PlainTimed) => self.plain_took(slow, pace, took),
            (State::Trying { left, pace, plain }, Manner::NontemporalTimed) => {
                let (left, pace) = (left - 1, pace.min(took));
                self.state = State::Trying { left, pace, plain };
                if left == 0 {
                    self.decide(pace, plain);
                }
            }
            (State::Nontemporal { equal, .. }, Manner::NontemporalTimed) => {
                self.state = State::Nontemporal { pace: took, equal }
            }
            (State::Nontemporal { pace, equal }, Manner::Trial) => {
                let is_equal = took.saturating_mul(2) < pace.saturating_mul(LOSS);
                let equal = if is_equal { equal + 1 } else { 0 };
                self.state = State::Nontemporal { pace, equal };
                if equal == RETURNS {
                    (self.state, self.rest) = (NONE_SLOW, FIRST);
                } else if !is_equal {
                    self.pause();
                }
            }
            // Of one that was under way when this changed.
            _ => {}
        }
    }

    fn plain_took(&mut self, slow: u32, pace: u32, took: u32) {
        if took < self.slow {
            let slow = slow.saturating_sub(1);
            self.state = if slow == 0 { NONE_SLOW } else { State::Plain { slow, pace } };
            return;
        }
        let (slow, pace) = (slow + 1, pace.min(took));
        self.left = 0;
        self.state = if slow < SLOW_ONES {
            State::Plain { slow, pace }
        } else {
            State::Trying { left: TRIED, pace: u32::MAX, plain: pace }
        };
    }

    /// The others were tried.
    fn decide(&mut self, pace: u32, plain: u32) {
        if pace.saturating_mul(GAIN) <= plain.saturating_mul(2) {
            self.state = State::Nontemporal { pace, equal: 0 };
            (self.left, self.rest) = (FIRST, FIRST);
        } else {
            self.state = NONE_SLOW;
            self.pause();
        }
    }

    /// Nothing is tried for twice as long as the last time.
    fn pause(&mut self) {
        self.rest = (self.rest * 2).min(MOST);
        self.left = self.rest;
    }
}

impl Manner {
    /// Whether all of it is filled by plain stores, which find lines faster that were asked for ahead.
    pub fn is_plain(self) -> bool {
        matches!(self, Manner::Plain | Manner::PlainTimed)
    }

    /// Fills a buffer. Two looks at the clock where it is timed.
    ///
    /// # Safety
    /// As for [`copy_in`].
    #[inline]
    pub unsafe fn fill(self, to: *mut u8, from: *const u8, len: usize) -> Filled {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Manner::Plain => copy_in(to, from, len),
                Manner::Nontemporal => copy_nontemporal(to, from, len),
                _ => return self.fill_timed(to, from, len),
            }
        }
        Filled { manner: self, pace: 0 }
    }

    /// # Safety
    /// As for [`copy_in`].
    #[inline(never)]
    unsafe fn fill_timed(self, to: *mut u8, from: *const u8, len: usize) -> Filled {
        let (began, mut timed) = (Instant::now(), len);
        // SAFETY: the caller's; a part is no more than all.
        unsafe {
            match self {
                Manner::Plain | Manner::PlainTimed => copy_in(to, from, len),
                Manner::Nontemporal | Manner::NontemporalTimed => copy_nontemporal(to, from, len),
                Manner::Trial => {
                    timed = len.min(PART);
                    copy_in(to, from, timed);
                    full_fence();
                }
            }
        }
        let took = began.elapsed().as_nanos() as u64;
        if timed < len {
            // SAFETY: the caller's; what is behind the part.
            unsafe { copy_nontemporal(to.add(timed), from.add(timed), len - timed) };
        }
        Filled::new(self, took, timed)
    }
}

impl Filled {
    fn new(manner: Manner, nanos: u64, len: usize) -> Filled {
        let pace = nanos.saturating_mul(1024) / len.max(1) as u64;
        Filled { manner, pace: pace.clamp(1, u64::from(u32::MAX / 8)) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nanoseconds for a KiB by plain stores and by others.
    #[derive(Clone, Copy, Debug)]
    struct Paces(u64, u64);

    /// Fills so many: how many of them plainly, at least in part; and how many are timed.
    fn fill(
        filling: &mut Filling,
        len: usize,
        count: u32,
        pace: impl Fn(u32) -> Paces,
    ) -> (u32, u32) {
        let (mut plain, mut timed) = (0, 0);
        for i in 0..count {
            let (manner, Paces(plainly, otherwise)) = (filling.next(len), pace(i));
            let nanos = |pace: u64, len: usize| pace * len as u64 / 1024;
            let (took, part) = match manner {
                Manner::Plain | Manner::PlainTimed => (nanos(plainly, len), len),
                Manner::Nontemporal | Manner::NontemporalTimed => (nanos(otherwise, len), len),
                Manner::Trial => (nanos(plainly, len.min(PART)), len.min(PART)),
            };
            plain += u32::from(manner.is_plain() || manner == Manner::Trial);
            timed += u32::from(!matches!(manner, Manner::Plain | Manner::Nontemporal));
            filling.note(Filled::new(manner, took, part));
        }
        (plain, timed)
    }

    const LEN: std::ops::Range<usize> = 1024..200_000;

    proptest! {
        /// What is several times faster gets nearly all, and soon; what is found out about it costs little.
        #[test]
        fn slow_lines_are_passed_by(len in LEN, plain in 210u64..4000, gain in 3u64..20) {
            let mut filling = Filling::new(Stores::Auto, IN_TURN);
            let pace = |_| Paces(plain, plain / gain);
            let (plainly, _) = fill(&mut filling, len, 20, pace);
            prop_assert!(plainly <= SAMPLE + SLOW_ONES, "{plainly} of 20");
            let (plainly, timed) = fill(&mut filling, len, 10_000, pace);
            prop_assert!(plainly < 20 && timed < 40, "{plainly} plainly, {timed} timed of 10000");
        }

        /// Cores that are near each other are not taken for others, even if a third of their times is long.
        #[test]
        fn where_lines_come_fast_nothing_changes(
            len in LEN, plain in 10u64..190, other in 5u64..100, long in 3u32..9,
        ) {
            let mut filling = Filling::new(Stores::Auto, IN_TURN);
            let pace = |i| Paces(if i % long == 0 { 5000 } else { plain }, other);
            let (plainly, _) = fill(&mut filling, len, 1000, pace);
            // Which of the small ones are timed may fall into step with those that take long; then trials say so.
            let step = long == 8 && len < LARGE;
            prop_assert!(plainly == 1000 || step, "{plainly}");
        }

        /// It is noticed that the cores are near each other again, and far.
        #[test]
        fn what_has_changed_is_found_out(len in LEN, changes in 1usize..5) {
            let mut filling = Filling::new(Stores::Auto, IN_TURN);
            for _ in 0..changes {
                fill(&mut filling, len, 3000, |_| Paces(450, 42));
                let (plainly, _) = fill(&mut filling, len, 100, |_| Paces(450, 42));
                prop_assert!(plainly < 5, "{plainly} of 100 plainly, far");
                fill(&mut filling, len, MOST + 10, |_| Paces(33, 36));
                let (plainly, _) = fill(&mut filling, len, 100, |_| Paces(33, 36));
                prop_assert!(plainly == 100, "{plainly} of 100 plainly, near");
            }
        }

        /// Where all is slow, and nothing gained, hardly any goes otherwise.
        #[test]
        fn what_does_not_help_is_hardly_tried(len in LEN, pace in 200u64..5000) {
            let mut filling = Filling::new(Stores::Auto, IN_TURN);
            let (plainly, _) = fill(&mut filling, len, 10_000, |_| Paces(pace, pace * 2 / 3));
            prop_assert!(plainly > 9900, "{plainly}");
        }

        /// Every manner fills exactly its bytes, whatever it is told of others.
        #[test]
        fn every_manner_copies_its_bytes(len in 0usize..40_000, to in 0usize..70, from in 0usize..70) {
            use Manner::*;
            let source: Vec<u8> = (0..from + len).map(|i| (i * 7 + (i >> 8)) as u8).collect();
            let mut filling = Filling::new(Stores::Auto, IN_TURN);
            for manner in [Plain, Nontemporal, PlainTimed, NontemporalTimed, Trial] {
                let mut there = vec![0u8; to + len + 10];
                // SAFETY: both vectors are long enough, and private.
                let filled = unsafe {
                    manner.fill(there.as_mut_ptr().add(to), source.as_ptr().add(from), len)
                };
                filling.note(filled);
                prop_assert!(there[to..to + len] == source[from..]);
                prop_assert!(there[..to].iter().chain(&there[to + len..]).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn what_is_asked_for_is_used() {
        let mut plain = Filling::new(Stores::Plain, IN_TURN);
        assert_eq!(fill(&mut plain, 4096, 100, |_| Paces(450, 40)), (100, 0));
        let mut nontemporal = Filling::new(Stores::Nontemporal, IN_TURN);
        assert_eq!(fill(&mut nontemporal, 4096, 100, |_| Paces(10, 400)), (0, 0));
    }
}
