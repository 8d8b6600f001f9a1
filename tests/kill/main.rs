//! Kills a random rank at a random moment, or where it holds a lock or is inside an epoch, over and
//! over, and looks at what is left.
//!
//! Every survivor must end with a typed error that names the dead rank (or go on in a team of
//! the survivors, as asked), none may hang, and nothing may stay behind: no process, no file in
//! a shared directory. `--kills N` sets how many, `--seed S` repeats a sequence, a word selects
//! workloads by name: those on windows that are reached by packets have that in their names.

mod campaign;
mod collectives;
mod fuse;
mod messages;
#[path = "../support/mod.rs"]
mod support;
mod talk;
mod windows;
mod work;

use campaign::{Campaign, Work};
use std::time::Duration;
use support::options::Options;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-kill";
/// Pools of survivors stay: so much of them is bounded.
const POOLS: (&str, &str) = ("HITHER_EAGER_BYTES", "1M");
/// So do buffers that the dead have lent, for others may still copy out of them.
const LENT: (&str, &str) = ("HITHER_LEND_BYTES", "1M");
/// Exit code of a rank that ended with a typed error about a death.
const TYPED: u8 = 3;

fn main() {
    if let Some(args) = Options::read(&[]).behind(RANK) {
        std::process::exit(i32::from(work::rank_main(args)));
    }
    let work = |name: &str, points: &[&'static str]| Work {
        name: name.to_owned(),
        arguments: vec![RANK.to_owned(), name.to_owned()],
        settings: vec![POOLS, LENT],
        points: points.to_vec(),
    };
    let by_packets = |direct: Work| Work {
        name: format!("{} by packets", direct.name),
        settings: vec![("HITHER_RMA_MEDIUM", "packets")],
        ..direct
    };
    let works = work::all().map(|(name, points)| work(name, points));
    let windows = windows::WORKS.iter().filter(|of_windows| !of_windows.mapped);
    let through_buffers = talk::WORKS.iter().map(|talk| Work {
        name: format!("{} through buffers", talk.name),
        settings: vec![("HITHER_CMA", "0"), POOLS, LENT],
        ..work(talk.name, talk.points)
    });
    let by_both = |name: &'static str, setting: &'static str| {
        talk::WORKS.iter().map(move |talk| Work {
            name: format!("{} by {name}", talk.name),
            settings: vec![("HITHER_CMA", setting), ("HITHER_SPIN", "64"), POOLS, LENT],
            ..work(talk.name, talk.points)
        })
    };
    let through_pools = talk::WORKS.iter().map(|talk| Work {
        name: format!("{} through pools", talk.name),
        settings: vec![
            ("HITHER_EAGER", "fixed"),
            ("HITHER_EAGER_LIMIT", "100K"),
            ("HITHER_EAGER_FIXED_BUFFERS", "1"),
            ("HITHER_LEND_LIMIT", "0"),
            POOLS,
        ],
        ..work(talk.name, talk.points)
    });
    let works = works
        .chain(through_buffers)
        .chain(by_both("both sides", "slow"))
        .chain(by_both("halves", "halves"))
        .chain(through_pools);
    let works =
        works.chain(windows.map(|of_windows| by_packets(work(of_windows.name, of_windows.points))));
    Campaign {
        program: std::env::current_exe().expect("the path of this test"),
        works: works.collect(),
        survive: vec!["survive".into()],
        typed: TYPED,
        ends: false,
        longest: Duration::from_millis(150),
        kills: 120,
    }
    .run();
}
