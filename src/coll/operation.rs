//! What reductions combine with: predefined operations, and a program's own.

use super::block::PIECE;
use super::sign::{code_of, code_of_user};
use crate::base::{Error, Result, reentry};
use crate::layout::op::{Numeric, Op, check_op, combine_slices};
use crate::layout::{Datum, Kind};
use std::marker::PhantomData;

/// How elements `T` are combined. It must be associative; it need not be commutative, because
/// members' data are combined in the order of their ranks.
///
/// Implemented by the predefined operations ([`Op`]), by [`Each`] and [`Slices`] with closures, and
/// by programs for their own types.
pub trait Operation<T: Datum>: Send + Sync {
    /// `into[i] = into[i] OP from[i]`; the slices have the same length, a multiple of
    /// [`unit`](Operation::unit). It may not communicate.
    fn combine(&self, into: &mut [T], from: &[T]);

    /// The same for one element, of which it makes the same as [`Operation::combine`] of slices of one: for who can
    /// do that sooner.
    #[inline]
    fn combine_one(&self, into: &mut T, from: &T) {
        self.combine(std::slice::from_mut(into), std::slice::from_ref(from));
    }

    /// Elements that belong together: data are cut at multiples of it. A program that knows the
    /// types of its data only at run time combines bytes with a unit of an element's size; slices
    /// are then aligned as its data are, up to 64 bytes.
    fn unit(&self) -> usize {
        1
    }

    /// An error if it does not apply to `T`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Whether `a OP b` and `b OP a` are the same bits.
    fn commutes(&self) -> bool {
        false
    }

    /// Its name among predefined operations: members whose names differ get an error.
    fn name(&self) -> Option<(Kind, Op)> {
        None
    }
}

impl<T: Numeric> Operation<T> for Op {
    #[inline]
    fn combine(&self, into: &mut [T], from: &[T]) {
        combine_slices(*self, into, from);
    }

    #[inline]
    fn combine_one(&self, into: &mut T, from: &T) {
        *into = T::combine(*self, *into, *from);
    }

    fn check(&self) -> Result<()> {
        check_op::<T>(*self)
    }

    fn commutes(&self) -> bool {
        match self {
            Op::Replace | Op::NoOp | Op::MinLoc | Op::MaxLoc => false,
            // Of two zeros of different signs, either may be the smaller.
            Op::Min | Op::Max => !T::KIND.is_float(),
            _ => true,
        }
    }

    #[inline]
    fn name(&self) -> Option<(Kind, Op)> {
        Some((T::KIND, *self))
    }
}

/// By reference: what a program keeps can be used again.
impl<T: Datum, O: Operation<T> + ?Sized> Operation<T> for &O {
    #[inline]
    fn combine(&self, into: &mut [T], from: &[T]) {
        (**self).combine(into, from);
    }

    #[inline]
    fn combine_one(&self, into: &mut T, from: &T) {
        (**self).combine_one(into, from);
    }

    #[inline]
    fn unit(&self) -> usize {
        (**self).unit()
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn commutes(&self) -> bool {
        (**self).commutes()
    }

    #[inline]
    fn name(&self) -> Option<(Kind, Op)> {
        (**self).name()
    }
}

/// A user's operation on single elements.
#[derive(Clone, Copy, Debug)]
pub struct Each<F>(F);

/// Combines by `f(a, b)`, element by element.
///
/// ```
/// use hither::coll::each;
/// let job = hither::Job::init()?;
/// let mut data = [3.0, 4.0];
/// job.team().allreduce(each(|a: f64, b| a.hypot(b)), &mut data)?;
/// # Ok::<(), hither::Error>(())
/// ```
pub fn each<T: Datum, F: Fn(T, T) -> T + Send + Sync>(f: F) -> Each<F> {
    Each(f)
}

impl<T: Datum, F: Fn(T, T) -> T + Send + Sync> Operation<T> for Each<F> {
    fn combine(&self, into: &mut [T], from: &[T]) {
        let _inside = reentry::enter();
        for (a, b) in into.iter_mut().zip(from) {
            *a = (self.0)(*a, *b);
        }
    }
}

/// A user's operation on runs of elements.
#[derive(Clone, Copy, Debug)]
pub struct Slices<F> {
    f: F,
    unit: usize,
}

/// Combines by `f(into, from)`, which does `into[i] = into[i] OP from[i]`, in units of `unit`
/// elements that belong together.
pub fn slices<T: Datum, F: Fn(&mut [T], &[T]) + Send + Sync>(unit: usize, f: F) -> Slices<F> {
    Slices { f, unit }
}

impl<T: Datum, F: Fn(&mut [T], &[T]) + Send + Sync> Operation<T> for Slices<F> {
    fn combine(&self, into: &mut [T], from: &[T]) {
        let _inside = reentry::enter();
        (self.f)(into, from);
    }

