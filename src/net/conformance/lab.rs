//! Where the suite runs, and what its tests share.

use crate::base::sync::{AtomicBool, Ordering};
use crate::net::fault::{FaultDevice, Plan};
use crate::net::memory::Memory;
use crate::net::provider::*;
use crate::net::sim::{Network, Parameters};
use crate::net::sockets::{Config, find_address, open};
use crate::net::verbs;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Devices that reach each other.
pub trait Lab {
    /// One more device.
    fn device(&self) -> Arc<dyn Device>;
    /// One with another cookie.
    fn stranger(&self) -> Arc<dyn Device>;
    /// Whether time is virtual: then nothing happens but while this thread waits.
    fn is_virtual(&self) -> bool;
    /// Whether programs can wait for a channel's descriptor.
    fn has_descriptors(&self) -> bool {
        !self.is_virtual()
    }
    /// Whether its devices count what they drop and refuse, and say exactly why. Real ones do neither.
    fn tells_all(&self) -> bool {
        true
    }
}

pub struct SimLab {
    network: Arc<Network>,
    is_virtual: bool,
}

impl SimLab {
    pub fn plain() -> SimLab {
        SimLab { network: Network::new(Parameters::default()), is_virtual: true }
    }

    /// Its time is the machine's.
    pub fn in_real_time() -> SimLab {
        let parameters = Parameters { jitter: Duration::from_micros(50), ..Parameters::default() };
        SimLab { network: Network::in_real_time(parameters).unwrap(), is_virtual: false }
    }

    /// Far, slow, and datagrams overtake each other.
    pub fn rough() -> SimLab {
        let parameters = Parameters {
            seed: 7,
            latency: Duration::from_millis(3),
            bandwidth: 50_000_000,
            jitter: Duration::from_millis(20),
            datagram_prefix: 0,
            datagram: 1500,
        };
        SimLab { network: Network::new(parameters), is_virtual: true }
    }
}

impl Lab for SimLab {
    fn device(&self) -> Arc<dyn Device> {
        self.network.device(1)
    }
    fn stranger(&self) -> Arc<dyn Device> {
        self.network.device(2)
    }
    fn is_virtual(&self) -> bool {
        self.is_virtual
    }
    fn has_descriptors(&self) -> bool {
        false
    }
}

/// Sockets of this machine.
pub struct SocketLab(Config);

impl SocketLab {
    pub fn new(address: &str) -> SocketLab {
        let address = find_address(address).unwrap();
        SocketLab(Config { cookie: 77, address, datagram: 4096, thread: true })
    }

    pub fn boxed(address: &str) -> Option<Box<dyn Lab>> {
        Some(Box::new(SocketLab::new(address)))
    }

    /// None, said plainly, on a machine that has no such address.
    pub fn if_there(address: &str) -> Option<Box<dyn Lab>> {
        match std::net::UdpSocket::bind((address, 0)) {
            Ok(_) => SocketLab::boxed(address),
            Err(error) => {
                println!("not tested on {address}, which this machine has not ({error})");
                None
            }
        }
    }
}

impl Lab for SocketLab {
    fn device(&self) -> Arc<dyn Device> {
        open(&self.0).unwrap()
    }
    fn stranger(&self) -> Arc<dyn Device> {
        open(&Config { cookie: 78, ..self.0.clone() }).unwrap()
    }
    fn is_virtual(&self) -> bool {
        false
    }
}

/// Two devices opened on one port of an RDMA device of this machine.
pub struct VerbsLab(verbs::Config);

impl VerbsLab {
    /// None, said plainly, on a machine that has no such device.
    pub fn if_there() -> Option<Box<dyn Lab>> {
        let config = verbs::Config::from_settings(77).unwrap();
        match verbs::available(&config) {
            Ok(_) => Some(Box::new(VerbsLab(config))),
            Err(why) => {
                println!("not tested over verbs: {why}");
                None
            }
        }
    }
}

