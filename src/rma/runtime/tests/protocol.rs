//! What goes over the wire, case by case.

use super::net::{Action, W, World};
use crate::rma::runtime::{
    FenceFlags, Handled, Issuing, Limits, LockFlags, LockKind, Message, Trouble,
};
use std::task::Poll;

fn world(size: u32, limits: &Limits) -> World {
    World::new(size, 1 << 20, 1, limits, &[W])
}

fn with(issuing: Issuing) -> Limits {
    Limits { issuing, ..Limits::default() }
}

#[test]
fn one_short_operation_under_a_lock_is_one_message_there_and_one_back() {
    for (issuing, requests, replies) in
        [(Issuing::Adaptive, 1, 1), (Issuing::Delayed, 1, 1), (Issuing::Eager, 3, 2)]
    {
        let mut world = world(2, &with(issuing));
        world.lock(0, 1, LockKind::Exclusive);
        world.finish_operate(0, 1, Action::Put, (0, 9));
        world.unlock(0, 1).unwrap();
        assert_eq!(world.net.sent, [requests, replies], "{issuing:?}");
        assert_eq!(world.net.part(1, W).cells[0], 9);
        // A get is answered by its data alone.
        world.lock(0, 1, LockKind::Shared);
        let token = world.finish_operate(0, 1, Action::Get, (0, 0)).unwrap();
        world.unlock(0, 1).unwrap();
        assert_eq!(world.net.results[0][&token], Ok(9));
        if issuing != Issuing::Eager {
            assert_eq!(world.net.sent, [2, 2]);
        }
        world.settle();
    }
}

#[test]
fn a_few_operations_take_a_query_and_carry_the_unlock() {
    let mut world = world(2, &with(Issuing::Adaptive));
    world.lock(0, 1, LockKind::Exclusive);
    for value in 1..=4 {
        world.finish_operate(0, 1, Action::Put, (0, value));
        assert_eq!(world.net.sent, [0, 0], "nothing goes before the end");
    }
    world.unlock(0, 1).unwrap();
    // Query and four operations; grant and one acknowledgement.
    assert_eq!(world.net.sent, [5, 2]);
    assert_eq!(world.total(|c| c.piggybacked), 1);
    world.settle();
}

#[test]
fn many_operations_become_eager_but_the_last_stays() {
    let mut world = world(2, &Limits { eager_operations: 8, ..with(Issuing::Adaptive) });
    world.lock(0, 1, LockKind::Exclusive);
    for value in 1..=20 {
        world.finish_operate(0, 1, Action::Put, (0, value));
        world.sweep();
    }
    assert_eq!(world.performed(0, 1, W), 19);
    world.unlock(0, 1).unwrap();
    assert_eq!(world.performed(0, 1, W), 20);
    assert_eq!(world.total(|c| c.piggybacked), 1);
    assert_eq!(world.net.sent[0], 21, "the query and the operations");
    world.settle();
}

#[test]
fn speculation_is_performed_queued_or_discarded() {
    // Figure 3.7: performed.
    let limits = Limits { operations: 8, ..with(Issuing::Eager) };
    let mut world = world(4, &limits);
    world.lock(0, 2, LockKind::Exclusive);
    world.finish_operate(0, 2, Action::Put, (0, 1));
    assert_eq!(world.total(|c| c.speculated), 1);
    world.sweep();
    assert_eq!(world.performed(0, 2, W), 1);
    // Queued: of each as many as it may keep itself, four altogether.
    for rank in [1, 3] {
        world.lock(rank, 2, LockKind::Exclusive);
        for value in 2..=4 {
            world.finish_operate(rank, 2, Action::Put, (0, value));
        }
        world.sweep();
    }
    assert_eq!(world.performed(1, 2, W), 0);
    assert_eq!(world.engines[2].shared.pools.held, 4);
    // Discarded: the last two, which go again later.
    assert_eq!(world.engines[2].counters().operations_discarded, 2);
    // Who waits keeps no more.
    let more = world.operate(1, W, 2, Action::Put, (0, 5), 0);
    assert!(more.is_pending());
    for rank in [0, 1, 3] {
        world.unlock(rank, 2).unwrap();
    }
    assert_eq!(world.net.part(2, W).cells[0], 4);
    assert_eq!((world.performed(1, 2, W), world.performed(3, 2, W)), (3, 3));
    world.settle();
}

