//! Copies by the kernel between the private memories of two processes (CMA), and how both find each other's.
//!
//! ```text
//! flags   at + 128 r: process and address of rank r's private buffer, and (1 or 2) whether it can copy
//!                     from the other's
//! ```

use crate::bench::block::{APART, Area};
use crate::bench::crew::spin_until;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A private buffer of another process.
#[derive(Clone, Copy)]
pub struct There {
    process: libc::pid_t,
    address: usize,
}

impl There {
    /// Copies from (`out`) or to this buffer by the kernel, as much as `own` has.
    pub fn copy(self, own: &mut [u8], out: bool) -> Result<()> {
        let (size, mut at) = (own.len(), 0);
        while at < size {
            let here = own[at..].as_mut_ptr().cast();
            let local = libc::iovec { iov_base: here, iov_len: size - at };
            let there = std::ptr::without_provenance_mut(self.address + at);
            let remote = libc::iovec { iov_base: there, iov_len: size - at };
            let call = if out { READ } else { WRITE };
            // SAFETY: the local range is inside of `own`, which is borrowed exclusively; the other
            // one is resolved in the other process, where a bad one is an error.
            let moved = unsafe { call(self.process, &local, 1, &remote, 1, 0) };
            match usize::try_from(moved) {
                Ok(0) => return Err(Error::invalid("bench", "the kernel copied nothing")),
                Ok(moved) => at += moved,
                Err(_) => {
                    let error = std::io::Error::last_os_error();
                    return Err(Error::os("copying by the kernel for a limit", error));
                }
            }
        }
        Ok(())
    }

    /// The same buffer from byte `at` on.
    pub fn from(self, at: usize) -> There {
        There { address: self.address + at, ..self }
    }

    /// Publishes this rank's buffer, tries to read the other's by the kernel, and hears whether the
    /// other could: both take the same way.
    pub fn meet(flags: &Area, at: usize, rank: u32, own: &mut [u8]) -> Result<Option<There>> {
        let place = |rank: u32| at + rank as usize * APART;
        let (here, there) = (place(rank), place(1 - rank));
        let address = own.as_mut_ptr().expose_provenance();
        flags.word(here + 8).store(address as u64, Relaxed);
        flags.word(here).store(u64::from(std::process::id()), Release);
        let process = flags.word(there);
        spin_until(|| process.load(Acquire) != 0)?;
        let process = process.load(Relaxed) as libc::pid_t;
        let other = There { process, address: flags.word(there + 8).load(Relaxed) as usize };
        let can = other.copy(&mut [0; 8], true).is_ok();
        flags.word(here + 16).store(1 + u64::from(can), Release);
        let said = flags.word(there + 16);
        spin_until(|| said.load(Acquire) != 0)?;
        Ok((can && said.load(Relaxed) == 2).then_some(other))
    }
}

type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;
const READ: Call = libc::process_vm_readv;
const WRITE: Call = libc::process_vm_writev;
