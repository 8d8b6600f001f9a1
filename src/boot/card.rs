//! What ranks that nobody has introduced to each other say about themselves: who they are, and
//! what has to be the same for two that are to share memory.

use super::wire::{self, Message, Reader};
use crate::base::{Error, Result};
use std::collections::HashMap;

/// Longest name of a node, and of what the kernel calls machines and namespaces.
const MAX_NAME: usize = 256;

/// What a rank tells the others about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub rank: u32,
    pub size: u32,
    pub user: u32,
    /// What this rank would call the job.
    pub job: u64,
    pub machine: String,
    pub network: String,
    /// What its user calls its node, if that is not to be found out.
    pub node: String,
}

impl Card {
    /// That of this process.
    pub fn of_this_process(rank: u32, size: u32) -> Result<Card> {
        let read = |path: &str| std::fs::read_to_string(path).map(|t| t.trim().to_owned());
        let machine = read("/proc/sys/kernel/random/boot_id");
        let network = std::fs::read_link("/proc/self/ns/net");
        Ok(Card {
            rank,
            size,
            user: rustix::process::geteuid().as_raw(),
            job: super::random()?,
            machine: machine.map_err(|e| Error::os("reading the machine's boot id", e))?,
            network: network.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            node: String::new(),
        })
    }

    /// The same on a node with a name: who is on a node with another name is no neighbour.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if that is no name.
    pub fn on_node(self, name: &str) -> Result<Card> {
        if name.is_empty() || name.len() > MAX_NAME {
            let why = format!("a name has 1 to {MAX_NAME} bytes, this one {}", name.len());
            return Err(Error::invalid("node", why));
        }
        Ok(Card { node: name.to_owned(), ..self })
    }

    /// The bytes for [`Card::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out =
            Message::Hello { version: wire::VERSION, pid: self.rank, size: self.size }.encode();
        out.extend_from_slice(&self.user.to_le_bytes());
        out.extend_from_slice(&self.job.to_le_bytes());
        for text in [&self.machine, &self.network, &self.node] {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// The card in these bytes, if they are one of this version.
    pub fn decode(bytes: &[u8]) -> Option<Card> {
        let (head, tail) = bytes.split_at_checked(20)?;
        let Ok(Message::Hello { version: wire::VERSION, pid: rank, size }) = Message::decode(head)
        else {
            return None;
        };
        let mut left = Reader(tail);
        let (user, job) = (left.u32()?, left.u64()?);
        let mut name = || left.text(MAX_NAME);
        let (machine, network, node) = (name()?, name()?, name()?);
        left.0.is_empty().then_some(Card { rank, size, user, job, machine, network, node })
    }

    /// Whether this rank and another one can share memory.
    ///
    /// # Errors
    /// If not: why.
    pub fn check_near(&self, other: &Card) -> Result<()> {
        let pair = format!("ranks {} and {}", self.rank, other.rank);
        let why = if self.machine != other.machine {
            format!(
                "{pair} are on different machines, but the launcher says that they are on one node; \
                 have it tell the machines apart"
            )
        } else if self.user != other.user {
            format!("{pair} belong to different users ({} and {})", self.user, other.user)
        } else if self.network != other.network {
            format!(
                "{pair} are in different network namespaces (containers), so they cannot pass \
                 memory to each other; start them in one"
            )
        } else {
            return Ok(());
        };
        Err(Error::boot(why))
    }

    /// Whether an address of this rank's that only its own machine knows is of no use to the other one.
    pub fn is_beyond(&self, other: &Card) -> bool {
        (&self.machine, &self.network) != (&other.machine, &other.network)
    }
}

/// The node of each of these ranks: those are on one that can share memory, and call their node the
/// same.
pub(super) fn nodes(cards: &[Card]) -> Vec<u32> {
    let mut known = HashMap::new();
    let mut numbers = Vec::with_capacity(cards.len());
    for Card { user, machine, network, node, .. } in cards {
        let next = known.len() as u32;
        numbers.push(*known.entry((user, machine, network, node)).or_insert(next));
    }
    numbers
}