    fn unit(&self) -> usize {
        self.unit
    }
}

/// An operation without its types, on bytes.
pub(super) trait Combine: Send + Sync {
    /// Bytes that are not cut.
    fn unit(&self) -> usize;

    /// As [`Operation::combine`]. Both slices are aligned for the elements.
    fn combine(&self, into: &mut [u8], from: &[u8]);

    /// As [`Operation::commutes`].
    fn commutes(&self) -> bool;

    /// What it is in a call's word.
    fn code(&self) -> u16;
}

/// Alignment of every place from which elements are combined.
pub(super) const ALIGN: usize = 64;

/// An operation that was checked, with the type of its elements.
pub(super) struct Typed<T, O> {
    op: O,
    unit: usize,
    _elements: PhantomData<fn() -> T>,
}

impl<T: Datum, O: Operation<T>> Typed<T, O> {
    /// Checks that data of so many elements can be combined.
    pub fn new(op: O, len: usize, during: &'static str) -> Result<Typed<T, O>> {
        op.check()?;
        let unit = op.unit().saturating_mul(size_of::<T>());
        if unit == 0 || unit > PIECE || align_of::<T>() > ALIGN {
            let why = format!(
                "units of {} elements of {} bytes at multiples of {}; a unit can have 1 to {PIECE} \
                 bytes at multiples of up to {ALIGN}",
                op.unit(),
                size_of::<T>(),
                align_of::<T>()
            );
            return Err(Error::invalid(during, why));
        }
        if !len.is_multiple_of(op.unit()) {
            let why = format!("{len} elements are no whole units of {}", op.unit());
            return Err(Error::invalid(during, why));
        }
        Ok(Typed { op, unit, _elements: PhantomData })
    }
}

impl<T: Datum, O: Operation<T>> Combine for Typed<T, O> {
    fn unit(&self) -> usize {
        self.unit
    }

    fn combine(&self, into: &mut [u8], from: &[u8]) {
        let len = into.len().min(from.len()) / size_of::<T>();
        let aligned = |at: *const u8| at.addr().is_multiple_of(align_of::<T>());
        assert!(aligned(into.as_ptr()) && aligned(from.as_ptr()), "elements lie as they must");
        // SAFETY: aligned, and `len` elements fit into both; every bit pattern is a valid Datum.
        let (into, from) = unsafe {
            (
                std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<T>(), len),
                std::slice::from_raw_parts(from.as_ptr().cast::<T>(), len),
            )
        };
        self.op.combine(into, from);
    }

    fn commutes(&self) -> bool {
        self.op.commutes()
    }

    fn code(&self) -> u16 {
        code_in_word::<T, O>(&self.op)
    }
}

/// What an operation is in a call's word.
#[inline]
pub(super) fn code_in_word<T: Datum, O: Operation<T>>(op: &O) -> u16 {
    match op.name() {
        Some((kind, op)) => code_of(kind, op),
        None => code_of_user(op.unit().wrapping_mul(size_of::<T>())),
    }
}

/// Memory of this process in which elements of any type can lie.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Line>);

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

impl Spare {
    /// The first `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() * ALIGN < len {
            self.0.resize(len.div_ceil(ALIGN), Line([0; ALIGN]));
        }
        // SAFETY: so many lines of bytes are there, one after the other.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Combines the data of `ranks` in their order. `own` has this member's (`me`) before and the
