//! Everything at once: single elements and many of them, by all ranks and on the same memory,
//! while the way to update them changes all the time. No update may be lost, none made twice.

use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::layout::Layout;
use crate::rma::Info;
use crate::shm::bias::Way;
use crate::shm::section;
use crate::{Element, Job, Op, Rank, Window};
use std::sync::Mutex;

const RANKS: u32 = 4;
/// Elements of a part: some stripes and a bit, however long an element is.
const LEN: usize = 3 * 8192 + 77;
const ROUNDS: usize = 1000;

/// A small generator: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// What all ranks added, and the tickets they drew.
struct Ledger {
    added: Vec<[u32; LEN]>,
    tickets: Vec<u64>,
}

/// Every update that there is, `one` at a time and on runs of elements; counted in `ledger`.
/// `keep_pace` is called with the number of each round.
#[expect(clippy::useless_vec, reason = "too long for a stack")]
fn work<T: Element>(
    window: &Window<T>,
    one: T,
    as_number: fn(T) -> u64,
    ledger: &Mutex<Ledger>,
    keep_pace: impl Fn(usize),
) {
    let me = window.team().rank();
    let mut random = Numbers(u64::from(me.0) * 977 + 5);
    let mut added = vec![[0u32; LEN]; 2];
    let mut tickets = Vec::new();
    let ones = vec![one; LEN];
    let mut old = vec![one; LEN];
    let epoch = window.lock_all().unwrap();
    for round in 0..ROUNDS {
        keep_pace(round);
        let target = random.below(2);
        let to = Rank(target as u32);
        let (start, index) = (1 + random.below(LEN - 1), 1 + random.below(LEN - 1));
        let many = 1 + random.below(LEN - start);
        let few = many.min(1 + random.below(16));
        let mut count = |from: usize, n: usize| {
            added[target][from..from + n].iter_mut().for_each(|sum| *sum += 1);
        };
        match random.below(8) {
            0 | 1 => {
                epoch.accumulate(to, start, Op::Sum, &ones[..many]).unwrap();
                count(start, many);
            }
            2 => {
                epoch.get_accumulate(to, start, Op::Sum, &ones[..few], &mut old[..few]).unwrap();
                count(start, few);
            }
            3 => {
                epoch.get_accumulate(to, start, Op::Sum, &ones[..many], &mut old[..many]).unwrap();
                count(start, many);
            }
            4 => {
                let mut seen = epoch.fetch_and_op(to, index, Op::NoOp, one).unwrap();
                loop {
                    let new = T::combine(Op::Sum, seen, one);
                    let was = epoch.compare_and_swap(to, index, seen, new).unwrap();
                    if as_number(was) == as_number(seen) {
                        break;
                    }
                    seen = was;
                }
                count(index, 1);
            }
            5 if me.0 < 2 => {
                window.local().fetch_and_op(index, Op::Sum, one).unwrap();
                added[me.index()][index] += 1;
            }
            6 => {
                // Runs at equal distances.
                let (teeth, run) = (1 + random.below(400), 1 + random.below(6));
                let gap = run + random.below(9);
                let start = 1 + random.below(LEN - 1 - teeth * gap);
                let all = Layout::of::<T>();
                let there = all.vector(teeth, run, gap as isize).unwrap();
                let (there, here) = (there.times(1), all.times(teeth * run));
                epoch.accumulate_layout(to, start, there, Op::Sum, &ones, here).unwrap();
                (0..teeth).for_each(|tooth| count(start + tooth * gap, run));
            }
            _ => {
                epoch.accumulate(to, index, Op::Sum, &ones[..1]).unwrap();
                count(index, 1);
            }
        }
        tickets.push(as_number(epoch.fetch_and_op(Rank(0), 0, Op::Sum, one).unwrap()));
    }
    let mut ledger = ledger.lock().unwrap();
    for (all, mine) in ledger.added.iter_mut().zip(&added) {
        all.iter_mut().zip(mine).for_each(|(all, mine)| *all += mine);
    }
    ledger.tickets.extend(tickets);
}

