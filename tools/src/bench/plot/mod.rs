//! The sweeps as curves: one HTML page with its diagrams inline (SVG) and the figures beneath
//! them, the command, and the machine. Whoever wants a file of its own for a diagram finds that
//! beside the page.

mod axis;
pub mod chart;
pub mod png;

use super::row::Row;
use super::table;
use chart::Chart;
use hither::topo::Topology;
use hither::{Error, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How pages look.
pub const CSS: &str = "\
body{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;color:#1f2933;max-width:960px;\
margin:2em auto;padding:0 1em}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2.2em}\
pre{font-size:11px;line-height:1.25;overflow-x:auto;background:#f5f7fa;padding:.8em}\
dt{font-weight:bold}dd{margin:0 0 .4em 1.5em}svg{width:100%;height:auto}";

/// Writes `index.html` and one SVG per diagram into `dir`, which is made if need be; the page's
/// path. `command` is what was run.
pub fn report(dir: &Path, rows: &[Row], command: &str) -> Result<PathBuf> {
    let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
    std::fs::create_dir_all(dir).map_err(os("making the directory for plots"))?;
    let charts = charts(rows);
    let mut body = String::new();
    for (at, (chart, rows)) in charts.iter().enumerate() {
        let svg = chart.draw();
        let name = format!("{:02}-{}.svg", at + 1, file_name(&chart.title));
        std::fs::write(dir.join(&name), &svg).map_err(os("writing a diagram"))?;
        // Writing into a String cannot fail.
        let _ = write!(
            body,
            "<h2>{}</h2>\n{svg}\n<details><summary>figures (<a href=\"{name}\">diagram</a>)\
             </summary><pre>{}</pre></details>\n",
            escape(&chart.title),
            escape(&table::table(rows)),
        );
    }
    let others: Vec<Row> = rows.iter().filter(|row| row.point.is_none()).cloned().collect();
    if !others.is_empty() {
        let text = escape(&table::table(&others));
        let _ = write!(body, "<h2>Figures outside of sweeps</h2>\n<pre>{text}</pre>\n");
    }
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>hither bench\
         </title><style>{CSS}</style></head><body>\n<h1>hither bench</h1>\n<dl>{}</dl>\n<p>Solid: \
         the library. Dashed: the limit measured beside it in the same run. Medians of \
         interleaved rounds.</p>\n{body}</body></html>\n",
        facts(command)
    );
    let path = dir.join("index.html");
    std::fs::write(&path, page).map_err(os("writing the report"))?;
    Ok(path)
}

/// The diagrams that the rows ask for, in their order, each with its rows.
fn charts(rows: &[Row]) -> Vec<(Chart, Vec<Row>)> {
    let mut charts: Vec<(Chart, Vec<Row>)> = Vec::new();
    for row in rows {
        let Some(point) = &row.point else { continue };
        let known = charts.iter().position(|(chart, _)| chart.title == point.figure);
        let at = known.unwrap_or_else(|| {
            charts.push((Chart::new(&point.figure, &point.axis, &row.unit), Vec::new()));
            charts.len() - 1
        });
        let (chart, members) = &mut charts[at];
        chart.add(&point.series, point.x, row.value, false);
        // A row that stands beside itself has no limit of its own.
        if row.floor > 0.0 && row.limit != point.series && !row.limit.is_empty() {
            chart.add(&row.limit, point.x, row.floor, true);
        }
        members.push(row.clone());
    }
    charts
}

/// What was run, where and when, as HTML.
pub fn facts(command: &str) -> String {
    let entry = |(name, text): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(text));
    circumstances(command).iter().map(entry).collect()
}

/// What was run, where and when: names and texts.
pub fn circumstances(command: &str) -> [(&'static str, String); 7] {
    let machine = match Topology::detect() {
        Ok(topology) => format!("{}: {}", topology.name(), crate::topo::summary(&topology)),
        Err(error) => error.to_string(),
    };
    let system = rustix::system::uname();
    let system =
        format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name)
        .to_owned();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let date = date(since.map_or(0, |since| since.as_secs() / 86400));
    let build = if cfg!(debug_assertions) { "debug (figures say little)" } else { "release" };
    let version = env!("CARGO_PKG_VERSION");
    [
        ("command", command.to_owned()),
        ("machine", machine),
        ("processor", processor),
        ("system", system),
        ("date", date),
        ("build", build.to_owned()),
        ("version", version.to_owned()),
    ]
}

/// The date of a day since 1970, by the rules of the calendar (eras of 400 years from March on).
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

/// Text as HTML has it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name for a file from a title.
pub fn file_name(title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = title.chars().map(plain).take(60).collect();
    name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::{Goal, Heading, Point};
    use crate::bench::stats::summarise;

    fn row(series: &str, x: f64, value: f64) -> Row {
        let heading = Heading {
            bench: "b",
            what: format!("{series} <at> {x}"),
            size: 0,
            limit: "memcpy",
            unit: "ns",
            goal: Goal::None,
            point: Some(Point::new("Puts & gets", series, "bytes", x)),
        };
        heading.row(2, summarise(&[(value, 1.0)]), None)
    }

    #[test]
    fn a_page_holds_its_diagrams_and_figures() {
        let dir = tempfile::tempdir().unwrap();
        let mut rows: Vec<Row> = (0..12).map(|i| row("put", f64::exp2(i.into()), 3.0)).collect();
        rows.extend((0..12).map(|i| row("get", f64::exp2(i.into()), 300.0 * f64::from(i + 1))));
        let mut alone = row("x", 1.0, 1.0);
        alone.point = None;
        rows.push(alone);
        let page = report(&dir.path().join("new"), &rows, "hither bench <all>").unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("<h2>Puts &amp; gets</h2>") && text.contains("bench &lt;all&gt;"));
        assert_eq!(text.matches("<svg").count(), 1);
        // Three curves: two of the library, one limit.
        assert_eq!(text.matches("<polyline").count(), 3);
        assert!(text.contains("outside of sweeps"));
        assert!(page.with_file_name("01-puts-gets.svg").is_file());
    }

    #[test]
    fn a_limit_that_is_a_curve_already_is_drawn_once() {
        let mut chart = Chart::new("t", "% of all", "k/s");
        for x in [5.0, 50.0, 95.0] {
            chart.add("a, large", x, x, false);
            chart.add("b", x, 2.0, false);
            chart.add("a", x, x, true);
            chart.add("memcpy, in a name that is much longer than there is room for", x, 9.0, true);
        }
        let drawn = chart.draw();
        assert_eq!(drawn.matches("<polyline").count(), 3);
        // Every second ten of the whole has a mark, however the values lie.
        assert!(["0", "20", "100"].iter().all(|mark| drawn.contains(&format!("\n{mark}\n"))));
        assert!(!drawn.contains("width=\"860\""), "room for the long name");
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(20_513), "2026-03-01");
    }
}
