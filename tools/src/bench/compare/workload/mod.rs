//! What is measured on every contestant: names, sizes, what the figures are, and what is asked of
//! hither's.
//!
//! A name stands for the same loop everywhere: in `own/` on hither, in `benches/peers` on the others.

mod list;

use crate::bench::row::{Goal, Unit};
use crate::bench::table;

pub use list::ALL;

/// Workloads that one program measures in one start, with one setting of each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Latency, rate, request and reply.
    Messages,
    /// Small messages of all pairs of ranks at once.
    Pairs,
    /// Large messages, many at a time.
    Bandwidth,
    /// One-sided operations.
    OneSided,
    /// Accumulates by one and by all.
    Sums,
    /// Collectives.
    Collectives,
    /// What transfers leave a program of its time.
    Overhead,
    /// A stencil with halo exchange.
    Halo,
    /// Breadth-first search.
    Graph,
    /// Remote search.
    Genome,
    /// Start of a job, and memory until then.
    Start,
}

impl Group {
    /// In the order of the report.
    pub const ALL: [Group; 11] = [
        Group::Messages,
        Group::Pairs,
        Group::Bandwidth,
        Group::OneSided,
        Group::Sums,
        Group::Collectives,
        Group::Overhead,
        Group::Halo,
        Group::Graph,
        Group::Genome,
        Group::Start,
    ];

    /// Heading in the report.
    pub fn title(self) -> &'static str {
        match self {
            Group::Messages => "Messages",
            Group::Pairs => "Messages of all pairs at once",
            Group::Bandwidth => "Bandwidth of messages",
            Group::OneSided => "One-sided operations",
            Group::Sums => "Accumulates by several",
            Group::Collectives => "Collectives",
            Group::Overhead => "Overhead and availability",
            Group::Halo => "Stencil with halo exchange",
            Group::Graph => "Graph 500: breadth-first search",
            Group::Genome => "Remote genome search",
            Group::Start => "Start and memory of a job",
        }
    }

    /// Short name, for the command line and for the setting chosen for it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Messages => "messages",
            Group::Pairs => "pairs",
            Group::Bandwidth => "bandwidth",
            Group::OneSided => "onesided",
            Group::Sums => "sums",
            Group::Collectives => "collectives",
            Group::Overhead => "overhead",
            Group::Halo => "halo",
            Group::Graph => "graph",
            Group::Genome => "genome",
            Group::Start => "start",
        }
    }

    /// The program in `benches/peers` that measures it.
    pub fn program(self) -> &'static str {
        match self {
            Group::Pairs | Group::Bandwidth => "messages",
            Group::Graph => "bfs",
            other => other.name(),
        }
    }

    /// What settings are compared by: few of its workloads, short ones.
    pub fn probes(self) -> &'static [(&'static str, usize)] {
        match self {
            Group::Messages => &[("latency", 8), ("rate", 8), ("request", 8)],
            Group::Pairs => &[("rate-pairs", 8)],
            Group::Bandwidth => {
                &[("bandwidth", 1 << 20), ("bandwidth", 64 << 10), ("bandwidth-still", 64 << 10)]
            }
            Group::OneSided => {
                &[("put", 8), ("get", 8), ("fetch-and-op", 8), ("lock-exclusive", 8), ("fence", 0)]
            }
            Group::Sums => &[("sum-same", 8), ("sum-one", 1 << 20)],
            Group::Collectives => &[("barrier", 0), ("allreduce", 8), ("broadcast", 8)],
            Group::Overhead => {
                &[("availability-send-late", 1 << 20), ("overhead-send-late", 1 << 20)]
            }
            Group::Halo => &[("halo-2d", 128), ("halo-fence-2d", 128)],
            Group::Graph => &[("bfs", 12)],
            Group::Genome => &[("genome", 20_000)],
            Group::Start => &[],
        }
    }
}

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time, rate or bandwidth of operations.
    Of(Unit),
    /// Share of a whole. More is better.
    Percent,
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
            Measure::Percent => "%",
            Measure::Milliseconds => "ms",
            Measure::Kibibytes => "KiB",
        }
    }

    /// Whether a smaller figure is the better one.
    pub fn less_is_better(self) -> bool {
        !matches!(
            self,
            Measure::Percent | Measure::Of(Unit::MillionPerSecond | Unit::GigabytesPerSecond)
        )
    }
}

/// What the sizes of a workload count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// Bytes.
    Bytes,
    /// Cells along each side of a grid.
    Side,
    /// Powers of two of vertices.
    Scale,
    /// Operations of one turn of the loop.
    Each,
}

