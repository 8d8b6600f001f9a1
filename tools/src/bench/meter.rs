//! Timing a batch of operations, as a whole or one by one.

use super::clock;
use hdrhistogram::Histogram;
use hither::Result;
use std::time::{Duration, Instant};

/// What the leading rank of a batch measures with.
pub struct Meter {
    elapsed: Duration,
    each: Option<Histogram<u64>>,
}

impl Meter {
    /// Times the batch as a whole.
    pub fn whole() -> Meter {
        Meter { elapsed: Duration::ZERO, each: None }
    }

    /// Times every operation, for percentiles. Adds two reads of the clock to each.
    pub fn each() -> Meter {
        // Ticks up to about a minute, two digits: small enough to stay in a cache.
        let histogram = Histogram::new_with_bounds(1, 1 << 38, 2).ok();
        Meter { elapsed: Duration::ZERO, each: histogram }
    }

    /// Runs `op` for 0..n and times it.
    ///
    /// One call site for both kinds of timing, so that `op` is compiled into the loop: called as
    /// a function it would store registers, and a fence waits for every store.
    #[inline(always)]
    pub fn run(&mut self, n: u64, mut op: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let step = if self.each.is_some() { 1 } else { n };
        let start = Instant::now();
        let mut i = 0;
        while i < n {
            let end = n.min(i.saturating_add(step));
            let first = clock::ticks();
            while i < end {
                op(i)?;
                i += 1;
            }
            if let Some(histogram) = &mut self.each {
                histogram.saturating_record(clock::ticks().saturating_sub(first).max(1));
            }
        }
        self.elapsed = start.elapsed();
        Ok(())
    }

    /// Times one closure that does the whole batch.
    #[inline(always)]
    pub fn batch(&mut self, f: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        f()?;
        self.elapsed = start.elapsed();
        Ok(())
    }

    /// What timed itself took so long.
    pub fn took(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }

    /// Runs `prepare` and then `op` for 0..n and times `op` alone. For operations that are long
    /// beside two readings of the clock.
    pub fn parts(
        &mut self,
        n: u64,
        mut prepare: impl FnMut(u64) -> Result<()>,
        mut op: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut elapsed = Duration::ZERO;
        for i in 0..n {
            prepare(i)?;
            let (start, first) = (Instant::now(), clock::ticks());
            op(i)?;
            elapsed += start.elapsed();
            if let Some(histogram) = &mut self.each {
                histogram.saturating_record(clock::ticks().saturating_sub(first).max(1));
            }
        }
        self.elapsed = elapsed;
        Ok(())
    }

    /// Nanoseconds of the batch.
    pub fn nanoseconds(&self) -> f64 {
        self.elapsed.as_nanos() as f64
    }

    /// A percentile of the single operations in ticks; `None` if they were not timed.
    pub fn percentile(&self, p: f64) -> Option<f64> {
        let histogram = self.each.as_ref().filter(|h| !h.is_empty())?;
        Some(histogram.value_at_percentile(p) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs_once_and_is_recorded_when_asked() {
        let mut seen = Vec::new();
        let mut meter = Meter::whole();
        meter
            .run(5, |i| {
                seen.push(i);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(meter.percentile(99.0), None);
        let mut meter = Meter::each();
        meter.run(100, |_| Ok(())).unwrap();
        assert!(meter.percentile(99.0).is_some());
    }

    #[test]
    fn what_prepares_an_operation_is_not_timed() {
        let prepared = std::cell::Cell::new(0);
        let mut meter = Meter::each();
        let prepare = |i| {
            std::thread::sleep(Duration::from_millis(20));
            prepared.set(prepared.get() + 1);
            assert_eq!(prepared.get(), i + 1);
            Ok(())
        };
        let start = Instant::now();
        let op = |i| {
            assert_eq!(prepared.get(), i + 1);
            Ok(())
        };
        meter.parts(3, prepare, op).unwrap();
        assert_eq!(prepared.get(), 3);
        // Of the whole, the sleeps are not in it.
        assert!(meter.nanoseconds() + 6e7 <= start.elapsed().as_nanos() as f64);
        assert!(meter.percentile(99.0).is_some());
    }
}
