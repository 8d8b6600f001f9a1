//! hither itself: this program as the ranks of a job that this program starts, as a launcher starts
//! those of the others.

use super::{Order, Peer, Setting, typed};
use crate::bench::compare::lines::Outcome;
use crate::bench::compare::workload::{Cast, Group, Task};
use crate::bench::floor::spawn::fork_exec;
use crate::bench::jobs;
use hither::Result;
use std::process::Command;

/// See the module.
pub struct Own;

impl Own {
    fn made(&self, order: &Order<'_>, left: &[Task]) -> Result<Command> {
        let ranks = order.ranks().to_string();
        let mut command = jobs::program(&["run", "-n", &ranks, "--"])?;
        command.arg(jobs::own_path()?).args(["bench", "own"]).args(order.effort());
        command.args(left.iter().map(|task| task.item()));
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        Ok(command)
    }
}

impl Peer for Own {
    fn name(&self) -> &'static str {
        "hither"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn measured_by(&self) -> &'static str {
        "this program"
    }

    fn settings(&self, _: Group, _: bool) -> Vec<Setting> {
        vec![Setting::usual()]
    }

    fn can(&self, _: Group, _: Cast) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
        let mut outcomes = super::timed(order, |left| self.made(order, left))?;
        for (task, outcome) in &mut outcomes {
            if let (Ok(figure), "start") = (outcome, task.workload().name) {
                let floor = fork_exec(task.ranks, || jobs::program(&["bench", "--begun"]))?;
                figure.limit = Some(floor.as_secs_f64() * 1e3);
            }
        }
        Ok(outcomes)
    }

    fn command(&self, order: &Order<'_>) -> String {
        self.made(order, order.tasks).map_or_else(|e| e.to_string(), |command| typed(&command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare::workload;
    use std::time::Duration;

    #[test]
    fn its_command_runs_itself_as_ranks() {
        let cast = Cast { ranks: 2, cores: 2 };
        let tasks = workload::tasks(Group::Start, cast, true);
        let setting = Setting::usual();
        let patience = Duration::from_secs(1);
        let order = Order {
            tasks: &tasks,
            setting: &setting,
            batch: 1e4,
            batches: 2,
            patience,
            crowded: false,
        };
        let command = Own.command(&order);
        assert!(command.contains("run -n 2 -- "), "{command}");
        assert!(command.ends_with("bench own 10000 2 start:0 memory:0"), "{command}");
    }
}
