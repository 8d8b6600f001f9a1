//! The part of the C interface of PMIx that wiring a job up takes, as versions 3 to 5 of the standard
//! have it; the library is loaded when it is asked for and stays loaded.
//!
//! All that is unsafe about PMIx is here. What comes from it is copied and checked once, where it
//! arrives. The calls that wait for other ranks are the non-blocking ones: their answers come on a
//! thread of PMIx's, and whoever waits for one has a deadline. What such a call was given stays
//! allocated until its answer, and so for ever if none comes.

use crate::base::{Deadline, Error, Result, settings};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};

const MAX_NSLEN: usize = 255;
const MAX_KEYLEN: usize = 511;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const SUCCESS: c_int = 0;
const ERR_NOT_FOUND: c_int = -46;
const OPERATION_SUCCEEDED: c_int = -157;
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const BYTE_OBJECT: u16 = 27;
const GLOBAL: u8 = 3;
const COLLECT_DATA: &CStr = c"pmix.collect";
const JOB_SIZE: &CStr = c"pmix.job.size";
const HOSTNAME: &CStr = c"pmix.hname";

/// Most bytes of a value or a text that is taken.
const MOST: usize = 8 << 20;

/// `pmix_proc_t`: a rank of a namespace, which is a job.
#[derive(Clone, Copy)]
#[repr(C)]
struct Proc {
    nspace: [c_char; MAX_NSLEN + 1],
    rank: u32,
}

/// `pmix_byte_object_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ByteObject {
    bytes: *mut c_char,
    size: usize,
}

/// The union in `pmix_value_t`; its largest member, `pmix_envar_t`, has three words.
#[repr(C)]
union Data {
    flag: bool,
    uint32: u32,
    string: *mut c_char,
    bo: ByteObject,
    room: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; MAX_KEYLEN + 1],
    flags: u32,
    value: Value,
}

const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Proc>() == 260 && align_of::<Proc>() == 4 && offset_of!(Proc, rank) == 256);
    assert!(size_of::<ByteObject>() == 16 && offset_of!(ByteObject, size) == 8);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
    assert!(size_of::<Info>() == 552);
    assert!(offset_of!(Info, flags) == 512 && offset_of!(Info, value) == 520);
};

type OpAnswer = unsafe extern "C" fn(c_int, *mut c_void);
type ValueAnswer = unsafe extern "C" fn(c_int, *mut Value, *mut c_void);

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Initialized = unsafe extern "C" fn() -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence =
    unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OpAnswer, *mut c_void) -> c_int;
type Get = unsafe extern "C" fn(
    *const Proc,
    *const c_char,
    *const Info,
    usize,
    ValueAnswer,
    *mut c_void,
) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions.
struct Library {
    init: Init,
    initialized: Initialized,
    finalize: Finalize,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    error_string: ErrorString,
}

impl Library {
    /// Loads it; the same one at every call.
    fn load() -> Result<&'static Library> {
        static LOADED: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Library::open(&settings::PMIX.text()));
        loaded.as_ref().map_err(|why| Error::boot(why.clone()))
    }

    fn open(name: &str) -> std::result::Result<Library, String> {
        let advice = "this process was started by a launcher that speaks PMIx; install its library \
                      (libpmix), say where it is (HITHER_PMIX), or start the job by `hither run` or \
                      a launcher that speaks PMI-1";
        let file = CString::new(name).map_err(|_| format!("{name:?} is no library: {advice}"))?;
        // SAFETY: the name is a C string. Its plug-ins look for its symbols, so these are global; what
        // runs when it is loaded is whatever the user's library does.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(format!("{name} cannot be loaded ({}): {advice}", last_error()));
        }
        let find = |symbol: &CStr| {
            // SAFETY: the handle is a library's that is never closed; the name is a C string.
            let at = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
            if at.is_null() {
                let symbol = symbol.to_string_lossy();
                return Err(format!("{name} has no {symbol}: {advice}"));
            }
            Ok(at)
        };
        // SAFETY: these are the functions that the standard gives these names and types to.
        unsafe {
            use std::mem::transmute;
            Ok(Library {
                init: transmute::<*mut c_void, Init>(find(c"PMIx_Init")?),
                initialized: transmute::<*mut c_void, Initialized>(find(c"PMIx_Initialized")?),
                finalize: transmute::<*mut c_void, Finalize>(find(c"PMIx_Finalize")?),
                put: transmute::<*mut c_void, Put>(find(c"PMIx_Put")?),
                commit: transmute::<*mut c_void, Commit>(find(c"PMIx_Commit")?),
                fence: transmute::<*mut c_void, Fence>(find(c"PMIx_Fence_nb")?),
                get: transmute::<*mut c_void, Get>(find(c"PMIx_Get_nb")?),
                error_string: transmute::<*mut c_void, ErrorString>(find(c"PMIx_Error_string")?),
            })
        }
    }

    fn check(&self, status: c_int, what: &str) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: it takes any number and gives a text that stays, or nothing.
        let why = unsafe {
            let text = (self.error_string)(status);
            if text.is_null() { "".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(Error::boot(format!(
            "{what} failed: {why} ({status}); if the launcher's server (PMIX_SERVER_URI*) is gone, or \
             this process was started by a rank and inherited its environment, start it by a \
             launcher anew, or unset PMIX_RANK to run it by itself"
        )))
    }
}

