//! Sections: short stretches of a thread's work that others can outwait.
//!
//! Whoever changes how some shared memory is to be accessed must know when the accesses that began
//! under the old way have ended. Those who access it cannot afford a read-modify-write to say so.
//! So every thread has a word of its own in shared memory, odd while it is inside a section:
//!
//! ```text
//! thread                                  changer
//!   turn = odd                              change the way
//!   light_fence                             heavy_fence
//!   look which way to go                    for every thread's word:
//!   access                                    odd? wait until it is another value,
//!   turn = next even                          or its process is dead
//! ```
//! Either the changer sees the odd turn, or the thread sees the new way (the pair of fences). A
//! word that changed has been left once, and if it was entered again, then after the changer's
//! fence, so by a thread that sees the new way. Sections hold no lock and call nothing back: one
//! lasts longer than a few µs only if its thread is not running.
//!
//! *Stays.* Where a way is seldom changed, even the two stores are too much: each makes the atomic
//! instruction between them wait until it is in the cache. So a thread may also *stay* at such a place, from one
//! access to the next. It says where in one of the further words of its line, once, and from then on looks at nothing
//! but the way before each access, until it finds another one or has come to something longer in the library:
//!
//! ```text
//! thread                                  changer
//!   stays[i] = place                        change the way, for good
//!   light_fence                             heavy_fence
//!   look which way to go, access            for every thread's words: as above, and while one of stays = place:
//!   look which way to go, access              wait, or give up
//!   ...
//!   stays[i] = 0
//! ```
//! A thread that stays may be computing for long, without looking, so this is for places whose first way
//! never comes back: whoever wants to change it may have to wait once.
//!
//! Words lie in the slot of the thread's process, a line each, and belong to a thread from its
//! first section until it ends. A thread that found them all taken does without, by a way that is
//! right at any time.

use crate::base::Slot;
use crate::base::sync::{AtomicU64, Ordering, heavy_fence, light_fence, spin_hint, yield_now};

/// Threads of a process that can have a word at one time.
pub const SECTIONS: usize = 48;

/// Places at which a thread can stay at a time: programs update several windows by turns.
pub const STAYS: usize = 4;

/// The words of one thread. All zeros is a thread outside of any section.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Section {
    turn: AtomicU64,
    /// The addresses of where the thread stays, which are the same in all processes of the node; 0: nowhere.
    stays: [AtomicU64; STAYS],
    _pad: [u64; 3],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Section>() == 64);

#[cfg(not(loom))]
// SAFETY: repr(C), atomics and padding that nobody reads or writes.
unsafe impl super::region::SharedLayout for Section {}

impl Default for Section {
    fn default() -> Self {
        let stays = std::array::from_fn(|_| AtomicU64::new(0));
        Section { turn: AtomicU64::new(0), stays, _pad: [0; 3] }
    }
}

/// Proof of being inside a section, for [`Section::leave`].
#[derive(Debug)]
#[must_use = "the section lasts until Section::leave gets this back"]
pub struct Turn(u64);

impl Section {
    /// Begins a section of the thread that the word belongs to, which must not be inside one.
    ///
    /// Cost: a store to a line of the thread's own, and a full fence where asymmetric ones are not
    /// to be had.
    #[inline(always)]
    pub fn enter(&self) -> Turn {
        let turn = self.turn.load(Ordering::Relaxed) | 1;
        self.turn.store(turn, Ordering::Relaxed);
        light_fence();
        Turn(turn)
    }

    /// Ends the section. Cost: a store.
    #[inline(always)]
    pub fn leave(&self, turn: Turn) {
        self.turn.store(turn.0.wrapping_add(1), Ordering::Release);
    }

    /// From now on the thread stays at `place`, which is not 0, and no more where its word `i` said. Looks which
    /// way to go come behind this. Cost: as to enter.
    pub fn stay(&self, i: usize, place: u64) {
        self.stays[i].store(place, Ordering::Release);
        light_fence();
    }

    /// The thread does not stay where its word `i` said. Cost: a store.
    pub fn depart(&self, i: usize) {
        self.stays[i].store(0, Ordering::Release);
    }
}

