//! What a window is apart from its element type.

use super::accumulate::Domain;
use super::block::WindowBlock;
use super::info::Info;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// This process's side of a window, without the element type. Constant size.
#[derive(Debug)]
pub(crate) struct Core {
    /// What all members share about it.
    pub block: WindowBlock,
    /// What its users promised.
    pub info: Info,
    /// What updates of elements go through.
    pub domain: Domain,
    /// Handlers registered on this window, by index; what they are is the room above's business.
    handlers: RwLock<HashMap<u32, Arc<dyn Any + Send + Sync>>>,
}

impl Core {
    pub fn new(block: WindowBlock, info: Info) -> Core {
        let domain = Domain::new(&block, &info);
        Core { block, info, domain, handlers: RwLock::default() }
    }

    /// Keeps `handler` under `index`; false if the index is taken.
    pub fn attach_handler(&self, index: u32, handler: Arc<dyn Any + Send + Sync>) -> bool {
        let mut map = self.handlers.write().unwrap_or_else(PoisonError::into_inner);
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
        self.handlers.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }

    /// Forgets what is kept under `index`.
    pub fn detach_handler(&self, index: u32) {
        self.handlers.write().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }
}
