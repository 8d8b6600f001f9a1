//! Element types with an oracle: what each operation gives, computed plainly and apart from the
//! library.

use hither::layout::op::check_op;
use hither::{Element, Located, Op};

/// An element that cases use.
pub trait Value: Element + Unpin {
    /// A value made of a number; different for small numbers.
    fn of(number: usize) -> Self;

    /// What `op` gives.
    fn oracle(op: Op, target: Self, origin: Self) -> Self;

    /// The operations that apply.
    fn operations() -> Vec<Op> {
        Op::ALL.into_iter().filter(|&op| check_op::<Self>(op).is_ok()).collect()
    }

    /// The operations for which the order of origins does not matter, exactly.
    fn commuting() -> Vec<Op> {
        use Op::{BitAnd, BitOr, BitXor, LogicalXor, Max, MaxLoc, Min, MinLoc, Sum};
        [Sum, Max, Min, BitOr, BitXor, BitAnd, LogicalXor, MinLoc, MaxLoc]
            .into_iter()
            .filter(|&op| check_op::<Self>(op).is_ok())
            .collect()
    }
}

macro_rules! integers {
    ($($t:ty),+) => { $(
        impl Value for $t {
            fn of(number: usize) -> Self {
                // Every byte takes part, and signed types go below zero.
                (number as $t).wrapping_mul(0x5b).wrapping_add(<$t>::MAX / 3)
            }
            fn oracle(op: Op, target: Self, origin: Self) -> Self {
                let wide = (i128::from(target), i128::from(origin));
                match op {
                    Op::Sum => (wide.0 + wide.1) as $t,
                    Op::Product => (wide.0.wrapping_mul(wide.1)) as $t,
                    Op::Min => if wide.0 < wide.1 { target } else { origin },
                    Op::Max => if wide.0 > wide.1 { target } else { origin },
                    Op::BitAnd => target & origin,
                    Op::BitOr => target | origin,
                    Op::BitXor => target ^ origin,
                    Op::Replace => origin,
                    Op::NoOp => target,
                    Op::LogicalAnd => <$t>::from(target != 0 && origin != 0),
                    Op::LogicalOr => <$t>::from(target != 0 || origin != 0),
                    Op::LogicalXor => <$t>::from((target != 0) != (origin != 0)),
                    other => unreachable!("{other:?} on an integer"),
                }
            }
        }
    )+ };
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($t:ty),+) => { $(
        impl Value for $t {
            fn of(number: usize) -> Self {
                // Small halves: sums of a few hundred are exact in any order.
                ((number * 7 % 61) as $t - 30.0) * 0.5
            }
            fn oracle(op: Op, target: Self, origin: Self) -> Self {
                match op {
                    Op::Sum => target + origin,
                    Op::Product => target * origin,
                    Op::Min => if target < origin { target } else { origin },
                    Op::Max => if target > origin { target } else { origin },
                    Op::Replace => origin,
                    Op::NoOp => target,
                    other => unreachable!("{other:?} on a float"),
                }
            }
        }
    )+ };
}
floats!(f32, f64);

macro_rules! located {
    ($(($v:ty, $i:ty)),+) => { $(
        impl Value for Located<$v, $i> {
            fn of(number: usize) -> Self {
                // Equal values are common, indices differ.
                Located { value: ((number * 7) % 5) as $v, index: (number % 97) as $i }
            }
            fn oracle(op: Op, target: Self, origin: Self) -> Self {
                let first = origin.index < target.index;
                let tie = origin.value == target.value && first;
                match op {
                    Op::MinLoc if origin.value < target.value || tie => origin,
                    Op::MaxLoc if origin.value > target.value || tie => origin,
                    Op::MinLoc | Op::MaxLoc | Op::NoOp => target,
                    Op::Replace => origin,
                    other => unreachable!("{other:?} on a value with an index"),
                }
            }
        }
    )+ };
}
located!((f32, i32), (i32, i32), (u32, i32));
