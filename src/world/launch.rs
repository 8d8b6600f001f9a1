//! Starting jobs: the public face of `boot::launch`, which knows processes, joined with what
//! knows the node's memory and the machine.

use crate::base::{Error, Rank, Result, Slot, settings};
use crate::boot::launch::{self, Plan, Remote, Signals, Watcher, rsh};
use crate::shm::node::Node;
use crate::shm::observer::Observer;
use crate::shm::wiring::random;
use crate::topo::{self, Bind, Map, Places, Topology};
use std::ffi::{OsStr, OsString};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

pub use super::agent::serve as serve_as_agent;
pub use crate::boot::launch::hosts::{Host, Hosts};
pub use crate::boot::launch::{Exit, Outcome, Output, Running};

/// Starts the ranks of a job: any program, which may use this library or not.
///
/// ```no_run
/// use hither::world::{Launcher, Output};
/// let job = Launcher::new("./a.out").arg("input").ranks(4).output(Output::Capture).start()?;
/// let outcome = job.wait()?;
/// println!("{}: exit code {}", outcome.summary(), outcome.code());
/// # Ok::<(), hither::Error>(())
/// ```
///
/// Each rank leads a process group of its own. Rank 0 has the launcher's standard input unless
/// that is a terminal, the others have none. When a rank fails (it is killed or ends with an exit code other than 0) the
/// others learn of it from the library; those that do not end by themselves within the
/// [grace](Launcher::grace) get SIGTERM, and SIGKILL after the same time again. With
/// [`survive`](Launcher::survive) they go on. When the launching process dies, however it dies,
/// all of it ends: no process and no memory stays behind.
#[derive(Debug)]
pub struct Launcher {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    ranks: u32,
    nodes: Option<u32>,
    map: Map,
    bind: Bind,
    survive: bool,
    label: bool,
    output: Output,
    timeout: Option<Duration>,
    grace: Duration,
    heap: Option<u64>,
    signals: Option<Signals>,
    hosts: Option<Hosts>,
    rsh: Option<OsString>,
    agent: Vec<OsString>,
    address: Option<String>,
}

