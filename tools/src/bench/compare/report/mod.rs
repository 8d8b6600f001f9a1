//! What came of a comparison: a summary for the terminal, a page with tables and curves, and the raw
//! values.

mod line;
mod page;
mod readme;

use super::cell::Cell;
use super::machine::State;
use super::own::floors;
use super::peer::Absent;
use super::rounds::{Effort, Results};
use super::workload::{Cast, Group, Task};
use crate::bench::plot::png::Painter;
use crate::bench::row::Goal;
use crate::bench::table::{self, short};
use comfy_table::{CellAlignment, Table};
use hither::{Error, Result};
use line::{Beside, Entry, Line, states};
use std::path::{Path, PathBuf};

/// The one whose figures are held against the others'.
pub const OURS: &str = "hither";
/// Those whose processes work on each other's memory without anybody's help, as ours do.
const DIRECT: [&str; 1] = [super::peer::gasnet::NAME];

/// Up to so many times better than its limit counts as at it.
const LEVEL: f64 = 1.1;

/// Everything that a report says.
pub struct Report<'a> {
    /// Name, version, and what measured, of each contestant; ours first.
    pub contestants: &'a [(&'a str, String, &'a str)],
    /// Who was not there.
    pub absent: &'a [Absent],
    /// The figures.
    pub results: &'a Results,
    /// How long was measured.
    pub effort: Effort,
    /// Cores that there were.
    pub cores: u32,
}

