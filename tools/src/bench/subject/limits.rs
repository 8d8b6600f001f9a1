//! Every limit against itself: what this machine does, and (by how far the ratios stray from
//! 1) what differences a run can tell at present.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::atomics::{Atomics, Instruction};
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::floor::call::LockedCall;
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::memcpy::Memcpy;
use crate::bench::floor::mutex::{LockUnlock, RobustMutex};
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::Ring;
use crate::bench::floor::sum::PrivateSum;
use crate::bench::row::{Goal, Unit};
use hither::Result;

const BENCH: &str = "limits";

fn twice<S: Side + 'static>(
    make: impl Fn(&Crew) -> Result<S> + 'static,
) -> impl Fn(&Crew) -> Result<Pair> + 'static {
    move |crew| Ok(Pair { subject: Box::new(make(crew)?), floor: Box::new(make(crew)?) })
}

fn case<S: Side + 'static>(
    what: &str,
    size: usize,
    make: impl Fn(&Crew) -> Result<S> + 'static,
) -> Case {
    Case::latency(BENCH, what, size, "the same", Goal::None, twice(make))
}

/// All limits that processes can show by themselves.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("ping-pong, one line", 8, |c| PingPong::new(c, 1)).one_way(),
        case("ping-pong, two lines", 8, |c| PingPong::new(c, 2)).one_way(),
    ];
    for size in [8, 64, 512, 1024, 64 << 10] {
        cases.push(case("copy in + copy out", size, move |c| CopyCells::new(c, size)).one_way());
    }
    for size in [8, 128] {
        cases.push(
            case("bare ring", size, move |c| Ring::new(c, size)).counted_in(Unit::MillionPerSecond),
        );
    }
    for (what, instruction) in [
        ("store", Instruction::Store),
        ("store + fence", Instruction::StoreFence),
        ("load + fence", Instruction::LoadFence),
        ("fetch_add", Instruction::FetchAdd),
        ("compare and swap", Instruction::CompareSwap),
    ] {
        cases.push(case(what, 8, move |c| Atomics::alone(c, instruction, 1)));
    }
    cases.push(case("fetch_add, contended", 8, |c| Atomics::contended(c, Instruction::FetchAdd)));
    cases.push(case("robust mutex", 0, |c| Ok(LockUnlock(RobustMutex::new(c)?))));
    cases.push(case("robust mutex + call", 8, |c| LockedCall::new(c, true)));
    cases.push(case("bare lock + call", 8, |c| LockedCall::new(c, false)));
    cases.push(case("flag barrier", 0, |c| FlagBarrier::new(c, false)));
    cases.push(case("flag all-reduce", 8, |c| FlagBarrier::new(c, true)));
    for size in [64 << 10, 1 << 20, 16 << 20] {
        cases.push(
            case("memcpy into shared", size, move |c| Memcpy::new(c, size, false))
                .counted_in(Unit::GigabytesPerSecond),
        );
    }
    cases.push(
        case("private sum of f64", 1 << 20, |_| Ok(PrivateSum::new(1 << 20)))
            .counted_in(Unit::GigabytesPerSecond),
    );
    cases
}
