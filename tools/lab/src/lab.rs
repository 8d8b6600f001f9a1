//! The laboratory: its guests, and what can be done to them.

use crate::cache::Image;
use crate::channel::Channel;
use crate::clock;
use crate::cpio::Archive;
use crate::error::{Error, Result};
use crate::guest::{self, LINK, Plan};
use crate::monitor::Monitor;
use crate::network::Network;
use crate::running::{Output, Program, Record, Running};
use crate::wire::Frame;
use serde_json::json;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Guests at most.
pub const MOST_GUESTS: usize = 4;
/// For which guests may take to start.
const BOOT: Duration = Duration::from_secs(240);
/// For which an emulator may take to end.
const OFF: Duration = Duration::from_secs(20);
/// By how much the guests' processors yield to the emulator's device threads: without, programs in
/// guests that poll starve the very network they poll.
const YIELD: i32 = 5;

/// What a laboratory is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Guests, 1 to 4.
    pub guests: usize,
    /// Memory of each guest, MiB.
    pub memory: u32,
    /// Processors of each guest.
    pub cpus: u32,
    /// Largest packet of the link that carries RoCE, bytes: RoCE's own is 4096 from 4300 on, 1024 at
    /// 1500.
    pub mtu: u32,
    /// After which everything is killed.
    pub limit: Duration,
    /// A folder of the host's that guests may write, under the same path (`LAB_WORK` there).
    pub work: Option<PathBuf>,
    /// Whether to copy what programs write to this process's output and error, each line with the
    /// guest's name before it.
    pub echo: bool,
    /// The program `hither-lab`, which guests run to be steered. Unless given: this process's own,
    /// or the one beside it.
    pub agent: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            guests: 2,
            memory: 512,
            cpus: 1,
            mtu: 9000,
            limit: Duration::from_secs(300),
            work: None,
            echo: false,
            agent: None,
        }
    }
}

/// Guests that run. When this is dropped, or its process ends, they are gone, and nothing is left.
pub struct Lab {
    guests: Vec<Guest>,
    work: Option<PathBuf>,
    agent: PathBuf,
    echo: bool,
    keeper: Sender<Order>,
    kept: Option<std::thread::JoinHandle<()>>,
    _networks: [Network; 2],
}

struct Guest {
    channel: Arc<Channel>,
    monitor: Mutex<Monitor>,
}

/// What the thread does that has the emulators.
enum Order {
    PowerOff(usize),
    /// When everything is to be killed.
    Limit(Instant),
    End,
}

impl Lab {
    /// Boots guests, which takes some seconds, and half a minute more the first time.
    /// [`Error::Unavailable`] if this machine cannot have any.
    pub fn boot(options: &Options) -> Result<Lab> {
        let told = |text: &str| {
            // A note only.
            let _ = writeln!(std::io::stderr(), "lab: {text}");
        };
        if !(1..=MOST_GUESTS).contains(&options.guests) {
            return Err(Error::Failed(format!("a laboratory has 1 to {MOST_GUESTS} guests")));
        }
        let agent = agent(options.agent.as_deref())?;
        let image = Image::get(&told)?;
        guest::try_emulator(&image)?;
        let booting = Booting::new(options.clone(), image, agent.clone())?;
        let (mut lab, until) = booting.start(&agent)?;
        for guest in &lab.guests {
            guest.channel.await_hello(until)?;
        }
        lab.lower_processors();
        lab.work = options
            .work
            .as_deref()
            .map(std::path::absolute)
            .transpose()
            .map_err(|e| Error::system("the shared folder", e))?;
        if let Some(work) = lab.work.clone() {
            let mount = "mkdir -p \"$0\" && mount -t 9p -o \
                 trans=virtio,version=9p2000.L,cache=none,msize=131072 work \"$0\"";
            for guest in 0..lab.guests() {
                lab.succeed(guest, &Program::shell(mount).arg(&work).directory("/"))?;
            }
        }
        Ok(lab)
    }

