//! Registered memory that queue pairs send from and receive into, in places of one message each.

use crate::base::Result;
use crate::net::memory::Memory;
use crate::net::provider::{Access, Device, Receive, Region, SharedReceiveQueue};
use std::sync::Arc;

/// What a work request says of the place that it is about: the exponent of its size class (0 for
/// messages of the usual size), and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub exponent: u8,
    pub place: u32,
}

impl Spot {
    pub fn id(self) -> u64 {
        u64::from(self.exponent) << 32 | u64::from(self.place)
    }

    pub fn from_id(id: u64) -> Spot {
        Spot { exponent: (id >> 32) as u8, place: id as u32 }
    }
}

/// See the [module](self). Made in chunks, each of which can go when all of it is unused.
pub(super) struct Places {
    exponent: u8,
    stride: u64,
    chunk: u32,
    access: Access,
    chunks: Vec<Option<Arc<Region>>>,
}

impl Places {
    /// None yet; of `stride` bytes each, `chunk` at a time.
    pub fn new(exponent: u8, stride: u64, chunk: u32, access: Access) -> Places {
        Places { exponent, stride: stride.next_multiple_of(64), chunk, access, chunks: Vec::new() }
    }

    /// How many there can be in what was made so far.
    pub fn count(&self) -> u32 {
        self.chunks.len() as u32 * self.chunk
    }

    /// How many there are.
    pub fn live(&self) -> u32 {
        self.chunks.iter().flatten().count() as u32 * self.chunk
    }

    /// Makes a chunk; its places.
    ///
    /// # Errors
    /// No memory; the device's limits.
    pub fn grow(&mut self, device: &dyn Device) -> Result<std::ops::Range<u32>> {
        let memory = Memory::zeroed((self.stride * u64::from(self.chunk)) as usize)?;
        let region = Some(Arc::new(device.register(&memory, self.access)?));
        let free = self.chunks.iter().position(Option::is_none);
        let at = free.unwrap_or(self.chunks.len());
        match free {
            Some(at) => self.chunks[at] = region,
            None => self.chunks.push(region),
        }
        let first = at as u32 * self.chunk;
        Ok(first..first + self.chunk)
    }

    /// Has the chunk of an unused place go, if the place is all of it.
    pub fn free(&mut self, place: u32) {
        if self.chunk == 1
            && let Some(chunk) = self.chunks.get_mut(place as usize)
        {
            *chunk = None;
        }
    }

    /// The memory of a place, and where in it that is.
    pub fn at(&self, place: u32) -> Option<(Arc<Region>, u64)> {
        let region = self.chunks.get((place / self.chunk) as usize)?.clone()?;
        Some((region, u64::from(place % self.chunk) * self.stride))
    }

    /// Has a place receive a message of a queue.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post(&self, queue: &dyn SharedReceiveQueue, place: u32) -> Result<()> {
        let Some((region, at)) = self.at(place) else { return Ok(()) };
        let piece = region.local(at, self.stride as u32).map_err(|why| why.error())?;
        let id = Spot { exponent: self.exponent, place }.id();
        queue.post(&[Receive { id, pieces: &[piece] }]).map_err(|refused| refused.error())
    }
}
