//! What a message carries, as its producer has it, and how it is put into cells: by aligned stores.

use super::cell::{FIRST_BYTES, MORE_BYTES};

// What `put_all` writes.
const _: () = assert!(MORE_BYTES == 8 + 3 * 16);

/// What a message carries, as its producer has it.
pub trait Payload: Copy {
    /// Bytes.
    fn size(self) -> usize;

    /// What does not fit the first cell.
    fn rest(&self) -> &[u8];

    /// Writes the first [`FIRST_BYTES`] of it, or all if there are fewer, in whole words.
    ///
    /// # Safety
    /// `to` is writable for [`FIRST_BYTES`].
    unsafe fn put_first(self, to: *mut u64);

    /// The first word, if the payload is one that has a word of its own at its beginning.
    #[inline(always)]
    fn head(self) -> Option<u64> {
        None
    }

    /// Writes what lies behind the first word as [`Payload::put_first`] does.
    ///
    /// # Safety
    /// As many bytes, up to [`FIRST_BYTES`] less 8 and rounded up to words, are writable at `to`. There is a
    /// [`Payload::head`].
    unsafe fn put_behind_head(self, to: *mut u64);
}

impl Payload for &[u8] {
    #[inline(always)]
    fn size(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.get(FIRST_BYTES..).unwrap_or_default()
    }

    #[inline(always)]
    unsafe fn put_first(self, to: *mut u64) {
        // SAFETY: the caller's; as many bytes are read as the slice has.
        unsafe { put_words(to, self.as_ptr(), self.len().min(FIRST_BYTES)) }
    }

    unsafe fn put_behind_head(self, to: *mut u64) {
        let behind = self.get(8..).unwrap_or_default();
        // SAFETY: as above.
        unsafe { put_words(to, behind.as_ptr(), behind.len().min(FIRST_BYTES - 8)) }
    }
}

/// A word and bytes behind it, that lie apart: sent as one, without being put together first.
#[derive(Clone, Copy, Debug)]
pub struct Headed<'a>(pub u64, pub &'a [u8]);

impl Payload for Headed<'_> {
    #[inline(always)]
    fn size(self) -> usize {
        8 + self.1.len()
    }

    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.1.get(FIRST_BYTES - 8..).unwrap_or_default()
    }

    #[inline(always)]
    unsafe fn put_first(self, to: *mut u64) {
        // SAFETY: the caller's.
        unsafe {
            to.write(self.0);
            self.put_behind_head(to.add(1));
        }
    }

    #[inline(always)]
    fn head(self) -> Option<u64> {
        Some(self.0)
    }

    #[inline(always)]
    unsafe fn put_behind_head(self, to: *mut u64) {
        // SAFETY: the caller's; as many bytes are read as the slice has.
        unsafe { put_words(to, self.1.as_ptr(), self.1.len().min(FIRST_BYTES - 8)) }
    }
}

/// The same, of data that are whole words: what is behind the last of them is not written.
#[derive(Clone, Copy, Debug)]
pub struct HeadedWords<'a>(pub Headed<'a>);

impl Payload for HeadedWords<'_> {
    #[inline(always)]
    fn size(self) -> usize {
        self.0.size()
    }

    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.0.rest()
    }

    #[inline(always)]
    unsafe fn put_first(self, to: *mut u64) {
        // SAFETY: the caller's.
        unsafe {
            to.write(self.0.0);
            self.put_behind_head(to.add(1));
        }
    }

    #[inline(always)]
    fn head(self) -> Option<u64> {
        self.0.head()
    }

    #[inline(always)]
    unsafe fn put_behind_head(self, to: *mut u64) {
        let data = self.0.1;
        // SAFETY: the caller's; as many words are in the data.
        let put = |at: usize| unsafe {
            let word = data.as_ptr().cast::<u64>().add(at).read_unaligned();
            to.add(at).write_volatile(word);
        };
        match data.len() {
            // What the most have: a loop costs more than it does.
            8 => put(0),
            len => (0..len.min(FIRST_BYTES - 8) / 8).for_each(put),
        }
    }
}

/// Writes `len` bytes by stores of whole, aligned words; the last one is filled up with zeros.
///
/// To a line that another core has, stores across 16 bytes are far dearer than aligned ones: on an AMD
/// EPYC (family 25) a message of 1 KiB took 1.6 times as long with those that the compiler makes of a
/// copy to the body, which begins at a multiple of 8. So they are volatile: it does not join them.
///
/// # Safety
/// `from` is readable for `len` bytes, `to` writable for as many, rounded up to words; they do not
/// overlap.
#[inline(always)]
pub(super) unsafe fn put_words(to: *mut u64, from: *const u8, len: usize) {
    let mut at = 0;
    // SAFETY: the caller's: at + 8 <= len for a whole word; the rest is the last one's.
    unsafe {
        while at + 8 <= len {
            to.byte_add(at).write_volatile(from.add(at).cast::<u64>().read_unaligned());
            at += 8;
        }
        if at < len {
            to.byte_add(at).write_volatile(last_word(from, at, len));
        }
    }
}

