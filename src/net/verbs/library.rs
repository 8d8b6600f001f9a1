//! Loads libibverbs, once per process and never again unloaded. A machine without it has no devices,
//! and can say why.

use super::bindings::Functions;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

const NAME: &CStr = c"libibverbs.so.1";

/// Why there is no library, for messages: what is missing and what to do.
pub(super) fn functions() -> Result<&'static Functions, &'static str> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Functions, String> {
    // SAFETY: the name ends with a zero; what the library runs when it is loaded is its own affair,
    // and it is meant to be loaded so.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!("libibverbs cannot be loaded ({}); install rdma-core", why()));
    }
    let find = |name: &str| {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is loaded and stays so, the name ends with a zero.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    // SAFETY: they are that library's functions, which is never unloaded.
    let functions = unsafe { Functions::load(find) }.map_err(|name| {
        format!("this machine's libibverbs has no {name}; install rdma-core 33 or newer")
    })?;
    // SAFETY: called before anything else of the library is. Where the kernel copies registered
    // pages at a fork it does nothing; else it keeps them from children. Where it fails, children
    // of a process that has registered memory may disturb it, as without it.
    let _ = unsafe { (functions.ibv_fork_init)() };
    Ok(functions)
}

fn why() -> String {
    // SAFETY: it gives a string that stays until this thread's next call of that family, or nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
