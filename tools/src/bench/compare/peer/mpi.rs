//! MPICH, Open MPI and the OpenSHMEM that comes with it: the programs of `benches/peers`, compiled with what is installed, and started
//! by its launcher.

use super::{Order, Peer, SOURCES, Setting, on_path, typed};
use crate::bench::compare::lines::Outcome;
use crate::bench::compare::workload::{Cast, Group, Task};
use hither::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// OpenSHMEM, as Open MPI has it.
    OpenShmem,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Mpich, Kind::OpenMpi, Kind::OpenShmem];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mpich => "MPICH",
            Kind::OpenMpi => "Open MPI",
            Kind::OpenShmem => "OpenSHMEM",
        }
    }

    /// Compiler and launcher where both are installed under names of their own.
    fn programs(self) -> [&'static str; 2] {
        match self {
            Kind::Mpich => ["mpicc.mpich", "mpiexec.mpich"],
            Kind::OpenMpi => ["mpicc.openmpi", "mpiexec.openmpi"],
            Kind::OpenShmem => ["oshcc", "oshrun"],
        }
    }

    /// What compiler and launcher may be called.
    fn candidates(self) -> Vec<[&'static str; 2]> {
        match self {
            Kind::OpenShmem => vec![self.programs()],
            _ => vec![self.programs(), ["mpicc", "mpiexec"]],
        }
    }

    /// The program that measures a group on it.
    fn program(self, group: Group) -> &'static str {
        if self == Kind::OpenShmem { "shmem" } else { group.program() }
    }

    /// Its version in what its launcher says of itself; `None` if that is another's.
    fn version(self, said: &str) -> Option<String> {
        let mut lines = said.lines().map(str::trim);
        match self {
            Kind::Mpich => {
                let hydra = said.contains("HYDRA");
                let version = lines.find_map(|line| line.strip_prefix("Version:"))?.trim();
                hydra.then(|| version.to_owned())
            }
            Kind::OpenMpi | Kind::OpenShmem => {
                let line =
                    lines.find(|line| line.contains("OpenRTE") || line.contains("Open MPI"))?;
                line.split_whitespace().last().map(str::to_owned)
            }
        }
    }
}

/// See the module.
pub struct Mpi {
    kind: Kind,
    version: String,
    compiler: PathBuf,
    launcher: PathBuf,
    place: PathBuf,
}

impl Mpi {
    /// Looks for it. Its programs will be in a folder of its own in `place`.
    pub fn find(kind: Kind, place: &Path) -> std::result::Result<Mpi, String> {
        let mut why = match kind {
            Kind::OpenShmem => "no oshcc and oshrun".to_owned(),
            _ => "neither mpicc and mpiexec of it nor such under its own name".to_owned(),
        };
        for [compiler, launcher] in kind.candidates() {
            let (Some(compiler), Some(launcher)) = (on_path(compiler), on_path(launcher)) else {
                continue;
            };
            let said = Command::new(&launcher).arg("--version").stdin(Stdio::null()).output();
            let said = said.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
            match said.ok().and_then(|said| kind.version(&said)) {
                Some(version) => {
                    let place = place.join(kind.programs()[0]);
                    return Ok(Mpi { kind, version, compiler, launcher, place });
                }
                None => why = "what is installed under that name is another one".to_owned(),
            }
        }
        Err(why)
    }

    /// The program of a group, compiled if it has not been yet.
    fn program(&self, group: Group) -> Result<PathBuf> {
        let name = self.kind.program(group);
        let program = self.place.join(name);
        if program.is_file() {
            return Ok(program);
        }
        let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
        std::fs::create_dir_all(&self.place).map_err(os("making a folder for peers' programs"))?;
        for &(name, text) in SOURCES {
            let file = if name.contains('.') { name.to_owned() } else { format!("{name}.c") };
            std::fs::write(self.place.join(file), text).map_err(os("writing a peer's source"))?;
        }
        let output = Command::new(&self.compiler)
            .args(["-O3", "-ffp-contract=off", "-o", name, &format!("{name}.c")])
            .current_dir(&self.place)
            .stdin(Stdio::null())
            .output()
            .map_err(os("starting a peer's compiler"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| line.contains("error")).or(said.lines().next());
            let why = format!("{}: {}", output.status, line.unwrap_or("without a word"));
            return Err(Error::Misuse { what: "compiling a peer's program", why });
        }
        Ok(program)
    }

