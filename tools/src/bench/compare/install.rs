//! `hither bench peers`: which peers are here, and having those installed that the machine's package
//! manager and cargo offer.

use super::peer::{self, Gasnet, native};
use hither::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Arguments of `hither bench peers`.
#[derive(clap::Args)]
pub struct Args {
    /// "install" to install what the package manager offers, and to build the programs for
    /// iceoryx2 and Lamellar; without it, what is here is listed
    #[arg(value_parser = ["install"])]
    what: Option<String>,
    /// Run the commands; without it, they are only shown
    #[arg(long, requires = "what")]
    yes: bool,
    /// Where GASNet-EX is installed (configure --prefix)
    #[arg(long, value_name = "DIR")]
    gasnet: Option<PathBuf>,
}

/// A package manager: its program, how it installs, and its names of the packages.
type Manager = (&'static str, &'static [&'static str], &'static [&'static str]);

const MANAGERS: [Manager; 4] = [
    (
        "apt-get",
        &["install", "-y"],
        &["mpich", "libmpich-dev", "openmpi-bin", "libopenmpi-dev", "ucx-utils"],
    ),
    ("dnf", &["install", "-y"], &["mpich-devel", "openmpi-devel", "ucx"]),
    ("zypper", &["install", "-y"], &["mpich-devel", "openmpi4-devel", "ucx-tools"]),
    ("pacman", &["-S", "--noconfirm"], &["openmpi", "openucx"]),
];

/// The commands for a manager: one for each package, as one that is not offered must not keep the
/// others away.
fn commands((program, how, packages): Manager, root: bool) -> Vec<Vec<String>> {
    let prefix: &[&str] = if root { &[] } else { &["sudo"] };
    let words = |package: &&str| {
        let all = prefix.iter().chain([&program]).chain(how).chain([package]);
        all.map(|word| (*word).to_owned()).collect()
    };
    packages.iter().map(words).collect()
}

/// Runs `hither bench peers`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let gasnet = args.gasnet.as_deref().map(Gasnet::find).transpose()?;
    let (found, absent) = peer::find(Path::new(""), gasnet);
    for peer in &found {
        println!("{:10} {}", peer.name(), peer.version());
    }
    for peer in &absent {
        println!("{:10} not here: {}", peer.name, peer.why);
    }
    if args.what.is_none() {
        return Ok(ExitCode::SUCCESS);
    }
    let manager = MANAGERS.into_iter().find(|(name, ..)| peer::on_path(name).is_some());
    if manager.is_none() {
        let known = MANAGERS.map(|(name, ..)| name).join(", ");
        println!("none of {known} is here; MPICH, Open MPI and UCX are to be installed by hand");
    }
    let root = rustix::process::geteuid().is_root();
    let mut failed = match native::home() {
        Some(home) => !native::install(&home, args.yes)?,
        None => {
            println!("without a home there is no place for programs for {}", native::Kind::names());
            false
        }
    };
    for words in manager.map_or_else(Vec::new, |manager| commands(manager, root)) {
        println!("{}", words.join(" "));
        if args.yes {
            let status = Command::new(&words[0]).args(&words[1..]).status();
            let status = status.map_err(|e| Error::os("starting the package manager", e))?;
            if !status.success() {
                eprintln!("hither: {}: {status}", words.join(" "));
                failed = true;
            }
        }
    }
    if !args.yes {
        println!("these commands run with --yes");
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_a_command_by_root_or_sudo() {
        let all = commands(MANAGERS[0], false);
        assert_eq!(all[0].join(" "), "sudo apt-get install -y mpich");
        assert_eq!(commands(MANAGERS[0], true)[4].join(" "), "apt-get install -y ucx-utils");
    }
}