#[test]
fn a_query_without_room_stands_in_line_all_the_same() {
    let limits = Limits { origins: 1, ..with(Issuing::Eager) };
    let mut world = world(4, &limits);
    for rank in 0..3 {
        world.lock(rank, 3, LockKind::Exclusive);
        world.finish_operate(rank, 3, Action::Add, (0, 1));
        world.sweep();
    }
    assert_eq!(world.engines[3].counters().queries_crowded, 1);
    let asked = world.net.sent[0];
    for rank in 0..3 {
        world.unlock(rank, 3).unwrap();
    }
    assert_eq!(world.net.part(3, W).cells[0], 3);
    // Three unlocks, one of them on the operation that was not kept: nobody has asked again.
    assert_eq!(world.net.sent[0], asked + 3);
    world.settle();
}

#[test]
fn lock_all_locks_who_is_used_until_objects_run_out() {
    let size = 8;
    let limits = Limits { targets: 4, ..with(Issuing::Eager) };
    let mut world = world(size, &limits);
    world.finish(0, |engine, port| engine.lock_all(port, W, false)).unwrap();
    for target in 1..4 {
        world.finish_operate(0, target, Action::Put, (0, 7));
    }
    let holders =
        |world: &World, rank: usize| world.engines[rank].windows[&W].queries.holders().1.len();
    world.sweep();
    assert_eq!((1..8).map(|rank| holders(&world, rank)).sum::<usize>(), 3);
    assert_eq!(world.engines[0].counters().wide_switches, 0);
    for target in 4..8 {
        world.finish_operate(0, target, Action::Put, (0, 8));
    }
    assert_eq!(world.engines[0].counters().wide_switches, 1);
    world.finish(0, |engine, port| engine.flush_all(port, W)).unwrap();
    for target in 1..8 {
        assert_eq!(world.performed(0, target, W), 1);
        assert_eq!(holders(&world, target as usize), 1);
    }
    // Order is kept across the change, and nothing is held in objects.
    for value in 0..50 {
        world.finish_operate(0, 2, Action::Put, (1, value));
    }
    assert!(world.engines[0].shared.pools.targets.used() <= 4);
    world.finish(0, |engine, port| engine.unlock_all(port, W)).unwrap();
    world.settle();
    assert_eq!((0..8).map(|rank| holders(&world, rank)).sum::<usize>(), 0);
}

/// All ranks fence, each as often as it takes.
fn fence(world: &mut World, flags: FenceFlags) {
    let mut open: Vec<u32> = (0..world.net.size).collect();
    for _ in 0..1000 {
        open.retain(|rank| {
            let answer = world.call(*rank, |engine, port| engine.fence(port, W, flags));
            if let Poll::Ready(result) = answer {
                result.unwrap();
            }
            answer.is_pending()
        });
        if open.is_empty() {
            return;
        }
        world.sweep();
    }
    panic!("a fence never ends");
}

