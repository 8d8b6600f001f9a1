//! MPI programs that use hither too: wired up by MPI's own allgather, under the launchers of MPICH and of
//! Open MPI, where launcher and library are installed.
//!
//! Both libraries are in use at once, on one node and on two, and what one of them finds is held against
//! what the other one does. The launcher is MPI's alone to talk to.

#[path = "support/launchers.rs"]
mod launchers;
#[path = "support/mpi.rs"]
mod mpi;
#[path = "support/slurm_nodes.rs"]
mod slurm_nodes;

use hither::{Any, Error, Job, Op, Rank, Result, Window, boot::FromAllgather};
use launchers::{Ended, not_tried, run};
use mpi::Mpi;
use std::cell::OnceCell;
use std::process::Command;

const FAMILIES: [&str; 2] = ["mpich", "open mpi"];
const RANKS: u32 = 4;
const NO_LIBRARY: &str = "no library of this MPI";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    launchers::play(|role| {
        let (what, family) = role.split_once(" of ").expect("a role and a family");
        let Some(mpi) = mpi::init(family) else { return Ok(NO_LIBRARY.into()) };
        MPI.with(|own| own.set(mpi).ok().expect("MPI is initialised once"));
        MPI.with(|mpi| act(what, &**mpi.get().expect("MPI, as it was just set")))
    });
}

thread_local! {
    /// Of the thread that has initialised it, which alone may call it.
    static MPI: OnceCell<Box<dyn Mpi>> = const { OnceCell::new() };
}

/// Joins over MPI's allgather, called wherever hither calls it: on another thread there would be no MPI.
fn join(mpi: &dyn Mpi, node: Option<u32>) -> Result<Job> {
    let gather = |own: &[u8]| {
        MPI.with(|mpi| {
            let here = mpi.get().ok_or_else(|| Error::Misuse {
                what: "the allgather",
                why: "it was called on another thread than the one that joins".into(),
            })?;
            Ok(here.gather(own))
        })
    };
    let (rank, size) = (mpi.rank(), mpi.size());
    let boot = match node {
        Some(node) => FromAllgather::on_node(&format!("node {node}"), rank, size, gather)?,
        None => FromAllgather::new(rank, size, gather)?,
    };
    Job::builder().bootstrap(boot).init()
}

fn act(what: &str, mpi: &dyn Mpi) -> Result<String> {
    let (rank, size) = (mpi.rank(), mpi.size());
    let node = match what {
        "blocks" => Some(rank / (size / 2)),
        "turns" => Some(rank % 2),
        _ => None,
    };
    let mut near = 0;
    match what {
        // Another job when the first has ended, over the same MPI.
        "one after another" => {
            for node in [None, Some(rank % 2), None] {
                let job = join(mpi, node)?;
                near = together(&job, mpi)?;
                job.finish()?;
            }
        }
        // MPI's end is not hither's.
        "outlive" => {
            let job = join(mpi, node)?;
            near = together(&job, mpi)?;
            mpi.finalize();
            let mut sum = [1u64];
            job.team().allreduce(Op::Sum, &mut sum)?;
            assert_eq!(sum, [u64::from(size)]);
            job.finish()?;
            return Ok(format!("rank {rank} of {size}, {near} near"));
        }
        // The launcher is MPI's: whoever joins by it all the same is told what to do, and MPI goes on.
        "by mistake" => {
            let error = Job::init().map(drop).expect_err("the launcher is MPI's to talk to");
            assert_eq!(mpi.allreduce_sum(1), u64::from(size), "MPI goes on");
            mpi.finalize();
            return Ok(format!("rank {rank} of {size}: {error}"));
        }
        _ => {
            let job = join(mpi, node)?;
            near = together(&job, mpi)?;
            job.finish()?;
        }
    }
    assert_eq!(mpi.allreduce_sum(1), u64::from(size), "MPI goes on");
    mpi.finalize();
    Ok(format!("rank {rank} of {size}, {near} near"))
}

