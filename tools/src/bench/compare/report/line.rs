//! The lines of a report: each a figure of ours beside the floor, the best peer, and each contestant's.

use super::super::cell::Cell;
use super::super::machine::State;
use super::super::workload;
use serde::Serialize;

/// One figure of ours beside the floor and the best peer.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Name for programs.
    pub workload: &'static str,
    /// Name for people.
    pub what: &'static str,
    /// Bytes.
    pub size: usize,
    /// Ranks.
    pub ranks: u32,
    /// Unit of all figures.
    pub unit: &'static str,
    /// Whether less is better.
    pub less_is_better: bool,
    /// Name of the limit.
    pub limit_name: Option<&'static str>,
    /// The limit: what the smallest program makes that does the same.
    pub limit: Option<f64>,
    /// Name of the floor: the limit, or our own figure with a core each.
    pub floor_name: Option<&'static str>,
    /// The floor.
    pub floor: Option<f64>,
    /// Ours through the floor.
    pub floor_ratio: Option<f64>,
    /// What is asked of that.
    pub floor_goal: String,
    /// Whether it holds.
    pub floor_holds: Option<bool>,
    /// Beside the best peer, of those that the goal means.
    pub best: Option<Beside>,
    /// Beside the best of the others, of which something else is asked.
    pub direct: Option<Beside>,
    /// What the machine was like in the rounds that count.
    pub state: String,
    /// Each contestant's.
    pub entries: Vec<Entry>,
}

/// Our figure beside a peer's.
#[derive(Debug, Serialize)]
pub struct Beside {
    /// Whose.
    pub peer: &'static str,
    /// Ours through that peer's; none if there is none of ours.
    pub ratio: Option<f64>,
    /// What is asked of that.
    pub goal: String,
    /// Whether it holds.
    pub holds: Option<bool>,
    /// The limit through that peer's.
    pub limit_ratio: Option<f64>,
    /// Whether the goal is missed, and the limit misses it, too, though it is no worse than ours: a limit that
    /// ours is better than shows nothing.
    pub out_of_reach: bool,
}

/// One contestant's figure.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Whose.
    pub contestant: &'static str,
    /// Median over the rounds.
    pub value: Option<f64>,
    /// Half the distance between the quartiles, as a share of the median.
    pub spread: f64,
    /// Of each round.
    pub rounds: Vec<f64>,
    /// Why there is no figure.
    pub failed: Option<String>,
}

impl Beside {
    /// What is wrong with a goal that does not hold.
    pub fn missed(&self) -> &'static str {
        if self.out_of_reach { "out of reach" } else { "missed" }
    }
}

impl Line {
    /// All peers beside which it stands.
    pub fn besides(&self) -> impl Iterator<Item = &Beside> {
        self.best.iter().chain(&self.direct)
    }

    /// The size as text.
    pub fn size_text(&self) -> String {
        workload::find(self.workload)
            .map_or_else(String::new, |(_, workload)| workload.sizing.text(self.size))
    }
}

/// What the machine was like, and for how many lines.
pub fn states(lines: &[Line]) -> String {
    let count = |state: State| {
        let name = state.to_string();
        let count = lines.iter().filter(|line| line.state == name).count();
        (count > 0).then(|| format!("{count} {name}"))
    };
    let all = State::STEADY.into_iter().chain([State::Changing]);
    all.filter_map(count).collect::<Vec<_>>().join(", ")
}

impl Entry {
    /// That of a contestant.
    pub fn of(name: &'static str, cell: &Cell) -> Entry {
        Entry {
            contestant: name,
            value: cell.value(),
            spread: cell.spread(),
            rounds: cell.values.clone(),
            failed: cell.failed.clone(),
        }
    }
}
