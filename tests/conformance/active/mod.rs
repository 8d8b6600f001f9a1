//! Active messages: by hand what single ones do and what is refused; generated, all kinds of
//! handlers, epochs, layouts, segment counts, forms and hints, with and without the assertion that
//! messages may run at the same time.

mod basic;
mod errors;
mod family;
mod handlers;
mod kinds;
mod order;
mod shapes;

use crate::{Case, Written};
use family::{Kind, Plan, Sync, exchange};
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
    [basic::CASES, errors::CASES, kinds::CASES, order::CASES].into_iter().flatten()
}

/// Generated cases.
pub fn generated() -> Vec<Case> {
    let mut cases = Vec::new();
    for sync in Sync::ALL {
        for (kind, concurrent) in
            Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let asserted = if concurrent { "_concurrent" } else { "" };
            // What the assertion changes shows in some of the messages.
            let sample = (concurrent && sync != Sync::LockAll).then_some(cases.len());
            let plan = Plan { kind, sync, concurrent, buffer: None, sample };
            cases.push(Case {
                name: format!("am_{kind:?}_{sync:?}{asserted}").to_lowercase(),
                run: Box::new(move |job| exchange(job, plan, Info::default())),
            });
        }
    }
    for (at, order) in ORDERS.into_iter().enumerate() {
        for detach in ["true", "false"] {
            for kept in [0, 4096] {
                for concurrent in [false, true] {
                    let asserted = if concurrent { "_concurrent" } else { "" };
                    let name = format!("am_hints_{order}_{detach}_{kept}{asserted}");
                    let (name, case) = (name.replace(',', "_"), cases.len());
                    let hints = Hints { order, detach, kept, concurrent };
                    let run = move |job: &Job| hinted(job, hints, at, case);
                    cases.push(Case { name, run: Box::new(run) });
                }
            }
        }
    }
    cases
}

/// One combination of hints, and whether epochs assert that messages may run at the same time.
#[derive(Clone, Copy)]
struct Hints {
    order: &'static str,
    detach: &'static str,
    kept: u32,
    concurrent: bool,
}

/// Under one combination of hints: variable output in every kind of epoch, and one more kind of
/// handler in one of them. Each time another sample of the messages, and every other time with a
/// buffer that what the hints promise and what messages ask for can lie in.
fn hinted(job: &Job, hints: Hints, at: usize, case: usize) -> Result<()> {
    let counting = [Kind::Vector, Kind::UntypedVector];
    let mut runs: Vec<(Kind, Sync)> = Vec::new();
    runs.extend(Sync::ALL.iter().enumerate().map(|(s, sync)| (counting[(at + s) % 2], *sync)));
    runs.push((Kind::ALL[at % 4], [Sync::LockAll, Sync::Exclusive][at / 4]));
    let Hints { order, detach, kept, concurrent } = hints;
    for (turn, (kind, sync)) in runs.into_iter().enumerate() {
        let mut info = Info::default();
        assert!(info.set("am_ordering", order)?);
        assert!(info.set("am_buf_interleave_am_detach", detach)?);
        assert!(info.set("am_user_buf_0", &kept.to_string())?);
        let buffer = (at + turn).is_multiple_of(2).then_some(16 << 10);
        let plan = Plan { kind, sync, concurrent, buffer, sample: Some(case + turn) };
        exchange(job, plan, info)?;
    }
    Ok(())
}
