//! UCX: its own program, a server and a client of which tell latencies and rates of what MPI
//! libraries are made of. The loops are its own: back and forth where the test's name says so, else
//! one operation at a time.

use super::{Order, Peer, Setting, on_path, typed};
use crate::bench::compare::child::{self, End};
use crate::bench::compare::lines::{Figure, Outcome};
use crate::bench::compare::workload::{Cast, Group, Task};
use hither::{Error, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Its name.
pub const NAME: &str = "UCX";
const PROGRAM: &str = "ucx_perftest";

/// Latencies of so many bytes and more are other ones than ours: its buffers, which nobody writes to, stay
/// in the caches of both cores, where ours go to and fro. See the workloads that leave theirs alone.
const LARGE: usize = 8 << 10;

/// A column of its last line, and what of it a figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    /// Microseconds, times this many nanoseconds.
    Latency(f64),
    /// MiB a second.
    Bandwidth,
    /// Operations a second.
    Rate,
}

/// Its tests: our workload, its test, operations under way (0: as many as it likes), what of it.
const TESTS: [(&str, &str, u32, Column); 15] = [
    ("latency", "tag_lat", 0, Column::Latency(1e3)),
    ("latency-still", "tag_lat", 0, Column::Latency(1e3)),
    ("rate", "tag_bw", 0, Column::Rate),
    ("rate-pairs", "tag_bw", 0, Column::Rate),
    // One way, where ours is there and back.
    ("request", "ucp_am_lat", 0, Column::Latency(2e3)),
    ("bandwidth-still", "tag_bw", 0, Column::Bandwidth),
    ("put", "ucp_put_lat", 0, Column::Latency(1e3)),
    ("signal", "ucp_put_lat", 0, Column::Latency(1e3)),
    ("get", "ucp_get", 1, Column::Latency(1e3)),
    ("put-rate", "ucp_put_bw", 0, Column::Rate),
    ("get-rate", "ucp_get", 0, Column::Rate),
    ("fetch-and-op", "ucp_fadd", 1, Column::Latency(1e3)),
    ("compare-and-swap", "ucp_cswap", 1, Column::Latency(1e3)),
    ("single-fetch-and-op", "ucp_fadd", 1, Column::Latency(1e3)),
    ("single-compare-and-swap", "ucp_cswap", 1, Column::Latency(1e3)),
];

impl Column {
    /// The figure in its final line: iterations, latency (median, average, overall), bandwidth and
    /// rate (average, overall).
    fn of(self, said: &str) -> Option<f64> {
        let line = said.lines().rev().find(|line| {
            let mut words = line.split_whitespace();
            words.next().is_some_and(|first| first.parse::<u64>().is_ok()) && words.count() >= 7
        })?;
        let fields: Vec<&str> = line.split_whitespace().collect();
        // From the right: what is left of the figures differs between versions.
        let at = |from_right: usize| fields.iter().rev().nth(from_right)?.parse::<f64>().ok();
        match self {
            Column::Latency(times) => at(4).map(|us| us * times),
            Column::Bandwidth => at(2).map(|mib| mib * 1.048_576e-3),
            Column::Rate => at(0).map(|rate| rate * 1e-6),
        }
        .filter(|figure| *figure > 0.0)
    }
}

/// See the module.
pub struct Ucx {
    program: PathBuf,
    version: String,
}

impl Ucx {
    /// Looks for it.
    pub fn find() -> std::result::Result<Ucx, String> {
        let program = on_path(PROGRAM).ok_or_else(|| format!("no {PROGRAM}"))?;
        let said = Command::new("ucx_info").arg("-v").stdin(Stdio::null()).output();
        let said = said.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
        let version = said.ok().and_then(|said| {
            let words = said.lines().find(|line| line.to_lowercase().contains("version"))?;
            words.split_whitespace().last().map(str::to_owned)
        });
        Ok(Ucx { program, version: version.unwrap_or_else(|| "of no known version".into()) })
    }

    fn side(&self, order: &Order<'_>, port: u16, core: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-p", &port.to_string(), "-c", &core.to_string()]);
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        command.env("UCX_WARN_UNUSED_ENV_VARS", "n");
        command
    }