/// How often to look at a word before asking whether its process is dead.
const LOOKS: u32 = if cfg!(loom) { 2 } else { 512 };
/// How often to look then, letting others run.
const YIELDS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Waits until all sections that had begun before the call have ended and, if a `place` is named, until
/// nobody who stayed there then does. False if one still lasts
/// after a few hundred looks and yields: nothing is lost by trying again later.
///
/// `sections` is not advanced before the fence, so it may read what threads have published before
/// they entered. The caller is not inside a section, and stays nowhere.
///
/// Cost: a heavy fence (a few µs) and a load of each word's line.
pub fn outwait<'s>(
    sections: impl Iterator<Item = (Slot, &'s Section)>,
    place: Option<u64>,
    gone: impl Fn(Slot) -> bool,
) -> bool {
    heavy_fence();
    for (slot, section) in sections {
        let seen = section.turn.load(Ordering::Acquire);
        let inside = || seen & 1 == 1 && section.turn.load(Ordering::Acquire) == seen;
        let stays = || {
            let at = |place| section.stays.iter().any(|stay| stay.load(Ordering::Acquire) == place);
            place.is_some_and(at)
        };
        let lasts = || inside() || stays();
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

#[cfg(not(loom))]
pub use threads::{Name, Words, at_hand, depart, depart_at, depart_from, mine, stay, stays};

#[cfg(not(loom))]
mod threads {
    use super::{SECTIONS, STAYS, Section};
    use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
    use crate::shm::node::Node;
    use std::cell::{Cell, RefCell};
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Which words of a process's slot its threads have. Private to the process.
    #[derive(Debug)]
    pub struct Words {
        /// Which attachment of the process it is, for ever; 0 once there are no numbers left.
        number: u32,
        /// How many places have a name.
        named: AtomicU32,
        taken: AtomicU64,
        /// Whether the slot is there to be written to: a thread may outlive the attachment, and have
        /// stayed somewhere.
        attached: Mutex<bool>,
    }

    /// What a process calls a place at an attachment: no other one ever has the name. The attachment's number,
    /// and the place's; 0 where there are none left, and then nobody stays, or has no words at all.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Name(u64);

    static ATTACHMENTS: AtomicU32 = AtomicU32::new(0);
    const ALL: u64 = (1 << SECTIONS) - 1;

    /// The next number, from 1 on; 0 if there is none.
    fn next(numbers: &AtomicU32) -> u32 {
        let more = |last: u32| last.checked_add(1).filter(|next| *next < u32::MAX);
        let (ok, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        numbers.fetch_update(ok, failed, more).map_or(0, |last| last + 1)
    }

    impl Name {
        /// Of no place.
        const NONE: Name = Name(u64::MAX);

        #[inline(always)]
        fn attachment(self) -> u32 {
            (self.0 >> 32) as u32
        }

        fn may_stay(self) -> bool {
            self.0 as u32 != 0
        }

        /// Which of a thread's words is for the place.
        #[inline(always)]
        fn word(self) -> usize {
            self.0 as usize % STAYS
        }
    }

    impl Default for Words {
        fn default() -> Self {
            let (number, named) = (next(&ATTACHMENTS), AtomicU32::new(0));
            Words { number, named, taken: AtomicU64::new(0), attached: Mutex::new(true) }
        }
    }

    impl Words {
        /// A name for a place at this attachment.
        pub fn name(&self) -> Name {
            Name(u64::from(self.number) << 32 | u64::from(next(&self.named)))
        }

        /// The attachment ends: nobody touches the slot's words for [`depart`] any more.
        pub fn detach(&self) {
            *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }

        /// One of its threads does not stay where those words say, if they are still there.
        fn depart(&self, section: NonNull<Section>, which: impl Iterator<Item = usize>) {
            let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
            if *attached {
                // SAFETY: words of the slot, which is mapped until `detach` has had the lock.
                let section = unsafe { section.as_ref() };
                which.for_each(|i| section.depart(i));
            }
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
            set_nowhere();
            for (words, k, section) in &self.0 {
                words.depart(*section, 0..STAYS);
                words.give(*k);
            }
        }
    }

    thread_local! {
        /// The words used last, and the number of their attachment. Without destructor, so that to look
        /// at it is one load.
        static LAST: Cell<(u32, NonNull<Section>)> = const { Cell::new((0, NonNull::dangling())) };
        /// Where it stays, see [`stay`], and whether it does at all.
        static STAY: [Cell<Name>; STAYS] = const { [const { Cell::new(Name::NONE) }; STAYS] };
        static ANYWHERE: Cell<bool> = const { Cell::new(false) };
        static MINE: RefCell<Mine> = const { RefCell::new(Mine(Vec::new())) };
    }

    /// This thread's words at the attachment of `name`, which is `node()`; `None` if all are
    /// taken. Cost: a load of a thread-local, unless the thread used another attachment last.
    #[inline(always)]
    pub fn mine<'n>(name: Name, node: impl FnOnce() -> &'n Node) -> Option<&'n Section> {
        match at_hand(name) {
            // SAFETY: they are of the slot of `node()`, which lives for 'n.
            Some(section) => Some(unsafe { section.as_ref() }),
            None => take(node()),
        }
    }

    /// As [`mine`], if that takes no call: words of the slot of the attachment of `name`. For who keeps that alive.
    #[inline(always)]
    pub fn at_hand(name: Name) -> Option<NonNull<Section>> {
        let (last, section) = LAST.get();
        // The number is never reused.
        (last == name.attachment() && last != 0).then_some(section)
    }

    fn set(name: Name, to: Name) {
        STAY.with(|stay| stay[name.word()].set(to));
    }

    fn set_nowhere() {
        ANYWHERE.set(false);
        STAY.with(|stay| stay.iter().for_each(|word| word.set(Name::NONE)));
    }

    /// Whether the thread stays at the place of that name. Cost: a load of a thread-local.
    #[inline(always)]
    pub fn stays(name: Name) -> bool {
        STAY.with(|stay| stay[name.word()].get() == name)
    }

    /// Has the thread stay at `place`, not 0, which this process calls `name`. False if it has no word for that.
    /// Looks which way to go come behind this. It stays until it departs, or stays at a place with the same
    /// word.
    pub fn stay(node: &Node, place: u64, name: Name) -> bool {
        let Some(section) = mine(name, || node).filter(|_| name.may_stay()) else { return false };
        section.stay(name.word(), place);
        set(name, name);
        ANYWHERE.set(true);
        true
    }

    /// The thread does not stay at the place of that name. Cost: as for [`depart`].
    #[inline(always)]
    pub fn depart_from(name: Name) {
        if stays(name) {
            set(name, Name::NONE);
            depart_now(name.word()..name.word() + 1);
        }
    }

    /// The thread stays nowhere. For whatever may take long. Cost: a load of a thread-local, and if it
    /// did stay somewhere a lock of the process's own and some stores.
    #[inline(always)]
    pub fn depart() {
        if ANYWHERE.get() {
            set_nowhere();
            depart_now(0..STAYS);
        }
    }

    /// As [`depart`], where `node` is at hand: if that is where the thread was last, the price is some stores.
    #[inline(always)]
    pub fn depart_at(node: &Node) {
        if ANYWHERE.get() {
            depart_at_once(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn depart_at_once(node: &Node) {
        let (last, section) = LAST.get();
        if last != node.section_words.number || last == 0 {
            return depart();
        }
        set_nowhere();
        // SAFETY: as in `mine`.
        let section = unsafe { section.as_ref() };
        (0..STAYS).for_each(|i| section.depart(i));
    }

    #[cold]
    #[inline(never)]
    fn depart_now(which: std::ops::Range<usize>) {
        let (last, section) = LAST.get();
        let _ = MINE.try_with(|mine| {
            let Ok(mine) = mine.try_borrow() else { return };
            if let Some((words, ..)) = mine.0.iter().find(|(words, ..)| words.number == last) {
                words.depart(section, which);
            }
        });
    }

    #[cold]
    #[inline(never)]
    fn take(node: &Node) -> Option<&Section> {
        let words = &node.section_words;
        // It stays at the attachment that it used last, or nowhere.
        depart();
        if words.number == 0 {
            return None;
        }
        let found = MINE.try_with(|mine| {
            let mut mine = mine.try_borrow_mut().ok()?;
            if let Some((_, _, section)) = mine.0.iter().find(|(w, ..)| w.number == words.number) {
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
        LAST.set((words.number, section));
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
    use crate::base::Deadline;
    use crate::shm::node::Node;
    use std::sync::Arc;

    fn node() -> Arc<Node> {
        let fd = Node::create_memory(1, 1 << 21).unwrap();
        Node::attach(fd, Slot(0), Deadline::NEVER).unwrap()
    }

    fn outwaited(node: &Node, place: u64) -> bool {
        let sections = node.sections(Slot(0)).map(|words| (Slot(0), words));
        outwait(sections, Some(place), |_| false)
    }

    #[test]
    fn who_stays_is_waited_for_there_and_nowhere_else() {
        let node = node();
        let names: Vec<Name> = (0..6).map(|_| node.section_name()).collect();
        assert!(stay(&node, 640, names[0]));
        assert!(stays(names[0]) && !stays(names[1]) && !stays(names[4]));
        assert!(!outwaited(&node, 640) && outwaited(&node, 704));
        // At one with another word, and at one with the same.
        assert!(stay(&node, 704, names[1]) && stays(names[0]) && stays(names[1]));
        assert!(stay(&node, 768, names[4]) && stays(names[4]) && !stays(names[0]));
        assert!(outwaited(&node, 640) && !outwaited(&node, 704) && !outwaited(&node, 768));
        depart_from(names[0]);
        assert!(stays(names[4]), "the first one has its word no more");
        depart_from(names[4]);
        assert!(!stays(names[4]) && stays(names[1]) && outwaited(&node, 768));
        depart();
        assert!(!stays(names[1]) && outwaited(&node, 704));
        assert!(stay(&node, 704, names[1]));
        depart_at(&node);
        assert!(!stays(names[1]) && outwaited(&node, 704));
    }

    #[test]
    fn a_thread_that_ends_stays_nowhere() {
        let node = node();
        let name = node.section_name();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(stay(&node, 640, name));
                assert!(!outwaited(&node, 640));
            });
        });
        assert!(outwaited(&node, 640));
        assert!(!stays(name), "it was another thread");
    }

    /// A thread that goes from one attachment to another, and outlives them, stays at one at a time, and
    /// never writes to one that is gone.
    #[test]
    fn a_thread_stays_at_one_attachment() {
        let (one, other) = (node(), node());
        let (here, there) = (one.section_name(), other.section_name());
        std::thread::spawn(move || {
            assert!(stay(&one, 640, here) && stay(&other, 704, there));
            assert!(outwaited(&one, 640) && !outwaited(&other, 704));
            assert!(!stays(here));
            depart_at(&one);
            assert!(outwaited(&other, 704), "wherever it is");
            assert!(stay(&one, 640, here));
            drop(one);
            depart();
            assert!(stay(&other, 704, there));
            drop(other);
        })
        .join()
        .unwrap();
    }
}
