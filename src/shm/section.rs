//! Sections: short stretches of a thread's work that others can outwait.
//!
//! Whoever changes how some shared memory is to be accessed must know when the accesses that began
//! under the old way have ended. Those who access it cannot afford a read-modify-write to say so.
//! So every thread has a word of its own in shared memory, which says while it is inside a section:
//!
//! ```text
//! thread                                  changer
//!   word = inside                           change the way
//!   light_fence                             heavy_fence
//!   look which way to go                    for every thread's word:
//!   access                                    inside? wait until it is not,
//!   word = outside                            or its process is dead
//! ```
//! Either the changer sees the word, or the thread sees the new way (the pair of fences). Whoever is outside
//! once has left what it was inside of, and if it enters again, then after the changer's
//! fence, so as a thread that sees the new way. Sections hold no lock and call nothing back: one
//! lasts longer than a few µs only if its thread is not running.
//!
//! Both are constants. A word that counted would tell a thread that has left and entered again between two
//! looks from one that has stayed; but it would have to be loaded before each store, and a locked instruction
//! waits for the stores before it (an atomic update took a tenth longer so). A thread that sees the
//! new way has nothing to do inside, so it is outside nearly always when it is looked at.
//!
//! Words lie in the slot of the thread's process, a line each, and belong to a thread from its
//! first section until it ends. A thread that found them all taken does without, by a way that is
//! right at any time.

use crate::base::Slot;
use crate::base::sync::{AtomicU64, Ordering, heavy_fence, spin_hint, yield_now};

/// Threads of a process that can have a word at one time.
pub const SECTIONS: usize = 48;

/// What the word of a thread is outside of any section, and inside of one.
const OUTSIDE: u64 = 0;
const INSIDE: u64 = 1;

/// The word of one thread. All zeros is a thread outside of any section.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Section {
    word: AtomicU64,
    _pad: [u64; 7],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Section>() == 64);

#[cfg(not(loom))]
// SAFETY: repr(C), an atomic and padding that nobody reads or writes.
unsafe impl super::region::SharedLayout for Section {}

impl Default for Section {
    fn default() -> Self {
        Section { word: AtomicU64::new(OUTSIDE), _pad: [0; 7] }
    }
}

/// A section that has begun.
#[derive(Debug)]
#[must_use = "the section lasts until Turn::leave"]
pub struct Turn<'s>(&'s Section);

impl Section {
    /// Begins a section of the thread that the word belongs to, which must not be inside one; `fence` is what
    /// the diagram has there.
    #[inline(always)]
    fn enter_with(&self, fence: impl FnOnce()) -> Turn<'_> {
        self.word.store(INSIDE, Ordering::Relaxed);
        fence();
        Turn(self)
    }

    /// The same, for models: with whichever fence this process uses.
    #[cfg(any(test, loom))]
    pub fn enter(&self) -> Turn<'_> {
        self.enter_with(crate::base::sync::light_fence)
    }
}

impl Turn<'_> {
    /// Ends the section. Cost: a store.
    #[inline(always)]
    pub fn leave(self) {
        self.0.word.store(OUTSIDE, Ordering::Release);
    }
}

