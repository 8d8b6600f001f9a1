//! hither over RDMA devices: Soft-RoCE in guests. Where this machine cannot have guests the tests say
//! why, and that is all they do.

mod support;

use hither_lab::{Lab, Options, Program, Running};
use std::path::Path;
use std::time::Duration;
use support::{alone, boot, guests, here, hither, said, tests};

/// Packets that a guest's device has sent.
fn packets(lab: &Lab, guest: usize) -> u64 {
    let line = "cat /sys/class/infiniband/$LAB_DEVICE/ports/1/hw_counters/sent_pkts";
    said(lab, guest, line).parse().unwrap()
}

/// Two ranks, on two guests that are steered by the network which stays when the other is cut.
fn job(lab: &Lab, options: &[&str], rank: &Path, arguments: &[&str]) -> Running {
    let run = Program::new(hither()).args(["run", "--hosts", "m0,m1", "-n", "2", "--bind", "none"]);
    let run = run.args(["--timeout", "300"]).args(options).arg("--").arg(rank).args(arguments);
    // A queue pair from the first message on.
    let run = run.env("HITHER_NET_PROVIDER", "verbs").env("HITHER_NET_PAIR_AFTER", "1");
    let run = run.env("HITHER_NET_TIMEOUT", "10").env("HITHER_HOST_TIMEOUT", "10");
    lab.run(0, &run.directory(here().join("../.."))).unwrap()
}

fn solves_a_stencil(lab: &Lab) {
    let demo = ["demo", "stencil", "--json", "--size", "16x16", "--sweeps", "2"];
    let output = job(lab, &[], &hither(), &demo).wait().unwrap();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("\"validated\":true"), "{output:?}");
}

/// Ranks that talk by RDMA until one of them dies.
fn endless(lab: &Lab) -> Running {
    let before = packets(lab, 1);
    let rank = tests(&["--test", "kill"]);
    // What is left is to notice by itself.
    let running = job(lab, &["--survive"], &rank, &["--rank-of-kill", "messages"]);
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
    solves_a_stencil(&lab);
    for guest in [0, 1] {
        assert!(packets(&lab, guest) > before[guest] + 20, "guest {guest} sent nothing by RDMA");
    }

    // The other network, by which ranks are started and watched, stays.
    let running = endless(&lab);
    lab.cut(1).unwrap();
    missed(&running);
    lab.restore(1).unwrap();
    solves_a_stencil(&lab);
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
