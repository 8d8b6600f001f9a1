//! The page: what the figures say, tables with the goals, curves, what was run, and what failed.

use super::super::machine::WHOLE;
use super::{Beside, Line, OURS, Report, figure, states};
use crate::bench::compare::workload::{self, Group, Sizing};
use crate::bench::plot::chart::Chart;
use crate::bench::plot::{self, escape, file_name};
use crate::bench::table::short;
use std::fmt::Write as _;

const CSS: &str = "table{border-collapse:collapse;font-size:12.5px;margin:.8em 0}\
th,td{padding:.25em .6em;border-bottom:1px solid #e4e7eb;text-align:right;white-space:nowrap}\
th{background:#f5f7fa}td:first-child,th:first-child{text-align:left;white-space:normal;min-width:15em}\
.holds{background:#e3f4e8}.missed{background:#fbe6e1}.best{font-weight:bold}\
.none{color:#7b8794}body{max-width:1320px}.wide{overflow-x:auto}li{margin:.2em 0}\
code{font-size:11.5px;overflow-wrap:anywhere}small{color:#52606d}";

/// The curves: each workload that has some sizes, by size; the start of jobs, by ranks.
pub fn charts(lines: &[Line]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for workload in workload::ALL {
        let by_ranks = workload.group == Group::Start;
        let of: Vec<&Line> = lines
            .iter()
            .filter(|line| line.workload == workload.name)
            .filter(|line| {
                by_ranks || line.ranks == 2 && line.size > 0 && workload.sizing == Sizing::Bytes
            })
            .collect();
        let least = if by_ranks { 2 } else { 3 };
        if of.len() < least {
            continue;
        }
        let axis = if by_ranks { "ranks" } else { "bytes" };
        let mut chart = Chart::new(workload.what, axis, workload.measure.unit());
        for line in of {
            let x = if by_ranks { f64::from(line.ranks) } else { line.size as f64 };
            let ours = line.entries.iter().filter(|entry| entry.contestant == OURS);
            let others = line.entries.iter().filter(|entry| entry.contestant != OURS);
            for entry in ours.chain(others) {
                if let Some(value) = entry.value {
                    chart.add(entry.contestant, x, value, false);
                }
            }
            // Which limit it is depends on the size; the table says it.
            if let Some(floor) = line.floor {
                chart.add("the floor", x, floor, true);
            }
        }
        charts.push(chart);
    }
    charts
}

/// The file of a diagram, without what tells its kind.
pub fn file(chart: &Chart) -> String {
    file_name(&chart.title)
}

/// The whole page.
pub fn page(report: &Report<'_>, lines: &[Line], charts: &[Chart]) -> String {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let mut body = String::new();
    // Writing into a String cannot fail.
    let _ = write!(
        body,
        "<h1>hither against its peers</h1>\n<dl>{}</dl>\n{}",
        plot::facts(&format!("hither {}", command.join(" "))),
        contestants(report)
    );
    body += &summary(lines);
    for group in Group::ALL {
        let of: Vec<&Line> = lines.iter().filter(|line| group_of(line) == Some(group)).collect();
        if of.is_empty() {
            continue;
        }
        let _ = write!(body, "<h2>{}</h2>\n{}", group.title(), table(report, &of));
        let titles: Vec<&str> = of.iter().map(|line| line.what).collect();
        for chart in charts.iter().filter(|chart| titles.contains(&chart.title.as_str())) {
            let name = file(chart);
            let _ = writeln!(
                body,
                "<p>{}<br><small><a href=\"{name}.svg\">SVG</a> <a href=\"{name}.png\">PNG</a>\
                 </small></p>",
                chart.draw()
            );
        }
    }
    body += &reasons(lines);
    body += &settings(report);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>hither against its \
         peers</title><style>{}{CSS}</style></head><body>\n{body}</body></html>\n",
        plot::CSS
    )
}

fn group_of(line: &Line) -> Option<Group> {
    workload::find(line.workload).map(|(_, workload)| workload.group)
}

fn contestants(report: &Report<'_>) -> String {
    let mut text = String::from("<ul>");
    for (name, version, by) in report.contestants {
        let _ = write!(text, "<li>{} {}: {}</li>", escape(name), escape(version), escape(by));
    }
    for peer in report.absent {
        let _ = write!(text, "<li>{}: left out: {}</li>", escape(peer.name), escape(&peer.why));
    }
    let effort = &report.effort;
    let _ = write!(
        text,
        "</ul>\n<p>All contestants in turn, {} rounds, a start of each in every round; in a round, \
         the median of {} batches of {} ms (ten times that with more ranks than cores). Figures are \
         medians over the rounds; ± is half the distance between the quartiles. Ratios are hither's \
         figure through the other: of times (ns, ms) and memory less is better, of rates and \
         bandwidths more. Jobs of up to {} ranks have a core for each; ranks of larger ones share \
         cores, and their floor is hither's own figure with a core each. Limits are the smallest programs that \
         do the same without a library, as many processes at once, of several ways the best; a goal that the \
         limit misses, too, is out of reach, unless hither is better than the limit by more than a tenth.</p>\n<p>On a virtual machine \
         the way from one core to the other may change within minutes, by several times, and so may whether \
         a core has a processor's core for itself, or shares it with another machine's, which takes half of \
         its speed away. A ping-pong between two cores and a loop on each were taken before and after each \
         turn: near is what takes at most twice the shortest seen, far up to four times, farther what takes \
         more, whole what takes at most {WHOLE} times the shortest. After the rounds, as long as there is time for that, whoever has been measured least \
         in the state of that moment has a further turn, until all have been in one state often enough; for each figure those turns count in which \
         all were in the same state: {} turns, {} of them further ones; in {} the state changed.</p>\n",
        effort.rounds,
        effort.batches,
        short(effort.batch / 1e6),
        report.cores,
        report.results.machine.turns,
        report.results.machine.further,
        report.results.machine.changed
    );
    text
}

