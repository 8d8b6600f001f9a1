//! Jobs on hosts. The remote shell is a script that runs its command here, in another directory and
//! without most of the environment; hosts are this machine by several names, or network namespaces.

#[path = "../../tests/support/mod.rs"]
mod support;

use hither::{Any, Job, Op, Rank, Window};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::processes::{marked, until};
use support::signals::interruptible;

const ROLE: &str = "HITHER_TEST_ROLE";
const MARK: &str = "HITHER_TEST_MARK";
/// Names that all mean this machine.
const FOUR: &str = "localhost,127.0.0.1,me@localhost,me@127.0.0.1";

/// The entry of ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(_) = std::env::var(ROLE) else { return };
    println!("\n{}", communicate().unwrap());
    std::process::exit(0);
}

/// Messages, collectives and a window, among all.
fn communicate() -> hither::Result<String> {
    let job = Job::init()?;
    let (team, me, size) = (job.team(), u64::from(job.rank().0), u64::from(job.size()));
    let mut sum = [me];
    team.allreduce(Op::Sum, &mut sum)?;
    assert_eq!(sum, [size * (size - 1) / 2]);
    for length in [3, 50_000] {
        let sent = team.isend(Rank(((me + 1) % size) as u32), 1, vec![me; length])?;
        let mut got = vec![0u64; length];
        team.recv(Any, 1, &mut got)?;
        assert!(got.iter().all(|value| *value == (me + size - 1) % size));
        sent.wait()?;
    }
    let window = Window::<u64>::allocate(team, 2)?;
    let epoch = window.lock_all()?;
    for target in team.ranks() {
        epoch.accumulate(target, 1, Op::Sum, &[me + 1])?;
    }
    epoch.unlock_all()?;
    team.barrier()?;
    assert_eq!(window.local().get(1)?, size * (size + 1) / 2);
    window.free()?;
    let near = job.node_team().size();
    job.finish()?;
    Ok(format!("{size} ranks, {near} of them here"))
}

/// A directory with remote shells.
struct Shells(tempfile::TempDir);

impl Shells {
    fn new() -> Shells {
        Shells(tempfile::tempdir().unwrap())
    }

    /// One that runs `text` with the host as $1 and the command line as $2.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// One like ssh: another directory, a fresh environment, a shell that has something to say.
    fn usual(&self) -> PathBuf {
        let text = format!(
            "cd /; echo Welcome to $1; exec env -i PATH=\"$PATH\" {MARK}=\"${MARK}\" sh -c \"$2\""
        );
        self.script("rsh", &text)
    }
}

fn hither(rsh: &Path, hosts: &str, ranks: u32, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    let hosts = format!("--hosts={hosts}");
    command.args(["run", "--bind", "none", &hosts, "-n", &ranks.to_string(), "--rsh"]);
    command.arg(rsh).args(options).env_remove("HITHER_NET_ADDRESS").stdin(Stdio::null());
    command
}

