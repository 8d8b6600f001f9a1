//! Whether the kernel copies the private data of a large collective, or they go by pieces: found out while the
//! program runs, by each team, for each operation and size.
//!
//! ```text
//!   TRY calls by pieces, TRY by the kernel --> the faster one ..... AGAIN calls the other way .....
//!                                                             ^                               |
//!                                                             '-- FIRST calls later, twice as --'
//!                                                                 many, ... LAST
//! ```
//! The kernel copies once, but has to find and hold every page, and on some processors its loop is not the fastest;
//! by pieces there are two copies, which overlap, and a barrier for each piece. On one machine a broadcast of 64 KiB
//! took 10.4 µs by the kernel and 4.0 by pieces, on others the kernel is ahead.
//!
//! All members have to go the same way. So they tell each other what they know along with the addresses (see
//! [`direct`](super::direct)), take the largest of it, and draw the same conclusion. A call takes as long as for the
//! member that takes longest, of several the shortest counts: what interrupts one call says nothing of the way.

use super::sign::What;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Calls of the first trial of each way: an alltoall of 1 MiB by the kernel between cores far from each other took 287,
/// 203, 148, 149, 103, 85 and then 80 µs, by pieces 170.
const TRY: u32 = 6;
/// Calls of a later one: likewise 139, 120, 85, 83, 80.
const AGAIN: u32 = 4;
/// Calls between two of them, at first and at most.
const FIRST: u32 = 64;
const LAST: u32 = 4096;
/// Times are for so many bytes.
const UNIT: u64 = 16 << 10;

/// How private data go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Through the members' pieces.
    Pieces,
    /// The kernel copies them.
    Kernel,
}

/// Calls that are alike: the operation, and the power of two that their bytes have reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    what: What,
    bytes: u64,
}

impl Kind {
    /// Of a call on so many bytes.
    pub fn new(what: What, bytes: usize) -> Kind {
        Kind { what, bytes: bytes as u64 }
    }

    fn is_like(&self, other: &Kind) -> bool {
        self.what == other.what && self.bytes.max(1).ilog2() == other.bytes.max(1).ilog2()
    }
}

/// What is known of calls of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Known {
    /// How many there were.
    pub calls: u32,
    /// Nanoseconds for [`UNIT`] bytes; 0 if that is not known.
    pub pieces: u32,
    pub kernel: u32,
}

impl Known {
    /// As two words of a board.
    pub fn to_words(self) -> [u64; 2] {
        [self.calls.into(), u64::from(self.kernel) << 32 | u64::from(self.pieces)]
    }

    /// What a member told: any numbers.
    pub fn from_words([calls, times]: [u64; 2]) -> Known {
        Known { calls: calls as u32, pieces: times as u32, kernel: (times >> 32) as u32 }
    }

    /// What two members know.
    pub fn join(self, other: Known) -> Known {
        Known {
            calls: self.calls.max(other.calls),
            pieces: self.pieces.max(other.pieces),
            kernel: self.kernel.max(other.kernel),
        }
    }

    /// How the next call goes.
    pub fn next(&self) -> Way {
        if self.calls < TRY {
            return Way::Pieces;
        }
        if self.calls < 2 * TRY {
            return Way::Kernel;
        }
        let (faster, other) = match self.kernel > 0 && self.kernel < self.pieces {
            true => (Way::Kernel, Way::Pieces),
            false => (Way::Pieces, Way::Kernel),
        };
        let period = (1 << self.calls.ilog2()).clamp(FIRST, LAST);
        if self.calls >= FIRST && self.calls % period < AGAIN { other } else { faster }
    }

    /// A call took so long.
    fn note(&mut self, way: Way, time: u32) {
        let known = match way {
            Way::Pieces => &mut self.pieces,
            Way::Kernel => &mut self.kernel,
        };
        // What was once fast may be no more: it is forgotten in a dozen calls.
        let faded = known.saturating_add(*known / 16 + 1);
        *known = if *known == 0 { time } else { time.min(faded) };
    }
}

/// What a member knows of its team's calls. Empty, and without memory, until there is a large one of private data.
#[derive(Debug, Default)]
pub(super) struct Ways {
    all: Mutex<Vec<(Kind, Known)>>,
}

