//! What the machine is like, now. A virtual one changes while it runs, as its host moves its cores about:
//!
//! - how far two cores are from each other, by several times (55 and 130 to 280 ns one way seen in one hour): a
//!   ping-pong tells;
//! - whether a core has a processor's core for itself, or another machine's works on the other thread of the
//!   same: then all that is not waiting for memory takes twice as long, which a loop without memory tells.
//!
//! Contestants that were measured in different states cannot be compared, so it is looked at before and after
//! each turn.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Distances of up to so many times the shortest are near, or far; beyond they are farther.
const NEAR: f64 = 2.0;
const FAR: f64 = 4.0;
/// Loops that take up to so many times the shortest have a core for themselves.
pub const WHOLE: f64 = 1.35;

/// How far two cores are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// About as near as ever.
    Near,
    /// By up to [`FAR`] times.
    Far,
    /// By more.
    Farther,
}

impl Distance {
    fn of(trip: f64, nearest: f64) -> Distance {
        match trip / nearest {
            times if times <= NEAR => Distance::Near,
            times if times <= FAR => Distance::Far,
            _ => Distance::Farther,
        }
    }
}

/// What it was like in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The same all the time.
    Steady {
        /// Of the cores from each other.
        distance: Distance,
        /// Whether each had a processor's core for itself.
        whole: bool,
    },
    /// Not the same all the time.
    Changing,
}

impl State {
    /// Near, and each core whole: where it cannot be told, too.
    pub const BEST: State = State::Steady { distance: Distance::Near, whole: true };
    /// All that figures are compared in, better ones first.
    pub const STEADY: [State; 6] = [
        State::BEST,
        State::Steady { distance: Distance::Far, whole: true },
        State::Steady { distance: Distance::Farther, whole: true },
        State::Steady { distance: Distance::Near, whole: false },
        State::Steady { distance: Distance::Far, whole: false },
        State::Steady { distance: Distance::Farther, whole: false },
    ];
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State::Steady { distance, whole } = self else { return f.write_str("changing") };
        let distance = match distance {
            Distance::Near => "near",
            Distance::Far => "far",
            Distance::Farther => "farther",
        };
        write!(f, "{distance} and {}", if *whole { "whole" } else { "shared" })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Machine {
    /// Two CPUs that this process may use.
    cpus: Option<[usize; 2]>,
    nearest: Option<f64>,
    quickest: Option<f64>,
    /// What is left of the time for further turns.
    left: Duration,
    /// Turns.
    pub turns: u32,
    /// Those of them in which it changed.
    pub changed: u32,
    /// Those of them that some had and others not, so that all have been in one state.
    pub further: u32,
}

impl Machine {
    /// Of this process's CPUs, with so much time for further turns.
    pub fn new(left: Duration) -> Machine {
        let set = sched_getaffinity(None).ok();
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_some_and(|set| set.is_set(cpu)));
        let cpus = cpus.next().zip(cpus.next()).map(|(a, b)| [a, b]);
        Machine { cpus, left, ..Machine::default() }
    }

    /// The state now: takes some 10 ms.
    pub fn now(&mut self) -> State {
        let Some((trip, pace)) = self.cpus.and_then(looks) else { return State::BEST };
        let nearest = self.nearest.map_or(trip, |nearest| nearest.min(trip));
        let quickest = self.quickest.map_or(pace, |quickest| quickest.min(pace));
        (self.nearest, self.quickest) = (Some(nearest), Some(quickest));
        let distance = Distance::of(trip, nearest);
        State::Steady { distance, whole: pace <= quickest * WHOLE }
    }

    /// A turn has ended that began in this state: in which it was.
    pub fn ended(&mut self, began: State) -> State {
        let was = if self.now() == began { began } else { State::Changing };
        self.turns += 1;
        self.changed += u32::from(was == State::Changing);
        was
    }

    /// What each of so many has of the time for further turns.
    pub fn share(&self, of: usize) -> Duration {
        self.left / u32::try_from(of.max(1)).unwrap_or(u32::MAX)
    }

    /// That was spent on further turns.
    pub fn spend(&mut self, spent: Duration) {
        self.left = self.left.saturating_sub(spent);
    }
}

#[repr(align(128))]
struct Line(AtomicU64);

