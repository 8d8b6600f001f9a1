//! Threads instead of processes: each slot's threads share nothing with the others' but what
//! processes would. Small enough for Miri.

use super::model::Env;
use super::node::WAITING;
use super::queue::resolve;
use super::*;
use crate::shm::crash::kill_at;
use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const ROUNDS: u32 = if cfg!(miri) { 8 } else { 3000 };

fn expired() -> Deadline {
    Deadline::after(Duration::ZERO)
}

/// Waits until `n` threads stand in line behind the holder.
fn until_queued(env: &Env, n: usize) {
    loop {
        let lock = &env.shared.lock;
        let w = lock.load();
        let (mut at, mut count) = (w.tail(), 0);
        while at != w.owner() && count < n {
            at = Id(resolve(env, at).unwrap().2.prev.load(Ordering::Relaxed));
            count += 1;
        }
        if count >= n {
            return;
        }
        yield_now();
    }
}

#[test]
fn one_at_a_time_and_every_node_comes_back() {
    let envs = Env::new(3, 62);
    thread::scope(|scope| {
        for env in envs.iter().chain(&envs[..2]) {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = env.shared.lock.lock(env, Deadline::NEVER).unwrap();
                    assert_eq!(guard.previous_holder_died(), None);
                    env.critical_section();
                }
            });
        }
    });
    assert_eq!(envs[0].shared.entries.load(Ordering::Relaxed), 5 * ROUNDS);
    assert_eq!(envs[0].word(), (0, 0, 0));
    assert!(envs.iter().all(|env| env.available() == 62));
}

#[test]
fn first_in_line_is_first_served() {
    let envs = Env::new(2, 62);
    let env = &envs[0];
    let (sender, order) = mpsc::channel();
    thread::scope(|scope| {
        let guard = env.shared.lock.lock(env, Deadline::NEVER).unwrap();
        for i in 0..8usize {
            let (sender, env) = (sender.clone(), &envs[i % 2]);
            scope.spawn(move || {
                let _guard = env.shared.lock.lock(env, Deadline::NEVER).unwrap();
                sender.send(i).unwrap();
            });
            until_queued(env, i + 1);
        }
        drop(guard);
    });
    drop(sender);
    assert_eq!(order.iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
}

#[test]
fn waiting_ends_at_the_deadline_and_names_the_holder() {
    let envs = Env::new(2, 62);
    let lock = &envs[0].shared.lock;
    let guard = lock.lock(&envs[0], Deadline::NEVER).unwrap();
    assert!(lock.try_lock(&envs[1]).unwrap().is_none());
    let err = lock.lock(&envs[1], expired()).unwrap_err();
    assert!(matches!(&err, Error::TimedOut { missing, .. } if missing == &[Rank(0)]), "{err}");
    assert_eq!(lock.holder(), Some(Slot(0)));
    drop(guard);
    // The abandoned node stays in the lock until the next one takes it.
    assert_eq!(envs[1].available(), 61);
    drop(lock.try_lock(&envs[0]).unwrap().expect("only debris"));
    assert_eq!(envs[1].available(), 62);
    assert_eq!(envs[0].available(), 62);
    assert_eq!(envs[0].word(), (0, 0, 0));
}

#[test]
fn more_threads_than_nodes_still_get_their_turn() {
    let envs = Env::new(1, 1);
    let env = &envs[0];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS / 4 {
                    let _guard = env.shared.lock.lock(env, Deadline::NEVER).unwrap();
                    env.critical_section();
                }
            });
        }
    });
    assert_eq!(env.shared.entries.load(Ordering::Relaxed), 4 * (ROUNDS / 4));
    let _guard = env.shared.lock.lock(env, Deadline::NEVER).unwrap();
    assert!(env.shared.lock.lock(env, expired()).is_err());
    assert!(env.shared.lock.lock(env, expired()).is_err(), "no node left, still an answer");
}

#[test]
fn a_free_lock_of_a_dead_holder_goes_to_the_next_comer() {
    let envs = Env::new(3, 62);
    let lock = &envs[0].shared.lock;
    let held = lock.acquire(&envs[0], Deadline::NEVER).unwrap();
    envs[0].die();
    let guard = lock.try_lock(&envs[1]).unwrap().expect("its holder is dead");
    assert_eq!(guard.previous_holder_died(), Some(Slot(0)));
    drop(guard);
    let guard = lock.lock(&envs[2], Deadline::NEVER).unwrap();
    assert_eq!(guard.previous_holder_died(), None, "told once");
    drop(guard);
    assert_eq!(envs[1].available(), 62);
    drop(held);
}

