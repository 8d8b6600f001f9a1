//! One rank of the demo: runs the workloads one after the other, and after a death (if asked to)
//! repeats with the survivors what it interrupted.

use super::progress::{Progress, say};
use super::report::{Row, table};
use super::work::{Context, Stop};
use super::{genome, graph, stencil};
use hither::{Job, Op, Rank, Result, Team};
use std::io::Write;
use std::process::ExitCode;

/// What to run.
pub struct Plan {
    /// Breadth-first search, if wanted.
    pub graph: Option<graph::Options>,
    /// Remote search, if wanted.
    pub genome: Option<genome::Options>,
    /// Halo exchange, if wanted.
    pub stencil: Option<stencil::Options>,
    /// Results as JSON lines.
    pub json: bool,
    /// Whether to go on after a death.
    pub survive: bool,
}

/// One workload.
type Step<'p> = Box<dyn Fn(&Context<'_>) -> Result<Vec<Row>, Stop> + 'p>;

impl Plan {
    fn steps(&self) -> Vec<Step<'_>> {
        let mut steps: Vec<Step<'_>> = Vec::new();
        if let Some(options) = &self.graph {
            steps.push(Box::new(|context| graph::run(context, options)));
        }
        if let Some(options) = &self.genome {
            steps.push(Box::new(|context| genome::run(context, options)));
        }
        if let Some(options) = &self.stencil {
            steps.push(Box::new(|context| stencil::run(context, options)));
        }
        steps
    }

    /// Prints what is still to be printed when everything is done.
    fn report<'r>(&self, rows: impl Iterator<Item = &'r Row>) {
        let rows: Vec<Row> = rows.cloned().collect();
        match (self.json, self.survive) {
            (false, _) => print([table(&rows)].into_iter()),
            (true, true) => print(rows.iter().map(Row::json)),
            (true, false) => {}
        }
    }
}

/// Takes part in the job this process was started for.
pub fn run(plan: &Plan) -> Result<ExitCode> {
    let job = Job::init()?;
    let mut team = job.team().clone();
    let steps = plan.steps();
    // Results of each step done so far; the same on every rank but for the last one.
    let mut done: Vec<Vec<Row>> = Vec::new();
    let mut reported = false;
    loop {
        let progress = Progress::new(team.rank() == Rank(0));
        let context = Context { team: &team, progress: &progress };
        let ended = match steps.get(done.len()) {
            Some(step) => step(&context).map(|rows| {
                // With survivors a step may be repeated: results are printed at the end.
                if plan.json && !plan.survive && team.rank() == Rank(0) {
                    print(rows.iter().map(Row::json));
                }
                done.push(rows);
                false
            }),
            None => {
                if team.rank() == Rank(0) && !reported {
                    plan.report(done.iter().flatten());
                    reported = true;
                }
                // Nobody leaves while another may still need it to repeat a step.
                team.barrier().map(|()| true).map_err(Stop::Failed)
            }
        };
        match ended {
            Ok(false) => {}
            Ok(true) => break,
            Err(Stop::Failed(error)) if plan.survive && error.is_death() => {
                team = go_on(&team, &mut done)?;
                if team.rank() == Rank(0) {
                    say(&format!("{error}; going on with {} ranks", team.size()));
                }
            }
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Elsewhere) => return Ok(ExitCode::from(2)),
        }
    }
    let valid = done.iter().flatten().all(|row| row.validated);
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The team of the survivors, and where they begin again: at the first step that any of them has
/// not done. A death near the end of a step is noticed by some in that step, by others in the
/// next one.
fn go_on(team: &Team, done: &mut Vec<Vec<Row>>) -> Result<Team> {
    let mut team = team.clone();
    loop {
        team = team.shrink()?;
        let mut first = [done.len() as u64];
        match team.allreduce(Op::Min, &mut first) {
            Ok(()) => {
                done.truncate(first[0] as usize);
                return Ok(team);
            }
            Err(error) if error.is_death() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Prints lines; a reader that has gone away is no reason to fail.
fn print(lines: impl Iterator<Item = String>) {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
}