/// The bytes `at..len`, of which there are 1 to 7, as the first ones of a word.
///
/// # Safety
/// `from` is readable for `len` bytes.
#[inline(always)]
unsafe fn last_word(from: *const u8, at: usize, len: usize) -> u64 {
    let rest = len - at;
    // SAFETY: the caller's; each read ends at `len` or before, and begins at 0 or behind.
    unsafe {
        let word = |at: usize| u64::from_le(from.add(at).cast::<u64>().read_unaligned());
        let half = |at: usize| u64::from(u32::from_le(from.add(at).cast::<u32>().read_unaligned()));
        let byte = |at: usize| u64::from(from.add(at).read());
        let value = if len >= 8 {
            word(len - 8) >> (64 - 8 * rest)
        } else if rest >= 4 {
            half(at) | half(len - 4) << (8 * (rest - 4))
        } else {
            let middle = rest / 2;
            byte(at) | byte(at + middle) << (8 * middle) | byte(len - 1) << (8 * (rest - 1))
        };
        value.to_le()
    }
}

/// Writes [`MORE_BYTES`] to a body, the last seven words of a line, by stores that are as wide as they
/// can be and still aligned; see [`put_words`].
///
/// # Safety
/// `from` is readable and `body` writable for so many; they do not overlap.
#[inline(always)]
pub(super) unsafe fn put_all(body: *mut u64, from: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: the caller's. Every x86-64 has these instructions; behind the first word of a body the
    // line goes on at a multiple of 16.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        body.write_volatile(from.cast::<u64>().read_unaligned());
        let (to, from) = (body.add(1).cast::<__m128i>(), from.add(8).cast::<__m128i>());
        let [a, b, c] = [0, 1, 2].map(|k| _mm_loadu_si128(from.add(k)));
        _mm_store_si128(to, a);
        _mm_store_si128(to.add(1), b);
        _mm_store_si128(to.add(2), c);
    }
    // Cells of the models begin elsewhere.
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    // SAFETY: the caller's.
    unsafe {
        put_words(body, from, MORE_BYTES);
    }
}

/// Writes a word and `len` bytes behind it, by stores that are as wide as they can be and still aligned, see
/// [`put_words`]; the last word is filled up with zeros.
///
/// # Safety
/// `to` is a multiple of 16 and writable for the word and for `len` bytes, rounded up to words; `from` is
/// readable for as many; they do not overlap.
#[cfg(not(loom))]
#[inline(always)]
pub(super) unsafe fn put_pairs(to: *mut u64, word: u64, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= 8 {
        use std::arch::x86_64::{_mm_set_epi64x, _mm_store_si128};
        // SAFETY: the caller's. Every x86-64 has these instructions.
        unsafe {
            let next = from.cast::<u64>().read_unaligned();
            _mm_store_si128(to.cast(), _mm_set_epi64x(next.cast_signed(), word.cast_signed()));
            let mut at = 8;
            while at + 16 <= len {
                _mm_store_si128(to.byte_add(8 + at).cast(), pair(from.add(at)));
                at += 16;
            }
            put_words(to.byte_add(8 + at), from.add(at), len - at);
        }
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        to.write_volatile(word);
        put_words(to.add(1), from, len);
    }
}

/// Two words, each by a load of its own. One load of what a program has just written by two stores would
/// have to wait until both have left the store buffer, behind those to the lines of earlier messages.
///
/// # Safety
/// `from` is readable for 16 bytes.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
unsafe fn pair(from: *const u8) -> std::arch::x86_64::__m128i {
    // In assembly, as the compiler would make one load of two.
    #[cfg(not(miri))]
    // SAFETY: the caller's; nothing else is read, and nothing written.
    unsafe {
        let pair;
        std::arch::asm!(
            "movq {pair}, qword ptr [{from}]",
            "movhps {pair}, qword ptr [{from} + 8]",
            pair = out(xmm_reg) pair,
            from = in(reg) from,
            options(pure, readonly, nostack, preserves_flags),
        );
        pair
    }
    #[cfg(miri)]
    // SAFETY: the caller's.
    unsafe {
        std::arch::x86_64::_mm_loadu_si128(from.cast())
    }
}