impl Launcher {
    /// One rank of `program` (looked up in `PATH` if it has no slash), bound to a core, output
    /// forwarded.
    pub fn new(program: impl AsRef<Path>) -> Launcher {
        Launcher {
            program: program.as_ref().as_os_str().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            ranks: 1,
            nodes: None,
            map: Map::Block,
            bind: Bind::Core,
            survive: false,
            label: false,
            output: Output::Forward,
            timeout: None,
            grace: Duration::from_secs(2),
            heap: None,
            signals: None,
            hosts: None,
            rsh: None,
            agent: vec!["hither".into(), "agent".into()],
            address: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Launcher {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Launcher {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Number of ranks, 1 to 4096.
    pub fn ranks(mut self, ranks: u32) -> Launcher {
        self.ranks = ranks;
        self
    }

    /// Number of nodes that this machine is to be taken for, at most one for each rank; as many as
    /// the [map](Launcher::map) names, or one, unless given. Ranks of different nodes share no memory,
    /// as if they were on different machines, and communicate by the network.
    pub fn nodes(mut self, nodes: u32) -> Launcher {
        self.nodes = Some(nodes);
        self
    }

    /// Which ranks are on which of the nodes: consecutive ones, in blocks as equal as they can be,
    /// unless given.
    pub fn map(mut self, map: Map) -> Launcher {
        self.map = map;
        self
    }

    /// Sets an environment variable of the ranks, on top of the launching process's environment.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Launcher {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// How ranks are bound. With more ranks than CPUs they are not bound in any case.
    pub fn bind(mut self, bind: Bind) -> Launcher {
        self.bind = bind;
        self
    }

    /// Whether the others go on when a rank fails.
    pub fn survive(mut self, survive: bool) -> Launcher {
        self.survive = survive;
        self
    }

    /// Whether each line of forwarded output gets `[rank] ` in front.
    pub fn label(mut self, label: bool) -> Launcher {
        self.label = label;
        self
    }

    /// Where the ranks' output goes.
    pub fn output(mut self, output: Output) -> Launcher {
        self.output = output;
        self
    }

    /// Time limit of the whole job, after which it is ended.
    pub fn timeout(mut self, limit: Duration) -> Launcher {
        self.timeout = Some(limit);
        self
    }

    /// How long the others may take to end by themselves after a failure (2 s unless given).
    pub fn grace(mut self, grace: Duration) -> Launcher {
        self.grace = grace;
        self
    }

    /// Symmetric address space for each rank in bytes; `HITHER_HEAP_SIZE` unless given.
    pub fn heap_size(mut self, bytes: u64) -> Launcher {
        self.heap = Some(bytes);
        self
    }

    /// Passes the launching process's signals on to the ranks: for a program that is a launcher
    /// and nothing else. Without this the launcher leaves the process's signals alone.
    pub fn forward_signals(mut self, signals: Signals) -> Launcher {
        self.signals = Some(signals);
        self
    }

    /// The machines that ranks are to run on, a node each, instead of this one: started there by an
    /// agent that a remote shell runs, with the same program path and working directory, the
    /// environment that the agent gets there, the `HITHER_*` variables of the launching process and
    /// what [`env`](Launcher::env) adds. None has standard input. Excludes
    /// [`nodes`](Launcher::nodes).
    pub fn hosts(mut self, hosts: Hosts) -> Launcher {
        self.hosts = Some(hosts);
        self
    }

    /// The remote shell's command, in words separated by white space: it is called with the name of a
    /// host and one command line behind them. `HITHER_RSH`, or `ssh`, unless given.
    pub fn rsh(mut self, command: impl AsRef<OsStr>) -> Launcher {
        self.rsh = Some(command.as_ref().to_owned());
        self
    }

    /// The command that serves as an agent on hosts: a program that calls [`serve_as_agent`]. Unless
    /// given it is `hither agent`.
    pub fn agent<S: AsRef<OsStr>>(mut self, command: impl IntoIterator<Item = S>) -> Launcher {
        self.agent = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// What the network between nodes is bound to on each: an address, the name of an interface, or a
    /// subnet (`10.1.0.0/16`). `HITHER_NET_ADDRESS` unless given; on other hosts, if that is not set
    /// either, the address by which they were reached.
    pub fn net_address(mut self, address: impl Into<String>) -> Launcher {
        self.address = Some(address.into());
        self
    }

    /// Starts the job; returns once all ranks have been started.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the program cannot be started or the number of ranks cannot
    /// be had; [`Error::OutOfMemory`] if there is no memory for the node's control structures.
    /// [`Error::Boot`] if a host cannot be reached or cannot start its ranks: the error says which and
    /// why. Whatever had been started is ended.
    pub fn start(mut self) -> Result<Running> {
        let heap = match self.heap {
            Some(heap) => heap,
            None => settings::HEAP_SIZE.bytes()?,
        };
        if let Some(hosts) = self.hosts.take() {
            return self.start_away(&hosts, heap);
        }
        if let Some(address) = self.address.take() {
            let address = super::agent::resolve(&address)?.to_string();
            self.env.push((settings::NET_ADDRESS.name.into(), address.into()));
        }
        let places = self.map.places(self.ranks, self.nodes)?;
        let (mut memories, mut observers) = (Vec::new(), Vec::new());
        for node in 0..places.nodes() {
            let memory = Node::create_memory(places.count_on(node), heap)?;
            let copy = memory.try_clone().map_err(|e| Error::os("duplicating a descriptor", e))?;
            observers.push(Some(Observer::open(copy)?));
            memories.push(memory);
        }
        let recorder = Recorder { places: places.clone(), observers };
        let ranks: Vec<u32> = (0..self.ranks).collect();
        let cpus = seats(self.bind, &ranks, &recorder)?;
        let plan = Plan { cpus, memories, ..self.plan(places)? };
        launch::start(plan, Box::new(recorder))
    }

    fn plan(self, places: Places) -> Result<Plan> {
        Ok(Plan {
            program: self.program,
            args: self.args,
            env: self.env,
            input: true,
            cpus: Vec::new(),
            output: self.output,
            label: self.label,
            survive: self.survive,
            timeout: self.timeout,
            grace: self.grace,
            job: random()?,
            memories: Vec::new(),
            places,
            signals: self.signals,
            remote: None,
        })
    }

    fn start_away(mut self, hosts: &Hosts, heap: u64) -> Result<Running> {
        if self.nodes.is_some() {
            let why =
                "a job is on hosts, a node each, or on nodes of this machine: give one of both";
            return Err(Error::invalid("hosts", why));
        }
        let (hosts, places) = hosts.place(self.ranks, &self.map)?;
        let named = hosts.into_iter().map(|host| {
            let addresses = addresses_of(&host.name);
            (host, addresses)
        });
        let wanted = settings::NET_ADDRESS.is_set().then(|| settings::NET_ADDRESS.text());
        let directory = std::env::current_dir()
            .map_err(|e| Error::os("finding the working directory, where ranks are to run", e))?;
        let rsh = self.rsh.take().unwrap_or_else(|| settings::RSH.text().into());
        let remote = Remote {
            hosts: named.collect(),
            rsh: rsh::words(&rsh),
            agent: std::mem::take(&mut self.agent),
            directory: directory.into(),
            heap,
            bind: self.bind,
            address: self.address.take().or(wanted).unwrap_or_default(),
            silence: settings::HOST_TIMEOUT.seconds()?.unwrap_or(Duration::MAX),
        };
        // What the ranks would have of this process's environment here.
        let mut env = settings::for_others();
        env.append(&mut self.env);
        let plan = Plan { env, remote: Some(remote), ..self.plan(places)? };
        launch::start(plan, Box::new(Nobody))
    }
}

/// The addresses that a host's name stands for here; none if that is not known.
fn addresses_of(name: &str) -> Vec<String> {
    let name = name.rsplit_once('@').map_or(name, |(_, name)| name);
    let found = (name, 0).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip().to_string()).collect()
}

/// Watches ranks of which this process has no memory.
struct Nobody;

impl Watcher for Nobody {
    fn ended(&mut self, _rank: u32, _exit: Exit) {}
    fn ending(&mut self) {}
}

/// The CPUs of these ranks of a machine, by rank, recorded in its nodes' memory too; empty where
/// ranks are not bound.
pub(super) fn seats(bind: Bind, ranks: &[u32], recorder: &Recorder) -> Result<Vec<Vec<usize>>> {
    if bind == Bind::None {
        return Ok(Vec::new());
    }
    let topology = Topology::detect()?;
    let plan = topo::Plan::new(&topology, bind, ranks.len() as u32);
    if topology.synthetic || !plan.binds() {
        return Ok(Vec::new());
    }
    let mut seats = Vec::new();
    for (here, &rank) in (0..).map(Rank).zip(ranks) {
        let Some(cpus) = plan.cpus(here) else { break };
        seats.resize(rank as usize, Vec::new());
        seats.push(cpus.iter().map(|cpu| cpu as usize).collect());
        if let Some(core) = plan.home_cpu(here) {
            let (observer, slot) = recorder.place_of(Rank(rank))?;
            observer.set_core(slot, core)?;
        }
    }
    Ok(seats)
}

/// Writes down in the nodes' memory what happens to ranks.
pub(super) struct Recorder {
    pub places: Places,
    /// By node; none of nodes whose memory is elsewhere.
    pub observers: Vec<Option<Observer>>,
}

impl Recorder {
    /// Where a rank's end is written down: the memory of its node, and its slot there.
    fn place_of(&self, rank: Rank) -> Result<(&Observer, Slot)> {
        let node = self.places.node_of(rank.0);
        let observer = node.and_then(|node| self.observers.get(node as usize)?.as_ref());
        let local = self.places.local_of(rank.0);
        observer
            .zip(local.map(|local| Slot(local as u16)))
            .ok_or_else(|| Error::invalid("rank", format!("{rank} is not in the job")))
    }
}

impl Watcher for Recorder {
    fn ended(&mut self, rank: u32, exit: Exit) {
        // A rank that had left in good order stays so. One that ended with exit code 0 without
        // leaving is as dead to those that wait for it as any other. The slot exists: it was
        // made for this rank.
        if let Ok((observer, slot)) = self.place_of(Rank(rank)) {
            let _ = observer.mark_dead(slot, exit.cause());
        }
    }

    fn ending(&mut self) {
        self.observers.iter().flatten().for_each(Observer::set_ending);
    }
}

/// Takes this process's signals, for [`Launcher::forward_signals`]. To be called before any
/// thread is started.
pub fn take_signals() -> Result<Signals> {
    Signals::take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_ranks_and_unknown_programs_are_refused() {
        assert!(Launcher::new("true").ranks(0).start().is_err());
        assert!(Launcher::new("true").ranks(1 << 20).start().is_err());
        assert!(Launcher::new("true").ranks(2).nodes(0).start().is_err());
        assert!(Launcher::new("true").ranks(2).nodes(3).start().is_err());
        assert!(Launcher::new("true").ranks(2).map(Map::Counts(vec![2, 1])).start().is_err());
        let err = Launcher::new("/no/such/program").start().unwrap_err();
        assert!(err.to_string().contains("/no/such/program"), "{err}");
    }

    #[test]
    fn programs_that_do_not_use_the_library_run_too() {
        let job = Launcher::new("sh")
            .args(["-c", "echo rank $HITHER_RANK of $HITHER_SIZE; echo oops >&2"])
            .ranks(3)
            .output(Output::Capture)
            .start()
            .unwrap();
        let outcome = job.wait().unwrap();
        assert_eq!(outcome.code(), 0, "{}", outcome.summary());
        for rank in 0..3 {
            let text = String::from_utf8_lossy(&outcome.stdout[rank]);
            assert_eq!(text, format!("rank {rank} of 3\n"));
            assert_eq!(outcome.stderr[rank], b"oops\n");
        }
    }
}
