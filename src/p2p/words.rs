//! Words in shared memory by which two processes agree who has a buffer. Here they are alone, so
//! that models try every interleaving of them; what they are about is in `claim` and `pool`.
//!
//! ```text
//!  claim   63 generation 2 | 1 state 0     FREE, OPEN, CLAIMED, or ATTENDED: open, and its owner
//!                                          waits awake and would rather copy by itself, or its half
//!  buffer  GONE, FREE, or 32 ARRIVED | 31 slot + 2 0
//!  lent    0: the sender's; else MARK | 15 slot 0: lent to that one
//! ```

use crate::base::Slot;
use crate::base::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
const OPEN: u64 = 1;
const CLAIMED: u64 = 2;
const ATTENDED: u64 = 3;

/// A claim's word in one of its generations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub word: &'a AtomicU64,
    pub generation: u64,
}

impl<'a> Claim<'a> {
    /// Owner: opens a free word, in its next generation of so many.
    pub fn open(word: &'a AtomicU64, generations: u64) -> Claim<'a> {
        let generation = (word.load(Ordering::Relaxed) >> 2) % generations;
        let claim = Claim { word, generation };
        // Release: whoever claims it sees the buffer as it is now.
        word.store(claim.value(OPEN), Ordering::Release);
        claim
    }

    fn value(self, state: u64) -> u64 {
        self.generation << 2 | state
    }

    fn next(self) -> u64 {
        (self.generation + 1) << 2 | FREE
    }

    fn change(self, from: u64, to: u64) -> bool {
        let from = self.value(from);
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Owner: takes it back; false if the peer has claimed it.
    pub fn withdraw(self) -> bool {
        // Between the two it may have changed from the one to the other, by a thread of the owner's
        // that begins to wait or goes to sleep: each does so once or twice.
        while [OPEN, ATTENDED].contains(&self.state()) {
            if self.change(OPEN, self.next()) || self.change(ATTENDED, self.next()) {
                return true;
            }
        }
        false
    }

    /// The state; CLAIMED if the generation is another.
    fn state(self) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        if word >> 2 == self.generation { word & 3 } else { CLAIMED }
    }

    /// Owner: begins to wait awake for what is to come.
    pub fn attend(self) {
        self.change(OPEN, self.value(ATTENDED));
    }

    /// Owner: ends that.
    pub fn leave(self) {
        self.change(ATTENDED, self.value(OPEN));
    }

    /// Owner: ends it, whatever its state: the copy is over, or nobody is left to make it.
    pub fn release(self) {
        self.word.store(self.next(), Ordering::Release);
    }

    /// Peer: whether its owner waits awake.
    pub fn is_attended(self) -> bool {
        self.state() == ATTENDED
    }

    /// Peer: claims it; false if it was taken back, or if it is attended and the peer would rather
    /// `yield_to` an owner that is.
    pub fn claim(self, yield_to: bool) -> bool {
        while [OPEN, ATTENDED].contains(&self.state()) {
            if self.change(OPEN, self.value(CLAIMED)) {
                return true;
            }
            if yield_to {
                return false;
            }
            if self.change(ATTENDED, self.value(CLAIMED)) {
                return true;
            }
        }
        false
    }

    /// Peer: opens what it has claimed again: nothing was copied after all.
    pub fn unclaim(self) {
        self.word.store(self.value(OPEN), Ordering::Release);
    }
}

const NO_BUFFER: u64 = 0;
const EMPTY: u64 = 1;
const ARRIVED: u64 = 1 << 32;

fn taken_by(slot: Slot) -> u64 {
    u64::from(slot.0) + 2
}

/// A buffer's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer<'a>(pub &'a AtomicU64);

impl Buffer<'_> {
    fn change(self, from: u64, to: u64, success: Ordering) -> bool {
        self.0.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
    }

    /// Receiver: whether there is none.
    pub fn is_gone(self) -> bool {
        self.0.load(Ordering::Relaxed) == NO_BUFFER
    }

    /// Sender: takes it, if it is free.
    pub fn take(self, me: Slot) -> bool {
        self.0.load(Ordering::Relaxed) == EMPTY
            && self.change(EMPTY, taken_by(me), Ordering::Acquire)
    }

