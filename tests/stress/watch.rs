//! Who is where: each rank notes the phase and step that it is in; if nothing moves for long, all of
//! that is printed and the process ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Deadline of every wait, in seconds.
pub const LIMIT: &str = "60";
/// Longest time for a step.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy)]
struct Place {
    rank: u32,
    phase: &'static str,
    step: &'static str,
    since: Instant,
}

static PLACES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// One rank's notes.
pub struct Watch {
    index: usize,
}

impl Watch {
    pub fn new(rank: u32) -> Watch {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.push(Place { rank, phase: "", step: "", since: Instant::now() });
        Watch { index: places.len() - 1 }
    }

    pub fn phase(&self, phase: &'static str) {
        self.note(|place| (place.phase, place.step) = (phase, "begin"));
    }

    pub fn step(&self, step: &'static str) {
        self.note(|place| place.step = step);
    }

    fn note(&self, change: impl FnOnce(&mut Place)) {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut places[self.index];
        change(place);
        place.since = Instant::now();
    }
}

/// Starts watching this process's ranks.
pub fn begin() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
            if places.iter().all(|place| place.since.elapsed() < PATIENCE) {
                continue;
            }
            for place in places.iter() {
                let Place { rank, phase, step, since } = place;
                eprintln!("rank {rank} is in \"{phase}\", \"{step}\", for {:.0?}", since.elapsed());
            }
            std::process::abort();
        }
    });
}