/// Work of both libraries, in each other's way; how many ranks are on this one's node.
fn together(job: &Job, mpi: &dyn Mpi) -> Result<u32> {
    const ROUNDS: u64 = 12;
    let (team, me, size) = (job.team(), job.rank(), job.size());
    assert_eq!((me.0, size), (mpi.rank(), mpi.size()));
    let (next, before) = ((me.0 + 1) % size, (me.0 + size - 1) % size);
    let window = Window::<u64>::allocate(team, size as usize)?;
    let mut expected = 0u64;
    for round in 0..ROUNDS {
        // Small ones and such as go in pieces, with MPI's own messages while they are under way.
        let length = [3, 5_000, 120_000][round as usize % 3];
        let mark = |rank: u32| u32::try_from(round).unwrap() << 8 | rank;
        let sent = team.isend(Rank(next), 1, vec![mark(me.0); length])?;
        let epoch = window.lock_all()?;
        let share = (u64::from(me.0) + 1) * (round + 1);
        for target in team.ranks() {
            epoch.accumulate(target, me.0 as usize, Op::Sum, &[share])?;
        }
        let bytes = mark(me.0).to_le_bytes().repeat(2_000);
        let shifted = mpi.shift(next, before, &bytes);
        assert_eq!(shifted, mark(before).to_le_bytes().repeat(2_000), "what MPI has moved");
        epoch.unlock_all()?;
        let mut got = vec![0u32; length];
        match round % 2 {
            0 => team.recv(Any, 1, &mut got)?,
            _ => team.recv(Rank(before), 1, &mut got)?,
        };
        sent.wait()?;
        assert!(got.iter().all(|value| *value == mark(before)), "round {round}");
        // The same sum by both.
        let own = share.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        let theirs = mpi.allreduce_sum(own);
        let mut ours = [own];
        team.allreduce(Op::Sum, &mut ours)?;
        assert_eq!(ours, [theirs], "round {round}");
        expected += mpi.allreduce_sum(share);
    }
    team.barrier()?;
    let mut held = 0;
    for origin in 0..size as usize {
        held += window.local().get(origin)?;
    }
    assert_eq!(held, expected, "what all have added to this rank's part");
    window.free()?;
    Ok(job.node_team().size())
}

/// Ranks of this program under the launcher of an MPI; nothing if that is not installed.
fn start(what: &str, family: &str) -> Option<Ended> {
    let launcher = match family {
        "mpich" => launchers::mpich(),
        _ => launchers::open_mpi(),
    };
    if launcher.is_none() {
        not_tried(&format!("an MPI program, {what}, of {family}"), "its launcher is not installed");
    }
    start_by(launcher?, what, family)
}

/// The same under this launcher; nothing if there is no library of that MPI.
fn start_by(mut job: Command, what: &str, family: &str) -> Option<Ended> {
    job.args(["-n", &RANKS.to_string()]);
    let ended = run(job, &format!("{what} of {family}"));
    if ended.out.contains(NO_LIBRARY) {
        let what = format!("an MPI program, {what}, of {family}");
        not_tried(&what, "its library is not installed");
        return None;
    }
    Some(ended)
}

fn try_with_both(what: &str, near: u32) {
    for family in FAMILIES {
        let Some(ended) = start(what, family) else { continue };
        let line = |rank| format!("rank {rank} of {RANKS}, {near} near");
        launchers::assert_said(&ended, RANKS, line);
    }
}

#[test]
fn on_one_node() {
    try_with_both("whole", RANKS);
}

#[test]
fn on_two_nodes() {
    try_with_both("blocks", RANKS / 2);
    try_with_both("turns", RANKS / 2);
}

#[test]
fn one_job_after_another() {
    try_with_both("one after another", RANKS);
}

#[test]
fn after_the_end_of_mpi() {
    try_with_both("outlive", RANKS);
}

/// On one of its nodes: of two that are one machine Open MPI takes the memory of one for that of the other
/// (it names it by the machine and the rank on the node), and crashes now and then.
#[test]
fn under_slurm() {
    for (family, kind) in [("mpich", "pmi2"), ("open mpi", "pmix")] {
        for (what, near) in [("whole", RANKS), ("turns", RANKS / 2), ("outlive", RANKS)] {
            let Some((mut srun, nodes)) = slurm_nodes::srun(kind, 1) else { break };
            srun.arg(format!("--nodelist={}", nodes.join(",")));
            let Some(ended) = start_by(srun, what, family) else { break };
            launchers::assert_said(&ended, RANKS, |rank| {
                format!("rank {rank} of {RANKS}, {near} near")
            });
        }
    }
}

#[test]
fn who_joins_by_the_launcher_of_an_mpi_program_is_told_what_to_do() {
    for family in FAMILIES {
        let Some(ended) = start("by mistake", family) else { continue };
        launchers::assert_said(&ended, RANKS, |rank| format!("rank {rank} of {RANKS}: "));
        let told = ended.out.matches("FromAllgather").count();
        assert_eq!(told, RANKS as usize, "{family}: {}\n{}", ended.out, ended.err);
    }
}
