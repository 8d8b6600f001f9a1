//! What `benches/peers/overhead.c` measures.

use super::Item;
use crate::bench::overhead::Outcome;
use crate::bench::subject::overhead::messages::alone;
use hither::Result;

/// Availability, beside the whole time as its limit, or overhead; on the leader.
pub fn measure(item: &Item<'_>) -> Result<Option<Vec<f64>>> {
    let name = item.workload.name;
    let kind = (name.contains("-send"), name.ends_with("-late"));
    let Outcome { overhead, availability, .. } = alone(item.crew, kind, item.size)?;
    let figures = match name.starts_with("availability") {
        true => vec![availability * 100.0, 100.0],
        // Never quite nothing: others are divided by it.
        false => vec![overhead.max(1.0)],
    };
    Ok(item.crew.leads().then_some(figures))
}