#[test]
fn a_fence_of_a_small_team_costs_one_reduce_scatter_of_a_large_one_two_barriers() {
    let size = 8u64;
    let rounds = 3;
    for (reduce, issuing) in
        [(64, Issuing::Adaptive), (64, Issuing::Eager), (1, Issuing::Adaptive), (1, Issuing::Eager)]
    {
        let mut world = world(size as u32, &Limits { reduce_teams: reduce, ..with(issuing) });
        fence(&mut world, FenceFlags::default());
        let opening = world.net.sent;
        for rank in 0..size as u32 {
            world.finish_operate(rank, (rank + 1) % 8, Action::Put, (0, 5));
        }
        fence(&mut world, FenceFlags { no_succeed: true, ..FenceFlags::default() });
        world.sweep();
        let [requests, replies] = world.net.sent;
        let barrier = size * rounds;
        match (reduce > 1, issuing) {
            // Nothing but the reduce-scatter and the operations, which carry the decrements.
            (true, Issuing::Adaptive) => {
                assert_eq!(opening, [0, 0]);
                assert_eq!([requests, replies], [size, barrier]);
            }
            // The opening barrier, too, and decrements of their own; no acknowledgement.
            (true, _) => assert_eq!([requests, replies], [2 * size, 2 * barrier]),
            // Two barriers, and an acknowledgement for each target.
            (false, Issuing::Adaptive) => {
                assert_eq!([requests, replies], [size, 2 * barrier + size]);
            }
            (false, _) => {
                assert_eq!([requests, replies], [2 * size, 2 * barrier + size]);
            }
        }
        assert_eq!(world.total(|c| c.performed), size);
        world.settle();
    }
}

#[test]
fn the_closing_barrier_opens_the_next_epoch() {
    let mut world = world(8, &Limits { reduce_teams: 1, ..with(Issuing::Eager) });
    fence(&mut world, FenceFlags::default());
    fence(&mut world, FenceFlags::default());
    world.sweep();
    let before = world.net.sent;
    fence(&mut world, FenceFlags::default());
    assert_eq!(world.net.sent, [before[0], before[1] + 24], "one barrier from fence to fence");
}

#[test]
fn complete_rides_on_the_last_operation() {
    let mut world = world(3, &with(Issuing::Adaptive));
    world.finish(1, |engine, port| engine.post(port, W, &[0], false)).unwrap();
    world.finish(2, |engine, port| engine.post(port, W, &[0], false)).unwrap();
    world.finish(0, |engine, _| engine.start(W, &[1, 2], false)).unwrap();
    for value in 0..3 {
        world.finish_operate(0, 1, Action::Put, (0, value));
    }
    assert!(world.call(1, |engine, port| engine.wait(port, W)).is_pending());
    world.finish(0, |engine, port| engine.complete(port, W)).unwrap();
    world.finish(1, |engine, port| engine.wait(port, W)).unwrap();
    world.finish(2, |engine, port| engine.wait(port, W)).unwrap();
    // Three operations and one end of its own, for the target without operations; two posts.
    assert_eq!(world.net.sent, [4, 2]);
    assert_eq!(world.performed(0, 1, W), 3);
    world.settle();
}

#[test]
fn a_refused_operation_is_told_by_what_completes_it() {
    let mut world = world(2, &with(Issuing::Adaptive));
    world.lock(0, 1, LockKind::Shared);
    world.finish_operate(0, 1, Action::Fail, (0, 0));
    world.finish_operate(0, 1, Action::Put, (0, 3));
    let trouble = world.finish(0, |engine, port| engine.flush(port, W, 1)).unwrap_err();
    assert!(matches!(trouble, Trouble::Remote(1, fault) if fault.code == 7));
    world.unlock(0, 1).unwrap();
    assert_eq!(world.net.part(1, W).cells[0], 3);
    world.settle();
}

#[test]
fn what_does_not_fit_the_state_is_refused() {
    let mut world = world(2, &Limits::default());
    let misuse = |answer: Poll<Result<(), Trouble>>| {
        assert!(matches!(answer, Poll::Ready(Err(Trouble::Misuse(_)))), "{answer:?}");
    };
    misuse(world.operate(0, W, 1, Action::Put, (0, 0), 0).map(|r| r.map(|_| ())));
    misuse(world.call(0, |engine, port| engine.unlock(port, W, 1)));
    misuse(world.call(0, |engine, port| engine.complete(port, W)));
    misuse(world.call(0, |engine, port| engine.wait(port, W)));
    misuse(world.call(0, |engine, port| engine.unlock_all(port, W)));
    misuse(world.call(0, |engine, _| engine.start(W, &[1, 1], false)));
    world.lock(0, 1, LockKind::Shared);
    let again = world
        .finish(0, |engine, port| engine.lock(port, W, 1, LockKind::Shared, LockFlags::default()));
    misuse(Poll::Ready(again));
    misuse(world.operate(0, W, 2, Action::Put, (0, 0), 0).map(|r| r.map(|_| ())));
    world.unlock(0, 1).unwrap();
    world.settle();
}

