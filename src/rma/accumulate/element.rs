//! Elements of windows: atomic access to one element in shared memory.
//!
//! One atomic domain per window: accumulates, fetch_and_op, compare_and_swap and accesses to
//! single elements of up to 8 bytes, by any origin and by the target through its
//! [`super::View`], are single atomic accesses of the element's size: no reader sees a torn
//! element, and read-modify-writes of different origins never lose an update. Puts and gets of
//! several elements may tear.
//! All orderings here are Relaxed: order between operations comes from epochs (flush, fence).

use crate::base::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::layout::op::{Numeric, Op};

mod sealed {
    pub trait Sealed {}
}

/// A number that windows can update atomically: integers of 8 to 64 bits, `f32`, `f64`.
pub trait Element: Numeric + sealed::Sealed {
    /// Atomically replaces `*at` by `*at OP value` and returns what was there.
    ///
    /// Cost: one lock-prefixed instruction for integer `Sum`, `BitAnd`, `BitOr`, `BitXor` and
    /// any `Replace`; a load for `NoOp`; a compare-and-swap loop for the rest.
    ///
    /// # Safety
    /// `at` is aligned and lies in live memory that is accessed only atomically.
    unsafe fn fetch_op(at: *mut Self, op: Op, value: Self) -> Self;

    /// Atomically replaces `*at` by `new` if its bits equal `expected`'s; returns what was there.
    ///
    /// # Safety
    /// As for [`Element::fetch_op`].
    unsafe fn compare_swap(at: *mut Self, expected: Self, new: Self) -> Self;

    /// Atomic load.
    ///
    /// # Safety
    /// As for [`Element::fetch_op`].
    unsafe fn load(at: *const Self) -> Self;

    /// Atomic store.
    ///
    /// # Safety
    /// As for [`Element::fetch_op`].
    unsafe fn store(at: *mut Self, value: Self);

    /// `*at[i] = *at[i] OP values[i]`, each element atomically.
    ///
    /// # Safety
    /// As for [`Element::fetch_op`], for `values.len()` elements.
    unsafe fn accumulate(at: *mut Self, op: Op, values: &[Self]);
}

macro_rules! common {
    ($t:ty, $atomic:ty, $to:expr, $from:expr) => {
        #[inline(always)]
        unsafe fn compare_swap(at: *mut Self, expected: Self, new: Self) -> Self {
            // SAFETY: the caller's.
            let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
            match cell.compare_exchange($to(expected), $to(new), Relaxed, Relaxed) {
                Ok(old) | Err(old) => $from(old),
            }
        }
        #[inline(always)]
        unsafe fn load(at: *const Self) -> Self {
            // SAFETY: the caller's.
            $from(unsafe { <$atomic>::from_ptr(at.cast_mut().cast()) }.load(Relaxed))
        }
        #[inline(always)]
        unsafe fn store(at: *mut Self, value: Self) {
            // SAFETY: the caller's.
            unsafe { <$atomic>::from_ptr(at.cast()) }.store($to(value), Relaxed);
        }
        #[inline]
        unsafe fn accumulate(at: *mut Self, op: Op, values: &[Self]) {
            // The operation is chosen once, not per element.
            macro_rules! each {
                ($op:expr) => {
                    for (i, value) in values.iter().enumerate() {
                        // SAFETY: the caller's, for each of values.len() elements.
                        unsafe { Self::fetch_op(at.add(i), $op, *value) };
                    }
                };
            }
            match op {
                Op::Sum => each!(Op::Sum),
                Op::Product => each!(Op::Product),
                Op::Min => each!(Op::Min),
                Op::Max => each!(Op::Max),
                Op::BitAnd => each!(Op::BitAnd),
                Op::BitOr => each!(Op::BitOr),
                Op::BitXor => each!(Op::BitXor),
                Op::Replace => {
                    for (i, value) in values.iter().enumerate() {
                        // SAFETY: as above; a store replaces as atomically as a swap would.
                        unsafe { Self::store(at.add(i), *value) };
                    }
                }
                Op::LogicalAnd => each!(Op::LogicalAnd),
                Op::LogicalOr => each!(Op::LogicalOr),
                Op::LogicalXor => each!(Op::LogicalXor),
                Op::MinLoc => each!(Op::MinLoc),
                Op::MaxLoc => each!(Op::MaxLoc),
                Op::NoOp => {}
            }
        }
    };
}

