//! Elements of windows: access to one or some elements in shared memory.
//!
//! Two ways to update: *native*, where each element is updated by one atomic instruction or a
//! compare-and-swap loop, whoever else does the same; and *plain*, where it is loaded, combined and
//! stored, which only one may do at a time. Which is right when is the business of the
//! `domain`. Loads and stores are single atomic accesses of the element's size in both, so
//! no reader sees a torn element and whoever dies leaves whole ones.
//! All orderings here are Relaxed: order between operations comes from epochs (flush, fence).

use crate::base::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::layout::Located;
use crate::layout::op::{Numeric, Op};

pub(super) mod sealed {
    pub trait Sealed {}
}

/// An element that windows update: integers of 8 to 64 bits, `f32`, `f64`, and values with an
/// index ([`Located`]).
pub trait Element: Numeric + sealed::Sealed {
    /// Whether the processor updates it atomically: all but the pairs of 16 bytes, a value of 8
    /// bytes with an index of 8. The methods are atomic only then; pairs of 16 bytes need the lock
    /// of the window's domain.
    const NATIVE: bool = true;

    /// Atomically replaces `*at` by `*at OP value` and returns what was there.
    ///
    /// Cost: one lock-prefixed instruction for integer `Sum`, `BitAnd`, `BitOr`, `BitXor` and
    /// any `Replace`; a load for `NoOp`; a compare-and-swap loop for the rest.
    ///
    /// # Safety
    /// `at` is a multiple of the size (of 8, if that is less) and lies in live memory that is
    /// accessed only atomically.
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
}

/// What an operation does on `count` elements, and where their operands lie. Operands of the
/// origin need not be aligned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub op: Op,
    pub at: *mut u8,
    pub from: *const u8,
    pub count: usize,
    /// Where to put what was there. May be `from`.
    pub result: Option<*mut u8>,
}

impl Run {
    /// Elements `first..first + count` of the run, which are `size` bytes each.
    ///
    /// # Safety
    /// The run has so many.
    pub unsafe fn slice(&self, size: usize, first: usize, count: usize) -> Run {
        // SAFETY: the caller's.
        unsafe {
            Run {
                op: self.op,
                at: self.at.add(first * size),
                from: self.from.add(first * size),
                count,
                result: self.result.map(|result| result.add(first * size)),
            }
        }
    }
}

/// Calls `$each` with the operation as a constant where loops profit from that.
macro_rules! for_op {
    ($op:expr, $each:ident) => {
        match $op {
            Op::Sum => $each!(Op::Sum),
            Op::Product => $each!(Op::Product),
            Op::Min => $each!(Op::Min),
            Op::Max => $each!(Op::Max),
            Op::BitAnd => $each!(Op::BitAnd),
            Op::BitOr => $each!(Op::BitOr),
            Op::BitXor => $each!(Op::BitXor),
            op => $each!(op),
        }
    };
}

/// Updates every element of a run natively.
///
/// # Safety
/// `at` begins `count` aligned elements that are accessed only atomically; `from` and `result` are
/// private memory of as many.
pub(super) unsafe fn native<T: Element>(run: Run) {
    let (at, from) = (run.at.cast::<T>(), run.from.cast::<T>());
    // SAFETY: the caller's, for each of `count` elements.
    unsafe {
        if let Some(result) = run.result {
            let result = result.cast::<T>();
            for i in 0..run.count {
                let old = T::fetch_op(at.add(i), run.op, from.add(i).read_unaligned());
                result.add(i).write_unaligned(old);
            }
            return;
        }
        if run.op == Op::Replace {
            // A store replaces as atomically as a swap would.
            (0..run.count).for_each(|i| T::store(at.add(i), from.add(i).read_unaligned()));
            return;
        }
        macro_rules! each {
            ($op:expr) => {
                for i in 0..run.count {
                    T::fetch_op(at.add(i), $op, from.add(i).read_unaligned());
                }
            };
        }
        for_op!(run.op, each);
    }
}

/// Updates the elements of `teeth` runs natively that lie `stride` bytes apart: `run` is the first of
/// them, has no result, and its operands are followed by the others'.
///
/// # Safety
/// As for [`native`], for each of the runs.
pub(super) unsafe fn native_teeth<T: Element>(run: Run, teeth: usize, stride: isize) {
    macro_rules! each_element {
        ($update:expr) => {{
            let (mut at, mut from) = (run.at.cast::<T>(), run.from.cast::<T>());
            for _ in 0..teeth {
                for i in 0..run.count {
                    // SAFETY: the caller's.
                    unsafe { $update(at.add(i), from.add(i).read_unaligned()) };
                }
                at = at.wrapping_byte_offset(stride);
                from = from.wrapping_add(run.count);
            }
        }};
    }
    if run.op == Op::Replace {
        return each_element!(|at, value| T::store(at, value));
    }
    macro_rules! each {
        ($op:expr) => {
            each_element!(|at, value| _ = T::fetch_op(at, $op, value))
        };
    }
    for_op!(run.op, each);
}