#[test]
fn a_million_operations_to_a_slow_target_take_no_memory() {
    for issuing in [Issuing::Eager, Issuing::Adaptive, Issuing::Delayed] {
        let limits = Limits { operations: 16, targets: 2, outstanding: 32, ..with(issuing) };
        let mut world = World::new(2, 8, 1, &limits, &[W]);
        let bytes = world.engines[0].pool_bytes();
        world.lock(0, 1, LockKind::Shared);
        let (mut given, mut turns) = (0, 0u64);
        let wanted = 350_000;
        while given < wanted {
            match world.operate(0, W, 1, Action::Put, (0, given), 0) {
                Poll::Ready(result) => {
                    result.unwrap();
                    given += 1;
                }
                Poll::Pending => {
                    turns += 1;
                    // The target looks only now and then.
                    world.net.asleep[1] = !turns.is_multiple_of(5);
                    world.sweep();
                }
            }
        }
        world.net.asleep[1] = false;
        world.unlock(0, 1).unwrap();
        assert_eq!(world.performed(0, 1, W), wanted);
        assert!(world.engines[0].counters().most_outstanding <= 32);
        assert!(world.engines[0].counters().blocked > 1000);
        assert_eq!(world.engines[0].pool_bytes(), bytes);
        world.settle();
    }
}

/// Chapter 4's fence would wait here for the others' closing fence.
#[test]
fn a_fence_epoch_opens_without_the_others_calling_anything() {
    let limits = Limits { operations: 2, targets: 1, ..with(Issuing::Adaptive) };
    for reduce_teams in [64, 0] {
        let mut world = world(4, &Limits { reduce_teams, ..limits.clone() });
        fence(&mut world, FenceFlags::default());
        for value in 0..50 {
            world.finish_operate(0, 1 + value as u32 % 3, Action::Put, (0, value));
        }
        world.sweep();
        assert!((1..4).map(|to| world.performed(0, to, W)).sum::<u64>() >= 48);
        fence(&mut world, FenceFlags { no_succeed: true, ..FenceFlags::default() });
        assert_eq!((1..4).map(|to| world.performed(0, to, W)).sum::<u64>(), 50);
        world.settle();
    }
}

#[test]
fn a_refused_operation_is_told_by_the_fence() {
    for reduce_teams in [64, 0] {
        let mut world = world(2, &Limits { reduce_teams, ..with(Issuing::Eager) });
        fence(&mut world, FenceFlags::default());
        world.finish_operate(0, 1, Action::Fail, (0, 0));
        let mut told = [false; 2];
        let mut open = vec![0, 1];
        let last = FenceFlags { no_precede: false, no_succeed: true };
        for _ in 0..100 {
            // The target is served first, so that its word is here before the fence ends.
            world.sweep();
            open.retain(|rank| {
                match world.call(*rank, |engine, port| engine.fence(port, W, last)) {
                    Poll::Ready(result) => told[*rank as usize] = result.is_err(),
                    Poll::Pending => return true,
                }
                false
            });
        }
        assert!(open.is_empty());
        assert_eq!(told, [true, false]);
        world.settle();
    }
}

