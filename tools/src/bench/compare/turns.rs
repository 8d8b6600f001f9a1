//! Contestants in turn, on a machine that changes while they are measured.
//!
//! ```text
//! turn       one contestant, the sizes of a workload or a few: a second or two, since cores have been seen to
//!            be near each other and far every few seconds; the machine is looked at before and after
//! rounds     each contestant a turn, so many times
//! further    as long as there is time: whoever has been measured least in the state in which the machine is
//!            now, until all have been in more than half as many rounds in one state
//! ```
//!
//! Who has a further turn is decided by the state alone, before the turn, never by what was measured.

use super::cell::Cell;
use super::lines::{Figure, Outcome};
use super::machine::{Machine, State};
use super::peer::{Peer, Setting};
use super::rounds::Effort;
use super::workload::Task;
use hither::Result;
use std::time::{Duration, Instant};

/// Who is measured, and with what.
#[derive(Clone, Copy)]
pub struct Contestant<'a> {
    /// Who.
    pub peer: &'a dyn Peer,
    /// Its setting.
    pub setting: &'a Setting,
}

/// Measures `tasks` on all contestants, in so many rounds as `effort` says, and for up to `time` in further
/// turns: a row of cells for each contestant, one for each task. What has computed something else than the
/// first contestant has no figure.
pub fn measure(
    contestants: &[Contestant<'_>],
    tasks: &[Task],
    (effort, crowded): (Effort, bool),
    machine: &mut Machine,
    time: Duration,
) -> Vec<Vec<Cell>> {
    let mut table = Table {
        contestants,
        tasks,
        effort,
        crowded,
        cells: vec![vec![Cell::default(); tasks.len()]; contestants.len()],
    };
    for round in 0..effort.rounds {
        // Who goes first changes: nobody always profits from another's warmth.
        for at in 0..contestants.len() {
            table.turn((at + round) % contestants.len(), machine);
        }
    }
    let start = Instant::now();
    while start.elapsed() < time && !is_even(&table.cells, effort.rounds) {
        let Some(next) = next(&table.cells, machine.now()) else { break };
        table.turn(next, machine);
        machine.further += 1;
    }
    machine.spend(start.elapsed());
    table.cells
}

struct Table<'a> {
    contestants: &'a [Contestant<'a>],
    tasks: &'a [Task],
    effort: Effort,
    crowded: bool,
    cells: Vec<Vec<Cell>>,
}

impl Table<'_> {
    /// One contestant's turn, with what has not failed.
    fn turn(&mut self, at: usize, machine: &mut Machine) {
        let works = |&of: &usize| self.cells[at][of].failed.is_none();
        let left: Vec<usize> = (0..self.tasks.len()).filter(works).collect();
        if left.is_empty() {
            return;
        }
        let tasks: Vec<Task> = left.iter().map(|&of| self.tasks[of]).collect();
        let Contestant { peer, setting } = self.contestants[at];
        let order = self.effort.order(&tasks, setting, self.crowded);
        let began = machine.now();
        let found = outcomes(peer.run(&order), &tasks);
        let was = machine.ended(began);
        for (task, outcome) in found {
            let Some(of) = self.tasks.iter().position(|known| *known == task) else { continue };
            let known = self.cells[0][of].proof;
            self.cells[at][of].take(proven(outcome, known), was);
        }
    }
}

/// In how many turns a contestant's row was measured in this state, if it has any figure.
fn turns_in(row: &[Cell], state: State) -> Option<usize> {
    let works = row.iter().filter(|cell| cell.failed.is_none());
    works.map(|cell| cell.rounds(state)).min()
}

/// Whether all have been measured in one state in more than half of so many rounds.
fn is_even(rows: &[Vec<Cell>], rounds: usize) -> bool {
    let often = |state| move |row: &Vec<Cell>| turns_in(row, state).is_none_or(|n| n > rounds / 2);
    State::STEADY.into_iter().any(|state| rows.iter().all(often(state)))
}

/// Who has been measured least in the state of now.
fn next(rows: &[Vec<Cell>], now: State) -> Option<usize> {
    let turns = rows.iter().enumerate().filter_map(|(at, row)| Some((turns_in(row, now)?, at)));
    turns.min().map(|(_, at)| at)
}

/// What has computed something else has no figure.
fn proven(outcome: Outcome, known: Option<u64>) -> Outcome {
    match outcome {
        Ok(Figure { proof: Some(proof), .. }) if known.is_some_and(|known| known != proof) => {
            Err(format!("it computed something else: fingerprint {proof:016x}"))
        }
        other => other,
    }
}

/// What could not even be started failed in all its tasks.
fn outcomes(result: Result<Vec<(Task, Outcome)>>, tasks: &[Task]) -> Vec<(Task, Outcome)> {
    result
        .unwrap_or_else(|error| tasks.iter().map(|&task| (task, Err(error.to_string()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured(states: &[State]) -> Cell {
        let mut cell = Cell::default();
        states.iter().for_each(|&state| cell.take(Ok(1.0.into()), state));
        cell
    }

    #[test]
    fn who_was_measured_least_in_the_state_of_now_is_next() {
        let [near, far, ..] = State::STEADY;
        let mut failed = measured(&[]);
        failed.take(Err("crashed".into()), near);
        let rows = [
            vec![measured(&[near, near, far])],
            vec![measured(&[near, State::Changing, far]), failed.clone()],
            vec![failed.clone()],
            vec![measured(&[far, near, near]), measured(&[State::Changing, far, near])],
        ];
        assert_eq!((next(&rows, near), next(&rows, far)), (Some(1), Some(0)));
        assert!(!is_even(&rows, 2) && is_even(&rows, 1));
        assert_eq!(next(&rows[2..3], near), None);
        assert!(is_even(&rows[2..3], 3));
    }

    proptest! {
        /// However the machine changes, as long as it stays for one turn now and then: no more further
        /// turns than all states would take.
        #[test]
        fn further_turns_end_with_all_in_one_state(
            states in prop::collection::vec((0usize..6, any::<bool>()), 400),
            contestants in 1usize..9,
            rounds in 1usize..8,
        ) {
            let mut rows = vec![vec![Cell::default(); 2]; contestants];
            let most = State::STEADY.len() * contestants * (rounds / 2 + 1);
            let mut steady = 0;
            for (state, stays) in states {
                if is_even(&rows, rounds) {
                    break;
                }
                let now = State::STEADY[state];
                let at = next(&rows, now).unwrap();
                let was = if stays { now } else { State::Changing };
                rows[at].iter_mut().for_each(|cell| cell.take(Ok(1.0.into()), was));
                steady += usize::from(stays);
                prop_assert!(steady <= most);
            }
            prop_assert!(is_even(&rows, rounds) || steady < most);
        }
    }
}