impl Ways {
    /// What is known of calls of a kind.
    pub fn known(&self, kind: Kind) -> Known {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(it, _)| it.is_like(&kind)).map(|(_, known)| *known).unwrap_or_default()
    }

    /// The call number `number` of a kind begins now, one way: what it takes is noted when what is returned is dropped.
    /// (A call that fails ends the team's calls, so it does not matter what is noted of it.)
    pub fn time(&self, kind: Kind, number: u32, way: Way) -> Timed<'_> {
        Timed { ways: self, kind, number, way, began: Instant::now() }
    }

    fn note(&self, kind: Kind, number: u32, way: Way, time: u32) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(it, _)| it.is_like(&kind)).unwrap_or_else(|| {
            all.push((kind, Known::default()));
            all.len() - 1
        });
        let known = &mut all[at].1;
        known.calls = number.saturating_add(1);
        known.note(way, time);
    }
}

/// See [`Ways::time`].
#[derive(Debug)]
#[must_use = "dropped at the end of the call"]
pub(super) struct Timed<'a> {
    ways: &'a Ways,
    kind: Kind,
    number: u32,
    way: Way,
    began: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let time = took.saturating_mul(UNIT) / self.kind.bytes.max(1);
        let time = u32::try_from(time).unwrap_or(u32::MAX).max(1);
        self.ways.note(self.kind, self.number, self.way, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `calls` calls by members who see times of their own; how many went by the kernel.
    fn run(members: &mut [Known], calls: u32, mut time: impl FnMut(usize, Way) -> u32) -> u32 {
        let mut by_kernel = 0;
        for _ in 0..calls {
            let told = members.iter().map(|known| Known::from_words(known.to_words()));
            let joined = told.fold(Known::default(), Known::join);
            let way = joined.next();
            by_kernel += u32::from(way == Way::Kernel);
            for (member, known) in members.iter_mut().enumerate() {
                known.calls = joined.calls + 1;
                known.note(way, time(member, way));
            }
        }
        by_kernel
    }

    #[test]
    fn the_faster_way_is_found_and_found_again_when_it_changes() {
        let mut members = [Known::default(); 3];
        let slow_kernel = |_, way| if way == Way::Kernel { 900 } else { 300 };
        let slow_pieces = |_, way| if way == Way::Kernel { 300 } else { 900 };
        assert!(run(&mut members, 1000, slow_kernel) <= TRY + 5 * AGAIN);
        assert!(run(&mut members, 10_000, slow_pieces) >= 10_000 - 4096 - 100);
        assert!(run(&mut members, 20_000, slow_kernel) <= 4096 + 100);
    }

    #[test]
    fn what_takes_one_member_long_counts() {
        let mut members = [Known::default(); 2];
        let one_waits = |member, way| match (member, way) {
            (1, Way::Kernel) => 1000,
            (_, Way::Kernel) => 10,
            _ => 500,
        };
        assert!(run(&mut members, 60, one_waits) <= TRY);
        let interrupted = Known { calls: 50, pieces: 500, kernel: 100 };
        let mut members = [interrupted; 2];
        run(&mut members, 1, |_, _| 100_000);
        assert_eq!(members[0].next(), Way::Kernel, "one call says nothing");
    }

    #[test]
    fn a_member_that_missed_a_call_is_in_step_again_with_the_next() {
        let mut members = [Known { calls: 7, ..Known::default() }, Known::default()];
        run(&mut members, 1, |_, _| 100);
        assert_eq!(members[0].calls, members[1].calls);
    }

    #[test]
    fn sizes_of_one_power_of_two_are_alike_and_nothing_is_kept_before() {
        let ways = Ways::default();
        let kind = |bytes| Kind::new(What::Broadcast, bytes);
        assert_eq!(ways.known(kind(65_536)), Known::default());
        assert_eq!(ways.all.lock().unwrap().capacity(), 0);
        drop(ways.time(kind(65_536), 0, Way::Pieces));
        let known = ways.known(kind(100_000));
        assert!(known.calls == 1 && known.pieces > 0 && known.kernel == 0);
        assert_eq!(ways.known(kind(131_072)), Known::default());
        assert_eq!(ways.known(Kind::new(What::Alltoall, 65_536)), Known::default());
        drop(ways.time(kind(0), u32::MAX, Way::Kernel));
    }

    proptest! {
        #[test]
        fn any_numbers_are_taken(words in any::<[u64; 2]>(), other in any::<[u64; 2]>()) {
            let (a, b) = (Known::from_words(words), Known::from_words(other));
            let mut joined = a.join(b);
            prop_assert_eq!(joined, b.join(a));
            joined.note(joined.next(), u32::MAX);
            prop_assert_eq!(Known::from_words(joined.to_words()), joined);
        }
    }
}
