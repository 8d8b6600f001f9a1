//! Who gets a lock when, what the next holder is told, and calls for locks that are given up.

use super::net::{Action, W, World};
use crate::rma::runtime::{FenceFlags, Issuing, Limits, LockFlags, LockKind, Trouble};
use std::task::Poll;

fn world(size: u32, limits: &Limits) -> World {
    World::new(size, 1 << 20, 1, limits, &[W])
}

fn with(issuing: Issuing) -> Limits {
    Limits { issuing, ..Limits::default() }
}

#[test]
fn the_next_holder_learns_who_died_with_the_lock() {
    let mut world = world(3, &with(Issuing::Adaptive));
    let locked = |world: &mut World, rank: u32| {
        world.lock(rank, 2, LockKind::Exclusive);
        world.finish(rank, |engine, port| engine.locked(port, W, 2))
    };
    assert_eq!(locked(&mut world, 0), Ok(None));
    world.lock(1, 2, LockKind::Exclusive);
    assert!(world.call(1, |engine, port| engine.locked(port, W, 2)).is_pending());
    world.kill(0, &[W]);
    let recovered = world.finish(1, |engine, port| engine.locked(port, W, 2));
    assert_eq!(recovered, Ok(Some(0)));
    world.unlock(1, 2).unwrap();
    assert_eq!(locked(&mut world, 1), Ok(None), "the part was repaired");
    world.unlock(1, 2).unwrap();
    world.settle();
}

#[test]
fn all_learn_who_died_with_the_lock_up_to_the_first_who_can_repair() {
    let mut world = world(5, &with(Issuing::Adaptive));
    let locked =
        |world: &mut World, rank: u32| world.finish(rank, |engine, port| engine.locked(port, W, 4));
    world.lock(0, 4, LockKind::Exclusive);
    assert_eq!(locked(&mut world, 0), Ok(None));
    // One is in line when it happens, others come later.
    world.lock(1, 4, LockKind::Shared);
    assert!(world.call(1, |engine, port| engine.locked(port, W, 4)).is_pending());
    world.kill(0, &[W]);
    world.lock(2, 4, LockKind::Shared);
    for rank in [1, 2, 1] {
        assert_eq!(locked(&mut world, rank), Ok(Some(0)), "rank {rank}, as often as it asks");
    }
    world.unlock(1, 4).unwrap();
    world.unlock(2, 4).unwrap();
    world.lock(3, 4, LockKind::Exclusive);
    assert_eq!(locked(&mut world, 3), Ok(Some(0)));
    assert_eq!(locked(&mut world, 3), Ok(Some(0)));
    world.unlock(3, 4).unwrap();
    for (rank, kind) in [(1, LockKind::Shared), (3, LockKind::Exclusive)] {
        world.lock(rank, 4, kind);
        assert_eq!(locked(&mut world, rank), Ok(None), "the part was repaired");
        world.unlock(rank, 4).unwrap();
    }
    world.settle();
}

#[test]
fn locks_are_granted_in_the_order_of_the_queries() {
    let mut world = world(7, &with(Issuing::Eager));
    let ask = |world: &mut World, rank: u32, kind: LockKind| {
        world.lock(rank, 6, kind);
        world.sweep();
    };
    let has = |world: &mut World, rank: u32| {
        world.call(rank, |engine, port| engine.locked(port, W, 6)).is_ready()
    };
    ask(&mut world, 0, LockKind::Shared);
    ask(&mut world, 1, LockKind::Exclusive);
    ask(&mut world, 2, LockKind::Shared);
    ask(&mut world, 3, LockKind::Shared);
    ask(&mut world, 4, LockKind::Exclusive);
    let held = |world: &mut World| (0..5).map(|rank| has(world, rank)).collect::<Vec<_>>();
    assert_eq!(held(&mut world), [true, false, false, false, false]);
    // A lock-all epoch does not wait behind those that wait for shared locks to go.
    world.finish(5, |engine, port| engine.lock_all(port, W, false)).unwrap();
    world.finish_operate(5, 6, Action::Put, (0, 1));
    world.sweep();
    assert_eq!(world.performed(5, 6, W), 1);
    world.finish(5, |engine, port| engine.unlock_all(port, W)).unwrap();
    let unlock = |world: &mut World, rank: u32| {
        world.unlock(rank, 6).unwrap();
        while world.sweep() {}
    };
    unlock(&mut world, 0);
    let after = |world: &mut World| (1..5).map(|rank| has(world, rank)).collect::<Vec<_>>();
    assert_eq!(after(&mut world), [true, false, false, false]);
    unlock(&mut world, 1);
    assert_eq!((2..5).map(|rank| has(&mut world, rank)).collect::<Vec<_>>(), [true, true, false]);
    unlock(&mut world, 3);
    assert!(!has(&mut world, 4));
    unlock(&mut world, 2);
    assert!(has(&mut world, 4));
    unlock(&mut world, 4);
    world.settle();
}

