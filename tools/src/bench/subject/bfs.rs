//! Breadth-first search on a Kronecker graph: the rate of the demo's best formulation, beside the
//! same search by threads of one process over private arrays. The demo interleaves the two.

use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::summarise;
use hither::{Error, Result};
use serde_json::Value;

const WHAT: &str = "the demo's result";

/// `bfs`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let (scale, roots) = if options.quick { ("12", "8") } else { ("18", "64") };
    let ranks = options.ranks.unwrap_or(2);
    let count = ranks.to_string();
    let mut command = jobs::program(&[
        "demo",
        "graph",
        "--json",
        "--threads-baseline",
        "--scale",
        scale,
        "--roots",
        roots,
        "-n",
        &count,
    ])?;
    let output = command.output().map_err(|e| Error::os("starting the demo", e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Misuse { what: "the demo", why: said });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let results: std::result::Result<Vec<Value>, _> =
        text.lines().map(serde_json::from_str).collect();
    let results = results.map_err(|e| Error::invalid(WHAT, format!("{e}: {text}")))?;
    let rows = compare(&results, ranks);
    if rows.is_empty() {
        return Err(Error::invalid(WHAT, format!("there is no rate to compare in {text}")));
    }
    Ok(rows)
}

/// A row for each formulation on each graph that the threads have searched too. The goal is asked
/// of the fastest formulation on generated graphs: the others are there to be compared.
fn compare(results: &[Value], ranks: u32) -> Vec<Row> {
    let rate = |result: &Value, field: &str| result[field].as_f64().map(|teps| teps / 1e6);
    let mut rows = Vec::new();
    for yardstick in results {
        let Some(threads) = rate(yardstick, "threads_teps") else { continue };
        let input = &yardstick["input"];
        let rates = || {
            let same = results.iter().filter(|result| result["input"] == *input);
            same.filter_map(|result| Some((result, rate(result, "teps")?)))
        };
        let best = rates().map(|(_, teps)| teps).fold(0.0, f64::max);
        let generated = input.as_str().is_some_and(|name| name.starts_with("kronecker"));
        for (result, teps) in rates() {
            let formulation = result["formulation"].as_str().unwrap_or("search");
            let asked = generated && teps == best;
            let heading = Heading {
                bench: "bfs",
                what: format!("{formulation}, {}", input.as_str().unwrap_or("a graph")),
                size: 0,
                limit: "threads of one process",
                unit: "MTEPS",
                goal: if asked { Goal::AtLeast(0.9) } else { Goal::None },
                point: None,
            };
            rows.push(heading.row(ranks, summarise(&[(teps, threads)]), None));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_fastest_on_a_generated_graph_has_a_goal() {
        let rows = compare(
            &[
                json!({"formulation": "a", "input": "kronecker scale 3", "teps": 3e6}),
                json!({"formulation": "b", "input": "kronecker scale 3", "teps": 2e6,
                       "threads_teps": 4e6}),
                json!({"formulation": "b", "input": "file", "teps": 2e6, "threads_teps": 1e6}),
                json!({"formulation": "b", "input": "never compared", "teps": 2e6}),
            ],
            2,
        );
        let goals: Vec<_> = rows.iter().map(|row| (row.ratio, row.holds)).collect();
        assert_eq!(goals, [(0.75, Some(false)), (0.5, None), (2.0, None)]);
    }
}
