//! What is posted: operations, receives, the local and remote memory they name, and why posting is
//! refused. All `Copy`, nothing allocated; a provider copies what it needs before `post` returns, so
//! only the *registered* memory must stay alone until the completion.

use super::region::{Local, Remote};
use crate::base::Error;

/// Bytes to send or write.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory, gathered in this order. It must not change until the operation completes
    /// (what the peer gets otherwise is garbled, nothing worse).
    Pieces(&'a [Local]),
    /// Private memory, copied before `post` returns, of
    /// [`Capabilities::inline`](super::Capabilities::inline) bytes together at most.
    Inline(&'a [&'a [u8]]),
}

impl Data<'_> {
    /// Bytes of all parts.
    pub fn length(&self) -> u64 {
        match self {
            Data::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
            Data::Inline(parts) => parts.iter().map(|part| part.len() as u64).sum(),
        }
    }
}

/// An operation of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A message into the peer's next receive.
    Send {
        /// What.
        data: Data<'a>,
        /// Four bytes that the receive's completion carries.
        immediate: Option<u32>,
    },
    /// Bytes into the peer's memory. Without immediate data the peer's processor learns nothing of
    /// it; with it one of the peer's receives completes after the bytes are in place.
    Write {
        /// What.
        data: Data<'a>,
        /// Where.
        to: Remote,
        /// Uses up a receive.
        immediate: Option<u32>,
    },
    /// Bytes from the peer's memory, scattered in this order.
    Read {
        /// Where they go: registered with [`Access::LOCAL_WRITE`](super::Access).
        into: &'a [Local],
        /// From where.
        from: Remote,
    },
    /// Adds to the eight aligned bytes there (native byte order, wrapping); the old value arrives.
    FetchAdd {
        /// Eight bytes for the old value.
        into: Local,
        /// The word.
        at: Remote,
        /// What is added.
        add: u64,
    },
    /// Stores `swap` into the eight aligned bytes there if they are `compare`; the old value arrives.
    CompareSwap {
        /// Eight bytes for the old value.
        into: Local,
        /// The word.
        at: Remote,
        /// What it must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
}

/// One posted operation.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation<'a>,
    /// Whether success makes a completion. Failure always does. The place that an unsignalled
    /// operation takes in the queue is certainly free again only once the completion of a later,
    /// signalled one of the same queue pair has been polled: signal one at least every depth.
    pub signalled: bool,
    /// Waits until earlier reads and atomics of the queue pair are done (else a later send may carry
    /// what their buffers held before).
    pub fenced: bool,
    /// Its completion at the receiver wakes also those that
    /// [wait for solicited ones only](super::Arm::Solicited).
    pub solicited: bool,
}

impl<'a> Work<'a> {
    /// A signalled operation, neither fenced nor solicited.
    pub fn new(id: u64, operation: Operation<'a>) -> Work<'a> {
        Work { id, operation, signalled: true, fenced: false, solicited: false }
    }

    /// The same without a completion on success.
    pub fn unsignalled(self) -> Work<'a> {
        Work { signalled: false, ..self }
    }
}

/// An address that a datagram queue pair has resolved (on RDMA devices: an address handle with the
/// peer's number and key). Closed, it is never taken for another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer(pub u64);

/// One posted datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// To whom.
    pub to: Peer,
    /// What: [`Capabilities::datagram`](super::Capabilities::datagram) bytes at most.
    pub data: Data<'a>,
    /// Four bytes that the receive's completion carries.
    pub immediate: Option<u32>,
    /// As for [`Work::signalled`].
    pub signalled: bool,
    /// As for [`Work::solicited`].
    pub solicited: bool,
}

/// One posted receive.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Where to: registered with [`Access::LOCAL_WRITE`](super::Access), filled in this order.
    pub pieces: &'a [Local],
}

/// Why something could not be posted. Nothing of it was; what came before it in the call was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue is full: poll completions, then try again. Not a failure.
    Full,
    /// The queue pair is not connected yet (sends), or being reset.
    NotReady,
    /// More bytes than one operation, datagram or inline send may have.
    TooLong {
        /// Bytes there were.
        length: u64,
        /// Bytes there may be.
        limit: u64,
    },
    /// A receive that is too short for the datagrams this queue pair may get.
    TooShort {
        /// Bytes there were.
        length: u64,
        /// Bytes there must be.
        needed: u64,
    },
    /// More pieces than the device gathers or scatters.
    TooManyPieces,
    /// The peer's handle was closed, or is of another queue pair.
    UnknownPeer,
    /// The device has no such operation, or the queue pair gets its receives from a shared queue.
    Unsupported,
    /// The bytes do not lie in the region.
    OutOfBounds,
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PostError::Full => write!(f, "the queue is full; poll completions and try again"),
            PostError::NotReady => write!(f, "the queue pair is not connected; connect it first"),
            PostError::TooLong { length, limit } => {
                write!(f, "{length} bytes, and {limit} are the most this device takes at once")
            }
            PostError::TooShort { length, needed } => {
                write!(f, "a receive of {length} bytes, and datagrams may need {needed}")
            }
            PostError::TooManyPieces => write!(f, "more pieces than the device gathers"),
            PostError::UnknownPeer => write!(f, "the peer's handle is closed or of another queue"),
            PostError::Unsupported => write!(f, "this queue has no such operation"),
            PostError::OutOfBounds => write!(f, "the bytes do not lie in the registered region"),
        }
    }
}

impl std::error::Error for PostError {}

impl PostError {
    /// As an error of the library. (Not by `From`: every conversion to `Error` takes the compiler's
    /// certainty away wherever `?` follows a closure.)
    pub fn error(self) -> Error {
        Error::Misuse { what: "posting to a queue pair", why: self.to_string() }
    }
}

/// How far a list of postings came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// How many of the list were posted.
    pub posted: usize,
    /// Why the next one was not.
    pub why: PostError,
}

impl Refused {
    /// As an error of the library.
    pub fn error(self) -> Error {
        self.why.error()
    }
}
