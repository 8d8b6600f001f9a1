//! The one error type. Every message says what happened, to whom, and what to do about it.

use super::ids::Rank;
use std::time::Duration;

/// Result of everything in hither that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank that the call depends on is dead.
    #[error(
        "rank {rank} died ({cause}) while this rank was in {during}; the survivors can go on with Team::shrink, or end"
    )]
    RankDied {
        /// The dead rank, numbered as in the whole job.
        rank: Rank,
        /// What is known of the cause: a signal, an exit code, or only that it vanished.
        cause: String,
        /// The call that noticed.
        during: &'static str,
    },
    /// A rank that the call waits for has left the job in good order.
    #[error(
        "rank {rank} left the job while this rank waited for it in {during}; let all ranks make the same collective calls before they end"
    )]
    RankLeft {
        /// The rank, numbered as in the whole job.
        rank: Rank,
        /// The call that noticed.
        during: &'static str,
    },
    /// A wait passed its deadline.
    #[error("{during} gave up after {waited:.1?}{}", missing_text(.missing))]
    TimedOut {
        /// The call that waited.
        during: &'static str,
        /// How long it had waited.
        waited: Duration,
        /// The ranks (numbered as in the whole job) that had not arrived, where that is known;
        /// at most 16 are listed.
        missing: Vec<Rank>,
    },
    /// Physical or address-space memory could not be had.
    #[error(
        "no memory for {what}: {wanted} bytes wanted, {available} available ({limit}); {advice}"
    )]
    OutOfMemory {
        /// What the memory was for.
        what: String,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that could be had.
        available: u64,
        /// Which limit binds.
        limit: String,
        /// What the user can do.
        advice: &'static str,
    },
    /// Another rank failed in a collective call that all must complete.
    #[error("{during}: rank {rank} could not complete it (its own error says why), so no rank did")]
    PeerFailed {
        /// A rank that failed, numbered as in the team of the call.
        rank: Rank,
        /// The call.
        during: &'static str,
    },
    /// What a device was doing at another rank, and must not be done twice, when the connection failed.
    #[error(
        "{what}: the connection to rank {rank} failed while its device carried this out; whether it has is not known, and what was there is lost. It is not carried out later: look at the element, or have the library do it (HITHER_NET_ATOMICS=never)"
    )]
    Uncertain {
        /// The call.
        what: &'static str,
        /// The target, numbered as in the whole job.
        rank: Rank,
    },
    /// An access outside a window or a buffer.
    #[error("{what}: elements {start}..{end} lie outside the {len} elements of rank {rank}'s part")]
    OutOfBounds {
        /// The operation.
        what: &'static str,
        /// The target.
        rank: Rank,
        /// First element.
        start: u64,
        /// One past the last element.
        end: u64,
        /// Elements there are.
        len: u64,
    },
    /// An argument that cannot be used.
    #[error("{what}: {why}")]
    InvalidArgument {
        /// The call or setting.
        what: &'static str,
        /// What is wrong with it and what would be right.
        why: String,
    },
    /// A user's active-message handler panicked; the window's lock was released.
    #[error("the handler {index} panicked while it ran on rank {target}'s window: {message}")]
    HandlerPanicked {
        /// Index the handler was registered under.
        index: u32,
        /// The rank whose window it ran on.
        target: Rank,
        /// The panic's message.
        message: String,
    },
    /// A rank died inside a handler, so the target's part of the window may be half-changed.
    #[error(
        "rank {target}'s part of the window is poisoned: rank {culprit} died inside an active message on it; repair the data, then call Window::heal({target})"
    )]
    WindowPoisoned {
        /// The rank whose part is affected.
        target: Rank,
        /// The rank that died.
        culprit: Rank,
    },
    /// A message was longer than the buffer it was received into.
    #[error(
        "the message of rank {from} with tag {tag} has {sent} bytes and the buffer room for {room}; it was dropped: receive into a larger buffer (probe tells the size)"
    )]
    Truncated {
        /// Who sent it, numbered as in the team of the call.
        from: Rank,
        /// Its tag.
        tag: u32,
        /// Bytes it had.
        sent: u64,
        /// Bytes there was room for.
        room: u64,
    },
    /// A message was received as elements of another size than it was sent as.
    #[error(
        "the message of rank {from} with tag {tag} has {sent} bytes, sent as elements of {element}, and cannot be received as elements of {expected} bytes; it was dropped: let both sides use the same type"
    )]
    ElementSize {
        /// Who sent it, numbered as in the team of the call.
        from: Rank,
        /// Its tag.
        tag: u32,
        /// Bytes it had.
        sent: u64,
        /// Bytes of the elements that were sent; 0 or 255 where that is not known.
        element: u64,
        /// Bytes of the elements that were to be received.
        expected: u64,
    },
    /// A bounded resource is used up.
    #[error("{what}: all {limit} are in use; {advice}")]
    Exhausted {
        /// The resource.
        what: &'static str,
        /// Its bound.
        limit: u64,
        /// What the user can do.
        advice: &'static str,
    },
    /// The call is not allowed in the present state.
    #[error("{what}: {why}")]
    Misuse {
        /// The call.
        what: &'static str,
        /// Why not now, and what to do first.
        why: String,
    },
    /// This process was forked off from a rank, and is no rank itself.
    #[error(
        "{what}: this process was forked from a rank of a job and is no rank itself; leave the call to the rank, or execute a program in the child (exec, or start ranks with a Launcher)"
    )]
    Forked {
        /// The call.
        what: &'static str,
    },
    /// Two ranks disagree about something all must agree on.
    #[error("{what} differs between ranks: rank {a} has {a_has}, rank {b} has {b_has}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// One rank.
        a: Rank,
        /// What it has.
        a_has: String,
        /// The other rank.
        b: Rank,
        /// What that one has.
        b_has: String,
    },
    /// The wiring of a job failed.
    #[error("cannot wire the job up: {why}")]
    Boot {
        /// What went wrong and what to do.
        why: String,
    },
    /// Shared bytes do not have the form they must have: another version, or damaged.
    #[error("{what} is not usable: {why}")]
    Incompatible {
        /// Which structure.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A system call failed.
    #[error("{call} failed: {source}{}", hint_text(.hint))]
    Os {
        /// The system call and what it was for.
        call: &'static str,
        /// The cause.
        source: std::io::Error,
        /// What the user can do, or empty.
        hint: &'static str,
    },
}

impl Error {
    /// Wraps the error of a system call.
    pub fn os(call: &'static str, source: impl Into<std::io::Error>) -> Error {
        Error::Os { call, source: source.into(), hint: "" }
    }

    /// An unusable argument.
    pub fn invalid(what: &'static str, why: impl Into<String>) -> Error {
        Error::InvalidArgument { what, why: why.into() }
    }

    /// Failed wiring.
    pub fn boot(why: impl Into<String>) -> Error {
        Error::Boot { why: why.into() }
    }

    /// Whether the error reports that a rank is gone: dead, or left.
    pub fn is_death(&self) -> bool {
        matches!(
            self,
            Error::RankDied { .. } | Error::RankLeft { .. } | Error::WindowPoisoned { .. }
        )
    }
}

fn missing_text(missing: &[Rank]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let list: Vec<String> = missing.iter().take(16).map(ToString::to_string).collect();
    format!("; still missing: rank {}", list.join(", "))
}

fn hint_text(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("; {hint}") }
}