    fn made(&self, order: &Order<'_>, program: &Path, left: &[Task]) -> Command {
        let mut command = Command::new(&self.launcher);
        let bound = !order.crowded;
        match (self.kind, bound) {
            (Kind::Mpich, true) => {
                command.args(["-bind-to", "core"]);
            }
            (Kind::Mpich, false) => {}
            (Kind::OpenMpi | Kind::OpenShmem, bound) => {
                if rustix::process::geteuid().is_root() {
                    command.arg("--allow-run-as-root");
                }
                let bind = if bound { "core" } else { "none" };
                command.args(["--oversubscribe", "--bind-to", bind]);
            }
        }
        command.args(["-n", &order.ranks().to_string()]).args(&order.setting.args);
        command.arg(program).args(order.effort()).args(left.iter().map(|task| task.item()));
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        command
    }
}

/// Ways of Open MPI for messages.
const OPENMPI_MESSAGES: [&str; 3] = [
    "--mca pml ob1 --mca btl self,vader",
    "--mca pml ob1 --mca btl self,vader --mca btl_vader_single_copy_mechanism none",
    "--mca pml ucx",
];
/// And for one-sided operations.
const OPENMPI_WINDOWS: [&str; 3] =
    ["--mca osc sm", "--mca osc rdma", "--mca pml ucx --mca osc ucx"];
/// Ways of OpenSHMEM.
const SHMEM: [&str; 2] = ["-x UCX_TLS=posix,cma,self", "-x UCX_TLS=sysv,cma,self"];
/// Ways of MPICH, whose builds differ by what they are made on.
const MPICH: [&str; 3] =
    ["UCX_TLS=posix,cma,self", "UCX_TLS=sysv,cma,self", "MPIR_CVAR_ENABLE_GPU=0"];

impl Peer for Mpi {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn measured_by(&self) -> &'static str {
        match self.kind {
            Kind::OpenShmem => "a program of our own (benches/peers), oshcc -O3; quiet for flush",
            _ => "programs of our own (benches/peers), mpicc -O3",
        }
    }

    fn settings(&self, group: Group, crowded: bool) -> Vec<Setting> {
        let mut settings = vec![Setting::usual()];
        match (self.kind, group) {
            (_, Group::Start) => {}
            (Kind::OpenShmem, _) => settings.extend(SHMEM.map(Setting::with_args)),
            (Kind::Mpich, _) => settings.extend(MPICH.map(Setting::with_env)),
            (Kind::OpenMpi, Group::OneSided | Group::Sums | Group::Graph | Group::Genome) => {
                settings.extend(OPENMPI_WINDOWS.map(Setting::with_args));
            }
            (Kind::OpenMpi, _) => settings.extend(OPENMPI_MESSAGES.map(Setting::with_args)),
        }
        if crowded && group != Group::Start {
            settings.push(match self.kind {
                Kind::Mpich => Setting::with_env("MPIR_CVAR_POLLS_BEFORE_YIELD=1"),
                Kind::OpenMpi | Kind::OpenShmem => {
                    Setting::with_args("--mca mpi_yield_when_idle 1")
                }
            });
        }
        settings
    }

    fn can(&self, group: Group, _: Cast) -> std::result::Result<(), &'static str> {
        match (self.kind, group) {
            (Kind::OpenShmem, Group::OneSided | Group::Collectives) => Ok(()),
            (Kind::OpenShmem, _) => Err("our program for it has no such workloads"),
            _ => Ok(()),
        }
    }

    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
        let Some(first) = order.tasks.first() else { return Ok(Vec::new()) };
        let program = self.program(first.workload().group)?;
        super::timed(order, |left| Ok(self.made(order, &program, left)))
    }

    fn command(&self, order: &Order<'_>) -> String {
        let group = order.tasks.first().map(|task| task.workload().group);
        let program = group.map_or("", |group| self.kind.program(group));
        typed(&self.made(order, &self.place.join(program), order.tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_whose_they_are() {
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        let openrte = "mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to ...\n";
        let newer = "mpiexec (Open MPI) 5.0.3\n";
        assert_eq!(Kind::Mpich.version(hydra).as_deref(), Some("4.0.2"));
        assert_eq!(Kind::OpenMpi.version(openrte).as_deref(), Some("4.1.4"));
        assert_eq!(Kind::OpenMpi.version(newer).as_deref(), Some("5.0.3"));
        assert_eq!(Kind::Mpich.version(openrte), None);
        assert_eq!(Kind::OpenMpi.version(hydra), None);
    }
}
