//! All workloads: sizes and goals. The goals are those of the design for jobs of two ranks with a core
//! each.

use super::{Group, Measure, Sizing, Workload};
use crate::bench::row::{Goal, Unit};

const NS: Measure = Measure::Of(Unit::Nanoseconds);
const RATE: Measure = Measure::Of(Unit::MillionPerSecond);
const GB: Measure = Measure::Of(Unit::GigabytesPerSecond);

const fn new(group: Group, name: &'static str, what: &'static str, measure: Measure) -> Workload {
    Workload {
        name,
        group,
        what,
        sizing: Sizing::Bytes,
        sizes: &[8],
        quick: &[8],
        measure,
        steps: 1.0,
        floor_goal: Goal::None,
        peer_goal: Goal::None,
        direct_goal: None,
        crowded: true,
        least: None,
    }
}

/// Of the time of a transfer, what the program has for itself.
const fn share(name: &'static str, what: &'static str) -> Workload {
    new(Group::Overhead, name, what, Measure::Percent).of(MIB, QUICK_MIB)
}

impl Workload {
    const fn of(mut self, sizes: &'static [usize], quick: &'static [usize]) -> Workload {
        self.sizes = sizes;
        self.quick = quick;
        self
    }

    const fn asked(mut self, floor: Goal, peer: Goal) -> Workload {
        self.floor_goal = floor;
        self.peer_goal = peer;
        self
    }

    /// Goals that are told apart for MPI and for those who work on memory directly.
    const fn direct(mut self, goal: Goal) -> Workload {
        self.direct_goal = Some(goal);
        self
    }

    const fn counting(mut self, steps: f64) -> Workload {
        self.steps = steps;
        self
    }

    /// Whose sizes are no bytes, and one turn of which is long.
    const fn counted(mut self, sizing: Sizing) -> Workload {
        self.sizing = sizing;
        self.least = Some(1);
        self
    }

    const fn uncrowded(mut self) -> Workload {
        self.crowded = false;
        self
    }
}

const SWEEP: &[usize] = &[
    8,
    0,
    1,
    16,
    64,
    128,
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];
const QUICK: &[usize] = &[8, 0, 1 << 10, 64 << 10, 1 << 20];
const LARGE: &[usize] = &[
    4 << 10,
    1 << 10,
    2 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];