/// result afterwards; `theirs` calls what it is given with the data of another.
pub(super) fn fold(
    op: &dyn Combine,
    ranks: std::ops::Range<u32>,
    me: u32,
    own: &mut [u8],
    spare: &mut Spare,
    mut theirs: impl FnMut(u32, &mut dyn FnMut(&[u8])) -> Result<()>,
) -> Result<()> {
    if ranks.is_empty() {
        return Ok(());
    }
    let first = ranks.start;
    let of_two = ranks.len() == 2 && ranks.contains(&me) && op.commutes();
    if first == me || of_two {
        for rank in ranks.filter(|&rank| rank != me) {
            theirs(rank, &mut |data| op.combine(own, data))?;
        }
        return Ok(());
    }
    let sum = spare.bytes(own.len());
    theirs(first, &mut |data| sum.copy_from_slice(data))?;
    for rank in first + 1..ranks.end {
        if rank == me {
            op.combine(sum, own);
        } else {
            theirs(rank, &mut |data| op.combine(sum, data))?;
        }
    }
    own.copy_from_slice(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Combining strings of digits shows the order: `a OP b` is `a` followed by `b`, as numbers.
    #[test]
    fn data_are_combined_in_the_order_of_ranks() {
        let append = each(|a: u64, b: u64| a * 10 + b);
        let op = Typed::<u64, _>::new(append, 2, "a test").unwrap();
        for me in 0..6u32 {
            for start in 0..6 {
                for end in start..=6 {
                    let value = |rank: u32| [u64::from(rank) + 1, u64::from(rank) + 1];
                    let mut own = value(me);
                    let bytes = super::super::blocks::bytes_of_mut(&mut own);
                    let theirs = |rank: u32, with: &mut dyn FnMut(&[u8])| {
                        assert_ne!(rank, me);
                        with(super::super::blocks::bytes_of(&value(rank)));
                        Ok(())
                    };
                    fold(&op, start..end, me, bytes, &mut Spare::default(), theirs).unwrap();
                    let want = (start..end).fold(0, |sum, rank| sum * 10 + u64::from(rank) + 1);
                    let want = if start == end { u64::from(me) + 1 } else { want };
                    assert_eq!(own, [want, want], "{start}..{end} at {me}");
                }
            }
        }
    }

    #[test]
    fn one_element_is_combined_as_slices_of_one() {
        fn check<T: Numeric + PartialEq + std::fmt::Debug>(values: [T; 3]) {
            for op in Op::ALL.into_iter().filter(|op| check_op::<T>(*op).is_ok()) {
                for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
                    let (mut one, mut by_reference, mut slice) = (a, a, [a]);
                    op.combine_one(&mut one, &b);
                    <&Op as Operation<T>>::combine_one(&&op, &mut by_reference, &b);
                    op.combine(&mut slice, &[b]);
                    assert_eq!((one, by_reference), (slice[0], slice[0]), "{a:?} {op:?} {b:?}");
                }
            }
        }
        check([0u64, 7, u64::MAX]);
        check([0i64, -7, i64::MIN]);
        check([0.5f64, -3.0, 1e300]);
        let mut sum = 12;
        each(|a: u64, b: u64| a * 10 + b).combine_one(&mut sum, &3);
        assert_eq!(sum, 123);
    }

    #[test]
    fn units_that_cannot_be_are_refused() {
        let unit = |unit| Typed::<u64, _>::new(slices(unit, |_: &mut [u64], _: &[u64]| ()), 6, "t");
        assert!(unit(1).is_ok() && unit(3).is_ok());
        assert!(unit(0).is_err() && unit(4).is_err() && unit(6 * 1024).is_err());
        let nothing = each(|a: [u8; 0], _| a);
        assert!(Typed::<[u8; 0], _>::new(nothing, 6, "t").is_err());
        assert!(Typed::<f32, _>::new(Op::BitXor, 6, "t").is_err());
    }
}
