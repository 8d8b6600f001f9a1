//! Slurm, where it is: its nodes that are this machine, and `srun` on them.

use crate::launchers::not_tried;
use std::process::Command;

/// What a command says, if it ends well.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let said = Command::new(program).args(args).output().ok()?;
    let all = [said.stdout, said.stderr].concat();
    said.status.success().then(|| String::from_utf8_lossy(&all).into_owned())
}

/// The nodes of Slurm that are this machine and take jobs.
fn nodes() -> Vec<String> {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let all = said("scontrol", &["--oneliner", "show", "node"]).unwrap_or_default();
    let nodes = all.lines().filter_map(|line| {
        let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key));
        let state = word("State=")?;
        let works = ["IDLE", "MIXED", "ALLOCATED"].iter().any(|good| state.starts_with(good));
        let here = word("NodeHostName=")? == own && works && !state.contains("DRAIN");
        here.then(|| word("NodeName=").map(str::to_owned)).flatten()
    });
    nodes.collect()
}

/// `srun` with this kind of MPI, and so many nodes of this machine for it; nothing if it cannot be tried.
pub fn srun(kind: &str, count: usize) -> Option<(Command, Vec<String>)> {
    let name = format!("srun --mpi={kind} on {count} node(s)");
    let mut nodes = nodes();
    if nodes.len() < count {
        let help = "start a cluster by tests/support/slurm-cluster.sh";
        let why = format!("{} node(s) of a Slurm are this machine ({help})", nodes.len());
        not_tried(&name, &why);
        return None;
    }
    let kinds = said("srun", &["--mpi=list"]).unwrap_or_default();
    if !kinds.split_whitespace().any(|known| known == kind) {
        not_tried(&name, "this Slurm has no such plugin");
        return None;
    }
    let mut command = Command::new("srun");
    // Variables of an allocation that this test may be run in would be arguments, too.
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        if text.starts_with("SLURM_") && text != "SLURM_CONF" {
            command.env_remove(variable);
        }
    }
    command.args(["--quiet", "--overcommit", "--time=5", &format!("--mpi={kind}")]);
    command.arg(format!("--nodes={count}"));
    nodes.truncate(count);
    Some((command, nodes))
}