fn no_update_is_lost<T: Element>(one: T, as_number: fn(T) -> u64) {
    let ledger = Mutex::new(Ledger { added: vec![[0; LEN]; 2], tickets: Vec::new() });
    let (working, turns) = (AtomicU32::new(RANKS), AtomicU32::new(0));
    Job::threads(RANKS, |job| {
        let window = Window::<T>::allocate(job.team(), LEN).unwrap();
        let domain = window.domain();
        std::thread::scope(|scope| {
            if job.team().rank() == Rank(0) {
                scope.spawn(|| {
                    while working.load(Ordering::Acquire) > 0 {
                        for to in [Way::Locked, Way::Native] {
                            turns.fetch_add(u32::from(domain.turn(to)), Ordering::Release);
                            std::thread::yield_now();
                        }
                    }
                });
            }
            // However the machine shares its processors out, updates meet many changes.
            let keep_pace = |round: usize| {
                while (turns.load(Ordering::Acquire) as usize) < round / 8 {
                    std::thread::yield_now();
                }
            };
            work(&window, one, as_number, &ledger, keep_pace);
            working.fetch_sub(1, Ordering::AcqRel);
        });
        job.team().barrier().unwrap();
        if job.team().rank() == Rank(0) {
            let ledger = ledger.lock().unwrap();
            for (rank, added) in ledger.added.iter().enumerate() {
                let part = window.part(Rank(rank as u32)).unwrap();
                for (i, sum) in added.iter().enumerate().skip(1) {
                    let there = as_number(part.get(i).unwrap());
                    assert_eq!(there, u64::from(*sum), "rank {rank}, element {i}");
                }
            }
            let mut tickets = ledger.tickets.clone();
            tickets.sort_unstable();
            assert!(tickets.iter().copied().eq(0..u64::from(RANKS) * ROUNDS as u64));
        }
        job.team().barrier().unwrap();
    })
    .unwrap();
}

#[test]
fn no_update_of_integers_is_lost_while_the_way_changes() {
    no_update_is_lost(1u64, |v| v);
}

#[test]
fn no_update_of_floats_is_lost_while_the_way_changes() {
    no_update_is_lost(1f64, |v| v as u64);
    no_update_is_lost(1f32, |v| v as u64);
}

#[test]
fn no_update_of_short_integers_is_lost_while_the_way_changes() {
    no_update_is_lost(1u16, u64::from);
}

/// Large updates come: the window takes to locks. Single ones come: it takes to atomics again.
#[test]
fn the_way_follows_what_the_program_does() {
    Job::threads(1, |job| {
        let window = Window::<f64>::allocate(job.team(), 1 << 16).unwrap();
        let epoch = window.lock_all().unwrap();
        let way = || window.domain().way();
        assert_eq!(way(), Way::Native);
        let ones = vec![1.0; 1 << 16];
        epoch.accumulate(Rank(0), 0, Op::Sum, &ones).unwrap();
        assert_eq!(way(), Way::Locked);
        let mut single = 0;
        while way() != Way::Native {
            epoch.fetch_and_op(Rank(0), 3, Op::Sum, 1.0).unwrap();
            single += 1;
            assert!(single < 1_000_000, "it never turned back");
        }
        // Some single ones between large ones do not turn it.
        epoch.accumulate(Rank(0), 0, Op::Sum, &ones).unwrap();
        for _ in 0..100 {
            (0..single / 2).for_each(|_| {
                epoch.fetch_and_op(Rank(0), 3, Op::Sum, 1.0).unwrap();
            });
            epoch.accumulate(Rank(0), 0, Op::Sum, &ones).unwrap();
            assert_eq!(way(), Way::Locked);
        }
        assert_eq!(window.local().get(5).unwrap(), 102.0);
        assert_eq!(
            window.local().get(3).unwrap(),
            102.0 + f64::from(single) + 100.0 * f64::from(single / 2)
        );
    })
    .unwrap();
}

