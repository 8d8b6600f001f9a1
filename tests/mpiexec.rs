//! Jobs started by MPI launchers: MPICH's `mpiexec` over PMI-1 and Open MPI's `mpirun` over PMIx, where
//! they are installed.

#[path = "support/mod.rs"]
mod support;

use hither::{Any, Error, Job, Op, Rank, Result, Window};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
const DONE: &str = "HITHER_TEST_DONE";

/// How long a job may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    ranks::ends(&role, play(&role))
}

fn play(role: &str) -> Result<String> {
    if role == "late" {
        return be_late();
    }
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
            assert!(again.contains("initialised twice"), "{again}");
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
        "fail" => {
            job.finish()?;
            std::process::exit(if me == Rank(1) { 7 } else { 0 });
        }
        other => panic!("no role {other}"),
    }
}

/// The other rank does not join before this one has given up.
fn be_late() -> Result<String> {
    let done = std::path::PathBuf::from(std::env::var(DONE).expect("the path of a file"));
    if std::env::var("PMIX_RANK").is_ok_and(|rank| rank == "1") {
        let begun = Instant::now();
        while !done.exists() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        return Ok("never joined".into());
    }
    let limited = Job::builder().wire_timeout(Duration::from_millis(500));
    let error = limited.init().map(drop).unwrap_err();
    std::fs::write(done, "").expect("writing a file");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    Ok(format!("gave up: {error}"))
}

/// MPICH's launcher, if it is installed.
fn launcher() -> Option<&'static str> {
    ["mpiexec.hydra", "mpiexec"].into_iter().find(|name| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HYDRA"))
    })
}

/// Open MPI's launcher, if it is installed.
fn open_mpi() -> Option<&'static str> {
    ["mpirun.openmpi", "mpirun"].into_iter().find(|name| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("Open MPI"))
    })
}

struct Ended {
    well: bool,
    code: Option<i32>,
    out: String,
    err: String,
}

/// Starts ranks of this program; nothing if there is no launcher.
fn start(args: &[&str], role: &str) -> Option<Ended> {
    let Some(launcher) = launcher() else {
        println!("there is no mpiexec of MPICH on this machine: not checked");
        return None;
    };
    let mut job = Command::new(launcher);
    job.args(args);
    Some(run(job, role))
}

/// The same with Open MPI's.
fn start_pmix(args: &[&str], role: &str, done: &Path) -> Option<Ended> {
    let Some(launcher) = open_mpi() else {
        println!("there is no mpirun of Open MPI on this machine: not checked");
        return None;
    };
    let mut job = Command::new(launcher);
    job.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    job.args(["-x", ROLE, "-x", DONE, "-x", "HITHER_WAIT_TIMEOUT"]).env(DONE, done).args(args);
    Some(run(job, role))
}

/// Runs this program as the last arguments of a command.
fn run(mut job: Command, role: &str) -> Ended {
    let shown = format!("{job:?} {role}");
    let mut job = job
        .arg(std::env::current_exe().expect("the path of this test"))
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_WAIT_TIMEOUT", "60")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting the launcher");
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
        if let Some(status) = job.try_wait().expect("waiting for the launcher") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = job.kill();
            let _ = job.wait();
            panic!("{shown} did not end: {}", err.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    Ended { well: status.success(), code: status.code(), out, err }
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

/// Lines that all ranks of a job with so many near each say.
fn assert_said(ended: &Ended, size: u64, near: u64) {
    assert!(ended.well, "{}\n{}", ended.out, ended.err);
    let sum = size * (size - 1) / 2;
    for rank in 0..size {
        let line = format!("rank {rank} of {size}, {near} near, sum {sum}, count {size}");
        assert!(ended.out.contains(&line), "{line}: {}\n{}", ended.out, ended.err);
    }
}

#[test]
fn ranks_of_one_node_over_pmix() {
    for size in [1u64, 2, 4] {
        let ended = start_pmix(&["-n", &size.to_string()], "all", Path::new(""));
        let Some(ended) = ended else { return };
        assert_said(&ended, size, size);
    }
}

/// Open MPI starts what is for hosts of any name here, by a remote shell that goes nowhere.
#[test]
fn ranks_of_several_nodes_over_pmix() {
    let room = tempfile::tempdir().unwrap();
    let shell = room.path().join("shell");
    std::fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let agent = ["--mca", "plm_rsh_agent", shell.to_str().unwrap()];
    for by in ["slot", "node"] {
        let hosts = ["--host", "one:2,two:2", "--map-by", by, "-n", "4"];
        let ended = start_pmix(&[&agent[..], &hosts].concat(), "all", Path::new(""));
        let Some(ended) = ended else { return };
        assert_said(&ended, 4, 2);
    }
}

#[test]
fn deaths_and_exit_codes_over_pmix() {
    let Some(ended) = start_pmix(&["-n", "3"], "die", Path::new("")) else { return };
    assert!(!ended.well && !ended.out.contains("nobody died"), "{}\n{}", ended.out, ended.err);
    assert!(ended.err.contains("signal 9"), "{}", ended.err);
    let ended = start_pmix(&["-n", "2"], "fail", Path::new("")).unwrap();
    assert_eq!(ended.code, Some(7), "{}\n{}", ended.out, ended.err);
}

#[test]
fn a_rank_that_does_not_come_is_a_deadline_that_passes_over_pmix() {
    let room = tempfile::tempdir().unwrap();
    let Some(ended) = start_pmix(&["-n", "2"], "late", &room.path().join("done")) else { return };
    assert!(ended.out.contains("gave up"), "{}\n{}", ended.out, ended.err);
}

#[test]
fn without_a_library_or_a_server_the_error_says_what_to_do() {
    let alone = |library: Option<&str>| {
        // The launcher's part is a command that runs what follows.
        let mut job = Command::new("env");
        job.env_remove("PMI_FD").env("PMIX_NAMESPACE", "gone").env("PMIX_RANK", "0");
        for version in ["2", "21", "3", "4", "41"] {
            job.env(format!("PMIX_SERVER_URI{version}"), "gone.0;tcp4://127.0.0.1:9");
        }
        library.map(|library| job.env("HITHER_PMIX", library));
        run(job, "all")
    };
    let ended = alone(Some("/no/such/libpmix.so"));
    assert_eq!(ended.code, Some(3), "{}\n{}", ended.out, ended.err);
    let says = |words: &[&str], ended: &Ended| words.iter().all(|word| ended.err.contains(word));
    assert!(says(&["/no/such/libpmix.so", "HITHER_PMIX", "hither run"], &ended), "{}", ended.err);
    if open_mpi().is_some() {
        let ended = alone(None);
        assert_eq!(ended.code, Some(3), "{}\n{}", ended.out, ended.err);
        assert!(says(&["PMIX_RANK"], &ended), "{}", ended.err);
    }
}
