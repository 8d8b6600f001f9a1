//! Every collective, small and large, beside what moving its data costs at the least.
//!
//! ```text
//! data go          up to 56 B           up to 16 KiB            beyond
//! one way          a message there and back: through cells      one copy, by the kernel
//! both ways        flag all-reduce      in, barrier, out        one copy of the other's each
//! both, summed     flag all-reduce      in, barrier, out        a piece summed each, then copied
//! ```
//! An operation of a side is two calls, one for each of two roots where there is a root, as a round
//! trip of the limit is two messages. Large data that go both ways are written anew before each
//! call: else they would lie in all caches. Limits of data that go one way are of ranks 0 and 1.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::exchange::{self, Collective, Exchange, Renewed};
use crate::bench::floor::handed::HandedBack;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Point};
use hither::coll::{Team, each};
use hither::{Op, Rank, Result, Window};

const BENCH: &str = "collectives";

/// Bytes of what a member gives or gets.
const SIZES: [usize; 4] = [8, 1 << 10, 64 << 10, 1 << 20];

type Call = fn(&Team, Rank, &mut [u64], &mut [u64]) -> Result<()>;

/// Where the data of a call go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// From or to one.
    OneWay,
    /// From all to all.
    BothWays,
    /// The same, combined; everybody gets the whole or a block of it.
    Combined { whole: bool },
}
use Flow::{BothWays, OneWay};
const WHOLE: Flow = Flow::Combined { whole: true };
const BLOCK: Flow = Flow::Combined { whole: false };

/// Name, whether the second buffer has one block for each member, where data go, and the call.
const CALLS: [(&str, bool, Flow, Call); 14] = [
    ("broadcast", false, OneWay, |team, root, mine, _| team.broadcast(root, mine)),
    ("ibroadcast", false, OneWay, |team, root, mine, _| {
        let back = team.ibroadcast(root, mine.to_vec())?.wait()?;
        mine.copy_from_slice(&back);
        Ok(())
    }),
    ("gather", true, OneWay, |team, root, mine, all| team.gather(root, mine, all)),
    ("scatter", true, OneWay, |team, root, mine, all| team.scatter(root, all, mine)),
    ("allgather", true, BothWays, |team, _, mine, all| team.allgather(mine, all)),
    ("alltoall", true, BothWays, |team, _, _, all| team.alltoall_in_place(all)),
    ("reduce", false, OneWay, |team, root, mine, _| team.reduce_in_place(root, Op::Sum, mine)),
    ("allreduce", false, WHOLE, |team, _, mine, _| team.allreduce(Op::Sum, mine)),
    ("iallreduce", false, WHOLE, |team, _, mine, _| {
        let back = team.iallreduce(Op::Sum, mine.to_vec())?.wait()?;
        mine.copy_from_slice(&back);
        Ok(())
    }),
    ("allreduce, user's operation", false, WHOLE, |team, _, mine, _| {
        team.allreduce(each(|a: u64, b: u64| a.wrapping_mul(3).wrapping_add(b)), mine)
    }),
    ("reduce_scatter_block", true, BLOCK, |team, _, mine, all| {
        team.reduce_scatter_block(Op::Sum, all, mine)
    }),
    ("scan", false, OneWay, |team, _, mine, _| team.scan(Op::Sum, mine)),
    ("exscan", false, OneWay, |team, _, mine, _| team.exscan(Op::Sum, mine)),
    ("barrier, begun", false, BothWays, |team, _, _, _| team.ibarrier()?.wait()),
];

struct Calls {
    team: Team,
    call: Call,
    mine: Vec<u64>,
    all: Vec<u64>,
}

impl Calls {
    fn new(crew: &Crew, size: usize, blocks: bool, call: Call) -> Result<Calls> {
        let team = crew.job()?.team().clone();
        let len = size / 8;
        let blocks = if blocks { team.size() as usize } else { 0 };
        Ok(Calls { team, call, mine: vec![1; len], all: vec![1; len * blocks] })
    }

    fn twice(&mut self) -> Result<()> {
        for root in [Rank(0), Rank(1 % self.team.size())] {
            (self.call)(&self.team, root, &mut self.mine, &mut self.all)?;
        }
        Ok(())
    }
}

/// One call, where there is no root.
impl Collective for Calls {
    fn renew(&mut self, value: u64) {
        self.mine.fill(value);
        self.all.fill(value);
    }

    fn once(&mut self) -> Result<()> {
        (self.call)(&self.team, Rank(0), &mut self.mine, &mut self.all)
    }
}

impl Side for Calls {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| self.twice())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.twice())
    }
}

/// Broadcast and allreduce of data in windows.
struct Mapped {
    team: Team,
    window: Window<u64>,
    sum: bool,
}