/// Where the window was told that elements are updated one by one, nothing turns it, and
/// nobody says that an update is under way: whatever the sizes and operations, none is lost.
#[test]
fn windows_of_single_elements_lose_nothing_and_do_not_turn() {
    const LEN: usize = 5000;
    const ROUNDS: u64 = 100;
    Job::threads(3, |job| {
        for granularity in [1, 16] {
            let info = Info { accumulate_granularity: granularity, ..Info::default() };
            let build = || Window::<f64>::builder(job.team()).info(info.clone());
            let window = build().allocate(LEN).unwrap();
            let epoch = window.lock_all().unwrap();
            let (ones, mut old) = (vec![1.0; LEN], vec![0.0; LEN]);
            for round in 0..ROUNDS as usize {
                epoch.accumulate(Rank(0), 0, Op::Sum, &ones).unwrap();
                epoch.get_accumulate(Rank(0), 1, Op::Sum, &ones[1..], &mut old[1..]).unwrap();
                epoch.fetch_and_op(Rank(0), round, Op::Sum, 1.0).unwrap();
                let mut seen = epoch.fetch_and_op(Rank(0), round, Op::NoOp, 0.0).unwrap();
                loop {
                    let was = epoch.compare_and_swap(Rank(0), round, seen, seen + 1.0).unwrap();
                    if was == seen {
                        break;
                    }
                    seen = was;
                }
                let layout = Layout::of::<f64>();
                let (there, here) = (layout.vector(500, 1, 10).unwrap(), layout.times(500));
                epoch.accumulate_layout(Rank(0), 0, there.times(1), Op::Sum, &ones, here).unwrap();
            }
            assert_eq!(window.domain().way(), Way::Native);
            job.team().barrier().unwrap();
            let part = window.part(Rank(0)).unwrap();
            for i in 0..LEN {
                let often = 1 + usize::from(i > 0) + usize::from(i % 10 == 0);
                let single = if i < ROUNDS as usize { 2 } else { 0 };
                let each = often as u64 * ROUNDS + single;
                assert_eq!(part.get(i).unwrap(), 3.0 * each as f64, "element {i}");
            }
            epoch.unlock_all().unwrap();
            window.free().unwrap();
            // Without the promise it turns.
            let window = Window::<f64>::allocate(job.team(), 1 << 16).unwrap();
            let epoch = window.lock_all().unwrap();
            epoch.accumulate(Rank(0), 0, Op::Sum, &vec![1.0; 1 << 16]).unwrap();
            assert_ne!(window.domain().way(), Way::Native);
        }
    })
    .unwrap();
}

/// Changes the way of a window's updates to and fro.
fn turn_until(window: &Window<u64>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        window.domain().turn(Way::Locked);
        window.domain().turn(Way::Native);
        std::thread::yield_now();
    }
}

/// A thread that cannot get a word of its own takes the lock, and loses nothing either.
#[test]
fn more_threads_than_words_update_the_same_element() {
    use crate::shm::section::SECTIONS;
    Job::threads(1, |job| {
        let window = Window::<u64>::allocate(job.team(), 8).unwrap();
        let threads = SECTIONS + 8;
        let start = std::sync::Barrier::new(threads);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let turner = scope.spawn(|| turn_until(&window, &stop));
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let view = window.local();
                        view.fetch_and_op(0, Op::Sum, 1).unwrap();
                        // All words are given out by now, and stay so until the threads end.
                        start.wait();
                        (0..200).for_each(|_| drop(view.fetch_and_op(0, Op::Sum, 1)));
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            turner.join().unwrap();
        });
        assert_eq!(window.local().get(0).unwrap(), 201 * threads as u64);
    })
    .unwrap();
}

/// Where a process of the node cannot have asymmetric fences, sections have full ones, and are outwaited all the same; a
/// thread that goes from one attachment to another finds its word of each.
#[test]
fn updates_with_full_fences_are_outwaited_too() {
    Job::threads(1, |job| {
        job.team().node().header().full_fences.store(1, Ordering::SeqCst);
        let full = job.team().node().section_key();
        let window = Window::<u64>::allocate(job.team(), 8).unwrap();
        const UPDATES: u64 = 20_000;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let turner = scope.spawn(|| turn_until(&window, &done));
            let adder = scope.spawn(|| {
                let many = [1u64; 8];
                let epoch = window.lock_all().unwrap();
                for _ in 0..UPDATES {
                    epoch.accumulate(Rank(0), 0, Op::Sum, &many).unwrap();
                }
                epoch.unlock_all().unwrap();
            });
            Job::threads(1, |other| {
                let plain = Window::<u64>::allocate(other.team(), 8).unwrap();
                let light = other.team().node().section_key();
                for i in 0..UPDATES {
                    window.local().fetch_and_op(0, Op::Sum, 1).unwrap();
                    assert_eq!(section::last_key(), !full, "the quick way has no full fence");
                    if i % 16 == 0 {
                        plain.local().fetch_and_op(0, Op::Sum, 1).unwrap();
                        assert_eq!(section::last_key(), light);
                    }
                }
                assert_eq!(plain.local().get(0).unwrap(), UPDATES / 16);
            })
            .unwrap();
            adder.join().unwrap();
            done.store(true, Ordering::Relaxed);
            turner.join().unwrap();
        });
        assert_eq!(window.local().get(0).unwrap(), 2 * UPDATES);
        assert_eq!(window.local().get(7).unwrap(), UPDATES);
    })
    .unwrap();
}

