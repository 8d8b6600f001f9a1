//! Registered memory: what a device may read and write, under which keys, with which rights.
//!
//! ```text
//!  Region (owner)                        RemoteRegion (16 bytes + key, sent to peers by any means)
//!  memory, local key, remote key         address, length, remote key, rights
//!     | local(offset, length)               | at(offset)
//!     v                                     v
//!  Local  = ibv_sge                      Remote = wr.rdma.{remote_addr, rkey}
//! ```

use super::work::PostError;
use crate::base::{Error, Result};
use crate::net::memory::Memory;
use std::any::Any;

/// Rights on a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// This process's sends and writes may gather from it (always allowed).
    pub const LOCAL_READ: Access = Access(0);
    /// Receives, reads and atomics of this process may put results there.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may write. Implies `LOCAL_WRITE`, as devices ask for.
    pub const REMOTE_WRITE: Access = Access(3);
    /// Peers may read.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may use atomics. Implies `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Access = Access(9);
    /// Everything.
    pub const ALL: Access = Access(15);

    /// Whether all of `other` is granted.
    #[inline]
    pub fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// As bits: 1 local write, 2 remote write, 4 remote read, 8 remote atomic.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// From [`Access::bits`]; none if there are others, or implied ones are missing.
    pub fn from_bits(bits: u8) -> Option<Access> {
        let implied = bits & 10 == 0 || bits & 1 == 1;
        (bits <= 15 && implied).then_some(Access(bits))
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// A piece of local registered memory in an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local {
    /// Address of its first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local key. A device checks key and bounds when it uses them: a stale or wrong
    /// one completes with [`Status::LocalProtection`](super::Status::LocalProtection).
    pub key: u32,
}

/// A place in a peer's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address of the first byte there.
    pub address: u64,
    /// The region's remote key.
    pub key: u32,
}

/// What peers need to know of a region to access it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// Address of its first byte at its owner.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Remote key.
    pub key: u32,
    /// Rights.
    pub access: Access,
}

impl RemoteRegion {
    /// Bytes of the encoded form.
    pub const BYTES: usize = 24;

    /// The place `offset` bytes into it. Not held against the length: the owner's device does that.
    #[inline]
    pub fn at(&self, offset: u64) -> Remote {
        Remote { address: self.address.wrapping_add(offset), key: self.key }
    }

    /// As bytes: address, length, key (little-endian), rights, zeros.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.key.to_le_bytes());
        bytes[20] = self.access.bits();
        bytes
    }

    /// From bytes; an error if they cannot have come from [`RemoteRegion::encode`].
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<RemoteRegion> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let region = RemoteRegion {
            address: word(0),
            length: word(8),
            key: word(16) as u32,
            access: Access::from_bits(bytes[20]).unwrap_or_default(),
        };
        let whole = region.address.checked_add(region.length).is_some();
        if !whole || Access::from_bits(bytes[20]).is_none() || bytes[21..] != [0; 3] {
            return Err(Error::Incompatible {
                what: "the description of a registered region",
                why: "its bytes are not such a description; do both sides run one version?".into(),
            });
        }
        Ok(region)
    }
}

/// Registered memory. Dropping it unregisters:
/// - at once for peers: what arrives later is refused with `RemoteAccess`, and so is the rest of what
///   is being answered;
/// - for operations of this process that were posted before and have not completed: each completes
///   as if the region still were, or with `LocalProtection`. The memory's owner is kept until the
///   device touches it no more, so no byte is written after it was given back.
pub struct Region {
    // Dropped in this order: the device lets go, then the memory's owner.
    registration: Box<dyn Any + Send + Sync>,
    memory: Memory,
    local: u32,
    remote: u32,
    access: Access,
}

impl Region {
    /// Made by providers: `registration`'s drop unregisters.
    pub fn new(
        memory: Memory,
        local: u32,
        remote: u32,
        access: Access,
        registration: Box<dyn Any + Send + Sync>,
    ) -> Region {
        Region { registration, memory, local, remote, access }
    }

    /// `length` bytes at `offset`, for operations of this process.
    #[inline]
    pub fn local(&self, offset: u64, length: u32) -> Result<Local, PostError> {
        if !self.memory.contains(offset, length.into()) {
            return Err(PostError::OutOfBounds);
        }
        Ok(Local { address: self.memory.address() + offset, length, key: self.local })
    }

    /// What peers need.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.memory.address(),
            length: self.memory.length(),
            key: self.remote,
            access: self.access,
        }
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What the provider holds for it.
    pub fn registration(&self) -> &(dyn Any + Send + Sync) {
        &*self.registration
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({:?}, keys {:#x}/{:#x})", self.memory, self.local, self.remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_imply_what_devices_ask_for() {
        assert!(Access::REMOTE_WRITE.allows(Access::LOCAL_WRITE));
        assert!(Access::REMOTE_ATOMIC.allows(Access::LOCAL_WRITE));
        assert!(!Access::REMOTE_READ.allows(Access::LOCAL_WRITE));
        assert!(!(Access::REMOTE_READ | Access::REMOTE_WRITE).allows(Access::REMOTE_ATOMIC));
        assert_eq!(Access::from_bits(2), None);
        assert_eq!(Access::from_bits(16), None);
    }

    #[test]
    fn descriptions_come_back_and_others_are_refused() {
        let region = RemoteRegion {
            address: 0x1234_5678_9abc_def0,
            length: 77,
            key: 0xfeed_beef,
            access: Access::ALL,
        };
        let bytes = region.encode();
        assert_eq!(RemoteRegion::decode(&bytes).unwrap(), region);
        for (at, value) in [(20, 2), (20, 255), (23, 1), (15, 255)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(RemoteRegion::decode(&wrong).is_err(), "byte {at} = {value}");
        }
    }
}
