//! When an origin may access a part itself: not before operations could be performed there.

use super::net::{W, World};
use crate::rma::runtime::{FenceFlags, Issuing, Limits, LockKind, Trouble, WindowId};
use std::task::Poll;

const EACH: [Issuing; 3] = [Issuing::Eager, Issuing::Adaptive, Issuing::Delayed];

/// The least of everything with which a lock is open before it is granted.
fn tiny(issuing: Issuing) -> Limits {
    let least = Limits { targets: 2, operations: 2, outstanding: 1, ..Limits::default() };
    Limits { origins: 1, slots: 1, visits: 1, small: 64, issuing, ..least }
}

fn ask(world: &mut World, rank: u32, target: u32) -> Poll<Result<(), Trouble>> {
    world.call(rank, |engine, port| engine.reach(port, W, target))
}

fn reach(world: &mut World, rank: u32, target: u32) {
    world.finish(rank, |engine, port| engine.reach(port, W, target)).unwrap();
}

/// It stays pending whatever arrives.
fn waits(world: &mut World, rank: u32, target: u32) {
    for _ in 0..30 {
        assert!(ask(world, rank, target).is_pending(), "{rank} reaches {target} too early");
        world.sweep();
    }
}

#[test]
fn without_an_epoch_nothing_is_reached() {
    let mut world = World::new(2, 1, 1, &Limits::default(), &[W]);
    assert!(matches!(ask(&mut world, 0, 1), Poll::Ready(Err(Trouble::Misuse(_)))));
    assert!(matches!(
        world.call(0, |engine, port| engine.reach(port, WindowId(77), 1)),
        Poll::Ready(Err(Trouble::Misuse(_)))
    ));
    world.lock(0, 1, LockKind::Shared);
    assert!(matches!(ask(&mut world, 0, 0), Poll::Ready(Err(Trouble::Misuse(_)))));
    world.unlock(0, 1).unwrap();
}

#[test]
fn a_locked_part_is_reached_with_the_grant() {
    for issuing in EACH {
        let mut world = World::new(3, 1, 1, &tiny(issuing), &[W]);
        world.lock(1, 2, LockKind::Exclusive);
        reach(&mut world, 1, 2);
        world.lock(0, 2, LockKind::Exclusive);
        waits(&mut world, 0, 2);
        world.unlock(1, 2).unwrap();
        reach(&mut world, 0, 2);
        // And is given back without an operation.
        world.unlock(0, 2).unwrap();
        world.lock(1, 2, LockKind::Exclusive);
        reach(&mut world, 1, 2);
        world.unlock(1, 2).unwrap();
        world.settle();
    }
}

#[test]
fn lock_all_takes_what_it_reaches_however_few_objects_there_are() {
    const SIZE: u32 = 20;
    for issuing in EACH {
        let mut world = World::new(SIZE, 1, 3, &tiny(issuing), &[W]);
        world.lock(1, 7, LockKind::Exclusive);
        reach(&mut world, 1, 7);
        world.finish(0, |engine, port| engine.lock_all(port, W, false)).unwrap();
        waits(&mut world, 0, 7);
        world.unlock(1, 7).unwrap();
        (0..SIZE).for_each(|target| reach(&mut world, 0, target));
        (0..SIZE).for_each(|target| assert!(ask(&mut world, 0, target).is_ready()));
        world.lock(1, 9, LockKind::Exclusive);
        waits(&mut world, 1, 9);
        world.finish(0, |engine, port| engine.unlock_all(port, W)).unwrap();
        reach(&mut world, 1, 9);
        world.unlock(1, 9).unwrap();
        world.settle();
    }
}

#[test]
fn a_part_of_a_group_is_reached_when_it_is_posted() {
    for issuing in EACH {
        let mut world = World::new(3, 1, 1, &tiny(issuing), &[W]);
        for _ in 0..3 {
            world.finish(0, |engine, _| engine.start(W, &[1, 2], false)).unwrap();
            waits(&mut world, 0, 1);
            world.finish(1, |engine, port| engine.post(port, W, &[0], false)).unwrap();
            reach(&mut world, 0, 1);
            waits(&mut world, 0, 2);
            world.finish(2, |engine, port| engine.post(port, W, &[0], false)).unwrap();
            reach(&mut world, 0, 2);
            world.finish(0, |engine, port| engine.complete(port, W)).unwrap();
            for target in [1, 2] {
                world.finish(target, |engine, port| engine.wait(port, W)).unwrap();
            }
        }
        world.settle();
    }
}

/// Who lives may never post, because it has heard of the death.
#[test]
fn a_death_in_the_group_ends_the_wait_for_posts() {
    let mut world = World::new(3, 1, 1, &Limits::default(), &[W]);
    world.finish(0, |engine, _| engine.start(W, &[1, 2], false)).unwrap();
    waits(&mut world, 0, 1);
    world.kill(2, &[W]);
    let ended = world.finish(0, |engine, port| engine.reach(port, W, 1));
    assert_eq!(ended, Err(Trouble::Dead(2)));
}

/// With the large team's protocol, and the small one's.
#[test]
fn a_part_is_reached_when_all_have_ended_the_fence_before() {
    for issuing in EACH {
        for reduce_teams in [0, 100] {
            let limits = Limits { reduce_teams, ..tiny(issuing) };
            let mut world = World::new(4, 1, 1, &limits, &[W]);
            let flags = FenceFlags::default();
            for rank in 0..3 {
                let begun = world.call(rank, |engine, port| engine.fence(port, W, flags));
                assert!(begun.is_ready());
            }
            waits(&mut world, 0, 1);
            world.finish(3, |engine, port| engine.fence(port, W, flags)).unwrap();
            reach(&mut world, 0, 1);
            for _ in 0..4 {
                fence(&mut world, flags, reduce_teams > 0);
                reach(&mut world, 0, 1);
            }
        }
    }
}

/// Everybody ends its fence epoch.
fn fence(world: &mut World, flags: FenceFlags, small: bool) {
    let mut over = [false; 4];
    for _ in 0..1000 {
        for rank in 0..4u32 {
            if over[rank as usize] {
                continue;
            }
            let fenced = world.call(rank, |engine, port| engine.fence(port, W, flags));
            // The others' parts may still get operations of the epoch before, unless all have been
            // acknowledged.
            if small && fenced.is_ready() && over == [false; 4] {
                let early = ask(world, rank, (rank + 1) % 4);
                assert!(early.is_pending(), "others have not ended it");
            }
            over[rank as usize] = fenced.is_ready();
        }
        world.sweep();
        if over == [true; 4] {
            return;
        }
    }
    panic!("the fence does not end: {over:?}");
}
