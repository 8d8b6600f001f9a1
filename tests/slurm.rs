//! Jobs that Slurm starts: `srun --mpi=pmi2`, which answers PMI-1 too, and `srun --mpi=pmix`.
//!
//! They are tried where `srun` has nodes that are this machine, as those of a cluster that
//! `tests/support/slurm-cluster.sh` starts. What takes more nodes, or what Slurm was built without, is not
//! tried.

#[path = "support/launchers.rs"]
mod launchers;
#[path = "support/slurm_nodes.rs"]
mod slurm_nodes;
#[path = "support/started.rs"]
mod started;

use launchers::{Ended, assert_said, run};
use slurm_nodes::srun;
use std::io::Write;

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    launchers::play(started::play);
}

fn start(kind: &str, nodes: usize, args: &[&str], role: &str) -> Option<Ended> {
    let (mut command, nodes) = srun(kind, nodes)?;
    command.arg(format!("--nodelist={}", nodes.join(","))).args(args);
    Some(run(command, role))
}

const KINDS: [&str; 2] = ["pmi2", "pmix"];

#[test]
fn ranks_of_one_node() {
    for kind in KINDS {
        for size in [1, 4] {
            let args = format!("--ntasks={size}");
            let Some(ended) = start(kind, 1, &[&args], "all") else { break };
            assert_said(&ended, size, |rank| started::all(rank, size, size));
        }
    }
}

#[test]
fn ranks_of_two_nodes() {
    for kind in KINDS {
        for (args, near) in [
            (&["--ntasks=4", "--ntasks-per-node=2"][..], &[2, 2, 2, 2][..]),
            (&["--ntasks=5", "--ntasks-per-node=3", "--distribution=cyclic"], &[3, 2, 3, 2, 3]),
            (&["--ntasks=5", "--ntasks-per-node=3", "--distribution=plane=2"], &[3, 3, 2, 2, 3]),
        ] {
            let Some(ended) = start(kind, 2, args, "all") else { break };
            let size = near.len() as u32;
            assert_said(&ended, size, |rank| started::all(rank, size, near[rank as usize]));
        }
    }
}

/// In an order of the user's own, of which Slurm's PMI says that everybody is alone, while PMIx tells nodes
/// apart by their names. These two are one machine.
#[test]
fn ranks_in_an_order_that_slurm_does_not_tell() {
    for (kind, near) in [("pmi2", [5, 5, 5, 5, 5]), ("pmix", [2, 3, 3, 2, 3])] {
        let Some((mut command, nodes)) = srun(kind, 2) else { continue };
        let mut hosts = tempfile::NamedTempFile::new().unwrap();
        for at in [1, 0, 0, 1, 0] {
            writeln!(hosts, "{}", nodes[at]).unwrap();
        }
        command.args(["--ntasks=5", "--distribution=arbitrary"]);
        command.env("SLURM_HOSTFILE", hosts.path());
        let ended = run(command, "all");
        assert_said(&ended, 5, |rank| started::all(rank, 5, near[rank as usize]));
    }
}

#[test]
fn what_ranks_put_is_what_others_get() {
    for kind in KINDS {
        for nodes in [1, 2] {
            let Some(ended) = start(kind, nodes, &["--ntasks=3"], "values") else { break };
            assert_said(&ended, 3, |rank| format!("rank {rank} of 3 has all values"));
            assert!(!ended.err.contains("error"), "{}", ended.err);
        }
    }
}

/// Slurm says how each rank ended, and the library that one is dead.
#[test]
fn deaths_and_exit_codes() {
    for kind in KINDS {
        let Some(ended) = start(kind, 1, &["--ntasks=3"], "die") else { continue };
        assert!(!ended.well && !ended.out.contains("nobody died"), "{}\n{}", ended.out, ended.err);
        assert!(ended.err.contains("rank 1 died"), "{}\n{}", ended.out, ended.err);
        let ended = start(kind, 1, &["--ntasks=2"], "fail").unwrap();
        assert_eq!(ended.code, Some(7), "{}\n{}", ended.out, ended.err);
    }
}

/// Unless it is told to end a job with its first rank, Slurm leaves the others alone.
#[test]
fn survivors_go_on() {
    for kind in KINDS {
        for nodes in [1, 2] {
            let Some((mut command, nodes)) = srun(kind, nodes) else { break };
            command.arg(format!("--nodelist={}", nodes.join(",")));
            command.args(["--ntasks=4", "--kill-on-bad-exit=0"]);
            command.env("HITHER_NET_TIMEOUT", "2");
            let ended = run(command, "survive");
            assert!(!ended.well, "one was killed: {}\n{}", ended.out, ended.err);
            for rank in [0, 2, 3] {
                let line = format!("rank {rank} of 3 left, sum 5: ");
                assert!(ended.out.contains(&line), "{line}: {}\n{}", ended.out, ended.err);
            }
        }
    }
}