macro_rules! by_cas {
    ($cell:expr, $op:expr, $value:expr, $to:expr, $from:expr) => {{
        let mut old = $cell.load(Relaxed);
        loop {
            let new = $to(Numeric::combine($op, $from(old), $value));
            // A result that changes nothing (Min, Max mostly) needs no store: the load was an
            // atomic read at which the operation may be said to have happened.
            if new == old {
                break $from(old);
            }
            match $cell.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => break $from(old),
                Err(now) => old = now,
            }
        }
    }};
}

macro_rules! integer {
    ($($t:ty, $atomic:ty, $bits:ty;)+) => { $(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            #[inline(always)]
            unsafe fn fetch_op(at: *mut Self, op: Op, value: Self) -> Self {
                // SAFETY: the caller's.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                let bits = value as $bits;
                match op {
                    Op::Sum => cell.fetch_add(bits, Relaxed) as $t,
                    Op::BitAnd => cell.fetch_and(bits, Relaxed) as $t,
                    Op::BitOr => cell.fetch_or(bits, Relaxed) as $t,
                    Op::BitXor => cell.fetch_xor(bits, Relaxed) as $t,
                    Op::Replace => cell.swap(bits, Relaxed) as $t,
                    Op::NoOp => cell.load(Relaxed) as $t,
                    _ => by_cas!(cell, op, value, |v: $t| v as $bits, |b: $bits| b as $t),
                }
            }
            common!($t, $atomic, |v: $t| v as $bits, |b: $bits| b as $t);
        }
    )+ };
}

macro_rules! float {
    ($($t:ty, $atomic:ty;)+) => { $(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            #[inline(always)]
            unsafe fn fetch_op(at: *mut Self, op: Op, value: Self) -> Self {
                // SAFETY: the caller's.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                match op {
                    Op::Replace => <$t>::from_bits(cell.swap(value.to_bits(), Relaxed)),
                    Op::NoOp => <$t>::from_bits(cell.load(Relaxed)),
                    _ => by_cas!(cell, op, value, <$t>::to_bits, <$t>::from_bits),
                }
            }
            common!($t, $atomic, <$t>::to_bits, <$t>::from_bits);
        }
    )+ };
}

integer! {
    u8, AtomicU8, u8; i8, AtomicU8, u8;
    u16, AtomicU16, u16; i16, AtomicU16, u16;
    u32, AtomicU32, u32; i32, AtomicU32, u32;
    u64, AtomicU64, u64; i64, AtomicU64, u64;
    usize, AtomicU64, u64; isize, AtomicU64, u64;
}
float! { f32, AtomicU32; f64, AtomicU64; }

const _: () = assert!(size_of::<usize>() == 8, "hither needs a 64-bit machine");

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees<T: Element>(samples: &[T]) {
        for op in Op::ALL {
            if crate::layout::op::check_op::<T>(op).is_err() {
                continue;
            }
            for &a in samples {
                for &b in samples {
                    let mut cell = a;
                    // SAFETY: `cell` is aligned, alive and private.
                    let old = unsafe { T::fetch_op(&mut cell, op, b) };
                    assert_eq!(old, a);
                    assert_eq!(cell, T::combine(op, a, b), "{op:?} {a:?} {b:?}");
                    let mut cells = [a, b, a];
                    // SAFETY: as above, three elements.
                    unsafe { T::accumulate(cells.as_mut_ptr(), op, &[b, b, a]) };
                    let want = [T::combine(op, a, b), T::combine(op, b, b), T::combine(op, a, a)];
                    assert_eq!(cells, want, "{op:?}");
                }
            }
        }
    }

    #[test]
    fn atomic_operations_do_what_the_plain_ones_do() {
        agrees::<u8>(&[0, 1, 7, 200, 255]);
        agrees::<i8>(&[0, 1, -7, 127, -128]);
        agrees::<i16>(&[0, -300, i16::MIN, i16::MAX]);
        agrees::<u32>(&[0, 3, u32::MAX]);
        agrees::<i64>(&[0, -5, i64::MIN, i64::MAX]);
        agrees::<u64>(&[0, 5, u64::MAX]);
        agrees::<f32>(&[0.5, 1.5, -2.25, f32::MAX]);
        agrees::<f64>(&[0.0, 1.5, -2.25, 1e300]);
    }
}