    /// Sender: gives it back, having told nobody of it.
    pub fn untake(self, me: Slot) {
        self.change(taken_by(me), EMPTY, Ordering::Release);
    }

    /// Receiver: `from` says that there is a message in it; false if it is not its.
    pub fn arrived(self, from: Slot) -> bool {
        self.change(taken_by(from), taken_by(from) | ARRIVED, Ordering::Acquire)
    }

    /// Receiver: makes it free: the message was copied out, or there is a buffer now.
    pub fn give_back(self) {
        self.0.store(EMPTY, Ordering::Release);
    }

    /// Receiver: `peer` is dead, and all that it had sent has come: frees it if it had taken it.
    pub fn free_of(self, peer: Slot) {
        self.change(taken_by(peer), EMPTY, Ordering::AcqRel);
    }

    /// Receiver: unmakes it, if it is free.
    pub fn unmake(self) -> bool {
        self.change(EMPTY, NO_BUFFER, Ordering::AcqRel)
    }
}

/// What no memory is likely to have where a buffer is said to be.
const MARK: u64 = 0x6c65_6e74_0000_0000;

/// The word of a buffer that its sender lends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent<'a>(pub &'a AtomicU64);

impl Lent<'_> {
    /// Sender, of one that is its own: lends it. The receiver looks only after a message, which orders this.
    pub fn lend(self, to: Slot) {
        self.0.store(MARK | u64::from(to.0), Ordering::Relaxed);
    }

    /// Receiver: whether it has it.
    pub fn is_lent_to(self, me: Slot) -> bool {
        self.0.load(Ordering::Relaxed) == MARK | u64::from(me.0)
    }

    /// Receiver: has read what is in it.
    pub fn give_back(self) {
        self.0.store(0, Ordering::Release);
    }

    /// Sender: whether it may write to it again.
    pub fn is_back(self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::sync::{AtomicBool, UnsafeCell};
    use loom::thread;
    use std::sync::Arc;

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(4).min(4));
        builder.check(f);
    }

    /// A word, and what it is about: touched by two at a time, or unseen, it fails the model.
    #[derive(Default)]
    struct Place {
        word: AtomicU64,
        memory: UnsafeCell<u32>,
        told: AtomicBool,
    }

    impl Place {
        fn add(&self) -> u32 {
            // SAFETY: what the models look at: nobody else has it now.
            self.memory.with_mut(|it| unsafe {
                *it += 1;
                *it
            })
        }
    }

    #[test]
    fn loom_a_claim_has_one_winner() {
        for yield_to in [false, true] {
            model(move || {
                let place = Arc::new(Place::default());
                place.add();
                let generation = Claim::open(&place.word, 8).generation;
                let there = place.clone();
                let peer = thread::spawn(move || {
                    let claim = Claim { word: &there.word, generation };
                    let won = claim.claim(yield_to);
                    if won {
                        there.add();
                    }
                    won
                });
                let claim = Claim { word: &place.word, generation };
                claim.attend();
                claim.leave();
                let withdrawn = claim.withdraw();
                if withdrawn {
                    place.add();
                }
                let claimed = peer.join().unwrap();
                assert!(!(withdrawn && claimed));
                assert!(withdrawn || claimed, "somebody has it");
                if claimed {
                    claim.release();
                }
                assert_eq!(place.add(), 3);
            });
        }
    }

    #[test]
    fn loom_two_threads_of_the_owner_attend_and_withdraw() {
        model(|| {
            let place = Arc::new(Place::default());
            let generation = Claim::open(&place.word, 8).generation;
            let other = place.clone();
            let waiting = thread::spawn(move || {
                let claim = Claim { word: &other.word, generation };
                claim.attend();
                claim.leave();
            });
            let other = place.clone();
            let peer = thread::spawn(move || {
                let claim = Claim { word: &other.word, generation };
                claim.claim(false) && other.add() > 0
            });
            let withdrawn = Claim { word: &place.word, generation }.withdraw();
            waiting.join().unwrap();
            assert_ne!(withdrawn, peer.join().unwrap());
        });
    }

    #[test]
    fn loom_a_late_claim_meets_another_generation() {
        model(|| {
            let place = Arc::new(Place::default());
            let old = Claim::open(&place.word, 8).generation;
            let there = place.clone();
            let peer = thread::spawn(move || {
                let claim = Claim { word: &there.word, generation: old };
                let won = claim.claim(false);
                if won {
                    there.add();
                }
                won
            });
            let claim = Claim { word: &place.word, generation: old };
            if claim.withdraw() {
                let again = Claim::open(&place.word, 8);
                assert_ne!(again.generation, old);
                place.add();
                assert!(!peer.join().unwrap());
                assert!(again.withdraw(), "an old name has claimed it");
            } else {
                assert!(peer.join().unwrap());
            }
        });
    }

    /// What a sender does with a buffer that it may get: whether it had it, and told of it.
    fn send(place: &Place, me: Slot) -> bool {
        let buffer = Buffer(&place.word);
        let taken = buffer.take(me);
        if taken {
            place.add();
            // The ring's: orders what was written before.
            place.told.store(true, Ordering::Release);
        }
        taken
    }

    /// What a receiver does that looks for a message of `from`: whether there was one.
    fn receive(place: &Place, from: Slot) -> bool {
        let come = place.told.load(Ordering::Acquire) && Buffer(&place.word).arrived(from);
        if come {
            place.add();
            place.told.store(false, Ordering::Relaxed);
            Buffer(&place.word).give_back();
        }
        come
    }

    #[test]
    fn loom_a_buffer_has_one_user_at_a_time() {
        model(|| {
            let place = Arc::new(Place::default());
            Buffer(&place.word).give_back();
            let senders = [0, 1].map(|slot| {
                let place = place.clone();
                thread::spawn(move || u32::from(send(&place, Slot(slot))))
            });
            // Unmade under a receiver that looks for both, while they may want it.
            let mut received = 0;
            for from in [0, 1] {
                received += u32::from(receive(&place, Slot(from)));
            }
            let unmade = Buffer(&place.word).unmake();
            if unmade {
                place.add();
            }
            let sent: u32 = senders.map(|sender| sender.join().unwrap()).iter().sum();
            for from in [0, 1] {
                received += u32::from(receive(&place, Slot(from)));
            }
            assert_eq!(sent, received, "each message is received once");
            assert!(unmade || sent > 0);
        });
    }

    #[test]
    fn loom_what_was_lent_has_one_user_at_a_time() {
        model(|| {
            let place = Arc::new(Place::default());
            let there = place.clone();
            let receiver = thread::spawn(move || {
                let mut received = 0;
                for _ in 0..2 {
                    if there.told.load(Ordering::Acquire) {
                        there.told.store(false, Ordering::Relaxed);
                        assert!(
                            Lent(&there.word).is_lent_to(Slot(1)),
                            "it is told of what is its own"
                        );
                        there.add();
                        Lent(&there.word).give_back();
                        received += 1;
                    }
                }
                received
            });
            let mut sent = 0;
            for _ in 0..2 {
                if Lent(&place.word).is_back() {
                    place.add();
                    Lent(&place.word).lend(Slot(1));
                    // The lane's: orders what was written before.
                    place.told.store(true, Ordering::Release);
                    sent += 1;
                }
            }
            let received = receiver.join().unwrap();
            let left = u32::from(place.told.load(Ordering::Acquire));
            assert_eq!(sent, received + left, "each is received once");
        });
    }

    #[test]
    fn loom_what_a_dead_sender_had_is_free_again() {
        model(|| {
            let place = Arc::new(Place::default());
            Buffer(&place.word).give_back();
            let there = place.clone();
            // Dies before it tells of it, beside another that wants the buffer.
            let dead = thread::spawn(move || {
                if Buffer(&there.word).take(Slot(0)) {
                    there.add();
                }
            });
            let there = place.clone();
            let other = thread::spawn(move || send(&there, Slot(1)));
            dead.join().unwrap();
            Buffer(&place.word).free_of(Slot(0));
            let sent = other.join().unwrap();
            if sent {
                assert!(receive(&place, Slot(1)));
            }
            assert!(Buffer(&place.word).take(Slot(2)), "it is free");
            place.add();
        });
    }
}
