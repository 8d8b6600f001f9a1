//! How one member exposes itself to another, again and again, and how either gives that up.
//!
//! A target posts, an origin takes the post, works, and answers. Two bytes for each ordered pair,
//! both zero at first: `post` lies where the origin waits, `answer` where the target does. Each
//! has a number in its upper five bits and a state in its lower three.
//!
//! ```text
//!   post      t            o                                     answer  (only o writes it)
//!   k-1 done ---> k OPEN ----> k TAKEN -- access epoch --------> k COMPLETED
//!                   ^ |  \        |  '-- complete fails -------> k GAVE_UP
//!                   | |   '-------+ put back: the take of
//!                   | |             another target failed
//!                   | |   o
//!                   | +----------> k DECLINED -----------------> k GAVE_UP
//!                   | |   t
//!                   | +----------> k DECLINED <- sees - k-1 .. | FOREGOES
//!                   |                                      ^        | o tries again
//!                   +-- o fails before the post comes -----+        v k-1 ..
//! ```
//! **Numbers.** A post has the number of the last one plus one, modulo 32; an answer names the post
//! that it is about, and stays with the note that the next one is forgone. A target posts again only when the last one has been answered or the origin
//! is dead, so the two are never further apart than one, and nothing that is left of an epoch that
//! was given up is ever taken for a part of a later one: an old answer has an old number, and a
//! post that was declined is not OPEN.
//!
//! **Who decides.** A post leaves OPEN by one compare-exchange. As a rule the origin makes it: it takes
//! the post, or declines it, and says so. An origin that fails before the post has come says in
//! advance that it forgoes it. That it can take back as long as the target has not acted on it;
//! the target does by declining its own post on the origin's behalf. So each post is matched with
//! one start, and it succeeds or fails for both of them.
//!
//! **Deaths.** The dead answer nothing: whoever waits asks whether the other lives. A post of the
//! dead can be taken.
//!
//! Cost: a post or an answer is one store to a line of the other's; taking is one compare-exchange
//! on a line of one's own.

use crate::base::sync::{AtomicU8, Ordering};

// The states of a post.
const OPEN: u8 = 1;
const TAKEN: u8 = 2;
const DECLINED: u8 = 3;
// What answers say.
const COMPLETED: u8 = 1;
const GAVE_UP: u8 = 2;
/// The next post is forgone.
const FOREGOES: u8 = 4;
const STATE: u8 = 7;
const STEP: u8 = STATE + 1;

fn state(byte: u8) -> u8 {
    byte & STATE
}

fn number(byte: u8) -> u8 {
    byte & !STATE
}

/// An origin's answer to a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has completed its accesses.
    Completed,
    /// It has given them up.
    GaveUp,
}

/// The bytes of a target and an origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'p> {
    /// In the origin's part.
    pub post: &'p AtomicU8,
    /// In the target's part.
    pub answer: &'p AtomicU8,
}

