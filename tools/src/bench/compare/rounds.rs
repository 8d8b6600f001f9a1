//! All contestants in turn, round by round, each with the setting that suits it best; medians and
//! spread of what came of it.

use super::lines::{Figure, Outcome};
use super::machine::{Machine, State};
use super::peer::{Order, Peer, Setting};
use super::workload::{self, Cast, Group, Task};
use crate::bench::stats::{median, quantile};
use hither::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of all contestants.
    pub rounds: usize,
    /// Nanoseconds of a batch.
    pub batch: f64,
    /// Batches of a round.
    pub batches: usize,
    /// How long a program may say nothing.
    pub patience: Duration,
    /// Fewer sizes.
    pub quick: bool,
}

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

    fn rounds(&self, state: State) -> usize {
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

/// A setting that was tried.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Whose.
    pub peer: &'static str,
    /// For what.
    pub group: Group,
    /// In jobs of so many ranks.
    pub ranks: u32,
    /// The settings tried, best first: name, how many probes worked, and the mean of their times (or
    /// one over rates) against those of the first.
    pub tried: Vec<(String, usize, f64)>,
    /// What was run with the best.
    pub command: String,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Results {
    /// By task and contestant.
    pub cells: BTreeMap<Task, BTreeMap<&'static str, Cell>>,
    /// The settings.
    pub choices: Vec<Choice>,
    /// What the machine was like.
    pub machine: Machine,
}

/// Has those rounds count in which the machine was in the same state for all contestants: in that in which
/// all have the most, of several the best. If there is none, all rounds do.
fn even(cells: &mut BTreeMap<&'static str, Cell>) {
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

/// Measures one group in jobs of `ranks` ranks.
pub fn run(
    peers: &[Box<dyn Peer>],
    (group, cast): (Group, Cast),
    effort: Effort,
    results: &mut Results,
) {
    let (ranks, crowded) = (cast.ranks, cast.crowded());
    let tasks = workload::tasks(group, cast, effort.quick);
    if tasks.is_empty() {
        return;
    }
    let mut settings = Vec::new();
    for peer in peers {
        let cells = |results: &mut Results, why: &str| {
            for &task in &tasks {
                let cell = results.cells.entry(task).or_default().entry(peer.name()).or_default();
                cell.failed = Some(why.to_owned());
            }
        };
        if let Err(why) = peer.can(group, cast) {
            cells(results, why);
            settings.push(None);
            continue;
        }
        let machine = &mut results.machine;
        let (setting, tried) = choose(peer.as_ref(), group, (ranks, crowded), effort, machine);
        let order = Order { tasks: &tasks[..1], setting: &setting, crowded, ..order(effort) };
        let command = peer.command(&order);
        results.choices.push(Choice { peer: peer.name(), group, ranks, tried, command });
        settings.push(Some(setting));
    }
    for round in 0..effort.rounds {
        // That of its first turn.
        let mut wanted = None;
        // Who goes first changes: nobody always profits from another's warmth.
        for at in 0..peers.len() {
            let at = (at + round) % peers.len();
            let (peer, Some(setting)) = (&peers[at], &settings[at]) else { continue };
            let works = |task: &Task| {
                let cell = results.cells.get(task).and_then(|cells| cells.get(peer.name()));
                cell.is_none_or(|cell| cell.failed.is_none())
            };
            let left: Vec<Task> = tasks.iter().copied().filter(works).collect();
            if left.is_empty() {
                continue;
            }
            let order = Order { tasks: &left, setting, crowded, ..order(effort) };
            let (found, was) = turn(peer.as_ref(), &order, wanted, &mut results.machine);
            wanted = wanted.or((was != State::Changing).then_some(was));
            for (task, outcome) in found {
                let cells = results.cells.entry(task).or_default();
                // The first one's: hither's, checked against serial computation or by rules.
                let known = cells.get(peers[0].name()).and_then(|cell| cell.proof);
                cells.entry(peer.name()).or_default().take(proven(outcome, known), was);
            }
        }
    }
    for task in &tasks {
        results.cells.get_mut(task).into_iter().for_each(even);
    }
}

/// Most turns of a contestant in a round, of which the last one counts.
const TURNS: usize = 3;

/// A contestant's turn, and what the machine was like in it: repeated if that was not the
/// `wanted` state, or changed, as long as there is time for that.
fn turn(
    peer: &dyn Peer,
    order: &Order<'_>,
    wanted: Option<State>,
    machine: &mut Machine,
) -> (Vec<(Task, Outcome)>, State) {
    let mut turns = 1;
    loop {
        let began = machine.await_state(wanted);
        let start = Instant::now();
        let found = outcomes(peer.run(order), order.tasks);
        let was = machine.ended(began, wanted);
        let right = was != State::Changing && wanted.is_none_or(|wanted| wanted == was);
        // What has failed is not tried until it works.
        let failed = found.iter().any(|(_, outcome)| outcome.is_err());
        if right || failed || turns == TURNS || !machine.may_repeat(start) {
            return (found, was);
        }
        turns += 1;
    }
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

fn order<'a>(effort: Effort) -> Order<'a> {
    const USUAL: &Setting = &Setting { name: String::new(), args: Vec::new(), env: Vec::new() };
    let Effort { batch, batches, patience, .. } = effort;
    Order { tasks: &[], setting: USUAL, batch, batches, patience, crowded: false }
}

/// What could not even be started failed in all its tasks.
fn outcomes(result: Result<Vec<(Task, Outcome)>>, tasks: &[Task]) -> Vec<(Task, Outcome)> {
    result
        .unwrap_or_else(|error| tasks.iter().map(|&task| (task, Err(error.to_string()))).collect())
}

/// Tries a peer's settings briefly; the best, and all that were tried.
fn choose(
    peer: &dyn Peer,
    group: Group,
    (ranks, crowded): (u32, bool),
    effort: Effort,
    machine: &mut Machine,
) -> (Setting, Vec<(String, usize, f64)>) {
    let mut candidates = peer.settings(group, crowded);
    let probes = workload::probes(group, ranks);
    if candidates.len() < 2 || probes.is_empty() {
        let first = candidates.drain(..).next().unwrap_or_else(Setting::usual);
        return (first.clone(), vec![(first.name, 0, 1.0)]);
    }
    let mut tried: Vec<(Setting, Vec<Option<f64>>)> = Vec::new();
    let mut wanted = None;
    for setting in candidates {
        let order = Order { tasks: &probes, setting: &setting, crowded, ..order(effort) };
        wanted = Some(machine.await_state(wanted));
        let found: BTreeMap<Task, Outcome> =
            outcomes(peer.run(&order), &probes).into_iter().collect();
        let cost = |task: &Task| {
            let value = found.get(task)?.as_ref().ok()?.value;
            let time = if task.workload().measure.less_is_better() { value } else { 1.0 / value };
            (time > 0.0 && time.is_finite()).then_some(time)
        };
        let costs = probes.iter().map(cost).collect();
        tried.push((setting, costs));
    }
    rank(tried)
}

/// Settings in their order: those in which most works, among them the fastest on the whole.
fn rank(tried: Vec<(Setting, Vec<Option<f64>>)>) -> (Setting, Vec<(String, usize, f64)>) {
    // The reference of each probe is the first setting in which it works.
    let probes = tried.first().map_or(0, |(_, costs)| costs.len());
    let first = |at: usize| tried.iter().find_map(|(_, costs)| costs[at]);
    let references: Vec<Option<f64>> = (0..probes).map(first).collect();
    let mut ranked: Vec<(Setting, usize, f64)> = tried
        .iter()
        .map(|(setting, costs)| {
            let ratios: Vec<f64> =
                costs.iter().zip(&references).filter_map(|(x, of)| Some((*x)? / (*of)?)).collect();
            let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
            (setting.clone(), ratios.len(), if ratios.is_empty() { 1.0 } else { mean.exp() })
        })
        .collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then(a.2.total_cmp(&b.2)));
    let best = ranked.first().map_or_else(Setting::usual, |(setting, ..)| setting.clone());
    (best, ranked.into_iter().map(|(setting, works, mean)| (setting.name, works, mean)).collect())
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell as Shared;

    #[test]
    fn the_setting_in_which_most_works_and_then_the_fastest_is_chosen() {
        let named = |name: &str| Setting { name: name.into(), ..Setting::usual() };
        let (best, all) = rank(vec![
            (named("usual"), vec![Some(10.0), Some(10.0)]),
            (named("quick, but crashes"), vec![Some(1.0), None]),
            (named("quicker"), vec![Some(5.0), Some(12.0)]),
            (named("broken"), vec![None, None]),
        ]);
        assert_eq!(best.name, "quicker");
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["quicker", "usual", "quick, but crashes", "broken"]);
        assert!((all[0].2 - 0.6f64.sqrt()).abs() < 1e-12);
    }

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

    /// One that fails in its second round, or cannot do anything.
    struct Fake {
        name: &'static str,
        able: bool,
        proof: Option<u64>,
        runs: Shared<usize>,
    }

    impl Peer for Fake {
        fn name(&self) -> &'static str {
            self.name
        }
        fn version(&self) -> &str {
            "1"
        }
        fn measured_by(&self) -> &'static str {
            "nothing"
        }
        fn settings(&self, _: Group, _: bool) -> Vec<Setting> {
            vec![Setting::usual()]
        }
        fn can(&self, _: Group, _: Cast) -> std::result::Result<(), &'static str> {
            if self.able { Ok(()) } else { Err("unable") }
        }
        fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
            self.runs.set(self.runs.get() + 1);
            if self.runs.get() == 2 {
                return Err(hither::Error::invalid("a fake", "it is gone"));
            }
            let figure = Figure { proof: self.proof, ..1.0.into() };
            Ok(order.tasks.iter().map(|&task| (task, Ok(figure))).collect())
        }
        fn command(&self, _: &Order<'_>) -> String {
            "fake".into()
        }
    }

    #[test]
    fn who_computes_something_else_has_no_figure() {
        let fake = |name, proof| Fake { name, able: true, proof, runs: Shared::new(9) };
        let peers: Vec<Box<dyn Peer>> = vec![
            Box::new(fake("a", Some(1))),
            Box::new(fake("b", Some(2))),
            Box::new(fake("c", Some(1))),
            Box::new(fake("d", None)),
        ];
        let mut results = Results::default();
        let patience = Duration::from_secs(1);
        let effort = Effort { rounds: 2, batch: 1.0, batches: 1, patience, quick: true };
        run(&peers, (Group::Halo, Cast { ranks: 2, cores: 2 }), effort, &mut results);
        for cells in results.cells.values() {
            assert!(cells["b"].failed.as_ref().unwrap().contains("something else"));
            assert!(["a", "c", "d"].iter().all(|name| cells[name].value() == Some(1.0)));
        }
    }

    #[test]
    fn who_fails_or_cannot_is_left_out_with_the_reason() {
        let fake = |name, able| Fake { name, able, proof: None, runs: Shared::new(0) };
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(fake("a", true)), Box::new(fake("b", false))];
        let mut results = Results::default();
        let patience = Duration::from_secs(1);
        let effort = Effort { rounds: 3, batch: 1.0, batches: 1, patience, quick: true };
        run(&peers, (Group::Sums, Cast { ranks: 2, cores: 2 }), effort, &mut results);
        assert_eq!(results.cells.len(), 4);
        for cells in results.cells.values() {
            assert!(cells["a"].failed.as_ref().unwrap().contains("it is gone"));
            assert_eq!((cells["a"].values.len(), cells["a"].value()), (1, None));
            assert_eq!(cells["b"].failed.as_deref(), Some("unable"));
        }
        assert_eq!(results.choices.len(), 1);
    }
}
