//! A group of workloads on all contestants, each with the setting that suits it best.

use super::cell::{self, Cell};
use super::machine::Machine;
use super::peer::{Order, Peer, Setting};
use super::turns::{self, Contestant};
use super::workload::{self, Cast, Group, Task};
use std::collections::BTreeMap;
use std::time::Duration;

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

impl Effort {
    /// What a contestant is told.
    pub fn order<'a>(self, tasks: &'a [Task], setting: &'a Setting, crowded: bool) -> Order<'a> {
        let Effort { batch, batches, patience, .. } = self;
        Order { tasks, setting, batch, batches, patience, crowded }
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

/// Measures one group in jobs of `ranks` ranks. `ahead`: how many parts are still to be measured after
/// these, which the time for further turns has to do for, too.
pub fn run(
    peers: &[Box<dyn Peer>],
    (group, cast): (Group, Cast),
    effort: Effort,
    ahead: usize,
    results: &mut Results,
) {
    let (ranks, crowded) = (cast.ranks, cast.crowded());
    let parts = workload::by_turn(group, cast, effort.quick);
    let Some(first) = parts.first() else { return };
    let mut settings = Vec::new();
    for peer in peers {
        if let Err(why) = peer.can(group, cast) {
            for &task in parts.iter().flatten() {
                let cell = results.cells.entry(task).or_default().entry(peer.name()).or_default();
                cell.failed = Some(why.to_owned());
            }
            continue;
        }
        let machine = &mut results.machine;
        let time = machine.share((ahead + parts.len() + 1) * peers.len());
        let (setting, tried) = choose(peer.as_ref(), (group, cast), effort, machine, time);
        let command = peer.command(&effort.order(&first[..1], &setting, crowded));
        results.choices.push(Choice { peer: peer.name(), group, ranks, tried, command });
        settings.push((peer.as_ref(), setting));
    }
    let contestants: Vec<Contestant<'_>> =
        settings.iter().map(|(peer, setting)| Contestant { peer: *peer, setting }).collect();
    for (at, part) in parts.iter().enumerate() {
        let machine = &mut results.machine;
        let time = machine.share(ahead + parts.len() - at);
        let rows = turns::measure(&contestants, part, (effort, crowded), machine, time);
        for (contestant, row) in contestants.iter().zip(rows) {
            for (&task, cell) in part.iter().zip(row) {
                results.cells.entry(task).or_default().insert(contestant.peer.name(), cell);
            }
        }
        for task in part {
            results.cells.get_mut(task).into_iter().for_each(cell::even);
        }
    }
}

/// Tries a peer's settings briefly; the best, and all that were tried.
fn choose(
    peer: &dyn Peer,
    (group, cast): (Group, Cast),
    effort: Effort,
    machine: &mut Machine,
    time: Duration,
) -> (Setting, Vec<(String, usize, f64)>) {
    let crowded = cast.crowded();
    let mut candidates = peer.settings(group, crowded);
    let probes = workload::probes(group, cast.ranks);
    if candidates.len() < 2 || probes.is_empty() {
        let first = candidates.drain(..).next().unwrap_or_else(Setting::usual);
        return (first.clone(), vec![(first.name, 0, 1.0)]);
    }
    let contestants: Vec<Contestant<'_>> =
        candidates.iter().map(|setting| Contestant { peer, setting }).collect();
    let effort = Effort { rounds: 1, ..effort };
    let rows = turns::measure(&contestants, &probes, (effort, crowded), machine, time);
    let mut costs = vec![vec![None; probes.len()]; candidates.len()];
    for (of, task) in probes.iter().enumerate() {
        let mut cells: BTreeMap<usize, Cell> =
            rows.iter().map(|row| row[of].clone()).enumerate().collect();
        cell::even(&mut cells);
        for (at, cell) in cells {
            let less = task.workload().measure.less_is_better();
            let time = cell.value().map(|value| if less { value } else { 1.0 / value });
            costs[at][of] = time.filter(|time| *time > 0.0 && time.is_finite());
        }
    }
    rank(candidates.into_iter().zip(costs).collect())
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

#[cfg(test)]
mod tests {
    use super::super::lines::{Figure, Outcome};
    use super::*;
    use hither::Result;
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

    /// One that fails after some turns, or cannot do anything.
    struct Fake {
        name: &'static str,
        able: bool,
        proof: Option<u64>,
        /// After so many turns it is gone.
        turns: usize,
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
            if self.runs.get() > self.turns {
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
        let turns = usize::MAX;
        let fake = |name, proof| Fake { name, able: true, proof, turns, runs: Shared::new(0) };
        let peers: Vec<Box<dyn Peer>> = vec![
            Box::new(fake("a", Some(1))),
            Box::new(fake("b", Some(2))),
            Box::new(fake("c", Some(1))),
            Box::new(fake("d", None)),
        ];
        let mut results = Results::default();
        let patience = Duration::from_secs(1);
        let effort = Effort { rounds: 2, batch: 1.0, batches: 1, patience, quick: true };
        run(&peers, (Group::Halo, Cast { ranks: 2, cores: 2 }), effort, 0, &mut results);
        for cells in results.cells.values() {
            assert!(cells["b"].failed.as_ref().unwrap().contains("something else"));
            assert!(["a", "c", "d"].iter().all(|name| cells[name].value() == Some(1.0)));
        }
    }

    #[test]
    fn who_fails_or_cannot_is_left_out_with_the_reason() {
        let fake = |name, able| Fake { name, able, proof: None, turns: 1, runs: Shared::new(0) };
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(fake("a", true)), Box::new(fake("b", false))];
        let mut results = Results::default();
        let patience = Duration::from_secs(1);
        let effort = Effort { rounds: 3, batch: 1.0, batches: 1, patience, quick: true };
        run(&peers, (Group::Sums, Cast { ranks: 2, cores: 2 }), effort, 0, &mut results);
        assert_eq!(results.cells.len(), 4);
        for cells in results.cells.values() {
            assert!(cells["a"].failed.as_ref().unwrap().contains("it is gone"));
            assert_eq!((cells["a"].values.len(), cells["a"].value()), (1, None));
            assert_eq!(cells["b"].failed.as_deref(), Some("unable"));
        }
        assert_eq!(results.choices.len(), 1);
    }
}
