//! Element types: what windows, collectives and active messages carry.

use super::kind::Kind;

/// A plain element: copied by its bytes, the same in every process of the job.
///
/// # Safety
/// Every bit pattern of `size_of::<Self>()` bytes is a valid value, there is no padding, and the
/// type holds no pointer or reference. If [`ELEMENT`](Datum::ELEMENT) names a kind, the type is
/// one element of it or an array of such elements: its size is a multiple of the kind's, which
/// [`Layout::of`](crate::Layout::of) checks at compile time, and every element begins at a
/// multiple of the kind's size.
pub unsafe trait Datum: Copy + Send + Sync + 'static {
    /// What predefined operations see in it: the type's own kind, that of an array's elements, or
    /// nothing but bytes.
    ///
    /// ```
    /// use hither::{Datum, Kind, Layout};
    /// #[derive(Clone, Copy)]
    /// #[repr(transparent)]
    /// struct Seconds(f64);
    /// // SAFETY: an f64.
    /// unsafe impl Datum for Seconds {
    ///     const ELEMENT: Option<Kind> = Some(Kind::F64);
    /// }
    /// assert_eq!(Layout::of::<[Seconds; 3]>().kind(), Some(Kind::F64));
    /// ```
    /// A type of another size is no element of the kind:
    /// ```compile_fail,E0080
    /// use hither::{Datum, Kind, Layout};
    /// #[derive(Clone, Copy)]
    /// #[repr(transparent)]
    /// struct Seconds(f32);
    /// // SAFETY: an f32, but not what the constant says.
    /// unsafe impl Datum for Seconds {
    ///     const ELEMENT: Option<Kind> = Some(Kind::F64);
    /// }
    /// Layout::of::<Seconds>();
    /// ```
    const ELEMENT: Option<Kind> = None;

    /// Name and size folded to one number, equal in every build of the same source: ranks
    /// compare it where they must agree on a type.
    fn fingerprint() -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in
            std::any::type_name::<Self>().bytes().chain((size_of::<Self>() as u64).to_le_bytes())
        {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash
    }
}

macro_rules! plain {
    ($($t:ty => $kind:ident),+) => { $(
        // SAFETY: a primitive number.
        unsafe impl Datum for $t {
            const ELEMENT: Option<Kind> = Some(Kind::$kind);
        }
    )+ };
}
plain!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, usize => U64);
plain!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, isize => I64);
plain!(f32 => F32, f64 => F64);

// SAFETY: a primitive number.
unsafe impl Datum for u128 {}
// SAFETY: a primitive number.
unsafe impl Datum for i128 {}

// SAFETY: an array has no padding of its own and is as plain as its elements.
unsafe impl<T: Datum, const N: usize> Datum for [T; N] {
    const ELEMENT: Option<Kind> = T::ELEMENT;
}
