//! The settings table: name, default, unit, meaning. One table makes environment parsing, the
//! documentation and `hither doctor`'s output. Nothing else in the library reads the environment.

use super::error::{Error, Result};
use std::time::Duration;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Environment variable.
    pub name: &'static str,
    /// Value used when the variable is not set.
    pub default: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $id:ident = $name:literal, $default:literal, $unit:literal;)+) => {
        $(
            $(#[doc = $doc])+
            pub const $id: Setting = Setting {
                name: $name, default: $default, unit: $unit, doc: concat!($($doc),+),
            };
        )+
        /// Every setting, in the order in which `doctor` prints them.
        pub const TABLE: &[Setting] = &[$($id),+];
    };
}

settings! {
    /// Longest time that wiring a job may take before it fails and says who is missing.
    WIRE_TIMEOUT = "HITHER_WIRE_TIMEOUT", "30", "seconds";
    /// Default time limit of waits (collectives, locks, flow control); 0 means none. The death of
    /// a peer ends a wait in any case.
    WAIT_TIMEOUT = "HITHER_WAIT_TIMEOUT", "0", "seconds";
    /// Address space kept for each rank's symmetric memory. Only what windows use takes memory.
    HEAP_SIZE = "HITHER_HEAP_SIZE", "64G", "bytes";
    /// Spin iterations before a wait yields; auto means many when every rank has a core of its
    /// own and waits with no more threads than it has cores, few otherwise.
    SPIN = "HITHER_SPIN", "auto", "iterations";
    /// Where ranks share cores: whether a rank that keeps finding the peer it waits for on its own core
    /// moves to another of those it may use. Only with HITHER_SPIN=auto.
    STEP_ASIDE = "HITHER_STEP_ASIDE", "1", "0 or 1";
    /// Ask for huge pages in symmetric memory (advice; the system may have them switched off).
    HUGE_PAGES = "HITHER_HUGE_PAGES", "1", "0 or 1";
    /// Messages to one peer through its inbox before a private lane is opened to it.
    LANE_AFTER = "HITHER_LANE_AFTER", "64", "messages";
    /// Messages up to this size travel with their data at any time. What fits into one short message
    /// (7032 bytes) needs no other memory; up to larger limits, which HITHER_EAGER=fixed allows,
    /// they go through a pool of the receiver's buffers. Still larger ones are announced.
    EAGER_LIMIT = "HITHER_EAGER_LIMIT", "16K", "bytes";
    /// In a node: messages of more than 1K and up to this size (512K at most) go through a buffer of the
    /// sender's, unless both have their data mapped; 0: never. Those of more than 64K only where one
    /// follows the other before that is over, unless HITHER_LEND=always.
    LEND_LIMIT = "HITHER_LEND_LIMIT", "512K", "bytes";
    /// Of these, messages larger than HITHER_EAGER_LIMIT: whether they are announced instead, and wait for
    /// their receiver, where that takes less time, which is measured while the program runs (auto), or
    /// never (always).
    LEND = "HITHER_LEND", "auto", "auto or always";
    /// Memory of a process for such buffers, in the node's memory.
    LEND_BYTES = "HITHER_LEND_BYTES", "16M", "bytes";
    /// Messages that are too large for short ones: up to which size their data travel with them is
    /// found out by direction while the program runs, between nodes and where neither side can copy
    /// the other's memory (adaptive) or everywhere (always), or HITHER_EAGER_LIMIT says it for all
    /// (fixed).
    EAGER = "HITHER_EAGER", "adaptive", "adaptive, always or fixed";
    /// Pools of buffers for large messages that travel with their data: one per size class.
    EAGER_POOLS = "HITHER_EAGER_POOLS", "20", "pools";
    /// Memory of all such pools of a process, in the node's memory, and as much for those that queue
    /// pairs of other nodes send into.
    EAGER_BYTES = "HITHER_EAGER_BYTES", "64M", "bytes";
    /// Buffers of one such pool.
    EAGER_BUFFERS = "HITHER_EAGER_BUFFERS", "256", "buffers";
    /// Buffers that such a pool begins with where the limit is fixed: they are made at its first use
    /// and stay. One that adapts has two for the first sender and one for each other, as long as they
    /// are needed.
    EAGER_FIXED_BUFFERS = "HITHER_EAGER_FIXED_BUFFERS", "16", "buffers";
    /// Time for which a pool's buffers must not have been needed before they are freed (where the
    /// limit adapts). It is doubled, up to 64 times, where that was too soon.
    EAGER_AGE = "HITHER_EAGER_AGE", "1", "seconds";
    /// Memory for messages that have come and that nobody has asked for, beyond which senders only
    /// announce theirs, whatever their size, until half of it is free.
    UNEXPECTED_LIMIT = "HITHER_UNEXPECTED_LIMIT", "16M", "bytes";
    /// Large messages between private memories: copied by the kernel where it permits
    /// (process_vm_readv), which is tried out silently, or never (0): then through shared buffers.
    /// Where both sides wait for a message, it goes through these, or each side has the kernel copy a half,
    /// if that is faster, which is measured while the program runs (auto), or always (slow, halves), or never (fast).
    /// Collectives of large private data: by the kernel or in pieces, likewise; slow: in pieces.
    CMA = "HITHER_CMA", "auto", "auto, fast, slow, halves or 0";
    /// Shared buffers are filled by plain stores or by non-temporal ones, which pass the caches by: those that are faster, which
    /// is measured while the program runs (auto), or always the one or the other.
    STORES = "HITHER_STORES", "auto", "auto, plain or nontemporal";
    /// Packet windows: when operations are sent: eager (as soon as the synchronisation allows),
    /// delayed (when the epoch ends), adaptive (delayed while they are few and small).
    RMA_ISSUING = "HITHER_RMA_ISSUING", "adaptive", "eager, delayed or adaptive";
    /// Packet windows, adaptive sending: operations in an epoch from which on it is eager.
    RMA_EAGER_OPERATIONS = "HITHER_RMA_EAGER_OPERATIONS", "64", "operations";
    /// Packet windows, adaptive sending: bytes in an epoch from which on it is eager.
    RMA_EAGER_BYTES = "HITHER_RMA_EAGER_BYTES", "16K", "bytes";
    /// Packet windows: targets with operations under way, over all windows of a process.
    RMA_TARGETS = "HITHER_RMA_TARGETS", "256", "objects";
    /// Packet windows: lock queries of others that wait at one process in order of arrival; more
    /// are served in turn of ranks behind them.
    RMA_ORIGINS = "HITHER_RMA_ORIGINS", "128", "objects";
    /// Packet windows: operations kept before they are sent, over all windows of a process.
    RMA_OPERATIONS = "HITHER_RMA_OPERATIONS", "1024", "objects";
    /// Packet windows: operations sent and not yet answered, over all windows of a process.
    RMA_OUTSTANDING = "HITHER_RMA_OUTSTANDING", "1024", "operations";
    /// Packet windows: operations sent to a target before its lock is known to be granted; 0 to
    /// wait for the grant.
    RMA_SPECULATE = "HITHER_RMA_SPECULATE", "1024", "operations";
    /// Packet windows: the largest team whose fence tells each member how many ranks have
    /// operations for it (fewer messages wait, memory grows with the team); larger ones take two
    /// barriers. At most 1024. The same for all members of a window, or making it fails.
    RMA_REDUCE_TEAMS = "HITHER_RMA_REDUCE_TEAMS", "64", "ranks";
    /// Through what windows reach other ranks' parts: auto means directly where the memory is mapped
    /// and by packets where it is not, packets means by packets everywhere.
    RMA_MEDIUM = "HITHER_RMA_MEDIUM", "auto", "auto or packets";
    /// Who carries out one-sided operations that arrive as packets: a thread of the library that
    /// sleeps until some arrive (thread), or only the program's own calls of the library (calls).
    PROGRESS = "HITHER_PROGRESS", "thread", "thread or calls";
    /// Active messages by packets: room at each target that every origin has without asking, while
    /// it has messages there. Of what members of a window say the least counts.
    AM_SYSTEM_BUFFER = "HITHER_AM_SYSTEM_BUFFER", "32K", "bytes";
    /// Active messages by packets: memory of a process for what origins have without asking, of all
    /// windows. Each window may have half of what is left when its first handler is registered. Where
    /// a system buffer for each member would be more, each has as much as fits into half of that, and
    /// the other half (one system buffer at least) they share in turns.
    AM_SYSTEM_TOTAL = "HITHER_AM_SYSTEM_TOTAL", "64M", "bytes";
    /// Active messages by packets: input or output, whichever is more, that is sent as one unit of
    /// work, in whole segments; 0 means as much as a packet holds.
    AM_UNIT = "HITHER_AM_UNIT", "0", "bytes";
    /// Active messages with variable output: how much of it must be filled before it is sent whole
    /// instead of packed; 0 never packs, 1 always.
    AM_PACK = "HITHER_AM_PACK", "0.8", "0 to 1";
    /// Active messages by packets: threads that run handlers in a target. More than one is of use
    /// where messages may run at the same time.
    AM_THREADS = "HITHER_AM_THREADS", "1", "threads";
    /// Collectives: rows that come before those of the table of algorithms, separated by commas, as
    /// allreduce:0-56=boards or *:1M-@2-4=pieces (bytes, members); hither collectives shows the
    /// table. The same at all ranks.
    COLL = "HITHER_COLL", "", "operation:bytes@members=algorithm";
    /// Work lost by updating a window's elements one by one atomically, or under locks where
    /// single ones are updated, after which the window changes to the other way. 0 changes with
    /// every occasion.
    UPDATE_SWITCH = "HITHER_UPDATE_SWITCH", "65536", "nanoseconds";
    /// Between nodes, over sockets: the address of this machine that everything is bound to, or the
    /// name of an interface. The default reaches this machine only.
    NET_ADDRESS = "HITHER_NET_ADDRESS", "127.0.0.1", "IP address or interface";
    /// Between nodes: over what: sockets, verbs (RDMA devices), or auto: verbs where all processes have
    /// a device that can be used, else sockets.
    NET_PROVIDER = "HITHER_NET_PROVIDER", "auto", "auto, sockets or verbs";
    /// Between nodes, over verbs: the RDMA device, by its name; empty leaves it to the policy.
    NET_DEVICE = "HITHER_NET_DEVICE", "", "name";
    /// Between nodes, over verbs: the device's port; 0 leaves it to the policy.
    NET_PORT = "HITHER_NET_PORT", "0", "number";
    /// Between nodes, over verbs: only addresses in this subnet are used, as 10.0.0.0/8.
    NET_SUBNET = "HITHER_NET_SUBNET", "", "address/bits";
    /// Between nodes, over verbs: the index of the GID in the port's table; auto leaves it to the
    /// policy.
    NET_GID = "HITHER_NET_GID", "auto", "index";
    /// Between nodes, over verbs: traffic class of all packets (on RoCE the type of service).
    NET_TRAFFIC_CLASS = "HITHER_NET_TRAFFIC_CLASS", "0", "0 to 255";
    /// Between nodes: time without an answer after which a process that should give one counts as
    /// dead.
    NET_TIMEOUT = "HITHER_NET_TIMEOUT", "10", "seconds";
    /// Between nodes: the longest datagram (over verbs at most the MTU).
    NET_DATAGRAM = "HITHER_NET_DATAGRAM", "4096", "bytes";
    /// Between nodes: who gets a connected queue pair: nobody (never), who is sent to in the program's
    /// kernel region (kernel), or also who is sent to often (traffic).
    NET_PAIRS = "HITHER_NET_PAIRS", "traffic", "never, kernel or traffic";
    /// Between nodes: messages after which a peer gets a queue pair by traffic.
    NET_PAIR_AFTER = "HITHER_NET_PAIR_AFTER", "64", "messages";
    /// Between nodes: queue pairs of a process at a time. Where one more is wanted, the one that is
    /// used least goes.
    NET_PAIR_LIMIT = "HITHER_NET_PAIR_LIMIT", "128", "queue pairs";
    /// Between nodes: messages from this size on are read by their receiver out of their sender's
    /// memory where a queue pair leads there, instead of coming in pieces; 0 means none are. At least
    /// what a short message holds (7032 bytes).
    NET_READ_FROM = "HITHER_NET_READ_FROM", "16K", "bytes";
    /// Between nodes: puts of elements that follow each other are written into the target's memory by
    /// its device from this size on where a queue pair leads there, instead of being carried out by the
    /// target; 0 means none are. More than 8 bytes.
    NET_PUT_FROM = "HITHER_NET_PUT_FROM", "16K", "bytes";
    /// Between nodes: the same for gets, which are read; auto means from 9 bytes on where the device takes
    /// none of the target's processor (RDMA), and from 4K on where it does (sockets).
    NET_GET_FROM = "HITHER_NET_GET_FROM", "auto", "auto or bytes";
    /// Between nodes: an accumulate or get_accumulate on a part of another node, under an exclusive lock
    /// of it in a window with the hint locks_cover_owner, is carried out by the origin from this size on
    /// where a queue pair leads there: it reads the elements, and writes them; 0 means none are.
    NET_ACCUMULATE_FROM = "HITHER_NET_ACCUMULATE_FROM", "64K", "bytes";
    /// Between nodes: who carries out fetch_and_op and compare_and_swap of single elements of 8 bytes
    /// that are updated often, where a queue pair leads to the target: its device, if that keeps them
    /// atomic with the processor's own and takes none of the processor (auto), or even if it does take
    /// the processor (always); or its library, as everything else (never). Where a device has them and
    /// its queue pair fails, nobody can tell what has become of one: the call fails.
    NET_ATOMICS = "HITHER_NET_ATOMICS", "auto", "auto, always or never";
    /// Between nodes: memory allocated by Memory::shared that stays registered with the device after a
    /// message or operation on it, at most, and as much for what peers may read; 0 keeps none.
    NET_KEPT = "HITHER_NET_KEPT", "1G", "bytes";
    /// Between nodes, to try programs out: what is to happen to datagrams, of 1000 that a process
    /// sends, and how many of 1000 posts to a queue pair find it cut, as
    /// drop=20,duplicate=5,delay=10,delay-for=3,reorder=20,cut=1,seed=7 (delays in milliseconds).
    NET_FAULTS = "HITHER_NET_FAULTS", "", "fault=number,...";
    /// Jobs on other hosts: the command of the remote shell and its arguments, separated by white
    /// space; the name of a host and a command line are put behind them.
    RSH = "HITHER_RSH", "ssh", "command";
    /// Jobs on other hosts: how long a host, or for a host the launcher, may say nothing before it
    /// counts as lost; 0 means for ever.
    HOST_TIMEOUT = "HITHER_HOST_TIMEOUT", "30", "seconds";
    /// Jobs of a launcher that speaks PMIx: its library, by path, or by a name that the system's
    /// loader finds.
    PMIX = "HITHER_PMIX", "libpmix.so.2", "library";
    /// Directory of named rendezvous sockets; empty means $XDG_RUNTIME_DIR/hither, else a private
    /// directory for this user under the temporary directory.
    RENDEZVOUS_DIR = "HITHER_RENDEZVOUS_DIR", "", "path";
    /// A synthetic topology instead of the machine's, to try many-core decisions: packages x NUMA
    /// nodes x caches x cores x threads, for example 2x2x4x4x1.
    TOPOLOGY = "HITHER_TOPOLOGY", "", "PxNxLxCxT";
    /// Set by the launcher for its ranks: file descriptor of the control socket.
    LAUNCH_FD = "HITHER_LAUNCH_FD", "", "descriptor:inode";
    /// Set by the launcher for its ranks, for programs and scripts: the rank. The library itself
    /// learns it over the control socket.
    RANK = "HITHER_RANK", "", "rank";
    /// Set by the launcher for its ranks, for programs and scripts: ranks in the job.
    SIZE = "HITHER_SIZE", "", "ranks";
}

