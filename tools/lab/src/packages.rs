//! Debian packages, by the machine's own package manager and from wherever it is set up to take
//! them, downloaded and unpacked but never installed. It is told that nothing is installed, so that
//! all a package needs comes along, whatever this machine has. It checks what it downloads.

use crate::error::{Error, Result};
use crate::process::{output, tie};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What guests and their emulator are made of.
pub const WANTED: &[&str] = &[
    "linux-image-amd64",
    "qemu-system-x86",
    "seabios",
    "busybox-static",
    "kmod",
    "xz-utils",
    "zstd",
    "iproute2",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
];

/// Brings the packages into `store` and unpacks them: the kernel's into `kernel`, all others into
/// `tree`. `scratch` is an empty directory. Packages that are in `store` are not downloaded again;
/// others than these are removed from it. Takes some 120 MB of download and 620 MB of room.
pub fn fetch(store: &Path, scratch: &Path, tree: &Path, kernel: &Path) -> Result<()> {
    for tool in ["apt-get", "dpkg-deb", "tar"] {
        let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            let why = format!("packages are fetched with Debian's apt, and {tool} does not run");
            return Err(Error::Unavailable(why));
        }
    }
    make(&store.join("partial"))?;
    let apt = Apt::new(scratch)?;
    // The machine's own lists, unless it has none, or they are too old.
    let first = apt.download(store, &[]);
    let names = match first {
        Ok(names) => names,
        Err(first) => apt.with_new_lists(store).map_err(|second| {
            Error::Unavailable(format!(
                "the packages of its guests are not to be had (apt-get: {}), and no earlier \
                 download is there; where the package registry is reached, `hither-lab fetch` \
                 brings them",
                if first.to_string() == second.to_string() {
                    first.to_string()
                } else {
                    format!("{first}; with new lists: {second}")
                }
            ))
        })?,
    };
    for entry in std::fs::read_dir(store).map_err(|e| Error::file(store, e))?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().ends_with(".deb") && !names.contains(&name) {
            // What remains is only in the way.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    merged_usr(tree)?;
    make(kernel)?;
    for name in &names {
        let text = name.to_string_lossy();
        let is_kernel = text.strip_prefix("linux-image-").is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) // the others only depend on it
        });
        unpack(&store.join(name), if is_kernel { kernel } else { tree })?;
    }
    Ok(())
}

fn make(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|e| Error::file(directory, e))
}

/// Directories as Debian has them: `/bin` is in `/usr`, and so on.
fn merged_usr(tree: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        make(&tree.join("usr").join(name))?;
        let link = tree.join(name);
        std::os::unix::fs::symlink(format!("usr/{name}"), &link)
            .map_err(|e| Error::file(&link, e))?;
    }
    Ok(())
}

fn unpack(package: &Path, into: &Path) -> Result<()> {
    let mut archive = Command::new("dpkg-deb");
    archive.arg("--fsys-tarfile").arg(package).stdin(Stdio::null()).stdout(Stdio::piped());
    tie(&mut archive, Vec::new());
    let mut archive = archive.spawn().map_err(|e| Error::system("dpkg-deb", e))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "--keep-directory-symlink", "-C"]).arg(into);
    tar.stdin(archive.stdout.take().map_or_else(Stdio::null, Stdio::from));
    tie(&mut tar, Vec::new());
    let tar = tar.status().map_err(|e| Error::system("tar", e));
    let archive = archive.wait().map_err(|e| Error::system("dpkg-deb", e))?;
    if archive.success() && tar?.success() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} cannot be unpacked", package.display())))
}

/// The package manager with a state of its own.
struct Apt {
    scratch: PathBuf,
    options: Vec<OsString>,
}

impl Apt {
    fn new(scratch: &Path) -> Result<Apt> {
        let status = scratch.join("status");
        std::fs::write(&status, "").map_err(|e| Error::file(&status, e))?;
        let mut apt = Apt { scratch: scratch.to_owned(), options: Vec::new() };
        apt.set("Dir::State::status", status.as_os_str());
        apt.set("Dir::State::extended_states", scratch.join("extended").as_os_str());
        apt.set("Dir::Log", scratch.as_os_str());
        apt.set("Debug::NoLocking", "1".as_ref());
        apt.set("Dir::Cache::pkgcache", "".as_ref());
        apt.set("Dir::Cache::srcpkgcache", "".as_ref());
        // The user it would change to may not write here.
        apt.set("APT::Sandbox::User", "".as_ref());
        apt.set("APT::Install-Recommends", "0".as_ref());
        apt.set("Acquire::Retries", "2".as_ref());
        apt.set("Acquire::http::Timeout", "20".as_ref());
        apt.set("Acquire::https::Timeout", "20".as_ref());
        Ok(apt)
    }

    fn set(&mut self, name: &str, value: &std::ffi::OsStr) {
        self.options.push("-o".into());
        let mut option = OsString::from(format!("{name}="));
        option.push(value);
        self.options.push(option);
    }

    fn get(&self, more: &[OsString], archives: &Path) -> Command {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-y"]).args(&self.options).args(more);
        let mut option = OsString::from("Dir::Cache::archives=");
        option.push(archives);
        command.arg("-o").arg(option).env("LC_ALL", "C");
        command
    }

    /// Downloads what is not in `store` yet; file names of all that is wanted.
    fn download(&self, store: &Path, more: &[OsString]) -> Result<Vec<OsString>> {
        // What it would download had it nothing: `'URI' file size hash` a line.
        let nothing = self.scratch.join("nothing");
        make(&nothing.join("partial"))?;
        let list = output(self.get(more, &nothing).args(["--print-uris", "install"]).args(WANTED))?;
        let list = String::from_utf8_lossy(&list);
        let names: Vec<OsString> = list
            .lines()
            .filter(|line| line.starts_with('\''))
            .filter_map(|line| line.split_whitespace().nth(1).map(OsString::from))
            .collect();
        if names.is_empty() {
            return Err(Error::Failed("apt-get names no packages".into()));
        }
        output(self.get(more, store).args(["--download-only", "install"]).args(WANTED))?;
        match names.iter().find(|name| !store.join(name).exists()) {
            None => Ok(names),
            Some(name) => Err(Error::Failed(format!("{} did not come", name.display()))),
        }
    }

    /// The same with lists that are fetched for it.
    fn with_new_lists(&self, store: &Path) -> Result<Vec<OsString>> {
        let lists = self.scratch.join("lists");
        make(&lists.join("partial"))?;
        let mut option = OsString::from("Dir::State::lists=");
        option.push(&lists);
        let more = ["-o".into(), option];
        output(self.get(&more, store).arg("update"))?;
        self.download(store, &more)
    }
}
