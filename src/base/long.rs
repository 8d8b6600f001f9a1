//! Long copies into memory that others read, by plain stores or by non-temporal ones (see [`filling`](super::filling)): where no
//! queue of buffers knows more of them.
//!
//! What another core reads, one that shares no cache with this one, is several times slower to be written again by plain
//! stores; what only this core touches is in its cache. Which it is, each thread finds out for all that it writes of a kind.

use super::copy::copy_in;
use super::filling::{AGAIN, Filling, IN_TURN, Stores};
use std::cell::Cell;

/// Bytes from which on a copy is a long one: more than a processor has stores under way, so that what it takes says how
/// fast its lines come.
const LONG: usize = 8 << 10;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The part of a window, by an origin.
    Part,
    /// A member's piece of a collective.
    Piece,
    /// A buffer of a pool of its receiver's.
    Pool,
}

const KINDS: usize = 3;

thread_local! {
    static FILLING: [Cell<Option<Filling>>; KINDS] = const { [const { Cell::new(None) }; KINDS] };
}

/// [`copy_in`]; a long one by whichever stores are faster.
///
/// # Safety
/// As for [`copy_in`].
#[inline(always)]
pub(crate) unsafe fn long_copy_in(kind: Kind, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's.
    unsafe {
        match len {
            LONG.. => find_out(kind, to, from, len),
            _ => copy_in(to, from, len),
        }
    }
}

/// # Safety
/// As for [`copy_in`].
#[inline(never)]
unsafe fn find_out(kind: Kind, to: *mut u8, from: *const u8, len: usize) {
    let kept = FILLING.with(|kept| kept[kind as usize].take());
    // What cannot be read of the settings was said when the job was joined.
    let new = |slow| Filling::new(Stores::from_settings().unwrap_or(Stores::Auto), slow);
    let mut filling = kept.unwrap_or_else(|| match kind {
        Kind::Part => new(AGAIN),
        Kind::Piece | Kind::Pool => new(IN_TURN),
    });
    let manner = filling.next(len);
    // SAFETY: the caller's.
    filling.note(unsafe { manner.fill(to, from, len) });
    FILLING.with(|kept| kept[kind as usize].set(Some(filling)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_length_copies_its_bytes_again_and_again() {
        let source: Vec<u8> = (0..200_000).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        let mut there = vec![0u8; 200_100];
        let lengths = [0, 8, LONG - 1, LONG, LONG + 1, 130_001, 200_000];
        for (round, len) in
            lengths.into_iter().cycle().take(if cfg!(miri) { 7 } else { 700 }).enumerate()
        {
            let kind = [Kind::Part, Kind::Piece, Kind::Pool][round % KINDS];
            there.fill(0);
            let at = round % 90;
            // SAFETY: both vectors are long enough, and private.
            unsafe { long_copy_in(kind, there.as_mut_ptr().add(at), source.as_ptr(), len) };
            assert!(there[at..at + len] == source[..len]);
            assert!(there[..at].iter().chain(&there[at + len..]).all(|&byte| byte == 0));
        }
    }
}
