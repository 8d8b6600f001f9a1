//! One result: a figure beside its limit, and the goal their ratio is held against.

use super::stats::Summary;
use serde::{Deserialize, Serialize};

/// What figures are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time per operation. Less is better.
    Nanoseconds,
    /// Operations per time. More is better.
    MillionPerSecond,
    /// Bytes per time. More is better.
    GigabytesPerSecond,
}

impl Unit {
    /// Name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::MillionPerSecond => "M/s",
            Unit::GigabytesPerSecond => "GB/s",
        }
    }

    /// The figure for `operations` of `bytes` each that took `nanoseconds` together.
    pub fn figure(self, nanoseconds: f64, operations: f64, bytes: usize) -> f64 {
        match self {
            Unit::Nanoseconds => nanoseconds / operations,
            Unit::MillionPerSecond => operations * 1e3 / nanoseconds,
            Unit::GigabytesPerSecond => operations * bytes as f64 / nanoseconds,
        }
    }
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// value / floor at most this.
    AtMost(f64),
    /// value / floor at least this.
    AtLeast(f64),
    /// value - floor at most this, in the row's unit.
    Above(f64),
    /// value / floor at most the first, and value at most the second.
    Both(f64, f64),
    /// value at most this, in the row's unit.
    Value(f64),
    /// value at least this, in the row's unit.
    Least(f64),
    /// Reported for comparison only.
    None,
}

impl Goal {
    /// Whether the figure reaches the goal; `None` without a goal.
    pub fn holds(self, value: f64, floor: f64) -> Option<bool> {
        match self {
            Goal::AtMost(most) => Some(value <= most * floor),
            Goal::AtLeast(least) => Some(value >= least * floor),
            Goal::Above(most) => Some(value - floor <= most),
            Goal::Both(ratio, most) => Some(value <= ratio * floor && value <= most),
            Goal::Value(most) => Some(value <= most),
            Goal::Least(least) => Some(value >= least),
            Goal::None => None,
        }
    }

    /// The goal as text; empty without a goal.
    pub fn text(self, unit: &str) -> String {
        match self {
            Goal::AtMost(most) => format!("≤ {most}x"),
            Goal::AtLeast(least) => format!("≥ {least}x"),
            Goal::Above(most) => format!("≤ floor + {most} {unit}"),
            Goal::Both(ratio, most) => format!("≤ {ratio}x, ≤ {most} {unit}"),
            Goal::Value(most) => format!("≤ {most} {unit}"),
            Goal::Least(least) => format!("≥ {least} {unit}"),
            Goal::None => String::new(),
        }
    }
}

/// One line of the report. Also what a measuring rank hands to the command, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The benchmark this row belongs to.
    pub bench: String,
    /// What was measured.
    pub what: String,
    /// Bytes per operation; 0 where that means nothing.
    pub size: usize,
    /// Ranks that took part.
    pub ranks: u32,
    /// The figure (median over rounds).
    pub value: f64,
    /// Unit of `value` and `floor`.
    pub unit: String,
    /// The limit, measured in the same run (median over rounds).
    pub floor: f64,
    /// What the limit is.
    pub limit: String,
    /// `value / floor`.
    pub ratio: f64,
    /// What is asked of the ratio; empty if nothing is.
    pub goal: String,
    /// Whether that is reached; null if nothing is asked.
    pub holds: Option<bool>,
    /// Half the interquartile range of the rounds' ratios, as a share of their median.
    pub spread: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// 99th percentile of single operations, in `unit`, where single operations were timed.
    pub p99: Option<f64>,
    /// Where the figure lies on a curve, if it is one of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
}

impl Row {
    /// Holds the figure against a goal that was not known when it was measured.
    pub fn judge(&mut self, goal: Goal) {
        self.goal = goal.text(&self.unit);
        self.holds = goal.holds(self.value, self.floor);
    }
}

/// A place on a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Title of the diagram.
    pub figure: String,
    /// The curve.
    pub series: String,
    /// What the horizontal axis counts; "bytes" is written in powers of two.
    pub axis: String,
    /// Where on it.
    pub x: f64,
}

impl Point {
    /// A place on a curve.
    pub fn new(
        figure: impl Into<String>,
        series: impl Into<String>,
        axis: impl Into<String>,
        x: f64,
    ) -> Point {
        Point { figure: figure.into(), series: series.into(), axis: axis.into(), x }
    }
}

/// The parts of a row that are known before measuring.
#[derive(Clone, Debug)]
pub struct Heading {
    /// See [`Row::bench`].
    pub bench: &'static str,
    /// See [`Row::what`].
    pub what: String,
    /// See [`Row::size`].
    pub size: usize,
    /// See [`Row::limit`].
    pub limit: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// What is asked.
    pub goal: Goal,
    /// See [`Row::point`].
    pub point: Option<Point>,
}

impl Heading {
    /// The row for measured rounds.
    pub fn row(&self, ranks: u32, summary: Summary, p99: Option<f64>) -> Row {
        let Summary { value, floor, spread, rounds } = summary;
        Row {
            bench: self.bench.to_owned(),
            what: self.what.clone(),
            size: self.size,
            ranks,
            value,
            unit: self.unit.to_owned(),
            floor,
            limit: self.limit.to_owned(),
            ratio: if floor > 0.0 { value / floor } else { 0.0 },
            goal: self.goal.text(self.unit),
            holds: self.goal.holds(value, floor),
            spread,
            rounds,
            p99,
            point: self.point.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_what_their_units_say() {
        assert_eq!(Unit::Nanoseconds.figure(1000.0, 10.0, 8), 100.0);
        assert_eq!(Unit::MillionPerSecond.figure(1000.0, 10.0, 8), 10.0);
        assert_eq!(Unit::GigabytesPerSecond.figure(1000.0, 10.0, 800), 8.0);
    }

    #[test]
    fn goals_bind_in_the_right_direction() {
        assert_eq!(Goal::AtMost(1.3).holds(1.2, 1.0), Some(true));
        assert_eq!(Goal::AtMost(1.3).holds(1.4, 1.0), Some(false));
        assert_eq!(Goal::AtLeast(0.7).holds(0.6, 1.0), Some(false));
        assert_eq!(Goal::Above(10.0).holds(14.0, 5.0), Some(true));
        assert_eq!(Goal::Both(1.01, 256.0).holds(300.0, 300.0), Some(false));
        assert_eq!(Goal::Both(1.01, 256.0).holds(200.0, 100.0), Some(false));
        assert_eq!(Goal::Value(512.0).holds(513.0, 1e9), Some(false));
        assert_eq!(Goal::Least(95.0).holds(94.9, 1.0), Some(false));
        assert_eq!(Goal::Least(95.0).holds(95.0, 100.0), Some(true));
        assert_eq!(Goal::None.holds(1.0, 1.0), None);
    }
}
