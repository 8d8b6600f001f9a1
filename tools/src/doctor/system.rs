//! Limits, permissions, directories and devices.

use super::Finding;
use crate::topo::bytes;
use hither::base::settings;
use hither::net::verbs;
use hither::{Error, Result};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Descriptors a rank may need beside the program's own.
const FEW_FILES: u64 = 64;
/// Locked memory that a job with few queue pairs and windows needs.
const FEW_LOCKED: u64 = 64 << 20;
/// Longest path that fits a socket address, with the name of the socket still to come.
const LONG_PATH: usize = 64;

/// Kernel and processor architecture.
pub fn name() -> String {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    format!("{} {} ({})", text(uname.sysname()), text(uname.release()), text(uname.machine()))
}

pub fn check() -> Vec<Finding> {
    vec![single_copy(), limits(), rendezvous(), rdma()]
}

fn limits() -> Finding {
    let show = |limit: Option<u64>, size: bool| match limit {
        None => "unlimited".to_owned(),
        Some(n) if size => bytes(n),
        Some(n) => n.to_string(),
    };
    let files = getrlimit(Resource::Nofile).current;
    let space = getrlimit(Resource::As).current;
    let locked = getrlimit(Resource::Memlock).current;
    let text = format!(
        "open files {}, address space {}, locked memory {}",
        show(files, false),
        show(space, true),
        show(locked, true)
    );
    // Too little address space is found by trying, see "addresses".
    match files {
        Some(n) if n < FEW_FILES => Finding::problem("limits", text, "raise it: ulimit -n 1024"),
        _ => Finding::ok("limits", text),
    }
}

/// Where sockets of named rendezvous go, and what of it exists already.
fn rendezvous() -> Finding {
    let topic = "rendezvous";
    let set = settings::RENDEZVOUS_DIR.text();
    let runtime = settings::environment("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let (dir, whose) = match (set.is_empty(), runtime) {
        (false, _) => (PathBuf::from(set), "HITHER_RENDEZVOUS_DIR"),
        (true, Some(dir)) => (PathBuf::from(dir), "XDG_RUNTIME_DIR"),
        (true, None) => (std::env::temp_dir(), "the temporary directory"),
    };
    let text = format!("{} ({whose})", dir.display());
    if dir.as_os_str().len() > LONG_PATH {
        let advice = "a socket's path has at most 107 bytes: set HITHER_RENDEZVOUS_DIR to less";
        return Finding::note(topic, format!("{text} is a long path"), advice);
    }
    let existing: &Path = dir.ancestors().find(|path| path.exists()).unwrap_or(&dir);
    use rustix::fs::Access;
    match rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(topic, text),
        Err(error) => Finding::note(
            topic,
            format!("{text} cannot be written to: {error}"),
            "launched jobs do not need it; for named rendezvous set HITHER_RENDEZVOUS_DIR",
        ),
    }
}

/// Which RDMA device would be used between nodes, and why; or why none.
fn rdma() -> Finding {
    let topic = "RDMA";
    let provider = settings::NET_PROVIDER.text();
    let config = match verbs::Config::from_settings(0) {
        Ok(config) => config,
        Err(error) => {
            return Finding::problem(topic, error.to_string(), "correct the setting, or unset it");
        }
    };
    match verbs::available(&config) {
        Ok(reason) => {
            // Memory that devices use is locked; with little of it jobs fail as they grow.
            let locked = getrlimit(Resource::Memlock).current;
            let text = format!("{reason}; locked memory {}", verbs::locked_limit());
            match locked {
                Some(limit) if limit < FEW_LOCKED => Finding::note(
                    topic,
                    text,
                    "registering memory needs more: ulimit -l unlimited, or memlock in limits.conf",
                ),
                _ => Finding::ok(topic, text),
            }
        }
        Err(why) if provider == "verbs" => {
            Finding::problem(topic, why, "HITHER_NET_PROVIDER=auto goes over sockets then")
        }
        Err(why) => Finding::ok(topic, format!("not used: {why}")),
    }
}

/// Whether ranks may read each other's private memory: tried by a child that reads this process,
/// because the common restriction allows only ancestors to read their descendants.
fn single_copy() -> Finding {
    let topic = "single copy";
    let secret = SECRET;
    let target = format!("{}:{}", std::process::id(), std::ptr::from_ref(&secret).addr());
    let child = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(["doctor", "--probe-read", &target])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
    });
    match child {
        Ok(output) if output.status.success() => Finding::ok(
            topic,
            "process_vm_readv between processes is permitted: large messages are copied once",
        ),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.trim().trim_start_matches("hither: ");
            let advice = "large messages between private buffers are copied twice; kernel.yama.ptrace_scope=0 helps";
            Finding::note(topic, why, advice)
        }
        Err(error) => {
            Finding::note(topic, format!("the probe did not start: {error}"), "see above")
        }
    }
}

const SECRET: u64 = 0x6869_7468_6572_2121;

/// The child's side of the probe: reads 8 bytes of another process.
pub fn read_other(target: &str) -> Result<ExitCode> {
    let parts = target.split_once(':').and_then(|(pid, address)| {
        Some((pid.parse::<libc::pid_t>().ok()?, address.parse::<usize>().ok()?))
    });
    let Some((pid, address)) = parts else {
        return Err(Error::invalid("--probe-read", "it is a process id, a colon and an address"));
    };
    let mut word = 0u64;
    let local = libc::iovec { iov_base: std::ptr::from_mut(&mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 8 };
    // SAFETY: the kernel writes at most 8 bytes to `word`, which lives across the call and is
    // borrowed by nothing else; the other address is resolved in the other process, and a bad
    // one is an error.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if read == 8 && word == SECRET {
        return Ok(ExitCode::SUCCESS);
    }
    let error = if read < 0 {
        std::io::Error::last_os_error()
    } else {
        std::io::Error::other("something else was read")
    };
    Err(Error::os("process_vm_readv of another process", error))
}