/// How many goals hold.
fn summary(lines: &[Line]) -> String {
    let count = |held: Vec<bool>| (held.iter().filter(|held| **held).count(), held.len());
    let besides = || lines.iter().flat_map(Line::besides);
    let (peers, of_peers) = count(besides().filter_map(|beside| beside.holds).collect());
    let out = besides().filter(|beside| beside.out_of_reach).count();
    let (floors, of_floors) = count(lines.iter().filter_map(|line| line.floor_holds).collect());
    format!(
        "<p><b>{peers} of {of_peers}</b> goals against the best peer hold ({out} more are out of \
         reach, as the limit misses them, too), and <b>{floors} of {of_floors}</b> against the floor. Figures by what the cores were like: {}.</p>\n",
        states(lines)
    )
}

fn judged(ratio: f64, of: &str, goal: &str, holds: Option<bool>, missed: &str) -> String {
    let class = match holds {
        Some(true) => " class=\"holds\"",
        Some(false) => " class=\"missed\"",
        None => "",
    };
    let goal = if goal.is_empty() { String::new() } else { format!(", goal {}", escape(goal)) };
    let missed = if holds == Some(false) { format!(", {missed}") } else { String::new() };
    format!("<div{class}>{}x <small>{}{goal}{missed}</small></div>", short(ratio), escape(of))
}

/// Our figure beside the peers'.
fn beside_peers(line: &Line) -> String {
    let judged = |beside: &Beside| {
        let ratio = beside.ratio?;
        Some(judged(ratio, beside.peer, &beside.goal, beside.holds, beside.missed()))
    };
    line.besides().filter_map(judged).collect()
}

/// Our figure beside the floor.
fn beside_floor(line: &Line) -> String {
    let judged = |(ratio, of)| judged(ratio, of, &line.floor_goal, line.floor_holds, "missed");
    line.floor_ratio.zip(line.floor_name).map_or_else(String::new, judged)
}

/// The limit, and what it is beside the peers.
fn limit(line: &Line) -> String {
    let Some((limit, name)) = line.limit.zip(line.limit_name) else { return String::new() };
    let beside = |beside: &Beside| {
        let ratio = beside.limit_ratio?;
        Some(format!("<div><small>{}x {}</small></div>", short(ratio), escape(beside.peer)))
    };
    let besides: String = line.besides().filter_map(beside).collect();
    format!("<div>{} <small>{}</small></div>{besides}", short(limit), escape(name))
}

fn table(report: &Report<'_>, lines: &[&Line]) -> String {
    let mut text =
        String::from("<div class=\"wide\"><table><tr><th>what</th><th>size</th><th>ranks</th>");
    for (name, ..) in report.contestants {
        let _ = write!(text, "<th>{}</th>", escape(name));
    }
    text += "<th>unit</th><th>against the best peer</th><th>against the floor</th><th>limit</th></tr>\n";
    for line in lines {
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td>",
            escape(line.what),
            line.size_text(),
            line.ranks
        );
        for (name, ..) in report.contestants {
            let shown = figure(line, name);
            let class = if shown == "–" {
                "none"
            } else if line.besides().any(|beside| beside.peer == *name) {
                "best"
            } else {
                ""
            };
            let _ = write!(text, "<td class=\"{class}\">{shown}</td>");
        }
        let _ = writeln!(
            text,
            "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            line.unit,
            beside_peers(line),
            beside_floor(line),
            limit(line),
        );
    }
    text += "</table></div>\n";
    text
}

/// Why figures are missing: each reason once, with what it is the reason for.
fn reasons(lines: &[Line]) -> String {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        for entry in &line.entries {
            let Some(why) = &entry.failed else { continue };
            let reason = format!("{}: {why}", entry.contestant);
            let size = line.size_text();
            let item = format!(
                "{}{}{size} ({} ranks)",
                line.workload,
                if size.is_empty() { "" } else { " " },
                line.ranks
            );
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, items)) => items.push(item),
                None => reasons.push((reason, vec![item])),
            }
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h2>What has no figure, and why</h2>\n<ul>");
    for (reason, items) in reasons {
        let _ = write!(text, "<li>{}<br><small>{}</small></li>", escape(&reason), items.join(", "));
    }
    text += "</ul>\n";
    text
}

/// The settings that were tried, and the commands.
fn settings(report: &Report<'_>) -> String {
    let mut text = String::from(
        "<h2>Settings and commands</h2>\n<p>Each peer ran with the first of its settings below: \
         that in which most of a few short workloads of the group worked, and of those the fastest \
         on the whole (times against the first one that was tried, in which the workload \
         worked).</p>\n<ul>",
    );
    for choice in &report.results.choices {
        let tried = |(name, works, mean): &(String, usize, f64)| {
            if choice.tried.len() < 2 {
                return format!("<code>{}</code>", escape(name));
            }
            let all = choice.group.probes().len();
            let works =
                if *works < all { format!(", {works} of {all} work") } else { String::new() };
            format!("<code>{}</code> {}{works}", escape(name), short(*mean))
        };
        let tried: Vec<String> = choice.tried.iter().map(tried).collect();
        let _ = write!(
            text,
            "<li><b>{}</b>, {}, {} ranks: {}<br><code>{}</code></li>",
            escape(choice.peer),
            choice.group.name(),
            choice.ranks,
            tried.join("; "),
            escape(&choice.command)
        );
    }
    text += "</ul>\n";
    text
}
