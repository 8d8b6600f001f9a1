//! What is measured on every contestant: names, sizes, what the figures are, and what is asked of
//! hither's.
//!
//! A name stands for the same loop everywhere: in `own/` on hither, in `benches/peers/*.c` on MPI.

use crate::bench::row::{Goal, Unit};

/// Workloads that one program measures in one start, with one setting of each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Latency, rate, request and reply.
    Messages,
    /// Large messages, many at a time.
    Bandwidth,
    /// One-sided operations.
    OneSided,
    /// Accumulates by one and by all.
    Sums,
    /// Collectives.
    Collectives,
    /// Start of a job, and memory until then.
    Start,
}

impl Group {
    /// In the order of the report.
    pub const ALL: [Group; 6] = [
        Group::Messages,
        Group::Bandwidth,
        Group::OneSided,
        Group::Sums,
        Group::Collectives,
        Group::Start,
    ];

    /// Heading in the report.
    pub fn title(self) -> &'static str {
        match self {
            Group::Messages => "Messages",
            Group::Bandwidth => "Bandwidth of messages",
            Group::OneSided => "One-sided operations",
            Group::Sums => "Accumulates by several",
            Group::Collectives => "Collectives",
            Group::Start => "Start and memory of a job",
        }
    }

    /// Short name, for the command line and for the setting chosen for it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Messages => "messages",
            Group::Bandwidth => "bandwidth",
            Group::OneSided => "onesided",
            Group::Sums => "sums",
            Group::Collectives => "collectives",
            Group::Start => "start",
        }
    }

    /// The program in `benches/peers` that measures it.
    pub fn program(self) -> &'static str {
        match self {
            Group::Bandwidth => "messages",
            other => other.name(),
        }
    }

    /// What settings are compared by: few of its workloads, short ones.
    pub fn probes(self) -> &'static [(&'static str, usize)] {
        match self {
            Group::Messages => &[("latency", 8), ("rate", 8)],
            Group::Bandwidth => &[("bandwidth", 1 << 20), ("bandwidth", 64 << 10)],
            Group::OneSided => {
                &[("put", 8), ("get", 8), ("fetch-and-op", 8), ("lock-exclusive", 8), ("fence", 0)]
            }
            Group::Sums => &[("sum-same", 8), ("sum-one", 1 << 20)],
            Group::Collectives => &[("barrier", 0), ("allreduce", 8), ("broadcast", 8)],
            Group::Start => &[],
        }
    }
}

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time, rate or bandwidth of operations.
    Of(Unit),
    /// Milliseconds of something that is done once.
    Milliseconds,
    /// Memory.
    Kibibytes,
}

impl Measure {
    /// The unit.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Of(unit) => unit.name(),
            Measure::Milliseconds => "ms",
            Measure::Kibibytes => "KiB",
        }
    }

    /// Whether a smaller figure is the better one.
    pub fn less_is_better(self) -> bool {
        !matches!(self, Measure::Of(Unit::MillionPerSecond | Unit::GigabytesPerSecond))
    }
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name for programs.
    pub name: &'static str,
    /// Where it belongs.
    pub group: Group,
    /// Its name for people.
    pub what: &'static str,
    /// Bytes of an operation; 0 where that means nothing.
    pub sizes: &'static [usize],
    /// The same for a quick run. The first is that of jobs with more ranks than cores.
    pub quick: &'static [usize],
    /// What the figure is.
    pub measure: Measure,
    /// Counted operations of one turn of the loop.
    pub steps: f64,
    /// What is asked against the floor.
    pub floor_goal: Goal,
    /// What is asked against the best peer.
    pub peer_goal: Goal,
    /// Whether it is also run with more ranks than cores.
    pub crowded: bool,
}

const NS: Measure = Measure::Of(Unit::Nanoseconds);
const RATE: Measure = Measure::Of(Unit::MillionPerSecond);
const GB: Measure = Measure::Of(Unit::GigabytesPerSecond);

