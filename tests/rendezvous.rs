//! Joining without a launcher, in real processes: by a named rendezvous, also when processes are
//! killed while they gather, and by a caller-supplied allgather. The processes are this test's
//! own executable, started with a role in the environment.

#[path = "support/mod.rs"]
mod support;

use hither::boot::{Bootstrap, FromAllgather, Rendezvous};
use hither::{Deadline, Error, Job, Op, Rank, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::everything::everything;
use support::processes::until;

const ROLE: &str = "HITHER_TEST_ROLE";
const DIRECTORY: &str = "HITHER_RENDEZVOUS_DIR";
/// The rank that dies while the job is wired up.
const DIES: &str = "HITHER_TEST_DIES";
/// How many milliseconds the others may take to come.
const LIMIT: &str = "HITHER_TEST_LIMIT";
/// How long the rest of the wiring may take.
const WIRING: Duration = Duration::from_secs(20);

/// The entry of the started processes; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    let outcome = match words[0] {
        "meet" => meet(number(1), Duration::from_millis(number(2).into())),
        "gather" => gather(number(1), number(2)),
        "nodes" => on_nodes(number(1), words[2]),
        "over" => meet_over(words[1], words[2], words[3], number(4)),
        other => panic!("no role {other}"),
    };
    if let Err(e) = &outcome {
        eprintln!("{e}");
    }
    std::process::exit(if outcome.is_ok() { 0 } else { 3 });
}

/// Joins "test" as one of `size`, computes something with all, and leaves.
fn meet(size: u32, limit: Duration) -> Result<()> {
    let boot = Rendezvous::join("test", size, Deadline::after(limit))?;
    work(Job::builder().bootstrap(boot).heap_size(1 << 24).init()?, size)
}

fn work(job: Job, size: u32) -> Result<()> {
    let mut ranks = [u64::from(job.rank().0)];
    job.team().allreduce(Op::Sum, &mut ranks)?;
    assert_eq!(ranks[0], u64::from(size * (size - 1) / 2));
    job.finish()
}