fn done(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn own() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

fn with_role(command: &mut Command, role: &str) {
    command.arg("--").arg(own()).args(["role", "--exact", "--nocapture"]).env(ROLE, role);
}

#[test]
fn ranks_on_two_and_four_hosts_communicate() {
    let shells = Shells::new();
    let rsh = shells.usual();
    for (hosts, near) in [("localhost,127.0.0.1", 4), (FOUR, 2)] {
        let mut command = hither(&rsh, hosts, 8, &["--label", "--timeout", "120"]);
        with_role(&mut command, "communicate");
        let (code, out, err) = done(&mut command);
        assert_eq!(code, 0, "{err}");
        for rank in 0..8 {
            let line = format!("[{rank}] 8 ranks, {near} of them here");
            assert!(out.lines().any(|said| said == line), "{line}: {out} {err}");
        }
    }
}

#[test]
fn the_demo_runs_on_hosts() {
    let shells = Shells::new();
    let rsh = shells.usual();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = hither(&rsh, "localhost:5,127.0.0.1:3", 8, &["--timeout", "200"]);
    command.current_dir(directory).arg("--").arg(env!("CARGO_BIN_EXE_hither"));
    let (code, out, err) = done(command.args(["demo", "stencil"]));
    assert_eq!(code, 0, "{out} {err}");
}

#[test]
fn arguments_directory_and_environment_arrive_as_they_are() {
    let shells = Shells::new();
    let rsh = shells.usual();
    let directory = tempfile::Builder::new().prefix("a 'b\" $x\n漢").tempdir().unwrap();
    // The path of the agent goes through a shell.
    let agent = directory.path().join("hi ther's");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hither"), &agent).unwrap();
    let odd = ["a b", "", "'", "\"$HOME\" `id` \\", "two\nlines", "ßの😀", "*", "-x"];
    let mut command = Command::new(&agent);
    command.args(["run", "-n", "1", "--bind", "none", "--hosts", "localhost", "--rsh"]);
    command.arg(&rsh).env_remove("HITHER_NET_ADDRESS").current_dir(directory.path());
    command.args(["--env", "GIVEN=x 'y'", "--env", "NAMED"]).env("NAMED", "n\nm").env("OTHER", "1");
    command.args([
        "--",
        "sh",
        "-c",
        "printf '%s|' \"$@\" \"$GIVEN\" \"$NAMED\" \"$OTHER\" \"$PWD\"; echo",
        "sh",
    ]);
    let (code, out, err) = done(command.args(odd).stdin(Stdio::null()));
    assert_eq!(code, 0, "{err}");
    let here = directory.path().canonicalize().unwrap();
    let all = [odd.as_slice(), &["x 'y'", "n\nm", "", here.to_str().unwrap()]].concat();
    assert_eq!(out, format!("{}|\n", all.join("|")));
}

#[test]
fn what_keeps_ranks_from_starting_is_said() {
    let shells = Shells::new();
    let usual = shells.usual();
    let fails = |rsh: &Path, hosts: &str, program: &str, said: &[&str]| {
        let (code, out, err) =
            done(hither(rsh, hosts, 2, &["--timeout", "60"]).args(["--", program]));
        assert!(code != 0 && out.is_empty(), "{code} {out}");
        said.iter().for_each(|text| assert!(err.contains(text), "{text}: {err}"));
    };
    let away =
        shells.script("away", "test $1 = b || exec sh -c \"$2\"; echo no route >&2; exit 255");
    fails(&away, "localhost,b", "true", &["host b", "no route", "255", "--rsh"]);
    let none = shells.script("none", "exec sh -c 'exec /no/such/hither'");
    fails(&none, "localhost,b", "true", &["on host ", "/no/such/hither", "same path"]);
    let other = shells.script("other", "exec yes");
    fails(&other, "localhost,b", "true", &["no agent of hither's"]);
    fails(Path::new("/no/such/rsh"), "a,b", "true", &["/no/such/rsh", "HITHER_RSH"]);
    fails(&usual, "localhost,127.0.0.1", "/no/such/program", &["host", "/no/such/program"]);
    fails(&usual, "no.such.host.invalid", "true", &["--net-address"]);
    fails(&usual, "-oProxyCommand=x", "true", &["no name of a host"]);
    let silent = shells.script("silent", "exec sleep 600");
    let mut command = hither(&silent, "a", 1, &[]);
    let (code, _, err) = done(command.args(["--", "true"]).env("HITHER_HOST_TIMEOUT", "2"));
    assert!(code != 0 && err.contains("HITHER_HOST_TIMEOUT"), "{err}");
}

#[test]
fn exit_codes_and_deaths_are_those_of_the_ranks() {
    let shells = Shells::new();
    let rsh = shells.usual();
    let run = |options: &[&str], text: &str| {
        done(hither(&rsh, "localhost,127.0.0.1", 4, options).args(["--", "sh", "-c", text]))
    };
    let (code, _, err) = run(&[], "test $HITHER_RANK != 3 || exit 41; exec sleep 600");
    assert_eq!(code, 41, "{err}");
    assert!(err.contains("rank 3 (pid ") && err.contains(" on 127.0.0.1) ended"), "{err}");
    let kill = "test $HITHER_RANK != 2 || kill -KILL $$; ";
    let (code, _, err) = run(&[], &format!("{kill} exec sleep 600"));
    assert_eq!(code, 137, "{err}");
    let (code, out, err) = run(&["--survive"], &format!("{kill} sleep 1; echo on"));
    assert_eq!((code, out.as_str()), (0, "on\non\non\n"), "{err}");
    let (code, _, err) = run(&["--timeout", "1"], "exec sleep 600");
    assert_eq!(code, 124, "{err}");
    // More than what may be under way.
    let (code, out, err) = run(&[], "head -c 900000 /dev/zero | tr '\\0' $HITHER_RANK; echo");
    assert_eq!((code, out.len()), (0, 3_600_004), "{err}");
    assert!(out.lines().all(|line| line.bytes().all(|byte| byte == line.as_bytes()[0])));
}

/// A job under way whose processes have a mark.
struct Running {
    launcher: Child,
    mark: String,
}

impl Running {
    fn start(name: &str, options: &[&str], text: &str) -> (Running, Shells) {
        Self::start_with(name, options, &[], text)
    }

    /// One that takes hosts that say nothing for so long for lost.
    fn start_patient(name: &str, silence: &str, text: &str) -> (Running, Shells) {
        Self::start_with(name, &[], &[("HITHER_HOST_TIMEOUT", silence)], text)
    }

    fn start_with(
        name: &str,
        options: &[&str],
        env: &[(&str, &str)],
        text: &str,
    ) -> (Running, Shells) {
        let shells = Shells::new();
        let mark = format!("{name}-{}", std::process::id());
        let mut command = hither(&shells.usual(), "localhost,127.0.0.1", 4, options);
        command.args(["--", "sh", "-c", text]).env(MARK, &mark);
        let command = interruptible(command.envs(env.iter().copied()));
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(launcher.stdout.as_mut().unwrap()).lines();
        for _ in 0..4 {
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
        }
        (Running { launcher, mark }, shells)
    }

    fn kill(pid: i32, signal: i32) {
        // SAFETY: no memory involved.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Nothing is left; the exit code, and what was said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let code = self.launcher.wait().unwrap().code();
        let what = format!("processes are left: {said}");
        until(&what, || marked(MARK, &self.mark).is_empty());
        (code, said)
    }
}

/// Ranks with a child in the background each.
const SLEEP: &str = "sleep 600 & echo ready; wait";

#[test]
fn a_killed_launcher_leaves_nothing() {
    let (job, _shells) = Running::start("hosts-launcher", &[], SLEEP);
    Running::kill(job.launcher.id() as i32, libc::SIGKILL);
    assert_eq!(job.end().0, None);
}

/// The agents of a job, in the order in which they were started: the ranks' parents.
fn agents(job: &Running) -> Vec<i32> {
    let is_agent = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"/hither\0agent\0")
    };
    let mut agents = Vec::new();
    // Their guardians are forks that take names of their own, if not at once.
    until("there are not two agents", || {
        let all = marked(MARK, &job.mark).into_iter().filter(|(_, name)| name == "hither");
        agents = all.map(|(pid, _)| pid).filter(is_agent).collect();
        agents.len() == 2
    });
    agents.sort_unstable();
    agents
}

