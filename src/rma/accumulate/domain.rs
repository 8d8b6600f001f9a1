//! The atomic domain of a window: what every update of an element goes through, whoever makes it.

use super::element::Element;
use crate::base::{Error, Rank, Result};
use crate::layout::{Kind, Op};
use crate::rma::block::WindowBlock;
use crate::rma::info::Info;

/// One process's side of a window's atomic domain.
#[derive(Debug)]
pub(crate) struct Domain {}

/// `$body` with `$t` standing for the element type of a kind.
macro_rules! for_kind {
    ($kind:expr, $t:ident => $body:expr) => {
        match $kind {
            Kind::U8 => {
                type $t = u8;
                $body
            }
            Kind::U16 => {
                type $t = u16;
                $body
            }
            Kind::U32 => {
                type $t = u32;
                $body
            }
            Kind::U64 => {
                type $t = u64;
                $body
            }
            Kind::I8 => {
                type $t = i8;
                $body
            }
            Kind::I16 => {
                type $t = i16;
                $body
            }
            Kind::I32 => {
                type $t = i32;
                $body
            }
            Kind::I64 => {
                type $t = i64;
                $body
            }
            Kind::F32 => {
                type $t = f32;
                $body
            }
            Kind::F64 => {
                type $t = f64;
                $body
            }
            located => return Err(not_yet(located)),
        }
    };
}

#[cold]
fn not_yet(kind: Kind) -> Error {
    Error::invalid("an update", format!("elements of kind {kind:?} have no atomic access"))
}

impl Domain {
    /// The domain of the window whose block this is.
    pub fn new(_block: &WindowBlock, _info: &Info) -> Domain {
        Domain {}
    }

    /// Atomically replaces `*at` by `*at OP value`; returns what was there.
    ///
    /// # Safety
    /// `at` is an aligned element of `part`'s memory in this window, mapped here.
    #[inline]
    pub unsafe fn fetch_op<T: Element>(
        &self,
        _part: Rank,
        at: *mut T,
        op: Op,
        value: T,
    ) -> Result<T> {
        // SAFETY: the caller's.
        Ok(unsafe { T::fetch_op(at, op, value) })
    }

    /// Atomically replaces `*at` by `new` if its bits equal `expected`'s; returns what was there.
    ///
    /// # Safety
    /// As for [`Domain::fetch_op`].
    #[inline]
    pub unsafe fn compare_swap<T: Element>(
        &self,
        _part: Rank,
        at: *mut T,
        expected: T,
        new: T,
    ) -> Result<T> {
        // SAFETY: the caller's.
        Ok(unsafe { T::compare_swap(at, expected, new) })
    }

    /// `at[i] = at[i] OP values[i]`, each element atomically.
    ///
    /// # Safety
    /// As for [`Domain::fetch_op`], for `values.len()` elements.
    #[inline]
    pub unsafe fn accumulate<T: Element>(
        &self,
        _part: Rank,
        at: *mut T,
        op: Op,
        values: &[T],
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { T::accumulate(at, op, values) };
        Ok(())
    }

    /// As [`Domain::accumulate`], of elements of a kind known at run time: `count` of them from
    /// `from`, which need not be aligned. What was there goes to `result`, if given, which need
    /// not be aligned either and may be `from`. The caller has checked that `op` applies to
    /// `kind`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `at` is not aligned for such elements.
    ///
    /// # Safety
    /// `at` begins `count` elements of `part`'s memory in this window, mapped here; `from` and
    /// `result` are private memory of as many.
    #[expect(clippy::too_many_arguments, reason = "an operation has that many operands")]
    pub unsafe fn update(
        &self,
        part: Rank,
        kind: Kind,
        op: Op,
        at: *mut u8,
        count: usize,
        from: *const u8,
        result: Option<*mut u8>,
    ) -> Result<()> {
        check_aligned(kind, at)?;
        for_kind!(kind, T => {
            for i in 0..count {
                // SAFETY: the caller's, for each of `count` elements.
                unsafe {
                    let value = from.cast::<T>().add(i).read_unaligned();
                    let old = self.fetch_op::<T>(part, at.cast::<T>().add(i), op, value)?;
                    if let Some(result) = result {
                        result.cast::<T>().add(i).write_unaligned(old);
                    }
                }
            }
        });
        Ok(())
    }

    /// As [`Domain::compare_swap`], of an element of a kind known at run time; what was there goes
    /// to `result`. The private operands need not be aligned.
    ///
    /// # Errors
    /// As for [`Domain::update`].
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub unsafe fn update_if_equal(
        &self,
        part: Rank,
        kind: Kind,
        at: *mut u8,
        expected: *const u8,
        new: *const u8,
        result: *mut u8,
    ) -> Result<()> {
        check_aligned(kind, at)?;
        // SAFETY: the caller's.
        for_kind!(kind, T => unsafe {
            let (expected, new) = (expected.cast::<T>(), new.cast::<T>());
            let (expected, new) = (expected.read_unaligned(), new.read_unaligned());
            let old = self.compare_swap::<T>(part, at.cast(), expected, new)?;
            result.cast::<T>().write_unaligned(old);
        });
        Ok(())
    }
}

fn check_aligned(kind: Kind, at: *mut u8) -> Result<()> {
    let align = kind.size().min(8);
    if at.addr().is_multiple_of(align) {
        return Ok(());
    }
    Err(Error::invalid(
        "accumulate",
        format!(
            "the target's {kind:?} elements are not aligned to {align} bytes; accumulates update whole, aligned elements"
        ),
    ))
}
