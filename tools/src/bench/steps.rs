//! Counts the instructions of a piece of code, as a thread carries them out: no counter of the processor is needed,
//! which virtual machines seldom have.
//!
//! ```text
//! trap flag = 1
//!   instruction   --> the processor traps --> SIGTRAP: count += 1
//!   instruction   --> ...
//! trap flag = 0
//! ```
//! A trap takes a microsecond or two, so others are ahead of who is counted, wherever it waits for them. What the
//! system does for a call is one instruction; so is each turn of a repeated one (`rep movsb`).

use hither::Result;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// One count at a time: the handler is the process's.
static COUNTING: Mutex<()> = Mutex::new(());

/// Whether instructions can be counted here.
pub const COUNTS: bool = cfg!(target_arch = "x86_64");

/// What `f` returns, and how many instructions that took, with some that begin and end it: less another count of
/// the same code they are gone. Zero where [`COUNTS`] says no.
///
/// # Errors
/// Those of `f`; [`hither::Error::Os`] if the system refuses the handler.
#[cfg(target_arch = "x86_64")]
pub fn count<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let handler = Handler::install()?;
    STEPS.store(0, Relaxed);
    let trapped = Trapped::begin();
    let result = f();
    drop(trapped);
    let steps = STEPS.load(Relaxed);
    drop(handler);
    Ok((result?, steps))
}

/// While it lives the thread is trapped; not longer, if what is counted panics, than there is a handler.
#[cfg(target_arch = "x86_64")]
struct Trapped;

#[cfg(target_arch = "x86_64")]
impl Trapped {
    fn begin() -> Trapped {
        trap(true);
        Trapped
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Trapped {
    fn drop(&mut self) {
        trap(false);
    }
}

/// The same, where it is not possible.
#[cfg(not(target_arch = "x86_64"))]
pub fn count<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((f()?, 0))
}

#[cfg(target_arch = "x86_64")]
static STEPS: AtomicU64 = AtomicU64::new(0);

#[cfg(target_arch = "x86_64")]
extern "C" fn stepped(_: libc::c_int) {
    // Plain, for the thread that counts is the only one that is trapped.
    STEPS.store(STEPS.load(Relaxed) + 1, Relaxed);
}

/// Has the processor trap after each instruction of the calling thread, or no longer.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn trap(on: bool) {
    let flag: u64 = if on { 1 << 8 } else { 0 };
    // SAFETY: sets one flag, which decides only whether there are traps; while they come, a handler is there.
    // What is pushed is popped, and the block does not say that the stack is left alone.
    unsafe {
        std::arch::asm!(
            "pushfq",
            "and qword ptr [rsp], -257",
            "or qword ptr [rsp], {flag}",
            "popfq",
            flag = in(reg) flag,
        );
    }
}

/// The handler of the traps; what was there before comes back when it is dropped.
#[cfg(target_arch = "x86_64")]
struct Handler(libc::sigaction);

#[cfg(target_arch = "x86_64")]
impl Handler {
    fn install() -> Result<Handler> {
        // SAFETY: all zeros are a valid value of this structure.
        let (mut own, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { std::mem::zeroed() };
        own.sa_sigaction = stepped as extern "C" fn(libc::c_int) as usize;
        // SAFETY: both are valid; the handler does only what a handler may.
        match unsafe { libc::sigaction(libc::SIGTRAP, &own, &mut before) } {
            0 => Ok(Handler(before)),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(hither::Error::os("installing a handler of traps", error))
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: what was there before is valid. It cannot be refused then, and nothing traps any more.
        unsafe { libc::sigaction(libc::SIGTRAP, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// So many turns of two instructions.
    fn turns(many: u64) -> u64 {
        let counted = super::count(|| {
            // SAFETY: counts a register down to zero.
            unsafe {
                std::arch::asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) many => _);
            }
            Ok(())
        });
        counted.unwrap().1
    }

    #[test]
    fn each_instruction_is_counted_once() {
        assert_eq!(turns(1001) - turns(1), 2000);
        assert_eq!(turns(51) - turns(1), 100);
    }

    #[test]
    fn errors_come_through_and_nothing_traps_afterwards() {
        let failed = count(|| Err::<(), _>(hither::Error::invalid("a count", "that fails")));
        assert!(failed.is_err());
        let (value, steps) = count(|| Ok(7)).unwrap();
        assert!(value == 7 && (1..100).contains(&steps), "{steps}");
        let before = STEPS.load(Relaxed);
        std::hint::black_box((0..100).sum::<u64>());
        assert_eq!(STEPS.load(Relaxed), before);
    }
}
