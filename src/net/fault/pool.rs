//! Memory for datagrams that are held.

use crate::base::Result;
use crate::net::memory::Memory;
use crate::net::provider::{Access, Device, Local, Region};

const SLOTS: usize = 64;

/// A few slots of one datagram each.
pub(super) struct Pool {
    region: Region,
    slot: u64,
    free: Vec<usize>,
}

impl Pool {
    pub fn new(device: &dyn Device) -> Result<Pool> {
        let slot = u64::from(device.capabilities().datagram).next_multiple_of(64);
        let memory = Memory::zeroed(slot as usize * SLOTS)?;
        let region = device.register(&memory, Access::LOCAL_READ)?;
        Ok(Pool { region, slot, free: (0..SLOTS).collect() })
    }

    /// Keeps `bytes`; none if all slots are taken.
    pub fn keep(&mut self, bytes: &[u8]) -> Option<(usize, Local)> {
        let slot = *self.free.last()?;
        let offset = slot as u64 * self.slot;
        let piece = self.region.local(offset, bytes.len() as u32).ok()?;
        let fits = bytes.len() as u64 <= self.slot && self.region.memory().write(offset, bytes);
        fits.then(|| {
            self.free.pop();
            (slot, piece)
        })
    }

    pub fn give(&mut self, slot: usize) {
        self.free.push(slot);
    }
}