/// How windows are driven whose epochs are somebody else's business.
#[test]
fn an_unchecked_lock_all_serves_for_ever() {
    let limits = Limits { targets: 2, ..with(Issuing::Adaptive) };
    let mut world = world(5, &limits);
    world.finish(0, |engine, port| engine.lock_all(port, W, true)).unwrap();
    for round in 0..20 {
        for target in 0..5 {
            world.finish_operate(0, target, Action::Put, (0, round));
            if round % 3 == 0 {
                world.finish(0, |engine, port| engine.flush(port, W, target)).unwrap();
                assert_eq!(world.performed(0, target, W), round + 1);
            }
        }
    }
    // Nobody waits for its object now.
    world.finish(0, |engine, port| engine.flush_all(port, W)).unwrap();
    world.finish_operate(0, 3, Action::Put, (0, 77));
    assert!(!world.engines[0].pushed(W, 3));
    world.call(0, |engine, port| engine.push(port, W, 3));
    assert!(world.engines[0].pushed(W, 3));
    let token = world.finish_operate(0, 4, Action::Get, (0, 0)).unwrap();
    world.kill(4, &[W]);
    assert_eq!(world.net.results[0][&token], Err(Trouble::Dead(4)));
    let dead = world.call(0, |engine, port| engine.flush(port, W, 4));
    assert_eq!(dead, Poll::Ready(Err(Trouble::Dead(4))));
    world.finish_operate(0, 2, Action::Put, (0, 1));
    world.finish(0, |engine, port| engine.flush(port, W, 2)).unwrap();
    assert_eq!(world.total(|c| c.wide_switches), 0);
    world.call(0, |engine, port| engine.remove_window(port, W));
    world.settle();
}

#[test]
fn data_that_was_never_asked_for_fails_when_the_window_goes() {
    let mut world = world(2, &with(Issuing::Adaptive));
    world.lock(0, 1, LockKind::Shared);
    let token = world.finish_operate(0, 1, Action::Get, (0, 0)).unwrap();
    assert_eq!(world.net.sent, [0, 0], "it is kept");
    world.call(0, |engine, port| engine.remove_window(port, W));
    assert!(matches!(world.net.results[0][&token], Err(Trouble::Misuse(_))));
    world.settle();
}

#[test]
fn locks_work_while_answers_of_a_fence_that_a_death_ended_are_on_their_way() {
    let mut world = world(3, &with(Issuing::Eager));
    let flags = FenceFlags::default();
    let mut open = [false; 3];
    while open != [true; 3] {
        for rank in 0..3 {
            if !open[rank as usize] {
                let done = world.call(rank, |engine, port| engine.fence(port, W, flags));
                open[rank as usize] = done.is_ready();
            }
        }
        world.sweep();
    }
    world.sweep();
    world.finish_operate(0, 1, Action::Put, (0, 5));
    assert_eq!(world.engines[0].outstanding(), 1, "sent, not answered");
    world.kill(2, &[W]);
    world.lock(0, 1, LockKind::Exclusive);
    world.finish_operate(0, 1, Action::Put, (1, 6));
    world.unlock(0, 1).unwrap();
    assert_eq!(world.net.part(1, W).cells[..2], [5, 6]);
    world.settle();
}

#[test]
fn who_has_done_an_operation_cannot_discard_it() {
    let mut world = world(2, &with(Issuing::Eager));
    world.lock(0, 1, LockKind::Exclusive);
    world.finish_operate(0, 1, Action::Put, (0, 1));
    let lie = |world: &mut World, message: &Message<'_>| {
        let handled = world.call(0, |engine, port| engine.handle(port, W, 1, message));
        assert_eq!(handled, Handled::Done);
    };
    lie(&mut world, &Message::Answer { seq: 1, acked: true, request: None, result: Ok(&[]) });
    lie(&mut world, &Message::Discarded { from: 1 });
    assert_eq!(world.engines[0].counters().strays, 1);
    assert_eq!(world.engines[0].outstanding(), 0);
    world.unlock(0, 1).unwrap();
    assert_eq!(world.engines[0].outstanding(), 0);
}
