//! Kills a random rank of `hither demo` at a random moment: every survivor ends with a typed error
//! or goes on, none hangs, nothing stays behind. Options as for the library's kill test.

#[path = "../../tests/kill/campaign.rs"]
mod campaign;
#[path = "../../tests/support/mod.rs"]
mod support;

use campaign::{Campaign, Work};
use std::time::Duration;

fn main() {
    let demo = |name: &str, more: &[&str]| {
        let mut arguments = vec!["demo".to_owned(), name.to_owned(), "--json".to_owned()];
        arguments.extend(more.iter().map(|&arg| arg.to_owned()));
        Work { name: name.to_owned(), arguments, settings: Vec::new(), points: Vec::new() }
    };
    Campaign {
        program: env!("CARGO_BIN_EXE_hither").into(),
        works: vec![
            demo("graph", &["--scale", "12", "--roots", "64"]),
            demo("genome", &["--queries", "400000"]),
            demo("stencil", &["--sweeps", "200"]),
        ],
        survive: vec!["--survive".into()],
        typed: 1,
        ends: true,
        longest: Duration::from_millis(500),
        kills: 30,
    }
    .run();
}
