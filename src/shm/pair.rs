//! How one member exposes itself to another, again and again, and how either epoch is given up.
//!
//! A target posts, an origin starts on the post, and answers it. For each ordered pair there are
//! two records in shared memory, zero at first. Posts and starts are numbered, modulo 128:
//!
//! ```text
//!   in the origin's part, where it waits        in the target's part, where that waits
//!   post: the last post     (target writes)     answer: the last post answered, and how;
//!   used: the last start    (origin writes)             the last start      (origin writes)
//!
//!   target                                      origin
//!   post += 1, wake the origin
//!                                               start: until post is used + 1; then used += 1
//!                                               accesses
//!                                               complete: answer (used, COMPLETED or not)
//!   over: when post is answered,
//!         or not ahead of the last start        fails before it has used the post:
//!                                                 the post is there: used += 1,
//!                                                                    answer (used, given up)
//!                                                 it is to come:     nothing, or (forgoes it)
//!                                                                    used += 1, answer's start
//! ```
//! **One start for each post.** The n-th post belongs to the n-th start that was not taken back for
//! want of a post; both succeed or both fail. A post that an origin has forgone has a number that
//! the origin has used: when it comes, the origin does not take it, and the target sees at once
//! that it is answered. So nothing that is left of an epoch that was given up counts for a later one. A target
//! that leaves a post out, because it knows that the start has failed, has its next one answered so:
//! to both sides that looks like a late post, and only the program knows which it is.
//!
//! Each word has one writer, and each side goes on only when the other has done its part: a target
//! posts again only when its last post has been answered, or the origin is dead. So the numbers
//! are at most [`AHEAD`] apart, and to compare them modulo 128 is enough.
//!
//! **Deaths.** The dead answer nothing: whoever waits asks whether the other lives. A post of the
//! dead can be used.
//!
//! Cost: a post and an answer are a store each to a line of the other's, a start is one to a line
//! of one's own. No read-modify-writes.

use crate::base::sync::{AtomicU8, AtomicU16, Ordering};

/// Most posts that an origin forgoes at a time: before it forgoes another, it waits for one to come.
pub(crate) const AHEAD: u8 = 32;

const NUMBERS: u8 = 127;
const COMPLETED: u8 = NUMBERS + 1;

fn after(number: u8) -> u8 {
    number.wrapping_add(1) & NUMBERS
}

/// How far `number` is ahead of `other`.
fn ahead(number: u8, other: u8) -> u8 {
    number.wrapping_sub(other) & NUMBERS
}

/// What lies in the origin's part.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Posted {
    /// Written by the target.
    post: AtomicU8,
    /// Written by the origin.
    used: AtomicU8,
}

/// What lies in the target's part: the number answered and how in the lower byte, the last start in the
/// upper one. Written by the origin.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Answered(AtomicU16);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Posted>() == 2 && size_of::<Answered>() == 2);

#[cfg(not(loom))]
// SAFETY: repr(C) of atomics.
unsafe impl super::region::SharedLayout for Posted {}
#[cfg(not(loom))]
// SAFETY: one atomic.
unsafe impl super::region::SharedLayout for Answered {}

/// An origin's answer to a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has completed its accesses.
    Completed,
    /// It has given them up.
    GaveUp,
}

/// The records of a target and an origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'p> {
    pub posted: &'p Posted,
    pub answered: &'p Answered,
}

