//! Loom models of the record: two processes that change it under its lock, readers that do not take
//! the lock, and every point at which one of them may be killed.

use super::*;
use crate::base::sync::AtomicU64;
use crate::shm::crash::kill_at;
use crate::shm::lock::model::Env;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, OnceLock};

const GRANULES: usize = 2;

/// A heap with the memory that it gives away, which loom watches.
#[derive(Default)]
struct Area {
    table: ExtentTable,
    memory: [UnsafeCell<u32>; GRANULES],
}

// SAFETY: loom finds accesses of the memory that are not ordered.
unsafe impl Sync for Area {}

impl Area {
    fn heap(&self) -> Heap<'_> {
        Heap::new(&self.table, GRANULES as u64 * GRANULE, "a model")
    }

    fn take(&self, env: &Env) -> Entry {
        let owner = Owner::Process(env.slot());
        let wanted = Wanted { len: 1, align: 1, owner, home: None };
        self.heap().locked(env, Deadline::NEVER, |table| table.take(wanted)).unwrap().unwrap()
    }

    fn touch(&self, entry: &Entry) {
        // SAFETY: the range is the caller's: what the model is to show.
        self.memory[(entry.offset.0 / GRANULE) as usize].with_mut(|word| unsafe { *word += 1 });
    }

    /// As `shm::alloc` frees: the intent is noted, the pages go, then the range.
    fn free(&self, env: &Env, entry: &Entry) {
        let going = Owner::Freeing(env.slot());
        let locked = |run: &dyn Fn(&Locked<'_>)| {
            self.heap().locked(env, Deadline::NEVER, |table| run(table)).unwrap();
        };
        locked(&|table| table.hand(entry, going));
        self.touch(entry);
        locked(&|table| table.remove(entry));
    }

    fn live(&self, env: &Env) {
        let entry = self.take(env);
        self.touch(&entry);
        self.free(env, &entry);
    }

    /// Frees what a dead process had, as a sweep does; what it had.
    fn sweep(&self, env: &Env, dead: Slot) -> usize {
        let mine =
            |e: &Entry| matches!(e.owner, Owner::Process(s) | Owner::Freeing(s) if s == dead);
        let claim = |table: &Locked<'_>| {
            // Checked as it is before anything is given away: nothing overlaps.
            table.ranges().unwrap();
            let found: Vec<Entry> = table.entries().filter(mine).collect();
            found.iter().for_each(|entry| table.hand(entry, Owner::Freeing(env.slot())));
            found
        };
        let found = self.heap().locked(env, Deadline::NEVER, claim).unwrap();
        found.iter().for_each(|entry| self.free(env, entry));
        found.len()
    }
}

fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
    builder.max_branches = 20_000;
    builder.check(f);
}

/// What one has is nobody else's: also memory that another one had before, with what it wrote.
#[test]
fn loom_ranges_in_use_are_disjoint() {
    model(2, || {
        let (area, mut envs) = (Arc::new(Area::default()), Env::new(2, 1));
        let (other, env) = (area.clone(), envs.remove(1));
        let peer = thread::spawn(move || other.live(&env));
        area.live(&envs[0]);
        peer.join().unwrap();
        assert_eq!(area.heap().usage(), (0, 0));
        assert!(!area.heap().is_freeing());
    });
}

/// Killed anywhere, with the lock or without, a process leaves ranges that are right and say whose
/// they were.
#[test]
fn loom_what_the_dead_had_is_found() {
    for n in 1.. {
        let ended = Arc::new(OnceLock::new());
        let lived = ended.clone();
        model(1, move || {
            let (area, mut envs) = (Arc::new(Area::default()), Env::new(2, 1));
            let (other, env, lived) = (area.clone(), envs.remove(1), lived.clone());
            let mortal = thread::spawn(move || {
                if kill_at(n, || other.live(&env)).is_some() {
                    _ = lived.set(());
                }
                env.die();
            });
            area.live(&envs[0]);
            mortal.join().unwrap();
            let left = area.sweep(&envs[0], Slot(1));
            assert!(left <= 1);
            assert_eq!(area.heap().usage(), (0, 0), "killed at {n}");
        });
        if ended.get().is_some() {
            assert!(n > 10, "{n} points are not the whole of it");
            break;
        }
    }
}

/// Who looks for a range without the lock finds it as long as it is there, and never again: not
/// when the next one takes its place in the record either.
#[test]
fn loom_what_is_gone_stays_gone() {
    model(3, || {
        let area = Arc::new(Area::default());
        // The id of the range that is there, 0 before it is; then whether it is gone.
        let told = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let (other, tell) = (area.clone(), told.clone());
        let maker = thread::spawn(move || {
            let env = Env::new(1, 1).remove(0);
            let first = other.take(&env);
            tell.0.store(first.id().raw(), Ordering::Release);
            other.free(&env, &first);
            tell.1.store(1, Ordering::Release);
            let second = other.take(&env);
            assert_eq!((second.offset, second.id() == first.id()), (first.offset, false));
        });
        let id = told.0.load(Ordering::Acquire);
        if id != 0 {
            let id = Id::from_raw(id);
            let before = area.heap().has(id);
            let gone = told.1.load(Ordering::Acquire) != 0;
            let after = area.heap().has(id);
            assert!(before || !after, "it came back");
            assert!(!(gone && after), "it was gone");
        }
        // Whatever is in the record at the moment, nobody reads beyond it.
        assert!(area.heap().usage().1 <= 1);
        maker.join().unwrap();
        assert_eq!(area.heap().usage(), (GRANULE, 1));
    });
}