#[test]
fn a_killed_agent_is_a_lost_host() {
    let (job, _shells) = Running::start("hosts-agent", &[], SLEEP);
    Running::kill(agents(&job)[1], libc::SIGKILL);
    let (code, said) = job.end();
    assert_eq!(code, Some(137), "{said}");
    assert!(said.contains("is lost") && said.contains("ending the job"), "{said}");
}

/// As when a cable is cut: the connection does not end, but nothing comes.
#[test]
fn a_host_that_falls_silent_is_lost() {
    let (job, _shells) = Running::start_patient("hosts-silent", "2", SLEEP);
    Running::kill(agents(&job)[0], libc::SIGSTOP);
    let (code, said) = job.end();
    assert_eq!(code, Some(137), "{said}");
    assert!(said.contains("has said nothing for 2s (HITHER_HOST_TIMEOUT)"), "{said}");
}

#[test]
fn agents_whose_launcher_falls_silent_end_their_ranks() {
    let (mut job, _shells) = Running::start_patient("hosts-deserted", "2", SLEEP);
    let launcher = job.launcher.id() as i32;
    Running::kill(launcher, libc::SIGSTOP);
    let is_rank = |(_, name): &(i32, String)| name == "sh" || name == "sleep";
    let left = || marked(MARK, &job.mark).into_iter().filter(is_rank).count();
    // A remote shell of each host waits for its agent, at most.
    until("ranks go on without a launcher", || left() <= 2);
    Running::kill(launcher, libc::SIGCONT);
    assert!(job.launcher.wait().is_ok());
    job.end();
}

