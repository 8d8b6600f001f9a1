//! Lamellar's active messages between processes of one node, over its shared memory.
//!
//! Started without `LAMELLAR_PE_ID` this starts itself as many times as `PEERS_RANKS` says, bound to a core
//! each. `request`: a message whose result comes back. `rate`: messages without one, waited for together.
//! `barrier`: all at once; the others are told by a message how many there are.

use hither_peers::{Args, Unit, Workload, cores, settle};
use lamellar::active_messaging::prelude::*;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};

/// What requests count in.
static COUNTER: AtomicU64 = AtomicU64::new(0);
/// Barriers that the others are to take part in: as many as were told, and one more that says so.
static TOLD: AtomicU64 = AtomicU64::new(0);
/// Told when there is nothing more to do.
const END: u64 = u64::MAX;

#[lamellar::AmData(Clone, Debug)]
struct Add {
    value: u64,
}

#[lamellar::am]
impl LamellarAM for Add {
    async fn exec(self) -> u64 {
        COUNTER.fetch_add(self.value, Ordering::Relaxed)
    }
}

#[lamellar::AmData(Clone, Debug)]
struct Note {
    value: u64,
}

#[lamellar::am]
impl LamellarAM for Note {
    async fn exec(self) {
        COUNTER.fetch_add(self.value, Ordering::Relaxed);
    }
}

#[lamellar::AmData(Clone, Debug)]
struct Tell {
    count: u64,
}

#[lamellar::am]
impl LamellarAM for Tell {
    async fn exec(self) {
        TOLD.store(self.count, Ordering::Release);
    }
}

/// Starts the processes of the job, and waits for them.
fn launch() -> std::io::Result<ExitCode> {
    let ranks = std::env::var("PEERS_RANKS").unwrap_or_else(|_| "2".into());
    let count: u32 = ranks.parse().unwrap_or(2);
    let program = std::env::current_exe()?;
    let started: Result<Vec<_>, _> = (0..count)
        .map(|rank| {
            Command::new(&program)
                .args(std::env::args_os().skip(1))
                .env("LAMELLAR_BACKEND", "shmem")
                .env("LAMELLAR_NUM_PES", &ranks)
                .env("LAMELLAR_PE_ID", rank.to_string())
                .env("LAMELLAR_JOB_ID", std::process::id().to_string())
                .env("LAMELLAR_THREADS", "1")
                .env("LAMELLAR_MEM_SIZE", (256u64 << 20).to_string())
                .spawn()
        })
        .collect();
    let mut all_well = true;
    for mut process in started? {
        all_well &= process.wait()?.success();
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let Some(rank) = std::env::var("LAMELLAR_PE_ID").ok().and_then(|rank| rank.parse().ok()) else {
        return launch().unwrap_or(ExitCode::FAILURE);
    };
    settle(&cores(), rank);
    let Some(args) = Args::of_program() else { return ExitCode::FAILURE };
    let world = lamellar::LamellarWorldBuilder::new().build();
    let ranks = world.num_pes();
    world.barrier();
    if rank == 0 {
        let tell = |count: u64| {
            for other in 1..ranks {
                world.exec_am_pe(other, Tell { count }).block();
            }
        };
        args.measure(|name, _| {
            Some(match name {
                "request" => Workload {
                    run: Box::new(|count| {
                        for _ in 0..count {
                            std::hint::black_box(world.exec_am_pe(1, Add { value: 1 }).block());
                        }
                    }),
                    steps: 1.0,
                    unit: Unit::Nanoseconds,
                },
                "rate" => Workload {
                    run: Box::new(|count| {
                        for _ in 0..count {
                            let _ = world.spawn_am_pe(1, Note { value: 1 });
                        }
                        world.wait_all();
                    }),
                    steps: 1.0,
                    unit: Unit::MillionPerSecond,
                },
                "barrier" => Workload {
                    run: Box::new(|count| {
                        tell(count);
                        (0..count).for_each(|_| world.barrier());
                    }),
                    steps: 1.0,
                    unit: Unit::Nanoseconds,
                },
                _ => return None,
            })
        });
        tell(END);
    } else {
        loop {
            match TOLD.swap(0, Ordering::Acquire) {
                0 => std::thread::yield_now(),
                END => break,
                count => (0..count).for_each(|_| world.barrier()),
            }
        }
    }
    world.barrier();
    ExitCode::SUCCESS
}
