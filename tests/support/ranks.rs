//! Jobs whose ranks are this test's own executable.

use hither::world::{Launcher, Outcome, Output};
use std::io::Write;

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

/// Ends the process of a rank that has played its role: with what it has to say, or what went wrong.
pub fn ends(role: &str, played: hither::Result<String>) -> ! {
    let code = match played {
        Ok(said) => {
            let end = if said.is_empty() { "" } else { "\n" };
            // In one piece: a launcher may mix lines up otherwise.
            let _ = std::io::stdout().write_all(format!("{said}{end}").as_bytes());
            0
        }
        Err(error) => {
            eprintln!("{role}: {error}");
            3
        }
    };
    std::process::exit(code)
}

/// Dies at once, as if killed.
pub fn die() -> ! {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    unreachable!("killed")
}
