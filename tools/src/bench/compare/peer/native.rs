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
}

/// The crate's files.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../../../../benches/peers/rust/Cargo.toml")),
    ("Cargo.lock", LOCK),
    ("src/lib.rs", include_str!("../../../../../benches/peers/rust/src/lib.rs")),
    ("src/bin/iceoryx2.rs", include_str!("../../../../../benches/peers/rust/src/bin/iceoryx2.rs")),
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
    pub const ALL: [Kind; 1] = [Kind::Iceoryx2];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Iceoryx2 => "iceoryx2",
        }
    }

    /// Its crate, and our program and its feature.
    fn program(self) -> &'static str {
        match self {
            Kind::Iceoryx2 => "iceoryx2",
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
        println!("without cargo, the program for iceoryx2 is not built");
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
        command.args(order.effort()).args(left.iter().map(|task| task.item()));
        command.stdin(Stdio::null());
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        command
    }
}

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
        }
    }

    fn settings(&self, _: Group, _: bool) -> Vec<Setting> {
        vec![Setting::usual()]
    }

    fn can(&self, group: Group, cast: Cast) -> std::result::Result<(), &'static str> {
        match (self.kind, group) {
            (Kind::Iceoryx2, Group::Messages | Group::Pairs) if cast.ranks > 2 => {
                Err("our program for it is one of two processes")
            }
            (Kind::Iceoryx2, Group::Messages | Group::Pairs) => Ok(()),
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

    #[test]
    fn versions_are_those_of_the_lock() {
        for kind in Kind::ALL {
            let version = kind.version().unwrap();
            assert!(version.split('.').count() == 3, "{version}");
            assert!(FILES[0].1.contains(&format!("name = \"{}\"", kind.program())));
        }
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
