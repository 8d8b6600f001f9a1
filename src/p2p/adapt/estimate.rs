//! Whether larger messages to a peer should go eagerly, and how large ones.
//!
//! ```text
//!   isend -------- program computes -------- wait        the time between is at least half of
//!     |<---------------------------------->|             what the transfer takes: it overlaps
//! ```
//! Paper 000 §3.1 has two conditions: operations that do not block, and that time. By rendezvous
//! such a transfer begins only when the program waits; eagerly it is done by then. Neither holds
//! for programs that block, or that wait right after they have posted.
//!
//! The paper leaves open how many messages decide. Here a change is wanted once [`LEAST`] messages
//! went by rendezvous and half of the latest ones overlapped (a running average). The sums of
//! the formula (§3.2) are halved from time to time, so that a program's past fades.
//!
//! Beyond the paper: the average goes on when messages go eagerly. If hardly any overlaps any
//! longer, [`Estimator::pays`] says so, and the sender may go back to rendezvous by itself (one
//! copy instead of two), keeping its right to the peer's pool for better times.

use super::Class;

/// Messages by rendezvous before a change is wanted.
pub const LEAST: u32 = 16;

/// Messages after which what was summed up counts half.
const FADES: u32 = 64;

/// All of the messages overlap.
const ALL: u16 = 1 << 12;

/// The weight of one message in the average is one part in so many.
const WEIGHT: i32 = 16;

/// What a sender knows about its messages to one peer that are too large for rings.
#[derive(Clone, Debug)]
pub struct Estimator {
    /// Bytes of messages that went by rendezvous, with headers.
    bytes: u64,
    /// Such messages.
    count: u32,
    /// Bytes that each has for a header.
    header: u32,
    /// Share of messages that overlap, of [`ALL`].
    overlap: u16,
    /// It is better to send eagerly.
    pays: bool,
}

impl Estimator {
    /// Nothing known; messages have headers of `header` bytes.
    pub fn new(header: u32) -> Estimator {
        Estimator { bytes: 0, count: 0, header, overlap: 0, pays: false }
    }

    /// A message of `bytes` bytes went by rendezvous.
    #[inline]
    pub fn note_rendezvous(&mut self, bytes: u64) {
        if self.count >= FADES {
            self.count /= 2;
            self.bytes /= 2;
        }
        self.count += 1;
        // Sizes that no memory has would overflow the sum: they have no class either.
        self.bytes = self.bytes.saturating_add(bytes.min(1 << 50) + u64::from(self.header));
    }

    /// A send to the peer, or a receive from it, that does not block was posted at `posted`, and
    /// at `waited` the program first waited or tested for it; its data take `transfer`, by
    /// [`Speed::estimate`](super::Speed::estimate). All in nanoseconds, the first two since any
    /// one time. To be told of all messages too large for rings, however they went.
    #[inline]
    pub fn note_wait(&mut self, posted: u64, waited: u64, transfer: u64) {
        self.note(waited.saturating_sub(posted) >= transfer.div_ceil(2));
    }

    /// A message too large for rings was sent or received in a call that blocks.
    #[inline]
    pub fn note_blocking(&mut self) {
        self.note(false);
    }

    #[inline]
    fn note(&mut self, overlaps: bool) {
        let (now, aim) = (i32::from(self.overlap), if overlaps { i32::from(ALL) } else { 0 });
        // Rounded away from where it is, or it would stop short of either end.
        let step = (aim - now) / WEIGHT + (aim - now).signum();
        self.overlap = (now + step).clamp(0, i32::from(ALL)) as u16;
        // Apart, so that a share right at the border does not switch to and fro.
        self.pays = self.overlap >= if self.pays { ALL / 4 } else { ALL / 2 };
    }

    /// Whether to send eagerly what the threshold allows: half of the latest messages overlapped,
    /// and no fewer than a quarter have since then.
    #[inline]
    pub fn pays(&self) -> bool {
        self.pays
    }