fn bind(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Nanoseconds of a round trip between two cores, and of a turn of a loop on the slower of them; nothing if
/// one is not to be had.
fn looks(cpus: [usize; 2]) -> Option<(f64, f64)> {
    let pace = cpus.map(|cpu| std::thread::scope(|scope| scope.spawn(|| pace(cpu)).join().ok())?);
    let [Some(a), Some(b)] = pace else { return None };
    Some((trip(cpus)?, a.max(b)))
}

/// Nanoseconds of a turn of a loop that keeps a core's adders busy and needs no memory, the shortest of some
/// batches.
fn pace(cpu: usize) -> Option<f64> {
    const TURNS: u64 = 20_000;
    const BATCHES: u64 = 10;
    let bound = bind(cpu);
    let mut shortest = f64::INFINITY;
    // Enough that do not wait for each other.
    let mut numbers: [u64; 8] = std::array::from_fn(|i| std::hint::black_box(i as u64 + 1));
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..TURNS {
            for number in &mut numbers {
                *number ^= *number << 13;
                *number ^= *number >> 7;
                *number ^= *number << 17;
            }
        }
        shortest = shortest.min(start.elapsed().as_nanos() as f64 / TURNS as f64);
    }
    std::hint::black_box(numbers);
    bound.then_some(shortest)
}

/// Nanoseconds of a round trip over two cache lines, the shortest of some batches; nothing if a core is
/// not to be had.
fn trip(cpus: [usize; 2]) -> Option<f64> {
    const TRIPS: u64 = 1000;
    const BATCHES: u64 = 5;
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let end = Instant::now() + Duration::from_secs(1);
    let spin = |line: &Line, value: u64| {
        let mut looks = 0u32;
        while line.0.load(Acquire) != value {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 16) && Instant::now() > end {
                return false;
            }
        }
        true
    };
    std::thread::scope(|scope| {
        let [out, back] = &lines;
        scope.spawn(move || {
            bind(cpus[1]);
            (1..=TRIPS * BATCHES).all(|turn| {
                let there = spin(out, turn);
                back.0.store(turn, Release);
                there
            })
        });
        let measured = scope.spawn(move || {
            let bound = bind(cpus[0]);
            let mut shortest = f64::INFINITY;
            let mut turn = 0;
            for _ in 0..BATCHES {
                let start = Instant::now();
                for _ in 0..TRIPS {
                    turn += 1;
                    out.0.store(turn, Release);
                    if !spin(back, turn) {
                        return None;
                    }
                }
                shortest = shortest.min(start.elapsed().as_nanos() as f64 / TRIPS as f64);
            }
            bound.then_some(shortest)
        });
        measured.join().ok().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_told_by_how_much_longer_a_trip_takes() {
        let of = |trip| Distance::of(trip, 100.0);
        let wanted =
            [Distance::Near, Distance::Near, Distance::Far, Distance::Far, Distance::Farther];
        assert_eq!([100.0, 200.0, 201.0, 400.0, 550.0].map(of), wanted);
        let names: Vec<String> = State::STEADY.iter().map(State::to_string).collect();
        assert_eq!((&*names[0], &*names[5]), ("near and whole", "farther and shared"));
    }

    #[test]
    fn the_best_state_is_kept_and_turns_are_counted() {
        let mut machine = Machine::new(Duration::from_secs(6));
        let began = machine.now();
        machine.ended(began);
        assert_eq!(machine.turns, 1);
        let Some(_) = machine.cpus else { return };
        // As if it had been nearer before, and quicker: never again.
        (machine.nearest, machine.quickest) = (Some(1e-3), Some(1e-3));
        let changed = machine.changed;
        let worst = State::Steady { distance: Distance::Farther, whole: false };
        assert_eq!(machine.now(), worst);
        assert_eq!(machine.ended(worst), worst);
        assert_eq!(machine.ended(State::BEST), State::Changing);
        assert_eq!((machine.turns, machine.changed), (3, changed + 1));
    }

    #[test]
    fn time_for_further_turns_is_shared_out() {
        let mut machine = Machine::new(Duration::from_secs(6));
        assert_eq!(machine.share(3), Duration::from_secs(2));
        assert_eq!(machine.share(0), Duration::from_secs(6));
        machine.spend(Duration::from_secs(4));
        assert_eq!(machine.share(2), Duration::from_secs(1));
        machine.spend(Duration::from_secs(4));
        assert_eq!(machine.share(2), Duration::ZERO);
    }
}
