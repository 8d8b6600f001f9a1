//! Launchers that are not hither's own: which ones are installed here, and running ranks of the test's own
//! executable under them.

#![allow(dead_code, reason = "every test uses a part of it")]

#[path = "ranks.rs"]
pub mod ranks;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Names what a started rank does.
pub const ROLE: &str = "HITHER_TEST_ROLE";

/// How long a job may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Says what is not tried on this machine, and why: also where a test's own output is kept back, as that
/// of a test that passes is.
pub fn not_tried(what: &str, why: &str) {
    let line = format!("NOT TRIED: {what}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Ends this process as a rank, if it was started as one: for a test that is the ranks' entry.
pub fn play(play: impl FnOnce(&str) -> hither::Result<String>) {
    let Ok(role) = std::env::var(ROLE) else { return };
    ranks::ends(&role, play(&role))
}

/// What a job came to.
#[derive(Debug)]
pub struct Ended {
    pub well: bool,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

fn says(program: &str, words: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(words))
}

/// MPICH's launcher, if it is installed.
pub fn mpich() -> Option<Command> {
    let known = ["mpiexec.hydra", "mpiexec.mpich", "mpiexec"];
    known.into_iter().find(|name| says(name, "HYDRA")).map(Command::new)
}

/// Open MPI's launcher, if it is installed, as it starts more ranks than there are cores, for anybody.
/// Its daemons share no copy of what they know about the machine: to place one they pick a hole in
/// their address space, and several on one machine, as these tests have them, die of that at times.
pub fn open_mpi() -> Option<Command> {
    let known = ["mpirun.openmpi", "mpirun"];
    let name = known.into_iter().find(|name| says(name, "Open MPI"))?;
    let mut command = Command::new(name);
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.env("OMPI_MCA_rtc_hwloc_vmhole", "none");
    Some(command)
}

/// Runs the test `role` of this program, in this role, as the last arguments of a command.
pub fn run(mut job: Command, role: &str) -> Ended {
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

/// Checks that a job ended well and that each of `ranks` said what is expected of it.
pub fn assert_said(ended: &Ended, ranks: u32, expected: impl Fn(u32) -> String) {
    assert!(ended.well, "{}\n{}", ended.out, ended.err);
    for rank in 0..ranks {
        let line = expected(rank);
        assert!(ended.out.contains(&line), "{line}: {}\n{}", ended.out, ended.err);
    }
}
