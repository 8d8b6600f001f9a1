//! The interface to what carries traffic between nodes, in the terms of RDMA devices, so that a
//! verbs provider is a translation and the others imitate one.
//!
//! ```text
//!  Device -- register(Memory) ----------> Region      (keys, rights)
//!    |---- channel ---------------------> Channel     (a thread sleeps here)     ibv_comp_channel
//!    |---- completion_queue(channel) ---> CompletionQueue                        ibv_cq
//!    |---- shared_receive_queue --------> SharedReceiveQueue                     ibv_srq
//!    |---- ud(queues) ------------------> UdQueuePair: datagrams, lost or not    ibv_qp UD
//!    '---- rc(queues) ------------------> RcQueuePair: one peer, in order,       ibv_qp RC
//!                                         read, write, atomics
//! ```
//!
//! # Rules that hold for every provider
//! - Objects are shared (`Arc`), used from any thread, and destroyed when the last holder drops
//!   them. A queue pair keeps its queues. Objects of one device do not work with another's.
//! - Posting never blocks and allocates nothing. Work is carried out in the order of posting, per
//!   queue pair; reads and atomics return in that order too. Completions of the send side of one
//!   queue pair come in the order of posting, and so do those of its receive side (receives of a
//!   shared queue complete in whatever order they were taken).
//! - A completion of the send side of a connected queue pair says that the peer's *device* has done
//!   it: bytes written are in the peer's memory, messages in its buffers. Of a datagram it says only
//!   that its memory may be used again.
//! - Every failure of a connected queue pair moves it to [`State::Error`]: the operation that failed
//!   completes with the cause, everything else posted (sends, receives of its own, signalled or not)
//!   with `Flushed`, and what is posted from then on too (where nothing was posted when it failed,
//!   the next post gets the cause). Receives of a shared queue stay there.
//!   A peer sees `RetryExceeded` in its turn, when it next uses its end (or by keepalive), or
//!   earlier. The process whose memory was accessed wrongly, or whose peer failed, goes on.
//! - What a peer sends is checked against keys, bounds and rights in release builds; what makes no
//!   sense is counted ([`Counters`]) and dropped.
//! - Completion queues cannot overflow: posting takes room for the completion there too, until it has
//!   been polled (or the operation ended without one), and is `Full` where there is none. A shared
//!   receive takes that room when it is used; without it it is as if there were no receive.
//! - Time is the device's ([`Device::now`]). Whoever is built on this reads no other clock, and waits
//!   in [`Channel::wait`] only: in a simulator that is what moves time forward.

mod address;
mod capabilities;
mod completion;
mod region;
mod time;
mod work;

pub use address::{ADDRESS_BYTES, Address};
pub use capabilities::{Atomics, Capabilities, MemoryKinds};
pub use completion::{Completion, Event, Opcode, Status};
pub use region::{Access, Local, Region, Remote, RemoteRegion};
pub use time::Time;
pub use work::{Data, Datagram, Operation, Peer, PostError, Receive, Refused, Work};

use super::memory::Memory;
use crate::base::Result;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// An opened device. How to open one is each provider's own matter (its settings differ).
pub trait Device: Any + Send + Sync {
    /// For people: provider, device, address.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// The time. A few nanoseconds to tens of them.
    fn now(&self) -> Time;

    /// Lets the device read and write `memory`. Takes a lock and allocates; on RDMA devices it pins
    /// pages (microseconds and more). Errors: no such kind of memory, limits of locked memory.
    fn register(&self, memory: &Memory, access: Access) -> Result<Region>;

    /// A place for a thread to sleep until completion queues have something.
    fn channel(&self) -> Result<Arc<dyn Channel>>;

    /// A completion queue with room for `depth` completions, on `channel` if anyone is to wait for it.
    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>>;

    /// A queue of up to `depth` receives, of up to `pieces` pieces each, for any number of queue
    /// pairs.
    fn shared_receive_queue(&self, depth: u32, pieces: u32) -> Result<Arc<dyn SharedReceiveQueue>>;

