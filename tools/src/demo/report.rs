//! Results: one row per workload and formulation, as a table or as JSON lines.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use serde::Serialize;
use serde_json::{Map, Value};

/// One result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `graph`, `genome` or `stencil`.
    pub workload: &'static str,
    /// How the ranks communicated.
    pub formulation: &'static str,
    /// Number of ranks.
    pub ranks: u32,
    /// What was computed on.
    pub input: String,
    /// Whether the result passed its check.
    pub validated: bool,
    /// Seconds of the timed part.
    pub seconds: f64,
    /// The rate under its own name (`teps`, `queries_per_s`, `cells_per_s`), then whatever else
    /// is worth knowing.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
    /// The rate for people.
    #[serde(skip)]
    pub rate: String,
    /// What the check was, or what it found wrong.
    #[serde(rename = "check")]
    pub check: String,
}

impl Row {
    /// The row as one line of JSON.
    pub fn json(&self) -> String {
        // Strings, numbers and maps with string keys always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    let rule = LineStyle::new('─', '─', '─', '─');
    table.load_style(TableStyle::new().header_separator(rule).bottom_border(rule));
    table.set_header([
        "workload",
        "formulation",
        "ranks",
        "input",
        "seconds",
        "rate",
        "validated",
        "check",
    ]);
    for row in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(row.workload),
            Cell::new(row.formulation),
            right(row.ranks.to_string()),
            Cell::new(&row.input),
            right(format!("{:.3}", row.seconds)),
            right(row.rate.clone()),
            Cell::new(if row.validated { "yes" } else { "NO" }),
            Cell::new(&row.check),
        ]);
    }
    table.trim_fmt()
}

/// A rate with a decimal prefix: `12.3 M<unit>`.
pub fn rate(value: f64, unit: &str) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{scaled:.1} {prefix}{unit}")
}

/// Harmonic mean of rates: work over time where every sample did the same work.
pub fn harmonic_mean(rates: &[f64]) -> f64 {
    rates.len() as f64 / rates.iter().map(|r| 1.0 / r).sum::<f64>()
}

/// Minimum, first quartile, median, third quartile, maximum (linear interpolation). Empty input
/// gives zeros.
pub fn quartiles(values: &[f64]) -> [f64; 5] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (sorted.len().saturating_sub(1)) as f64;
        let below = sorted.get(place.floor() as usize).copied().unwrap_or(0.0);
        let above = sorted.get(place.ceil() as usize).copied().unwrap_or(0.0);
        below + (above - below) * place.fract()
    };
    [at(0.0), at(0.25), at(0.5), at(0.75), at(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_hand_computed_values() {
        assert!((harmonic_mean(&[1.0, 2.0, 4.0]) - 12.0 / 7.0).abs() < 1e-12);
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(quartiles(&[1.0, 2.0]), [1.0, 1.25, 1.5, 1.75, 2.0]);
        assert_eq!(quartiles(&[]), [0.0; 5]);
    }

    #[test]
    fn rates_are_readable() {
        assert_eq!(rate(12_345_678.0, "TEPS"), "12.3 MTEPS");
        assert_eq!(rate(999.0, "q/s"), "999.0 q/s");
        assert_eq!(rate(2.5e9, "cells/s"), "2.5 Gcells/s");
    }

    #[test]
    fn a_row_is_one_json_object_with_its_rate() {
        let mut figures = Map::new();
        figures.insert("teps".into(), 1.5e6.into());
        let row = Row {
            workload: "graph",
            formulation: "atomics",
            ranks: 2,
            input: "a \"b\".txt".into(),
            validated: true,
            seconds: 0.5,
            figures,
            rate: rate(1.5e6, "TEPS"),
            check: "five rules".into(),
        };
        let line = row.json();
        assert!(!line.contains('\n'));
        let value: Value = serde_json::from_str(&line).expect("valid JSON");
        assert_eq!(value["input"], "a \"b\".txt");
        assert_eq!(value["teps"], 1.5e6);
        assert_eq!(value["validated"], true);
        assert!(table(&[row]).contains("1.5 MTEPS"));
    }
}
