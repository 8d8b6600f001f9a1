//! The loop of an accumulate over private memory, `target[i] += origin[i]`, and over memory that
//! others change at the same time.

use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds one private array of f64 to another. An operation is the whole array.
pub struct PrivateSum {
    target: Vec<f64>,
    origin: Vec<f64>,
}

impl PrivateSum {
    /// Arrays of `bytes` bytes.
    pub fn new(bytes: usize) -> PrivateSum {
        PrivateSum { target: vec![0.0; bytes / 8], origin: vec![1.0; bytes / 8] }
    }
}

impl Side for PrivateSum {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| {
            let origin = black_box(self.origin.as_slice());
            for (t, o) in black_box(self.target.as_mut_slice()).iter_mut().zip(origin) {
                *t += *o;
            }
            Ok(())
        })
    }
}

/// Adds `origin` to as many elements at `target` in shared memory, which others may be changing at
/// the same time: each sees some of what the others store, and some of it is lost.
///
/// # Safety
/// `target` is valid for reads and writes of as many elements as `origin` has, and whoever else
/// uses them uses atomics or this.
pub unsafe fn add_racing(target: *mut f64, origin: &[f64]) {
    #[cfg(target_arch = "x86_64")]
    let done = {
        let whole = origin.len() & !7;
        if whole > 0 {
            // SAFETY: elements 0 to whole are in bounds of both. The loads and stores are those of
            // the machine, to which a race is no more than an order that is not known; the compiler
            // takes part in none of it.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "movupd {a}, [{o} + 8*{i}]",
                    "movupd {b}, [{o} + 8*{i} + 16]",
                    "movupd {c}, [{o} + 8*{i} + 32]",
                    "movupd {d}, [{o} + 8*{i} + 48]",
                    "movupd {e}, [{t} + 8*{i}]",
                    "movupd {f}, [{t} + 8*{i} + 16]",
                    "addpd {a}, {e}",
                    "movupd {e}, [{t} + 8*{i} + 32]",
                    "addpd {b}, {f}",
                    "movupd {f}, [{t} + 8*{i} + 48]",
                    "addpd {c}, {e}",
                    "addpd {d}, {f}",
                    "movupd [{t} + 8*{i}], {a}",
                    "movupd [{t} + 8*{i} + 16], {b}",
                    "movupd [{t} + 8*{i} + 32], {c}",
                    "movupd [{t} + 8*{i} + 48], {d}",
                    "add {i}, 8",
                    "cmp {i}, {n}",
                    "jb 2b",
                    i = inout(reg) 0usize => _,
                    n = in(reg) whole,
                    o = in(reg) origin.as_ptr(),
                    t = in(reg) target,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    e = out(xmm_reg) _,
                    f = out(xmm_reg) _,
                    options(nostack),
                );
            }
        }
        whole
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for (i, add) in origin.iter().enumerate().skip(done) {
        // SAFETY: in bounds; an f64 is aligned as a word.
        let word = unsafe { AtomicU64::from_ptr(target.add(i).cast()) };
        word.store((f64::from_bits(word.load(Relaxed)) + add).to_bits(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_it_loses_nothing() {
        for len in [0usize, 1, 7, 8, 9, 100] {
            let mut target: Vec<f64> = (0..len + 1).map(|i| i as f64).collect();
            let origin: Vec<f64> = (0..len).map(|i| 0.5 * i as f64).collect();
            // SAFETY: the vector has more elements, and nobody else uses it.
            unsafe { add_racing(target.as_mut_ptr(), &origin) };
            let expected: Vec<f64> = (0..len).map(|i| 1.5 * i as f64).chain([len as f64]).collect();
            assert_eq!(target, expected);
        }
    }

    #[test]
    fn everything_is_added_every_time() {
        let mut side = PrivateSum::new(800);
        side.lead(3, &mut Meter::whole()).unwrap();
        assert_eq!(side.target, [3.0; 100]);
    }
}
