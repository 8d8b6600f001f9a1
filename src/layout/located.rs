//! A value and where it was found: the elements of `MinLoc` and `MaxLoc` (MPI-3.1 §5.9.4).

use super::datum::Datum;
use super::kind::Kind;
use super::op::{Numeric, Op, sealed};

/// A value with an index. The pairs that operations apply to have no padding: 4-byte values with
/// an `i32`, 8-byte values with an `i64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Located<V, I> {
    /// The value that is compared.
    pub value: V,
    /// Where it was found; of equal values the lower one wins.
    pub index: I,
}

macro_rules! located {
    ($($v:ty, $i:ty => $kind:ident;)+) => { $(
        const _: () = assert!(size_of::<Located<$v, $i>>() == size_of::<$v>() + size_of::<$i>());

        // SAFETY: repr(C) of two plain numbers; the assert above rules padding out.
        unsafe impl Datum for Located<$v, $i> {
            const ELEMENT: Option<Kind> = Some(Kind::$kind);
        }
        impl sealed::Sealed for Located<$v, $i> {}
        impl Numeric for Located<$v, $i> {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn combine(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Replace => b,
                    Op::MinLoc => nearer(a, b, b.value < a.value, a.value < b.value),
                    Op::MaxLoc => nearer(a, b, b.value > a.value, a.value > b.value),
                    _ => a,
                }
            }
        }
    )+ };
}

/// `b` if it wins, `a` if that wins, of equal values the one with the lower index, of a NaN and a
/// number the number.
#[inline(always)]
#[expect(clippy::eq_op, reason = "a NaN does not equal itself")]
fn nearer<V: PartialEq + Copy, I: PartialOrd + Copy>(
    a: Located<V, I>,
    b: Located<V, I>,
    b_wins: bool,
    a_wins: bool,
) -> Located<V, I> {
    let tie = a.value == b.value && b.index < a.index;
    let only_number = a.value != a.value && b.value == b.value;
    if b_wins || (!a_wins && (tie || only_number)) { b } else { a }
}

located! {
    f32, i32 => F32Located;
    i32, i32 => I32Located;
    u32, i32 => U32Located;
    f64, i64 => F64Located;
    i64, i64 => I64Located;
    u64, i64 => U64Located;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<V>(value: V, index: i64) -> Located<V, i64> {
        Located { value, index }
    }

    #[test]
    fn the_winner_brings_its_index_and_ties_take_the_lower() {
        type L = Located<i64, i64>;
        assert_eq!(L::combine(Op::MinLoc, at(3, 1), at(2, 9)), at(2, 9));
        assert_eq!(L::combine(Op::MinLoc, at(2, 9), at(3, 1)), at(2, 9));
        assert_eq!(L::combine(Op::MinLoc, at(2, 9), at(2, 1)), at(2, 1));
        assert_eq!(L::combine(Op::MaxLoc, at(2, 1), at(2, 9)), at(2, 1));
        assert_eq!(L::combine(Op::MaxLoc, at(-2, 1), at(2, 9)), at(2, 9));
    }

    #[test]
    fn a_number_wins_over_nan() {
        type L = Located<f64, i64>;
        assert_eq!(L::combine(Op::MinLoc, at(f64::NAN, 0), at(1.0, 5)), at(1.0, 5));
        assert_eq!(L::combine(Op::MinLoc, at(1.0, 5), at(f64::NAN, 0)), at(1.0, 5));
        assert_eq!(L::combine(Op::MaxLoc, at(f64::NAN, 7), at(f64::NAN, 2)).index, 7);
    }
}