#[test]
fn interrupts_reach_the_ranks() {
    let trap = "trap 'echo caught >&2; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let (job, _shells) = Running::start("hosts-interrupt", &[], trap);
    Running::kill(job.launcher.id() as i32, libc::SIGINT);
    let (code, said) = job.end();
    assert_eq!((code, said.matches("caught").count()), (Some(3), 4), "{said}");
    let deaf = "trap '' INT TERM; echo ready; while :; do sleep 0.1; done";
    let (job, _shells) = Running::start("hosts-insist", &[], deaf);
    Running::kill(job.launcher.id() as i32, libc::SIGINT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    Running::kill(job.launcher.id() as i32, libc::SIGTERM);
    assert_eq!(job.end().0, Some(137));
}

#[test]
fn the_cookie_is_in_no_command_line_and_addresses_are_chosen() {
    let shells = Shells::new();
    let rsh = shells.usual();
    let text = "tr '\\0' ' ' </proc/$PPID/cmdline; echo \"$HITHER_NET_ADDRESS\"";
    let said = |options: &[&str]| {
        done(hither(&rsh, "localhost", 1, options).args(["--", "sh", "-c", text]))
    };
    let agent = env!("CARGO_BIN_EXE_hither");
    let (_, out, err) = said(&[]);
    let line = out.lines().next().unwrap_or_else(|| panic!("{err}"));
    assert!(line.starts_with(&format!("{agent} agent ")), "{out}");
    let address = line.rsplit(' ').next().unwrap();
    assert!(address.parse::<std::net::IpAddr>().unwrap().is_loopback(), "{out}");
    let (_, out, _) = said(&["--net-address", "127.0.0.0/8"]);
    assert!(out.ends_with(" 127.0.0.1\n"), "{out}");
    for refused in ["0.0.0.0", "198.51.100.0/24", "no-such-interface"] {
        let (code, _, err) = said(&["--net-address", refused]);
        assert!(code != 0 && err.contains("HITHER_NET_ADDRESS"), "{err}");
    }
}

/// Namespaces of their own, joined by a slow and lossy pair of devices, as far as the system permits:
/// the test goes into a user namespace for it, and says so where that is refused.
#[test]
fn network_namespaces_are_hosts_with_addresses_of_their_own() {
    let shells = Shells::new();
    let enter = shells.script(
        "enter",
        "n=${1##*.}; cd /; exec nsenter --net=/proc/$(cat \"$NAMESPACES/$n\")/ns/net sh -c \"$2\"",
    );
    let arguments = ["role", "--exact", "--nocapture"].join(" ");
    let job = format!(
        "{} run --bind none --timeout 120 -n 4 --hosts 10.77.0.1,10.77.0.2 --rsh {} -- {} {arguments}",
        env!("CARGO_BIN_EXE_hither"),
        enter.display(),
        own()
    );
    let text = format!(
        "set -e\nexport NAMESPACES={dir}\n\
         for n in 1 2; do unshare -n sleep 300 & echo $! > {dir}/$n; done\n\
         for n in 1 2; do while [ $(readlink /proc/$(cat {dir}/$n)/ns/net) = \
         $(readlink /proc/self/ns/net) ]; do sleep 0.05; done; done\n\
         ip link add v1 type veth peer name v2\n\
         for n in 1 2; do p=$(cat {dir}/$n); ip link set v$n netns $p; \
         nsenter --net=/proc/$p/ns/net sh -c \"ip addr add 10.77.0.$n/24 dev v$n; ip link set v$n up; \
         ip link set lo up; tc qdisc add dev v$n root netem delay 2ms loss 2% || true\"; done\n\
         {job}; code=$?; kill $(cat {dir}/1 {dir}/2); exit $code\n",
        dir = shells.0.path().display()
    );
    let script = shells.script("all", &text);
    let mut command = Command::new("unshare");
    let (code, out, err) =
        done(command.args(["-r", "-n", "sh"]).arg(&script).env(ROLE, "communicate"));
    let refused = ["Operation not permitted", "not found", "No such file", "Permission denied"];
    if code != 0 && !err.contains("hither") && refused.iter().any(|text| err.contains(text)) {
        println!("network namespaces are not permitted here: {err}");
        return;
    }
    assert_eq!(code, 0, "{out} {err}");
    assert_eq!(out.matches("4 ranks, 2 of them here").count(), 4, "{out} {err}");
}