    /// A datagram queue pair, ready at once.
    fn ud(&self, queues: &Queues<'_>) -> Result<Arc<dyn UdQueuePair>>;

    /// A connected queue pair in [`State::Init`]: receives may be posted, its address is known.
    fn rc(&self, queues: &Queues<'_>, options: &RcOptions) -> Result<Arc<dyn RcQueuePair>>;

    /// Takes what has happened (`ibv_get_async_event`), oldest first; says how many. Never blocks.
    /// Events wake all channels of the device. Bounded: of more than that one of each kind is kept.
    fn events(&self, into: &mut [Event]) -> usize;

    /// What was dropped, and why.
    fn counters(&self) -> Counters;
}

/// What a device dropped, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Datagrams and connections without the job's cookie.
    pub strangers: u64,
    /// Datagrams and frames with the cookie that make no sense otherwise.
    pub malformed: u64,
    /// Datagrams for which no receive was posted, or whose queue pair is gone.
    pub unwanted: u64,
    /// One-sided operations of peers refused: key, bounds, rights, alignment.
    pub refused: u64,
}

/// The queues of a queue pair and their depths.
#[derive(Clone, Copy)]
pub struct Queues<'a> {
    /// Where the send side completes.
    pub send: &'a Arc<dyn CompletionQueue>,
    /// Where the receive side completes (may be the same).
    pub receive: &'a Arc<dyn CompletionQueue>,
    /// Operations posted and not yet completed, at most.
    pub send_depth: u32,
    /// Receives posted and not yet completed, at most. Not looked at with a shared queue.
    pub receive_depth: u32,
    /// Pieces of one operation or receive, at most.
    pub pieces: u32,
    /// Bytes of an inline operation, at most.
    pub inline: u32,
    /// Where receives come from instead of a queue of its own.
    pub shared: Option<&'a Arc<dyn SharedReceiveQueue>>,
}

/// How patient a connected queue pair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcOptions {
    /// Time without a sign of the peer after which an operation fails with `RetryExceeded`, that of
    /// connecting included. (RDMA devices: timeout times retries, rounded up.)
    pub patience: Duration,
    /// Time for which a peer without a receive is waited for, before `ReceiverNotReady`.
    pub receiver_patience: Duration,
    /// Idle time after which the peer is asked whether it lives; it then has `patience` to answer.
    /// Without it an idle queue pair may never report that its peer is gone. RDMA devices: a write of
    /// no bytes that the provider posts itself.
    pub keepalive: Option<Duration>,
}

impl Default for RcOptions {
    fn default() -> Self {
        RcOptions {
            patience: Duration::from_secs(2),
            receiver_patience: Duration::from_secs(2),
            keepalive: None,
        }
    }
}

/// States of a connected queue pair.
///
/// ```text
///          reset()                connect(peer)
///   Reset ---------> Init ---------------------> Ready
///     (passed         ^                            |  failure, fail()
///      in reset)      '---------- Error <----------'  (Init: fail() too)
///                      reset()
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Being reset: nothing can be posted.
    Reset,
    /// Has an address; receives can be posted.
    Init,
    /// Connected: everything can be posted.
    Ready,
    /// Failed: everything posted completes with `Flushed`.
    Error,
}

/// What a completion queue is armed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next receive whose sender asked for it ([`Work::solicited`]), or the next failure.
    Solicited,
}

/// Why a sleeper woke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// An armed completion queue may have something, or the device has an event.
    Ready,
    /// [`Channel::wake`] was called.
    Called,
    /// The time has come.
    Elapsed,
}

