//! Units that have come whole and wait to be run at their target, and which may run beside which.
//!
//! ```text
//!   push --> | c c X c c | -- take --> running        c  may run beside others of its sort
//!             head                        |           X  runs alone
//!                                       finish
//!   nothing runs:   the head is next
//!   an X runs:      nothing
//!   some c run:     the first c that its origin's order lets go; never one from behind an X
//! ```
//! So nobody is passed over for ever: what runs alone waits for those that came before it only.

use super::order::{Lineup, Mark};
use crate::rma::AmOrdering;
use std::collections::{HashMap, VecDeque};

/// Units looked at to find one that may run beside others: bounds what a look costs.
const LOOK_AHEAD: usize = 64;

/// Lines kept of origins that have nothing here.
const KEPT: usize = 16;

/// A unit that runs: what [`Queue::finish`] wants back.
#[derive(Debug)]
pub(crate) struct Turn {
    id: u64,
    origin: u32,
}

#[derive(Debug)]
struct Waiting<J> {
    turn: Turn,
    concurrent: bool,
    job: J,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Queue<J> {
    wanted: AmOrdering,
    waiting: VecDeque<Waiting<J>>,
    /// By origin, what of it waits or runs.
    lineups: HashMap<u32, Lineup<u64>>,
    next: u64,
    running: usize,
    /// What runs does so alone.
    alone: bool,
}

impl<J> Queue<J> {
    /// An empty one.
    pub fn new(wanted: AmOrdering) -> Queue<J> {
        Queue {
            wanted,
            waiting: VecDeque::new(),
            lineups: HashMap::new(),
            next: 0,
            running: 0,
            alone: false,
        }
    }

    /// Appends a unit of `origin`.
    pub fn push(&mut self, origin: u32, mark: Mark, concurrent: bool, job: J) {
        let id = self.next;
        self.next += 1;
        let wanted = self.wanted;
        self.lineups.entry(origin).or_insert_with(|| Lineup::new(wanted)).push(mark, id);
        self.waiting.push_back(Waiting { turn: Turn { id, origin }, concurrent, job });
    }

    /// Where the unit is that may run now, if there is one.
    fn ready(&self) -> Option<usize> {
        if self.running == 0 {
            return (!self.waiting.is_empty()).then_some(0);
        }
        if self.alone {
            return None;
        }
        let near = self.waiting.iter().take(LOOK_AHEAD);
        let mut near = near.take_while(|waiting| waiting.concurrent);
        near.position(|Waiting { turn, .. }| {
            self.lineups.get(&turn.origin).is_some_and(|line| line.is_ready(turn.id))
        })
    }

    /// Whether a unit may be run now, beside those that are.
    ///
    /// Costs a comparison for each pair of the next 64 units of an origin at most.
    pub fn may_run(&self) -> bool {
        self.ready().is_some()
    }

    /// The next unit to run, if one may be run now. To be given back by [`Queue::finish`].
    pub fn take(&mut self) -> Option<(Turn, J)> {
        let at = self.ready()?;
        let Waiting { turn, concurrent, job } = self.waiting.remove(at)?;
        self.running += 1;
        self.alone = !concurrent;
        Some((turn, job))
    }

    /// A unit has been run.
    pub fn finish(&mut self, turn: Turn) {
        self.running -= 1;
        self.alone = false;
        if let Some(line) = self.lineups.get_mut(&turn.origin) {
            line.remove(turn.id);
            // Of few origins they stay, to spare their making.
            if line.is_empty() && self.lineups.len() > KEPT {
                self.lineups.remove(&turn.origin);
            }
        }
    }

    /// What waits of `origin`, which is gone, in order: it will not run.
    pub fn died(&mut self, origin: u32) -> Vec<J> {
        self.lineups.remove(&origin);
        let all = std::mem::take(&mut self.waiting);
        let (gone, stay): (VecDeque<_>, _) = all.into_iter().partition(|w| w.turn.origin == origin);
        self.waiting = stay;
        gone.into_iter().map(|waiting| waiting.job).collect()
    }

    /// All that waits, in order: it will not run.
    pub fn clear(&mut self) -> Vec<J> {
        self.lineups.clear();
        self.waiting.drain(..).map(|waiting| waiting.job).collect()
    }

    /// Whether something of `origin` waits or runs.
    pub fn has(&self, origin: u32) -> bool {
        self.lineups.get(&origin).is_some_and(|line| !line.is_empty())
    }

