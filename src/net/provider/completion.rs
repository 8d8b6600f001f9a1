//! Completions: what became of what was posted.

use super::address::Address;

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// A send, of a datagram or a message.
    Send,
    /// A write, with or without immediate data.
    Write,
    /// A read.
    Read,
    /// A fetch-and-add.
    FetchAdd,
    /// A compare-and-swap.
    CompareSwap,
    /// A receive into which a datagram or message came.
    Receive,
    /// A receive that a peer's write with immediate data used up: nothing is in its buffer.
    ReceiveWrite,
}

impl Opcode {
    /// Whether it is one of a receive queue.
    pub fn is_receive(self) -> bool {
        matches!(self, Opcode::Receive | Opcode::ReceiveWrite)
    }
}

/// How it went, in the terms of RDMA devices. Each but `Success` leaves the queue pair in
/// [`State::Error`](super::State::Error) unless it is a datagram queue pair that says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// As asked.
    Success,
    /// What came was longer than the receive buffer.
    LocalLength,
    /// Local memory is not registered under that key, or not there, or not writable.
    LocalProtection,
    /// The operation itself is not one this queue pair can carry out.
    LocalOperation,
    /// The queue pair failed (or was failed) before its turn came. The first completion in error of
    /// the queue pair says why.
    Flushed,
    /// The peer found the request wrong in itself: longer than its receive buffer, misaligned.
    RemoteInvalid,
    /// The peer has no such memory, not that much, or does not permit that access.
    RemoteAccess,
    /// The peer could not carry it out for a reason of its own.
    RemoteOperation,
    /// The peer does not answer: dead, unreachable, or its end of the queue pair is gone.
    RetryExceeded,
    /// The peer lives but had no receive posted for too long.
    ReceiverNotReady,
    /// The device failed.
    Fatal,
}

impl Status {
    /// What it means and what to look at, for messages.
    pub fn text(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocalLength => "what came is longer than the receive buffer",
            Status::LocalProtection => "local memory is not registered for this (or no longer)",
            Status::LocalOperation => "the queue pair cannot carry this operation out",
            Status::Flushed => "the queue pair had failed before",
            Status::RemoteInvalid => "the peer refuses the request (too long, or misaligned)",
            Status::RemoteAccess => {
                "the peer's memory may not be accessed so (key, bounds, rights)"
            }
            Status::RemoteOperation => "the peer could not carry the operation out",
            Status::RetryExceeded => "the peer does not answer (dead, or the network is cut)",
            Status::ReceiverNotReady => "the peer had no receive buffer for too long",
            Status::Fatal => "the device failed",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// One completion. Where `status` is not `Success` only `id`, `queue_pair`, `opcode` (send or
/// receive side; the exact operation only where the provider knows) and `status` mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What the poster called it.
    pub id: u64,
    /// [Number](super::UdQueuePair::number) of the queue pair.
    pub queue_pair: u32,
    /// What completed.
    pub opcode: Opcode,
    /// How it went.
    pub status: Status,
    /// Bytes moved: of the payload received (without the prefix), or of the operation.
    pub length: u32,
    /// Immediate data that came with it.
    pub immediate: Option<u32>,
    /// Receives of datagrams: whose; as good as the sender's own `address()`. Else `Address::NONE`.
    pub source: Address,
}

impl Completion {
    /// Fills arrays before polling.
    pub const NONE: Completion = Completion {
        id: 0,
        queue_pair: 0,
        opcode: Opcode::Send,
        status: Status::Fatal,
        length: 0,
        immediate: None,
        source: Address::NONE,
    };
}

/// What happened to a device or its objects without a completion that could say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A shared receive queue (its [number](super::SharedReceiveQueue::number)) has fewer receives
    /// than the mark it was armed with. Once per arming.
    LowWater(u32),
    /// This queue pair went into the error state.
    QueuePairFailed(u32),
    /// The port (link, interface) is down: operations will fail unless it comes back.
    PortDown,
    /// The port is back.
    PortUp,
    /// The device failed; all its queue pairs are in the error state.
    DeviceFailed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_fits_into_two_cache_lines() {
        assert!(size_of::<Completion>() <= 128, "{}", size_of::<Completion>());
    }
}
