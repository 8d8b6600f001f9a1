//! The rate of the processor's time stamp counter. Emulated processors count at the host's; guests
//! that find out how fast that is while the host is busy are wrong by any factor, and all their
//! times with them. So they are told.

use std::time::{Duration, Instant};

/// Longest doubt about when a counter was read that is put up with, and tries to do better.
const DOUBT: Duration = Duration::from_micros(2);
const TRIES: u32 = 1000;
const LONG: Duration = Duration::from_millis(50);

/// In kHz; takes 50 ms. Nothing where processors have no such counter.
pub fn rate() -> Option<u64> {
    let (began, first) = read()?;
    std::thread::sleep(LONG);
    let (ended, last) = read()?;
    let nanoseconds = u64::try_from(ended.duration_since(began).as_nanos()).ok()?;
    let ticks = u128::from(last.checked_sub(first)?);
    u64::try_from(ticks * 1_000_000 / u128::from(nanoseconds.max(1))).ok()
}

/// A time and the counter at that time: the closest pair of some tries.
fn read() -> Option<(Instant, u64)> {
    let mut best: Option<(Duration, Instant, u64)> = None;
    for _ in 0..TRIES {
        let before = Instant::now();
        let ticks = ticks()?;
        let doubt = before.elapsed();
        if best.is_none_or(|(least, ..)| doubt < least) {
            best = Some((doubt, before, ticks));
        }
        if doubt < DOUBT {
            break;
        }
    }
    best.map(|(_, time, ticks)| (time, ticks))
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn two_measurements_agree() {
        let (one, other) = (rate().unwrap(), rate().unwrap());
        assert!(one.abs_diff(other) < one / 100, "{one} and {other} kHz");
    }
}
