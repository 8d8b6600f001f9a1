//! `scale`: what a process keeps for others on other nodes, against the size of the job (paper 001,
//! figures 5.1 and 5.3; paper 003's memory of datagrams, queue pairs and both).
//!
//! One process's connections are real (`hither::link::Bare`): reliable delivery, queue pairs and what
//! they need, over the virtual network, one rank on each node. A partner is made when it is talked to and goes
//! as soon as both have what was sent, so that jobs of a million processes fit into one; what it
//! leaves at the process that is looked at, a few quiet seconds later, is what is measured.

use crate::bench::jobs::Options;
use crate::bench::row::{Goal, Heading, Point, Row};
use crate::bench::stats::summarise;
use crate::bench::subject::memory::allocated;
use hither::base::hints::Hints;
use hither::link::Bare;
use hither::net::promotion::{Settings, When};
use hither::net::sim::{Network, Parameters};
use hither::{Error, Rank, Result};
use std::sync::Arc;
use std::time::Duration;

const BENCH: &str = "scale";
/// Virtual time for everything: nobody is silent that long.
const SILENCE: Duration = Duration::from_secs(100_000);
/// After this much what is not used is given back.
const QUIET: Duration = Duration::from_secs(3);
/// What a partner may need of it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rounds of looking after which a partner should have everything.
const ROUNDS: u32 = 100_000;
/// Queue pairs at most, unless everybody gets one, which goes up to 4096 ranks.
const FEW: usize = 128;
/// Messages to each of those that are talked to much.
const MANY: u32 = 80;
/// Beyond the datagrams' bytes, where only few get a queue pair (paper 003).
const HINT_GOAL: f64 = 1.1;

/// Whom rank 0 talks to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Nobody,
    /// As in recursive doubling.
    Allreduce,
    /// Of a periodic grid of three dimensions.
    Neighbours,
    Everybody,
}

impl Pattern {
    const ALL: [(Pattern, &'static str); 4] = [
        (Pattern::Nobody, "no communication"),
        (Pattern::Allreduce, "allreduce"),
        (Pattern::Neighbours, "neighbours"),
        (Pattern::Everybody, "all-to-all"),
    ];

    /// In a job of `1 << shift`.
    fn partners(self, shift: u32) -> Vec<u32> {
        match self {
            Pattern::Nobody => vec![],
            Pattern::Allreduce => (0..shift).map(|bit| 1 << bit).collect(),
            Pattern::Neighbours => neighbours(shift),
            Pattern::Everybody => (1..1 << shift).collect(),
        }
    }
}

/// Those of rank 0, each once.
fn neighbours(shift: u32) -> Vec<u32> {
    let sides = [0, 1, 2].map(|dimension| 1u32 << ((shift + dimension) / 3));
    let mut stride = 1;
    let mut all = Vec::new();
    for side in sides {
        all.extend([stride * (1 % side), stride * (side - 1)]);
        stride *= side;
    }
    all.sort_unstable();
    all.dedup();
    all.retain(|rank| *rank != 0);
    all
}

struct Partner {
    rank: Rank,
    ends: Bare,
}

/// A job that is there as far as rank 0 has to do with it.
struct World {
    network: Arc<Network>,
    ranks: u32,
    policy: Settings,
    /// Allocated before rank 0 was.
    before: f64,
    me: Bare,
}

impl World {
    fn new(ranks: u32, policy: Settings) -> Result<World> {
        let network = Network::new(Parameters::default());
        let before = allocated();
        let me = Self::open(&network, 0, ranks, policy)?;
        Ok(World { network, ranks, policy, before, me })
    }

    fn open(network: &Arc<Network>, rank: u32, ranks: u32, policy: Settings) -> Result<Bare> {
        let device = network.device(Bare::COOKIE);
        Bare::open(device, Rank(rank), ranks, policy, [SILENCE, PATIENCE])
    }

    /// A partner, until it is dropped.
    fn partner(&self, rank: u32) -> Result<Partner> {
        let ends = Self::open(&self.network, rank, self.ranks, self.policy)?;
        Ok(Partner { rank: Rank(rank), ends })
    }

    /// Talks to a partner that is not needed afterwards.
    fn meet(&mut self, rank: u32) -> Result<()> {
        let mut partner = self.partner(rank)?;
        self.talk(&mut partner, 1)
    }