/// Where a thread sleeps until a completion queue has something.
///
/// To lose no completion: [`CompletionQueue::arm`] all queues of the channel, poll each once more,
/// and only if all were empty wait. An arming lasts until it has fired once.
pub trait Channel: Any + Send + Sync {
    /// Sleeps until an armed queue got something, someone called [`Channel::wake`], or `until`. What
    /// happened since the last wait counts (returns at once). Spurious `Ready` is allowed. One thread
    /// waits at a time; a second waits as well, and either may get what both could.
    fn wait(&self, until: Time) -> Woken;

    /// Wakes the waiting thread, or the next that waits. From any thread. One system call at most.
    fn wake(&self);

    /// A descriptor that is readable when `wait` would return at once, to sleep with others in one
    /// place; none in a virtual network. Only `wait` makes it unreadable again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Where what was posted comes back.
pub trait CompletionQueue: Any + Send + Sync {
    /// Takes completions, oldest first; says how many. Never blocks, allocates nothing. Cost when
    /// empty: one load (simulated and verbs devices), or a look at the sockets (sockets).
    fn poll(&self, into: &mut [Completion]) -> usize;

    /// Makes the next completion end a wait on the channel (`ibv_req_notify_cq`). Completions that
    /// are there already need not: poll once more after arming. Without a channel an error.
    fn arm(&self, what: Arm) -> Result<()>;
}

/// Receives for any number of queue pairs.
pub trait SharedReceiveQueue: Any + Send + Sync {
    /// Its number in events.
    fn number(&self) -> u32;

    /// Posts receives.
    fn post(&self, receives: &[Receive<'_>]) -> Result<(), Refused>;

    /// Asks for one [`Event::LowWater`] when fewer than `mark` receives are left (at once if that is
    /// so now); 0 takes it back.
    fn arm_low_water(&self, mark: u32) -> Result<()>;
}

/// Datagrams: whole or not at all, in any order, perhaps twice, to any peer.
pub trait UdQueuePair: Any + Send + Sync {
    /// Its number in completions, unique in the device.
    fn number(&self) -> u32;

    /// Where peers reach it.
    fn address(&self) -> Address;

    /// Resolves a peer's address. Takes a lock and may allocate; do it once per peer. Errors: not an
    /// address of this kind of device, or one that cannot be reached from it.
    fn open_peer(&self, address: &Address) -> Result<Peer>;

    /// Gives a handle back. Datagrams posted before are sent.
    fn close_peer(&self, peer: Peer);

    /// Posts datagrams.
    fn send(&self, datagrams: &[Datagram<'_>]) -> Result<(), Refused>;

    /// Posts receives: each long enough for the prefix and the longest datagram of the device.
    /// `Unsupported` with a shared queue, whose receives must be as long: a datagram that comes upon
    /// a shorter one there completes it with `LocalLength`, and the queue pair goes on.
    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused>;
}

/// One peer, reliable and in order.
pub trait RcQueuePair: Any + Send + Sync {
    /// Its number in completions, unique in the device.
    fn number(&self) -> u32;

    /// Where a peer reaches it. Changes with every [`RcQueuePair::reset`]: what was under way to the
    /// old one is not taken.
    fn address(&self) -> Address;

    /// What it is in.
    fn state(&self) -> State;

    /// Connects to a peer's queue pair, which has to connect to this one: neither end waits, and
    /// operations may be posted at once. If the other end does not within `patience`, they fail with
    /// `RetryExceeded`. Errors: not an address of this kind of device; not in `Init`.
    fn connect(&self, peer: &Address) -> Result<()>;

    /// Posts operations. In `Error` they complete with `Flushed`.
    fn post(&self, works: &[Work<'_>]) -> Result<(), Refused>;

    /// Posts receives. `Unsupported` with a shared queue.
    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused>;

    /// Moves it to [`State::Error`] (`ibv_modify_qp` to `ERR`): everything posted completes with
    /// `Flushed`. What peers already have may have been done.
    fn fail(&self);

    /// Takes everything back: from any state to `Init` with a new address. What was posted is
    /// forgotten, completions of this queue pair that were not polled yet too.
    fn reset(&self) -> Result<()>;
}