    fn client(&self, order: &Order<'_>, port: u16, task: Task) -> Option<(Command, Column)> {
        let name = task.workload().name;
        let (_, test, outstanding, column) = TESTS.into_iter().find(|(ours, ..)| *ours == name)?;
        if name == "latency" && task.size >= LARGE {
            return None;
        }
        // It counts operations, not time: as many as make some batches at its usual speeds.
        let each = 100.0 + task.size as f64 / 8.0;
        let count = (order.batch * order.batches as f64 / each).clamp(20.0, 1e6);
        let mut command = self.side(order, port, 0);
        command.args(["127.0.0.1", "-f", "-t", test, "-s", &task.size.to_string()]);
        command.args(["-n", &format!("{count:.0}"), "-w", &format!("{:.0}", count / 4.0)]);
        if outstanding > 0 {
            command.args(["-O", &outstanding.to_string()]);
        }
        Some((command, column))
    }

    fn measure(&self, order: &Order<'_>, task: Task) -> Result<Outcome> {
        let port = free_port()?;
        let Some((mut client, column)) = self.client(order, port, task) else {
            return Ok(Err(format!("{PROGRAM} has no such test")));
        };
        let mut server = Server::start(self.side(order, port, 1))?;
        if !server.listens(port, order.patience) {
            return Ok(Err("its server did not begin".into()));
        }
        let mut said = String::new();
        let end = child::run(&mut client, order.patience, |line| {
            said.push_str(line);
            said.push('\n');
        })?;
        Ok(match end {
            End::Well => column
                .of(&said)
                .map(Figure::from)
                .ok_or_else(|| "it ended without a figure".to_owned()),
            End::Badly(how) => Err(how),
            End::Silent(patience) => {
                Err(format!("hung: nothing for {:.0} s, then ended", patience.as_secs_f64()))
            }
        })
    }
}

/// The server's process, which ends with this.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Result<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Server).map_err(|e| Error::os("starting ucx_perftest", e))
    }

    /// Waits until somebody listens on the port. It is looked up, not tried: the server takes the
    /// first connection for its client.
    fn listens(&mut self, port: u16, patience: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < patience {
            if listening(port) {
                return true;
            }
            if !matches!(self.0.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended by itself or is not wanted any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the kernel's tables have a listener on the port.
fn listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        std::fs::read_to_string(table).unwrap_or_default().lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&suffix))
                && fields.nth(1) == Some(LISTEN)
        })
    })
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|e| Error::os("looking for a free port", e))
}

impl Peer for Ucx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn measured_by(&self) -> &'static str {
        "ucx_perftest, its own loops (put: there and back, no flush)"
    }

    fn settings(&self, _: Group, _: bool) -> Vec<Setting> {
        let mut settings = vec![Setting::usual()];
        settings.extend(["UCX_TLS=posix,cma,self", "UCX_TLS=sysv,cma,self"].map(Setting::with_env));
        settings
    }

    fn can(&self, group: Group, cast: Cast) -> std::result::Result<(), &'static str> {
        match group {
            Group::Start => Err("UCX starts no jobs"),
            _ if cast.ranks > 2 => Err("ucx_perftest is a program of two processes"),
            Group::Messages | Group::Pairs | Group::Bandwidth | Group::OneSided => Ok(()),
            Group::Sums
            | Group::Collectives
            | Group::Overhead
            | Group::Halo
            | Group::Graph
            | Group::Genome => Err("ucx_perftest has no such tests"),
        }
    }

    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
        order.tasks.iter().map(|&task| Ok((task, self.measure(order, task)?))).collect()
    }

    fn command(&self, order: &Order<'_>) -> String {
        let known = |task: &Task| self.client(order, 0, *task).map(|(command, _)| typed(&command));
        let client = order.tasks.iter().find_map(known).unwrap_or_default();
        format!("{} & {client}", typed(&self.side(order, 0, 1))).replace("-p 0", "-p PORT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    const FINAL: &str = "\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                      100000      0.076     0.098     0.099       77.30      76.25    10132270    10100000
";

    #[test]
    fn its_last_line_is_read_by_columns() {
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(near(Column::Latency(1e3).of(FINAL), 99.0));
        assert!(near(Column::Bandwidth.of(FINAL), 76.25 * 1.048_576e-3));
        assert!(near(Column::Rate.of(FINAL), 10.1));
        assert_eq!(Column::Rate.of("[1234] error: connection refused\n"), None);
        assert_eq!(Column::Rate.of(""), None);
    }

    #[test]
    fn listeners_are_seen_without_a_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening(port));
        assert!(listener.set_nonblocking(true).map(|()| listener.accept()).unwrap().is_err());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop((listener, client));
        assert!(!listening(port));
    }
}