    /// Units that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Units that run.
    pub fn running(&self) -> usize {
        self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    #[derive(Clone, Debug)]
    enum Step {
        Push { origin: u32, at: u64, concurrent: bool },
        Take,
        Finish(Index),
        Died(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (0u32..3, 0u64..4, prop::bool::weighted(0.7))
                .prop_map(|(origin, at, concurrent)| Step::Push { origin, at, concurrent }),
            5 => Just(Step::Take),
            4 => any::<Index>().prop_map(Step::Finish),
            1 => (0u32..3).prop_map(Step::Died),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// A unit as the test knows it.
    #[derive(Clone, Copy, Debug)]
    struct Unit {
        number: u64,
        origin: u32,
        at: u64,
        concurrent: bool,
    }

    /// What may be run says the module's text, unit by unit.
    fn oracle(waiting: &[Unit], running: &[Unit]) -> Option<usize> {
        let alone = running.iter().any(|unit| !unit.concurrent);
        if running.is_empty() || alone {
            return (!alone && !waiting.is_empty()).then_some(0);
        }
        let clash = |a: &Unit, b: &Unit| a.origin == b.origin && a.at == b.at;
        (0..waiting.len()).find(|&i| {
            let unit = &waiting[i];
            waiting[..=i].iter().all(|unit| unit.concurrent)
                && !waiting[..i].iter().chain(running).any(|before| clash(before, unit))
        })
    }

    proptest! {
        #[test]
        fn units_run_when_they_may_and_none_is_passed_over(steps in steps()) {
            let all = AmOrdering { same_op: true, diff_op: true, same_am: true };
            let mut queue = Queue::new(all);
            let (mut waiting, mut running) = (Vec::<Unit>::new(), Vec::<(Turn, Unit)>::new());
            for (number, step) in (0u64..).zip(steps) {
                match step {
                    Step::Push { origin, at, concurrent } => {
                        let unit = Unit { number, origin, at, concurrent };
                        let mark = Mark { message: number, handler: 1, at: 8 * at, span: 8 };
                        queue.push(origin, mark, concurrent, unit);
                        waiting.push(unit);
                    }
                    Step::Take => {
                        let beside: Vec<Unit> = running.iter().map(|(_, unit)| *unit).collect();
                        let want = oracle(&waiting, &beside);
                        prop_assert_eq!(queue.may_run(), want.is_some());
                        let taken = queue.take();
                        let number = taken.as_ref().map(|(_, unit)| unit.number);
                        prop_assert_eq!(number, want.map(|at| waiting[at].number));
                        if let Some(at) = want {
                            waiting.remove(at);
                        }
                        running.extend(taken);
                    }
                    Step::Finish(which) if !running.is_empty() => {
                        let (turn, _) = running.swap_remove(which.index(running.len()));
                        queue.finish(turn);
                    }
                    Step::Died(origin) => {
                        let gone: Vec<u64> = queue.died(origin).iter().map(|u| u.number).collect();
                        let (theirs, stay) = waiting.iter().partition(|u| u.origin == origin);
                        waiting = stay;
                        let theirs: Vec<Unit> = theirs;
                        let want: Vec<u64> = theirs.iter().map(|unit| unit.number).collect();
                        prop_assert_eq!(gone, want);
                        // What still runs of it holds nobody back: it sends nothing more.
                        running.iter_mut().for_each(|(_, unit)| {
                            if unit.origin == origin {
                                unit.at = u64::MAX;
                            }
                        });
                    }
                    Step::Finish(_) => {}
                }
                prop_assert_eq!((queue.len(), queue.running()), (waiting.len(), running.len()));
            }
            // All of it gets its turn.
            for (turn, _) in running {
                queue.finish(turn);
            }
            for unit in waiting {
                let (turn, next) = queue.take().expect("the head may run");
                prop_assert_eq!(next.number, unit.number);
                queue.finish(turn);
            }
            prop_assert!((0..3).all(|origin| !queue.has(origin)));
        }
    }

    #[test]
    fn who_runs_alone_is_not_passed_by_those_who_came_later() {
        let mut queue = Queue::new(AmOrdering { same_op: true, diff_op: true, same_am: true });
        let mark = |message| Mark { message, handler: 1, at: 8 * message, span: 8 };
        for (number, concurrent) in [(0, true), (1, false), (2, true), (3, true)] {
            queue.push(number as u32, mark(number), concurrent, number);
        }
        let (first, _) = queue.take().unwrap();
        assert!(queue.take().is_none(), "the second one waits to be alone");
        queue.finish(first);
        let (second, 1) = queue.take().unwrap() else { panic!("the second one is next") };
        assert!(queue.take().is_none(), "it is alone");
        queue.finish(second);
        let beside = [queue.take(), queue.take()].map(|taken| taken.unwrap().1);
        assert_eq!(beside, [2, 3]);
    }
}
