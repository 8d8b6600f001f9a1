//! The predefined operations of accumulates and reductions, and the numbers they apply to.

use super::datum::Datum;
use crate::base::{Error, Result};

/// A predefined operation `target = target OP origin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Op {
    /// `target + origin` (wrapping for integers).
    Sum,
    /// `target * origin` (wrapping for integers).
    Product,
    /// The smaller. For floats, a NaN on one side gives the other side.
    Min,
    /// The larger. For floats, a NaN on one side gives the other side.
    Max,
    /// Bitwise and; integers only.
    BitAnd,
    /// Bitwise or; integers only.
    BitOr,
    /// Bitwise exclusive or; integers only.
    BitXor,
    /// `origin`.
    Replace,
    /// `target`: with fetch_and_op, an atomic read.
    NoOp,
}

impl Op {
    /// All of them, for tests and tables.
    pub const ALL: [Op; 9] = [
        Op::Sum,
        Op::Product,
        Op::Min,
        Op::Max,
        Op::BitAnd,
        Op::BitOr,
        Op::BitXor,
        Op::Replace,
        Op::NoOp,
    ];

    /// Whether the operation works on bits and so on integers only.
    pub fn is_bitwise(self) -> bool {
        matches!(self, Op::BitAnd | Op::BitOr | Op::BitXor)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that the predefined operations apply to: every integer up to 64 bits, `f32`, `f64`.
pub trait Numeric: Datum + PartialEq + std::fmt::Debug + sealed::Sealed {
    /// Whether bitwise operations apply.
    const INTEGER: bool;

    /// `a OP b`. Bitwise operations on floats, which [`check_op`] refuses, give `a`.
    fn combine(op: Op, a: Self, b: Self) -> Self;
}

/// An error if `op` does not apply to `T`.
#[inline]
pub fn check_op<T: Numeric>(op: Op) -> Result<()> {
    if T::INTEGER || !op.is_bitwise() {
        return Ok(());
    }
    Err(Error::invalid(
        "operation",
        format!("{op:?} works on bits and does not apply to {}", std::any::type_name::<T>()),
    ))
}

macro_rules! integers {
    ($($t:ty),+) => { $(
        impl sealed::Sealed for $t {}
        impl Numeric for $t {
            const INTEGER: bool = true;
            #[inline(always)]
            fn combine(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Product => a.wrapping_mul(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::BitAnd => a & b,
                    Op::BitOr => a | b,
                    Op::BitXor => a ^ b,
                    Op::Replace => b,
                    Op::NoOp => a,
                }
            }
        }
    )+ };
}

macro_rules! floats {
    ($($t:ty),+) => { $(
        impl sealed::Sealed for $t {}
        impl Numeric for $t {
            const INTEGER: bool = false;
            #[inline(always)]
            fn combine(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Sum => a + b,
                    Op::Product => a * b,
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Replace => b,
                    Op::NoOp | Op::BitAnd | Op::BitOr | Op::BitXor => a,
                }
            }
        }
    )+ };
}

integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);
floats!(f32, f64);

/// `into[i] = into[i] OP from[i]`.
#[inline]
pub fn combine_slices<T: Numeric>(op: Op, into: &mut [T], from: &[T]) {
    // One loop per operation, so that each vectorises.
    macro_rules! each {
        ($op:expr) => {
            for (a, b) in into.iter_mut().zip(from) {
                *a = T::combine($op, *a, *b);
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
        Op::Replace => each!(Op::Replace),
        Op::NoOp => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_floats_ignore_nan() {
        assert_eq!(u8::combine(Op::Sum, 250, 10), 4);
        assert_eq!(i32::combine(Op::Product, i32::MIN, -1), i32::MIN);
        assert_eq!(f64::combine(Op::Min, f64::NAN, 1.0), 1.0);
        assert!(check_op::<f32>(Op::BitXor).is_err());
        assert!(check_op::<i8>(Op::BitXor).is_ok());
    }

    #[test]
    fn slices_combine_as_elements_do() {
        for op in Op::ALL {
            let mut into: Vec<u32> = (0..37).map(|i| i * 77).collect();
            let from: Vec<u32> = (0..37).map(|i| i ^ 0x5a5a).collect();
            let want: Vec<u32> =
                into.iter().zip(&from).map(|(a, b)| u32::combine(op, *a, *b)).collect();
            combine_slices(op, &mut into, &from);
            assert_eq!(into, want, "{op:?}");
        }
    }
}
