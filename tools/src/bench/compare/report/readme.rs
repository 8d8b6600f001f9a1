//! The summary for a README: ratios to the best peer where something is asked of them, one diagram, and where
//! and when that was measured.

use super::{Beside, Line, OURS, Report, states};
use crate::bench::plot;
use crate::bench::table::short;
use hither::{Error, Result};
use std::fmt::Write as _;

/// What stands before the section.
pub const BEGIN: &str = "<!-- written by hither bench compare --readme: begin -->";
/// What stands behind it.
pub const END: &str = "<!-- written by hither bench compare --readme: end -->";
/// The file of the diagram, from the README.
pub const FILE: &str = "docs/compared.svg";
/// Its title.
pub const DIAGRAM: &str = "latency, one way";

/// The text with what stands between the marks replaced.
pub fn replaced(text: &str, section: &str) -> Result<String> {
    let wrong = || {
        let why = format!("its README has no \"{BEGIN}\" with \"{END}\" behind it");
        Error::invalid("bench compare --readme", why)
    };
    let (before, rest) = text.split_once(BEGIN).ok_or_else(wrong)?;
    let (_, after) = rest.split_once(END).ok_or_else(wrong)?;
    Ok(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

/// The section.
pub fn section(report: &Report<'_>, lines: &[Line], diagram: bool) -> String {
    let facts = plot::circumstances(&format!("hither {}", command(std::env::args().skip(1))));
    let fact = |name: &str| facts.iter().find(|fact| fact.0 == name).map_or("", |fact| &*fact.1);
    let contestants: Vec<String> =
        report.contestants.iter().map(|(name, version, _)| format!("{name} {version}")).collect();
    let mut text = format!(
        "\n{}; {}; {} build; `{}`; {}; medians of {} rounds, 2 ranks unless said. Figures by what the cores \
         were like (see docs/performance.md): {}.\n\n\
         Limits are the smallest programs that do the same, without a library, as many processes at once; a goal \
         that the limit misses, too, is out of reach, unless hither is better than the limit by more than a tenth.\n\n\
         | what | hither | best peer | ratio | goal | limit beside the best peer |\n|---|---|---|---|---|---|\n",
        fact("date"),
        fact("machine"),
        fact("build"),
        fact("command"),
        contestants.join(", "),
        report.effort.rounds,
        states(lines),
    );
    for line in lines {
        text.extend(line.besides().filter_map(|beside| row(line, beside)));
    }
    if diagram {
        // Writing into a String cannot fail.
        let _ = write!(text, "\n![Latency of messages by size, hither and its peers]({FILE})\n");
    }
    text.push('\n');
    text
}

/// What the limit makes beside that peer.
fn limit(line: &Line, beside: &Beside) -> String {
    let named = beside.limit_ratio.zip(line.limit_name);
    named.map_or_else(String::new, |(ratio, name)| format!("{} ({name})", short(ratio)))
}

/// A line of which something is asked.
fn row(line: &Line, beside: &Beside) -> Option<String> {
    let (ratio, best, holds) = (beside.ratio?, beside.peer, beside.holds?);
    let value = |name: &str| {
        line.entries.iter().find(|entry| entry.contestant == name).and_then(|entry| entry.value)
    };
    let size = line.size_text();
    let gap = if size.is_empty() { "" } else { ", " };
    let ranks = if line.ranks == 2 { String::new() } else { format!(", {} ranks", line.ranks) };
    let ratio = if holds { format!("**{}**", short(ratio)) } else { short(ratio) };
    Some(format!(
        "| {}{gap}{size}{ranks} | {} {unit} | {} {unit} ({best}) | {ratio} | {}{} | {} |\n",
        line.what,
        short(value(OURS)?),
        short(value(best)?),
        beside.goal.trim_end_matches('x'),
        if holds { String::new() } else { format!(", {}", beside.missed()) },
        limit(line, beside),
        unit = line.unit,
    ))
}

/// A command line without folders, which say something of a machine alone: that which the report went to is
/// left out, that of a build is called DIR.
fn command(args: impl Iterator<Item = String>) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut before = String::new();
    for arg in args {
        let (name, value) = arg.split_once('=').map_or((&*arg, false), |(name, _)| (name, true));
        match (&*before, name) {
            ("--out", _) | (_, "--out") => {}
            ("--gasnet", _) => kept.push("DIR".into()),
            (_, "--gasnet") if value => kept.push("--gasnet=DIR".into()),
            _ => kept.push(arg.clone()),
        }
        // A value that follows.
        before = if value { String::new() } else { arg };
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_without_folders() {
        let told = |line: &str| command(line.split(' ').map(str::to_owned));
        let wanted = "bench compare --quick --readme README.md";
        assert_eq!(told("bench compare --quick --out /x --readme README.md"), wanted);
        assert_eq!(told("bench compare --out=/x --quick --readme README.md"), wanted);
        assert_eq!(told(wanted), wanted);
        let wanted = "bench compare --gasnet DIR --quick";
        assert_eq!(told("bench compare --gasnet /x --out /y --quick"), wanted);
        assert_eq!(told("bench compare --gasnet=/x --quick"), wanted.replace(" DIR", "=DIR"));
    }
}
