//! What is compared with which program of perftest.
//!
//! Like with like: the same number of operations of the same size on the same port. UD is the way by
//! datagrams, which hither makes reliable and perftest does not; RC is the way by queue pairs. A put
//! and a flush is a write and its completion, one at a time, as `-t 1` has it; a get is a read that
//! is waited for, as `ib_read_lat` has it. Puts with one flush for all, and gets one after the other,
//! are beside writes and reads of which many are under way. Atomics go by packets, whatever there is.

use super::perftest::Test;
use super::{effort, rounds};
use crate::bench::duel::{Effort, Side};
use crate::bench::floor::sockets::Flood;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Row, Unit};
use crate::bench::subject::echo::BackAndForth;
use crate::bench::subject::net::End;
use crate::bench::subject::net_windows::{OneSided, What};
use crate::bench::subject::{net, net_windows};
use hither::rma::Medium;
use hither::{Error, Job, Op, Rank, Result, Window};
use std::sync::Arc;

/// The part by datagrams, and its settings.
pub const DATAGRAMS: &str = "net-hosts-datagrams-part";
pub const BY_DATAGRAMS: &[(&str, &str)] = net::BY_DATAGRAMS;
/// The part by queue pairs.
pub const PAIRS: &str = "net-hosts-pairs-part";
pub const BY_PAIRS: &[(&str, &str)] = net_windows::SETTINGS;

/// Makes a rank's part of the library's side. Collective.
type Make = Box<dyn Fn(&Arc<Job>, usize) -> Result<Box<dyn Side>>>;

/// One comparison.
pub struct Case {
    /// What is measured.
    pub what: &'static str,
    /// Bytes of an operation.
    pub size: usize,
    /// What both figures are counted in.
    pub unit: Unit,
    /// Counted operations of an operation of the side: 2 where a round trip is two messages.
    pub steps: f64,
    /// What is asked.
    pub goal: Goal,
    /// The program beside it.
    pub test: Test,
    /// The library's side.
    pub make: Make,
}

const LARGE: usize = 1 << 20;
/// More than an element, which devices do not promise to move whole: so it goes by them, and 8 bytes by
/// packets.
const SMALL: usize = 64;
/// The most that one datagram carries in both: below the least MTU that RoCE has on an Ethernet's
/// 1500 bytes, with what hither puts before it.
const DATAGRAM: usize = 512;

/// By datagrams.
pub fn by_datagrams(job: &Arc<Job>, of: Effort) -> Result<Vec<Row>> {
    let rate = Goal::AtLeast(0.8);
    let cases = [
        latency("latency, UD", "ib_send_lat -c UD", Goal::None),
        stream("message rate, UD", 8, Unit::MillionPerSecond, "ib_send_bw -c UD", rate),
        stream("bandwidth, UD", DATAGRAM, Unit::GigabytesPerSecond, "ib_send_bw -c UD", Goal::None),
    ];
    rounds::run(job, &cases, effort(of))
}

/// By queue pairs.
pub fn by_pairs(job: &Arc<Job>, of: Effort) -> Result<Vec<Row>> {
    let (rate, bandwidth) = (Unit::MillionPerSecond, Unit::GigabytesPerSecond);
    let (one, none) = (Goal::AtMost(1.1), Goal::None);
    let mut cases = vec![
        latency("latency, RC", "ib_send_lat", Goal::AtMost(1.15)),
        stream("message rate, RC", 8, rate, "ib_send_bw", none),
        stream("bandwidth, RC", LARGE, bandwidth, "ib_send_bw", none),
    ];
    for size in [8, SMALL, LARGE] {
        let time = Unit::Nanoseconds;
        cases.push(window("put and flush, RC", What::Put, size, time, "ib_write_bw -t 1", one));
        cases.push(window("get, RC", What::Get, size, time, "ib_read_lat", one));
        let unit = if size == LARGE { bandwidth } else { rate };
        cases.push(window("puts, one flush, RC", What::Puts, size, unit, "ib_write_bw", none));
        cases.push(window("gets, RC", What::Get, size, unit, "ib_read_bw", none));
    }
    cases.push(Case {
        what: "fetch_and_op, RC",
        size: 8,
        unit: Unit::Nanoseconds,
        steps: 1.0,
        goal: none,
        test: Test("ib_atomic_lat"),
        make: Box::new(|job, _| Ok(Box::new(Adds::new(job)?))),
    });
    rounds::run(job, &cases, effort(of))
}

fn latency(what: &'static str, test: &'static str, goal: Goal) -> Case {
    let make: Make = Box::new(|job, size| Ok(Box::new(BackAndForth::new(End::new(job, size)))));
    let unit = Unit::Nanoseconds;
    Case { what, size: 8, unit, steps: 2.0, goal, test: Test(test), make }
}

fn stream(what: &'static str, size: usize, unit: Unit, test: &'static str, goal: Goal) -> Case {
    let make: Make = Box::new(|job, size| Ok(Box::new(Flood::new(End::new(job, size)))));
    Case { what, size, unit, steps: 1.0, goal, test: Test(test), make }
}

fn window(
    what: &'static str,
    operation: What,
    size: usize,
    unit: Unit,
    test: &'static str,
    goal: Goal,
) -> Case {
    let make: Make =
        Box::new(move |job, size| Ok(Box::new(OneSided::new(job, Medium::Auto, operation, size)?)));
    Case { what, size, unit, steps: 1.0, goal, test: Test(test), make }
}

/// Additions by rank 0 to a word of rank 1, each of which gives what was there.
struct Adds {
    window: Window<u64>,
    done: u64,
}

impl Adds {
    fn new(job: &Job) -> Result<Adds> {
        Ok(Adds { window: Window::allocate(job.team(), 1)?, done: 0 })
    }
}

impl Side for Adds {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let epoch = self.window.lock_all()?;
        let done = &mut self.done;
        meter.run(count, |_| {
            let was = epoch.fetch_and_op(Rank(1), 0, Op::Sum, 1)?;
            if was != *done {
                return Err(Error::invalid("bench", "additions were lost"));
            }
            *done += 1;
            Ok(())
        })?;
        epoch.unlock_all()
    }
}
