//! The seam between windows and parts that are not reached by loads and stores.
//!
//! ```text
//!   operations on an Epoch            synchronisation (epoch::*)
//!        |  place(): Here -> direct          |
//!        |           Away                    |
//!        v                                   v
//!   +-------------------- dyn Remote ----------------------+
//!   | packets executed at the target (rma::packet); large  |
//!   | puts and gets between nodes by the devices           |
//!   +------------------------------------------------------+
//! ```
//! Everything here is untyped: bytes, element kinds, ranks of the window's team. One object
//! stands for one window in one process; any thread may call.

use super::foreign::Foreign;
use super::ops::transfer::Action;
use crate::base::{Error, Rank, Result};
use crate::layout::{Kind, Shape};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

/// Memory of this process that an operation reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'m> {
    /// First byte, or where the shape is applied.
    pub at: *mut u8,
    /// Number of bytes, as packed.
    pub bytes: usize,
    /// How they lie; one after the other for `None`.
    pub shape: Option<Shape<'m>>,
    _borrow: PhantomData<&'m u8>,
}

impl<'m> Memory<'m> {
    /// No bytes.
    pub const NONE: Memory<'static> =
        Memory { at: std::ptr::dangling_mut(), bytes: 0, shape: None, _borrow: PhantomData };

    /// Memory that is only read.
    pub fn of<T>(values: &'m [T]) -> Memory<'m> {
        let at = values.as_ptr().cast_mut().cast();
        Memory { at, bytes: size_of_val(values), shape: None, _borrow: PhantomData }
    }

    /// Memory that is written.
    pub fn of_mut<T>(values: &'m mut [T]) -> Memory<'m> {
        Memory {
            bytes: size_of_val(values),
            at: values.as_mut_ptr().cast(),
            shape: None,
            _borrow: PhantomData,
        }
    }

    /// What lies behind the first `bytes` of bytes that lie together; there are as many.
    pub fn behind(self, bytes: usize) -> Memory<'m> {
        Memory { at: self.at.wrapping_add(bytes), bytes: self.bytes - bytes, ..self }
    }

    /// The bytes of `shape` in this memory, `bytes` of them as packed. The caller has checked that
    /// they lie in it.
    pub fn shaped(self, shape: Shape<'m>, bytes: usize) -> Memory<'m> {
        Memory { bytes, shape: Some(shape), ..self }
    }
}

/// Where what is fetched goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Landing<'m> {
    /// Nothing is fetched.
    Nothing,
    /// Into this memory; the call returns when it is there.
    Here(Memory<'m>),
    /// Into memory of the operation's own; the call returns a ticket, [`Remote::poll`] the bytes.
    Later,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'m> {
    /// The call, for errors.
    pub what: &'static str,
    /// Whose part.
    pub target: Rank,
    /// Bytes from the beginning of the target's part, or an address in a dynamic window.
    pub at: u64,
    /// Bytes at the target, as packed.
    pub bytes: usize,
    /// How they lie there, applied at `at`; one after the other for `None`.
    pub shape: Option<Shape<'m>>,
    /// What is done.
    pub action: Action,
    /// Kind of the elements: of accumulates and compare-and-swap; `None` where only bytes matter.
    pub kind: Option<Kind>,
    /// Bytes of an element, for errors and for units that end between elements.
    pub element: usize,
    /// What is sent: as long as the target's bytes, or none. Of a compare-and-swap the new value.
    pub origin: Memory<'m>,
    /// The expected value of a compare-and-swap.
    pub compare: Memory<'m>,
    /// Where the result goes.
    pub landing: Landing<'m>,
}

/// An operation that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// How a part is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locking {
    /// Alone, or together with others that share it.
    pub exclusive: bool,
    /// The caller asserts that nobody holds a conflicting lock.
    pub no_check: bool,
    /// The calling thread holds others of the window.
    pub beside: bool,
}

/// One window's remote parts. See the [module](self).
///
/// Waits notice dead peers ([`crate::Error::RankDied`]) and take the team's deadline. Operations
/// by one process on one target's part are carried out there in the order of the calls.
pub(crate) trait Remote: Debug + Send + Sync {
    /// Posts an operation.
    ///
    /// On return the origin's memory has been read, so the operation is locally complete: small
    /// data was copied, large data streamed out. With [`Landing::Here`] the result is there, with
    /// [`Landing::Later`] a ticket is returned, which the caller gives back by [`Remote::poll`]
    /// or [`Remote::abandon`].
    ///
    /// # Errors
    /// What is wrong with the operation as far as it is known here; what the target found wrong
    /// with it if the call waits for the target, else the next flush reports that.
    fn post(&self, operation: &Operation<'_>) -> Result<Option<Ticket>>;

    /// The result of a ticket's operation, if it has come; the ticket is used up by a result or
    /// an error. If not: makes progress, and wakes `waker` once it is worth asking again.
    fn poll(&self, ticket: Ticket, waker: Option<&Waker>) -> Result<Option<Vec<u8>>>;

    /// As [`Remote::poll`], but waits.
    fn wait(&self, ticket: Ticket) -> Result<Vec<u8>>;

    /// Forgets a ticket: its result is thrown away when it comes.
    fn abandon(&self, ticket: Ticket);

    /// Waits until this process's operations on `target` (all targets for `None`) have been
    /// carried out there, and reports the first that the target refused since the last flush.
    fn flush(&self, target: Option<Rank>) -> Result<()>;

    /// Waits until the memory of this process's operations may be used again. [`Remote::post`]
    /// returns only then, so this has little to do.
    fn flush_local(&self, target: Option<Rank>) -> Result<()>;

    /// Sees to it that what was posted for `target` so far reaches it before anything that this
    /// process posts there later on any window, without waiting for it to be carried out.
    fn push(&self, target: Rank) -> Result<()>;

    /// Whether this implementation also synchronises. If not, epochs are synchronised as for
    /// mapped memory, with [`Remote::flush`] before each release, and nothing below is called.
    fn synchronises(&self) -> bool;

    /// Waits until this process may access a part that it has mapped, in the epoch that is open:
    /// from when on operations posted for it would be carried out there, to the end of the epoch.
    /// Called before each access; one load but for the first.
    ///
    /// # Errors
    /// As for operations; a target that is dead or has dropped the window is reported as such.
    fn reach(&self, what: &'static str, target: Rank) -> Result<()>;

    /// Begins to acquire the lock of a part; operations may be posted at once.
    fn lock(&self, target: Rank, locking: Locking) -> Result<()>;

    /// Waits until the lock of a part is held; returns the dead rank from which an exclusive lock
    /// had to be taken.
    fn recovered_from(&self, target: Rank) -> Result<Option<Rank>>;

    /// Completes the operations on a part and releases its lock.
    fn unlock(&self, target: Rank) -> Result<()>;

    /// Begins to acquire all locks, shared.
    fn lock_all(&self, no_check: bool) -> Result<()>;

    /// Completes all operations and releases all locks.
    fn unlock_all(&self) -> Result<()>;

    /// Ends one phase of fences and begins the next.
    fn fence(&self, assertions: super::epoch::Assertions) -> Result<()>;

    /// Exposes this process's part to `origins`.
    fn expose(&self, origins: &[Rank], no_check: bool) -> Result<()>;

    /// Opens access to the parts of `targets`; operations may be posted at once.
    fn start(&self, targets: &[Rank], no_check: bool) -> Result<()>;

    /// Completes the access opened by [`Remote::start`].
    fn complete(&self) -> Result<()>;

    /// Waits until all origins have completed; whether they have, if not to wait.
    fn exposure_over(&self, wait: bool) -> Result<bool>;

    /// Takes in who performs operations that are not one-sided ones: by every member before any of
    /// them issues one. Several threads may do so; the first one's stays, and is returned to all.
    fn attach(&self, foreign: Arc<dyn Foreign>) -> Arc<dyn Foreign>;

    /// Makes progress until `step`, which is asked after every look at what has arrived, is done;
    /// sleeps when that does not pay.
    ///
    /// # Errors
    /// The team's deadline, damage, what `step` returns.
    fn drive(
        &self,
        during: &'static str,
        step: &mut dyn FnMut() -> Option<Result<()>>,
    ) -> Result<()>;

    /// A call that has what was attached pump now. For threads that are none of the program's; it
    /// keeps the window's peers reachable, but not the window.
    fn kicker(&self) -> Box<dyn Fn() + Send + Sync>;

    /// Most bytes of the body of an operation or note.
    fn most_body(&self) -> usize;

    /// What was attached.
    fn attached(&self) -> Option<&Arc<dyn Foreign>>;

    /// Takes what has arrived, and sends what is to be sent; whether there is a thread that does,
    /// too.
    fn look(&self) -> Result<bool>;

    /// What this process has done on all such windows, and what it holds: names and values.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// The window goes: nothing more is executed on this process's part when it returns. Others
    /// get an answer that says so.
    fn close(&self);
}

/// This process's own part as packets of others reach it.
pub(crate) trait OwnPart: Debug + Send + Sync {
    /// Calls `run` with the address of the `bytes` bytes at displacement `at` of the part (see
    /// [`Operation::at`]), which stay where they are until it returns.
    ///
    /// # Errors
    /// How many bytes the part has, if those do not lie in it.
    fn with(&self, at: u64, bytes: u64, run: &mut dyn FnMut(*mut u8)) -> Result<(), u64>;

    /// All of it, where that is one piece which stays as long as the window; displacements are bytes
    /// from its beginning then.
    fn whole(&self) -> Option<(NonNull<u8>, usize)>;
}

/// The error about a member that has dropped the window while it is wanted there.
pub(crate) fn gone(what: &'static str, target: Rank) -> Error {
    Error::Misuse {
        what,
        why: format!(
            "rank {target} has dropped the window; let all ranks call Window::free, which waits \
             for everybody"
        ),
    }
}
