//! Buffers that the program attaches to its part for messages of others (paper 001 §6.4.2).
//!
//! They serve messages that find no room in their origins' system buffers: units with long
//! segments, and many units at a time. On parts that are mapped messages need no buffers, so
//! attaching some is allowed and does nothing.

use super::memory::Block;
use super::server::Attached;
use super::{Away, attached};
use crate::am::buffers::{BufferId, GRAIN};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::Datum;
use crate::rma::Window;
use std::sync::{Arc, Weak};

/// A buffer that is attached to this rank's part. Dropping it leaves the buffer attached until the
/// window goes.
#[derive(Debug)]
pub struct UserBuffer {
    /// Nothing where no part goes by packets.
    pub(super) there: Option<(Weak<Away>, BufferId)>,
    bytes: usize,
}

impl UserBuffer {
    /// Bytes that messages can be staged in.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: Datum> Window<T> {
    /// Attaches a buffer of `bytes` bytes, which the library allocates, for messages that others
    /// issue on this rank's part. Local; several may be attached.
    ///
    /// A message by packets needs room for the input and output of one segment at least (as they
    /// lie at the target, gaps included) in one buffer, or in the system buffer that every origin
    /// has anyway (`HITHER_AM_SYSTEM_BUFFER`). With more room more of it is under way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] below 64 bytes; [`Error::OutOfMemory`]; [`Error::Misuse`] from
    /// inside a handler.
    pub fn attach_buffer(&self, bytes: usize) -> Result<UserBuffer> {
        const DURING: &str = "Window::attach_buffer";
        check(DURING, bytes)?;
        let Some(away) = attached(self.core())? else {
            return Ok(UserBuffer { there: None, bytes });
        };
        let block = Block::new("a buffer for active messages", bytes)?;
        let first = block.first();
        Ok(away.attach(Attached { first, _block: Some(block) }, bytes))
    }

    /// As [`Window::attach_buffer`], in memory of the program's own: the bytes from `first` on,
    /// from a multiple of 64 bytes.
    ///
    /// # Errors
    /// As for [`Window::attach_buffer`], with 64 bytes after the alignment.
    ///
    /// # Safety
    /// The memory stays valid, and is used for nothing else, until the buffer is detached or the
    /// window is gone.
    pub unsafe fn attach_memory(&self, first: *mut u8, bytes: usize) -> Result<UserBuffer> {
        const DURING: &str = "Window::attach_memory";
        let skipped = first.align_offset(GRAIN as usize);
        let bytes = bytes.saturating_sub(skipped);
        check(DURING, bytes)?;
        let Some(away) = attached(self.core())? else {
            return Ok(UserBuffer { there: None, bytes });
        };
        let first = first.wrapping_add(skipped);
        Ok(away.attach(Attached { first, _block: None }, bytes))
    }

    /// Detaches a buffer: returns when nothing is staged in it any more, and no origin counts on
    /// it. Those that hold the part exclusively do until they unlock or, unless the hint
    /// `am_buf_interleave_am_detach` is false, flush.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with the ranks that have room in it still: it stays attached, and
    /// nobody gets more of it; [`Error::Misuse`] from inside a handler, or for another window's.
    pub fn detach_buffer(&self, buffer: &UserBuffer) -> Result<()> {
        const DURING: &str = "Window::detach_buffer";
        reentry::refuse_inside(DURING)?;
        let Some((away, id)) = &buffer.there else { return Ok(()) };
        let own = attached(self.core())?;
        let (Some(own), Some(away)) = (own, away.upgrade()) else { return Err(foreign(DURING)) };
        if !Arc::ptr_eq(&own, &away) {
            return Err(foreign(DURING));
        }
        away.detach(self, DURING, *id)
    }
}

fn check(during: &'static str, bytes: usize) -> Result<()> {
    reentry::refuse_inside(during)?;
    if (bytes as u64) < GRAIN {
        return Err(Error::invalid(during, format!("{bytes} bytes hold nothing; use 64 or more")));
    }
    Ok(())
}

#[cold]
fn foreign(what: &'static str) -> Error {
    Error::Misuse { what, why: "the buffer was attached to another window".into() }
}

impl Away {
    fn attach(self: Arc<Away>, memory: Attached, bytes: usize) -> UserBuffer {
        let mut server = self.server();
        let id = server.buffers.attach(bytes as u64);
        server.attached.insert(id, memory);
        server.answers();
        drop(server);
        // Somebody may wait for it.
        self.stir();
        self.send();
        UserBuffer { there: Some((Arc::downgrade(&self), id)), bytes }
    }

    fn detach<T: Datum>(
        &self,
        window: &Window<T>,
        during: &'static str,
        id: BufferId,
    ) -> Result<()> {
        let Some(remote) = window.core().remote() else { return Ok(()) };
        let mut server = self.server();
        server.buffers.detach(id);
        server.answers();
        drop(server);
        self.stir();
        let mut holders = Vec::new();
        let waited = remote.drive(during, &mut || {
            let mut server = self.server();
            match server.buffers.detached(id) {
                Ok(()) => {
                    server.attached.remove(&id);
                    Some(Ok(()))
                }
                Err(ranks) => {
                    holders = ranks;
                    None
                }
            }
        });
        waited.map_err(|error| match error {
            Error::TimedOut { during, waited, .. } => {
                let missing = holders.into_iter().map(Rank).collect();
                Error::TimedOut { during, waited, missing }
            }
            other => other,
        })
    }

    /// Has what is to be sent go out.
    fn send(&self) {
        if let Some(core) = self.core.upgrade()
            && let Some(remote) = core.remote()
        {
            // Damage is told by the next call.
            let _ = remote.look();
        }
    }
}
