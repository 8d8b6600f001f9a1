//! Jobs whose ranks are this test's own executable.

use hither::world::{Launcher, Outcome, Output};

/// A launcher of this executable; what its ranks say is kept.
pub fn launcher() -> Launcher {
    let program = std::env::current_exe().expect("the path of this test");
    Launcher::new(program).output(Output::Capture)
}

/// Runs a job to its end.
pub fn run(launcher: Launcher) -> Outcome {
    launcher.start().and_then(|running| running.wait()).expect("launching")
}

/// What a rank wrote.
pub fn said(outcome: &Outcome, rank: usize) -> String {
    String::from_utf8_lossy(&outcome.stdout[rank]).into_owned()
}

/// Whether all went well; says what went wrong if not.
pub fn well(outcome: &Outcome) -> bool {
    if outcome.code() != 0 {
        eprintln!("{}", outcome.summary());
        outcome.stderr.iter().for_each(|text| eprint!("{}", String::from_utf8_lossy(text)));
    }
    outcome.code() == 0
}