#[test]
fn taken_alone_it_is_given_back_alone_or_handed_on() {
    let envs = Env::new(2, 62);
    let (lock, [first, second]) = (&envs[0].shared.lock, [Slot(0), Slot(1)].map(Sole::of));
    assert!(lock.release_own(&envs[0]).is_err(), "nobody has it");
    assert!(lock.take_alone(first));
    assert!(!lock.take_alone(second) && !lock.take_alone(first), "it is taken");
    assert!(!lock.release_alone(second) && lock.release_own(&envs[1]).is_err(), "by another");
    assert!(lock.is_alone(Slot(0)) && lock.release_alone(first) && lock.is_free());
    assert!(!lock.release_alone(first), "once");

    assert!(lock.take_alone(first));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock(&envs[1], Deadline::NEVER).unwrap();
            envs[1].critical_section();
            assert_eq!(guard.previous_holder_died(), None);
        });
        until_queued(&envs[0], 1);
        envs[0].enter();
        assert!(!lock.release_alone(first), "somebody waits");
        assert!(!lock.is_alone(Slot(0)) && lock.holder() == Some(Slot(0)));
        envs[0].exit();
        lock.release_own(&envs[0]).unwrap();
        waiter.join().unwrap();
    });
    assert!(lock.is_free());
    assert!(envs.iter().all(|env| env.available() == 62));
}

#[test]
fn who_dies_with_what_was_taken_alone_is_named_to_the_next() {
    for queued in [false, true] {
        let envs = Env::new(3, 62);
        let lock = &envs[0].shared.lock;
        assert!(lock.take_alone(Sole::of(Slot(0))));
        thread::scope(|scope| {
            let next = || {
                let guard = lock.lock(&envs[1], Deadline::NEVER).unwrap();
                assert_eq!(guard.previous_holder_died(), Some(Slot(0)));
            };
            if queued {
                let waiter = scope.spawn(next);
                until_queued(&envs[0], 1);
                envs[0].die();
                waiter.join().unwrap();
            } else {
                envs[0].die();
                assert!(!lock.take_alone(Sole::of(Slot(1))), "it is not free");
                next();
            }
        });
        // What was alone is again.
        assert!(lock.take_alone(Sole::of(Slot(2))) && lock.release_alone(Sole::of(Slot(2))));
        assert_eq!(envs[1].available(), 62);
    }
}

/// Slot 0 is killed at every point of its life with the lock in turn: taking it with abandoned
/// nodes ahead, holding it, handing it on with more of them behind. Slot 1 always gets the lock
/// and all of its nodes.
#[test]
fn a_kill_at_any_point_leaves_a_lock_that_works() {
    for (ahead, behind) in [(0, 0), (0, 2), (2, 0), (1, 1), (2, 3)] {
        for n in 1.. {
            let envs = Env::new(2, 7);
            let (mortal, other) = (&envs[0], &envs[1]);
            let lock = &mortal.shared.lock;
            let give_up = || assert!(lock.acquire(other, expired()).is_err());
            let first = lock.acquire(other, Deadline::NEVER).unwrap();
            (0..ahead).for_each(|_| give_up());
            lock.release(other, first).unwrap();
            let holding = Cell::new(false);
            let lived = kill_at(n, || {
                let held = lock.acquire(mortal, Deadline::NEVER).unwrap();
                holding.set(true);
                crash::point();
                crash::spare(|| (0..behind).for_each(|_| give_up()));
                crash::point();
                holding.set(false);
                lock.release(mortal, held).unwrap();
            });
            mortal.die();
            let guard = lock.lock(other, Deadline::NEVER).unwrap();
            let told = guard.previous_holder_died();
            assert!(
                told == Some(Slot(0)) || told.is_none() && !holding.get(),
                "{ahead} {behind} {n}"
            );
            drop(guard);
            assert_eq!(other.available(), 7, "{ahead} {behind} {n}");
            assert_eq!(other.word(), (0, 0, 0));
            if lived.is_some() {
                assert_eq!(told, None);
                break;
            }
        }
    }
}

/// As above for one that queues: killed at any point, it neither blocks those behind it nor keeps
/// a node from those ahead.
#[test]
fn a_waiter_killed_at_any_point_is_passed_over() {
    for n in 1.. {
        let envs = Env::new(2, 7);
        let (mortal, other) = (&envs[0], &envs[1]);
        let lock = &mortal.shared.lock;
        let held = lock.acquire(other, Deadline::NEVER).unwrap();
        assert!(lock.acquire(other, expired()).is_err());
        let lived = kill_at(n, || assert!(lock.acquire(mortal, expired()).is_err()));
        mortal.die();
        assert!(lock.acquire(other, expired()).is_err());
        lock.release(other, held).unwrap();
        let guard = lock.lock(other, Deadline::NEVER).unwrap();
        assert_eq!(guard.previous_holder_died(), None);
        drop(guard);
        assert_eq!(other.available(), 7, "killed at {n}");
        if lived.is_some() {
            break;
        }
    }
}