    /// Both send each other messages until both have `count`, and have what connection the policy
    /// gives them for so many.
    fn talk(&mut self, partner: &mut Partner, count: u32) -> Result<()> {
        let Partner { rank, ends } = partner;
        let (here, there) = (self.me.address(), ends.address());
        let hot = self.policy.when == When::Traffic && count >= self.policy.after;
        let (mut sent, mut come) = ([0; 2], [0; 2]);
        for _ in 0..ROUNDS {
            if sent[0] < count && self.me.send(*rank, &there, &[1; 8])? {
                sent[0] += 1;
            }
            if sent[1] < count && ends.send(Rank(0), &here, &[2; 8])? {
                sent[1] += 1;
            }
            self.me.look();
            ends.look();
            while self.me.take().is_some() {
                come[0] += 1;
            }
            while ends.take().is_some() {
                come[1] += 1;
            }
            // Only the partner looks at its clock: rank 0 would look at all its peers.
            let next = ends.tick();
            let done = sent == [count; 2] && come == sent && ends.is_drained();
            if done && (!hot || self.me.is_hot(*rank) && ends.is_hot(Rank(0))) {
                return Ok(());
            }
            ends.sleep(next, 100_000);
        }
        let why = format!("rank {rank} has {} of {count} messages, rank 0 {}", come[1], come[0]);
        Err(Error::invalid("bench scale", why))
    }

