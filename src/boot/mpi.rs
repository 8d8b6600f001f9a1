//! Whether this process uses MPI: then its launcher is MPI's to talk to, and nobody else's.
//!
//! ```text
//! launcher   <-- one socket (PMI), one client (PMIx) -->   MPI, once MPI_Init was called
//!                                                          hither, if it was not
//! ```
//! The launcher does not tell the two apart. It would take hither's greeting for one of MPI's and answer
//! it, and the farewell for MPI's, which then cannot take leave itself. So who is about to join by a
//! launcher asks here first. The other way round `MPI_Init` fails: the socket, or PMIx, has been used.

use crate::base::{Error, Result};
use std::ffi::{CStr, c_int, c_void};

/// The same in every MPI: of its standard's functions this one may be called at any time, from any thread.
const QUESTION: &CStr = c"MPI_Initialized";
type Initialized = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Libraries of MPI, for where a part of the program has loaded one for itself alone: Open MPI's, and those
/// of MPICH and what shares its binary interface.
const LIBRARIES: [&CStr; 4] =
    [c"libmpi.so.40", c"libmpi.so.12", c"libmpich.so.12", c"libmpi_abi.so.0"];

/// Refuses to join by the launcher that this variable names where MPI was initialised in this process.
///
/// # Errors
/// [`Error::Boot`] says what to do instead.
pub fn refuse_in_use(variable: &str) -> Result<()> {
    if !is_in_use() {
        return Ok(());
    }
    Err(Error::boot(format!(
        "this process uses MPI, which talks to the launcher that {variable} names: wire hither up with \
         boot::FromAllgather, over MPI_Allgather (Job::builder().bootstrap(...))"
    )))
}

/// Whether MPI was initialised in this process, also if it was finalised since.
fn is_in_use() -> bool {
    // SAFETY: a C string; nothing is loaded by looking.
    let linked = unsafe { libc::dlsym(libc::RTLD_DEFAULT, QUESTION.as_ptr()) };
    says_so(linked) || LIBRARIES.iter().any(|name| is_in_use_in(name))
}

/// The same for a library, if it is loaded.
fn is_in_use_in(library: &CStr) -> bool {
    // SAFETY: a C string; the flag keeps what is not loaded from being loaded.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: the handle is a loaded library's, and given back once; whoever loaded it keeps it meanwhile.
    unsafe {
        let answer = says_so(libc::dlsym(handle, QUESTION.as_ptr()));
        libc::dlclose(handle);
        answer
    }
}

fn says_so(question: *mut c_void) -> bool {
    if question.is_null() {
        return false;
    }
    let mut answer = 0;
    // SAFETY: the standard gives this name this type, in every implementation, keeps names that begin like
    // this to itself, and lets it be called at any time.
    let status = unsafe {
        let question = std::mem::transmute::<*mut c_void, Initialized>(question);
        question(&mut answer)
    };
    status == 0 && answer != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn yes(answer: *mut c_int) -> c_int {
        // SAFETY: whoever asks has room for the answer.
        unsafe { *answer = 1 };
        0
    }

    extern "C" fn no(answer: *mut c_int) -> c_int {
        // SAFETY: as above.
        unsafe { *answer = 0 };
        0
    }

    extern "C" fn fails(answer: *mut c_int) -> c_int {
        yes(answer);
        5
    }

    #[test]
    fn only_an_mpi_that_says_so_is_in_use() {
        assert!(says_so(yes as *mut c_void));
        assert!(!says_so(no as *mut c_void) && !says_so(fails as *mut c_void));
        assert!(!says_so(std::ptr::null_mut()));
    }

    #[test]
    fn where_there_is_no_mpi_nothing_is_refused_or_loaded() {
        assert!(refuse_in_use("PMI_FD").is_ok());
        // A library that is loaded but is no MPI.
        assert!(!is_in_use_in(c"libc.so.6"));
        assert!(!is_in_use_in(c"libmpi.so.40") && !is_in_use_in(c"no such library"));
    }
}
