//! Rows as a table for people and as JSON for programs.

use super::row::Row;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

/// A line under the header and nothing else: rows are many.
pub const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A number with about three digits that matter.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.2e}"),
    }
}

/// A size as people write it; nothing for 0.
pub fn bytes(size: usize) -> String {
    match size {
        0 => String::new(),
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
}

/// The ratio, its goal and whether it holds: `1.12x ±3% (goal ≤ 1.3x)`.
fn verdict(row: &Row) -> String {
    let mut text = String::new();
    // Without the other side there is none.
    if row.floor != 0.0 {
        text += &format!("{}x ±{:.0}%", short(row.ratio), row.spread * 100.0);
    }
    match row.holds {
        Some(true) => text += &format!(" (goal {}: holds)", row.goal),
        Some(false) => text += &format!(" (goal {}: MISSED)", row.goal),
        None => {}
    }
    text
}

/// The table for people.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(["bench", "what", "size", "ranks", "value", "p99", "limit", "", "ratio"]);
    for row in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(&row.bench),
            Cell::new(&row.what),
            right(bytes(row.size)),
            right(row.ranks.to_string()),
            right(format!("{} {}", short(row.value), row.unit)),
            right(row.p99.map(short).unwrap_or_default()),
            right(if row.floor == 0.0 { String::new() } else { short(row.floor) }),
            Cell::new(&row.limit),
            Cell::new(verdict(row)),
        ]);
    }
    table.to_string()
}

/// One JSON object.
pub fn json(row: &Row) -> String {
    // A row is a flat structure of strings and finite numbers: it always has a JSON form.
    serde_json::to_string(row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::{Goal, Heading};
    use crate::bench::stats::summarise;

    #[test]
    fn a_row_says_whether_its_goal_holds_and_survives_json() {
        let heading = Heading {
            bench: "inbox",
            what: "latency".into(),
            size: 2048,
            limit: "ping-pong",
            unit: "ns",
            goal: Goal::AtMost(1.3),
            point: None,
        };
        let row = heading.row(2, summarise(&[(150.0, 100.0)]), Some(300.0));
        let text = table(std::slice::from_ref(&row));
        assert!(text.contains("1.50x ±0% (goal ≤ 1.3x: MISSED)"), "{text}");
        assert!(text.contains("2 KiB") && text.contains("150 ns"), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&json(&row)).unwrap(), row);
    }
}