impl Lab for VerbsLab {
    fn device(&self) -> Arc<dyn Device> {
        verbs::open(&self.0).unwrap().0
    }
    fn stranger(&self) -> Arc<dyn Device> {
        let mut config = self.0.clone();
        config.cookie = 78;
        verbs::open(&config).unwrap().0
    }
    fn is_virtual(&self) -> bool {
        false
    }
    fn tells_all(&self) -> bool {
        false
    }
}

/// A thread that waits in a channel.
type Waiter = (Arc<dyn Channel>, JoinHandle<()>);

/// Sockets of devices without threads of their own: somebody waits in a channel of each.
pub struct DrivenLab {
    config: Config,
    stop: Arc<AtomicBool>,
    waiting: Mutex<Vec<Waiter>>,
}

impl DrivenLab {
    pub fn boxed(address: &str) -> Option<Box<dyn Lab>> {
        let SocketLab(config) = SocketLab::new(address);
        let config = Config { thread: false, ..config };
        Some(Box::new(DrivenLab {
            config,
            stop: Arc::new(AtomicBool::new(false)),
            waiting: Mutex::default(),
        }))
    }

    fn open(&self, config: &Config) -> Arc<dyn Device> {
        let device = open(config).unwrap();
        let (channel, stop) = (device.channel().unwrap(), self.stop.clone());
        let waits = channel.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                waits.wait(Time::NEVER);
            }
        });
        self.waiting.lock().unwrap().push((channel, thread));
        device
    }
}

impl Drop for DrivenLab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for (channel, thread) in self.waiting.get_mut().unwrap().drain(..) {
            channel.wake();
            thread.join().unwrap();
        }
    }
}

impl Lab for DrivenLab {
    fn device(&self) -> Arc<dyn Device> {
        self.open(&self.config)
    }
    fn stranger(&self) -> Arc<dyn Device> {
        self.open(&Config { cookie: 78, ..self.config.clone() })
    }
    fn is_virtual(&self) -> bool {
        false
    }
}

/// Another lab through the decorator, without faults: it must not be seen.
pub struct FaultLab(Box<dyn Lab>);

impl FaultLab {
    pub fn over(lab: Box<dyn Lab>) -> FaultLab {
        FaultLab(lab)
    }
}

impl Lab for FaultLab {
    fn device(&self) -> Arc<dyn Device> {
        FaultDevice::over(self.0.device(), Plan::default())
    }
    fn stranger(&self) -> Arc<dyn Device> {
        FaultDevice::over(self.0.stranger(), Plan::default())
    }
    fn is_virtual(&self) -> bool {
        self.0.is_virtual()
    }
}

/// Long enough for anything that will happen.
pub const LONG: Duration = Duration::from_secs(20);

/// A device with a completion queue, a channel, and 64 KiB of memory registered for everything.
pub struct Node {
    pub device: Arc<dyn Device>,
    pub channel: Arc<dyn Channel>,
    pub queue: Arc<dyn CompletionQueue>,
    pub memory: Memory,
    pub region: Region,
    seen: RefCell<VecDeque<Completion>>,
}

pub const MEMORY: usize = 64 << 10;

impl Node {
    pub fn new(device: Arc<dyn Device>) -> Node {
        let channel = device.channel().unwrap();
        let queue = device.completion_queue(1024, Some(&channel)).unwrap();
        let memory = Memory::zeroed(MEMORY).unwrap();
        let region = device.register(&memory, Access::ALL).unwrap();
        Node { device, channel, queue, memory, region, seen: RefCell::default() }
    }