impl Pair<'_> {
    /// The target exposes itself; what to ask for by [`Pair::answered`]. The last post must have
    /// been answered. What the caller has stored before can be seen by the origin that takes it.
    #[inline]
    pub fn expose(&self) -> u8 {
        let next = number(self.post.load(Ordering::Relaxed)).wrapping_add(STEP);
        self.post.store(next | OPEN, Ordering::Release);
        next
    }

    /// The target looks for the answer to a post. One load, but after a giving up in advance.
    #[inline]
    pub fn answered(&self, post: u8) -> Option<Answer> {
        let answer = self.answer.load(Ordering::Acquire);
        if number(answer) == post {
            return match state(answer) & !FOREGOES {
                COMPLETED => Some(Answer::Completed),
                GAVE_UP => Some(Answer::GaveUp),
                _ => None,
            };
        }
        let forgone = answer & FOREGOES != 0 && number(answer).wrapping_add(STEP) == post;
        // If the post is not open, the origin has taken it after all.
        (forgone && self.leave_open(DECLINED).is_some()).then_some(Answer::GaveUp)
    }

    /// Whether there is a post for the origin to take.
    #[inline]
    pub fn is_open(&self) -> bool {
        state(self.post.load(Ordering::Acquire)) == OPEN
    }

    /// The origin takes the post; false if there is none.
    #[inline]
    pub fn take(&self) -> bool {
        self.leave_open(TAKEN).is_some()
    }

    /// The origin has taken the post and does not want it yet.
    pub fn put_back(&self) {
        let post = self.post.load(Ordering::Relaxed);
        self.post.store(number(post) | OPEN, Ordering::Release);
    }

    /// The origin answers the post that it has taken. What it has stored before can be seen by
    /// the target that gets the answer.
    #[inline]
    pub fn close(&self, completed: bool) {
        let post = number(self.post.load(Ordering::Relaxed));
        self.answer.store(post | if completed { COMPLETED } else { GAVE_UP }, Ordering::Release);
    }

    /// As [`Pair::close`] for an origin that has taken nothing because it was promised that the
    /// post would be there: whether it is or not, the answer is to the one that was meant.
    pub fn close_unchecked(&self, completed: bool) {
        self.take();
        let (post, answer) =
            (self.post.load(Ordering::Acquire), self.answer.load(Ordering::Relaxed));
        let old = number(post) == number(answer) || state(post) == DECLINED;
        let meant = number(post).wrapping_add(if old { STEP } else { 0 });
        self.answer.store(meant | if completed { COMPLETED } else { GAVE_UP }, Ordering::Release);
    }

    /// The origin gives up before it has taken a post: declines the one that is there, or
    /// (`ahead`) forgoes the one to come. Whether it has forgone one.
    pub fn give_up(&self, ahead: bool) -> bool {
        if let Some(post) = self.leave_open(DECLINED) {
            self.answer.store(post | GAVE_UP, Ordering::Release);
            return false;
        }
        if ahead {
            let (post, answer) =
                (self.post.load(Ordering::Acquire), self.answer.load(Ordering::Relaxed));
            let last = if number(answer) == number(post) { answer } else { number(post) | GAVE_UP };
            self.answer.store(last | FOREGOES, Ordering::Release);
        }
        ahead
    }

    /// The origin, which has forgone the next post, wants it after all.
    pub fn want_again(&self) {
        let answer = self.answer.load(Ordering::Relaxed);
        self.answer.store(answer & !FOREGOES, Ordering::Release);
    }

    /// The number of the post that was open, if one was.
    #[inline]
    fn leave_open(&self, to: u8) -> Option<u8> {
        let post = self.post.load(Ordering::Acquire);
        if state(post) != OPEN {
            return None;
        }
        let (order, other) = (Ordering::AcqRel, Ordering::Acquire);
        let left = self.post.compare_exchange(post, number(post) | to, order, other);
        left.ok().map(number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each side believes, and what it may therefore do.
    #[derive(Default, Debug)]
    struct Belief {
        exposed: Option<u8>,
        taken: bool,
        /// Posts so far, and those that ended in either way.
        posts: u64,
        completed: u64,
        given_up: u64,
        foregone: bool,
        /// Completed by the origin.
        closed: u64,
    }

    proptest! {
        /// Each post is answered by one start, whatever the two do and however often.
        #[test]
        fn each_post_has_one_end(steps in prop::collection::vec(0u8..7, 0..600)) {
            let (post, answer) = (AtomicU8::new(0), AtomicU8::new(0));
            let pair = Pair { post: &post, answer: &answer };
            let mut is = Belief::default();
            for step in steps {
                match step {
                    0 if is.exposed.is_none() => {
                        is.exposed = Some(pair.expose());
                        is.posts += 1;
                    }
                    1 | 2 => if let Some(post) = is.exposed {
                        match pair.answered(post) {
                            Some(Answer::Completed) => {
                                is.exposed = None;
                                is.completed += 1;
                                prop_assert_eq!(is.completed, is.closed);
                            }
                            Some(Answer::GaveUp) => {
                                prop_assert!(!is.taken);
                                is.exposed = None;
                                is.given_up += 1;
                            }
                            None => prop_assert!(is.taken || pair.is_open()),
                        }
                    },
                    3 if !is.taken => {
                        if std::mem::take(&mut is.foregone) {
                            pair.want_again();
                        }
                        let open = pair.is_open();
                        is.taken = pair.take();
                        prop_assert_eq!(is.taken, open);
                        prop_assert!(!is.taken || is.exposed.is_some());
                    }
                    4 if is.taken => {
                        is.taken = false;
                        is.closed += 1;
                        pair.close(true);
                    }
                    5 if is.taken => {
                        is.taken = false;
                        pair.put_back();
                    }
                    6 if !is.taken => {
                        if std::mem::take(&mut is.foregone) {
                            pair.want_again();
                        }
                        is.foregone = pair.give_up(is.posts % 2 == 0);
                    }
                    _ => {}
                }
            }
            // Whatever was left over does not keep the two from going on.
            if is.taken {
                pair.close(true);
            }
            if let Some(post) = is.exposed {
                pair.want_again();
                if pair.take() {
                    pair.close(true);
                }
                prop_assert!(pair.answered(post).is_some());
            }
            pair.want_again();
            for _ in 0..200 {
                prop_assert!(!pair.is_open() && !pair.take());
                let post = pair.expose();
                prop_assert_eq!(pair.answered(post), None);
                prop_assert!(pair.take());
                prop_assert_eq!(pair.answered(post), None);
                pair.close(true);
                prop_assert_eq!(pair.answered(post), Some(Answer::Completed));
            }
        }
    }

    #[test]
    fn unchecked_epochs_answer_the_post_that_is_meant() {
        let (post, answer) = (AtomicU8::new(0), AtomicU8::new(0));
        let pair = Pair { post: &post, answer: &answer };
        for round in 0..300 {
            let exposed = pair.expose();
            if round % 3 == 0 {
                assert!(pair.take());
                pair.close(true);
            } else {
                pair.close_unchecked(true);
            }
            assert_eq!(pair.answered(exposed), Some(Answer::Completed));
            assert!(!pair.is_open());
        }
        // Against the promise, before the post.
        pair.close_unchecked(true);
        let exposed = pair.expose();
        assert_eq!(pair.answered(exposed), Some(Answer::Completed));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;
    use std::sync::Arc;

    /// A target, and whether it believes itself exposed.
    #[derive(Default)]
    struct Target {
        post: AtomicU8,
        answer: AtomicU8,
        exposed: AtomicBool,
        word: AtomicU8,
    }

    impl Target {
        fn pair(&self) -> Pair<'_> {
            Pair { post: &self.post, answer: &self.answer }
        }

        /// Exposes itself until an origin completes.
        fn serve(&self) {
            loop {
                self.exposed.store(true, Ordering::Relaxed);
                let post = self.pair().expose();
                let answer = loop {
                    match self.pair().answered(post) {
                        Some(answer) => break answer,
                        None => thread::yield_now(),
                    }
                };
                self.exposed.store(false, Ordering::Relaxed);
                if answer == Answer::Completed {
                    assert_eq!(self.word.load(Ordering::Relaxed), 7, "completed before its data");
                    return;
                }
            }
        }
    }

    fn start(targets: &[&Target]) {
        loop {
            if targets.iter().all(|target| target.pair().is_open()) {
                let taken = targets.iter().take_while(|target| target.pair().take()).count();
                if taken == targets.len() {
                    return;
                }
                targets[..taken].iter().for_each(|target| target.pair().put_back());
            }
            thread::yield_now();
        }
    }

    fn access(targets: &[&Target]) {
        for target in targets {
            assert!(target.exposed.load(Ordering::Relaxed), "access to what is not exposed");
            target.word.store(7, Ordering::Relaxed);
        }
        for target in targets {
            target.pair().close(true);
        }
    }

    fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
        builder.max_branches = 20_000;
        builder.check(f);
    }

    /// A start that fails, at any moment before or after the post, and the next one.
    fn gives_up_once(ahead: bool) {
        model(4, move || {
            let target = Arc::new(Target::default());
            let other = target.clone();
            let server = thread::spawn(move || other.serve());
            target.pair().give_up(ahead);
            target.pair().want_again();
            start(&[&target]);
            access(&[&target]);
            server.join().unwrap();
        });
    }

    #[test]
    fn loom_a_start_that_ran_out_of_time_can_be_made_again() {
        gives_up_once(false);
    }

    #[test]
    fn loom_a_start_that_forwent_a_post_can_be_made_again() {
        gives_up_once(true);
    }

    #[test]
    fn loom_posts_are_put_back_when_another_was_declined() {
        model(2, || {
            let targets: Vec<_> = (0..2).map(|_| Arc::new(Target::default())).collect();
            let servers: Vec<_> = targets
                .iter()
                .cloned()
                .map(|target| thread::spawn(move || target.serve()))
                .collect();
            let both = [&*targets[0], &*targets[1]];
            for target in both {
                target.pair().give_up(true);
            }
            for target in both {
                target.pair().want_again();
            }
            start(&both);
            access(&both);
            servers.into_iter().for_each(|server| server.join().unwrap());
        });
    }

    #[test]
    fn loom_giving_up_twice_ends_two_posts_at_most() {
        model(3, || {
            let target = Arc::new(Target::default());
            let other = target.clone();
            let server = thread::spawn(move || other.serve());
            for _ in 0..2 {
                target.pair().give_up(true);
                target.pair().want_again();
            }
            start(&[&target]);
            access(&[&target]);
            server.join().unwrap();
        });
    }
}
