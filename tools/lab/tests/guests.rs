//! Guests, what runs in them, what they do to each other, and what can be done to them. Where this
//! machine cannot have guests the tests say why, and that is all they do.

mod support;

use hither_lab::{Error, Lab, Options, Program, Running};
use std::time::Duration;
use support::{LONG, alone, boot, done, guests, here, hither, said, shell};

#[test]
fn programs_run_as_on_the_host() {
    let _alone = alone();
    let work = tempfile::Builder::new().prefix("a, 'b").tempdir().unwrap();
    let Some(lab) = boot(&Options { work: Some(work.path().into()), ..guests(1) }) else { return };

    let output = shell(&lab, 0, "echo out; echo err >&2; exit 7");
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (7, "out\n", "err\n"));
    assert_eq!(shell(&lab, 0, "kill -TERM $$").code, 128 + 15);
    let error = lab.run(0, &Program::new("/no/such/program")).unwrap().wait().unwrap_err();
    assert!(matches!(&error, Error::Failed(why) if why.contains("No such file")), "{error}");

    let odd = ["", "a b", "'\"", "$HOME `id`\\", "two\nlines", "ß"];
    let print = Program::new("printf").arg("%s|").args(odd);
    assert_eq!(done(&lab, 0, &print).stdout, odd.map(|word| format!("{word}|")).concat());
    let program = Program::shell("echo $GIVEN; pwd").env("GIVEN", "x  'y'").directory("/usr");
    assert_eq!(done(&lab, 0, &program).stdout, "x 'y'\n/usr\n");
    assert_eq!(done(&lab, 0, &Program::new("pwd")).stdout.trim(), here().to_str().unwrap());

    let cat = lab.run(0, &Program::new("cat")).unwrap();
    let text: String = (0..200_000).map(|line| format!("line {line}\n")).collect();
    cat.input(text.as_bytes()).unwrap();
    cat.end_input().unwrap();
    assert!(cat.wait().unwrap().stdout == text, "2 MB came back different");

    // What guests write is theirs, but for what is in the shared folder.
    let mine = work.path().join("host");
    std::fs::write(&mine, "from the host").unwrap();
    assert_eq!(said(&lab, 0, "cat \"$LAB_WORK/host\""), "from the host");
    said(&lab, 0, "echo from the guest > \"$LAB_WORK/guest\"");
    assert_eq!(std::fs::read_to_string(work.path().join("guest")).unwrap(), "from the guest\n");
    let own = here().join("Cargo.toml");
    let before = std::fs::read_to_string(&own).unwrap();
    assert_eq!(said(&lab, 0, "echo changed > Cargo.toml; cat Cargo.toml"), "changed");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), before);

    let sleep = || lab.run(0, &Program::shell("echo there; sleep 1000 & wait")).unwrap();
    let sleeps = [sleep(), sleep()];
    for running in &sleeps {
        running.wait_for("there\n", LONG).unwrap();
        assert!(running.is_running());
    }
    sleeps[0].kill().unwrap();
    assert_eq!(sleeps[0].wait().unwrap().code, 128 + 9);
    assert_eq!(lab.kill(0, "sleep 1000").unwrap(), 2, "a shell and its sleep are left");
    assert_eq!(sleeps[1].wait().unwrap().code, 128 + 9);
    assert!(sleeps[1].wait_for("never", LONG).is_err());
    assert_eq!(lab.kill(0, "hither-lab").unwrap(), 0, "the guest's own agent is spared");

    assert!(said(&lab, 0, "ibv_devinfo -d $LAB_DEVICE").contains("PORT_ACTIVE"));
}

#[test]
fn the_time_limit_ends_everything() {
    let _alone = alone();
    let Some(lab) = boot(&guests(1)) else { return };
    let running = lab.run(0, &Program::shell("sleep 1000")).unwrap();
    lab.set_limit(Duration::from_secs(1));
    let error = running.wait().unwrap_err();
    assert!(matches!(error, Error::TimeUp(_)), "{error}");
    assert!(matches!(lab.run(0, &Program::new("true")), Err(Error::TimeUp(_))));
}

