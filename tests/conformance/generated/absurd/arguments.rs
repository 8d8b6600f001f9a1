//! Arguments at the edges of their types, and what must come of calls that get them.

use super::super::super::support::random::Random;
use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{Error, Result};

/// Calls of one case.
pub const CALLS: usize = 250;
/// Elements of a part.
pub const LEN: usize = 40;
/// What parts hold at first, and what is put into them.
pub const OLD: u64 = 5;
pub const NEW: u64 = 7;

pub fn info(packets: bool) -> Info {
    let medium = if packets { Medium::Packets } else { Medium::Auto };
    Info { medium, ..Info::default() }
}

/// Numbers at which something may overflow, and small ones.
pub fn number(random: &mut Random) -> usize {
    let edges = [0, 1, 63, 64, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 60, 1 << 61, 1 << 62];
    let pick = |random: &mut Random, from: &[usize]| from[random.below(from.len() as u64) as usize];
    match random.below(6) {
        0..=2 => random.below(2 * LEN as u64) as usize,
        3 => pick(random, &edges).wrapping_sub(random.below(3) as usize),
        4 => usize::MAX - random.below(70) as usize,
        _ => (isize::MAX as usize).wrapping_add(random.below(5) as usize).wrapping_sub(2),
    }
}

pub fn signed(random: &mut Random) -> isize {
    match random.below(4) {
        0 | 1 => random.below(200) as isize - 100,
        2 => isize::MIN.wrapping_add(random.below(9) as isize),
        _ => number(random) as isize,
    }
}

/// An error that says what was wrong with the arguments.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument { .. }
            | Error::OutOfBounds { .. }
            | Error::Misuse { .. }
            | Error::OutOfMemory { .. }
    )
}

/// Whatever comes of a call, as long as a refusal is typed.
pub fn typed<R>(what: &str, result: Result<R>) -> Option<R> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(is_refusal(&error), "{what} gave another error: {error:?}");
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

pub fn must<R: std::fmt::Debug>(what: &str, good: bool, result: Result<R>) -> Option<R> {
    assert_eq!(result.is_ok(), good, "{what} gave {result:?}");
    typed(what, result)
}
