//! Lines asked for before they are needed: hints to the processor, which touch nothing and cannot fault.
//! Where it has none, and where a program is interpreted, nothing happens.

/// Has the processor fetch the line at `at` for this core to write, if it is not there. To be used
/// ahead of a read-modify-write, which waits for all that comes before it: while it waits for its own
/// line, those of the next ones are on their way.
#[inline(always)]
pub(crate) fn to_write<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; processors without it ignore it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) at.addr(),
            options(nostack, nomem, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// The same for all lines of `len` bytes.
#[inline]
#[cfg(not(loom))]
pub(crate) fn lines_to_write(at: *const u8, len: usize) {
    for line in (0..len).step_by(64) {
        to_write(at.wrapping_add(line));
    }
}

/// Up to how many bytes it pays to ask for all lines that a copy is about to write.
///
/// Longer ones are `rep movsb` (from 2112 bytes on with the GNU C library). That takes lines to write
/// without reading them on AMD's processors, and asking has them read: windows of 4 KiB then move at half
/// (family 26, cores far from each other) to nine tenths the bandwidth. Intel's (family 6 model 207) read
/// them anyway, one after the other: there asking makes windows of 4 KiB 7 % faster.
#[cfg(not(loom))]
pub(crate) fn worth_writing_ahead() -> usize {
    if is_vendor(b"GenuineIntel") { 4096 } else { 2048 }
}

/// Whether the processor says that it is of that make.
#[cfg(not(loom))]
pub(super) fn is_vendor(name: &[u8; 12]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == *name
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = name;
        false
    }
}

/// As [`lines_to_write`], to read.
#[inline]
#[cfg(not(loom))]
pub(crate) fn lines_to_read(at: *const u8, len: usize) {
    for line in (0..len).step_by(64) {
        to_read(at.wrapping_add(line));
    }
}

/// As [`to_write`], to read.
#[inline(always)]
pub(crate) fn to_read<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!(
            "prefetcht0 [{}]",
            in(reg) at.addr(),
            options(nostack, nomem, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
