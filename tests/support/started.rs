//! What ranks do that a launcher has started, whichever it is.

use crate::launchers::ranks::die;
use hither::boot::{self, Bootstrap};
use hither::{Any, Deadline, Job, Op, Rank, Result, Window};
use std::time::Duration;

/// # Panics
/// If there is no such role.
pub fn play(role: &str) -> Result<String> {
    if role == "values" {
        return exchange_values();
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
                die();
            }
            team.barrier()?;
            Ok("nobody died".into())
        }
        "survive" => {
            if me == Rank(1) {
                die();
            }
            let error = team.barrier().expect_err("rank 1 is dead");
            let rest = team.shrink()?;
            let mut sum = [u64::from(me.0)];
            rest.allreduce(Op::Sum, &mut sum)?;
            let left = rest.size();
            rest.barrier()?;
            // It reports the death again.
            let _ = job.finish();
            Ok(format!("rank {me} of {left} left, sum {}: {error}", sum[0]))
        }
        "fail" => {
            job.finish()?;
            std::process::exit(if me == Rank(1) { 7 } else { 0 });
        }
        other => panic!("no role {other}"),
    }
}

/// What `play` makes a rank say in the role `all`, in a job with so many on its node.
pub fn all(rank: u32, size: u32, near: u32) -> String {
    let sum = size * (size - 1) / 2;
    format!("rank {rank} of {size}, {near} near, sum {sum}, count {size}")
}

/// The launcher's store alone: many values at once, which it takes in many pieces, and values that go
/// alone, whose lengths are those around which one piece becomes two.
fn exchange_values() -> Result<String> {
    let soon = Deadline::after(Duration::from_secs(60));
    let mut boot = boot::from_environment(soon)?;
    let (rank, size) = (boot.rank().0, boot.size());
    let value = |rank: u32, length: usize, round: usize| -> Vec<u8> {
        (0..length).map(|at| (at * 7 + length + round + rank as usize * 31) as u8).collect()
    };
    let key = |length: usize| format!("of {length}");
    let check = |boot: &mut Box<dyn Bootstrap>, from: u32, length: usize, round: usize| {
        let got = boot.get(Rank(from), &key(length), soon)?;
        assert_eq!(got, Some(value(from, length, round)), "{length} bytes of rank {from}");
        Ok::<_, hither::Error>(())
    };
    for round in 0..2 {
        let lengths = || (0..=64).chain([1_000, 5_000, 32 << 10]);
        for length in lengths() {
            boot.put(&key(length), &value(rank, length, round))?;
        }
        boot.fence(soon)?;
        for from in 0..size {
            for length in lengths() {
                check(&mut boot, from, length, round)?;
            }
        }
        assert_eq!(boot.get(Rank(0), "of nothing", soon)?, None);
        // Nobody puts the next ones before all have seen these.
        boot.fence(soon)?;
    }
    for length in 440..=500 {
        boot.put(&key(length), &value(rank, length, 2))?;
        boot.fence(soon)?;
        check(&mut boot, (rank + 1) % size, length, 2)?;
    }
    boot.fence(soon)?;
    Ok(format!("rank {rank} of {size} has all values"))
}