/// How often to look at a word before asking whether its process is dead.
const LOOKS: u32 = if cfg!(loom) { 2 } else { 512 };
/// How often to look then, letting others run.
const YIELDS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Waits until all sections that had begun before the call have ended. False if one still lasts
/// after a few hundred looks and yields: nothing is lost by trying again later.
///
/// `sections` is not advanced before the fence, so it may read what threads have published before
/// they entered. The caller is not inside a section.
///
/// Cost: a heavy fence (a few µs) and a load of each word's line.
pub fn outwait<'s>(
    sections: impl Iterator<Item = (Slot, &'s Section)>,
    gone: impl Fn(Slot) -> bool,
) -> bool {
    heavy_fence();
    for (slot, section) in sections {
        // Anything else a peer may have written there is taken for being inside: its death ends that.
        let lasts = || section.word.load(Ordering::Acquire) != OUTSIDE;
        if !lasts() {
            continue;
        }
        let waited = |looks: u32, pause: fn()| {
            (0..looks).any(|_| {
                pause();
                !lasts()
            })
        };
        if !waited(LOOKS, spin_hint) && !gone(slot) && !waited(YIELDS, yield_now) {
            return false;
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
pub use threads::last_key;
#[cfg(not(loom))]
pub use threads::{Words, enter};

#[cfg(not(loom))]
mod threads {
    use super::{SECTIONS, Section, Turn};
    use crate::base::sync::{AtomicU64, Ordering, compiler_fence, full_fence};
    use crate::shm::node::Node;
    use std::cell::{Cell, RefCell};
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// Which words of a process's slot its threads have. Private to the process.
    #[derive(Debug)]
    pub struct Words {
        /// Names the attachment in this process, for ever.
        key: u64,
        taken: AtomicU64,
    }

    static ATTACHMENTS: AtomicU64 = AtomicU64::new(1);
    const ALL: u64 = (1 << SECTIONS) - 1;

    impl Default for Words {
        fn default() -> Self {
            let key = ATTACHMENTS.fetch_add(1, Ordering::Relaxed);
            Words { key, taken: AtomicU64::new(0) }
        }
    }

    impl Words {
        /// Names the attachment: never 0, never that of another one in this process, nor the complement of one.
        #[inline]
        pub fn key(&self) -> u64 {
            self.key
        }

        fn take(&self) -> Option<usize> {
            let mut taken = self.taken.load(Ordering::Relaxed);
            loop {
                let free = !taken & ALL;
                if free == 0 {
                    return None;
                }
                let bit = free & free.wrapping_neg();
                // Acquire: the last owner's sections come before the next one's.
                let (ok, failed) = (Ordering::Acquire, Ordering::Relaxed);
                match self.taken.compare_exchange_weak(taken, taken | bit, ok, failed) {
                    Ok(_) => return Some(bit.trailing_zeros() as usize),
                    Err(now) => taken = now,
                }
            }
        }

        fn give(&self, k: usize) {
            self.taken.fetch_and(!(1 << k), Ordering::Release);
        }
    }

    /// The words of one thread, one for each attachment that it used.
    struct Mine(Vec<(Arc<Words>, usize, NonNull<Section>)>);

    impl Drop for Mine {
        fn drop(&mut self) {
            // Destructors that run later must not use a word that is another thread's by then.
            LAST.set((0, NonNull::dangling()));
            for (words, k, _) in &self.0 {
                words.give(*k);
            }
        }
    }

    thread_local! {
        /// The word used last, and the key of its attachment; the complement of that where sections need full
        /// fences. Without destructor, so that to look at it is one load.
        static LAST: Cell<(u64, NonNull<Section>)> = const { Cell::new((0, NonNull::dangling())) };
        static MINE: RefCell<Mine> = const { RefCell::new(Mine(Vec::new())) };
    }

    /// Begins a section of this thread, which must not be inside one, at the attachment that `key` names, which
    /// is `node()`; `None` if all words are taken.
    ///
    /// Cost: two loads of thread-locals, and a store to a line of the thread's own, unless the thread used another
    /// attachment last. Where a process of the node cannot have asymmetric fences, a full one and a call more.
    #[inline(always)]
    pub fn enter<'n>(key: u64, node: impl FnOnce() -> &'n Node) -> Option<Turn<'n>> {
        let (last, section) = LAST.get();
        if last == key {
            // SAFETY: the key is never reused, so this is a word of the slot of `node()`, which
            // lives for 'n.
            let section = unsafe { section.as_ref() };
            // Of this attachment all processes are registered: what is there stays so.
            return Some(section.enter_with(|| compiler_fence(Ordering::SeqCst)));
        }
        std::hint::cold_path();
        enter_slowly(node())
    }

    /// The key with which this thread remembers the word used last.
    #[cfg(test)]
    pub fn last_key() -> u64 {
        LAST.get().0
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(node: &Node) -> Option<Turn<'_>> {
        let key = node.section_words.key;
        let section = match LAST.get() {
            // SAFETY: as above.
            (last, section) if last == !key => unsafe { section.as_ref() },
            _ => take(node)?,
        };
        Some(section.enter_with(full_fence))
    }

    fn take(node: &Node) -> Option<&Section> {
        let words = &node.section_words;
        let found = MINE.try_with(|mine| {
            let mut mine = mine.try_borrow_mut().ok()?;
            if let Some((_, _, section)) = mine.0.iter().find(|(w, ..)| w.key == words.key) {
                return Some(*section);
            }
            // What belongs to attachments that are gone.
            mine.0.retain(|(w, ..)| Arc::strong_count(w) > 1);
            let k = words.take()?;
            let slot = node.rank_slot(node.slot());
            // Before the thread's first section, whose fence orders it: see `outwait`.
            slot.sections_used.fetch_max(k as u32 + 1, Ordering::SeqCst);
            let section = NonNull::from(&slot.sections[k]);
            mine.0.push((words.clone(), k, section));
            Some(section)
        });
        let section = found.ok().flatten()?;
        // Decided before there was a window whose elements could be updated.
        let full = node.header().full_fences.load(Ordering::Relaxed) != 0;
        LAST.set((if full { !words.key } else { words.key }, section));
        // SAFETY: a word of this node's slot, mapped as long as the node.
        Some(unsafe { section.as_ref() })
    }

    impl Node {
        /// The words of the threads of a slot's process that may have entered a section.
        pub fn sections(&self, slot: crate::base::Slot) -> impl Iterator<Item = &Section> {
            let slot = self.rank_slot(slot);
            // Acquire, and clamped: a peer wrote it.
            let used = slot.sections_used.load(Ordering::Acquire) as usize;
            slot.sections[..used.min(SECTIONS)].iter()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::AtomicBool;

    /// A thread that updates an element again and again, inside of sections as long as that is the way, is
    /// outside for most of the time once it is not: only then is there somebody who outwaits it.
    #[test]
    fn who_sees_the_new_way_is_outwaited() {
        let (section, element) = (Section::default(), AtomicU64::new(0));
        let (native, over) = (AtomicBool::new(true), AtomicBool::new(false));
        let (mut outwaited, mut updates) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let turn = section.enter();
                    let now = native.load(Ordering::Relaxed);
                    if now {
                        element.fetch_add(1, Ordering::Relaxed);
                    }
                    turn.leave();
                    if !now {
                        element.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for change in 0..200 {
                // Some updates by the way that is about to be changed.
                while element.load(Ordering::Relaxed) < updates + 10 {
                    std::thread::yield_now();
                }
                let back = change % 2 == 1;
                native.store(back, Ordering::Relaxed);
                if !back {
                    outwaited += u32::from(outwait([(Slot(0), &section)].into_iter(), |_| false));
                }
                updates = element.load(Ordering::Relaxed);
            }
            over.store(true, Ordering::Relaxed);
        });
        // A thread that is not running may be inside.
        assert!(outwaited > 50, "{outwaited} of 100");
    }

    #[test]
    fn who_stays_inside_is_not_outwaited_unless_it_is_gone() {
        let section = Section::default();
        let words = || [(Slot(3), &section)].into_iter();
        assert!(outwait(words(), |_| unreachable!("nobody is inside")));
        let turn = section.enter();
        assert!(!outwait(words(), |_| false));
        assert!(outwait(words(), |slot| slot == Slot(3)), "it died inside");
        turn.leave();
        assert!(outwait(words(), |_| unreachable!("it has left")));
    }
}