/// Updates every element of a run by a load and a store.
///
/// # Safety
/// As for [`native`], and nobody else updates them meanwhile.
pub(super) unsafe fn plain<T: Element>(run: Run) {
    let (at, from) = (run.at.cast::<T>(), run.from.cast::<T>());
    // SAFETY: the caller's, for each of `count` elements.
    unsafe {
        if let Some(result) = run.result {
            let result = result.cast::<T>();
            for i in 0..run.count {
                let (old, value) = (T::load(at.add(i)), from.add(i).read_unaligned());
                T::store(at.add(i), T::combine(run.op, old, value));
                result.add(i).write_unaligned(old);
            }
            return;
        }
        macro_rules! each {
            ($op:expr) => {
                for i in 0..run.count {
                    let (old, value) = (T::load(at.add(i)), from.add(i).read_unaligned());
                    T::store(at.add(i), T::combine($op, old, value));
                }
            };
        }
        for_op!(run.op, each);
    }
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

/// By the bits of the whole element.
macro_rules! by_bits {
    ($($t:ty, $atomic:ty, $to:expr, $from:expr;)+) => { $(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            #[inline(always)]
            unsafe fn fetch_op(at: *mut Self, op: Op, value: Self) -> Self {
                // SAFETY: the caller's.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                match op {
                    Op::Replace => $from(cell.swap($to(value), Relaxed)),
                    Op::NoOp => $from(cell.load(Relaxed)),
                    _ => by_cas!(cell, op, value, $to, $from),
                }
            }
            common!($t, $atomic, $to, $from);
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
by_bits! {
    f32, AtomicU32, f32::to_bits, f32::from_bits;
    f64, AtomicU64, f64::to_bits, f64::from_bits;
    Located<f32, i32>, AtomicU64,
        |v: Self| both(v.value.to_bits(), v.index), |b| located(b, f32::from_bits);
    Located<i32, i32>, AtomicU64,
        |v: Self| both(v.value.cast_unsigned(), v.index), |b| located(b, u32::cast_signed);
    Located<u32, i32>, AtomicU64, |v: Self| both(v.value, v.index), |b| located(b, |v| v);
}

/// The bits of a value and an index as they lie in memory: the value first, on a little-endian
/// machine.
#[inline(always)]
fn both(value: u32, index: i32) -> u64 {
    u64::from(value) | u64::from(index.cast_unsigned()) << 32
}

#[inline(always)]
fn located<V>(bits: u64, value: impl Fn(u32) -> V) -> Located<V, i32> {
    Located { value: value(bits as u32), index: ((bits >> 32) as u32).cast_signed() }
}

const _: () = assert!(size_of::<usize>() == 8, "hither needs a 64-bit machine");
const _: () = assert!(cfg!(target_endian = "little"), "hither needs a little-endian machine");

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::layout::op::check_op;

    /// Runs `update` over all operations and some lengths, and holds it against `combine`.
    pub fn agrees<T: Numeric>(samples: &[T], update: unsafe fn(Run)) {
        for op in Op::ALL {
            if check_op::<T>(op).is_err() {
                continue;
            }
            let counts: &[usize] =
                if cfg!(miri) { &[0, 1, 9] } else { &[0, 1, 2, 3, 31, 64, 257, 300] };
            // Miri takes a minute for three times as much.
            let shifts = if cfg!(miri) { 1..2 } else { 0..3 };
            for &count in counts {
                for shift in shifts.clone() {
                    let pick = |i: usize| samples[(i * 7 + i / 5) % samples.len()];
                    // Aligned as elements in windows are, to what their atomic accesses need.
                    let len = count + 8;
                    let mut words = vec![0u128; (len * size_of::<T>()).div_ceil(16)];
                    // SAFETY: that many bytes, aligned for any T, of which any bits make one.
                    let there =
                        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) };
                    (0..len).for_each(|i| there[i] = pick(i));
                    let from: Vec<T> = (3..count + 11).map(|i| pick(i * 3)).collect();
                    let mut want = there.to_vec();
                    for i in 0..count {
                        want[shift + i] = T::combine(op, there[shift + i], from[i]);
                    }
                    let before = there.to_vec();
                    for fetch in [false, true] {
                        there.copy_from_slice(&before);
                        // Results over operands, as a caller may ask for.
                        let mut operands = from.clone();
                        let result = operands.as_mut_ptr().cast::<u8>();
                        let at = there[shift..].as_mut_ptr().cast();
                        let result = fetch.then_some(result);
                        let from = operands.as_mut_ptr().cast_const().cast();
                        // SAFETY: private memory of at least `count` elements each.
                        unsafe { update(Run { op, at, from, count, result }) };
                        assert_eq!(bytes(there), bytes(&want), "{op:?} {count} {shift} {fetch}");
                        if fetch {
                            let old = &before[shift..shift + count];
                            assert_eq!(bytes(&operands[..count]), bytes(old), "{op:?}");
                        }
                    }
                }
            }
        }
    }

    fn bytes<T: Numeric>(values: &[T]) -> &[u8] {
        // SAFETY: plain data without padding.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
    }

    /// [`agrees`] for every element type of up to 8 bytes, by `$update::<T>`.
    macro_rules! agrees_for_all {
        ($update:ident) => {
            use crate::rma::accumulate::element::tests::agrees;
            agrees::<u8>(&[0, 1, 7, 200, 255], $update::<u8>);
            agrees::<i8>(&[0, 1, -7, 127, -128], $update::<i8>);
            agrees::<u16>(&[0, 300, u16::MAX, 5], $update::<u16>);
            agrees::<i16>(&[0, -300, i16::MIN, i16::MAX], $update::<i16>);
            agrees::<u32>(&[0, 3, u32::MAX], $update::<u32>);
            agrees::<i32>(&[0, 3, -3, i32::MIN, i32::MAX], $update::<i32>);
            agrees::<i64>(&[0, -5, i64::MIN, i64::MAX, 3, 1 << 40], $update::<i64>);
            agrees::<u64>(&[0, 5, u64::MAX, 1 << 40], $update::<u64>);
            agrees::<f32>(&[0.5, 1.5, -2.25, f32::MAX, 7.0, f32::NAN], $update::<f32>);
            agrees::<f64>(&[0.25, 1.5, -2.25, 1e300, 7.0, f64::NAN], $update::<f64>);
            use crate::layout::Located;
            fn at<V>(value: V, index: i32) -> Located<V, i32> {
                Located { value, index }
            }
            agrees(&[at(0.5f32, 1), at(-1.5, 2), at(0.5, 0)], $update::<Located<f32, i32>>);
            agrees(&[at(5u32, 1), at(7, -2), at(5, 0)], $update::<Located<u32, i32>>);
            agrees(&[at(-5i32, 1), at(7, 2), at(-5, 0)], $update::<Located<i32, i32>>);
        };
    }
    pub(in crate::rma::accumulate) use agrees_for_all;

    #[test]
    fn native_updates_do_what_the_plain_formula_says() {
        agrees_for_all!(native);
    }

    #[test]
    fn plain_updates_do_what_the_formula_says() {
        agrees_for_all!(plain);
    }

    #[test]
    fn swaps_compare_bits() {
        let mut cell = -0.0f64;
        // SAFETY: `cell` is aligned, alive and private.
        unsafe {
            assert_eq!(f64::compare_swap(&mut cell, 0.0, 1.0).to_bits(), (-0.0f64).to_bits());
            assert_eq!(f64::load(&raw mut cell).to_bits(), (-0.0f64).to_bits());
            f64::compare_swap(&mut cell, -0.0, 1.0);
        }
        assert_eq!(cell, 1.0);
    }

    /// Runs of two elements, in gaps of one or in falling order, by all operations.
    fn teeth_agree<T: Numeric + Element>(samples: &[T]) {
        let all = Op::ALL.into_iter().filter(|op| check_op::<T>(*op).is_ok() && *op != Op::NoOp);
        for op in all {
            for (first, step) in [(0, 3), (12, -3), (0, 2)] {
                let before: Vec<T> = (0..16).map(|i| samples[i % samples.len()]).collect();
                let from: Vec<T> = (0..10).map(|i| samples[i * 3 % samples.len()]).collect();
                let (mut there, mut want) = (before.clone(), before);
                for (tooth, values) in from.chunks(2).enumerate() {
                    let at = (first + step * tooth as isize) as usize;
                    want[at] = T::combine(op, want[at], values[0]);
                    want[at + 1] = T::combine(op, want[at + 1], values[1]);
                }
                let at = there.as_mut_ptr().wrapping_offset(first).cast();
                let run = Run { op, at, from: from.as_ptr().cast(), count: 2, result: None };
                // SAFETY: five runs of two elements, inside `there`; ten operands.
                unsafe { native_teeth::<T>(run, 5, step * size_of::<T>() as isize) };
                assert_eq!(bytes(&there), bytes(&want), "{op:?} {first} {step}");
            }
        }
    }

    #[test]
    fn teeth_are_updated_as_single_ones_are() {
        teeth_agree::<u8>(&[0, 1, 7, 200, 255]);
        teeth_agree::<i32>(&[0, 3, -3, i32::MIN, i32::MAX]);
        teeth_agree::<u64>(&[0, 5, u64::MAX, 1 << 40]);
        teeth_agree::<f64>(&[0.25, 1.5, -2.25, 1e300, 7.0]);
    }
}