/// A ping-pong over a reliable connection, asleep between messages: server and client.
fn ping_pong(lab: &Lab, server: usize, client: usize, times: u32) -> [Running; 2] {
    let program = Program::new("sh").arg("-c");
    let line = format!("exec ibv_rc_pingpong -e -d $LAB_DEVICE -g $LAB_GID -n {times}");
    let serve = lab.run(server, &program.clone().arg(&line)).unwrap();
    listens(lab, server);
    [serve, lab.run(client, &program.arg(format!("{line} {}", lab.address(server)))).unwrap()]
}

/// Waits for the server of such a test, here at its usual port.
fn listens(lab: &Lab, guest: usize) {
    said(lab, guest, "until grep -q ':4853 ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done");
}

/// What the device has received.
const RECEIVED: &str = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts";

/// Waits until it has received more; whether it does.
fn receives(lab: &Lab, guest: usize) -> bool {
    let more = format!("[ $({RECEIVED}) != $n ] && exit 0");
    let line = format!("n=$({RECEIVED}); for i in $(seq 200); do {more}; sleep 0.1; done; exit 1");
    shell(lab, guest, &line).code == 0
}

/// Starts a ping-pong, until `well` says that it goes as it should: on a busy machine a guest may stand
/// still for longer than its peer's device tries again, which ends it.
fn goes<T>(
    lab: &Lab,
    [server, client]: [usize; 2],
    times: u32,
    well: impl Fn([Running; 2]) -> Result<T, String>,
) -> T {
    const TRIES: usize = 4;
    let mut why = Vec::new();
    while why.len() < TRIES {
        match well(ping_pong(lab, server, client, times)) {
            Ok(value) => return value,
            Err(error) => why.push(error),
        }
        // Whoever is left waits for the other for ever.
        for guest in [server, client] {
            lab.kill(guest, "pingpong").unwrap();
        }
    }
    panic!("{why:?}");
}

