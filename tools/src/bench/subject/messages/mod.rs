//! Active messages as chapters 6 to 8 of paper 001 measure them: two workloads, each run by the
//! origin on mapped memory and by the target on what packets bring, beside each other.
//!
//! ```text
//! work       the workloads: remote search, absolute values; messages in flight
//! stream     figures 6.7 to 6.11: units, system buffers, order, concurrency
//! room       figures 7.6 to 7.10: asking for room and not, variable output
//! progress   figures 8.2 to 8.6: who runs handlers, and what that does to others
//! ```

pub mod progress;
pub mod room;
pub mod stream;
mod work;

use super::variants::{self, Sweep, Variant};
use crate::bench::jobs::Options;
use crate::bench::row::Row;
use hither::Result;

/// Everything by packets.
const PACKETS: (&str, &str) = ("HITHER_RMA_MEDIUM", "packets");

/// The origin runs its handlers itself; what all others are compared with.
const ORIGIN: Variant = Variant { name: "origin runs", settings: &[] };
/// The target's thread runs them.
const TARGET: Variant = Variant { name: "target runs", settings: &[PACKETS] };
const BOTH: &[Variant] = &[ORIGIN, TARGET];

/// Both variants with each value of a setting.
macro_rules! by_setting {
    ($name:literal: $($value:literal)+) => {
        &[$(&[
            Variant { name: "origin runs", settings: &[($name, $value)] },
            Variant { name: "target runs", settings: &[PACKETS, ($name, $value)] },
        ]),+]
    };
}
use by_setting;

/// The value of a setting that is a number, in a job that was started with it.
fn setting(name: &str) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn run(
    bench: &'static str,
    part: &'static str,
    ranks: u32,
    variants: &'static [Variant],
    options: &Options,
) -> Result<Vec<Row>> {
    variants::run(&Sweep { bench, part, ranks, variants }, options)
}
