//! Active messages: by hand what single ones do and what is refused; generated, all kinds of
//! handlers, epochs, layouts, segment counts, forms and hints.

mod basic;
mod errors;
mod family;
mod handlers;
mod kinds;
mod shapes;

use crate::{Case, Written};
use family::{Kind, Sync, exchange};
use hither::{Info, Job, Result};

/// Orders that messages may be wanted to keep.
const ORDERS: [&str; 8] = [
    "none",
    "sameop",
    "diffop",
    "sameam",
    "sameop,diffop",
    "sameop,sameam",
    "diffop,sameam",
    "sameop,diffop,sameam",
];

/// Written cases.
pub fn written() -> impl Iterator<Item = &'static Written> {
    [basic::CASES, errors::CASES, kinds::CASES].into_iter().flatten()
}

/// Generated cases.
pub fn generated() -> Vec<Case> {
    let mut cases = Vec::new();
    for sync in Sync::ALL {
        for kind in Kind::ALL {
            cases.push(Case {
                name: format!("am_{kind:?}_{sync:?}").to_lowercase(),
                run: Box::new(move |job| exchange(job, kind, sync, Info::default(), None)),
            });
        }
    }
    for (at, order) in ORDERS.into_iter().enumerate() {
        for detach in ["true", "false"] {
            for kept in [0, 4096] {
                let name = format!("am_hints_{order}_{detach}_{kept}").replace(',', "_");
                let case = cases.len();
                let run = move |job: &Job| hinted(job, order, detach, kept, at, case);
                cases.push(Case { name, run: Box::new(run) });
            }
        }
    }
    cases
}

/// Under one combination of hints: variable output in every kind of epoch, and one more kind of
/// handler in one of them. Each time another sample of the messages.
fn hinted(job: &Job, order: &str, detach: &str, kept: u32, at: usize, case: usize) -> Result<()> {
    let counting = [Kind::Vector, Kind::UntypedVector];
    let mut runs: Vec<(Kind, Sync)> = Vec::new();
    runs.extend(Sync::ALL.iter().enumerate().map(|(s, sync)| (counting[(case + s) % 2], *sync)));
    runs.push((Kind::ALL[at % 4], [Sync::LockAll, Sync::Exclusive][at / 4]));
    for (turn, (kind, sync)) in runs.into_iter().enumerate() {
        let mut info = Info::default();
        assert!(info.set("am_ordering", order)?);
        assert!(info.set("am_buf_interleave_am_detach", detach)?);
        assert!(info.set("am_user_buf_0", &kept.to_string())?);
        exchange(job, kind, sync, info, Some(case + turn))?;
    }
    Ok(())
}
