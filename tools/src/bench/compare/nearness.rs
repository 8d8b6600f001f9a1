//! How far the cores are from each other, now: on a virtual machine that changes while it runs, by
//! several times, as the host moves its cores about. Contestants that were measured at different
//! distances cannot be compared, so each one's turn begins when the distance is that of the round's first
//! turn, and is looked at again when it has ended.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Distances of up to so many times the shortest count as the same: states differ by more.
const SAME: f64 = 2.0;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// How far the cores were from each other in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// About as near as ever.
    Near,
    /// Farther.
    Far,
    /// Not the same all the time.
    Changing,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Nearness {
    /// Two CPUs that this process may use.
    cpus: Option<[usize; 2]>,
    nearest: Option<f64>,
    /// What is left of the time for waiting.
    left: Duration,
    /// Time spent on that.
    pub waited: Duration,
    /// Turns, and those at another distance than their round's first one, because that time was over.
    pub turns: u32,
    /// See `turns`.
    pub apart: u32,
}

impl Nearness {
    /// Of this process's CPUs; waits for `patience` in all.
    pub fn new(patience: Duration) -> Nearness {
        let set = sched_getaffinity(None).ok();
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_some_and(|set| set.is_set(cpu)));
        let cpus = cpus.next().zip(cpus.next()).map(|(a, b)| [a, b]);
        Nearness { cpus, left: patience, ..Nearness::default() }
    }

    /// The distance now: near where it cannot be told.
    fn now(&mut self) -> Distance {
        let Some(now) = self.cpus.and_then(distance) else { return Distance::Near };
        let nearest = self.nearest.map_or(now, |nearest| nearest.min(now));
        self.nearest = Some(nearest);
        if now <= nearest * SAME { Distance::Near } else { Distance::Far }
    }

    /// Waits until the distance is this, if it is to be a certain one, as long as there is time for that:
    /// what it is then.
    pub fn await_distance(&mut self, wanted: Option<Distance>) -> Distance {
        loop {
            let now = self.now();
            if wanted.is_none_or(|wanted| wanted == now) || self.left.is_zero() {
                return now;
            }
            let start = Instant::now();
            std::thread::sleep(PAUSE.min(self.left));
            self.spend(start);
        }
    }

    fn spend(&mut self, since: Instant) {
        let spent = since.elapsed();
        self.waited += spent;
        self.left = self.left.saturating_sub(spent);
    }

    /// A turn has ended that was to be at the `wanted` distance, and began at another or that: at which it
    /// was.
    pub fn ended(&mut self, began: Distance, wanted: Option<Distance>) -> Distance {
        let was = if self.now() == began { began } else { Distance::Changing };
        self.turns += 1;
        self.apart += u32::from(was != wanted.unwrap_or(began));
        was
    }

    /// The last turn, which began at `start`, was at the wrong distance, and there is time for another one: it
    /// counts as waiting.
    pub fn may_repeat(&mut self, start: Instant) -> bool {
        let may = self.left > start.elapsed();
        if may {
            self.turns -= 1;
            self.apart -= 1;
            self.spend(start);
        }
        may
    }
}

#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds of a round trip over two cache lines, the shortest of some batches; nothing if a core is
/// not to be had.
fn distance(cpus: [usize; 2]) -> Option<f64> {
    const TRIPS: u64 = 1000;
    const BATCHES: u64 = 5;
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let end = Instant::now() + Duration::from_secs(1);
    let bind = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).is_ok()
    };
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
    fn the_shortest_distance_is_kept_and_turns_are_counted() {
        let mut nearness = Nearness::new(Duration::from_millis(1));
        let began = nearness.await_distance(None);
        nearness.ended(began, None);
        assert_eq!((nearness.turns, nearness.waited), (1, Duration::ZERO));
        // As if it had been nearer before: never again.
        nearness.nearest = Some(1e-3);
        let now = nearness.await_distance(Some(Distance::Near));
        let Some(_) = nearness.cpus else { return };
        assert!(nearness.left.is_zero() && nearness.waited > Duration::ZERO);
        assert_eq!(now, Distance::Far);
        let apart = nearness.apart;
        assert_eq!(nearness.ended(now, Some(Distance::Near)), Distance::Far);
        assert_eq!(nearness.ended(now, Some(Distance::Far)), Distance::Far);
        assert_eq!(nearness.ended(Distance::Near, None), Distance::Changing);
        assert_eq!((nearness.turns, nearness.apart), (4, apart + 2));
        assert!(!nearness.may_repeat(Instant::now()), "there is no time left");
        nearness.left = Duration::from_secs(60);
        assert!(nearness.may_repeat(Instant::now()));
        assert_eq!((nearness.turns, nearness.apart), (3, apart + 1));
    }
}
