//! Calls with absurd arguments: every public call of windows, with ranks, displacements, counts,
//! ranges and layouts drawn from the edges of their types. A call must end with a typed error or
//! do what it says; it must not panic, and it must not touch anything that it does not name.
//!
//! ```text
//! | guard window | parts: every element 5, 7 or 9 | guard window |
//!                           | buffer of the origin: margin, elements, margin |
//! ```
//! For contiguous ranges an oracle says which calls must succeed and which must fail.

mod arguments;
mod calls;
mod layouts;
mod makings;

use super::super::{Case, Written};

pub fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for way in ["direct", "packets"] {
        for parts in calls::PARTS {
            for seed in 0..3 {
                all.push(Case {
                    name: format!("gen/absurd/{way}/{parts:?}/{seed}").to_lowercase(),
                    run: Box::new(move |job| calls::run(job, way == "packets", parts, seed)),
                });
            }
        }
        all.push(Case {
            name: format!("gen/absurd/{way}/windows"),
            run: Box::new(move |job| makings::windows(job, way == "packets")),
        });
        all.push(Case {
            name: format!("gen/absurd/{way}/empty_types"),
            run: Box::new(move |job| makings::empty_types(job, way == "packets")),
        });
    }
    let others: [Written; 3] = [
        ("layouts", layouts::layouts),
        ("memory", makings::memory),
        ("collectives", makings::collectives),
    ];
    all.extend(
        others
            .into_iter()
            .map(|(name, run)| Case { name: format!("gen/absurd/{name}"), run: Box::new(run) }),
    );
    all
}