/// Has so many messages go back and forth.
fn finishes(lab: &Lab, ends: [usize; 2], times: u32) {
    goes(lab, ends, times, |[server, client]| {
        for running in [client, server] {
            let output = running.wait().unwrap();
            if output.code != 0 || !output.stdout.contains(&format!("{times} iters")) {
                return Err(format!("{output:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn two_guests_have_roce_between_them_until_one_is_cut_off_or_switched_off() {
    let _alone = alone();
    let Some(lab) = boot(&guests(2)) else { return };
    let both =
        lab.run_everywhere(&Program::shell("echo $LAB_GUEST of $LAB_GUESTS at $LAB_ADDRESSES"));
    for running in both.unwrap() {
        let line = format!("{} of 2 at 10.77.0.1,10.77.0.2\n", running.guest());
        assert_eq!(running.wait().unwrap().stdout, line);
    }
    finishes(&lab, [0, 1], 100);

    // The tests of speed that others compare with are there.
    let line = "exec ib_write_lat -F -d $LAB_DEVICE -x $LAB_GID -n 50";
    let server = lab.run(0, &Program::shell(line)).unwrap();
    listens(&lab, 0);
    let client = said(&lab, 1, &format!("{line} g0"));
    assert!(client.contains("t_typical") && server.wait().unwrap().code == 0, "{client}");

    // Lost packets are sent again.
    lab.disturb(0, "loss 3%").unwrap();
    finishes(&lab, [0, 1], 100);
    assert!(said(&lab, 0, "tc -s qdisc show dev roce0").contains("netem"));
    lab.disturb(0, "").unwrap();

    // Who is cut off sees it at once, the other one hears nothing.
    let carrier = "cat /sys/class/net/roce0/carrier";
    let arrives = "ip neigh flush dev roce0; timeout 3 sh -c '$HITHER_RSH g0 true'";
    lab.cut(1).unwrap();
    assert_eq!((said(&lab, 0, carrier), said(&lab, 1, carrier)), ("1".into(), "0".into()));
    assert_ne!(shell(&lab, 1, arrives).code, 0);
    assert_eq!(said(&lab, 1, "$HITHER_RSH m0 hostname"), "g0", "the other link is there");
    lab.restore(1).unwrap();
    assert_eq!(said(&lab, 1, carrier), "1");
    said(&lab, 1, &format!("until {arrives}; do :; done"));
    finishes(&lab, [1, 0], 100);

    // A frozen guest goes on where it was.
    lab.freeze(1).unwrap();
    let late = lab.run(1, &Program::new("hostname")).unwrap();
    assert_ne!(shell(&lab, 0, "timeout 1 $HITHER_RSH g1 true").code, 0);
    assert!(late.is_running());
    lab.thaw(1).unwrap();
    assert_eq!(late.wait().unwrap().stdout, "g1\n");

    // A connection whose peer is cut off stands still, and goes on when it is back.
    let [server, client] = goes(&lab, [0, 1], 1_000_000, |ends| {
        if receives(&lab, 0) { Ok(ends) } else { Err("nothing comes".into()) }
    });
    lab.cut(1).unwrap();
    let still = format!("sleep 0.5; {RECEIVED}");
    assert_eq!(said(&lab, 0, &still), said(&lab, 0, &still));
    lab.restore(1).unwrap();
    // Unless it was cut off for longer than its device tries again.
    assert!(receives(&lab, 0) || !client.is_running());
    assert!(server.is_running());
    assert_eq!(lab.kill(0, "pingpong").unwrap(), 1);
    assert_eq!(server.wait().unwrap().code, 128 + 9);
    client.kill().unwrap();

    // Without power what runs there is gone, the other one goes on.
    let running = lab.run(1, &Program::shell("sleep 1000")).unwrap();
    lab.power_off(1).unwrap();
    assert!(matches!(running.wait(), Err(Error::Gone { guest: 1, .. })));
    assert!(matches!(lab.run(1, &Program::new("true")), Err(Error::Gone { guest: 1, .. })));
    assert!(matches!(lab.cut(1), Err(Error::Gone { .. })));
    assert_eq!(said(&lab, 0, "hostname"), "g0");
}

#[test]
fn four_guests_have_one_network() {
    let _alone = alone();
    let Some(lab) = boot(&Options { memory: 256, ..guests(4) }) else { return };
    for (from, to) in [(0, 1), (1, 3), (3, 2), (2, 0)] {
        assert_eq!(said(&lab, from, &format!("$HITHER_RSH g{to} hostname")), format!("g{to}"));
    }
    finishes(&lab, [1, 3], 50);
    lab.power_off(2).unwrap();
    finishes(&lab, [3, 0], 50);
}

#[test]
fn a_remote_shell_between_guests_is_like_others() {
    let _alone = alone();
    let Some(lab) = boot(&guests(2)) else { return };
    let output =
        shell(&lab, 0, "echo 'a b' | $HITHER_RSH me@g1 'hostname; cat; echo no >&2; exit 9'");
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (9, "g1\na b\n", "no\n"));
    let output = shell(&lab, 0, "$HITHER_RSH g7 true");
    assert!(output.code != 0 && output.stderr.contains("g7"), "{output:?}");
    // What runs learns from its input that the shell was killed.
    let line = "$HITHER_RSH g1 'echo begun; cat; echo over > /run/over'";
    let remote = lab.run(0, &Program::shell(line)).unwrap();
    remote.wait_for("begun", LONG).unwrap();
    remote.kill().unwrap();
    said(&lab, 1, "until grep over /run/over; do sleep 0.1; done");
}

#[test]
fn the_demo_runs_across_two_guests() {
    let _alone = alone();
    // Before the guests' time runs.
    let hither = hither();
    let Some(lab) = boot(&Options { limit: Duration::from_secs(600), ..guests(2) }) else { return };
    let graph = "1 2\n2 3\n3 4\n4 1\n2 5\n5 6\n";
    said(&lab, 0, &format!("printf '{graph}' > /run/graph"));
    said(&lab, 1, &format!("printf '{graph}' > /run/graph"));
    let run = Program::new(&hither).args(["run", "--hosts", "g0,g1", "-n", "4", "--bind", "none"]);
    let run = run.args(["--timeout", "400", "--"]).arg(&hither).args(["demo", "--json"]);
    let small = ["--size", "32x32", "--sweeps", "2", "--scale", "0", "--roots", "1"];
    let run = run.args(small).args(["--graph", "/run/graph", "--queries", "40"]);
    let output = done(&lab, 0, &run.directory(here().join("../..")));
    assert_eq!(output.code, 0, "{output:?}");
    let valid = output.stdout.lines().filter(|line| line.contains("\"validated\":true"));
    assert_eq!(valid.count(), 6, "{output:?}");
    for workload in ["graph", "genome", "stencil"] {
        assert!(output.stdout.contains(workload), "{output:?}");
    }
}
