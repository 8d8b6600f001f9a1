//! A clock that costs a few nanoseconds, for timing single operations. Batches are timed by
//! [`std::time::Instant`].

use std::time::{Duration, Instant};

/// Reads the processor's time-stamp counter, or the system's clock where there is none.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register; every x86-64 has it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }
}

/// Nanoseconds per tick, measured against the system's clock over some milliseconds.
pub fn nanoseconds_per_tick() -> f64 {
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(5) {
        std::hint::spin_loop();
    }
    let (elapsed, last) = (start.elapsed(), ticks());
    elapsed.as_nanos() as f64 / last.saturating_sub(first).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_advance() {
        let first = ticks();
        let scale = nanoseconds_per_tick();
        assert!(ticks() > first);
        assert!(scale > 0.0 && scale.is_finite());
    }
}
