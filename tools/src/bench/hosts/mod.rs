//! `hither bench net --hosts A,B` and `--lab`: messages, windows and atomics between two machines by an
//! RDMA device, beside perftest's programs on the same device, round by round.
//!
//! ```text
//! cases      what is compared, and with which program    perftest   running a program on both hosts
//! rounds     both sides in turn, across machines         figures    what a program has printed
//! lab        all of it in two virtual machines            tied       programs that end with their rank
//! ```
//! Two jobs of a rank on each host: by datagrams (UD) and by queue pairs (RC). Rank 0 leads and hands
//! the rows back. Ranks of two machines share no memory, so they are told by messages what is next;
//! while a program of perftest runs both wait asleep.

mod cases;
mod figures;
pub mod lab;
mod perftest;
mod rounds;
pub mod tied;

pub use cases::{BY_DATAGRAMS, BY_PAIRS, DATAGRAMS, PAIRS, by_datagrams, by_pairs};

use super::duel::Effort;
use super::jobs::{self, Options};
use super::row::Row;
use super::suite;
use hither::base::settings::NET_PROVIDER;
use hither::{Error, Result};

/// The benchmark that can be measured between hosts.
pub const BENCH: &str = "net";

/// Nanoseconds of a batch, as often as on one machine and at least: perftest begins anew for each of
/// its rounds, and what it begins with counts; and emulated devices are slow.
const LONGER: f64 = 200.0;
const LEAST: f64 = 5e7;

/// Rounds and batches: of one machine's effort, fewer and longer ones.
fn effort(of: Effort) -> Effort {
    let batch = (of.batch * LONGER).max(LEAST);
    Effort { rounds: (of.rounds / 3).clamp(1, 9), batch, singles: 0 }
}

/// All of it on two hosts, `A,B`.
pub fn run(hosts: &str, options: &Options) -> Result<Vec<Row>> {
    let names: Vec<&str> = hosts.split(',').collect();
    if names.len() != 2 || names.iter().any(|name| name.is_empty() || name.contains(':')) {
        let why = format!("\"{hosts}\" is not two hosts, as in a,b: a rank runs on each");
        return Err(Error::invalid("bench --hosts", why));
    }
    // Beside perftest nothing else makes sense; without a device one may still want to see it run.
    let provider = if NET_PROVIDER.is_set() { NET_PROVIDER.text() } else { VERBS.into() };
    let mut rows = Vec::new();
    for part in [DATAGRAMS, PAIRS] {
        let part = suite::find(part)?;
        let settings = [(NET_PROVIDER.name, provider.as_str())];
        rows.extend(jobs::measure_between_hosts(part, hosts, options, &settings)?);
    }
    Ok(rows)
}

/// The provider of RDMA devices.
const VERBS: &str = "verbs";

/// Says which rows have no other side, and why: once for each reason.
pub fn tell_absent(rows: &[Row]) {
    let mut told: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.floor == 0.0) {
        if !told.contains(&row.limit.as_str()) {
            told.push(&row.limit);
            eprintln!("hither: {}: not compared with {}", row.bench, row.limit);
        }
    }
}
