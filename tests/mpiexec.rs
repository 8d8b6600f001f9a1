//! Jobs started by an MPI launcher over PMI-1: MPICH's `mpiexec`, where it is installed.

#[path = "support/mod.rs"]
mod support;

use hither::{Any, Job, Op, Rank, Result, Window};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "HITHER_TEST_ROLE";

/// How long a job may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = match play(&role) {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(error) => {
            eprintln!("{role}: {error}");
            3
        }
    };
    std::process::exit(code);
}

fn play(role: &str) -> Result<String> {
    let job = Job::init()?;
    let (team, me, size) = (job.team(), job.rank(), job.size());
    match role {
        "all" => {
            let mut sum = [u64::from(me.0)];
            team.allreduce(Op::Sum, &mut sum)?;
            let window = Window::<u64>::allocate(team, 1)?;
            let epoch = window.lock_all()?;
            for target in team.ranks() {
                epoch.accumulate(target, 0, Op::Sum, &[1])?;
            }
            epoch.unlock_all()?;
            let sent = team.isend(Rank((me.0 + 1) % size), 1, vec![me.0; 20_000])?;
            let mut got = vec![0u32; 20_000];
            team.recv(Any, 1, &mut got)?;
            sent.wait()?;
            assert!(got.iter().all(|value| *value == (me.0 + size - 1) % size));
            team.barrier()?;
            let count = window.local().get(0)?;
            window.free()?;
            let near = job.node_team().size();
            let again = Job::init().map(drop).unwrap_err().to_string();
            assert!(again.contains("PMI_FD"), "{again}");
            job.finish()?;
            Ok(format!("rank {me} of {size}, {near} near, sum {}, count {count}", sum[0]))
        }
        "die" => {
            if me == Rank(1) {
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            }
            team.barrier()?;
            Ok("nobody died".into())
        }
        other => panic!("no role {other}"),
    }
}

/// MPICH's launcher, if it is installed.
fn launcher() -> Option<&'static str> {
    ["mpiexec.hydra", "mpiexec"].into_iter().find(|name| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HYDRA"))
    })
}

struct Ended {
    well: bool,
    out: String,
    err: String,
}

/// Starts ranks of this program; nothing if there is no launcher.
fn start(args: &[&str], role: &str) -> Option<Ended> {
    let Some(launcher) = launcher() else {
        println!("there is no mpiexec of MPICH on this machine: not checked");
        return None;
    };
    let mut job = Command::new(launcher)
        .args(args)
        .arg(std::env::current_exe().expect("the path of this test"))
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_WAIT_TIMEOUT", "60")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting mpiexec");
    let reader = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = from.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(Box::new(job.stdout.take().expect("its output")));
    let err = reader(Box::new(job.stderr.take().expect("its errors")));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = job.try_wait().expect("waiting for mpiexec") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = job.kill();
            let _ = job.wait();
            panic!("{args:?} {role} did not end: {}", err.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    Some(Ended { well: status.success(), out, err })
}

#[test]
fn ranks_of_one_node() {
    for size in [1u64, 2, 5] {
        let Some(ended) = start(&["-n", &size.to_string()], "all") else { return };
        assert!(ended.well, "{}\n{}", ended.out, ended.err);
        let sum = size * (size - 1) / 2;
        for rank in 0..size {
            let line = format!("rank {rank} of {size}, {size} near, sum {sum}, count {size}");
            assert!(ended.out.contains(&line), "{line}: {}\n{}", ended.out, ended.err);
        }
    }
}

/// Hydra starts what is for hosts of any name here, when told to fork.
#[test]
fn ranks_of_several_nodes() {
    let fork = ["-launcher", "fork", "-hosts", "one,two"];
    let Some(ended) = start(&[&fork[..], &["-ppn", "2", "-n", "4"]].concat(), "all") else {
        return;
    };
    assert!(ended.well, "{}\n{}", ended.out, ended.err);
    for rank in 0..4 {
        let line = format!("rank {rank} of 4, 2 near, sum 6, count 4");
        assert!(ended.out.contains(&line), "{line}: {}\n{}", ended.out, ended.err);
    }
    // In turns, and on nodes of different sizes.
    let uneven = ["-launcher", "fork", "-hosts", "one:1,two:3"];
    let in_turn = [&fork[..], &["-ppn", "1", "-n", "5"]].concat();
    for (args, near) in
        [(in_turn, [3, 2, 3, 2, 3]), ([&uneven[..], &["-n", "5"]].concat(), [2, 3, 3, 3, 2])]
    {
        let ended = start(&args, "all").unwrap();
        assert!(ended.well, "{args:?}: {}\n{}", ended.out, ended.err);
        for (rank, near) in near.iter().enumerate() {
            let line = format!("rank {rank} of 5, {near} near, sum 10, count 5");
            assert!(ended.out.contains(&line), "{args:?}: {line}: {}\n{}", ended.out, ended.err);
        }
    }
}

#[test]
fn the_death_of_a_rank_ends_the_job() {
    let Some(ended) = start(&["-n", "3"], "die") else { return };
    assert!(!ended.well && !ended.out.contains("nobody died"), "{}\n{}", ended.out, ended.err);
}
