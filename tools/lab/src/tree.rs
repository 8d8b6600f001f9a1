//! Programs of the unpacked packages, run on this machine: by their own dynamic linker and with
//! their own libraries, so that it does not matter which this machine has.

use crate::error::{Error, Result};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LINKERS: [&str; 2] =
    ["usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"];

/// The unpacked packages.
pub struct Tree(pub PathBuf);

impl Tree {
    /// `program` (a path in the tree) under `name`, its arguments still to be given.
    pub fn command(&self, program: &str, name: &str) -> Result<Command> {
        let linker = LINKERS.iter().map(|path| self.0.join(path)).find(|path| path.exists());
        let linker = linker.ok_or_else(|| Error::Failed("the packages have no linker".into()))?;
        let mut command = Command::new(linker);
        command.args(["--argv0", name, "--library-path"]).arg(self.0.join(LIBRARIES));
        command.arg(self.0.join(program));
        Ok(command)
    }

    /// What `program` makes of the file `input`: its standard output.
    pub fn filter(&self, program: &str, input: &Path) -> Result<Vec<u8>> {
        let name = program.rsplit('/').next().unwrap_or(program);
        process::output(self.command(program, name)?.arg("-dc").arg(input))
    }
}
