//! The predefined operations of accumulates and reductions, and the numbers they apply to.

use super::datum::Datum;
use super::kind::Kind;
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
    /// 1 if both are not 0, else 0; integers only.
    LogicalAnd,
    /// 1 if one or both are not 0, else 0; integers only.
    LogicalOr,
    /// 1 if exactly one is not 0, else 0; integers only.
    LogicalXor,
    /// The smaller value with its index, of equal values the lower index; only for
    /// [`Located`](super::Located). A NaN on one side gives the other side.
    MinLoc,
    /// The larger value with its index, of equal values the lower index; only for [`Located`](super::Located).
    /// A NaN on one side gives the other side.
    MaxLoc,
}

impl Op {
    /// All of them, for tests and tables.
    pub const ALL: [Op; 14] = [
        Op::Sum,
        Op::Product,
        Op::Min,
        Op::Max,
        Op::BitAnd,
        Op::BitOr,
        Op::BitXor,
        Op::Replace,
        Op::NoOp,
        Op::LogicalAnd,
        Op::LogicalOr,
        Op::LogicalXor,
        Op::MinLoc,
        Op::MaxLoc,
    ];

    /// The operation that a peer named by its number (`op as u8`), if there is one.
    pub fn from_raw(raw: u8) -> Result<Op> {
        Op::ALL.into_iter().find(|op| *op as u8 == raw).ok_or_else(|| Error::Incompatible {
            what: "an operation",
            why: format!("there is none with the number {raw}"),
        })
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// An element that predefined operations apply to: every integer up to 64 bits, `f32`, `f64`,
/// and values with an index ([`Located`](super::Located)).
pub trait Numeric: Datum + PartialEq + std::fmt::Debug + sealed::Sealed {
    /// What untyped operations and packets call it.
    const KIND: Kind;

    /// `a OP b`. Operations that do not apply, which [`check_op`] refuses, give `a`.
    fn combine(op: Op, a: Self, b: Self) -> Self;
}

/// An error if `op` does not apply to `T`. Costs nothing where `op` is a constant.
#[inline]
pub fn check_op<T: Numeric>(op: Op) -> Result<()> {
    check_kind(T::KIND, op)
}

/// An error if `op` does not apply to elements of this kind.
#[inline]
pub fn check_kind(kind: Kind, op: Op) -> Result<()> {
    if kind.allows(op) { Ok(()) } else { Err(does_not_apply(kind, op)) }
}

#[cold]
fn does_not_apply(kind: Kind, op: Op) -> Error {
    let to = match op {
        Op::MinLoc | Op::MaxLoc => "applies to values with an index (`Located`) only",
        Op::Sum | Op::Product | Op::Min | Op::Max => "does not apply to values with an index",
        _ => "applies to integers only",
    };
    Error::invalid("operation", format!("{op:?} {to}, not to {kind:?}"))
}

macro_rules! integers {
    ($($t:ty),+) => { $(
        impl sealed::Sealed for $t {}
        impl Numeric for $t {
            const KIND: Kind = <$t as Datum>::ELEMENT.expect("numbers have a kind");
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
                    Op::LogicalAnd => (a != 0 && b != 0) as $t,
                    Op::LogicalOr => (a != 0 || b != 0) as $t,
                    Op::LogicalXor => ((a != 0) != (b != 0)) as $t,
                    Op::NoOp | Op::MinLoc | Op::MaxLoc => a,
                }
            }
        }
    )+ };
}

macro_rules! floats {
    ($($t:ty),+) => { $(
        impl sealed::Sealed for $t {}
        impl Numeric for $t {
            const KIND: Kind = <$t as Datum>::ELEMENT.expect("numbers have a kind");
            #[inline(always)]
            fn combine(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Sum => a + b,
                    Op::Product => a * b,
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Replace => b,
                    _ => a,
                }
            }
        }
    )+ };
}

integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);
floats!(f32, f64);

