//! Peers written in Rust: programs of our own (`benches/peers/rust`, outside the workspace), which
//! `hither bench peers install` builds once, as what they depend on takes minutes.

use super::{Order, Peer, Setting, on_path, typed};
use crate::bench::compare::lines::Outcome;
use crate::bench::compare::workload::{Cast, Group, Task};
use hither::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// iceoryx2.
    Iceoryx2,
    /// Lamellar.
    Lamellar,
}

/// The crate's files.
const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../../../../../benches/peers/rust/Cargo.toml")),
    ("Cargo.lock", LOCK),
    ("src/lib.rs", include_str!("../../../../../benches/peers/rust/src/lib.rs")),
    ("src/bin/iceoryx2.rs", include_str!("../../../../../benches/peers/rust/src/bin/iceoryx2.rs")),
    (
        "src/bin/lamellar/main.rs",
        include_str!("../../../../../benches/peers/rust/src/bin/lamellar/main.rs"),
    ),
    (
        "src/bin/lamellar/launch.rs",
        include_str!("../../../../../benches/peers/rust/src/bin/lamellar/launch.rs"),
    ),
    (
        "src/bin/lamellar/memory.rs",
        include_str!("../../../../../benches/peers/rust/src/bin/lamellar/memory.rs"),
    ),
    (
        "src/bin/lamellar/messages.rs",
        include_str!("../../../../../benches/peers/rust/src/bin/lamellar/messages.rs"),
    ),
];
const LOCK: &str = include_str!("../../../../../benches/peers/rust/Cargo.lock");

/// The folder for the crate and what is built of it: in the user's folder for what can be made again.
pub fn home() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("hither").join("peers"))
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Iceoryx2, Kind::Lamellar];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Iceoryx2 => "iceoryx2",
            Kind::Lamellar => "Lamellar",
        }
    }

    /// All names.
    pub fn names() -> String {
        Kind::ALL.map(Kind::name).join(" and ")
    }

    /// Its crate, and our program and its feature.
    fn program(self) -> &'static str {
        match self {
            Kind::Iceoryx2 => "iceoryx2",
            Kind::Lamellar => "lamellar",
        }
    }

    /// The version that is built.
    fn version(self) -> Option<&'static str> {
        let mut lines = LOCK.lines();
        lines.find(|line| *line == format!("name = \"{}\"", self.program()))?;
        lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
    }

    /// The command that builds it in `home`.
    fn build(self, cargo: &Path, home: &Path) -> Command {
        let program = self.program();
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--locked", "--features", program, "--bin", program]);
        // Where the build goes must not depend on who builds.
        command.current_dir(home).env("CARGO_TARGET_DIR", home.join("target"));
        command
    }
}

/// Shows the commands that build the programs in `home`, or runs them; whether all did.
pub fn install(home: &Path, runs: bool) -> Result<bool> {
    let Some(cargo) = on_path("cargo") else {
        println!("without cargo, the programs for {} are not built", Kind::names());
        return Ok(true);
    };
    let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
    if runs {
        for (name, text) in FILES {
            let file = home.join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(home))
                .map_err(os("making a folder for peers' programs"))?;
            std::fs::write(file, text).map_err(os("writing a peer's source"))?;
        }
    }
    let mut all = true;
    for kind in Kind::ALL {
        let mut command = kind.build(&cargo, home);
        println!("{}", typed(&command));
        if runs {
            let status = command.status().map_err(os("starting cargo"))?;
            if !status.success() {
                eprintln!("hither: {} was not built: {status}", kind.name());
                all = false;
            }
        }
    }
    Ok(all)
}

/// See the module.
pub struct Native {
    kind: Kind,
    program: PathBuf,
}

impl Native {
    /// Looks for its program in `home`.
    pub fn find(kind: Kind, home: Option<&Path>) -> std::result::Result<Native, String> {
        let program = home.map(|home| home.join("target/release").join(kind.program()));
        let program = program.filter(|program| program.is_file());
        let why = || "not built; `hither bench peers install --yes` does that".to_owned();
        Ok(Native { kind, program: program.ok_or_else(why)? })
    }

    fn made(&self, order: &Order<'_>, left: &[Task]) -> Command {
        let mut command = Command::new(&self.program);
        if self.kind == Kind::Lamellar {
            command.env("LAMELLAR_NUM_PES", order.ranks().to_string());
        }
        command.args(order.effort()).args(left.iter().map(|task| task.item()));
        command.stdin(Stdio::null());
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        command
    }
}

/// Ways of Lamellar's active messages. Its own way of executing them is the fastest by far everywhere.
const LAMELLAR: [&str; 5] = [
    "LAMELLAR_CMD_QUEUE=puteager",
    "LAMELLAR_CMD_QUEUE=geteager",
    "LAMELLAR_BATCHER=direct",
    "LAMELLAR_AM_SIZE_THRESHOLD=0",
    "LAMELLAR_THREADS=2",
];

impl Peer for Native {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn version(&self) -> &str {
        self.kind.version().unwrap_or("of no known version")
    }

