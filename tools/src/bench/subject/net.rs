//! `net`: tagged messages between two ranks on two emulated nodes, by datagrams and by queue pairs,
//! beside programs that use the same sockets without a library; and windows (`net_windows`).
//!
//! Both are over the provider `sockets`: datagrams are UDP, queue pairs TCP. What a switch of eager
//! thresholds takes is measured by `net_switch`.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::sockets::{Datagrams, Flood, Tcp, Udp};
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Point, Row, Unit};
use crate::bench::subject::echo::{BackAndForth, End as Ends};
use crate::bench::subject::net_switch;
use crate::bench::suite;
use hither::{Job, Rank, Result};
use std::sync::Arc;

/// The part by datagrams.
pub const DATAGRAMS: &str = "net-datagrams-part";
/// The part by queue pairs.
pub const PAIRS: &str = "net-pairs-part";
/// The part by datagrams of which some are lost.
pub const LOSSES: &str = "net-losses-part";

/// The part about windows.
pub const WINDOWS: &str = "net-windows-part";

pub const BENCH: &str = "net";

/// Settings of the parts.
pub const BY_DATAGRAMS: &[(&str, &str)] = &[("HITHER_NET_PAIRS", "never")];
/// By queue pairs from the first message on.
pub const BY_PAIRS: &[(&str, &str)] =
    &[("HITHER_NET_PAIRS", "traffic"), ("HITHER_NET_PAIR_AFTER", "1")];
/// One datagram of a hundred is lost.
pub const WITH_LOSSES: &[(&str, &str)] =
    &[("HITHER_NET_PAIRS", "never"), ("HITHER_NET_FAULTS", "drop=10,seed=1")];

const SIZES: [usize; 7] = [8, 64, 512, 2048, 16 << 10, 64 << 10, 1 << 20];

/// The longest message that fits into one datagram, of those above.
const ONE_DATAGRAM: usize = 2048;

/// `net`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for part in [DATAGRAMS, PAIRS, LOSSES, WINDOWS] {
        rows.extend(jobs::measure_between(suite::find(part)?, 2, options)?);
    }
    rows.extend(net_switch::run(options)?);
    Ok(rows)
}

/// One end of two ranks that send each other messages by the library.
pub struct End {
    job: Arc<Job>,
    private: Vec<u8>,
}

impl End {
    /// With messages of `size` bytes.
    pub fn new(job: &Arc<Job>, size: usize) -> End {
        End { job: job.clone(), private: vec![0; size] }
    }

    fn peer(&self) -> Rank {
        Rank(1 - self.job.rank().0)
    }
}

impl Ends for End {
    fn private(&mut self) -> &mut [u8] {
        &mut self.private
    }

    fn send(&mut self) -> Result<()> {
        self.job.team().send(self.peer(), 1, &self.private)
    }

    fn receive(&mut self) -> Result<()> {
        self.job.team().recv(self.peer(), 1, &mut self.private).map(drop)
    }
}

fn latency(by: &'static str, pairs: bool, size: usize, goal: Goal) -> Case {
    let limit = if !pairs && size <= ONE_DATAGRAM { "UDP sockets" } else { "a TCP connection" };
    let setup = move |crew: &Crew| {
        let floor: Box<dyn Side> = if !pairs && size <= ONE_DATAGRAM {
            Box::new(BackAndForth::new(Udp::new(crew, size)?))
        } else {
            Box::new(BackAndForth::new(Tcp::new(crew, size)?))
        };
        Ok(Pair { subject: Box::new(BackAndForth::new(End::new(crew.job()?, size))), floor })
    };
    let point = Point::new("Between nodes: latency by size", by, "bytes", size as f64);
    Case::latency(BENCH, format!("one-way latency, {by}"), size, limit, goal, setup)
        .one_way()
        .on(point)
}

fn rate(by: &'static str, pairs: bool, size: usize, goal: Goal) -> Case {
    let limit = if pairs { "a TCP connection" } else { "UDP sockets" };
    let setup = move |crew: &Crew| {
        let floor: Box<dyn Side> = if pairs {
            Box::new(Flood::new(Tcp::new(crew, size)?))
        } else {
            Box::new(Datagrams::new(crew, size)?)
        };
        Ok(Pair { subject: Box::new(Flood::new(End::new(crew.job()?, size))), floor })
    };
    Case::latency(BENCH, format!("message rate, {by}"), size, limit, goal, setup)
        .counted_in(Unit::MillionPerSecond)
}

fn bandwidth(by: &'static str, size: usize) -> Case {
    let setup = move |crew: &Crew| {
        let floor = Box::new(Flood::new(Tcp::new(crew, size)?));
        Ok(Pair { subject: Box::new(Flood::new(End::new(crew.job()?, size))), floor })
    };
    let point = Point::new("Between nodes: bandwidth by size", by, "bytes", size as f64);
    let limit = "a TCP connection";
    Case::latency(BENCH, format!("bandwidth, {by}"), size, limit, Goal::None, setup)
        .counted_in(Unit::GigabytesPerSecond)
        .on(point)
}

fn cases(by: &'static str, pairs: bool) -> Vec<Case> {
    let goal = |size| if pairs && size == 8 { Goal::AtMost(1.15) } else { Goal::None };
    let mut cases: Vec<Case> =
        SIZES.into_iter().map(|size| latency(by, pairs, size, goal(size))).collect();
    let least = if pairs { Goal::None } else { Goal::AtLeast(0.8) };
    cases.extend([rate(by, pairs, 8, least), rate(by, pairs, 512, Goal::None)]);
    cases.extend([4096, 64 << 10, 1 << 20].map(|size| bandwidth(by, size)));
    cases
}

/// By datagrams.
pub fn datagrams() -> Vec<Case> {
    cases("datagrams", false)
}

/// By queue pairs.
pub fn pairs() -> Vec<Case> {
    cases("queue pairs", true)
}

/// By datagrams of which one of a hundred is lost, beside sockets that lose none.
pub fn losses() -> Vec<Case> {
    vec![rate("datagrams, 1 % lost", false, 8, Goal::AtLeast(0.6))]
}