    pub fn queues(&self) -> Queues<'_> {
        Queues {
            send: &self.queue,
            receive: &self.queue,
            send_depth: 64,
            receive_depth: 64,
            pieces: 3,
            inline: 64,
            shared: None,
        }
    }

    pub fn rc(&self) -> Arc<dyn RcQueuePair> {
        self.rc_with(&patient())
    }

    pub fn rc_with(&self, options: &RcOptions) -> Arc<dyn RcQueuePair> {
        self.device.rc(&self.queues(), options).unwrap()
    }

    pub fn ud(&self) -> Arc<dyn UdQueuePair> {
        self.device.ud(&self.queues()).unwrap()
    }

    pub fn fill(&self, offset: u64, bytes: &[u8]) {
        assert!(self.memory.write(offset, bytes));
    }

    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.memory.read(offset, &mut bytes));
        bytes
    }

    pub fn local(&self, offset: u64, length: u32) -> Local {
        self.region.local(offset, length).unwrap()
    }

    pub fn at(&self, offset: u64) -> Remote {
        self.region.remote().at(offset)
    }

    /// The next completion, waited for as programs do; none after `patience`.
    pub fn within(&self, patience: Duration) -> Option<Completion> {
        self.within_or(patience, false)
    }

    fn within_or(&self, patience: Duration, once: bool) -> Option<Completion> {
        let until = self.device.now().plus(patience);
        loop {
            if let Some(completion) = self.seen.borrow_mut().pop_front() {
                return Some(completion);
            }
            self.queue.arm(Arm::Any).unwrap();
            let mut some = [Completion::NONE; 8];
            let count = self.queue.poll(&mut some);
            self.seen.borrow_mut().extend(&some[..count]);
            if count == 0 && (once || self.device.now() >= until) {
                return None;
            }
            if count == 0 && self.channel.wait(until) == Woken::Elapsed {
                return self.within_or(Duration::ZERO, true);
            }
        }
    }

    pub fn next(&self) -> Completion {
        self.within(LONG).expect("a completion")
    }

    /// The next completion, which must be this one's.
    pub fn expect(&self, id: u64, status: Status) -> Completion {
        let completion = self.next();
        assert_eq!((completion.id, completion.status), (id, status), "{completion:?}");
        completion
    }

    /// Nothing comes for a while.
    pub fn quiet(&self) {
        assert_eq!(self.within(Duration::from_millis(60)), None);
    }

    /// Waits until `what` happens without a completion here.
    pub fn until(&self, what: impl Fn() -> bool) {
        let until = self.device.now().plus(LONG);
        while !what() {
            assert!(self.device.now() < until, "it does not happen");
            self.channel.wait(self.device.now().plus(Duration::from_millis(2)));
            let mut some = [Completion::NONE; 8];
            let count = self.queue.poll(&mut some);
            self.seen.borrow_mut().extend(&some[..count]);
        }
    }

    pub fn event(&self) -> Event {
        let event = RefCell::new([Event::PortUp]);
        self.until(|| self.device.events(&mut *event.borrow_mut()) == 1);
        event.into_inner()[0]
    }
}

/// Two nodes with a connected queue pair between them.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub to_b: Arc<dyn RcQueuePair>,
    pub to_a: Arc<dyn RcQueuePair>,
}

impl Pair {
    pub fn new(lab: &dyn Lab) -> Pair {
        Pair::with(lab, &patient())
    }

    pub fn with(lab: &dyn Lab, options: &RcOptions) -> Pair {
        let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
        let (to_b, to_a) = (a.rc_with(options), b.rc_with(options));
        connect(&*to_b, &*to_a);
        Pair { a, b, to_b, to_a }
    }
}

pub fn connect(one: &dyn RcQueuePair, other: &dyn RcQueuePair) {
    one.connect(&other.address()).unwrap();
    other.connect(&one.address()).unwrap();
}

/// A patience that does not end while a machine is busy with other things.
pub fn patient() -> RcOptions {
    let late = Duration::from_secs(60);
    RcOptions { patience: late, receiver_patience: late, keepalive: None }
}

/// One that ends soon.
pub fn impatient() -> RcOptions {
    let soon = Duration::from_secs(1);
    RcOptions { patience: soon, receiver_patience: soon, keepalive: None }
}

pub fn send<'a>(id: u64, pieces: &'a [Local]) -> Work<'a> {
    Work::new(id, Operation::Send { data: Data::Pieces(pieces), immediate: None })
}

pub fn write<'a>(id: u64, pieces: &'a [Local], to: Remote) -> Work<'a> {
    Work::new(id, Operation::Write { data: Data::Pieces(pieces), to, immediate: None })
}

pub fn read<'a>(id: u64, into: &'a [Local], from: Remote) -> Work<'a> {
    Work::new(id, Operation::Read { into, from })
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8) ^ seed) as u8).collect()
}
