//! The packet path under load: floods, targets that are slow, that drop their window and that
//! die, and memory that stays flat. Ranks are processes; each case is a job of its own, so that
//! it can have settings of its own. A filter on the command line selects cases by name.

mod messages;
#[path = "../support/mod.rs"]
mod support;
mod work;

use hither::world::Outcome;
use std::time::{Duration, Instant};
use support::options::Options;
use support::ranks;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-packets";

/// How a case is run.
struct Case {
    name: &'static str,
    ranks: u32,
    settings: &'static [(&'static str, &'static str)],
    /// Ranks that are to end badly.
    killed: &'static [u32],
}

const CALLS: (&str, &str) = ("HITHER_PROGRESS", "calls");

const CASES: &[Case] = &[
    Case { name: "flood_all_to_all", ranks: 2, settings: &[], killed: &[] },
    Case { name: "flood_all_to_all", ranks: 5, settings: &[], killed: &[] },
    Case {
        name: "flood_all_to_all",
        ranks: 3,
        settings: &[
            ("HITHER_RMA_OUTSTANDING", "1"),
            ("HITHER_RMA_OPERATIONS", "2"),
            ("HITHER_RMA_TARGETS", "1"),
            ("HITHER_RMA_ORIGINS", "1"),
        ],
        killed: &[],
    },
    Case { name: "flood_all_to_all", ranks: 3, settings: &[CALLS], killed: &[] },
    Case { name: "large_both_ways", ranks: 2, settings: &[], killed: &[] },
    Case { name: "large_both_ways", ranks: 4, settings: &[CALLS], killed: &[] },
    Case { name: "many_threads", ranks: 2, settings: &[], killed: &[] },
    Case { name: "window_dropped_under_fire", ranks: 3, settings: &[], killed: &[] },
    // Less than a member that dropped its window is borne with if nobody waits for it.
    Case {
        name: "who_dropped_the_window_is_named",
        ranks: 3,
        settings: &[("HITHER_WAIT_TIMEOUT", "2")],
        killed: &[],
    },
    Case {
        name: "who_dropped_the_window_is_named",
        ranks: 3,
        settings: &[("HITHER_WAIT_TIMEOUT", "2"), CALLS],
        killed: &[],
    },
    Case { name: "target_dies_under_fire", ranks: 4, settings: &[], killed: &[1] },
    Case { name: "groups_end_after_a_death", ranks: 3, settings: &[], killed: &[2] },
    Case { name: "groups_end_after_a_death", ranks: 3, settings: &[CALLS], killed: &[2] },
    Case { name: "fences_end_after_a_death", ranks: 3, settings: &[], killed: &[2] },
    Case {
        name: "fences_end_after_a_death",
        ranks: 3,
        settings: &[("HITHER_RMA_REDUCE_TEAMS", "0")],
        killed: &[2],
    },
    Case { name: "a_shrunk_team_goes_on", ranks: 4, settings: &[], killed: &[1] },
    Case { name: "a_shrunk_team_goes_on", ranks: 4, settings: &[CALLS], killed: &[1] },
    Case {
        name: "a_shrunk_team_goes_on",
        ranks: 4,
        settings: &[("HITHER_RMA_MEDIUM", "auto")],
        killed: &[1],
    },
    // Progress by calls, and the call waits for a lock of mapped memory. The deadline is longer than
    // it takes if the wait looks after packets, and shorter than if its sleeps are of full length.
    Case {
        name: "who_waits_for_a_lock_answers",
        ranks: 3,
        settings: &[("HITHER_RMA_MEDIUM", "auto"), ("HITHER_WAIT_TIMEOUT", "20"), CALLS],
        killed: &[],
    },
    Case { name: "futures_let_windows_go", ranks: 2, settings: &[], killed: &[] },
    Case { name: "windows_come_and_go", ranks: 3, settings: &[], killed: &[] },
    Case { name: "settings_differ", ranks: 3, settings: &[], killed: &[] },
    Case { name: "memory_stays_flat", ranks: 2, settings: &[CALLS], killed: &[] },
];

fn main() {
    let options = Options::read(&[]);
    if let Some([name]) = options.behind(RANK) {
        return work::rank(name);
    }
    let filter = options.word().unwrap_or_default();
    let mut failed = 0;
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        let began = Instant::now();
        let outcome = run(case);
        let ok = (0..case.ranks).all(|rank| {
            case.killed.contains(&rank)
                || ranks::said(&outcome, rank as usize).lines().any(|line| line == "well")
        });
        let settings: Vec<String> =
            case.settings.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let verdict = if ok { "ok" } else { "FAILED" };
        let took = began.elapsed();
        let (name, ranks) = (case.name, case.ranks);
        println!("test {name} ({ranks} ranks{}) ... {verdict} ({took:.1?})", settings.concat());
        if !ok {
            failed += 1;
            eprintln!("{}", outcome.summary());
            for rank in 0..case.ranks as usize {
                eprint!("{}", ranks::said(&outcome, rank));
                eprint!("{}", String::from_utf8_lossy(&outcome.stderr[rank]));
            }
        } else if case.name == "memory_stays_flat" {
            print!("{}", ranks::said(&outcome, 0).replace("well\n", ""));
        }
    }
    assert_eq!(failed, 0, "cases that failed");
}

fn run(case: &Case) -> Outcome {
    let mut launcher = ranks::launcher()
        .args([RANK, case.name])
        .ranks(case.ranks)
        .survive(!case.killed.is_empty())
        .env("HITHER_RMA_MEDIUM", "packets")
        .env("HITHER_WAIT_TIMEOUT", "120")
        .timeout(Duration::from_secs(300));
    for (key, value) in case.settings {
        launcher = launcher.env(key, value);
    }
    ranks::run(launcher)
}