/// `body` with `$t` standing for the element type of a kind.
macro_rules! with_kind {
    ($kind:expr, $t:ident => $body:expr) => {
        match $kind {
            $crate::layout::Kind::U8 => {
                type $t = u8;
                $body
            }
            $crate::layout::Kind::U16 => {
                type $t = u16;
                $body
            }
            $crate::layout::Kind::U32 => {
                type $t = u32;
                $body
            }
            $crate::layout::Kind::U64 => {
                type $t = u64;
                $body
            }
            $crate::layout::Kind::I8 => {
                type $t = i8;
                $body
            }
            $crate::layout::Kind::I16 => {
                type $t = i16;
                $body
            }
            $crate::layout::Kind::I32 => {
                type $t = i32;
                $body
            }
            $crate::layout::Kind::I64 => {
                type $t = i64;
                $body
            }
            $crate::layout::Kind::F32 => {
                type $t = f32;
                $body
            }
            $crate::layout::Kind::F64 => {
                type $t = f64;
                $body
            }
            $crate::layout::Kind::F32Located => {
                type $t = $crate::layout::Located<f32, i32>;
                $body
            }
            $crate::layout::Kind::I32Located => {
                type $t = $crate::layout::Located<i32, i32>;
                $body
            }
            $crate::layout::Kind::U32Located => {
                type $t = $crate::layout::Located<u32, i32>;
                $body
            }
            $crate::layout::Kind::F64Located => {
                type $t = $crate::layout::Located<f64, i64>;
                $body
            }
            $crate::layout::Kind::I64Located => {
                type $t = $crate::layout::Located<i64, i64>;
                $body
            }
            $crate::layout::Kind::U64Located => {
                type $t = $crate::layout::Located<u64, i64>;
                $body
            }
        }
    };
}

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
        Op::LogicalAnd => each!(Op::LogicalAnd),
        Op::LogicalOr => each!(Op::LogicalOr),
        Op::LogicalXor => each!(Op::LogicalXor),
        Op::MinLoc => each!(Op::MinLoc),
        Op::MaxLoc => each!(Op::MaxLoc),
        Op::NoOp => {}
    }
}

/// `into[i] = into[i] OP from[i]` for elements of `kind`, wherever the bytes lie: neither side
/// need be aligned. What a packet carries is combined this way.
///
/// # Errors
/// [`Error::InvalidArgument`] if `op` does not apply to `kind`, if the lengths differ, or if they
/// are no multiple of the element's size.
pub fn combine_bytes(kind: Kind, op: Op, into: &mut [u8], from: &[u8]) -> Result<()> {
    check_kind(kind, op)?;
    if into.len() != from.len() || !into.len().is_multiple_of(kind.size()) {
        let why = format!(
            "{} and {} bytes: want the same number of whole elements of {}",
            into.len(),
            from.len(),
            kind.size()
        );
        return Err(Error::invalid("combining elements", why));
    }
    with_kind!(kind, T => combine_unaligned::<T>(op, into, from));
    Ok(())
}