impl Report<'_> {
    /// The lines in the order of the workloads.
    pub fn lines(&self) -> Vec<Line> {
        let mut tasks: Vec<Task> = self.results.cells.keys().copied().collect();
        // The first ranks of a group are those that have cores.
        tasks.sort_by_key(|task| {
            (task.workload().group, task.ranks > 2, task.at, task.ranks, task.size)
        });
        tasks.iter().map(|task| self.line(*task)).collect()
    }

    fn line(&self, task: Task) -> Line {
        let workload = task.workload();
        let less = workload.measure.less_is_better();
        let cells = &self.results.cells[&task];
        let entries: Vec<Entry> = cells.iter().map(|(name, cell)| Entry::of(name, cell)).collect();
        let ours = cells.get(OURS).and_then(Cell::value);
        let cast = Cast { ranks: task.ranks, cores: self.cores };
        let limit = cells.get(OURS).and_then(Cell::limit).filter(|floor| *floor > 0.0);
        let limit = limit.zip(floors::name(workload.name, task.size));
        let apart = floors::floor_name(workload.name);
        let name = apart.or_else(|| floors::name(workload.name, task.size));
        let floor = cells.get(OURS).and_then(Cell::floor).filter(|floor| *floor > 0.0).zip(name);
        // What ours is better than is no limit of it: the floor is one, if it is another program.
        let beaten = |limit: &(f64, _)| {
            ours.is_some_and(|ours| if less { ours < limit.0 } else { ours > limit.0 })
        };
        let limit = limit.filter(|limit| apart.is_none() || !beaten(limit)).or(floor);
        // What ranks that share cores are held against is what they do with a core each.
        let shared = cast.crowded() && workload.group != Group::Start;
        let floor = if shared { self.apart(task) } else { floor };
        let (floor, floor_name) = (floor.map(|of| of.0), floor.map(|of| of.1));
        let (limit, limit_name) = (limit.map(|of| of.0), limit.map(|of| of.1));
        let goals = workload.goals(task.size, cast);
        let unit = workload.measure.unit();
        let held = |goal: Goal, of: Option<f64>| goal.holds(ours?, of?);
        let text = |goal: Goal, of: Option<f64>| {
            if of.is_some() { goal.text(unit) } else { String::new() }
        };
        let beside = |goal: Goal, meant: &dyn Fn(&str) -> bool| {
            let peers = entries.iter().filter(|entry| entry.contestant != OURS);
            let (peer, value) = peers
                .filter(|entry| meant(entry.contestant))
                .filter_map(|entry| Some((entry.contestant, entry.value.filter(|x| *x > 0.0)?)))
                .min_by(|a, b| if less { a.1.total_cmp(&b.1) } else { b.1.total_cmp(&a.1) })?;
            let holds = held(goal, Some(value));
            let limit_misses = limit.zip(ours).is_some_and(|(limit, ours)| {
                // What is at its limit may come out a little better.
                let no_worse = if less { limit <= LEVEL * ours } else { LEVEL * limit >= ours };
                no_worse && goal.holds(limit, value) == Some(false)
            });
            Some(Beside {
                peer,
                ratio: ours.map(|ours| ours / value),
                goal: text(goal, Some(value)),
                holds,
                limit_ratio: limit.map(|limit| limit / value),
                out_of_reach: holds == Some(false) && limit_misses,
            })
        };
        let apart = |peer: &str| goals.direct.is_some() && DIRECT.contains(&peer);
        let best = beside(goals.peer, &|peer| !apart(peer));
        let direct = goals.direct.and_then(|goal| beside(goal, &apart));
        Line {
            workload: workload.name,
            what: workload.what,
            size: task.size,
            ranks: task.ranks,
            unit,
            less_is_better: less,
            limit_name,
            limit,
            floor_name,
            floor,
            floor_ratio: ours.zip(floor).map(|(ours, floor)| ours / floor),
            floor_goal: text(goals.floor, floor),
            floor_holds: held(goals.floor, floor),
            best,
            direct,
            state: cells
                .get(OURS)
                .and_then(|cell| cell.state)
                .unwrap_or(State::Changing)
                .to_string(),
            entries,
        }
    }

    /// Our figure for the same with the smaller of two jobs, if its ranks had a core each.
    fn apart(&self, task: Task) -> Option<(f64, &'static str)> {
        let same = |other: &&Task| {
            let cast = Cast { ranks: other.ranks, cores: self.cores };
            (other.at, other.size) == (task.at, task.size) && !cast.crowded()
        };
        let other = self.results.cells.keys().filter(same).min_by_key(|other| other.ranks)?;
        let value = self.results.cells[other].get(OURS)?.value().filter(|value| *value > 0.0)?;
        Some((value, "hither with a core each"))
    }

    /// The table for the terminal.
    pub fn summary(&self) -> String {
        let mut table = Table::new();
        table.load_style(table::STYLE);
        let names = self.contestants.iter().map(|(name, ..)| *name);
        let head = ["what", "size", "ranks", "unit"].into_iter().chain(names);
        table.set_header(head.chain(["against the floor", "against the best peer"]));
        for line in self.lines() {
            let mut cells: Vec<comfy_table::Cell> = vec![line.what.into()];
            let figures = self.contestants.iter().map(|(name, ..)| figure(&line, name));
            let fixed = [line.size_text(), line.ranks.to_string(), line.unit.to_owned()];
            cells.extend(
                fixed
                    .into_iter()
                    .chain(figures)
                    .map(|text| comfy_table::Cell::new(text).set_alignment(CellAlignment::Right)),
            );
            cells.push(against_floor(&line).into());
            cells.push(against_peers(&line).into());
            table.add_row(cells);
        }
        table.to_string()
    }

    /// Puts the summary between the marks of a README, and its diagram into `docs` beside that.
    pub fn write_into(&self, readme: &Path) -> Result<()> {
        let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
        let lines = self.lines();
        let text = std::fs::read_to_string(readme).map_err(os("reading the README"))?;
        let charts = page::charts(&lines);
        let chart = charts.iter().find(|chart| chart.title == readme::DIAGRAM);
        let text = readme::replaced(&text, &readme::section(self, &lines, chart.is_some()))?;
        if let Some(chart) = chart {
            let file = readme.with_file_name(readme::FILE);
            std::fs::create_dir_all(file.parent().unwrap_or(readme))
                .map_err(os("making the directory for the README's diagram"))?;
            std::fs::write(file, chart.draw()).map_err(os("writing the README's diagram"))?;
        }
        std::fs::write(readme, text).map_err(os("writing the README"))
    }

    /// Writes the report; its page's path.
    pub fn write(&self, dir: &Path) -> Result<PathBuf> {
        let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
        std::fs::create_dir_all(dir).map_err(os("making the directory for the report"))?;
        let lines = self.lines();
        let json = serde_json::to_string_pretty(&lines)
            .map_err(|e| Error::invalid("bench compare", e.to_string()))?;
        std::fs::write(dir.join("report.json"), json).map_err(os("writing report.json"))?;
        let charts = page::charts(&lines);
        // Without pictures the report is still one.
        let painter = Painter::new().inspect_err(|error| eprintln!("hither: no PNG: {error}")).ok();
        for chart in &charts {
            let (svg, name) = (chart.draw(), page::file(chart));
            if let Some(painter) = &painter {
                std::fs::write(dir.join(format!("{name}.png")), painter.paint(&svg)?)
                    .map_err(os("writing a diagram as PNG"))?;
            }
            std::fs::write(dir.join(format!("{name}.svg")), svg)
                .map_err(os("writing a diagram"))?;
        }
        let path = dir.join("report.html");
        std::fs::write(&path, page::page(self, &lines, &charts))
            .map_err(os("writing report.html"))?;
        Ok(path)
    }
}

