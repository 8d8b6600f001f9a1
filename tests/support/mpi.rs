//! A little of MPI, of whichever library is installed, by its C interface: loaded when the program runs,
//! as the tests are to build where there is none.
//!
//! The two families have different binary interfaces: handles are numbers in MPICH and what follows its
//! common interface, addresses of objects of the library in Open MPI.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;

/// What a test calls of MPI. Every call is collective except the first two.
pub trait Mpi {
    fn rank(&self) -> u32;
    fn size(&self) -> u32;
    /// Pieces of one length, from all.
    fn allgather(&self, own: &[u8]) -> Vec<u8>;
    fn allreduce_sum(&self, own: u64) -> u64;
    /// Sends bytes to one and receives as many from another.
    fn shift(&self, to: u32, from: u32, own: &[u8]) -> Vec<u8>;
    fn finalize(&self);

    /// Pieces of any lengths, from all, in rank order.
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let lengths = self.allgather(&(own.len() as u64).to_le_bytes());
        let (lengths, _) = lengths.as_chunks();
        let lengths: Vec<usize> =
            lengths.iter().map(|length| u64::from_le_bytes(*length) as usize).collect();
        let most = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut padded = own.to_vec();
        padded.resize(most, 0);
        let all = self.allgather(&padded);
        all.chunks_exact(most)
            .zip(lengths)
            .map(|(piece, length)| piece[..length].to_vec())
            .collect()
    }
}

/// Loads a library and calls `MPI_Init`; nothing if none of that family is installed.
pub fn init(family: &str) -> Option<Box<dyn Mpi>> {
    match family {
        "mpich" => {
            let library = Library::open(&[c"libmpich.so.12", c"libmpi.so.12"])?;
            // The numbers of MPICH's common binary interface.
            let handles = Handles {
                world: 0x4400_0000,
                byte: 0x4c00_010d,
                long: 0x4c00_083e,
                sum: 0x5800_0003,
            };
            Some(Box::new(Functions::<c_int>::init(&library, handles)))
        }
        "open mpi" => {
            let library = Library::open(&[c"libmpi.so.40"])?;
            let handles = Handles {
                world: library.find(c"ompi_mpi_comm_world"),
                byte: library.find(c"ompi_mpi_byte"),
                long: library.find(c"ompi_mpi_uint64_t"),
                sum: library.find(c"ompi_mpi_op_sum"),
            };
            Some(Box::new(Functions::<*mut c_void>::init(&library, handles)))
        }
        other => panic!("there is no MPI called {other}"),
    }
}

struct Library(*mut c_void);

impl Library {
    fn open(names: &[&CStr]) -> Option<Library> {
        names.iter().find_map(|name| {
            // SAFETY: a C string. Its symbols are global, as they are in a program that is linked with it;
            // what runs when it is loaded is the installed library's own.
            let at = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            (!at.is_null()).then_some(Library(at))
        })
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: an open library, which is never closed, and a C string.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!at.is_null(), "the library has no {name:?}");
        at
    }
}

/// The predefined objects that are used here.
#[derive(Clone, Copy)]
struct Handles<H> {
    world: H,
    byte: H,
    long: H,
    sum: H,
}

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Number<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
type Allgather<H> =
    unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
type Allreduce<H> = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
type Sendrecv<H> = unsafe extern "C" fn(
    *const c_void,
    c_int,
    H,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    H,
    c_int,
    c_int,
    H,
    *mut c_void,
) -> c_int;

struct Functions<H> {
    handles: Handles<H>,
    finalize: Finalize,
    rank: Number<H>,
    size: Number<H>,
    allgather: Allgather<H>,
    allreduce: Allreduce<H>,
    sendrecv: Sendrecv<H>,
}

impl<H: Copy> Functions<H> {
    /// # Panics
    /// If MPI cannot be initialised.
    fn init(library: &Library, handles: Handles<H>) -> Functions<H> {
        // SAFETY: the MPI standard gives these names these types, with handles as the family has them.
        let functions = unsafe {
            Functions {
                handles,
                finalize: transmute_copy::<_, Finalize>(&library.find(c"MPI_Finalize")),
                rank: transmute_copy::<_, Number<H>>(&library.find(c"MPI_Comm_rank")),
                size: transmute_copy::<_, Number<H>>(&library.find(c"MPI_Comm_size")),
                allgather: transmute_copy::<_, Allgather<H>>(&library.find(c"MPI_Allgather")),
                allreduce: transmute_copy::<_, Allreduce<H>>(&library.find(c"MPI_Allreduce")),
                sendrecv: transmute_copy::<_, Sendrecv<H>>(&library.find(c"MPI_Sendrecv")),
            }
        };
        // SAFETY: as above; it may be called with nulls for both.
        unsafe {
            let init = transmute_copy::<_, Init>(&library.find(c"MPI_Init"));
            assert_eq!(init(std::ptr::null_mut(), std::ptr::null_mut()), 0);
        }
        functions
    }

    fn number(&self, function: Number<H>) -> u32 {
        let mut number = -1;
        // SAFETY: MPI is initialised; there is room for a number.
        assert_eq!(unsafe { function(self.handles.world, &mut number) }, 0);
        u32::try_from(number).expect("a rank or a size")
    }
}

impl<H: Copy> Mpi for Functions<H> {
    fn rank(&self) -> u32 {
        self.number(self.rank)
    }

    fn size(&self) -> u32 {
        self.number(self.size)
    }

    fn allgather(&self, own: &[u8]) -> Vec<u8> {
        let mut all = vec![0u8; own.len() * self.size() as usize];
        let (count, byte) = (own.len() as c_int, self.handles.byte);
        // SAFETY: as many bytes as said to send, and as many times that to receive as there are ranks.
        let status = unsafe {
            let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            (self.allgather)(from, count, byte, to, count, byte, self.handles.world)
        };
        assert_eq!(status, 0);
        all
    }

    fn allreduce_sum(&self, own: u64) -> u64 {
        let mut sum = 0u64;
        let Handles { world, long, sum: op, .. } = self.handles;
        // SAFETY: one element on each side.
        let status = unsafe {
            let (from, to) = ((&raw const own).cast(), (&raw mut sum).cast());
            (self.allreduce)(from, to, 1, long, op, world)
        };
        assert_eq!(status, 0);
        sum
    }

    fn shift(&self, to: u32, from: u32, own: &[u8]) -> Vec<u8> {
        let mut got = vec![0u8; own.len()];
        // More than a status of any library takes.
        let mut status = [0u64; 32];
        let (count, Handles { world, byte, .. }) = (own.len() as c_int, self.handles);
        let (to, from) = (to as c_int, from as c_int);
        // SAFETY: as many bytes as said on each side, and room for a status.
        let failed = unsafe {
            let (out, back) = (own.as_ptr().cast(), got.as_mut_ptr().cast());
            let status = status.as_mut_ptr().cast();
            (self.sendrecv)(out, count, byte, to, 7, back, count, byte, from, 7, world, status)
        };
        assert_eq!(failed, 0);
        got
    }

    fn finalize(&self) {
        // SAFETY: MPI is initialised, and whoever calls this calls nothing of it afterwards.
        assert_eq!(unsafe { (self.finalize)() }, 0);
    }
}