fn combine_unaligned<T: Numeric>(op: Op, into: &mut [u8], from: &[u8]) {
    // In blocks through an aligned buffer, so that the loops are those of `combine_slices`.
    const BLOCK: usize = 512;
    #[repr(align(16))]
    struct Buffer([u8; BLOCK]);
    let (mut a, mut b) = (Buffer([0; BLOCK]), Buffer([0; BLOCK]));
    for (into, from) in into.chunks_mut(BLOCK).zip(from.chunks(BLOCK)) {
        let count = into.len() / size_of::<T>();
        a.0[..into.len()].copy_from_slice(into);
        b.0[..from.len()].copy_from_slice(from);
        // SAFETY: the buffers are aligned for every element kind and hold at least `count`
        // elements; every bit pattern is a valid Numeric.
        let (x, y) = unsafe {
            (
                std::slice::from_raw_parts_mut(a.0.as_mut_ptr().cast::<T>(), count),
                std::slice::from_raw_parts(b.0.as_ptr().cast::<T>(), count),
            )
        };
        combine_slices(op, x, y);
        into.copy_from_slice(&a.0[..into.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Located;

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
        for op in Op::ALL.into_iter().filter(|op| Kind::U32.allows(*op)) {
            let mut into: Vec<u32> = (0..37).map(|i| i * 77).collect();
            let from: Vec<u32> = (0..37).map(|i| i ^ 0x5a5a).collect();
            let want: Vec<u32> =
                into.iter().zip(&from).map(|(a, b)| u32::combine(op, *a, *b)).collect();
            combine_slices(op, &mut into, &from);
            assert_eq!(into, want, "{op:?}");
        }
    }

    fn bytes_agree<T: Numeric>(make: impl Fn(u64) -> T) {
        let kind = T::KIND;
        assert_eq!(kind.size(), size_of::<T>());
        let bytes = |values: &[T]| -> Vec<u8> {
            // SAFETY: plain data without padding.
            unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
                .to_vec()
        };
        for op in Op::ALL {
            let counts: &[u64] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 3, 63, 64, 65, 700] };
            for &count in counts {
                let a: Vec<T> = (0..count).map(|i| make(i * 7 % 5)).collect();
                let b: Vec<T> = (0..count).map(|i| make(i * 3 % 4)).collect();
                let want: Vec<T> = a.iter().zip(&b).map(|(a, b)| T::combine(op, *a, *b)).collect();
                for shift in if cfg!(miri) { 1..2 } else { 0..2 } {
                    let mut into = vec![0; shift];
                    into.extend(bytes(&a));
                    let from = bytes(&b);
                    let done = combine_bytes(kind, op, &mut into[shift..], &from);
                    assert_eq!(done.is_ok(), kind.allows(op));
                    let want = if done.is_ok() { bytes(&want) } else { bytes(&a) };
                    assert_eq!(into[shift..], want, "{kind:?} {op:?}");
                }
            }
        }
        assert!(combine_bytes(kind, Op::Replace, &mut [0; 16], &[0; 32]).is_err());
        if size_of::<T>() > 1 {
            assert!(combine_bytes(kind, Op::Replace, &mut [0; 17], &[0; 17]).is_err());
        }
    }

    #[test]
    fn bytes_combine_as_elements_do() {
        bytes_agree(|v| v as u8);
        bytes_agree(|v| v as u16);
        bytes_agree(|v| v as u32);
        bytes_agree(|v| v);
        bytes_agree(|v| v as i8 - 2);
        bytes_agree(|v| v as i16 - 2);
        bytes_agree(|v| v as i32 - 2);
        bytes_agree(|v| v as i64 - 2);
        bytes_agree(|v| v as f32 - 1.5);
        bytes_agree(|v| v as f64 - 1.5);
        bytes_agree(|v| Located { value: v as f32 / 2.0, index: v as i32 });
        bytes_agree(|v| Located { value: v as i32 / 2, index: v as i32 });
        bytes_agree(|v| Located { value: v as u32 / 2, index: -(v as i32) });
        bytes_agree(|v| Located { value: v as f64 / 2.0, index: v as i64 });
        bytes_agree(|v| Located { value: v as i64 / 2, index: v as i64 });
        bytes_agree(|v| Located { value: v / 2, index: -(v as i64) });
    }

    #[test]
    fn logical_operations_give_zero_and_one() {
        assert_eq!(i32::combine(Op::LogicalAnd, 4, -2), 1);
        assert_eq!(i32::combine(Op::LogicalAnd, 4, 0), 0);
        assert_eq!(u8::combine(Op::LogicalOr, 0, 200), 1);
        assert_eq!(u8::combine(Op::LogicalXor, 3, 200), 0);
        assert_eq!(u8::combine(Op::LogicalXor, 3, 0), 1);
    }

    #[test]
    fn numbers_lead_back_to_operations() {
        for op in Op::ALL {
            assert_eq!(Op::from_raw(op as u8).unwrap(), op);
        }
        assert!(Op::from_raw(14).is_err());
    }
}
