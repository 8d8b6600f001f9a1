//! Element types: what windows, collectives and active messages carry.

/// A plain element: copied by its bytes, the same in every process of the job.
///
/// # Safety
/// Every bit pattern of `size_of::<Self>()` bytes is a valid value, there is no padding, and the
/// type holds no pointer or reference.
pub unsafe trait Datum: Copy + Send + Sync + 'static {
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
    ($($t:ty),+) => { $(
        // SAFETY: a primitive number.
        unsafe impl Datum for $t {}
    )+ };
}
plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

// SAFETY: an array has no padding of its own and is as plain as its elements.
unsafe impl<T: Datum, const N: usize> Datum for [T; N] {}