/// Each of two lock-all epochs has a lock that the other wants, with an exclusive query before.
#[test]
fn lock_all_epochs_do_not_wait_for_each_other_in_a_circle() {
    let mut world = world(8, &with(Issuing::Eager));
    let flush = |world: &mut World, rank: u32| {
        world.finish(rank, |engine, port| engine.flush_all(port, W)).unwrap();
    };
    for (rank, target) in [(2, 4), (3, 5)] {
        world.lock(rank, target, LockKind::Exclusive);
        world.finish(rank, |engine, port| engine.locked(port, W, target)).unwrap();
    }
    for (rank, target) in [(0, 4), (1, 5)] {
        world.finish(rank, |engine, port| engine.lock_all(port, W, false)).unwrap();
        world.finish_operate(rank, target, Action::Put, (0, 1));
        while world.sweep() {}
    }
    for (rank, target) in [(6, 4), (7, 5)] {
        world.lock(rank, target, LockKind::Exclusive);
        while world.sweep() {}
    }
    for (rank, target) in [(0, 5), (1, 4)] {
        world.finish_operate(rank, target, Action::Put, (0, 2));
        while world.sweep() {}
    }
    world.unlock(2, 4).unwrap();
    world.unlock(3, 5).unwrap();
    flush(&mut world, 0);
    flush(&mut world, 1);
    for rank in [0, 1] {
        world.finish(rank, |engine, port| engine.unlock_all(port, W)).unwrap();
    }
    world.unlock(6, 4).unwrap();
    world.unlock(7, 5).unwrap();
    world.settle();
}

#[test]
fn calls_that_were_given_up_while_they_waited_do_not_spoil_those_that_follow() {
    let mut world = world(2, &with(Issuing::Adaptive));
    let misuse = |answer: Poll<Result<(), Trouble>>| {
        assert!(matches!(answer, Poll::Ready(Err(Trouble::Misuse(_)))), "{answer:?}");
    };
    // An unlock. What comes next ends it first.
    world.lock(0, 1, LockKind::Exclusive);
    world.finish_operate(0, 1, Action::Put, (0, 1));
    assert!(world.call(0, |engine, port| engine.unlock(port, W, 1)).is_pending());
    assert!(
        world.call(0, |engine, port| engine.fence(port, W, FenceFlags::default())).is_pending()
    );
    assert!(world.call(0, |engine, port| engine.lock_all(port, W, false)).is_pending());
    world.lock(0, 1, LockKind::Exclusive);
    world.finish_operate(0, 1, Action::Put, (0, 2));
    world.unlock(0, 1).unwrap();
    assert_eq!(world.net.part(1, W).cells[0], 2);
    // A lock-all and a lock that wait for somebody else.
    world.lock(0, 1, LockKind::Exclusive);
    world.finish(0, |engine, port| engine.locked(port, W, 1)).unwrap();
    assert!(world.call(1, |engine, port| engine.lock_all(port, W, false)).is_pending());
    assert!(
        world.call(1, |engine, port| engine.fence(port, W, FenceFlags::default())).is_pending()
    );
    misuse(world.call(1, |engine, _| engine.start(W, &[0], false)));
    assert!(world.call(1, |engine, port| engine.end_given_up(port, W)).is_pending());
    assert!(
        world
            .call(1, |engine, port| engine.lock(port, W, 0, LockKind::Shared, LockFlags::default()))
            .is_pending()
    );
    world.unlock(0, 1).unwrap();
    world.finish(1, |engine, port| engine.lock_all(port, W, false)).unwrap();
    world.finish(1, |engine, port| engine.unlock_all(port, W)).unwrap();
    world.lock(0, 1, LockKind::Exclusive);
    world.finish(0, |engine, port| engine.locked(port, W, 1)).unwrap();
    let own = |world: &mut World, kind| {
        world.call(1, |engine, port| engine.lock(port, W, 1, kind, LockFlags::default()))
    };
    assert!(own(&mut world, LockKind::Shared).is_pending());
    assert!(own(&mut world, LockKind::Exclusive).is_pending());
    world.unlock(0, 1).unwrap();
    world.lock(1, 1, LockKind::Shared);
    world.unlock(1, 1).unwrap();
    // One on the own part, given up before it was granted, and then nothing of its kind.
    world.lock(0, 1, LockKind::Exclusive);
    world.finish(0, |engine, port| engine.locked(port, W, 1)).unwrap();
    assert!(own(&mut world, LockKind::Shared).is_pending());
    assert!(world.call(1, |engine, port| engine.end_given_up(port, W)).is_pending());
    world.unlock(0, 1).unwrap();
    world.finish(1, |engine, port| engine.end_given_up(port, W)).unwrap();
    world.lock(0, 1, LockKind::Exclusive);
    world.finish(0, |engine, port| engine.locked(port, W, 1)).unwrap();
    world.unlock(0, 1).unwrap();
    world.settle();
}
