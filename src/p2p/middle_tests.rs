//! Messages of middle size that cross: one of two sides finds out which way they go, the other one goes that way, too,
//! and what a side does by itself would tell of neither.

use super::judge::{Drained, Judge};
use super::middle::{Asked, Timed, Turns, Verdict, Way};
use proptest::prelude::*;
use std::collections::VecDeque;

const CLASS: usize = 4;
const BYTES: usize = 64 << 10;

/// What one copy takes, in nanoseconds.
#[derive(Clone, Copy)]
struct Costs {
    filling: u64,
    emptying: u64,
    kernel: u64,
}

#[derive(Default)]
struct Side {
    turns: Turns,
    judge: Judge,
    /// Verdicts on their way back, which are seen so many messages later.
    verdicts: VecDeque<Option<Verdict>>,
    now: u64,
}

impl Side {
    /// Which way its next one goes, as [`lend`](super::lend) says.
    fn way(&mut self, leads: bool) -> Way {
        match self.judge.sent(CLASS) || leads {
            true => self.turns.next(),
            false if self.judge.follows_announced(CLASS) => Way::Announced,
            false => Way::Lent(Timed::No),
        }
    }

    /// Copies one that has come: what it says of it.
    fn receive(&mut self, way: Way, leads: bool, costs: Costs) -> Option<Verdict> {
        let both_ways = self.judge.got(CLASS);
        if !leads {
            self.judge.saw(CLASS, way == Way::Announced);
        }
        let began = self.now;
        let Way::Lent(timed) = way else {
            self.now += costs.kernel;
            self.judge.announced(CLASS, BYTES, costs.kernel);
            return None;
        };
        let asked = Asked::read(timed.note(costs.filling))?;
        let by_kernel = (asked.counts && self.judge.is_curious(CLASS)).then_some(costs.kernel);
        self.now += by_kernel.unwrap_or(0) + costs.emptying;
        let (bytes, awaited, ended) = (BYTES, true, self.now);
        let it = Drained { bytes, began, ended, awaited, both_ways, by_kernel };
        self.judge.judge(CLASS, asked, it)
    }
}

/// So many rounds of so many messages both ways: how many of each side's are announced.
fn run(sides: &mut [Side; 2], rounds: usize, many: usize, costs: Costs) -> [usize; 2] {
    let mut announced = [0; 2];
    for _ in 0..rounds {
        // Each side sends all of them before it receives any.
        let mut ways = [vec![], vec![]];
        for (i, side) in sides.iter_mut().enumerate() {
            for _ in 0..many {
                let way = side.way(i == 0);
                announced[i] += usize::from(way == Way::Announced);
                side.now += if way == Way::Announced { 0 } else { costs.filling };
                ways[i].push(way);
            }
        }
        for i in 0..2 {
            for way in std::mem::take(&mut ways[1 - i]) {
                let verdict = sides[i].receive(way, i == 0, costs);
                sides[1 - i].verdicts.push_back(verdict);
            }
            let old = sides[i].verdicts.len().saturating_sub(many);
            for verdict in Vec::from_iter(sides[i].verdicts.drain(..old)).into_iter().flatten() {
                sides[i].turns.note(verdict);
            }
        }
        let now = sides[0].now.max(sides[1].now);
        sides.iter_mut().for_each(|side| side.now = now);
    }
    announced
}

proptest! {
    /// Both sides go the cheaper way nearly always, also once it is another one.
    #[test]
    fn both_sides_go_the_cheaper_way(
        kernel in 4000u64..20_000, first: bool, many in 8usize..65, dear in 100u64..400, cheap in 5u64..40,
    ) {
        let mut sides = <[Side; 2]>::default();
        for announce in [first, !first, first] {
            let copy = kernel * if announce { dear } else { cheap } / 100;
            let costs = Costs { filling: copy, emptying: copy, kernel };
            run(&mut sides, 20_000 / many, many, costs);
            let rounds = 10_000 / many;
            for went in run(&mut sides, rounds, many, costs) {
                let right = if announce { went } else { rounds * many - went };
                prop_assert!(right > rounds * many / 100 * 85, "{right} of {}", rounds * many);
            }
        }
    }

    /// Where the kernel is clearly faster from the beginning, none has to be tried: the first verdicts say so.
    #[test]
    fn what_is_clear_is_not_tried_first(copy in 10_000u64..40_000, many in 8usize..65) {
        let mut sides = <[Side; 2]>::default();
        let costs = Costs { filling: copy, emptying: copy, kernel: copy / 2 };
        let count = (144 + 3 * many).div_ceil(many);
        run(&mut sides, count, many, costs);
        let went = run(&mut sides, 1000 / many, many, costs);
        prop_assert!(went.iter().all(|&went| went == 1000 / many * many), "{went:?}");
    }

    /// The side that follows has a way of its own again once nothing comes back.
    #[test]
    fn who_gets_nothing_finds_out_by_itself(copy in 3000u64..20_000) {
        let mut sides = <[Side; 2]>::default();
        let cheap = Costs { filling: copy, emptying: copy, kernel: copy / 3 };
        run(&mut sides, 100, 64, cheap);
        let dear = Costs { kernel: 5 * copy, ..cheap };
        let [first, second] = &mut sides;
        let mut announced = 0;
        for i in 0..40_000 {
            let way = second.way(false);
            announced += u32::from(i >= 30_000 && way == Way::Announced);
            first.receive(way, true, dear).into_iter().for_each(|verdict| second.turns.note(verdict));
        }
        prop_assert!(announced < 1500, "{announced} of 10000 announced");
    }
}
