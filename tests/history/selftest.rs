//! The checker on trial: it must accept what can be explained and refuse what cannot, among them
//! sound histories that were spoilt on purpose.

use super::check::{Event, Verdict, What, judge};
use super::support::random::Random;

/// Checks the checker; the number of spoilt histories that it refused.
pub fn run() -> usize {
    by_hand();
    spoilt()
}

fn event(origin: u32, call: u64, ended: u64, what: What, saw: Option<u64>) -> Event {
    Event { origin, call, ended, word: 0, what, saw }
}

fn by_hand() {
    use What::{Add, Cas, Read, Swap};
    let accept = |events: &[Event]| assert_eq!(judge(0, events), Verdict::Explained, "{events:?}");
    let refuse = |events: &[Event]| assert_eq!(judge(0, events), Verdict::Impossible, "{events:?}");
    accept(&[]);
    // Two overlapping additions: either order.
    accept(&[event(0, 0, 9, Add(1), Some(0)), event(1, 1, 8, Add(1), Some(1))]);
    accept(&[event(0, 0, 9, Add(1), Some(1)), event(1, 1, 8, Add(1), Some(0))]);
    // A lost update.
    refuse(&[event(0, 0, 9, Add(1), Some(0)), event(1, 1, 8, Add(1), Some(0))]);
    // A read that ended before the write began must not see it; one that began after must.
    refuse(&[event(0, 5, 9, Swap(7), None), event(1, 1, 2, Read, Some(7))]);
    refuse(&[event(0, 1, 2, Swap(7), None), event(1, 5, 9, Read, Some(0))]);
    accept(&[event(0, 1, 6, Swap(7), None), event(1, 5, 9, Read, Some(0))]);
    // The order of one origin: write, then read (both complete late).
    refuse(&[event(0, 1, 9, Swap(7), None), event(0, 2, 9, Read, Some(0))]);
    refuse(&[event(0, 1, 9, Read, Some(7)), event(0, 2, 9, Swap(7), None)]);
    refuse(&[
        event(0, 1, 9, Swap(7), None),
        event(0, 2, 9, Swap(8), None),
        event(1, 20, 21, Read, Some(7)),
    ]);
    // Two that both take the same lock.
    let cas = Cas { expected: 0, new: 1 };
    refuse(&[event(0, 0, 9, cas, Some(0)), event(1, 0, 9, cas, Some(0))]);
    accept(&[event(0, 0, 9, cas, Some(0)), event(1, 0, 9, cas, Some(1))]);
    // Reads that go back in time.
    refuse(&[
        event(0, 0, 99, Swap(7), None),
        event(1, 1, 2, Read, Some(7)),
        event(1, 3, 4, Read, Some(0)),
    ]);
    // Two exclusive sections that both saw the same predecessor.
    refuse(&[event(0, 0, 9, Swap(5), Some(0)), event(1, 0, 9, Swap(6), Some(0))]);
}

/// A sound history: what a simulated word gave to operations at random moments within their time.
fn sound(random: &mut Random) -> Vec<Event> {
    let origins = 2 + random.below(5) as u32;
    let mut left: Vec<u64> = (0..origins).map(|_| 3 + random.below(10)).collect();
    let (mut value, mut now, mut unique) = (0u64, 100u64, 1000u64);
    let mut events = Vec::new();
    while left.iter().any(|&n| n > 0) {
        let origin = random.below(origins.into()) as usize;
        if left[origin] == 0 {
            continue;
        }
        left[origin] -= 1;
        // It happens now, was called some time before and ends some time after.
        now += 1 + random.below(20);
        let (call, ended) = (now - random.below(60), now + random.below(60));
        unique += 1;
        let saw = Some(value);
        let what = match random.below(4) {
            0 => What::Add(unique << 20),
            1 => What::Swap(unique),
            2 => What::Cas { expected: if random.below(2) == 0 { value } else { 3 }, new: unique },
            _ => What::Read,
        };
        let event = event(origin as u32, call, ended, what, saw);
        value = match what {
            What::Add(add) => value + add,
            What::Swap(new) => new,
            What::Cas { expected, new } if expected == value => new,
            _ => value,
        };
        let silent = random.below(4) == 0;
        events.push(Event { saw: if silent { None } else { saw }, ..event });
    }
    events
}

fn spoilt() -> usize {
    let mut random = Random::new(42);
    let mut refused = 0;
    for _ in 0..400 {
        let good = sound(&mut random);
        assert_eq!(judge(0, &good), Verdict::Explained, "{good:#?}");
        let seeing: Vec<usize> = (0..good.len()).filter(|&i| good[i].saw.is_some()).collect();
        if seeing.is_empty() {
            continue;
        }
        let at = seeing[random.below(seeing.len() as u64) as usize];
        // A value that never was.
        let mut bad = good.clone();
        bad[at].saw = Some(0xdead_beef_dead_beef);
        assert_eq!(judge(0, &bad), Verdict::Impossible, "{bad:#?}");
        refused += 1;
        // A lost update: everything sees what it saw, but one more write has come after all, and
        // the last look does not show it.
        let end = good.iter().map(|e| e.ended).max().unwrap_or(0);
        let last = event(0, end + 1, end + 2, What::Swap(77), None);
        let look = event(1, end + 3, end + 4, What::Read, Some(78));
        let mut bad = good.clone();
        bad.extend([last, look]);
        assert_eq!(judge(0, &bad), Verdict::Impossible, "{bad:#?}");
        refused += 1;
        // One operation twice with the same result, where it changes the word for good.
        if let (What::Add(_), Some(_)) = (good[at].what, good[at].saw) {
            let mut bad = good.clone();
            bad.insert(at, Event { origin: 63, ..good[at] });
            assert_eq!(judge(0, &bad), Verdict::Impossible, "{bad:#?}");
            refused += 1;
        }
    }
    refused
}
