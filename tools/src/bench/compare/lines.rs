//! Programs that measure and say so in lines (see `benches/peers/common.h`), whatever becomes of
//! them: what crashes or hangs in one workload is started again for those that come after it.

use super::child::{self, End};
use super::workload::Task;
use hither::Result;
use std::process::Command;
use std::time::Duration;

/// One figure, or why there is none.
pub type Outcome = std::result::Result<Figure, String>;

/// A figure, and the limit that was measured beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// In the unit of the workload.
    pub value: f64,
    /// The same of the raw limit.
    pub limit: Option<f64>,
    /// The same of the floor, if that is another.
    pub floor: Option<f64>,
    /// A fingerprint of what was computed.
    pub proof: Option<u64>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure { value, limit: None, floor: None, proof: None }
    }
}

/// One line that tells something.
#[derive(Debug, PartialEq)]
enum Said<'a> {
    Begins(&'a str),
    Is(&'a str, Figure),
    Unknown(&'a str),
    Proves(&'a str, u64),
}

fn parse(line: &str) -> Option<Said<'_>> {
    let mut words = line.split_whitespace();
    let (sign, item) = (words.next()?, words.next()?);
    match sign {
        "@" => Some(Said::Begins(item)),
        "?" => Some(Said::Unknown(item)),
        "#" => Some(Said::Proves(item, u64::from_str_radix(words.next()?, 16).ok()?)),
        "=" => {
            let positive = |word: &str| word.parse().ok().filter(|x: &f64| x.is_finite());
            let value = words.next().and_then(positive)?;
            let limit = words.next().and_then(positive);
            let floor = words.next().and_then(positive);
            Some(Said::Is(item, Figure { limit, floor, ..value.into() }))
        }
        _ => None,
    }
}

/// Runs `command`, made for the tasks that are left, until all tasks have an outcome. A program that
/// says nothing for `patience` is ended. `figure` is told of every figure as it comes.
pub fn run(
    tasks: &[Task],
    patience: Duration,
    command: impl Fn(&[Task]) -> Result<Command>,
) -> Result<Vec<(Task, Outcome)>> {
    let mut left = tasks.to_vec();
    let mut outcomes = Vec::new();
    while !left.is_empty() {
        let (mut begun, mut proof) = (None, None);
        let end = child::run(&mut command(&left)?, patience, |line| {
            let of = |item: &str| left.iter().position(|task| task.item() == item);
            match parse(line) {
                Some(Said::Begins(item)) => (begun, proof) = (of(item).map(|at| left[at]), None),
                Some(Said::Proves(item, of)) => proof = Some((item.to_owned(), of)),
                Some(Said::Is(item, figure)) => {
                    let proof = proof.take().filter(|(whose, _)| whose == item).map(|(_, of)| of);
                    if let Some(at) = of(item) {
                        outcomes.push((left.remove(at), Ok(Figure { proof, ..figure })));
                    }
                    begun = None;
                }
                Some(Said::Unknown(item)) => {
                    if let Some(at) = of(item) {
                        let why = "this peer has no such workload".to_owned();
                        outcomes.push((left.remove(at), Err(why)));
                    }
                }
                None => {}
            }
        })?;
        if left.is_empty() {
            break;
        }
        let why = match end {
            End::Well => "it ended without a figure".to_owned(),
            End::Badly(how) => how,
            End::Silent(patience) => {
                format!("hung: nothing for {:.0} s, then ended", patience.as_secs_f64())
            }
        };
        match begun {
            // The others may well work.
            Some(task) => {
                left.retain(|other| *other != task);
                outcomes.push((task, Err(why)));
            }
            None => {
                outcomes.extend(left.drain(..).map(|task| (task, Err(why.clone()))));
            }
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::super::workload::find;
    use super::*;

    #[test]
    fn lines_are_read_and_others_passed_over() {
        assert_eq!(parse("@ put:8"), Some(Said::Begins("put:8")));
        let figure = 1.5.into();
        assert_eq!(parse("= put:8 1.5"), Some(Said::Is("put:8", figure)));
        let figure = Figure { limit: Some(2.0), floor: Some(4.0), ..1.5e3.into() };
        assert_eq!(parse("= put:8 1.5e+03 2 4"), Some(Said::Is("put:8", figure)));
        let figure = Figure { floor: None, ..figure };
        assert_eq!(parse("= put:8 1.5e+03 2"), Some(Said::Is("put:8", figure)));
        assert_eq!(parse("? nope:0"), Some(Said::Unknown("nope:0")));
        assert_eq!(parse("# halo-2d:64 0fA"), Some(Said::Proves("halo-2d:64", 0xfa)));
        for other in [
            "",
            "# x",
            "# x y",
            "=",
            "= put:8",
            "= put:8 nan",
            "= put:8 inf",
            "WARNING: = 3",
            "put",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    fn task(name: &str) -> Task {
        Task { at: find(name).unwrap().0, size: 8, ranks: 2 }
    }

    /// A peer made of a script that gets the items as its arguments.
    fn with(script: &'static str, patience: Duration) -> Vec<(Task, Outcome)> {
        let tasks = ["put", "get", "accumulate", "request"].map(task);
        run(&tasks, patience, |left| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script, "sh"]).args(left.iter().map(|task| task.item()));
            Ok(command)
        })
        .unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    fn figures(outcomes: &[(Task, Outcome)]) -> Vec<&str> {
        let good = outcomes.iter().filter(|(_, outcome)| outcome.is_ok());
        good.map(|(task, _)| task.workload().name).collect()
    }

    #[test]
    fn fingerprints_come_with_the_figure_they_are_of() {
        let script = r##"echo "# $1 ff"; echo "= $1 1"; echo "# $1 aa"; echo "= $2 2"; echo "@ $3"
            echo "# $3 1"; echo "@ $4"; echo "= $4 4"; echo "= $3 3""##;
        let proofs: Vec<_> =
            with(script, LONG).into_iter().map(|(_, o)| o.unwrap().proof).collect();
        assert_eq!(proofs, [Some(0xff), None, None, None]);
    }

    #[test]
    fn a_crash_costs_one_workload() {
        let script = r#"for i in "$@"; do echo "@ $i"; case $i in get:*) kill -SEGV $$;; esac
            echo "= $i 7"; done"#;
        let outcomes = with(script, LONG);
        assert_eq!(outcomes.len(), 4);
        assert_eq!(figures(&outcomes), ["put", "accumulate", "request"]);
        let (failed, why) = &outcomes[1];
        assert_eq!(failed.workload().name, "get");
        assert!(why.as_ref().unwrap_err().contains("signal: 11"), "{why:?}");
    }

    #[test]
    fn a_hang_costs_one_workload() {
        let script = r#"for i in "$@"; do echo "@ $i"; case $i in put:*) sleep 1000;; esac
            echo "= $i 7 3"; done"#;
        let outcomes = with(script, Duration::from_secs(2));
        assert_eq!(figures(&outcomes), ["get", "accumulate", "request"]);
        assert!(outcomes[0].1.as_ref().unwrap_err().starts_with("hung"), "{outcomes:?}");
        assert_eq!(outcomes[1].1, Ok(Figure { limit: Some(3.0), ..7.0.into() }));
    }

    #[test]
    fn what_does_not_start_or_stops_early_says_so_for_all() {
        let outcomes = with("echo no memory >&2; exit 1", LONG);
        assert_eq!(outcomes.len(), 4);
        assert!(outcomes.iter().all(|(_, o)| o.as_ref().unwrap_err().contains("no memory")));
        let outcomes = with(r#"echo "? $1"; echo "= $2 1""#, LONG);
        assert_eq!(figures(&outcomes), ["get"]);
        let why: Vec<&str> =
            outcomes.iter().filter_map(|(_, o)| Some(&**o.as_ref().err()?)).collect();
        assert!(why.contains(&"this peer has no such workload"), "{why:?}");
        assert!(why.contains(&"it ended without a figure"), "{why:?}");
    }
}
