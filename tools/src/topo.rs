//! `hither topo`: the machine as a tree, and where ranks would be bound, as text, JSON or SVG.

mod json;
mod svg;
mod text;

use crate::run;
use hither::base::settings;
use hither::topo::{Bind, Plan, Topology};
use hither::{Error, Rank, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hither topo`.
#[derive(clap::Args)]
pub struct Args {
    /// Show an invented machine instead of this one: packages x NUMA nodes per package x
    /// last-level caches per node x cores per cache x threads per core, such as 2x4x2x8x2
    #[arg(long, value_name = "PxNxLxCxT")]
    synthetic: Option<String>,
    /// Number of ranks to place [default: one per core]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// How to bind them
    #[arg(long, value_enum, default_value = "core")]
    bind: run::Bind,
    /// Also draw a picture into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A machine with ranks on it: what all three forms show.
struct Scene {
    topology: Topology,
    plan: Plan,
    bind: Bind,
    ranks: u32,
    /// Rank of each CPU that a rank is bound to, and whether it is the rank's first.
    seats: BTreeMap<u32, (u32, bool)>,
}

impl Scene {
    fn new(topology: Topology, bind: Bind, ranks: Option<u32>) -> Scene {
        let ranks = ranks.unwrap_or_else(|| topology.allowed_cores().max(1));
        let plan = Plan::new(&topology, bind, ranks);
        let mut seats = BTreeMap::new();
        if plan.binds() {
            for rank in 0..ranks {
                let home = plan.home_cpu(Rank(rank));
                let cpus = plan.cpus(Rank(rank)).unwrap_or_default();
                seats.extend(cpus.iter().map(|cpu| (cpu, (rank, home == Some(cpu)))));
            }
        }
        Scene { topology, plan, bind, ranks, seats }
    }

    /// The machine in a few words.
    fn summary(&self) -> String {
        let t = &self.topology;
        let threads = t.cpus().len();
        let mut text = summary(t);
        let allowed = t.allowed().count();
        if allowed < threads {
            text += &format!(", {allowed} of the CPUs allowed");
        }
        if let Some(quota) = t.quota {
            text += &format!(", processor time limited to {quota:.2} CPUs");
        }
        text
    }

    /// Where the ranks go, in a sentence.
    fn placement(&self) -> String {
        let ranks = count(self.ranks, "rank");
        let cores = self.topology.allowed_cores();
        // The plan's note says of itself when ranks could not be bound.
        if let (false, Some(note)) = (self.plan.binds(), self.plan.note()) {
            return note;
        }
        let each = if self.ranks == 1 { "" } else { "each " };
        let how = if !self.plan.binds() {
            "not bound".to_owned()
        } else if self.ranks > cores {
            "bound to hardware threads, some sharing a core".to_owned()
        } else {
            let way = if self.bind == Bind::Spread { "spread over" } else { "packed into" };
            format!("{each}bound to a core of its own, {way} {}", count(cores, "core"))
        };
        match self.plan.note() {
            Some(note) => format!("{ranks}, {how} ({note})"),
            None => format!("{ranks}, {how}"),
        }
    }
}

/// The machine's size in a few words; `doctor` shows it too.
pub fn summary(t: &Topology) -> String {
    use hither::topo::Level;
    format!(
        "{}, {}, {}, {}, {}",
        count(t.count(Level::Package), "package"),
        count(t.count(Level::Numa), "NUMA node"),
        count(t.count(Level::Cache), "last-level cache"),
        count(t.count(Level::Core), "core"),
        count(t.cpus().len() as u32, "CPU"),
    )
}

/// `1 core`, `2 cores`.
fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A size for people: `32 KiB`, `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let digits = usize::from(value < 10.0 && value.fract() >= 0.05);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Runs `hither topo`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let topology = match &args.synthetic {
        Some(spec) => Topology::synthetic(spec).map_err(|error| match error {
            // Said of the option here, not of the environment variable.
            Error::InvalidArgument { what, why } if what == settings::TOPOLOGY.name => {
                Error::invalid("--synthetic", why)
            }
            error => error,
        })?,
        None => Topology::detect()?,
    };
    let scene = Scene::new(topology, args.bind.into(), args.ranks);
    if let Some(file) = &args.svg {
        ::svg::save(file, &svg::draw(&scene)).map_err(|source| Error::Os {
            call: "writing the picture",
            source,
            hint: "give --svg a file name in a directory you can write to",
        })?;
    }
    if args.json {
        println!("{}", json::render(&scene)?);
    } else {
        print!("{}", text::render(&scene));
        if let Some(file) = &args.svg {
            println!("picture: {}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(spec: &str, bind: Bind, ranks: Option<u32>) -> Scene {
        Scene::new(Topology::synthetic(spec).unwrap(), bind, ranks)
    }

    #[test]
    fn sizes_read_well() {
        let cases = [(0, "0 B"), (48 << 10, "48 KiB"), (3 << 29, "1.5 GiB"), (5 << 40, "5.0 TiB")];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn a_small_machine_shows_every_core_and_rank() {
        let text = text::render(&scene("1x1x1x2x2", Bind::Core, Some(2)));
        for part in ["core 0 · cpus 0,2 · rank 0", "core 1 · cpus 1,3 · rank 1", "1 package"] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }

    #[test]
    fn a_big_machine_fits_a_screen() {
        let text = text::render(&scene("2x4x2x8x2", Bind::Core, Some(100)));
        assert!(text.lines().count() < 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("cpus 0-7,128-135"), "{text}");
        assert!(text.contains("ranks 96-99") && !text.contains("ranks 96-103"), "{text}");
    }

    #[test]
    fn ranks_without_a_place_are_said_to_be_unbound() {
        for (bind, ranks) in [(Bind::Core, 9), (Bind::None, 2), (Bind::Core, u32::MAX)] {
            let scene = scene("1x1x2x2x2", bind, Some(ranks));
            let text = text::render(&scene);
            assert!(text.contains("not bound") && !text.contains("· rank"), "{text}");
            let json: serde_json::Value =
                serde_json::from_str(&json::render(&scene).unwrap()).unwrap();
            assert_eq!(json["bound"], false);
        }
    }

    #[test]
    fn json_has_every_cpu_and_says_which_rank_sits_on_it() {
        let json = json::render(&scene("2x1x1x2x2", Bind::Core, Some(3))).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let cpus = json["cpus"].as_array().unwrap();
        assert_eq!(cpus.len(), 8);
        let seated = cpus.iter().filter(|cpu| !cpu["rank"].is_null()).count();
        assert_eq!(seated, 6, "three whole cores");
        assert_eq!(json["packages"], 2);
        assert_eq!(json["numa_nodes"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn pictures_show_each_cpu_once_and_are_well_formed() {
        for (spec, ranks) in [("1x1x1x1x1", 1), ("2x4x2x8x2", 100), ("1x3x1x5x4", 60)] {
            let scene = scene(spec, Bind::Spread, Some(ranks));
            let picture = svg::draw(&scene).to_string();
            let cpus = scene.topology.cpus().len();
            assert_eq!(picture.matches("class=\"thread").count(), cpus, "{spec}");
            // The parser stops with an error event at the first malformed tag.
            let events = ::svg::read(&picture).unwrap();
            let mut depth = 0i64;
            for event in events {
                match event {
                    ::svg::parser::Event::Tag(_, ::svg::node::element::tag::Type::Start, _) => {
                        depth += 1;
                    }
                    ::svg::parser::Event::Tag(_, ::svg::node::element::tag::Type::End, _) => {
                        depth -= 1;
                    }
                    ::svg::parser::Event::Error(error) => panic!("{error:?}"),
                    _ => {}
                }
            }
            assert_eq!(depth, 0);
        }
    }
}
