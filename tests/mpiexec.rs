//! Jobs started by MPI launchers: MPICH's `mpiexec` over PMI-1 and Open MPI's `mpirun` over PMIx, where
//! they are installed.

#[path = "support/launchers.rs"]
mod launchers;
#[path = "support/started.rs"]
mod started;

use hither::{Error, Job, Result};
use launchers::{Ended, PATIENCE, ROLE, assert_said, not_tried, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DONE: &str = "HITHER_TEST_DONE";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    launchers::play(|role| match role {
        "late" => be_late(),
        _ => started::play(role),
    });
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

/// Starts ranks of this program; nothing if there is no launcher.
fn start(args: &[&str], role: &str) -> Option<Ended> {
    let Some(mut job) = launchers::mpich() else {
        not_tried("PMI-1 under MPICH's mpiexec", "it is not installed");
        return None;
    };
    job.args(args);
    Some(run(job, role))
}

/// The same with Open MPI's.
fn start_pmix(args: &[&str], role: &str, done: &Path) -> Option<Ended> {
    let Some(mut job) = launchers::open_mpi() else {
        not_tried("PMIx under Open MPI's mpirun", "it is not installed");
        return None;
    };
    job.args(["-x", ROLE, "-x", DONE, "-x", "HITHER_WAIT_TIMEOUT"]).env(DONE, done).args(args);
    Some(run(job, role))
}

#[test]
fn ranks_of_one_node() {
    for size in [1, 2, 5] {
        let Some(ended) = start(&["-n", &size.to_string()], "all") else { return };
        assert_said(&ended, size, |rank| started::all(rank, size, size));
    }
}

/// Hydra starts what is for hosts of any name here, when told to fork.
#[test]
fn ranks_of_several_nodes() {
    let fork = ["-launcher", "fork", "-hosts", "one,two"];
    let Some(ended) = start(&[&fork[..], &["-ppn", "2", "-n", "4"]].concat(), "all") else {
        return;
    };
    assert_said(&ended, 4, |rank| started::all(rank, 4, 2));
    // In turns, and on nodes of different sizes.
    let uneven = ["-launcher", "fork", "-hosts", "one:1,two:3"];
    let in_turn = [&fork[..], &["-ppn", "1", "-n", "5"]].concat();
    for (args, near) in
        [(in_turn, [3, 2, 3, 2, 3]), ([&uneven[..], &["-n", "5"]].concat(), [2, 3, 3, 3, 2])]
    {
        let ended = start(&args, "all").unwrap();
        assert_said(&ended, 5, |rank| started::all(rank, 5, near[rank as usize]));
    }
}

/// Values of any length, on two nodes.
#[test]
fn what_ranks_put_is_what_others_get() {
    let two = ["-launcher", "fork", "-hosts", "one,two", "-ppn", "2", "-n", "4"];
    let Some(ended) = start(&two, "values") else { return };
    assert_said(&ended, 4, |rank| format!("rank {rank} of 4 has all values"));
}

#[test]
fn what_ranks_put_is_what_others_get_over_pmix() {
    let Some(ended) = start_pmix(&["-n", "3"], "values", Path::new("")) else { return };
    assert_said(&ended, 3, |rank| format!("rank {rank} of 3 has all values"));
}

#[test]
fn the_death_of_a_rank_ends_the_job() {
    let Some(ended) = start(&["-n", "3"], "die") else { return };
    assert!(!ended.well && !ended.out.contains("nobody died"), "{}\n{}", ended.out, ended.err);
}

#[test]
fn ranks_of_one_node_over_pmix() {
    for size in [1, 2, 4] {
        let ended = start_pmix(&["-n", &size.to_string()], "all", Path::new(""));
        let Some(ended) = ended else { return };
        assert_said(&ended, size, |rank| started::all(rank, size, size));
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
        assert_said(&ended, 4, |rank| started::all(rank, 4, 2));
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
    if launchers::open_mpi().is_some() {
        let ended = alone(None);
        assert_eq!(ended.code, Some(3), "{}\n{}", ended.out, ended.err);
        assert!(says(&["PMIX_RANK"], &ended), "{}", ended.err);
    }
}