const fn new(group: Group, name: &'static str, what: &'static str, measure: Measure) -> Workload {
    Workload {
        name,
        group,
        what,
        sizes: &[8],
        quick: &[8],
        measure,
        steps: 1.0,
        floor_goal: Goal::None,
        peer_goal: Goal::None,
        crowded: true,
    }
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

    const fn counting(mut self, steps: f64) -> Workload {
        self.steps = steps;
        self
    }

    const fn uncrowded(mut self) -> Workload {
        self.crowded = false;
        self
    }

    /// What is asked of a figure of `size` bytes: of sweeps, most goals are for one size.
    pub fn goals(&self, size: usize, crowded: bool) -> (Goal, Goal) {
        match self.name {
            _ if crowded => (Goal::None, Goal::AtMost(0.3)).flip(!self.measure.less_is_better()),
            "latency" | "rate" | "put" | "get" | "allreduce" if size > 8 => {
                (Goal::None, Goal::None)
            }
            "bandwidth" if size < 64 << 10 => (Goal::None, Goal::None),
            _ => (self.floor_goal, self.peer_goal),
        }
    }
}

trait Flip {
    /// The goal for rates that says the same as one for times.
    fn flip(self, rate: bool) -> Self;
}

impl Flip for (Goal, Goal) {
    fn flip(self, rate: bool) -> (Goal, Goal) {
        match self.1 {
            Goal::AtMost(most) if rate => (self.0, Goal::AtLeast((10.0 / most).round() / 10.0)),
            _ => self,
        }
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
const SMALL: &[usize] = &[8, 128];
const ONE: &[usize] = &[1 << 20];
const NONE: &[usize] = &[0];
const VALUES: &[usize] = &[8, 512, 4 << 10, 64 << 10, 1 << 20];
const QUICK_VALUES: &[usize] = &[8, 64 << 10];

use Goal::{AtLeast, AtMost};
use Group::{Bandwidth, Collectives, Messages, OneSided, Start, Sums};

/// All workloads, in the order of the report.
pub const ALL: &[Workload] = &[
    new(Messages, "latency", "latency, one way", NS)
        .of(SWEEP, QUICK)
        .counting(2.0)
        .asked(AtMost(1.6), AtMost(0.8)),
    new(Messages, "rate", "message rate, one pair", RATE)
        .of(SMALL, SMALL)
        .asked(AtLeast(0.35), AtLeast(3.0)),
    new(Messages, "request", "active message with result; request and reply", NS)
        .asked(AtMost(1.5), AtMost(0.06)),
    new(Bandwidth, "bandwidth", "bandwidth, windows of messages", GB)
        .of(LARGE, QUICK_LARGE)
        .asked(Goal::None, AtLeast(1.5)),
    new(Bandwidth, "bidirectional", "bandwidth both ways, windows of messages", GB)
        .of(LARGE, QUICK_LARGE)
        .counting(2.0),
    new(OneSided, "put", "put, flush", NS).of(PARTS, QUICK_PARTS).asked(AtMost(1.4), AtMost(0.55)),
    new(OneSided, "get", "get, flush", NS).of(PARTS, QUICK_PARTS).asked(AtMost(1.4), AtMost(0.55)),
    new(OneSided, "accumulate", "accumulate, flush", NS),
    new(OneSided, "get-accumulate", "get_accumulate, flush", NS),
    new(OneSided, "fetch-and-op", "fetch_and_op, flush", NS).asked(AtMost(1.3), AtMost(0.3)),
    new(OneSided, "compare-and-swap", "compare_and_swap, flush", NS)
        .asked(AtMost(1.3), AtMost(0.3)),
    new(OneSided, "put-rate", "put, 128 a flush", RATE),
    new(OneSided, "get-rate", "get, 128 a flush", RATE),
    new(OneSided, "accumulate-rate", "accumulate, 128 a flush", RATE)
        .asked(AtLeast(0.77), AtLeast(2.5)),
    new(OneSided, "get-accumulate-rate", "get_accumulate, 128 a flush", RATE),
    new(OneSided, "fetch-and-op-rate", "fetch_and_op, 128 a flush", RATE),
    new(OneSided, "lock-shared", "lock shared, put, unlock", NS).asked(AtMost(1.3), AtMost(0.65)),
    new(OneSided, "lock-exclusive", "lock exclusive, put, unlock", NS)
        .asked(AtMost(1.3), AtMost(0.65)),
    new(OneSided, "lock-contended", "the same, contended by all", NS)
        .asked(AtMost(1.3), AtMost(0.5)),
    new(OneSided, "fence", "fence, empty", NS).of(NONE, NONE).asked(AtMost(1.3), AtMost(0.7)),
    new(OneSided, "pscw", "post, start, put, complete, wait", NS),
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
    new(Start, "start", "from the command to the first barrier", Measure::Milliseconds)
        .of(NONE, NONE)
        .asked(Goal::Above(10.0), AtMost(0.2)),
    new(Start, "memory", "private memory of a process after it", Measure::Kibibytes)
        .of(NONE, NONE)
        .asked(Goal::None, Goal::None),
];

/// One figure that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Place of the workload in [`ALL`].
    pub at: usize,
    /// Bytes.
    pub size: usize,
    /// Ranks of the job.
    pub ranks: u32,
}

impl Task {
    /// The workload.
    pub fn workload(self) -> &'static Workload {
        &ALL[self.at]
    }

