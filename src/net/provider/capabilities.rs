//! What a device can do. Whoever builds on a device asks here, never for its name.

/// Remote atomics of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomics {
    /// None: the packet path must do.
    None,
    /// Atomic among operations through this device only (`IBV_ATOMIC_HCA`): the processor must not
    /// update the same words by itself.
    Device,
    /// Atomic with the processor's own atomics too (`IBV_ATOMIC_GLOB`).
    Cpu,
}

/// Kinds of memory that can be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryKinds {
    /// Private memory: allocations, anonymous mappings.
    pub private: bool,
    /// Shared memory: mappings of memory files.
    pub shared: bool,
    /// Whether registering costs locked pages (`RLIMIT_MEMLOCK` counts).
    pub locked: bool,
}

/// Limits of a device. All sizes in bytes; all limits are at least 1 unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Longest datagram: what a UD queue pair carries in one send (the path MTU on RDMA devices).
    pub datagram: u32,
    /// Bytes that a device puts before a datagram in the receiver's buffer (the GRH: 40 on RDMA
    /// devices), or 0. Buffers for datagrams are longer by this; the payload begins behind it.
    pub datagram_prefix: u32,
    /// Longest message, read or write of a connected queue pair.
    pub message: u32,
    /// Most bytes of an inline send or write; may be 0.
    pub inline: u32,
    /// Most pieces of local memory in one operation or receive.
    pub pieces: u32,
    /// Most queue pairs of both kinds together.
    pub queue_pairs: u32,
    /// Deepest send or receive queue of a queue pair.
    pub queue_depth: u32,
    /// Deepest completion queue.
    pub completion_depth: u32,
    /// Deepest shared receive queue; 0 where there are none.
    pub shared_receive_depth: u32,
    /// Reads and atomics of one connected queue pair under way at a time; more wait in the queue.
    pub reads: u32,
    /// Remote atomics.
    pub atomics: Atomics,
    /// Whether what peers do to registered memory takes none of this process's processor. Where it
    /// does (sockets), a peer saves nothing by it against a request that a thread here carries out.
    pub offloads: bool,
    /// What can be registered.
    pub memory: MemoryKinds,
    /// Whether a connected queue pair of this process reports the peer's death without anything
    /// posted and without keepalive. Never rely on it being true: RDMA devices do not.
    pub reports_idle_death: bool,
}