#[test]
fn overwritten_words_are_errors_never_panics() {
    let envs = Env::new(2, 7);
    let lock = &envs[0].shared.lock;
    for word in [u64::MAX, 1 << 20, 0xfffff, 5 << 20 | 1, 63 << 20 | 1, 1 << 40 | 2 << 20 | 2] {
        lock.word.store(word, Ordering::Relaxed);
        for env in &envs {
            let _ = lock.try_lock(env);
            let outcome = lock.acquire(env, expired());
            assert!(outcome.is_err(), "{word:#x} gave a lock");
        }
        lock.word.store(word, Ordering::Relaxed);
        let _ = lock.release(&envs[0], Held { node: 0, died: None });
    }
    // A ring of prev links that never meets the owner.
    lock.word.store(Word::new(Id(1), Id(3), Id::NONE, false).0, Ordering::Relaxed);
    let ring = envs[0].node(Slot(0), 2).unwrap();
    ring.state.store(WAITING, Ordering::Relaxed);
    ring.prev.store(3, Ordering::Relaxed);
    let err = lock.release(&envs[0], Held { node: 0, died: None }).unwrap_err();
    assert!(matches!(err, Error::Incompatible { .. }), "{err}");
}

#[test]
fn a_note_of_another_life_names_nobody() {
    let node = LockNode::default();
    node.begin();
    let turn = node.turn.load(Ordering::Relaxed);
    assert_eq!(node.noted_behind(), None);
    node.note_behind(Id(7), turn);
    assert_eq!(node.noted_behind(), Some(Id(7)));
    node.begin();
    assert_eq!(node.noted_behind(), None);
    // It comes late.
    node.note_behind(Id(7), turn);
    assert_eq!(node.noted_behind(), None);
}

#[test]
fn who_owns_the_lock_already_notes_nothing() {
    let envs = Env::new(2, 2);
    let lock = &envs[0].shared.lock;
    let (me, ahead) = (Id::new(Slot(1), 1), Id::new(Slot(0), 1));
    let node = envs[0].node(Slot(0), 1).unwrap();
    for (owner, noted) in [(ahead, Some(me)), (me, None)] {
        node.begin();
        lock.word.store(Word::new(owner, me, Id::NONE, false).0, Ordering::Relaxed);
        lock.note_behind(&envs[1], me, ahead);
        assert_eq!(node.noted_behind(), noted);
    }
}

/// Three in line, of whom none but the last is behind anybody if one believes `prev`.
#[test]
fn the_lock_goes_to_whom_is_noted_and_past_those_who_gave_up() {
    let envs = Env::new(4, 2);
    let lock = &envs[0].shared.lock;
    let ids: Vec<Id> = (0..4).map(|slot| Id::new(Slot(slot), 1)).collect();
    let nodes: Vec<&LockNode> = (0..4).map(|slot| envs[0].node(Slot(slot), 1).unwrap()).collect();
    let line_up = || {
        for (at, node) in nodes.iter().enumerate() {
            node.begin();
            node.prev.store(if at == 0 { 0 } else { ids[at - 1].0 }, Ordering::Relaxed);
        }
        lock.word.store(Word::new(ids[0], ids[3], Id::NONE, false).0, Ordering::Relaxed);
        for at in 1..4 {
            lock.note_behind(&envs[at], ids[at], ids[at - 1]);
        }
    };
    let hand_on = || lock.release(&envs[0], Held { node: 1, died: None });
    line_up();
    // Not looked at: the note says who it is.
    nodes[3].prev.store(0xfffff, Ordering::Relaxed);
    hand_on().unwrap();
    assert_eq!(envs[0].word(), (ids[1].0, ids[3].0, 0));
    assert_eq!(nodes[1].state.load(Ordering::Relaxed) & HINT, HINT);

    line_up();
    nodes[1].state.store(super::node::ABANDONED, Ordering::Relaxed);
    hand_on().unwrap();
    assert_eq!(envs[0].word(), (ids[2].0, ids[3].0, ids[1].0));

    line_up();
    envs[1].die();
    hand_on().unwrap();
    assert_eq!(envs[0].word().0, ids[2].0);

    // Another process wrote there.
    line_up();
    nodes[0].note_behind(Id(0xfffff), nodes[0].turn.load(Ordering::Relaxed));
    let err = hand_on().unwrap_err();
    assert!(matches!(err, Error::Incompatible { .. }), "{err}");
}
