//! Element kinds at run time: what untyped operations and packets name instead of a type.

use super::op::Op;
use crate::base::{Error, Result};

/// The kind of an element that predefined operations apply to. The numbers are part of the
/// packet format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `u8`
    U8 = 1,
    /// `u16`
    U16 = 2,
    /// `u32`
    U32 = 3,
    /// `u64` and `usize`
    U64 = 4,
    /// `i8`
    I8 = 5,
    /// `i16`
    I16 = 6,
    /// `i32`
    I32 = 7,
    /// `i64` and `isize`
    I64 = 8,
    /// `f32`
    F32 = 9,
    /// `f64`
    F64 = 10,
    /// `Located<f32, i32>`
    F32Located = 11,
    /// `Located<i32, i32>`
    I32Located = 12,
    /// `Located<u32, i32>`
    U32Located = 13,
    /// `Located<f64, i64>`
    F64Located = 14,
    /// `Located<i64, i64>`
    I64Located = 15,
    /// `Located<u64, i64>`
    U64Located = 16,
}

impl Kind {
    /// All of them, for tests and tables.
    pub const ALL: [Kind; 16] = [
        Kind::U8,
        Kind::U16,
        Kind::U32,
        Kind::U64,
        Kind::I8,
        Kind::I16,
        Kind::I32,
        Kind::I64,
        Kind::F32,
        Kind::F64,
        Kind::F32Located,
        Kind::I32Located,
        Kind::U32Located,
        Kind::F64Located,
        Kind::I64Located,
        Kind::U64Located,
    ];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::F32Located | Kind::I32Located | Kind::U32Located => 8,
            Kind::F64Located | Kind::I64Located | Kind::U64Located => 16,
        }
    }

    /// Elements that are updated atomically lie at multiples of so many bytes.
    pub const fn align(self) -> usize {
        if self.size() > 8 { 8 } else { self.size() }
    }

    /// Whether an element is a value with an index.
    pub const fn is_located(self) -> bool {
        self as u8 >= Kind::F32Located as u8
    }

    /// Whether an element is a float.
    pub const fn is_float(self) -> bool {
        matches!(self, Kind::F32 | Kind::F64)
    }

    /// Whether `op` applies to such elements: `Replace` and `NoOp` to all, `MinLoc` and `MaxLoc`
    /// to values with an index and nothing else to those, bitwise and logical ones to integers.
    #[inline]
    pub const fn allows(self, op: Op) -> bool {
        match op {
            Op::Replace | Op::NoOp => true,
            Op::MinLoc | Op::MaxLoc => self.is_located(),
            Op::Sum | Op::Product | Op::Min | Op::Max => !self.is_located(),
            Op::BitAnd
            | Op::BitOr
            | Op::BitXor
            | Op::LogicalAnd
            | Op::LogicalOr
            | Op::LogicalXor => !self.is_located() && !self.is_float(),
        }
    }

    /// The kind that a peer named, if there is one.
    pub fn from_raw(raw: u8) -> Result<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == raw).ok_or_else(|| Error::Incompatible {
            what: "an element kind",
            why: format!("there is none with the number {raw}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_kinds() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_raw(kind as u8).unwrap(), kind);
        }
        assert!(Kind::from_raw(0).is_err());
        assert!(Kind::from_raw(255).is_err());
    }

    #[test]
    fn operations_apply_as_the_standard_says() {
        let count = |kind: Kind| Op::ALL.into_iter().filter(|op| kind.allows(*op)).count();
        assert_eq!(count(Kind::U8), 12);
        assert_eq!(count(Kind::I64), 12);
        assert_eq!(count(Kind::F32), 6);
        assert_eq!(count(Kind::F64Located), 4);
        assert!(Kind::I32Located.allows(Op::MinLoc) && !Kind::I32.allows(Op::MinLoc));
    }
}
