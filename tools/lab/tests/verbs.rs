//! hither over RDMA devices: Soft-RoCE in guests. Where this machine cannot have guests the tests say
//! why, and that is all they do.

mod support;

use hither_lab::{Lab, Options, Program, Running};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use support::{alone, boot, guests, here, hither, said, tests};

/// Packets that a guest's device has sent.
fn packets(lab: &Lab, guest: usize) -> u64 {
    let line = "cat /sys/class/infiniband/$LAB_DEVICE/ports/1/hw_counters/sent_pkts";
    said(lab, guest, line).parse().unwrap()
}

/// What runs ranks by verbs on two guests, which are steered by the network that stays when the other is
/// cut.
fn ranks(options: &[&str], rank: &Path, arguments: &[&str]) -> Program {
    let run = Program::new(hither()).args(["run", "--hosts", "m0,m1", "--bind", "none"]);
    let run = run.args(options).arg("--").arg(rank).args(arguments);
    run.env("HITHER_NET_PROVIDER", "verbs").directory(here().join("../.."))
}

/// Two ranks.
fn two(options: &[&str], rank: &Path, arguments: &[&str]) -> Program {
    let options = [&["-n", "2", "--timeout", "300"], options].concat();
    // A queue pair from the first message on.
    let run = ranks(&options, rank, arguments).env("HITHER_NET_PAIR_AFTER", "1");
    run.env("HITHER_NET_TIMEOUT", "10").env("HITHER_HOST_TIMEOUT", "10")
}

fn solves_a_stencil(lab: &Lab, provider: &str) {
    let demo = ["demo", "stencil", "--json", "--size", "16x16", "--sweeps", "2"];
    let run = two(&[], &hither(), &demo).env("HITHER_NET_PROVIDER", provider);
    let output = lab.run(0, &run).unwrap().wait().unwrap();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("\"validated\":true"), "{output:?}");
}

/// Parts in which the cases of the conformance suite take turns, one a day: all of them take an
/// hour. Divides the number of no dimension of the generated ones.
const TURNS: usize = 13;

/// Has all of them run.
const ALL: &str = "HITHER_LAB_ALL";

/// That queue pairs come, and how messages change over to them and to those with larger eager
/// thresholds, is tried every day.
const ALWAYS: [&str; 2] = ["talk_promotions_are_counted", "talk_thresholds_rise_between_nodes"];

/// Cases of the conformance suite for two nodes: those that are run today, and the turn of it.
fn todays(suite: &Path) -> (Vec<String>, String) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let today = since.as_secs() as usize / 86_400;
    let turn = today.to_string();
    let output = Command::new(suite).args(["--list", "--turn", &turn]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(" (nodes-2)")).collect();
    let there = ALWAYS.iter().all(|name| all.contains(name));
    assert!(there && all.len() > 10 * TURNS, "{all:?}");
    let chosen = |(number, name): &(usize, &&str)| {
        let turn = number % TURNS == today % TURNS;
        std::env::var_os(ALL).is_some() || turn || ALWAYS.contains(*name)
    };
    let words: Vec<&str> = all.iter().enumerate().filter(chosen).map(|(_, name)| *name).collect();
    // A name may be a part of others.
    let cases = all.iter().filter(|name| words.iter().any(|word| name.contains(word)));
    (cases.map(|name| name.to_string()).collect(), turn)
}

/// Ranks that talk by RDMA until one of them dies.
fn endless(lab: &Lab) -> Running {
    let before = packets(lab, 1);
    let rank = tests(&["--test", "kill"]);
    // What is left is to notice by itself.
    let running = lab.run(0, &two(&["--survive"], &rank, &["--rank-of-kill", "messages"])).unwrap();
    while packets(lab, 1) < before + 200 {
        assert!(running.is_running(), "{:?}", running.wait());
        std::thread::sleep(Duration::from_millis(100));
    }
    running
}

/// The rank that is left has ended with an error that names the other.
fn missed(running: &Running) {
    let output = running.wait().unwrap();
    assert_ne!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("rank 1 died"), "{output:?}");
}

#[test]
fn devices_pass_the_suite_of_all_providers() {
    let _alone = alone();
    let Some(lab) = boot(&Options { limit: Duration::from_secs(900), ..guests(1) }) else { return };
    let before = packets(&lab, 0);
    let suite = Program::new(tests(&["--lib"]));
    let suite = suite.args(["net::conformance::verbs", "--test-threads=1", "--nocapture"]);
    let output = lab.run(0, &suite).unwrap().wait().unwrap();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!output.stdout.contains("not tested over verbs"), "{output:?}");
    assert!(output.stdout.contains("test result: ok. 5"), "fifty-odd tests: {output:?}");
    assert!(packets(&lab, 0) > before + 1_000);
}

#[test]
fn a_job_goes_over_devices_until_one_of_its_guests_cannot_be_reached() {
    let _alone = alone();
    let Some(lab) = boot(&Options { limit: Duration::from_secs(900), ..guests(2) }) else { return };
    let before = [0, 1].map(|guest| packets(&lab, guest));
    // Nobody says that it is to be by devices: both have one.
    solves_a_stencil(&lab, "auto");
    for guest in [0, 1] {
        assert!(packets(&lab, guest) > before[guest] + 20, "guest {guest} sent nothing by RDMA");
    }

    // The other network, by which ranks are started and watched, stays.
    let running = endless(&lab);
    lab.cut(1).unwrap();
    missed(&running);
    lab.restore(1).unwrap();
    solves_a_stencil(&lab, "verbs");
}

/// Windows, active messages, messages and collectives, by four ranks. The first messages go by datagrams
/// and most others by queue pairs.
#[test]
fn all_rooms_conform_over_devices() {
    let _alone = alone();
    let limit = Duration::from_secs(3600);
    let Some(lab) = boot(&Options { limit, ..guests(2) }) else { return };
    let suite = tests(&["--test", "conformance"]);
    let (cases, turn) = todays(&suite);
    let before = [0, 1].map(|guest| packets(&lab, guest));
    let filter = cases.join(",");
    let worker = ["--worker-of-conformance", "nodes-2", "processes", "4", &filter, &turn, "0"];
    let options = ["-n", "4", "--timeout", "3000", "--env", "CONFORMANCE_PATIENCE"];
    let run = ranks(&options, &suite, &worker);
    // What takes seconds in a guest takes minutes in one on a busy machine.
    let run = run.env("HITHER_NET_TIMEOUT", "60").env("HITHER_HOST_TIMEOUT", "60");
    let run = run.env("CONFORMANCE_PATIENCE", "900").env("HITHER_NET_PAIR_AFTER", "8");
    let output = lab.run(0, &run).unwrap().wait().unwrap();
    let done = output.stdout.lines().filter(|line| line.starts_with("done ")).count();
    let next = cases.get(done);
    assert_eq!((output.code, next), (0, None), "{done} of {}: {output:?}", cases.len());
    for guest in [0, 1] {
        let sent = packets(&lab, guest) - before[guest];
        assert!(sent > 20 * cases.len() as u64, "guest {guest} sent {sent} packets by RDMA");
    }
}

#[test]
fn ranks_that_are_killed_or_switched_off_are_missed() {
    let _alone = alone();
    let Some(lab) = boot(&Options { limit: Duration::from_secs(900), ..guests(2) }) else { return };
    let running = endless(&lab);
    assert!(lab.kill(1, "rank-of-kill").unwrap() > 0, "nobody was there to be killed");
    missed(&running);
    let running = endless(&lab);
    lab.power_off(1).unwrap();
    missed(&running);
}