/// An allgather through files in the directory, which is what these processes have in common. The one
/// that is to die does so once all have brought their second pieces.
fn allgather(rank: u32, size: u32) -> impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>> + Send {
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let limit = Duration::from_millis(limit());
    let dies = std::env::var(DIES).ok().filter(|who| *who == rank.to_string()).is_some();
    let mut round = 0;
    move |own: &[u8]| {
        round += 1;
        let name = |rank: u32| directory.join(format!("{round}.{rank}"));
        let fresh = directory.join(format!("fresh.{rank}"));
        std::fs::write(&fresh, own).map_err(|e| Error::os("write", e))?;
        std::fs::rename(&fresh, name(rank)).map_err(|e| Error::os("rename", e))?;
        let missing = || (0..size).filter(|&rank| !name(rank).exists()).map(Rank);
        let begun = Instant::now();
        while missing().next().is_some() {
            let waited = begun.elapsed();
            if waited > limit {
                let (during, missing) = ("the test's allgather", missing().collect());
                return Err(Error::TimedOut { during, waited, missing });
            }
            std::thread::yield_now();
        }
        let read = |rank| std::fs::read(name(rank)).map_err(|e| Error::os("read", e));
        let all = (0..size).map(read).collect();
        // Everybody has its cards, and this one's part in the rest of the wiring never comes.
        if dies && round == 2 {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
        all
    }
}

fn gather(rank: u32, size: u32) -> Result<()> {
    let boot = FromAllgather::new(rank, size, allgather(rank, size))?;
    work(Job::builder().bootstrap(boot).heap_size(1 << 24).init()?, size)
}

/// Ranks on the nodes in this list, with commas; all that such jobs are for.
fn on_nodes(rank: u32, nodes: &str) -> Result<()> {
    let names: Vec<&str> = nodes.split(',').collect();
    let size = names.len() as u32;
    let gather = allgather(rank, size);
    let boot = FromAllgather::on_node(names[rank as usize], rank, size, gather)?;
    let job = Job::builder().bootstrap(boot).heap_size(1 << 24);
    everything(job.init()?, nodes).map(drop)
}

/// [`LIMIT`], or enough.
fn limit() -> u64 {
    std::env::var(LIMIT).map_or(60_000, |text| text.parse().unwrap())
}

const SECRET: &str = "known to these processes";

/// Joins at an address, as one of those in the list of nodes (the ranks come as they come), on the node
/// `node`; all that jobs are for.
fn meet_over(address: &str, node: &str, secret: &str, size: u32) -> Result<()> {
    let (address, deadline) =
        (address.parse().unwrap(), Deadline::after(Duration::from_millis(limit())));
    let secret = format!("{SECRET}{secret}");
    let boot = match node {
        "-" => Rendezvous::join_over(address, &secret, size, deadline)?,
        node => Rendezvous::join_over_on_node(node, address, &secret, size, deadline)?,
    };
    let nodes: Vec<String> = {
        let placement = boot.placement()?;
        let node = |rank| placement.node_of(Rank(rank)).unwrap().to_string();
        (0..size).map(node).collect()
    };
    let job = Job::builder().bootstrap(boot).heap_size(1 << 24).wire_timeout(WIRING).init()?;
    let (rank, near) = (job.rank(), job.node_team().size());
    everything(job, &nodes.join(","))?;
    println!("rank {rank} of {size}, {near} near");
    Ok(())
}

fn start(directory: &Path, role: &str) -> Child {
    start_with(directory, role, &[])
}

fn start_with(directory: &Path, role: &str, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process; `Err` with what it said if it failed.
fn end(child: Child) -> std::result::Result<(), String> {
    let out = child.wait_with_output().unwrap();
    if out.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&out.stderr).into_owned())
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("hither-test-").tempdir().unwrap()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn processes_meet_under_a_name_and_leave_nothing() {
    let dir = scratch();
    for size in [1, 2, 5, 2] {
        let role = format!("meet {size} 30000");
        let all: Vec<Child> = (0..size).map(|_| start(dir.path(), &role)).collect();
        for child in all {
            assert_eq!(end(child), Ok(()));
        }
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn a_stale_socket_of_a_killed_leader_is_no_obstacle() {
    let dir = scratch();
    let mut leader = start(dir.path(), "meet 3 30000");
    until("no leader", || dir.path().join("test.sock").exists());
    leader.kill().unwrap();
    leader.wait().unwrap();
    assert!(!is_empty(dir.path()), "a killed process cannot remove its socket");
    let all: Vec<Child> = (0..3).map(|_| start(dir.path(), "meet 3 30000")).collect();
    for child in all {
        assert_eq!(end(child), Ok(()));
    }
    assert!(is_empty(dir.path()));
}

/// Sockets that a process has open: a leader has the one it listens on, and one for each caller.
fn sockets(child: &Child) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// A leader of four is killed when `now` says so of it, after two others have been started; then
/// two more come.
fn kill_leader(now: impl Fn(&Child) -> bool) {
    let dir = scratch();
    let mut leader = start(dir.path(), "meet 4 30000");
    until("no leader", || dir.path().join("test.sock").exists());
    let mut all: Vec<Child> = (0..2).map(|_| start(dir.path(), "meet 4 30000")).collect();
    until("not in the lobby", || now(&leader));
    leader.kill().unwrap();
    leader.wait().unwrap();
    all.extend((0..2).map(|_| start(dir.path(), "meet 4 30000")));
    for child in all {
        assert_eq!(end(child), Ok(()));
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn the_lobby_elects_another_leader_when_the_first_is_killed() {
    kill_leader(|leader| sockets(leader) == 3);
}

#[test]
fn a_leader_can_be_killed_at_any_moment() {
    for step in 0..10 {
        // Moments spread over the others' arrival, not a wait for anything.
        let moment = Instant::now() + Duration::from_micros(step * 800);
        kill_leader(|_| Instant::now() >= moment);
    }
}

#[test]
fn the_missing_are_counted_when_time_is_up() {
    let dir = scratch();
    let err = end(start(dir.path(), "meet 3 100")).unwrap_err();
    assert!(err.contains("rendezvous \"test\": 1 of 3 processes came within"), "{err}");
    assert!(is_empty(dir.path()));
}

#[test]
fn processes_join_through_an_allgather_of_their_own() {
    for size in [1, 2, 4] {
        let dir = scratch();
        let role = |rank| format!("gather {rank} {size}");
        let all: Vec<Child> = (0..size).map(|r| start(dir.path(), &role(r))).collect();
        for child in all {
            assert_eq!(end(child), Ok(()));
        }
    }
}

#[test]
fn an_allgather_wires_up_several_nodes() {
    for nodes in ["0,0,1,1", "0,1,0,1", "0,1,1,2,2,0", "0,1,2"] {
        let dir = scratch();
        let ranks = 0..nodes.split(',').count();
        let role = |rank| format!("nodes {rank} {nodes}");
        let all: Vec<Child> = ranks.map(|rank| start(dir.path(), &role(rank))).collect();
        for child in all {
            assert_eq!(end(child), Ok(()), "{nodes}");
        }
    }
}

/// Whoever depends on the dead one says so; nobody waits for longer than wiring may take.
#[test]
fn a_rank_that_dies_while_nodes_are_wired_up_is_missed() {
    // The first of a node, another one of it, and one that is alone there.
    for (victim, nodes) in [(1, "0,1,1"), (2, "0,1,1"), (2, "0,0,1")] {
        let dir = scratch();
        let dies = victim.to_string();
        let limited = [
            (DIES, &dies[..]),
            (LIMIT, "4000"),
            ("HITHER_WIRE_TIMEOUT", "2"),
            ("HITHER_NET_TIMEOUT", "2"),
            ("HITHER_WAIT_TIMEOUT", "10"),
        ];
        let all: Vec<Child> = (0..3)
            .map(|rank| start_with(dir.path(), &format!("nodes {rank} {nodes}"), &limited))
            .collect();
        for (rank, child) in all.into_iter().enumerate() {
            let said = end(child).unwrap_err();
            let named = [format!("rank {victim}"), format!(", {victim}")];
            let named = named.iter().any(|name| said.contains(name));
            assert!(named || rank == victim, "{nodes} without {victim}: {rank} said {said}");
        }
    }
}

/// An address of this machine's on which nobody listens.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts processes that meet at an address, one for each node in this list.
fn start_over(address: SocketAddr, nodes: &[&str], limit: &str) -> Vec<Child> {
    let here = Path::new("");
    let role = |node: &&str| format!("over {address} {node} s {}", nodes.len());
    nodes.iter().map(|node| start_with(here, &role(node), &[(LIMIT, limit)])).collect()
}

fn all_well(all: Vec<Child>) {
    for child in all {
        assert_eq!(end(child), Ok(()));
    }
}

#[test]
fn processes_meet_at_an_address_and_are_on_nodes() {
    let address = free_address();
    // One after the other at the same address.
    for nodes in [&["a", "b", "a", "b"][..], &["-", "-", "-"], &["a", "-"], &["-"]] {
        all_well(start_over(address, nodes, "30000"));
    }
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
}

/// Calls whoever leads at an address, once somebody does.
fn call(address: SocketAddr) -> TcpStream {
    let mut found = None;
    until("nobody leads", || {
        found = TcpStream::connect(address).ok();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn strangers_at_the_address_hold_up_nobody() {
    let address = free_address();
    let role = |node| format!("over {address} {node} s 3");
    let begin = |node| start_with(Path::new(""), &role(node), &[(LIMIT, "30000")]);
    let mut all = vec![begin("a"), begin("b")];
    let silent: Vec<TcpStream> = (0..3).map(|_| call(address)).collect();
    call(address).write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut cut = call(address);
    cut.write_all(&[72, 0, 0, 0, b'h', b't']).unwrap();
    // Too long for somebody who has not shown the secret.
    let mut long = call(address);
    long.write_all(&[0, 1, 0, 0]).unwrap();
    let mut said = Vec::new();
    let _ = long.read_to_end(&mut said);
    assert!(said.len() < 64, "no more than the question for the secret: {said:?}");
    // The right words, by one who does not know it.
    let role = format!("over {address} a another 3");
    let wrong = end(start_with(Path::new(""), &role, &[])).unwrap_err();
    assert!(wrong.contains("another secret"), "{wrong}");
    assert!(!wrong.contains(SECRET), "{wrong}");
    let larger = format!("over {address} a s 4");
    let other = end(start_with(Path::new(""), &larger, &[])).unwrap_err();
    assert!(other.contains("expects 3 processes, this one 4"), "{other}");
    all.push(begin("a"));
    all_well(all);
    drop((silent, cut));
}

#[test]
fn a_leader_at_an_address_is_replaced_when_it_is_killed() {
    let address = free_address();
    let role = format!("over {address} a s 4");
    let begin = || start_with(Path::new(""), &role, &[(LIMIT, "30000")]);
    let mut leader = begin();
    drop(call(address));
    let mut all = vec![begin(), begin()];
    // The listener, and both.
    until("not in the lobby", || sockets(&leader) == 3);
    leader.kill().unwrap();
    leader.wait().unwrap();
    all.extend([begin(), begin()]);
    all_well(all);
}

#[test]
fn who_did_not_come_to_the_address_is_counted() {
    let address = free_address();
    let role = format!("over {address} a s 3");
    let mut all = vec![start_with(Path::new(""), &role, &[(LIMIT, "1500")])];
    let stranger = call(address);
    all.push(start_with(Path::new(""), &role, &[(LIMIT, "700")]));
    for child in all.into_iter().rev() {
        let said = end(child).unwrap_err();
        assert!(said.contains("of 3 processes came within"), "{said}");
        assert!(said.contains("missing"), "{said}");
    }
    drop(stranger);
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
}

#[test]
fn something_else_at_the_address_is_no_leader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let run =
        |limit| start_with(Path::new(""), &format!("over {address} a s 2"), &[(LIMIT, limit)]);
    let caller = run("30000");
    listener.accept().unwrap().0.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let said = end(caller).unwrap_err();
    assert!(said.contains("something else than a rendezvous of hither listens there"), "{said}");
    // One that hangs up, again and again, and one that says nothing, until time is up.
    let again = listener.try_clone().unwrap();
    let hangs_up = std::thread::spawn(move || (0..5).for_each(|_| drop(again.accept().unwrap())));
    let caller = run("300");
    hangs_up.join().unwrap();
    let said = end(caller).unwrap_err();
    assert!(said.contains("who listens there"), "{said}");
    let said = end(run("300")).unwrap_err();
    assert!(said.contains("who listens there does not answer"), "{said}");
}

/// A process in a network of its own, if this machine lets one be made.
fn start_apart(directory: &Path, role: &str) -> Option<Child> {
    let apart = ["-rn", "--"];
    let can = Command::new("unshare").args(apart).arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("no network namespace can be made on this machine: not checked");
        return None;
    }
    let mut child = Command::new("unshare");
    let child = child
        .args(apart)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    Some(child.spawn().unwrap())
}

#[test]
fn a_loopback_address_that_others_cannot_reach_is_refused_with_what_to_set() {
    let dir = scratch();
    let Some(apart) = start_apart(dir.path(), "gather 1 2") else { return };
    for child in [apart, start(dir.path(), "gather 0 2")] {
        let said = end(child).unwrap_err();
        assert!(said.contains("set HITHER_NET_ADDRESS"), "{said}");
    }
}