/// Where values come from: the environment, or a table in tests.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the process environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The settings in this process's environment that mean something to ranks on other hosts.
pub fn for_others() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let own = [LAUNCH_FD, RANK, SIZE, NET_ADDRESS, RSH, RENDEZVOUS_DIR].map(|row| row.name);
    let all = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        name.starts_with("HITHER_") && !own.contains(&name.as_ref())
    });
    all.collect()
}

/// Names of variables in the environment that look like settings and are none: misspellings.
pub fn unknown() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with("HITHER_") && TABLE.iter().all(|row| row.name != name))
        .collect();
    names.sort();
    names
}

impl Setting {
    /// Whether the environment sets it.
    pub fn is_set(&self) -> bool {
        environment(self.name).is_some()
    }

    /// The value as text: from the environment, else the default.
    pub fn text(&self) -> String {
        self.text_from(&environment)
    }

    /// As [`Setting::text`], from any source.
    pub fn text_from(&self, lookup: Lookup<'_>) -> String {
        lookup(self.name).map_or_else(|| self.default.to_owned(), |v| v.trim().to_owned())
    }

    fn bad(&self, text: &str, want: &str) -> Error {
        Error::invalid(self.name, format!("\"{text}\" is not {want} (default: {})", self.default))
    }

    /// The value as a whole number.
    pub fn number(&self) -> Result<u64> {
        let text = self.text();
        text.parse().map_err(|_| self.bad(&text, "a whole number"))
    }