impl Sizing {
    /// A size as text.
    pub fn text(self, size: usize) -> String {
        match self {
            Sizing::Bytes => table::bytes(size),
            Sizing::Side => format!("side {size}"),
            Sizing::Scale => format!("scale {size}"),
            Sizing::Each => format!("{size} a turn"),
        }
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
    /// What its sizes count.
    pub sizing: Sizing,
    /// Bytes of an operation, or what `sizing` says; 0 where that means nothing.
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
    /// What is asked against peers whose processes work on each other's memory themselves, as ours do,
    /// if that is another thing. They do not count among the best then.
    pub direct_goal: Option<Goal>,
    /// Whether it is also run with more ranks than cores.
    pub crowded: bool,
    /// Least turns of the loop in a batch, where one takes as long as many of others.
    pub least: Option<u64>,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    /// Against the floor.
    pub floor: Goal,
    /// Against the best peer.
    pub peer: Goal,
    /// Against the best of those of [`Workload::direct_goal`], if they are apart.
    pub direct: Option<Goal>,
}

/// How a job's ranks lie on the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Ranks of the job.
    pub ranks: u32,
    /// Cores of the machine.
    pub cores: u32,
}

impl Cast {
    /// Whether ranks have to share cores.
    pub fn crowded(self) -> bool {
        self.ranks > self.cores
    }

    /// Whether there are at least two ranks for every core, as the goals for such jobs ask.
    pub fn doubled(self) -> bool {
        self.ranks >= 2 * self.cores
    }
}

impl Workload {
    /// What is asked of a figure of `size` bytes: of sweeps, most goals are for one size. With a core
    /// for every rank that is what the workload asks; with two ranks or more for a core, it is a
    /// multiple of our own time with a core each, and of the best peer's; in between nothing.
    pub fn goals(&self, size: usize, cast: Cast) -> Goals {
        let (floor, peer) = self.mutual_goals(size, cast);
        // What a peer does without anybody's help does not depend on who has a core.
        let direct = |goal| if size > 8 { Goal::None } else { goal };
        Goals { floor, peer, direct: self.direct_goal.map(direct) }
    }

    fn mutual_goals(&self, size: usize, cast: Cast) -> (Goal, Goal) {
        // Goals for such jobs are those of what has one otherwise.
        let own_job = matches!(self.group, Group::Start | Group::Halo | Group::Genome);
        match self.name {
            _ if cast.doubled() && !own_job => {
                if self.measure.less_is_better() {
                    (Goal::AtMost(3.0), Goal::AtMost(0.3))
                } else {
                    (Goal::AtLeast(0.33), Goal::AtLeast(3.3))
                }
            }
            _ if cast.crowded() && !own_job => (Goal::None, Goal::None),
            "start" if cast.ranks != 8 => (Goal::None, self.peer_goal),
            "latency" | "rate" | "put" | "get" | "allreduce" if size > 8 => {
                (Goal::None, Goal::None)
            }
            "bfs" if size < 18 => (Goal::None, Goal::None),
            "bandwidth" if size < 64 << 10 => (Goal::None, Goal::None),
            _ if self.group == Group::Overhead && size != 1 << 20 => (Goal::None, Goal::None),
            _ => (self.floor_goal, self.peer_goal),
        }
    }

    /// Counted operations of `count` turns of the loop in a job of `ranks` ranks, where the loop does
    /// not count them itself.
    pub fn operations(&self, count: u64, size: usize, ranks: u32) -> f64 {
        let each = if self.sizing == Sizing::Each { size as f64 } else { 1.0 };
        let pairs = if self.group == Group::Pairs { f64::from(ranks / 2) } else { 1.0 };
        count as f64 * self.steps * pairs * each
    }
}

/// One figure that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Place of the workload in [`ALL`].
    pub at: usize,
    /// Bytes, or what the workload's sizes count.
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
pub fn tasks(group: Group, Cast { ranks, cores }: Cast, quick: bool) -> Vec<Task> {
    let crowded = Cast { ranks, cores }.crowded();
    // Jobs of two ranks, and those whose number of ranks is the point.
    let whole = match group {
        Group::Start => true,
        Group::Pairs => !crowded,
        _ => ranks == 2,
    };
    let mut tasks = Vec::new();
    for (at, workload) in ALL.iter().enumerate().filter(|(_, w)| w.group == group) {
        let sizes = match (whole, quick) {
            _ if crowded && !workload.crowded => &[],
            (false, _) => &workload.quick[..1],
            (true, true) => workload.quick,
            (true, false) => workload.sizes,
        };
        tasks.extend(sizes.iter().map(|&size| Task { at, size, ranks }));
    }
    tasks
}

/// Sizes of a turn at least: the start of an MPI program takes as long as some of them.
const TURN: usize = 6;

