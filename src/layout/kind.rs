//! Element kinds at run time: what untyped operations and packets name instead of a type.

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
}

impl Kind {
    /// All of them, for tests and tables.
    pub const ALL: [Kind; 10] = [
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
    ];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
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
}
