//! A program of perftest on two hosts: the server's part by rank 1, the client's by rank 0, which has
//! the figures.
//!
//! ```text
//! rank 0                                 rank 1
//!   order (rounds)               --->    finds a port, starts the server, waits until it listens
//!                                <---    READY: the port; or 0, and what the server has said
//!   starts the client, waits for its end
//!   OVER                         --->    waits for the server's end, or ends it
//! ```
//! Meanwhile neither rank waits in the library, where it would poll: they look after their programs
//! now and then. Programs end with their ranks, however those end.

use super::VERBS;
use super::{figures, tied};
use crate::bench::compare::on_path;
use hither::base::settings::{NET_ADDRESS, NET_PROVIDER};
use hither::net::verbs::{self, Chosen};
use hither::{Error, Job, Op, Rank, Result};
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program and its options, but for those that say where and how much.
#[derive(Clone, Copy)]
pub struct Test(pub &'static str);

impl Test {
    fn words(&self) -> (&'static str, impl Iterator<Item = &'static str>) {
        let mut words = self.0.split_whitespace();
        (words.next().unwrap_or_default(), words)
    }
}

/// Tags beside those of orders and sides.
const READY: u32 = 0x5245;
const OVER: u32 = 0x4f56;

/// For which a server may take to listen, a client to end, and a server to end after its client.
const LISTEN: Duration = Duration::from_secs(60);
const RUN: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(5);

/// Between two looks at a program.
const LOOK: Duration = Duration::from_millis(10);

/// What is kept of what a program said that went wrong.
const WORDS: usize = 400;

/// What this rank has of both hosts.
pub struct Here {
    job: Arc<Job>,
    device: Result<Chosen, String>,
    /// Rank 1's address.
    server: String,
}

impl Here {
    /// Collective.
    pub fn new(job: &Arc<Job>) -> Result<Here> {
        let provider = NET_PROVIDER.text();
        let device = if provider == VERBS {
            verbs::chosen(&verbs::Config::from_settings(0)?)
        } else {
            Err(format!("HITHER_NET_PROVIDER is {provider}, perftest needs {VERBS}"))
        };
        let mut address = [0u8; 64];
        if job.rank() == Rank(1) {
            // By which the launcher has this rank use the network: one that other hosts reach.
            let text = NET_ADDRESS.text();
            let room = address.get_mut(..text.len());
            room.ok_or_else(|| {
                Error::invalid(NET_ADDRESS.name, format!("\"{text}\" is no address"))
            })?
            .copy_from_slice(text.as_bytes());
        }
        job.team().broadcast(Rank(1), &mut address)?;
        let server = String::from_utf8_lossy(&address).trim_end_matches('\0').to_owned();
        Ok(Here { job: job.clone(), device, server })
    }

    /// Why there is nothing to compare with, if so. Collective.
    pub fn lacks(&self, test: &Test) -> Result<Option<String>> {
        let (program, _) = test.words();
        let without = [u32::from(self.device.is_err()), u32::from(on_path(program).is_none())];
        let mut all = without;
        self.job.team().allreduce(Op::Max, &mut all)?;
        Ok(match (all, &self.device) {
            ([0, 0], _) => None,
            ([0, _], _) => {
                Some("not installed on both hosts (Debian's package is perftest)".into())
            }
            (_, Err(why)) => Some(why.clone()),
            (_, Ok(_)) => Some("no RDMA device on the other host".into()),
        })
    }

    /// Rank 0, after its order: nanoseconds of one of `count` operations; or what went wrong.
    pub fn ask(&self, test: &Test, size: usize, count: u64) -> Result<Result<f64, String>> {
        let mut ready = [0u8; 2 + WORDS];
        let told = self.job.team().recv(Rank(1), READY, &mut ready)?.elements;
        let port = u16::from_le_bytes([ready[0], ready[1]]);
        if port == 0 {
            let said = String::from_utf8_lossy(&ready[2.min(told)..told]);
            return Ok(Err(format!("the server: {said}")));
        }
        let figure = self.client(test, size, count, port);
        self.job.team().send(Rank(1), OVER, &[u8::from(figure.is_err())])?;
        Ok(figure)
    }

    fn client(&self, test: &Test, size: usize, count: u64, port: u16) -> Result<f64, String> {
        let mut client = self.program(test, size, count, port)?;
        client.arg(&self.server);
        let mut client = Program::start(client)?;
        let until = Instant::now() + RUN;
        while !client.has_ended()? {
            if Instant::now() > until {
                return Err(format!("it did not end within {RUN:?}"));
            }
            std::thread::sleep(LOOK);
        }
        let (well, said) = client.said();
        if !well {
            return Err(said);
        }
        figures::nanoseconds(&said, size).map_err(|why| format!("{why}: {}", short(&said)))
    }

    /// Rank 1, at an order: the server's part.
    pub fn serve(&self, test: &Test, size: usize, count: u64) -> Result<()> {
        let team = self.job.team();
        let (port, mut server) = match self.server(test, size, count) {
            Ok(server) => server,
            Err(why) => {
                let words = [&[0, 0], short(&why).as_bytes()].concat();
                return team.send(Rank(0), READY, &words);
            }
        };
        let mut over = team.irecv(Rank(0), OVER, vec![0u8])?;
        team.send(Rank(0), READY, &port.to_le_bytes())?;
        // The client's end is the limit; should rank 0 die, the test says so.
        while !over.test()? {
            std::thread::sleep(LOOK);
        }
        let (failed, _) = over.wait()?;
        let until = Instant::now() + END;
        // One whose client has failed waits for another one.
        while failed == [0] && !server.has_ended().unwrap_or(true) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// A server that listens, and its port.
    fn server(&self, test: &Test, size: usize, count: u64) -> Result<(u16, Program), String> {
        let port = free_port().map_err(|e| format!("no port is free: {e}"))?;
        let mut server = Program::start(self.program(test, size, count, port)?)?;
        let until = Instant::now() + LISTEN;
        while !listens(port) {
            if server.has_ended()? {
                return Err(server.said().1);
            }
            if Instant::now() > until {
                return Err(format!("it does not listen after {LISTEN:?}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok((port, server))
    }

    /// What both sides are called with.
    fn program(&self, test: &Test, size: usize, count: u64, port: u16) -> Result<Command, String> {
        let device = self.device.as_ref()?;
        let (program, options) = test.words();
        let mut command = tied::command(program).map_err(|e| e.to_string())?;
        command.args(options).arg("-F").args(["-d", &device.device]);
        command.args(["-i", &device.port.to_string(), "-p", &port.to_string()]);
        command.args(["-n", &count.to_string()]);
        if let Some(index) = device.gid {
            command.args(["-x", &index.to_string()]);
        }
        // Atomics have one size, which is not to be said.
        if !program.contains("atomic") {
            command.args(["-s", &size.to_string()]);
        }
        Ok(command)
    }
}

/// A port on which nobody listens.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("0.0.0.0", 0))?.local_addr()?.port())
}

/// Whether somebody listens on a port, by what the kernel says: to connect would take a server's only
/// client from it.
fn listens(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    tables.iter().flatten().any(|table| listening(table, port))
}

/// The same of a table: a line's second word ends in the port, its fourth is the state.
fn listening(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some("0A")
    })
}

/// The end of what a program said, where it says what went wrong, in one line.
fn short(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|l| l.chars().any(char::is_alphanumeric));
    let line = lines.collect::<Vec<_>>().join("; ");
    let mut from = line.len().saturating_sub(WORDS);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    line[from..].to_owned()
}

/// A program that runs, and that does not outlive this.
struct Program(Child);

impl Program {
    fn start(mut command: Command) -> Result<Program, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Program).map_err(|e| format!("it does not start: {e}"))
    }

    fn has_ended(&mut self) -> Result<bool, String> {
        let status = self.0.try_wait().map_err(|e| format!("it cannot be waited for: {e}"))?;
        Ok(status.is_some())
    }

    /// Of one that has ended: whether well, and what it has said; if not well, in short.
    fn said(mut self) -> (bool, String) {
        // Pages at most, which the pipes have kept.
        let (mut said, mut wrong) = (Vec::new(), Vec::new());
        self.0.stdout.take().into_iter().for_each(|mut out| drop(out.read_to_end(&mut said)));
        self.0.stderr.take().into_iter().for_each(|mut err| drop(err.read_to_end(&mut wrong)));
        let status = self.0.wait();
        if status.as_ref().is_ok_and(|status| status.success()) {
            return (true, String::from_utf8_lossy(&said).into_owned());
        }
        said.extend(wrong);
        let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        (false, format!("{how}: {}", short(&String::from_utf8_lossy(&said))))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended is no matter.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Program::start(command).unwrap()
    }

    fn ended(script: &str) -> (bool, String) {
        let mut program = shell(script);
        while !program.has_ended().unwrap() {
            std::thread::sleep(LOOK);
        }
        program.said()
    }

    #[test]
    fn programs_say_how_they_ended_and_end_with_their_owner() {
        assert_eq!(ended("echo a; echo b >&2"), (true, "a\n".into()));
        let (well, said) = ended("echo a; echo ---- >&2; echo Failed to modify >&2; exit 3");
        assert!(!well && said == "exit status: 3: a; Failed to modify", "{said}");
        let program = shell("exec sleep 1000");
        let process = std::path::PathBuf::from(format!("/proc/{}", program.0.id()));
        assert!(process.exists());
        drop(program);
        assert!(!process.exists());
        let missing = Program::start(Command::new("/nonexistent"));
        assert!(missing.is_err_and(|why| why.contains("does not start")));
    }

    #[test]
    fn what_listens_is_seen_without_a_connection() {
        let socket = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(listens(port));
        drop(socket);
        assert!(!listens(port));
        // A connection from that port, and one to it, are something else.
        let line = "   0: 0100007F:48A8 0100007F:0016 01 00000000:00000000 00:00000000 00000000";
        assert!(!listening(line, 0x48a8) && !listening(line, 0x16));
        let line = "   0: 00000000:48A8 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        assert!(listening(line, 0x48a8) && !listening(line, 0x8a8) && !listening(line, 0));
    }

    #[test]
    fn the_end_of_long_words_is_kept() {
        let long = format!("{}\n -----\n ä{} end\n", "x".repeat(WORDS), "y".repeat(WORDS - 5));
        let short = short(&long);
        assert!(short.len() <= WORDS && short.ends_with("y end"), "{short}");
        assert_eq!(super::short("one\n\n  two \n"), "one; two");
    }
}