/// A contestant's figure as text.
fn figure(line: &Line, name: &str) -> String {
    let entry = line.entries.iter().find(|entry| entry.contestant == name);
    match entry.map(|entry| (entry.value, entry.spread)) {
        Some((Some(value), spread)) => format!("{} ±{:.0}%", short(value), spread * 100.0),
        _ => "–".into(),
    }
}

fn verdict(goal: &str, holds: Option<bool>, missed: &str) -> String {
    match holds {
        Some(true) => format!(" (goal {goal}: holds)"),
        Some(false) => format!(" (goal {goal}: {})", missed.to_uppercase()),
        None => String::new(),
    }
}

fn against_floor(line: &Line) -> String {
    let (Some(ratio), Some(name)) = (line.floor_ratio, line.floor_name) else {
        return String::new();
    };
    format!("{}x {name}{}", short(ratio), verdict(&line.floor_goal, line.floor_holds, "missed"))
}

fn against_peers(line: &Line) -> String {
    let against = |beside: &Beside| {
        let verdict = verdict(&beside.goal, beside.holds, beside.missed());
        beside.ratio.map(|ratio| format!("{}x {}{verdict}", short(ratio), beside.peer))
    };
    line.besides().filter_map(against).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::lines::Figure;
    use super::super::rounds::Choice;
    use super::super::workload::find;
    use super::*;
    use std::time::Duration;

    fn results() -> Results {
        let mut results = Results::default();
        let mut add = |name: &str, size, whose, outcome| {
            let task = Task { at: find(name).unwrap().0, size, ranks: 2 };
            results
                .cells
                .entry(task)
                .or_default()
                .entry(whose)
                .or_default()
                .take(outcome, State::BEST);
        };
        let ok = |value: f64, limit| Ok(Figure { limit, ..value.into() });
        for size in [0, 8, 64, 4096] {
            add("latency", size, "hither", ok(100.0, Some(50.0)));
            add("latency", size, "MPICH", ok(400.0, None));
            add("latency", size, "Open MPI", ok(200.0, None));
        }
        add("rate", 8, "hither", ok(10.0, Some(20.0)));
        add("rate", 8, "MPICH", ok(5.0, None));
        add("rate", 8, "Open MPI", Err("signal: 11 <core>".into()));
        for (whose, value) in [("hither", 4.0), ("MPICH", 20.0), ("GASNet-EX", 3.0)] {
            add("fetch-and-op", 8, whose, ok(value, None));
        }
        let four = Task { at: find("latency").unwrap().0, size: 8, ranks: 4 };
        let cells = results.cells.entry(four).or_default();
        cells.entry("hither").or_default().take(ok(250.0, None), State::BEST);
        cells.entry("MPICH").or_default().take(ok(1000.0, None), State::BEST);
        let command = "mpiexec -n 2 messages".to_owned();
        let tried = vec![("--mca pml ob1".to_owned(), 2, 0.9), ("as installed".to_owned(), 2, 1.0)];
        results.choices.push(Choice {
            peer: "Open MPI",
            group: Group::Messages,
            ranks: 2,
            tried,
            command,
        });
        results
    }

    fn check(test: impl Fn(&Report<'_>)) {
        let contestants = [
            ("hither", "0".to_owned(), "itself"),
            ("MPICH", "4".to_owned(), "C"),
            ("Open MPI", "5".to_owned(), "C"),
        ];
        let absent = [Absent { name: "UCX", why: "no ucx_perftest".into() }];
        let patience = Duration::from_secs(1);
        let effort = Effort { rounds: 3, batch: 1e5, batches: 3, patience, quick: true };
        let results = results();
        let (contestants, absent, results) = (&contestants, &absent, &results);
        test(&Report { contestants, absent, results, effort, cores: 2 });
    }

    #[test]
    fn the_best_is_that_of_least_time_or_most_rate() {
        check(|report| {
            let lines = report.lines();
            assert_eq!(lines.len(), 7);
            let latency = lines.iter().find(|l| l.workload == "latency" && l.size == 8).unwrap();
            let best = latency.best.as_ref().unwrap();
            assert_eq!((best.peer, best.ratio), ("Open MPI", Some(0.5)));
            assert_eq!((best.holds, latency.floor_holds), (Some(true), Some(false)));
            let rate = lines.iter().find(|l| l.workload == "rate").unwrap();
            let best = rate.best.as_ref().unwrap();
            assert_eq!((best.peer, best.ratio), ("MPICH", Some(2.0)));
            assert_eq!((best.holds, rate.floor_holds), (Some(false), Some(true)));
            let text = report.summary();
            assert!(text.contains("0.50x Open MPI (goal ≤ 0.8x: holds)"), "{text}");
            assert!(text.contains("2.00x MPICH (goal ≥ 3x: MISSED)"), "{text}");
        });
    }

    #[test]
    fn who_works_on_memory_directly_is_asked_about_apart() {
        check(|report| {
            let lines = report.lines();
            let line = lines.iter().find(|line| line.workload == "fetch-and-op").unwrap();
            let (best, direct) = (line.best.as_ref().unwrap(), line.direct.as_ref().unwrap());
            assert_eq!((best.peer, best.holds), ("MPICH", Some(true)));
            assert_eq!((direct.peer, direct.holds), ("GASNet-EX", Some(false)));
            let both = "0.20x MPICH (goal ≤ 0.3x: holds); 1.33x GASNet-EX (goal ≤ 1x: MISSED)";
            assert_eq!(against_peers(line), both);
            // One row for each in a README.
            let text = readme::section(report, &lines, false);
            let row = "| fetch_and_op, flush, 8 B | 4.00 ns | ";
            assert!(text.contains(&format!("{row}20.0 ns (MPICH) | **0.20** | ≤ 0.3 |")), "{text}");
            assert!(text.contains(&format!("{row}3.00 ns (GASNet-EX) | 1.33 | ≤ 1, missed |")));
            // In others it is a peer like all.
            let latency = lines.iter().find(|line| line.workload == "latency").unwrap();
            assert!(latency.direct.is_none());
        });
    }

    #[test]
    fn what_the_limit_misses_is_out_of_reach() {
        check(|report| {
            let with = |limit, floor| {
                let mut results = results();
                let task = Task { at: find("rate").unwrap().0, size: 8, ranks: 2 };
                let figure = Figure { limit: Some(limit), floor: Some(floor), ..10.0.into() };
                let mut cell = Cell::default();
                cell.take(Ok(figure), State::BEST);
                results.cells.entry(task).or_default().insert("hither", cell);
                let lines = Report { results: &results, ..*report }.lines();
                let line = lines.into_iter().find(|line| line.workload == "rate").unwrap();
                let best = line.best.as_ref().unwrap();
                assert_eq!((best.ratio, best.holds), (Some(2.0), Some(false)));
                // Its own floor has its own name.
                assert_eq!(
                    (line.floor_name, line.floor_ratio),
                    (Some("bare ring"), Some(10.0 / floor))
                );
                let row = readme::section(report, std::slice::from_ref(&line), false);
                (best.out_of_reach, row, against_peers(&line))
            };
            // MPICH has 5, and three times that is asked.
            let (out, row, said) = with(20.0, 40.0);
            assert!(!out);
            assert!(
                row.contains("| 2.00 | ≥ 3, missed | 4.00 (ring of messages with tags) |"),
                "{row}"
            );
            assert!(said.contains("MISSED"), "{said}");
            let (out, row, said) = with(12.0, 40.0);
            assert!(out);
            assert!(row.contains("| ≥ 3, out of reach | 2.40 ("), "{row}");
            assert!(said.contains("OUT OF REACH"), "{said}");
            // Ours makes 10: what makes less shows nothing, but the floor may.
            let (out, row, _) = with(9.0, 40.0);
            assert!(!out && row.contains("| ≥ 3, missed | 8.00 (bare ring)"), "{row}");
            let (out, row, _) = with(9.0, 12.0);
            assert!(out && row.contains("| ≥ 3, out of reach | 2.40 (bare ring)"), "{row}");
            // It is at 9.5, give or take; 9.0 is beaten.
            let (out, row, _) = with(9.0, 9.5);
            assert!(out && row.contains("| ≥ 3, out of reach | 1.90 (bare ring)"), "{row}");
            let (out, row, _) = with(9.0, 8.0);
            assert!(!out && row.contains("| ≥ 3, missed | 1.60 (bare ring)"), "{row}");
        });
    }

    #[test]
    fn ranks_that_share_cores_are_asked_other_things() {
        check(|report| {
            let of = |report: &Report<'_>| {
                let mut lines = report.lines();
                lines.retain(|line| line.workload == "latency" && line.ranks == 4);
                let line = lines.remove(0);
                let best = line.best.unwrap();
                (line.floor_ratio, line.floor_holds, best.ratio, best.holds)
            };
            assert_eq!(of(report), (Some(2.5), Some(true), Some(0.25), Some(true)));
            // With a core for each they are what two ranks are, and their floor was not measured.
            let many = Report { cores: 4, ..*report };
            assert_eq!(of(&many), (None, None, Some(0.25), Some(true)));
            let lines = many.lines();
            let line = lines.iter().find(|line| line.ranks == 4).unwrap();
            assert_eq!(line.best.as_ref().unwrap().goal, "≤ 0.8x");
        });
    }

    #[test]
    fn a_readme_gets_a_summary_between_its_marks() {
        check(|report| {
            let dir = tempfile::tempdir().unwrap();
            let readme = dir.path().join("README.md");
            std::fs::write(&readme, "# a\n").unwrap();
            assert!(report.write_into(&readme).is_err(), "no marks");
            let marked = format!("# a\n{}\nold\n{}\nend\n", readme::BEGIN, readme::END);
            std::fs::write(&readme, &marked).unwrap();
            for _ in 0..2 {
                report.write_into(&readme).unwrap();
                let text = std::fs::read_to_string(&readme).unwrap();
                assert!(text.starts_with("# a\n") && text.ends_with("\nend\n"), "{text}");
                assert!(!text.contains("old"));
                let row = "| latency, one way, 8 B | 100 ns | 200 ns (Open MPI) | **0.50** | ≤ 0.8 \
                     | 0.25 (ping-pong, two lines) |";
                assert_eq!(text.matches(row).count(), 1, "{text}");
                assert!(
                    text.contains("| message rate, one pair, 8 B | 10.0 M/s | 5.00 M/s (MPICH)")
                );
                assert!(text.contains("missed |") && text.contains("MPICH 4"));
                assert!(text.contains(readme::FILE));
            }
            assert!(dir.path().join(readme::FILE).is_file());
        });
    }

    #[test]
    fn a_report_has_tables_curves_reasons_settings_and_values() {
        check(|report| {
            let dir = tempfile::tempdir().unwrap();
            let path = report.write(&dir.path().join("new")).unwrap();
            let page = std::fs::read_to_string(&path).unwrap();
            assert!(page.contains("signal: 11 &lt;core&gt;"), "{page}");
            assert!(page.contains("no ucx_perftest") && page.contains("--mca pml ob1"));
            assert!(page.contains("mpiexec -n 2 messages"));
            assert_eq!(page.matches("<svg").count(), 1);
            for kind in ["svg", "png"] {
                assert!(path.with_file_name(format!("latency-one-way.{kind}")).is_file());
            }
            // Three contestants and the limit.
            assert_eq!(page.matches("<polyline").count(), 4);
            let json = std::fs::read_to_string(path.with_file_name("report.json")).unwrap();
            let values: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(values.as_array().unwrap().len(), 7);
            assert_eq!(values[0]["entries"].as_array().unwrap().len(), 3);
        });
    }
}
