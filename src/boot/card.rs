//! What ranks that nobody has introduced to each other say about themselves: who they are, and
//! what has to be the same for two that are to share memory.

use super::wire::{self, Message, Reader};
use crate::base::{Error, Result};

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
        })
    }

    /// The bytes for [`Card::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out =
            Message::Hello { version: wire::VERSION, pid: self.rank, size: self.size }.encode();
        out.extend_from_slice(&self.user.to_le_bytes());
        out.extend_from_slice(&self.job.to_le_bytes());
        for text in [&self.machine, &self.network] {
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
        let (machine, network) = (left.text(256)?, left.text(256)?);
        left.0.is_empty().then_some(Card { rank, size, user, job, machine, network })
    }

    /// Whether this rank and another one can share memory.
    ///
    /// # Errors
    /// If not: why.
    pub fn check_near(&self, other: &Card) -> Result<()> {
        let pair = format!("ranks {} and {}", self.rank, other.rank);
        let why = if self.machine != other.machine {
            format!(
                "{pair} are on different nodes, but the job is wired up as one of a single node; \
                 start it by an MPI launcher, which says who is where"
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
}