    /// The value as a number of bytes, with an optional K, M, G or T (powers of 1024).
    pub fn bytes(&self) -> Result<u64> {
        let text = self.text();
        parse_bytes(&text).ok_or_else(|| self.bad(&text, "a size such as 4096, 512M or 64G"))
    }

    /// The value as a time in seconds (fractions allowed); zero means none.
    pub fn seconds(&self) -> Result<Option<Duration>> {
        let text = self.text();
        let value: f64 = text.parse().map_err(|_| self.bad(&text, "a number of seconds"))?;
        if value == 0.0 {
            return Ok(None);
        }
        Duration::try_from_secs_f64(value)
            .map(Some)
            .map_err(|_| self.bad(&text, "a number of seconds"))
    }

    /// The value as a switch.
    pub fn switch(&self) -> Result<bool> {
        match self.text().as_str() {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            text => Err(self.bad(text, "1 or 0")),
        }
    }
}

/// Parses `4096`, `512K`, `16M`, `64G`, `1T` (powers of 1024, optional `B`/`iB`).
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim().trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_overflow_is_refused() {
        assert_eq!(parse_bytes("64G"), Some(64 << 30));
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("2MiB"), Some(2 << 20));
        assert_eq!(parse_bytes("99999999999T"), None);
        assert_eq!(parse_bytes("-1"), None);
        assert_eq!(parse_bytes("1X"), None);
    }

    #[test]
    fn the_readme_has_every_row() {
        let readme = include_str!("../../README.md");
        for row in TABLE {
            let (name, doc) = (format!("| `{}` |", row.name), format!("| {} |", row.doc.trim()));
            let line = readme.lines().find(|line| line.starts_with(&name));
            let line = line.unwrap_or_else(|| panic!("{} is missing", row.name));
            assert!(line.ends_with(&doc), "{} has another text: {}", row.name, row.doc);
            assert!(line.contains(row.default), "{} has another default", row.name);
        }
    }

    #[test]
    fn names_are_unique_and_defaults_are_documented() {
        for (i, a) in TABLE.iter().enumerate() {
            assert!(!a.doc.is_empty());
            assert!(TABLE[i + 1..].iter().all(|b| b.name != a.name), "{} twice", a.name);
        }
    }
}
