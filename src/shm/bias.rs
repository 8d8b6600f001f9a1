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
//!
//! Whoever updates elements natively without sections and locks (a device, for peers on other nodes)
//! must never meet plain loads and stores. So the word can be *pinned*, once and for ever: pinned, it
//! does not become Locked any more.
//!
//! ```text
//!            CAS                       outwait, CAS
//!   Native --------------------------------------------> Native, pinned
//!   Both   --------> Both, pinned     -----------------> Native, pinned
//!   Locked --------> Both, pinned     -----------------> Native, pinned
//! ```
//! Those who found Locked before the first CAS may still be at plain loads and stores; they are in
//! sections, and nobody finds it again. Until their sections are outwaited nothing is granted that
//! relies on the pin: whoever finds Both and pinned has no telling whether that was done (its process
//! may have died, or given up), and does it again.

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
///  63          3    2     1   0
/// +-------------+--------+-----+
/// |    count    | pinned | way |
/// +-------------+--------+-----+
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

/// Never Locked any more.
const PINNED: u64 = 4;
/// One more step.
const STEP: u64 = 8;

fn next(word: u64, way: Way) -> u64 {
    (word & !3).wrapping_add(STEP) | way as u64
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
    /// way at the same time: it may be tried again whenever somebody cares. False, too, if it is
    /// pinned and `to` is Locked.
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
            if to == Way::Locked && word & PINNED != 0 {
                return false;
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

    /// Sees to it that from now on the way is never [`Way::Locked`], and that nobody is still at what
    /// that allows; `outwait` as for [`Bias::turn`]. False if it gave up: it may be tried again.
    ///
    /// The caller is not inside a section.
    #[cold]
    pub fn pin(&self, mut outwait: impl FnMut() -> bool) -> bool {
        loop {
            let word = self.word.load(Ordering::Acquire);
            crash::point();
            match (way_of(word), word & PINNED != 0) {
                (Way::Native, true) => return true,
                (Way::Native, false) => {
                    // Nobody has been at plain loads and stores since it became Native.
                    self.cas(word, next(word, Way::Native) | PINNED);
                }
                (Way::Both, true) => {
                    if !outwait() {
                        return false;
                    }
                    crash::point();
                    // Whoever else has done as much since leaves it no less safe.
                    self.cas(word, next(word, Way::Native));
                    return true;
                }
                (Way::Both | Way::Locked, _) => {
                    self.cas(word, next(word, Way::Both) | PINNED);
                }
            }
        }
    }

    /// Sequentially consistent like the fences it goes with.
    fn cas(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::Slot;
    use crate::base::sync::AtomicBool;
    use crate::shm::crash::kill_at;
    use crate::shm::section::{Section, outwait};
    use loom::sync::Mutex;
    use loom::thread;
    use std::sync::Arc;

    /// Two elements of a stripe in the memory that all share, and a thread's word each.
    struct Place {
        bias: Bias,
        lock: Mutex<()>,
        element: AtomicU64,
        words: Vec<Section>,
        dead: Vec<AtomicBool>,
    }

    impl Place {
        fn new(threads: usize, way: Way) -> Arc<Place> {
            Arc::new(Place {
                bias: Bias { word: AtomicU64::new(way as u64) },
                lock: Mutex::new(()),
                element: AtomicU64::new(0),
                words: (0..threads).map(|_| Section::default()).collect(),
                dead: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            })
        }

        fn native(&self) {
            self.element.fetch_add(1, Ordering::Relaxed);
        }

        /// What `Domain` does for one element.
        fn single(&self, thread: usize) {
            let word = &self.words[thread];
            let turn = word.enter();
            crash::point();
            let native = self.bias.is_native();
            if native {
                crash::point();
                self.native();
                crash::point();
            }
            turn.leave();
            if !native {
                self.without_word();
            }
        }

        /// What a thread without a word does.
        fn without_word(&self) {
            let guard = self.lock.lock().unwrap();
            self.native();
            drop(guard);
        }

        /// What `Domain` does for the elements of a stripe.
        fn many(&self, thread: usize) {
            let guard = self.lock.lock().unwrap();
            let turn = self.words[thread].enter();
            if self.bias.way() == Way::Locked {
                let old = self.element.load(Ordering::Relaxed);
                self.element.store(old + 1, Ordering::Relaxed);
            } else {
                self.native();
            }
            turn.leave();
            drop(guard);
        }

        fn outwait(&self) -> bool {
            let words = self.words.iter().enumerate().map(|(i, word)| (Slot(i as u16), word));
            outwait(words, |slot| self.dead[slot.index()].load(Ordering::Acquire))
        }

        fn turn(&self, to: Way) -> bool {
            self.bias.turn(to, || self.outwait())
        }

        /// What a device does once it is let in: no section, no lock.
        fn by_device(&self) -> bool {
            let let_in = self.bias.pin(|| self.outwait());
            if let_in {
                self.native();
            }
            let_in
        }
    }

    /// Runs the roles at the same time; returns what the element holds then.
    fn cast(way: Way, roles: &[fn(&Place, usize)]) -> (Arc<Place>, u64) {
        let place = Place::new(roles.len(), way);
        let threads: Vec<_> = roles
            .iter()
            .enumerate()
            .skip(1)
            .map(|(i, role)| {
                let (place, role) = (place.clone(), *role);
                thread::spawn(move || role(&place, i))
            })
            .collect();
        roles[0](&place, 0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sum = place.element.load(Ordering::Relaxed);
        (place, sum)
    }

    fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
        builder.max_branches = 20_000;
        builder.check(f);
    }

    #[test]
    fn loom_no_update_is_lost_on_the_way_to_locks() {
        model(3, || {
            let many: fn(&Place, usize) = |place, i| {
                place.turn(Way::Locked);
                place.many(i);
            };
            let single: fn(&Place, usize) = |place, i| {
                place.single(i);
                place.single(i);
            };
            assert_eq!(cast(Way::Native, &[many, single]).1, 3);
        });
    }

    #[test]
    fn loom_no_update_is_lost_on_the_way_back() {
        model(3, || {
            let single: fn(&Place, usize) = |place, i| {
                place.turn(Way::Native);
                place.single(i);
            };
            let many: fn(&Place, usize) = |place, i| {
                place.many(i);
                place.many(i);
            };
            assert_eq!(cast(Way::Locked, &[single, many]).1, 3);
        });
    }

    #[test]
    fn loom_no_update_is_lost_when_two_change_the_way_against_each_other() {
        model(2, || {
            let many: fn(&Place, usize) = |place, i| {
                place.turn(Way::Locked);
                place.many(i);
            };
            let single: fn(&Place, usize) = |place, i| {
                place.turn(Way::Native);
                place.single(i);
            };
            let bare: fn(&Place, usize) = |place, _| place.without_word();
            assert_eq!(cast(Way::Native, &[many, single, bare]).1, 3);
            assert_eq!(cast(Way::Locked, &[many, single, bare]).1, 3);
        });
    }

    #[test]
    fn loom_no_update_is_lost_when_a_device_is_let_in() {
        for way in [Way::Native, Way::Locked] {
            model(2, move || {
                let place = Place::new(3, way);
                let (near, back) = (place.clone(), place.clone());
                let many = thread::spawn(move || {
                    near.turn(Way::Locked);
                    near.many(1);
                });
                let single = thread::spawn(move || back.single(2));
                let by_device = u64::from(place.by_device());
                many.join().unwrap();
                single.join().unwrap();
                assert_eq!(place.element.load(Ordering::Relaxed), 2 + by_device);
                // Undisturbed, it is let in whatever the others left, and stays.
                assert!(place.by_device() && !place.turn(Way::Locked));
                assert!(place.bias.way() != Way::Locked);
            });
        }
    }

    /// Who lets a device in is killed at every point: the next one who does it waits for what the
    /// dead one had not waited for.
    #[test]
    fn loom_the_dead_let_no_device_in_too_early() {
        for n in 1.. {
            let lived = Arc::new(std::sync::Mutex::new(true));
            let all = lived.clone();
            model(2, move || {
                let place = Place::new(3, Way::Locked);
                let (mortal, near) = (place.clone(), place.clone());
                let all = all.clone();
                let many = thread::spawn(move || near.many(1));
                let mortal = thread::spawn(move || {
                    if kill_at(n, || mortal.bias.pin(|| mortal.outwait())).is_none() {
                        *all.lock().unwrap() = false;
                    }
                    mortal.dead[0].store(true, Ordering::Release);
                });
                let by_device = u64::from(place.by_device());
                many.join().unwrap();
                mortal.join().unwrap();
                assert_eq!(place.element.load(Ordering::Relaxed), 1 + by_device);
            });
            if *lived.lock().unwrap() {
                break;
            }
        }
    }

    /// A process is killed at every point of an update or of a change in turn. The others lose no
    /// update, and finish the change.
    #[test]
    fn loom_the_dead_keep_nobody_from_changing_the_way() {
        for n in 1.. {
            let lived = Arc::new(std::sync::Mutex::new(true));
            let all = lived.clone();
            model(2, move || {
                let place = Place::new(3, Way::Native);
                let (mortal, other) = (place.clone(), place.clone());
                let all = all.clone();
                let mortal = thread::spawn(move || {
                    let done = kill_at(n, || {
                        mortal.turn(Way::Locked);
                        mortal.turn(Way::Native);
                        mortal.single(0);
                    });
                    if done.is_none() {
                        *all.lock().unwrap() = false;
                    }
                    mortal.dead[0].store(true, Ordering::Release);
                });
                let other = thread::spawn(move || other.single(1));
                place.turn(Way::Locked);
                place.many(2);
                mortal.join().unwrap();
                other.join().unwrap();
                let sum = place.element.load(Ordering::Relaxed);
                assert!(sum == 2 || sum == 3, "{sum}");
                // Undisturbed, a change comes about whatever the dead left.
                assert!(place.turn(Way::Locked));
                place.many(2);
                assert!(place.turn(Way::Native));
                place.single(1);
                assert_eq!(place.element.load(Ordering::Relaxed), sum + 2);
            });
            if *lived.lock().unwrap() {
                break;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn turned(way: Way) -> Bias {
        let bias = Bias::default();
        assert!(bias.turn(way, || true));
        bias
    }

    #[test]
    fn pinned_it_is_never_locked_again() {
        for way in [Way::Native, Way::Locked] {
            let bias = turned(way);
            let mut outwaited = 0;
            assert!(bias.pin(|| {
                outwaited += 1;
                true
            }));
            assert_eq!(outwaited, u32::from(way == Way::Locked), "from {way:?}");
            assert!(bias.is_native());
            assert!(!bias.turn(Way::Locked, || panic!("there is nothing to wait for")));
            assert!(bias.turn(Way::Native, || true) && bias.is_native());
            assert!(bias.pin(|| panic!("it is")));
        }
    }

    /// Whoever gives up, or dies, between the two steps leaves the second one to the next.
    #[test]
    fn a_pin_without_the_wait_is_waited_for_by_the_next() {
        let bias = turned(Way::Locked);
        assert!(!bias.pin(|| false));
        assert_eq!(bias.way(), Way::Both);
        assert!(!bias.turn(Way::Locked, || true));
        assert!(!bias.pin(|| false), "nobody has waited yet");
        assert!(bias.pin(|| true) && bias.is_native());
    }

    /// A change to Locked that waits is overtaken by a pin, and comes to nothing.
    #[test]
    fn a_change_under_way_does_not_get_past_a_pin() {
        let bias = turned(Way::Native);
        assert!(!bias.turn(Way::Locked, || bias.pin(|| true)));
        assert!(bias.is_native());
        assert!(!bias.turn(Way::Locked, || true));
    }
}