impl Pair<'_> {
    /// The target exposes itself; the number of the post. The last one must have been answered.
    /// What the caller has stored before can be seen by the origin that starts on it.
    #[inline]
    pub fn post(&self) -> u8 {
        let next = after(self.posted.post.load(Ordering::Relaxed));
        self.posted.post.store(next, Ordering::Release);
        next
    }

    /// The target looks for the answer to its last post.
    #[inline]
    pub fn answer(&self, post: u8) -> Option<Answer> {
        let [answer, start] = self.answered.0.load(Ordering::Acquire).to_le_bytes();
        if answer & NUMBERS == post {
            let completed = answer & COMPLETED != 0;
            return Some(if completed { Answer::Completed } else { Answer::GaveUp });
        }
        (ahead(start, post) <= AHEAD).then_some(Answer::GaveUp)
    }

    /// Whether there is a post that the origin can start on.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.posted.post.load(Ordering::Acquire) == after(self.posted.used.load(Ordering::Relaxed))
    }

    /// The origin starts on the next post, which is open or promised.
    #[inline]
    pub fn start(&self) {
        let used = self.posted.used.load(Ordering::Relaxed);
        self.posted.used.store(after(used), Ordering::Relaxed);
    }

    /// The origin answers the post that it has started on. What it has stored before can be seen by
    /// the target that gets the answer.
    #[inline]
    pub fn close(&self, completed: bool) {
        let used = self.posted.used.load(Ordering::Relaxed);
        let answer = used | if completed { COMPLETED } else { 0 };
        self.answered.0.store(u16::from_le_bytes([answer, used]), Ordering::Release);
    }

    /// Whether the origin has forgone as many posts as it may before one of them comes.
    pub fn is_full(&self) -> bool {
        let post = self.posted.post.load(Ordering::Acquire);
        let behind = ahead(self.posted.used.load(Ordering::Relaxed), post);
        (AHEAD..=NUMBERS - AHEAD).contains(&behind)
    }

    /// The origin's start has failed: declines the post that is there; else forgoes (`forgo`) the
    /// one to come, unless that would be one too many (see [`Pair::is_full`]).
    pub fn give_up(&self, forgo: bool) {
        // Looked at once: a post that comes after that is one to come.
        let post = self.posted.post.load(Ordering::Acquire);
        let used = self.posted.used.load(Ordering::Relaxed);
        if post == after(used) {
            self.start();
            self.close(false);
        } else if forgo && !self.is_full() {
            self.start();
            let [answer, _] = self.answered.0.load(Ordering::Relaxed).to_le_bytes();
            // An answer so far back is to no post that may still be looked at; left to itself it
            // would come to be that to a later one, whose number is the same.
            let old = ahead(after(used), answer & NUMBERS) > AHEAD + 1;
            let answer = if old { after(used) } else { answer };
            self.answered.0.store(u16::from_le_bytes([answer, after(used)]), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// What became of a start.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Start {
        Open,
        Over(Answer),
    }

    #[test]
    fn a_completed_post_is_not_the_answer_to_one_of_the_same_number() {
        let (posted, answered) = (Posted::default(), Answered::default());
        let pair = Pair { posted: &posted, answered: &answered };
        let post = pair.post();
        assert!(pair.is_open());
        pair.start();
        pair.close(true);
        assert_eq!(pair.answer(post), Some(Answer::Completed));
        for _ in 0..3 * u32::from(NUMBERS) {
            pair.give_up(true);
            let post = pair.post();
            assert_eq!(pair.answer(post), Some(Answer::GaveUp), "{post}");
        }
        assert_eq!(pair.answer(pair.post()), None);
    }

    proptest! {
        /// Each post has the end of the start that it belongs to, whatever the two do.
        #[test]
        fn a_post_ends_as_its_start_did(steps in prop::collection::vec(0u8..6, 0..1000)) {
            let (posted, answered) = (Posted::default(), Answered::default());
            let pair = Pair { posted: &posted, answered: &answered };
            // Starts whose post has not been answered in the target's eyes.
            let mut starts: VecDeque<Start> = VecDeque::new();
            let mut exposed = None;
            let mut posts_ahead = 0i32;
            for step in steps {
                let accessing = starts.back() == Some(&Start::Open);
                match step {
                    0 if exposed.is_none() => {
                        exposed = Some(pair.post());
                        posts_ahead += 1;
                    }
                    1 => if let Some(post) = exposed {
                        let said = pair.answer(post);
                        match starts.front() {
                            None | Some(Start::Open) => prop_assert_eq!(said, None),
                            Some(Start::Over(answer)) => {
                                prop_assert_eq!(said, Some(*answer));
                                starts.pop_front();
                                exposed = None;
                            }
                        }
                    },
                    2 if !accessing => {
                        prop_assert_eq!(pair.is_open(), posts_ahead > 0);
                        if pair.is_open() {
                            pair.start();
                            starts.push_back(Start::Open);
                            posts_ahead -= 1;
                        }
                    }
                    3 if accessing => {
                        pair.close(true);
                        *starts.back_mut().unwrap() = Start::Over(Answer::Completed);
                    }
                    4 | 5 if !accessing => {
                        // Step 5: an origin that may try again.
                        prop_assert_eq!(pair.is_full(), -posts_ahead == i32::from(AHEAD));
                        let counts = posts_ahead > 0 || step == 4 && !pair.is_full();
                        pair.give_up(step == 4);
                        if counts {
                            starts.push_back(Start::Over(Answer::GaveUp));
                            posts_ahead -= 1;
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn starts_on_promised_posts_answer_them() {
        let (posted, answered) = (Posted::default(), Answered::default());
        let pair = Pair { posted: &posted, answered: &answered };
        for round in 0..1000 {
            // Against the promise, before the post, at every third.
            if round % 3 == 0 {
                pair.start();
                pair.close(true);
            }
            let post = pair.post();
            if round % 3 != 0 {
                assert_eq!(pair.answer(post), None);
                pair.start();
                pair.close(round % 3 == 1);
            }
            assert!(!pair.is_open());
            let completed = round % 3 != 2;
            let answer = if completed { Answer::Completed } else { Answer::GaveUp };
            assert_eq!(pair.answer(post), Some(answer));
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// A target with a part of one word, which loom watches.
    #[derive(Default)]
    struct Target {
        posted: Posted,
        answered: Answered,
        part: UnsafeCell<u32>,
    }

    // SAFETY: loom finds accesses of the part that are not ordered.
    unsafe impl Sync for Target {}

    impl Target {
        fn pair(&self) -> Pair<'_> {
            Pair { posted: &self.posted, answered: &self.answered }
        }

        fn touch(&self) {
            // SAFETY: only while exposed (origin) or not (target): what the model is to show.
            self.part.with_mut(|part| unsafe { *part += 1 });
        }

        /// Exposes itself until an origin completes; uses its part in between.
        fn serve(&self) -> u32 {
            for given_up in 0.. {
                self.touch();
                let post = self.pair().post();
                let answer = loop {
                    match self.pair().answer(post) {
                        Some(answer) => break answer,
                        None => thread::yield_now(),
                    }
                };
                self.touch();
                if answer == Answer::Completed {
                    return given_up;
                }
            }
            unreachable!()
        }
    }

    fn access(targets: &[&Target]) {
        while !targets.iter().all(|target| target.pair().is_open()) {
            thread::yield_now();
        }
        targets.iter().for_each(|target| target.pair().start());
        targets.iter().for_each(|target| target.touch());
        targets.iter().for_each(|target| target.pair().close(true));
    }

    fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
        builder.max_branches = 20_000;
        builder.check(f);
    }

    /// Starts that fail, at any moment before or after the post, and one that does not.
    fn gives_up(times: u32, forgo: bool) {
        model(4, move || {
            let target = Arc::new(Target::default());
            let other = target.clone();
            let server = thread::spawn(move || other.serve());
            (0..times).for_each(|_| target.pair().give_up(forgo));
            access(&[&target]);
            let given_up = server.join().unwrap();
            assert!(given_up == times || !forgo && given_up < times);
        });
    }

    #[test]
    fn loom_a_start_that_ran_out_of_time_can_be_made_again() {
        gives_up(1, false);
    }

    #[test]
    fn loom_starts_that_forgo_posts_end_as_many() {
        gives_up(2, true);
    }

    #[test]
    fn loom_an_origin_waits_for_all_of_its_targets() {
        model(3, || {
            let targets: Vec<_> = (0..2).map(|_| Arc::new(Target::default())).collect();
            // They do not wait here: of three that spin, two can keep the third from running.
            let expose = |target: &Arc<Target>| {
                let target = target.clone();
                thread::spawn(move || {
                    target.touch();
                    target.pair().post()
                })
            };
            let posts: Vec<_> = targets.iter().map(expose).collect();
            access(&[&targets[0], &targets[1]]);
            for (target, post) in targets.iter().zip(posts) {
                let post = post.join().unwrap();
                assert_eq!(target.pair().answer(post), Some(Answer::Completed));
            }
        });
    }
}
