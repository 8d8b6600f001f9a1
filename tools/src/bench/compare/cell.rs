//! What is known of one contestant's figure, by what the machine was like when it was measured, and which of
//! that counts.

use super::lines::{Figure, Outcome};
use super::machine::State;
use crate::bench::stats::{median, quantile};
use std::collections::BTreeMap;

/// What is known of one contestant's figure.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Of each round that counts.
    pub values: Vec<f64>,
    /// In which state of the machine the rounds that count were, if it was the same.
    pub state: Option<State>,
    /// Of each round: the machine's state, and what was measured.
    seen: Vec<(State, Figure)>,
    /// Fingerprint of what was computed.
    pub proof: Option<u64>,
    /// Why there is none (any more).
    pub failed: Option<String>,
}

impl Cell {
    /// Takes what a round gave.
    pub fn take(&mut self, outcome: Outcome, state: State) {
        match outcome {
            Ok(figure) => {
                self.seen.push((state, figure));
                self.count(None);
                self.proof = self.proof.or(figure.proof);
            }
            Err(why) => self.failed = Some(why),
        }
    }

    /// Has only the rounds in this state count, or all.
    fn count(&mut self, state: Option<State>) {
        self.state = state;
        self.values = self.counted().map(|figure| figure.value).collect();
    }

    /// Those of the rounds that count.
    fn counted(&self) -> impl Iterator<Item = &Figure> {
        let counts = |seen: &&(State, Figure)| self.state.is_none_or(|of| of == seen.0);
        self.seen.iter().filter(counts).map(|seen| &seen.1)
    }

    /// In how many rounds the machine was in this state.
    pub fn rounds(&self, state: State) -> usize {
        self.seen.iter().filter(|seen| seen.0 == state).count()
    }

    /// The figure, if every round had one.
    pub fn value(&self) -> Option<f64> {
        (self.failed.is_none() && !self.values.is_empty()).then(|| median(&self.values))
    }

    /// The limit.
    pub fn limit(&self) -> Option<f64> {
        middle(self.counted().filter_map(|figure| figure.limit))
    }

    /// The floor: the limit, if that is no other.
    pub fn floor(&self) -> Option<f64> {
        middle(self.counted().filter_map(|figure| figure.floor.or(figure.limit)))
    }

    /// Half the distance between the quartiles, as a share of the median.
    pub fn spread(&self) -> f64 {
        let middle = median(&self.values);
        let half = (quantile(&self.values, 0.75) - quantile(&self.values, 0.25)) / 2.0;
        if middle > 0.0 { half / middle } else { 0.0 }
    }
}

/// Has those rounds count in which the machine was in the same state for all contestants: in that in which
/// all have the most, of several the best. If there is none, all rounds do.
pub fn even<Of: Ord>(cells: &mut BTreeMap<Of, Cell>) {
    let measured = |cell: &&Cell| cell.failed.is_none() && !cell.seen.is_empty();
    let least = |state: State| {
        cells.values().filter(measured).map(|cell| cell.rounds(state)).min().unwrap_or(0)
    };
    let mut best = None;
    for state in State::STEADY {
        if least(state) > best.map_or(0, least) {
            best = Some(state);
        }
    }
    cells.values_mut().for_each(|cell| cell.count(best));
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(&values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread_are_of_the_rounds() {
        let mut cell = Cell::default();
        for value in [3.0, 1.0, 2.0] {
            let figure = Figure { limit: Some(10.0 * value), ..value.into() };
            cell.take(Ok(figure), State::BEST);
        }
        assert_eq!((cell.value(), cell.limit(), cell.spread()), (Some(2.0), Some(20.0), 0.25));
        assert_eq!(cell.floor(), Some(20.0), "the limit, where there is no other");
        let mut other = Cell::default();
        let figure = Figure { limit: Some(3.0), floor: Some(5.0), ..1.0.into() };
        other.take(Ok(figure), State::BEST);
        assert_eq!((other.limit(), other.floor()), (Some(3.0), Some(5.0)));
        cell.take(Err("crashed".into()), State::BEST);
        assert_eq!(cell.value(), None);
    }

    #[test]
    fn contestants_are_compared_in_the_same_state() {
        use State::Changing;
        let [near, far, _, shared, ..] = State::STEADY;
        let cell = |seen: &[(State, f64)]| {
            let mut cell = Cell::default();
            seen.iter().for_each(|&(state, value)| cell.take(Ok(value.into()), state));
            cell
        };
        let of = |a: &[(State, f64)], b: &[(State, f64)]| {
            let mut failed = cell(&[(near, 1.0)]);
            failed.take(Err("crashed".into()), far);
            let mut cells = BTreeMap::from([("a", cell(a)), ("b", cell(b)), ("c", failed)]);
            even(&mut cells);
            (cells["a"].values.clone(), cells["b"].values.clone())
        };
        // Both were near in one round, and far in two.
        let a = [(near, 1.0), (far, 5.0), (far, 6.0), (Changing, 3.0)];
        assert_eq!(of(&a, &[(near, 2.0), (near, 2.5), (far, 7.0)]).1, [2.0, 2.5]);
        assert_eq!(
            of(&a, &[(near, 2.0), (far, 8.0), (far, 7.0)]),
            (vec![5.0, 6.0], vec![8.0, 7.0])
        );
        // As many rounds in both states: the better one counts.
        let b = [(shared, 9.0), (near, 4.0)];
        assert_eq!(of(&[(near, 3.0), (shared, 1.0)], &b), (vec![3.0], vec![4.0]));
        // One was never where the other was: everything counts.
        assert_eq!(of(&a, &[(Changing, 2.0)]), (vec![1.0, 5.0, 6.0, 3.0], vec![2.0]));
    }
}
