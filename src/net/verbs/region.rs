//! Registered memory: `ibv_mr`.

use super::bindings;
use super::hub::Hub;
use crate::base::{Error, Result};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Region};
use std::ptr::NonNull;
use std::sync::Arc;

/// What unregisters it.
struct Registration {
    hub: Arc<Hub>,
    raw: NonNull<bindings::Mr>,
    key: u32,
}

// SAFETY: the library's functions may be called for one region from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above; nothing is done through a shared one.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        self.hub.forget(self.key);
        // SAFETY: registered once, given back once. When it returns the device has let go.
        unsafe { (self.hub.verbs().ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// Registers memory. The rights have the same bits as the library's.
pub(super) fn register(hub: &Arc<Hub>, memory: &Memory, access: Access) -> Result<Region> {
    let at = std::ptr::with_exposed_provenance_mut(memory.address() as usize);
    let length = memory.length() as usize;
    // SAFETY: the bytes are mapped as long as the memory is kept, which `Region` does until it has
    // been unregistered; that the device writes them at any time is what `Memory` is for.
    let raw =
        unsafe { (hub.verbs().ibv_reg_mr)(hub.domain.raw(), at, length, access.bits().into()) };
    let Some(raw) = NonNull::new(raw) else {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN) => no_memory("registered memory", memory.length()),
            _ => Error::os("registering memory with an RDMA device", error),
        });
    };
    // SAFETY: just made; the library wrote it.
    let (local, remote) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
    hub.keep(local, memory.clone(), access);
    let registration = Registration { hub: hub.clone(), raw, key: local };
    Ok(Region::new(memory.clone(), local, remote, access, Box::new(registration)))
}

/// The error where memory cannot be locked.
pub(super) fn no_memory(what: &'static str, wanted: u64) -> Error {
    Error::OutOfMemory {
        what: what.into(),
        wanted,
        available: 0,
        limit: format!("locked memory: {}", super::locked_limit()),
        advice: "raise the limit of locked memory (ulimit -l unlimited, or memlock in limits.conf)",
    }
}