    /// Bytes that rank 0 has once nothing has gone to or fro for a while.
    fn bytes(&mut self) -> f64 {
        for _ in 0..2 {
            let until = self.network.now().plus(QUIET);
            while self.network.step(until) {}
            self.me.look();
            self.me.tick();
        }
        allocated() - self.before
    }
}

fn never() -> Settings {
    Settings { when: When::Never, ..Settings::default() }
}

/// The ways of paper 003.
fn ways() -> [(&'static str, Settings); 4] {
    let traffic = Settings { when: When::Traffic, ..Settings::default() };
    [
        ("datagrams only", never()),
        ("a queue pair for everybody", Settings { after: 1, limit: 1 << 24, ..traffic }),
        ("queue pairs by traffic, at most 128", Settings { after: 64, limit: FEW, ..traffic }),
        ("queue pairs in the kernel region", Settings { when: When::Kernel, ..traffic }),
    ]
}

struct Figure {
    title: &'static str,
    unit: &'static str,
    goal: Goal,
    limit: &'static str,
}

const CONNECTIONS: Figure = Figure {
    title: "Connections per process by job size (001, 5.1)",
    unit: "peers",
    goal: Goal::None,
    limit: "all others",
};
const BYTES: Figure = Figure {
    title: "Bytes per process for connections by job size (001, 5.3)",
    unit: "B",
    goal: Goal::None,
    limit: "before any",
};

fn row(figure: &Figure, series: &str, ranks: u32, value: f64, floor: f64) -> Row {
    let heading = Heading {
        bench: BENCH,
        what: format!("{series}, {ranks} ranks"),
        size: 0,
        limit: figure.limit,
        unit: figure.unit,
        goal: figure.goal,
        point: Some(Point::new(figure.title, series, "ranks", ranks.into())),
    };
    heading.row(ranks, summarise(&[(value, floor)]), None)
}

/// `scale`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let (most, all, pairs) = if options.quick { (20, 10, 8) } else { (20, 17, 14) };
    let mut rows = Vec::new();
    // A partner's places are taken from the system and given back, not wiped again and again.
    // SAFETY: a setting of this process's allocator.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) };
    for (pattern, name) in Pattern::ALL {
        let shifts: Vec<u32> = (1..=most).step_by(if options.quick { 4 } else { 1 }).collect();
        if pattern == Pattern::Everybody {
            // One job, looked at whenever as many have been talked to as a smaller one has.
            let shifts: Vec<u32> = shifts.into_iter().filter(|shift| *shift <= all).collect();
            let ranks = 1 << all;
            let partners = pattern.partners(all);
            let mut world = World::new(ranks, never())?;
            let empty = world.bytes();
            for partner in partners {
                world.meet(partner)?;
                let there = partner + 1;
                if there.is_power_of_two() && shifts.contains(&there.trailing_zeros()) {
                    let others = f64::from(partner);
                    rows.push(row(&CONNECTIONS, name, there, others, others));
                    rows.push(row(&BYTES, name, there, world.bytes(), empty));
                }
            }
            continue;
        }
        for shift in shifts {
            let ranks = 1 << shift;
            let partners = pattern.partners(shift);
            let mut world = World::new(ranks, never())?;
            let empty = world.bytes();
            for &partner in &partners {
                world.meet(partner)?;
            }
            let (count, others) = (partners.len() as f64, f64::from(ranks - 1));
            rows.push(row(&CONNECTIONS, name, ranks, count, others));
            rows.push(row(&BYTES, name, ranks, world.bytes(), empty));
        }
    }
    rows.extend(by_ways(pairs, options.quick)?);
    Ok(rows)
}

/// Everybody is talked to once, then, in the kernel region, the neighbours often.
fn by_ways(most: u32, quick: bool) -> Result<Vec<Row>> {
    const BYTES: &str = "Bytes per process, all once and neighbours often (003)";
    const PAIRS: &str = "Queue pairs per process, all once and neighbours often (003)";
    let mut rows = Vec::new();
    for shift in (4..=most).step_by(if quick { 4 } else { 1 }) {
        let ranks = 1 << shift;
        let mut datagrams = 0.0;
        for (name, policy) in ways() {
            if policy.limit > FEW && shift > 12 {
                continue;
            }
            let mut world = World::new(ranks, policy)?;
            let near = neighbours(shift);
            let mut kept = Vec::new();
            for rank in Pattern::Everybody.partners(shift) {
                let mut partner = world.partner(rank)?;
                world.talk(&mut partner, 1)?;
                kept.extend(near.contains(&rank).then_some(partner));
            }
            let region = Hints::kernel_region(world.me.hints());
            kept.iter_mut().try_for_each(|partner| world.talk(partner, MANY))?;
            drop(kept);
            drop(region);
            let pairs = world.me.queue_pairs() as f64;
            let bytes = world.bytes();
            datagrams = if policy.when == When::Never { bytes } else { datagrams };
            let goal = match policy.when {
                When::Kernel => Goal::AtMost(HINT_GOAL),
                _ => Goal::None,
            };
            let figure = Figure { title: BYTES, unit: "B", goal, limit: "datagrams only" };
            rows.push(row(&figure, name, ranks, bytes, datagrams));
            let others = f64::from(ranks - 1);
            let figure =
                Figure { title: PAIRS, unit: "pairs", goal: Goal::None, limit: "all others" };
            rows.push(row(&figure, name, ranks, pairs, others));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_six_neighbours_at_most_and_none_twice() {
        assert_eq!(neighbours(1), [1]);
        assert_eq!(neighbours(3), [1, 2, 4]);
        assert_eq!(neighbours(6), [1, 3, 4, 12, 16, 48]);
        for shift in 6..=20 {
            let all = neighbours(shift);
            assert!(all.len() == 6 && all.iter().all(|rank| *rank < 1 << shift), "{all:?}");
        }
    }

    #[test]
    fn what_a_process_has_grows_with_its_partners_only() {
        let bytes = |shift: u32, pattern: Pattern| {
            let mut world = World::new(1 << shift, never()).unwrap();
            for partner in pattern.partners(shift) {
                world.meet(partner).unwrap();
            }
            world.bytes()
        };
        let _ = bytes(4, Pattern::Neighbours);
        let (small, large) = (bytes(6, Pattern::Neighbours), bytes(20, Pattern::Neighbours));
        // Other tests allocate meanwhile, from the same heap or not.
        assert!(large < small + 1e6, "{small} and {large}");
    }

    #[test]
    fn who_gets_a_queue_pair_depends_on_the_way() {
        for ((name, policy), expected) in ways().into_iter().zip([0, 15, 4, 4]) {
            let mut world = World::new(16, policy).unwrap();
            let near = neighbours(4);
            let mut kept = Vec::new();
            for rank in Pattern::Everybody.partners(4) {
                let mut partner = world.partner(rank).unwrap();
                world.talk(&mut partner, 3).unwrap();
                kept.push(partner);
            }
            let _region = Hints::kernel_region(world.me.hints());
            for partner in kept.iter_mut().filter(|partner| near.contains(&partner.rank.0)) {
                world.talk(partner, MANY).unwrap();
            }
            assert_eq!(world.me.queue_pairs(), expected, "{name}: {near:?}");
        }
    }
}