    /// As it is given to programs.
    pub fn item(self) -> String {
        format!("{}:{}", self.workload().name, self.size)
    }
}

/// The workload of that name, and its place.
pub fn find(name: &str) -> Option<(usize, &'static Workload)> {
    ALL.iter().enumerate().find(|(_, workload)| workload.name == name)
}

/// What a group measures in jobs of `ranks` ranks.
pub fn tasks(group: Group, ranks: u32, crowded: bool, quick: bool) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (at, workload) in ALL.iter().enumerate().filter(|(_, w)| w.group == group) {
        let sizes = match (crowded && group != Group::Start, quick) {
            (true, _) if !workload.crowded => &[],
            (true, _) => &workload.quick[..1],
            (false, true) => workload.quick,
            (false, false) => workload.sizes,
        };
        tasks.extend(sizes.iter().map(|&size| Task { at, size, ranks }));
    }
    tasks
}

/// What settings of a group are compared by.
pub fn probes(group: Group, ranks: u32) -> Vec<Task> {
    let task = |&(name, size): &(&str, usize)| find(name).map(|(at, _)| Task { at, size, ranks });
    group.probes().iter().filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_probes_exist() {
        for (at, workload) in ALL.iter().enumerate() {
            assert_eq!(find(workload.name).unwrap().0, at);
            assert!(!workload.sizes.is_empty() && !workload.quick.is_empty());
        }
        for group in Group::ALL {
            assert_eq!(probes(group, 2).len(), group.probes().len(), "{group:?}");
            assert!(probes(group, 2).iter().all(|task| task.workload().group == group));
            assert!(!tasks(group, 2, false, true).is_empty());
        }
    }

    #[test]
    fn every_workload_is_in_the_program_of_its_group() {
        for workload in ALL {
            let source = crate::bench::compare::peer::source(workload.group.program()).unwrap();
            let named = format!("\"{}\"", workload.name);
            let printed = format!("= {}:0 ", workload.name);
            assert!(source.contains(&named) || source.contains(&printed), "{}", workload.name);
        }
    }

    #[test]
    fn goals_of_sweeps_are_for_their_sizes_and_turn_with_the_unit() {
        let (_, latency) = find("latency").unwrap();
        assert_eq!(latency.goals(8, false), (AtMost(1.6), AtMost(0.8)));
        assert_eq!(latency.goals(64, false), (Goal::None, Goal::None));
        assert_eq!(latency.goals(8, true), (Goal::None, AtMost(0.3)));
        let (_, rate) = find("rate").unwrap();
        assert_eq!(rate.goals(8, true), (Goal::None, AtLeast(3.3)));
    }
}