    /// How many there are.
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// A guest's address on the link that carries RoCE. Its name is `g` and its number.
    pub fn address(&self, guest: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, guest as u8 + 1)
    }

    /// Starts a program in a guest. It finds in its environment: `LAB_GUEST`, `LAB_GUESTS`,
    /// `LAB_ADDRESSES` (of all, in order, by commas), `LAB_DEVICE`, `LAB_GID`, `LAB_MTU`, `LAB_WORK`,
    /// and `HITHER_RSH`.
    pub fn run(&self, guest: usize, program: &Program) -> Result<Running> {
        let label = self.echo.then(|| format!("[g{guest}] "));
        self.start(guest, program, label)
    }

    /// The same in every guest.
    pub fn run_everywhere(&self, program: &Program) -> Result<Vec<Running>> {
        (0..self.guests()).map(|guest| self.run(guest, program)).collect()
    }

    /// Stops carrying anything to and from a guest, whose own device notices at once.
    pub fn cut(&self, guest: usize) -> Result<()> {
        self.monitor(guest, "set_link", json!({"name": LINK, "up": false}))
    }

    /// The reverse.
    pub fn restore(&self, guest: usize) -> Result<()> {
        self.monitor(guest, "set_link", json!({"name": LINK, "up": true}))
    }

    /// Has what a guest sends over the link delayed, lost, doubled, as `tc-netem` has it: `loss 2%`,
    /// `delay 5ms 1ms`. Nothing at all ends it.
    pub fn disturb(&self, guest: usize, how: &str) -> Result<()> {
        let tc = Program::new("tc").directory("/").arg("qdisc");
        let tc = if how.is_empty() {
            tc.args(["del", "dev", "roce0", "root"])
        } else {
            let words = how.split_whitespace();
            tc.args(["replace", "dev", "roce0", "root", "netem", "limit", "10000"]).args(words)
        };
        self.succeed(guest, &tc).map(drop)
    }

    /// Stops a guest's processors: it falls silent, and everything in it stays as it is.
    pub fn freeze(&self, guest: usize) -> Result<()> {
        self.monitor(guest, "stop", json!({}))
    }

    /// The reverse.
    pub fn thaw(&self, guest: usize) -> Result<()> {
        self.monitor(guest, "cont", json!({}))
    }

    /// Kills everything after `limit` from now on, instead of when [`Options::limit`] is over.
    pub fn set_limit(&self, limit: Duration) {
        // Whoever keeps the emulators is there as long as this is, or their time is up.
        let _ = self.keeper.send(Order::Limit(Instant::now() + limit));
    }

    /// Takes a guest's power away. It does not come back.
    pub fn power_off(&self, guest: usize) -> Result<()> {
        let channel = &self.guest(guest)?.channel;
        // If nobody takes it, their time is up, and the guest is gone, too.
        let _ = self.keeper.send(Order::PowerOff(guest));
        channel.await_end(OFF)
    }

    /// Kills the processes of a guest whose command line has `pattern` in it; their number.
    pub fn kill(&self, guest: usize, pattern: &str) -> Result<usize> {
        let kill = Program::new(&self.agent).args(["kill", "--", pattern]).directory("/");
        let said = self.succeed(guest, &kill)?.stdout;
        said.trim().parse().map_err(|e| Error::system("the number of processes killed", e))
    }

    fn guest(&self, guest: usize) -> Result<&Guest> {
        self.guests.get(guest).ok_or_else(|| Error::Failed(format!("there is no guest g{guest}")))
    }

    fn start(&self, guest: usize, program: &Program, label: Option<String>) -> Result<Running> {
        let channel = self.guest(guest)?.channel.clone();
        let mut start = program.start();
        let addresses: Vec<String> =
            (0..self.guests()).map(|guest| self.address(guest).to_string()).collect();
        let mut set = |name: &str, value: &[u8]| {
            start.environment.insert(0, (name.as_bytes().to_vec(), value.to_vec()));
        };
        set("LAB_ADDRESSES", addresses.join(",").as_bytes());
        if let Some(work) = &self.work {
            set("LAB_WORK", work.as_os_str().as_encoded_bytes());
        }
        let (record, since) = (Arc::new(Record::new(label)), Instant::now());
        let number = channel.register(&record)?;
        channel.send(number, &Frame::Start(start))?;
        Ok(Running { guest, number, record, channel, since })
    }

    /// Runs what has to return 0, silently.
    fn succeed(&self, guest: usize, program: &Program) -> Result<Output> {
        let output = self.start(guest, program, None)?.wait()?;
        if output.code != 0 {
            let said = output.stderr.trim();
            return Err(Error::Failed(format!(
                "guest g{guest}: exit code {}: {said}",
                output.code
            )));
        }
        Ok(output)
    }

    fn monitor(&self, guest: usize, command: &str, arguments: serde_json::Value) -> Result<()> {
        let guest = self.guest(guest)?;
        if guest.channel.is_gone() {
            return Err(guest.channel.why_gone());
        }
        let mut monitor = guest.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.execute(command, arguments).map(drop)
    }

    /// Best effort: guests are only slower without.
    fn lower_processors(&self) {
        let nice = rustix::process::getpriority_process(None).unwrap_or(0) + YIELD;
        for guest in &self.guests {
            let mut monitor = guest.monitor.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = monitor.execute("query-cpus-fast", json!({})).unwrap_or_default();
            let threads = answer.as_array().into_iter().flatten();
            for thread in threads.filter_map(|cpu| cpu.get("thread-id")?.as_i64()) {
                let thread = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
                let _ = rustix::process::setpriority_process(thread, nice.min(19));
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.keeper.send(Order::End);
        if let Some(kept) = self.kept.take() {
            let _ = kept.join();
        }
        self.guests.iter().for_each(|guest| guest.channel.close());
    }
}

/// The program that guests run.
fn agent(given: Option<&Path>) -> Result<PathBuf> {
    const NAME: &str = "hither-lab";
    let own = std::env::current_exe().map_err(|e| Error::system("this program", e))?;
    let beside = |up: usize| Some(own.ancestors().nth(up)?.join(NAME));
    let found = match given {
        Some(given) => Some(given.to_owned()),
        None if own.file_name().is_some_and(|name| name == NAME) => Some(own.clone()),
        None => (1..=2).filter_map(beside).find(|path| path.is_file()),
    };
    let found = found.ok_or_else(|| {
        let why = "the program hither-lab is not beside this one: cargo build -p hither-lab";
        Error::Failed(why.into())
    })?;
    found.canonicalize().map_err(|e| Error::file(&found, e))
}

/// What guests are started from.
struct Booting {
    options: Options,
    image: Image,
    agent: PathBuf,
    networks: [Network; 2],
    initrd: OwnedFd,
    clock: Option<u64>,
}

impl Booting {
    fn new(options: Options, image: Image, agent: PathBuf) -> Result<Booting> {
        let networks = [Network::new(options.guests)?, Network::new(options.guests)?];
        let initrd = in_memory(&first_files(&image)?)?;
        Ok(Booting { options, image, agent, networks, initrd, clock: clock::rate() })
    }

    /// Starts them, kept by a thread that lives as long as they; and when they should be there.
    fn start(mut self, agent: &Path) -> Result<(Lab, Instant)> {
        let (began, echo) = (Instant::now(), self.options.echo);
        let time_up = Arc::new(AtomicBool::new(false));
        let (mut guests, mut far) = (Vec::new(), Vec::new());
        for number in 0..self.options.guests {
            let pair = || UnixStream::pair().map_err(|e| Error::system("a guest's socket", e));
            let ((near_channel, channel), (near_monitor, monitor)) = (pair()?, pair()?);
            let channel_of = Channel::new(number, near_channel, time_up.clone())?;
            guests.push((channel_of, near_monitor));
            far.push((channel, monitor));
        }
        let consoles: Vec<Arc<Channel>> = guests.iter().map(|(c, _)| c.clone()).collect();
        let (keeper, orders) = channel();
        let (started, starting) = channel();
        let deadline = began + self.options.limit;
        let kept = std::thread::spawn(move || {
            let mut children = Vec::new();
            let result = (0..far.len()).try_for_each(|number| {
                let mut child = self.one(number, &far[number])?;
                if let Some(console) = child.stdout.take() {
                    consoles[number].keep_console(console);
                }
                if let Some(errors) = child.stderr.take() {
                    consoles[number].keep_console(errors);
                }
                children.push(child);
                Ok(())
            });
            // The emulators have them now.
            drop((far, consoles));
            for number in 0..self.options.guests {
                self.networks.iter_mut().for_each(|network| network.taken(number));
            }
            let Booting { networks, image: _image, .. } = self;
            let _ = started.send(result.map(|()| networks));
            keep(&mut children, &orders, deadline, &time_up);
        });
        let networks = starting.recv().map_err(|e| Error::system("the emulators", e))?;
        let lab = |networks, guests| Lab {
            guests,
            work: None,
            agent: agent.to_owned(),
            echo,
            keeper: keeper.clone(),
            kept: Some(kept),
            _networks: networks,
        };
        let networks = networks?;
        let guests = guests
            .into_iter()
            .map(|(channel, monitor)| {
                Ok(Guest { channel, monitor: Mutex::new(Monitor::new(monitor)?) })
            })
            .collect::<Result<Vec<Guest>>>()?;
        let lab = lab(networks, guests);
        for guest in &lab.guests {
            let mut monitor = guest.monitor.lock().unwrap_or_else(PoisonError::into_inner);
            // Without it the monitor takes no other commands; one that is dead is told of later.
            let _ = monitor.execute("qmp_capabilities", json!({}));
        }
        Ok((lab, deadline.min(began + BOOT)))
    }

    fn one(&self, number: usize, (channel, monitor): &(UnixStream, UnixStream)) -> Result<Child> {
        let work = self.options.work.as_deref().map(std::path::absolute).transpose();
        guest::start(&Plan {
            image: &self.image,
            number,
            guests: self.options.guests,
            memory: self.options.memory,
            cpus: self.options.cpus,
            mtu: self.options.mtu,
            clock: self.clock,
            agent: &self.agent,
            work: work.map_err(|e| Error::system("the shared folder", e))?.as_deref(),
            initrd: self.initrd.as_raw_fd(),
            channel: channel.as_raw_fd(),
            monitor: monitor.as_raw_fd(),
            roce: self.networks[0].end(number),
            control: self.networks[1].end(number),
        })
    }
}

/// Has the emulators until they are to go.
fn keep(
    children: &mut [Child],
    orders: &Receiver<Order>,
    mut deadline: Instant,
    time_up: &AtomicBool,
) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match orders.recv_timeout(left) {
            Ok(Order::PowerOff(guest)) => children.get_mut(guest).into_iter().for_each(end),
            Ok(Order::Limit(limit)) => deadline = limit,
            Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                time_up.store(true, Ordering::Release);
                children.iter_mut().for_each(end);
                break;
            }
        }
    }
    children.iter_mut().for_each(end);
}

/// Kills an emulator, unless it has ended, and waits for it.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The guest's first files: the script that sets it up, and what that needs.
fn first_files(image: &Image) -> Result<Vec<u8>> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::file(path, e));
    let mut archive = Archive::new();
    for name in ["bin", "dev", "proc", "sys", "lower", "upper", "root", "modules"] {
        archive.directory(name);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("bin/busybox", &read(&image.tree().0.join("bin/busybox"))?);
    archive.file("init", include_bytes!("init.sh"));
    let modules = image.modules();
    for entry in std::fs::read_dir(&modules).map_err(|e| Error::file(&modules, e))?.flatten() {
        let name = format!("modules/{}", entry.file_name().to_string_lossy());
        archive.file(&name, &read(&entry.path())?);
    }
    Ok(archive.finish())
}

/// A file without a name.
fn in_memory(content: &[u8]) -> Result<OwnedFd> {
    let system = |e: std::io::Error| Error::system("a file in memory", e);
    let fd = rustix::fs::memfd_create("hither-lab", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = std::fs::File::from(fd.map_err(|e| system(e.into()))?);
    file.write_all(content).map_err(system)?;
    Ok(file.into())
}
