//! Starting the PEs, as Lamellar's own script does for this backend: each gets its share of the cores, and as
//! many threads, unless `LAMELLAR_THREADS` says how many.

use super::Failure;
use hither_peers::{cores, settle};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many PEs, as Lamellar is told it, too.
const ALL: &str = "LAMELLAR_NUM_PES";
/// Which of them.
const NUMBER: &str = "LAMELLAR_PE_ID";

fn variable(name: &str) -> Result<usize, Failure> {
    let value = std::env::var(name).map_err(|e| format!("{name}: {e}"))?;
    Ok(value.parse().map_err(|e| format!("{name}={value}: {e}"))?)
}

/// Cores of a PE's own; with fewer cores than PEs they take turns.
fn share(cores: &[usize], all: usize, number: usize) -> &[usize] {
    let each = (cores.len() / all.max(1)).max(1);
    let shares = (cores.len() / each).max(1);
    let start = number % shares * each;
    cores.get(start..start + each).unwrap_or_default()
}

/// Starts all PEs and waits for them. One that ends badly ends the others.
pub fn launch() -> Result<(), Failure> {
    settle(&[]);
    let (all, cores) = (variable(ALL)?, cores());
    if all < 2 {
        return Err(format!("{ALL}={all}: there are two at least").into());
    }
    let program = std::env::current_exe()?;
    // No other job's, not even one's that has gone and left its memory behind.
    let job = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as usize;
    let mut pes: Vec<Child> = Vec::new();
    for number in 0..all {
        let mut pe = Command::new(&program);
        pe.args(std::env::args_os().skip(1)).env(NUMBER, number.to_string());
        pe.env("LAMELLAR_BACKEND", "shmem").env("LAMELLAR_JOB_ID", job.to_string());
        if std::env::var_os("LAMELLAR_THREADS").is_none() {
            pe.env("LAMELLAR_THREADS", share(&cores, all, number).len().max(1).to_string());
        }
        pes.push(pe.spawn()?);
    }
    while !pes.is_empty() {
        let mut left = Vec::new();
        for mut pe in pes {
            match pe.try_wait()? {
                None => left.push(pe),
                Some(status) if status.success() => {}
                // The others end with this process.
                Some(status) => return Err(format!("a PE: {status}").into()),
            }
        }
        pes = left;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Binds this PE to its cores, and has it end with whoever started it.
pub fn settle_as_pe() -> Result<(), Failure> {
    settle(share(&cores(), variable(ALL)?, variable(NUMBER)?));
    Ok(())
}