    /// The class to ask the peer for, if one is wanted: one that is above `current`, the class
    /// that is there, and no larger than `largest`.
    #[inline]
    pub fn wants(&self, current: Option<Class>, largest: Class) -> Option<Class> {
        if self.count < LEAST || !self.pays {
            return None;
        }
        let class = Class::for_average(self.bytes, u64::from(self.count))?;
        (class <= largest && Some(class) > current).then_some(class)
    }

    /// The peer was asked, or has refused: forgets the messages that led to it. What is known about
    /// overlap stays.
    pub fn settle(&mut self) {
        (self.bytes, self.count) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LARGEST: Class = Class::LARGEST;

    fn with(messages: &[(u64, bool)]) -> Estimator {
        let mut estimator = Estimator::new(64);
        for (bytes, overlaps) in messages {
            estimator.note_rendezvous(*bytes);
            estimator.note_wait(1000, 1000 + if *overlaps { 50 } else { 49 }, 100);
        }
        estimator
    }

    #[test]
    fn both_conditions_have_to_hold() {
        let class = Class::new(17).unwrap();
        assert_eq!(with(&[(100_000, true); 16]).wants(None, LARGEST), Some(class));
        assert_eq!(with(&[(100_000, true); 15]).wants(None, LARGEST), None, "too few");
        assert_eq!(with(&[(100_000, false); 64]).wants(None, LARGEST), None, "no overlap");
        let mut blocking = with(&[]);
        for _ in 0..64 {
            blocking.note_rendezvous(100_000);
            blocking.note_blocking();
        }
        assert_eq!(blocking.wants(None, LARGEST), None);
    }

    #[test]
    fn only_what_is_new_and_allowed_is_wanted() {
        let estimator = with(&[(100_000, true); 16]);
        let class = |exponent| Class::new(exponent).unwrap();
        assert_eq!(estimator.wants(Some(class(16)), LARGEST), Some(class(17)));
        assert_eq!(estimator.wants(Some(class(17)), LARGEST), None);
        assert_eq!(estimator.wants(None, class(17)), Some(class(17)));
        assert_eq!(estimator.wants(None, class(16)), None);
        let mut settled = estimator;
        settled.settle();
        assert_eq!(settled.wants(None, LARGEST), None);
        assert!(settled.pays());
    }

    #[test]
    fn the_header_counts_and_the_past_fades() {
        // 65,536 with a header of 64 is over the power of two.
        assert_eq!(with(&[(65_536, true); 16]).wants(None, LARGEST), Class::new(17));
        assert_eq!(with(&[(65_536 - 64, true); 16]).wants(None, LARGEST), Class::new(16));
        let mut estimator = with(&[(1 << 22, true); 64]);
        for _ in 0..640 {
            estimator.note_rendezvous(20_000);
        }
        assert_eq!(estimator.wants(None, LARGEST), Class::new(15));
    }

    #[test]
    fn eager_sending_is_given_up_when_hardly_any_overlaps() {
        let mut estimator = with(&[(100_000, true); 64]);
        assert!(estimator.pays());
        // Three in ten are enough to stay, not enough to begin.
        let share = |estimator: &mut Estimator| {
            for i in 0..1000 {
                estimator.note_wait(0, if i % 10 < 3 { 100 } else { 0 }, 100);
            }
        };
        let mut fresh = Estimator::new(64);
        share(&mut fresh);
        assert!(!fresh.pays());
        for i in 0..1000 {
            estimator.note_wait(0, if i % 5 < 2 { 100 } else { 0 }, 100);
        }
        assert!(estimator.pays());
        (0..64).for_each(|_| estimator.note_blocking());
        assert!(!estimator.pays());
    }

    proptest! {
        #[test]
        fn whatever_is_told_no_wish_is_out_of_bounds(
            told in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..300),
            largest in 10u8..=40,
        ) {
            let mut estimator = Estimator::new(u32::MAX);
            let largest = Class::new(largest).unwrap();
            for (a, b, c) in told {
                estimator.note_rendezvous(a);
                estimator.note_wait(a, b, c);
                let wish = estimator.wants(None, largest);
                prop_assert!(wish.is_none_or(|class| class <= largest));
            }
        }
    }
}