const QUICK_LARGE: &[usize] = &[4 << 10, 64 << 10, 1 << 20];
const PARTS: &[usize] = &[8, 64, 512, 4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20];
const QUICK_PARTS: &[usize] = &[8, 4 << 10, 1 << 20];
const STILL: &[usize] = &[64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_STILL: &[usize] = &[64 << 10, 1 << 20];
const QUICK_SIGNALS: &[usize] = &[8, 4 << 10, 64 << 10, 1 << 20];
const SMALL: &[usize] = &[8, 128];
const MIB: &[usize] = &[1 << 20, 64 << 10, 4 << 20];
const QUICK_MIB: &[usize] = &[1 << 20];
const ONE: &[usize] = &[1 << 20];
const NONE: &[usize] = &[0];
const VALUES: &[usize] = &[8, 512, 4 << 10, 64 << 10, 1 << 20];
const QUICK_VALUES: &[usize] = &[8, 64 << 10];

use Goal::{AtLeast, AtMost, Least};
use Group::{
    Bandwidth, Collectives, Genome, Graph, Halo, Messages, OneSided, Overhead, Pairs, Start, Sums,
};

/// All workloads, in the order of the report.
pub const ALL: &[Workload] = &[
    new(Messages, "latency", "latency, one way", NS)
        .of(SWEEP, QUICK)
        .counting(2.0)
        .asked(AtMost(1.6), AtMost(0.8)),
    // As UCX's own loops do.
    new(Messages, "latency-still", "latency, one way, buffers left alone", NS)
        .of(STILL, QUICK_STILL)
        .counting(2.0),
    new(Messages, "rate", "message rate, one pair", RATE)
        .of(SMALL, SMALL)
        .asked(AtLeast(0.35), AtLeast(3.0)),
    new(Messages, "request", "active message with result; request and reply", NS)
        .asked(AtMost(1.5), AtMost(0.06)),
    new(Pairs, "rate-pairs", "message rate, all pairs together", RATE)
        .of(SMALL, SMALL)
        .asked(AtLeast(0.35), AtLeast(3.0)),
    // The goals are for tagged messages. What a direct peer has is beside `signal-bandwidth`.
    new(Bandwidth, "bandwidth", "bandwidth, windows of messages", GB)
        .of(LARGE, QUICK_LARGE)
        .asked(Goal::None, AtLeast(1.5))
        .direct(Goal::None),
    new(Bandwidth, "bandwidth-still", "bandwidth, one buffer again and again, left alone", GB)
        .of(STILL, QUICK_STILL)
        .asked(Goal::None, AtLeast(1.5)),
    new(Bandwidth, "bidirectional", "bandwidth both ways, windows of messages", GB)
        .of(LARGE, QUICK_LARGE)
        .counting(2.0)
        .direct(Goal::None),
    // A flush makes sure that others see what was put; waiting for a direct peer's put does not.
    new(OneSided, "put", "put, flush", NS)
        .of(PARTS, QUICK_PARTS)
        .asked(AtMost(1.4), AtMost(0.55))
        .direct(Goal::None),
    new(OneSided, "get", "get, flush", NS)
        .of(PARTS, QUICK_PARTS)
        .asked(AtMost(1.4), AtMost(0.55))
        .direct(Goal::None),
    new(OneSided, "accumulate", "accumulate, flush", NS).direct(Goal::None),
    new(OneSided, "get-accumulate", "get_accumulate, flush", NS).direct(Goal::None),
    new(OneSided, "fetch-and-op", "fetch_and_op, flush", NS)
        .asked(AtMost(1.3), AtMost(0.3))
        .direct(AtMost(1.0)),
    new(OneSided, "compare-and-swap", "compare_and_swap, flush", NS)
        .asked(AtMost(1.3), AtMost(0.3))
        .direct(AtMost(1.0)),
    // At most 1.2 times as long, ours without a fence for each.
    new(OneSided, "put-rate", "put, 128 a flush", RATE).direct(AtLeast(0.83)),
    new(OneSided, "get-rate", "get, 128 a flush", RATE).direct(AtLeast(0.83)),
    new(OneSided, "accumulate-rate", "accumulate, 128 a flush", RATE)
        .asked(AtLeast(0.77), AtLeast(2.5))
        .direct(Goal::None),
    new(OneSided, "get-accumulate-rate", "get_accumulate, 128 a flush", RATE).direct(Goal::None),
    new(OneSided, "fetch-and-op-rate", "fetch_and_op, 128 a flush", RATE).direct(AtLeast(1.0)),
    // The window is told, as GASNet-EX's domain always is.
    new(OneSided, "single-fetch-and-op", "fetch_and_op, flush, window of single elements", NS)
        .asked(AtMost(1.3), AtMost(0.3))
        .direct(AtMost(1.0)),
    new(OneSided, "single-compare-and-swap", "compare_and_swap, flush, the same", NS)
        .asked(AtMost(1.3), AtMost(0.3))
        .direct(AtMost(1.0)),
    new(OneSided, "single-fetch-and-op-rate", "fetch_and_op, 128 a flush, the same", RATE)
        .direct(AtLeast(1.0)),
    new(OneSided, "lock-shared", "lock shared, put, unlock", NS).asked(AtMost(1.3), AtMost(0.65)),
    new(OneSided, "lock-exclusive", "lock exclusive, put, unlock", NS)
        .asked(AtMost(1.3), AtMost(0.65)),
    new(OneSided, "lock-contended", "the same, contended by all", NS)
        .asked(AtMost(1.3), AtMost(0.5)),
    new(OneSided, "fence", "fence, empty", NS).of(NONE, NONE).asked(AtMost(1.3), AtMost(0.7)),
    new(OneSided, "pscw", "post, start, put, complete, wait", NS),
    // What direct peers' large messages are: data put into place, and a word of it.
    new(OneSided, "signal", "put with a signal, one way", NS)
        .of(SWEEP, QUICK_SIGNALS)
        .counting(2.0)
        .uncrowded(),
    new(OneSided, "signal-bandwidth", "bandwidth, windows of puts with a signal", GB)
        .of(LARGE, QUICK_LARGE)
        .uncrowded(),
    new(Sums, "sum-same", "accumulate, all on one word", NS).asked(AtMost(1.3), AtMost(0.5)),
    new(Sums, "sum-random", "accumulate, all on random words of 64 MiB", NS)
        .asked(AtMost(1.3), AtMost(0.5))
        .uncrowded(),
    new(Sums, "sum-one", "accumulate of f64, one origin", NS)
        .of(ONE, ONE)
        .asked(AtMost(1.1), AtMost(1.05)),
    new(Sums, "sum-all", "accumulate of f64, all origins, own elements; as many each", NS)
        .of(ONE, ONE)
        .asked(Goal::None, AtMost(0.56)),
    new(Collectives, "barrier", "barrier", NS).of(NONE, NONE).asked(AtMost(1.3), AtMost(0.7)),
    new(Collectives, "allreduce", "allreduce", NS)
        .of(VALUES, QUICK_VALUES)
        .asked(AtMost(1.3), AtMost(0.7)),
    new(Collectives, "broadcast", "broadcast, roots in turn", NS).of(VALUES, QUICK_VALUES),
    new(Collectives, "alltoall", "alltoall, bytes for each", NS).of(VALUES, QUICK_VALUES),
    share("availability-send-late", "time left by isend, receiver late")
        .asked(Least(95.0), AtLeast(1.0)),
    share("availability-send-there", "time left by isend, receiver there"),
    share("availability-receive-late", "time left by irecv, sender late")
        .asked(Least(95.0), AtLeast(1.0)),
    share("availability-receive-there", "time left by irecv, sender there"),
    new(Overhead, "overhead-send-late", "overhead of isend, receiver late", NS).of(MIB, QUICK_MIB),
    new(Overhead, "overhead-send-there", "overhead of isend, receiver there", NS)
        .of(MIB, QUICK_MIB),
    new(Overhead, "overhead-receive-late", "overhead of irecv, sender late", NS).of(MIB, QUICK_MIB),
    new(Overhead, "overhead-receive-there", "overhead of irecv, sender there", NS)
        .of(MIB, QUICK_MIB),
    new(Halo, "halo-2d", "a sweep in 2D: puts, flush, barrier; messages", NS)
        .of(&[128, 1024], &[128, 1024])
        .counted(Sizing::Side),
    new(Halo, "halo-3d", "a sweep in 3D: puts, flush, barrier; messages", NS)
        .of(&[32, 96], &[32, 96])
        .counted(Sizing::Side),
    new(Halo, "halo-fence-2d", "a sweep in 2D: puts, fence", NS)
        .of(&[128, 1024], &[128, 1024])
        .counted(Sizing::Side),
    new(Halo, "halo-fence-3d", "a sweep in 3D: puts, fence", NS)
        .of(&[32, 96], &[32, 96])
        .counted(Sizing::Side),
    new(Graph, "bfs", "edges searched: atomics of the origin; accumulates", RATE)
        .of(&[16, 18], &[12])
        .counted(Sizing::Scale)
        .asked(Goal::None, AtLeast(40.0)),
    new(Genome, "genome", "queries: active messages; gets", RATE)
        .of(&[200_000], &[20_000])
        .counted(Sizing::Each),
    new(Start, "start", "from the command to the first barrier", Measure::Milliseconds)
        .of(NONE, NONE)
        .asked(Goal::Above(10.0), AtMost(0.2)),
    new(Start, "memory", "private memory of a process after it", Measure::Kibibytes)
        .of(NONE, NONE)
        .asked(Goal::None, Goal::None),
];