/// Copies 0..=56 bytes by at most four moves, without the call and the dispatch of a general
/// `memcpy`: the last move overlaps the one before it.
///
/// # Safety
/// `from` is readable and `to` writable for `len <= 56` bytes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    type Wide = [u64; 2];
    // SAFETY: every move reads and writes inside `0..len`: its offset is at most len minus its
    // width, and the branch ensures that len is at least the width.
    unsafe {
        match len {
            33.. => {
                let last = len - 16;
                let a = from.cast::<Wide>().read_unaligned();
                let b = from.add(16).cast::<Wide>().read_unaligned();
                let c = from.add(last.min(32)).cast::<Wide>().read_unaligned();
                let d = from.add(last).cast::<Wide>().read_unaligned();
                to.cast::<Wide>().write_unaligned(a);
                to.add(16).cast::<Wide>().write_unaligned(b);
                to.add(last.min(32)).cast::<Wide>().write_unaligned(c);
                to.add(last).cast::<Wide>().write_unaligned(d);
            }
            16..=32 => {
                let last = len - 16;
                let a = from.cast::<Wide>().read_unaligned();
                let b = from.add(last).cast::<Wide>().read_unaligned();
                to.cast::<Wide>().write_unaligned(a);
                to.add(last).cast::<Wide>().write_unaligned(b);
            }
            8..=15 => {
                let last = len - 8;
                let a = from.cast::<u64>().read_unaligned();
                let b = from.add(last).cast::<u64>().read_unaligned();
                to.cast::<u64>().write_unaligned(a);
                to.add(last).cast::<u64>().write_unaligned(b);
            }
            4..=7 => {
                let last = len - 4;
                let a = from.cast::<u32>().read_unaligned();
                let b = from.add(last).cast::<u32>().read_unaligned();
                to.cast::<u32>().write_unaligned(a);
                to.add(last).cast::<u32>().write_unaligned(b);
            }
            1..=3 => {
                to.write(from.read());
                to.add(len / 2).write(from.add(len / 2).read());
                to.add(len - 1).write(from.add(len - 1).read());
            }
            0 => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Between the shifts that are tried: Miri takes a tenth of a second for each.
    const APART: usize = if cfg!(miri) { 3 } else { 1 };

    #[test]
    fn short_copies_copy_exactly_their_bytes() {
        let source: Vec<u8> = (1..=80).collect();
        for len in 0..=MORE_BYTES {
            for shift in (0..8).step_by(APART) {
                let mut there = vec![0u8; 72];
                // SAFETY: both vectors are long enough for len + shift.
                unsafe { copy_short(there.as_mut_ptr().add(shift), source.as_ptr().add(1), len) };
                assert_eq!(&there[shift..shift + len], &source[1..1 + len]);
                assert!(there[..shift].iter().chain(&there[shift + len..]).all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn pairs_hold_a_word_and_exactly_their_bytes() {
        #[repr(align(16))]
        struct Line([u64; 8]);
        let source: Vec<u8> = (1..=80).collect();
        for len in 0..=MORE_BYTES {
            for shift in (0..8).step_by(APART) {
                let mut there = Line([u64::MAX; 8]);
                // SAFETY: eight words; the source has more than len + shift bytes.
                unsafe { put_pairs(there.0.as_mut_ptr(), 7, source.as_ptr().add(shift), len) };
                assert_eq!(there.0[0], 7);
                let bytes: Vec<u8> = there.0[1..].iter().flat_map(|w| w.to_ne_bytes()).collect();
                assert_eq!(&bytes[..len], &source[shift..shift + len]);
                let words = len.next_multiple_of(8);
                assert!(bytes[len..words].iter().all(|&b| b == 0), "{len}");
                assert!(bytes[words..].iter().all(|&b| b == 255), "{len}");
            }
        }
    }

    #[test]
    fn words_hold_exactly_their_bytes() {
        let source: Vec<u8> = (1..=80).collect();
        for len in 0..=MORE_BYTES {
            for shift in (0..8).step_by(APART) {
                let mut there = [u64::MAX; 8];
                // SAFETY: eight words; the source has more than len + shift bytes.
                unsafe { put_words(there.as_mut_ptr(), source.as_ptr().add(shift), len) };
                let bytes: Vec<u8> = there.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(&bytes[..len], &source[shift..shift + len]);
                let words = len.next_multiple_of(8);
                assert!(bytes[len..words].iter().all(|&b| b == 0), "{len}");
                assert!(bytes[words..].iter().all(|&b| b == 255), "{len}");
            }
        }
    }
}