/// Whoever looks at all parts of a shared window as one memory is in the same domain as those who
/// name the part.
#[test]
fn updates_across_parts_and_of_one_part_meet() {
    const LEN: usize = 1 << 13;
    const LARGE: usize = 400;
    Job::threads(2, |job| {
        let window = Window::<u64>::builder(job.team()).allocate_shared(LEN).unwrap();
        let (epoch, all) = (window.lock_all().unwrap(), window.query_all().unwrap());
        let lock = |rank| std::ptr::from_ref(window.core().block.stripe(rank, 7));
        assert_eq!(lock(0), lock(1));
        let done = |step| job.team().barrier().unwrap_or_else(|e| panic!("{step}: {e}"));
        window.domain().turn(Way::Locked);
        done("turned");
        let mut single = 0u64;
        if job.rank() == Rank(0) {
            let ones = vec![1; LEN];
            for _ in 0..LARGE {
                epoch.accumulate(Rank(1), 0, Op::Sum, &ones).unwrap();
            }
            // Says that it is over; nothing else updates that element.
            all.set(0, 1).unwrap();
        } else {
            while all.get(0).unwrap() == 0 {
                for index in 0..64 {
                    all.fetch_and_op(LEN + index, Op::Sum, 1).unwrap();
                }
                single += 1;
            }
        }
        done("updated");
        if job.rank() == Rank(1) {
            let local = window.local();
            for index in 0..LEN {
                let more = if index < 64 { single } else { 0 };
                assert_eq!(local.get(index).unwrap(), LARGE as u64 + more, "at {index}");
            }
        }
        epoch.unlock_all().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Who updates natively without sections and locks, once devices are let in, loses nothing and has
/// nothing lost by those who were at plain instructions under locks, and would go on with these.
#[test]
fn what_devices_do_from_when_they_are_let_in_is_not_lost() {
    use crate::rma::kind::Place;
    const LEN: usize = 1 << 14;
    const LARGE: u64 = 200;
    Job::threads(3, |job| {
        for _ in 0..10 {
            let window = Window::<u64>::allocate(job.team(), LEN).unwrap();
            let epoch = window.lock_all().unwrap();
            let domain = window.domain();
            domain.turn(Way::Locked);
            job.team().barrier().unwrap();
            if job.rank() == Rank(2) {
                let Place::Here(at) = window.place("a test", Rank(0), 0, LEN).unwrap() else {
                    panic!("it is mapped");
                };
                while !domain.admit_devices() {
                    std::thread::yield_now();
                }
                for i in 0..50 * LARGE as usize {
                    // SAFETY: an aligned element of the part, which `place` has found, accessed by
                    // updates only.
                    unsafe { u64::fetch_op(at.add(i * 61 % 512), Op::Sum, 1) };
                }
            } else {
                let ones = vec![1; LEN];
                for _ in 0..LARGE {
                    epoch.accumulate(Rank(0), 0, Op::Sum, &ones).unwrap();
                    domain.turn(Way::Locked);
                }
            }
            job.team().barrier().unwrap();
            assert!(domain.way() != Way::Locked && !domain.turn(Way::Locked));
            if job.rank() == Rank(0) {
                let mut sum = 0;
                for i in 0..LEN {
                    let more = window.local().get(i).unwrap() - 2 * LARGE;
                    assert!(i < 512 || more == 0, "element {i}");
                    sum += more;
                }
                assert_eq!(sum, 50 * LARGE);
            }
            epoch.unlock_all().unwrap();
            window.free().unwrap();
        }
    })
    .unwrap();
}
