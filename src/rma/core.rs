//! What a window is apart from its element type.

use super::accumulate::{Domain, Updates};
use super::block::WindowBlock;
use super::epoch::state::State;
use super::info::Info;
use super::kind::{Flavour, Parts};
use super::memory::Region;
use super::remote::{OwnPart, Remote};
use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// What is registered on a window, by index; what it is, is the room above's business.
#[derive(Debug, Default)]
pub(crate) struct Handlers(RwLock<HashMap<u32, Arc<dyn Any + Send + Sync>>>);

impl Handlers {
    /// What is kept under `index`.
    pub fn get(&self, index: u32) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }
}

/// This process's side of a window, without the element type. Constant size.
#[derive(Debug)]
pub(crate) struct Core {
    /// What all members share about it.
    pub block: Arc<WindowBlock>,
    /// What its users promised.
    pub info: Info,
    /// What updates of elements go through.
    pub domain: Domain,
    /// How it came about.
    pub flavour: Flavour,
    /// How parts are found.
    pub parts: Parts,
    /// This process's own part, which its views reach directly whatever it is.
    pub own: Own,
    /// All parts are reached by packets, even where they are mapped, the own one included. On several
    /// nodes packets synchronise the members in any case.
    pub packets: bool,
    /// Parts may be locked, by the block's locks alone, and operations are complete with the
    /// read-modify-write that gives a lock back.
    pub plain_locks: bool,
    /// Through what the parts are reached that are away; none if no part is for any member.
    remote: Option<Arc<dyn Remote>>,
    /// This process's epochs.
    pub epochs: State,
    /// The memory that this process brought along: few windows have some.
    pub memory: Option<Box<Region>>,
    /// Handlers registered on this window.
    handlers: OnceLock<Arc<Handlers>>,
}

/// A process's own part of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Its first byte.
    pub first: *mut u8,
    /// Its bytes.
    pub bytes: usize,
    /// Bytes per displacement.
    pub unit: usize,
}

// SAFETY: the address stands for memory that the window keeps, accessed by atomics and opaque
// copies only.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

/// What [`Core::new`] is made of.
#[derive(Debug)]
pub(super) struct Ingredients {
    pub block: Arc<WindowBlock>,
    pub info: Info,
    pub flavour: Flavour,
    pub parts: Parts,
    pub own: Own,
    pub packets: bool,
    pub remote: Option<Arc<dyn Remote>>,
    pub memory: Option<Region>,
}

impl Core {
    pub(super) fn new(of: Ingredients) -> Core {
        let Ingredients { block, info, flavour, parts, own, packets, remote, memory } = of;
        let domain = Domain::new(&block, &info);
        let (epochs, handlers) = (State::default(), OnceLock::new());
        let plain_locks = !info.no_locks && remote.is_none();
        Core {
            block,
            info,
            domain,
            flavour,
            parts,
            own,
            packets,
            plain_locks,
            remote,
            memory: memory.map(Box::new),
            epochs,
            handlers,
        }
    }

    /// Through what the parts are reached that are away: some if any part is for any member, the
    /// same in all members.
    #[inline]
    pub fn remote(&self) -> Option<&Arc<dyn Remote>> {
        self.remote.as_ref()
    }

    /// Identity of the window in the job while it lives.
    #[inline]
    pub fn id(&self) -> u64 {
        self.block.at().0
    }

    /// What updates of elements go through.
    pub fn updates(&self) -> Updates<'_> {
        Updates::new(self.domain.near(), &self.domain)
    }

    /// The table of handlers, which may be held beyond the window.
    pub fn handlers(&self) -> &Arc<Handlers> {
        self.handlers.get_or_init(Arc::default)
    }

    /// Keeps `handler` under `index`; false if the index is taken.
    pub fn attach_handler(&self, index: u32, handler: Arc<dyn Any + Send + Sync>) -> bool {
        let mut map = self.handlers().0.write().unwrap_or_else(PoisonError::into_inner);
        match map.entry(index) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(handler);
                true
            }
        }
    }

    /// What is kept under `index`.
    pub fn attached(&self, index: u32) -> Option<Arc<dyn Any + Send + Sync>> {
        self.handlers.get()?.get(index)
    }

    /// Forgets what is kept under `index`.
    pub fn detach_handler(&self, index: u32) {
        if let Some(handlers) = self.handlers.get() {
            let mut map = handlers.0.write().unwrap_or_else(PoisonError::into_inner);
            let gone = map.remove(&index);
            // Its closure may look for others when it goes.
            drop(map);
            drop(gone);
        }
    }
}

impl Drop for Core {
    /// Nothing is executed on the part any more before it goes.
    fn drop(&mut self) {
        if let Some(remote) = &self.remote {
            remote.close();
        }
    }
}

impl OwnPart for Own {
    fn with(&self, at: u64, bytes: u64, run: &mut dyn FnMut(*mut u8)) -> Result<(), u64> {
        let there = self.bytes as u64;
        if at.checked_add(bytes).is_none_or(|end| end > there) {
            return Err(there);
        }
        run(self.first.wrapping_add(at as usize));
        Ok(())
    }

    fn whole(&self) -> Option<(NonNull<u8>, usize)> {
        NonNull::new(self.first).filter(|_| self.bytes > 0).map(|first| (first, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;

    /// What a symmetric window takes in each process: nothing else is allocated for it.
    #[test]
    fn a_window_takes_at_most_512_bytes() {
        // An allocation has two counts in front of it, and the allocator rounds up and adds a word.
        let shared = |bytes: usize| (bytes + 16 + 8).next_multiple_of(16);
        let core = shared(size_of::<Core>());
        let block = shared(size_of::<WindowBlock>());
        let window = size_of::<Window<u64>>();
        assert!(window + core + block <= 500, "{window} + {core} + {block} bytes");
    }
}