impl Mapped {
    fn data(&mut self) -> &mut [u64] {
        // SAFETY: this rank's part, which nobody accesses by operations, and the others only
        // inside of collective calls.
        unsafe { std::slice::from_raw_parts_mut(self.window.local().as_ptr(), self.window.len()) }
    }

    fn call(&mut self, root: Rank) -> Result<()> {
        let (team, sum) = (self.team.clone(), self.sum);
        if sum { team.allreduce(Op::Sum, self.data()) } else { team.broadcast(root, self.data()) }
    }
}

impl Collective for Mapped {
    fn renew(&mut self, value: u64) {
        self.data().fill(value);
    }

    fn once(&mut self) -> Result<()> {
        self.call(Rank(0))
    }
}

impl Side for Mapped {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let other = Rank(1 % self.team.size());
        meter.run(count, |_| self.call(Rank(0)).and_then(|()| self.call(other)))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let other = Rank(1 % self.team.size());
        (0..count).try_for_each(|_| self.call(Rank(0)).and_then(|()| self.call(other)))
    }
}

/// Two flag all-reduces.
struct TwoFlags(FlagBarrier);

impl Side for TwoFlags {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| self.0.once().and_then(|()| self.0.once()))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..2 * count).try_for_each(|_| self.0.once())
    }
}

/// Whether data are written anew before each call.
fn renews(size: usize, flow: Flow) -> bool {
    size >= LARGE && flow != OneWay
}

fn renewed<C: Collective + 'static>(crew: &Crew, inner: C) -> Result<Box<dyn Side>> {
    Ok(Box::new(Renewed::new(crew, inner)?))
}

/// The limit of a call whose members give or get `size` bytes each.
fn floor(crew: &Crew, size: usize, flow: Flow, mapped: bool) -> Result<Box<dyn Side>> {
    let large = size >= LARGE;
    // In a reduction of blocks every member has one for each.
    let all = if flow == BLOCK { size * crew.size() as usize } else { size };
    Ok(match flow {
        OneWay if mapped => Box::new(HandedBack::mapped(crew, size)?),
        OneWay if large => Box::new(HandedBack::new(crew, size)?),
        OneWay => Box::new(CopyCells::new(crew, size)?),
        _ if size <= 56 => Box::new(TwoFlags(FlagBarrier::new(crew, true)?)),
        _ if !large => Box::new(Exchange::new(crew, size, exchange::Kind::Copied)?),
        BothWays => renewed(crew, Exchange::new(crew, size, exchange::Kind::Mapped)?)?,
        Flow::Combined { whole } => {
            renewed(crew, Exchange::new(crew, all, exchange::Kind::Reduced { whole })?)?
        }
    })
}

fn limit(size: usize, flow: Flow, mapped: bool) -> &'static str {
    match flow {
        OneWay if mapped => "memcpy by the receiver",
        OneWay if size >= LARGE => "CMA by the receiver",
        OneWay => "copy in + copy out",
        _ if size <= 56 => "flag all-reduce",
        _ if size < LARGE => "copy in, barrier, copy out",
        BothWays => "memcpy by each receiver",
        WHOLE => "mapped, summed and copied",
        _ => "mapped, summed",
    }
}

/// From here on data are copied once.
const LARGE: usize = 64 << 10;

/// Makes a rank's part of a case.
type Make = Box<dyn Fn(&Crew) -> Result<Box<dyn Side>>>;

/// `collectives`.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |what: &str, size: usize, (flow, mapped): (Flow, bool), subject: Make| {
        let setup = move |crew: &Crew| {
            Ok(Pair { subject: subject(crew)?, floor: floor(crew, size, flow, mapped)? })
        };
        let point = Point::new("Collectives", what, "bytes", size as f64);
        let case = Case::latency(BENCH, what, size, limit(size, flow, mapped), Goal::None, setup);
        let case = if renews(size, flow) { case } else { case.one_way() };
        cases.push(case.on(point));
    };
    for (what, blocks, flow, call) in CALLS {
        for size in SIZES {
            // Of a barrier there is one size only.
            if size == 8 || !what.starts_with("barrier") {
                let make: Make = Box::new(move |crew| {
                    let calls = Calls::new(crew, size, blocks, call)?;
                    if renews(size, flow) { renewed(crew, calls) } else { Ok(Box::new(calls)) }
                });
                add(what, size, (flow, false), make);
            }
        }
    }
    for (what, sum) in [("broadcast, mapped", false), ("allreduce, mapped", true)] {
        for size in [64 << 10, 1 << 20] {
            let flow = if sum { WHOLE } else { OneWay };
            let make: Make = Box::new(move |crew| {
                let team = crew.job()?.team().clone();
                let window = Window::allocate(&team, size / 8)?;
                let mapped = Mapped { team, window, sum };
                if renews(size, flow) { renewed(crew, mapped) } else { Ok(Box::new(mapped)) }
            });
            add(what, size, (flow, true), make);
        }
    }
    cases
}
