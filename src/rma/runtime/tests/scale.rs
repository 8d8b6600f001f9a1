//! Hundreds of ranks, with the least of everything.

use super::net::{Action, Dice, W, World};
use crate::rma::runtime::{FenceFlags, Issuing, Limits};
use std::task::Poll;

fn few(issuing: Issuing) -> Limits {
    Limits {
        targets: 4,
        origins: 4,
        operations: 8,
        outstanding: 16,
        slots: 2,
        issuing,
        eager_operations: 4,
        ..Limits::default()
    }
}

#[test]
fn hundreds_of_ranks_fence_with_four_target_objects() {
    for (size, reduce_teams) in [(200, 1024), (200, 0)] {
        for issuing in [Issuing::Eager, Issuing::Adaptive] {
            let limits = Limits { reduce_teams, ..few(issuing) };
            let mut world = World::new(size, 4, 3, &limits, &[W]);
            world.net.fenced = vec![W];
            let mut dice = Dice::new(5);
            // Per rank: whether it is in a fence, and operations to give before the next.
            let mut left = vec![0u32; size as usize];
            let mut fences = vec![0u32; size as usize];
            let mut begun = vec![false; size as usize];
            let mut turns = 0;
            while fences.iter().any(|fences| *fences < 4) {
                for rank in 0..size {
                    let at = rank as usize;
                    if fences[at] == 4 {
                        continue;
                    }
                    if left[at] > 0 {
                        let target = dice.below(size.into()) as u32;
                        let epoch = world.net.said(rank, W).fences;
                        let given = world.operate(rank, W, target, Action::Add, (0, 1), epoch);
                        left[at] -= u32::from(given.is_ready());
                        continue;
                    }
                    if !std::mem::replace(&mut begun[at], true) {
                        let given = (0..size).map(|to| (to, world.given(rank, to, W))).collect();
                        let said = world.net.said(rank, W);
                        said.fences += 1;
                        said.given_before.push(given);
                    }
                    let last = fences[at] == 3;
                    let flags = FenceFlags { no_precede: false, no_succeed: last };
                    let answer = world.call(rank, |engine, port| engine.fence(port, W, flags));
                    if let Poll::Ready(result) = answer {
                        result.unwrap();
                        begun[at] = false;
                        fences[at] += 1;
                        left[at] = if last { 0 } else { 12 };
                    }
                }
                world.sweep();
                turns += 1;
                assert!(turns < 20_000, "fences do not end");
            }
            assert_eq!(world.total(|c| c.performed), u64::from(size) * 36);
            assert!(world.total(|c| c.clean_ups) > 1000);
            world.settle();
        }
    }
}

#[test]
fn lock_all_of_hundreds_needs_four_target_objects() {
    let size = 300;
    for issuing in [Issuing::Eager, Issuing::Adaptive, Issuing::Delayed] {
        let mut world = World::new(size, 4, 3, &few(issuing), &[W]);
        let active = [0, 7, 150];
        for rank in active {
            world.finish(rank, |engine, port| engine.lock_all(port, W, false)).unwrap();
        }
        let mut dice = Dice::new(9);
        for turn in 0..2000 {
            let target = if turn < 300 { turn } else { dice.below(size.into()) as u32 };
            for rank in active {
                world.finish_operate(rank, target, Action::Add, (0, 1));
            }
        }
        for rank in active {
            world.finish(rank, |engine, port| engine.flush_all(port, W)).unwrap();
            for target in 0..size {
                let given = world.given(rank, target, W);
                assert_eq!(world.performed(rank, target, W), given);
            }
        }
        for rank in active {
            world.finish(rank, |engine, port| engine.unlock_all(port, W)).unwrap();
        }
        assert_eq!(world.total(|c| c.wide_switches), 3);
        assert_eq!(world.net.results.iter().map(|results| results.len()).sum::<usize>(), 6000);
        world.settle();
    }
}

#[test]
fn an_engine_is_as_large_for_a_thousand_ranks_as_for_two() {
    let make = |size| World::new(size, 4, 1, &few(Issuing::Adaptive), &[]).engines.remove(0);
    let bytes = |engine: &crate::rma::runtime::Engine| engine.pool_bytes();
    assert_eq!(bytes(&make(2)), bytes(&make(100)));
    // With the default limits, what a process pays for all its packet windows together.
    let engine = crate::rma::runtime::Engine::new(Limits::default());
    assert!(engine.pool_bytes() < 1 << 20, "{}", engine.pool_bytes());
    assert!(size_of::<crate::rma::runtime::window::Window>() < 2048);
}