    fn measured_by(&self) -> &'static str {
        match self.kind {
            Kind::Iceoryx2 => {
                "a program of our own (benches/peers/rust): publish and subscribe, one copy into memory \
                 that is lent, read where it lies"
            }
            Kind::Lamellar => {
                "a program of our own (benches/peers/rust) over its shared memory: active messages, memory \
                 regions, an array of atomics, with a core's share for each process as its own script has it"
            }
        }
    }

    fn settings(&self, group: Group, _: bool) -> Vec<Setting> {
        let mut settings = vec![Setting::usual()];
        let messages = matches!(group, Group::Messages | Group::Pairs | Group::Bandwidth);
        if self.kind == Kind::Lamellar && messages {
            settings.extend(LAMELLAR.map(Setting::with_env));
        }
        settings
    }

    fn can(&self, group: Group, cast: Cast) -> std::result::Result<(), &'static str> {
        match (self.kind, group) {
            (Kind::Iceoryx2, Group::Messages | Group::Pairs) if cast.ranks > 2 => {
                Err("our program for it is one of two processes")
            }
            (Kind::Iceoryx2, Group::Messages | Group::Pairs) => Ok(()),
            (
                Kind::Lamellar,
                Group::Messages
                | Group::Pairs
                | Group::Bandwidth
                | Group::OneSided
                | Group::Collectives
                | Group::Start,
            ) => Ok(()),
            _ => Err("our program for it has no such workloads"),
        }
    }

    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
        super::timed(order, |left| Ok(self.made(order, left)))
    }

    fn command(&self, order: &Order<'_>) -> String {
        typed(&self.made(order, order.tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare::workload;

    #[test]
    fn versions_are_those_of_the_lock() {
        for kind in Kind::ALL {
            let version = kind.version().unwrap();
            assert!(version.split('.').count() == 3, "{version}");
            assert!(FILES[0].1.contains(&format!("name = \"{}\"", kind.program())));
        }
    }

    /// Workloads of the groups a peer can do that its program has not.
    fn lacking(kind: Kind) -> &'static [&'static str] {
        match kind {
            // Those with buffers left alone are for UCX's own loops.
            Kind::Iceoryx2 => &["request", "latency-still", "bandwidth-still"],
            // It has neither locks nor epochs; what it calls an exchange of all with all is a gathering.
            Kind::Lamellar => &[
                "latency-still",
                "bandwidth-still",
                "get-accumulate",
                "get-accumulate-rate",
                "lock-shared",
                "lock-exclusive",
                "lock-contended",
                "fence",
                "pscw",
                "signal",
                "signal-bandwidth",
                "alltoall",
            ],
        }
    }

    #[test]
    fn workloads_have_the_same_names_everywhere() {
        for kind in Kind::ALL {
            let own =
                |file: &&(&str, &str)| file.0.starts_with(&format!("src/bin/{}", kind.program()));
            let source: String = FILES.iter().filter(own).map(|(_, text)| *text).collect();
            let native = Native { kind, program: PathBuf::new() };
            let cast = Cast { ranks: 2, cores: 2 };
            for workload in workload::ALL {
                let named = source.contains(&format!("\"{}\"", workload.name));
                let can = native.can(workload.group, cast).is_ok();
                let wanted = can && !lacking(kind).contains(&workload.name);
                assert_eq!(named, wanted, "{}: {}", kind.name(), workload.name);
            }
        }
    }

    #[test]
    fn all_sources_are_installed() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers/rust/src");
        let mut dirs = vec![dir.clone()];
        while let Some(next) = dirs.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let name = Path::new("src").join(path.strip_prefix(&dir).unwrap());
                assert!(FILES.iter().any(|(file, _)| Path::new(file) == name), "{name:?}");
            }
        }
    }

    #[test]
    fn only_lamellar_is_told_how_many_start() {
        let cast = Cast { ranks: 4, cores: 4 };
        let tasks = workload::tasks(Group::Messages, cast, true);
        let setting = Setting::with_env("LAMELLAR_BATCHER=direct");
        let patience = std::time::Duration::from_secs(1);
        let order = Order {
            tasks: &tasks[..1],
            setting: &setting,
            batch: 1e4,
            batches: 2,
            patience,
            crowded: false,
        };
        let command = |kind| Native { kind, program: "/x/lamellar".into() }.command(&order);
        assert_eq!(
            command(Kind::Lamellar),
            "LAMELLAR_BATCHER=direct LAMELLAR_NUM_PES=4 lamellar 10000 2 latency:8"
        );
        assert!(!command(Kind::Iceoryx2).contains("NUM_PES"));
    }

    #[test]
    fn what_is_not_built_is_left_out() {
        let home = tempfile::tempdir().unwrap();
        let why = Native::find(Kind::Iceoryx2, Some(home.path())).err().unwrap();
        assert!(why.contains("peers install"), "{why}");
        let programs = home.path().join("target/release");
        std::fs::create_dir_all(&programs).unwrap();
        std::fs::write(programs.join("iceoryx2"), "").unwrap();
        assert!(Native::find(Kind::Iceoryx2, Some(home.path())).is_ok());
        assert!(Native::find(Kind::Iceoryx2, None).is_err());
        let command = typed(&Kind::Iceoryx2.build(Path::new("cargo"), home.path()));
        assert!(
            command.ends_with("cargo build --release --locked --features iceoryx2 --bin iceoryx2")
        );
    }
}