/// What the loader said last, of this thread.
fn last_error() -> String {
    // SAFETY: it gives a C string that stays until the next call of the loader's, or nothing.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "no reason given".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// What a call was given and who waits for its answer.
struct Question<A> {
    of: Proc,
    key: CString,
    info: Info,
    answer: Sender<A>,
}

/// A value of the launcher's store.
#[derive(PartialEq, Eq, Debug)]
enum Got {
    Number(u32),
    Text(String),
    Bytes(Vec<u8>),
    /// Of another type, or too long.
    Else(u16),
}

type Answer = (c_int, Option<Got>);

/// Takes the answer of a fence.
unsafe extern "C" fn fenced(status: c_int, question: *mut c_void) {
    // SAFETY: `Client::fence` has made it for this one call.
    let question = unsafe { Box::from_raw(question.cast::<Question<c_int>>()) };
    let _ = question.answer.send(status);
}

/// Takes the answer of a look-up. The value is PMIx's and gone afterwards.
unsafe extern "C" fn found(status: c_int, value: *mut Value, question: *mut c_void) {
    // SAFETY: `Client::get` has made it for this one call.
    let question = unsafe { Box::from_raw(question.cast::<Question<Answer>>()) };
    let got = if status == SUCCESS && !value.is_null() {
        // SAFETY: it is a value, and it stays until this function returns.
        Some(unsafe { read(&*value) })
    } else {
        None
    };
    let _ = question.answer.send((status, got));
}

/// Copies a value.
///
/// # Safety
/// What it points to is there.
unsafe fn read(value: &Value) -> Got {
    // SAFETY: the member is that of the type; pointers lead to as much as the value says.
    unsafe {
        match value.kind {
            UINT32 => Got::Number(value.data.uint32),
            STRING if !value.data.string.is_null() => {
                let text = value.data.string;
                let length = libc::strnlen(text, MOST);
                let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length);
                Got::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            BYTE_OBJECT => {
                let ByteObject { bytes, size } = value.data.bo;
                match size {
                    0 => Got::Bytes(Vec::new()),
                    _ if bytes.is_null() || size > MOST => Got::Else(BYTE_OBJECT),
                    _ => Got::Bytes(std::slice::from_raw_parts(bytes.cast::<u8>(), size).to_vec()),
                }
            }
            kind => Got::Else(kind),
        }
    }
}

/// This process as a client of the launcher's server. Blocks only where a deadline is given, and in
/// what PMIx does with its server on this machine.
pub(super) struct Client {
    library: &'static Library,
    own: Proc,
    process: u32,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("rank", &self.own.rank).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the server that the environment names. Once in a process.
    ///
    /// # Errors
    /// [`Error::Boot`]: no library, no server, or the process has used PMIx already;
    /// [`Error::TimedOut`].
    pub fn connect(deadline: Deadline) -> Result<Client> {
        static USED: Mutex<bool> = Mutex::new(false);
        let library = Library::load()?;
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it may be called at any time.
        if *used || unsafe { (library.initialized)() } != 0 {
            return Err(Error::boot(
                "this process has used PMIx already; either the library was initialised twice in \
                 it, or MPI was (wire hither up with FromAllgather then)",
            ));
        }
        *used = true;
        let (answer, answers) = mpsc::channel();
        let init = move || {
            let mut own = Proc { nspace: [0; MAX_NSLEN + 1], rank: u32::MAX };
            // SAFETY: room for the answer, and nothing to say.
            let status = unsafe { (library.init)(&mut own, std::ptr::null_mut(), 0) };
            let _ = answer.send((status, own));
        };
        // It has no time limit of its own.
        std::thread::Builder::new().spawn(init).map_err(|source| Error::Os {
            call: "starting a thread for PMIx_Init",
            source,
            hint: "see ulimit -u",
        })?;
        let (status, own) = wait(&answers, deadline, "joining the launcher (PMIx)")?;
        library.check(status, "PMIx_Init")?;
        Ok(Client { library, own, process: std::process::id() })
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// Ranks in the job, if the launcher says it.
    pub fn size(&self, deadline: Deadline) -> Result<Option<u32>> {
        match self.get(RANK_WILDCARD, JOB_SIZE.to_owned(), deadline)? {
            Some(Got::Number(size)) => Ok(Some(size)),
            Some(other) => Err(senseless("PMIX_JOB_SIZE", &other)),
            None => Ok(None),
        }
    }

    /// The name of the host that a rank is on, if the launcher says it.
    pub fn host(&self, rank: u32, deadline: Deadline) -> Result<Option<String>> {
        match self.get(rank, HOSTNAME.to_owned(), deadline)? {
            Some(Got::Text(name)) => Ok(Some(name)),
            Some(other) => Err(senseless("PMIX_HOSTNAME", &other)),
            None => Ok(None),
        }
    }

    /// Keeps bytes for the next fence, after which every rank finds them.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let key = key_of(key)?;
        let bo = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = Value { kind: BYTE_OBJECT, data: Data { room: [0; 3] } };
        value.data.bo = bo;
        // SAFETY: the value is as its type says; PMIx copies it and writes to none of it.
        let status = unsafe { (self.library.put)(GLOBAL, key.as_ptr(), &mut value) };
        self.library.check(status, "PMIx_Put")
    }

    /// Makes known what was put; returns once every rank has called it as often.
    pub fn fence(&self, deadline: Deadline) -> Result<()> {
        // SAFETY: no arguments.
        self.library.check(unsafe { (self.library.commit)() }, "PMIx_Commit")?;
        let (question, answers) = self.question(RANK_WILDCARD, CString::default());
        // SAFETY: what it is given stays until `fenced` takes it, which is called once, or never if
        // the call says so.
        let status = unsafe {
            let (of, info) = (&raw const (*question).of, &raw const (*question).info);
            let status = (self.library.fence)(of, 1, info, 1, fenced, question.cast());
            if status != SUCCESS {
                drop(Box::from_raw(question));
            }
            status
        };
        match status {
            OPERATION_SUCCEEDED => Ok(()),
            SUCCESS => {
                let status = wait(&answers, deadline, "a fence of the wiring (PMIx)")?;
                self.library.check(status, "PMIx_Fence")
            }
            _ => self.library.check(status, "PMIx_Fence"),
        }
    }

    /// Bytes that a rank has put before a fence.
    pub fn bytes(&self, rank: u32, key: &str, deadline: Deadline) -> Result<Option<Vec<u8>>> {
        match self.get(rank, key_of(key)?, deadline)? {
            Some(Got::Bytes(bytes)) => Ok(Some(bytes)),
            Some(other) => Err(senseless(key, &other)),
            None => Ok(None),
        }
    }

    fn get(&self, rank: u32, key: CString, deadline: Deadline) -> Result<Option<Got>> {
        let (question, answers) = self.question(rank, key);
        // SAFETY: as in `fence`, with `found`.
        let status = unsafe {
            let (of, key) = (&raw const (*question).of, (*question).key.as_ptr());
            let status = (self.library.get)(of, key, std::ptr::null(), 0, found, question.cast());
            if status != SUCCESS {
                drop(Box::from_raw(question));
            }
            status
        };
        let (status, got) = match status {
            SUCCESS => wait(&answers, deadline, "a look-up in the wiring (PMIx)")?,
            _ => (status, None),
        };
        match status {
            ERR_NOT_FOUND => Ok(None),
            _ => self.library.check(status, "PMIx_Get").map(|()| got),
        }
    }

    fn question<A>(&self, rank: u32, key: CString) -> (*mut Question<A>, Receiver<A>) {
        let (answer, answers) = mpsc::channel();
        let mut value = Value { kind: BOOL, data: Data { room: [0; 3] } };
        value.data.flag = true;
        let mut info = Info { key: [0; MAX_KEYLEN + 1], flags: 0, value };
        for (to, from) in info.key.iter_mut().zip(COLLECT_DATA.to_bytes()) {
            *to = *from as c_char;
        }
        let of = Proc { rank, ..self.own };
        (Box::into_raw(Box::new(Question { of, key, info, answer })), answers)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A launcher takes a process that ends without this for one that has failed. A forked child's
        // copy says nothing. PMIx itself does not wait long for its server here.
        if self.process == std::process::id() {
            // SAFETY: initialised once, and nothing is under way that is still waited for.
            let _ = unsafe { (self.library.finalize)(std::ptr::null(), 0) };
        }
    }
}

fn wait<A>(answers: &Receiver<A>, deadline: Deadline, during: &'static str) -> Result<A> {
    let answer = match deadline.left() {
        Some(left) => answers.recv_timeout(left),
        None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    answer.map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            Error::TimedOut { during, waited: deadline.waited(), missing: Vec::new() }
        }
        RecvTimeoutError::Disconnected => Error::boot(format!("PMIx gave up {during}")),
    })
}

fn key_of(key: &str) -> Result<CString> {
    let fits = CString::new(key).ok().filter(|key| key.as_bytes().len() <= MAX_KEYLEN);
    fits.ok_or_else(|| Error::invalid("a key of PMIx", format!("{key:?} is none")))
}

#[cold]
fn senseless(what: &str, got: &Got) -> Error {
    let kind = match got {
        Got::Number(_) => "a number",
        Got::Text(_) => "a text",
        Got::Bytes(_) => "bytes",
        Got::Else(_) => "of another type, or too long",
    };
    Error::boot(format!("what the launcher (PMIx) has as {what} is {kind}, which makes no sense"))
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