/// The same in parts that are measured in one turn each: whole curves, as few as have that many sizes.
pub fn by_turn(group: Group, cast: Cast, quick: bool) -> Vec<Vec<Task>> {
    let mut parts: Vec<Vec<Task>> = Vec::new();
    for curve in tasks(group, cast, quick).chunk_by(|a, b| a.at == b.at) {
        match parts.last_mut().filter(|part| part.len() < TURN) {
            Some(part) => part.extend(curve),
            None => parts.push(curve.to_vec()),
        }
    }
    parts
}

/// What settings of a group are compared by.
pub fn probes(group: Group, ranks: u32) -> Vec<Task> {
    let task = |&(name, size): &(&str, usize)| find(name).map(|(at, _)| Task { at, size, ranks });
    group.probes().iter().filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Goal::{AtLeast, AtMost};

    #[test]
    fn names_are_unique_and_probes_exist() {
        for (at, workload) in ALL.iter().enumerate() {
            assert_eq!(find(workload.name).unwrap().0, at);
            assert!(!workload.sizes.is_empty() && !workload.quick.is_empty());
        }
        for group in Group::ALL {
            assert_eq!(probes(group, 2).len(), group.probes().len(), "{group:?}");
            assert!(probes(group, 2).iter().all(|task| task.workload().group == group));
            let cast = Cast { ranks: 2, cores: 2 };
            assert!(!tasks(group, cast, true).is_empty());
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
    fn goals_of_sweeps_are_for_their_sizes() {
        let (_, latency) = find("latency").unwrap();
        let each = Cast { ranks: 2, cores: 2 };
        let asked = |floor, peer| Goals { floor, peer, direct: None };
        assert_eq!(latency.goals(8, each), asked(AtMost(1.6), AtMost(0.8)));
        assert_eq!(latency.goals(64, each), asked(Goal::None, Goal::None));
        let (_, swap) = find("compare-and-swap").unwrap();
        let goals = Goals { floor: AtMost(1.3), peer: AtMost(0.3), direct: Some(AtMost(1.0)) };
        assert_eq!(swap.goals(8, each), goals);
        let (_, put) = find("put").unwrap();
        assert_eq!(put.goals(4096, each).direct, Some(Goal::None), "apart, and nothing is asked");
    }

    #[test]
    fn a_turn_has_whole_curves() {
        for (group, ranks) in Group::ALL.into_iter().flat_map(|group| [(group, 2), (group, 4)]) {
            let cast = Cast { ranks, cores: 2 };
            let parts = by_turn(group, cast, true);
            assert_eq!(parts.concat(), tasks(group, cast, true));
            for pair in parts.windows(2) {
                assert!(pair[0].len() >= TURN && pair[0].last().unwrap().at < pair[1][0].at);
            }
        }
    }

    #[test]
    fn what_is_asked_depends_on_the_cores_there_are() {
        let goals = |name, ranks, cores| {
            let (_, workload) = find(name).unwrap();
            let Goals { floor, peer, .. } = workload.goals(8, Cast { ranks, cores });
            (floor, peer)
        };
        assert_eq!(goals("latency", 4, 2), (AtMost(3.0), AtMost(0.3)));
        assert_eq!(goals("rate", 4, 2), (AtLeast(0.33), AtLeast(3.3)));
        // Four ranks that have a core each are asked what two are; and nothing is asked in between.
        assert_eq!(goals("latency", 4, 4), (AtMost(1.6), AtMost(0.8)));
        assert_eq!(goals("latency", 4, 64), (AtMost(1.6), AtMost(0.8)));
        assert_eq!(goals("latency", 4, 3), (Goal::None, Goal::None));
        // The start of a job is the same question however many cores there are.
        assert_eq!(goals("start", 8, 2), (Goal::Above(10.0), AtMost(0.2)));
        assert_eq!(goals("start", 16, 2), (Goal::None, AtMost(0.2)));
    }

    #[test]
    fn sweeps_are_for_jobs_of_two_and_for_pairs_with_cores() {
        let count = |group, ranks, cores| tasks(group, Cast { ranks, cores }, false).len();
        assert!(count(Group::Messages, 2, 2) > count(Group::Messages, 4, 8));
        assert_eq!(count(Group::Messages, 4, 8), count(Group::Messages, 4, 2));
        assert!(count(Group::Sums, 4, 8) > count(Group::Sums, 4, 2), "64 MiB of random words");
        assert_eq!((count(Group::Pairs, 8, 8), count(Group::Pairs, 8, 4)), (2, 1));
        let (_, rate) = find("rate-pairs").unwrap();
        assert_eq!((rate.operations(10, 8, 8), rate.operations(10, 8, 2)), (40.0, 10.0));
        let (_, genome) = find("genome").unwrap();
        assert_eq!(genome.operations(10, 500, 2), 5000.0);
    }
}
