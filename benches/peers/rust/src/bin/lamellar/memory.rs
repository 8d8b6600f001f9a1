//! Operations on the memory of another PE: puts and gets on memory regions, atomics on an array; and
//! collectives.
//!
//! Where Lamellar has an operation that it does not keep account of ("unmanaged"), that is used: it takes less
//! than one with a handle that is waited for. With this backend all are over when the call returns; the wait
//! for all that comes after, one each or one for many, is what a program has to call nevertheless.

use super::{Pe, plain};
use hither_peers::{Ranks, Unit, Workload};
use lamellar::BroadcastInput;
use lamellar::array::prelude::*;
use lamellar::memregion::prelude::*;

/// Operations under way, as in the programs in C.
const MANY: u64 = 128;

/// The workload of that name, if there is one here. All PEs make it at once.
pub fn workload<'a>(pe: &Pe, name: &str, bytes: usize) -> Option<Workload<'a>> {
    // Its arrays of atomics are always of single elements.
    let name = match name {
        "single-fetch-and-op" => "fetch-and-op",
        "single-fetch-and-op-rate" => "fetch-and-op-rate",
        "single-compare-and-swap" => "compare-and-swap",
        name => name,
    };
    match name {
        "put" | "get" if bytes != 8 => blocks(pe, name, bytes),
        "put" | "get" | "put-rate" | "get-rate" => words(pe, name),
        "accumulate" | "accumulate-rate" | "fetch-and-op" | "fetch-and-op-rate"
        | "compare-and-swap" => atomics(pe, name),
        "barrier" | "allreduce" | "broadcast" => collectives(pe, name, bytes),
        _ => None,
    }
}

/// Words, which go by value.
fn words<'a>(pe: &Pe, name: &str) -> Option<Workload<'a>> {
    let (acts, target) = (pe.acts(), pe.target());
    let part = pe.world.alloc_shared_mem_region::<u64>(1).block();
    let turns = move |count: u64| if acts { count } else { 0 };
    // SAFETY (of all that follow): word 0 of each PE's part is there, its owner does not look at it, and no
    // other PE than the one before it works on it.
    match name {
        "put" => plain(Unit::Nanoseconds, move |count| {
            for i in 0..turns(count) {
                // SAFETY: see above.
                unsafe { part.put_unmanaged(target, 0, i) };
                part.wait_all();
            }
        }),
        "get" => plain(Unit::Nanoseconds, move |count| {
            for _ in 0..turns(count) {
                // SAFETY: see above.
                std::hint::black_box(unsafe { part.get(target, 0).block() });
            }
        }),
        "put-rate" => plain(Unit::MillionPerSecond, move |count| {
            for i in 0..turns(count) {
                // SAFETY: see above.
                unsafe { part.put_unmanaged(target, 0, i) };
                if i % MANY == MANY - 1 {
                    part.wait_all();
                }
            }
            part.wait_all();
        }),
        // Many at a time would need a buffer for each: with this backend that only takes longer.
        "get-rate" => plain(Unit::MillionPerSecond, move |count| {
            for _ in 0..turns(count) {
                // SAFETY: see above.
                std::hint::black_box(unsafe { part.get(target, 0).block() });
            }
        }),
        _ => None,
    }
}

/// Blocks, which go from and into registered memory of this PE's own.
fn blocks<'a>(pe: &Pe, name: &str, bytes: usize) -> Option<Workload<'a>> {
    let (acts, target) = (pe.acts(), pe.target());
    let part = pe.world.alloc_shared_mem_region::<u8>(bytes.max(1)).block();
    let own = pe.world.alloc_one_sided_mem_region::<u8>(bytes.max(1));
    let puts = name == "put";
    plain(Unit::Nanoseconds, move |count| {
        for _ in 0..if acts { count } else { 0 } {
            // SAFETY: the bytes are within the parts and within `own`, which nobody else knows; of a part, its
            // owner does not look at it, and no other PE than the one before it works on it.
            unsafe {
                if puts {
                    part.put_buffer_unmanaged(target, 0, own.clone());
                    part.wait_all();
                } else {
                    let into = LamellarBuffer::from_one_sided_memory_region(own.clone());
                    part.get_into_buffer_unmanaged(target, 0, into);
                    part.wait_all();
                }
            }
        }
    })
}

/// Atomics on words of which each PE has one.
fn atomics<'a>(pe: &Pe, name: &str) -> Option<Workload<'a>> {
    let (acts, at) = (pe.acts(), pe.target());
    let words = AtomicArray::<u64>::new(pe.world.team(), pe.all, Distribution::Block).block();
    let turns = move |count: u64| if acts { count } else { 0 };
    match name {
        "accumulate" => plain(Unit::Nanoseconds, move |count| {
            for _ in 0..turns(count) {
                words.add_unmanaged(at, 1);
                words.wait_all();
            }
        }),
        "accumulate-rate" => plain(Unit::MillionPerSecond, move |count| {
            for i in 0..turns(count) {
                words.add_unmanaged(at, 1);
                if i % MANY == MANY - 1 {
                    words.wait_all();
                }
            }
            words.wait_all();
        }),
        "fetch-and-op" => plain(Unit::Nanoseconds, move |count| {
            for _ in 0..turns(count) {
                std::hint::black_box(words.fetch_add(at, 1).block());
            }
        }),
        "fetch-and-op-rate" => plain(Unit::MillionPerSecond, move |count| {
            let mut left = turns(count);
            while left > 0 {
                let now = left.min(MANY);
                let handles: Vec<_> = (0..now).map(|_| words.fetch_add(at, 1)).collect();
                for handle in handles {
                    std::hint::black_box(handle.block());
                }
                left -= now;
            }
        }),
        "compare-and-swap" => {
            let mut expected = 0;
            plain(Unit::Nanoseconds, move |count| {
                for _ in 0..turns(count) {
                    expected = match words.compare_exchange(at, expected, expected + 1).block() {
                        Ok(_) => expected + 1,
                        Err(found) => found,
                    };
                }
            })
        }
        _ => None,
    }
}

fn collectives<'a>(pe: &Pe, name: &str, bytes: usize) -> Option<Workload<'a>> {
    let pe = pe.clone();
    if name == "barrier" {
        return plain(Unit::Nanoseconds, move |count| {
            for _ in 0..count {
                pe.world.barrier();
            }
        });
    }
    let length = (bytes / 8).max(1);
    let part = pe.world.alloc_shared_mem_region::<u64>(length).block();
    let (sums, all) = (name == "allreduce", pe.all as u64);
    // SAFETY: the words are this PE's own, and nobody else works on them before the barrier.
    unsafe { part.as_mut_slice() }.fill(pe.number as u64 + 1);
    pe.meet();
    let turn = move |i: u64| {
        let root = (i % all) as usize;
        // SAFETY: all PEs do the same, in the same order, on words that are there, and do nothing else with
        // them.
        unsafe {
            if sums {
                Some(part.sum_all(0, length).block())
            } else if root == pe.number {
                part.broadcast_from_pe(BroadcastInput::root(0), length).block()
            } else {
                part.broadcast_from_pe(BroadcastInput::not_root(root), length).block()
            }
        }
    };
    // What came of it: all that they have put in, or what the first has. The root itself gets nothing.
    let wanted = if sums { all * (all + 1) / 2 } else { 1 };
    if turn(0).is_some_and(|words| words.iter().any(|&word| word != wanted)) {
        eprintln!("lamellar: {name} has other words than {wanted}");
        std::process::exit(1);
    }
    plain(Unit::Nanoseconds, move |count| {
        for i in 0..count {
            std::hint::black_box(turn(i));
        }
    })
}
