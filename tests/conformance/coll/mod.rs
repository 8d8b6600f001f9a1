//! Collectives of all kinds against serial oracles: every operation, blocking, in place and begun,
//! on data of a program's own and in the node's memory, around every boundary of the algorithms.
//!
//! Besides the table's own choice, the cases run with other algorithms forced: see [`WAYS`].

mod begun;
mod moving;
mod reducing;
mod uneven;
mod wrong;

use super::Written;
use hither::{Datum, Result, Team, Window};

/// Ways in which only these cases run, with the setting `HITHER_COLL` of each.
pub const WAYS: [(&str, &str); 3] = [
    ("coll-pieces", "*=pieces,barrier=dissemination"),
    ("coll-shares", "*=shares,barrier=count"),
    ("coll-direct", "*=direct,barrier=dissemination"),
];

/// All cases.
pub fn written() -> impl Iterator<Item = &'static Written> {
    [moving::CASES, uneven::CASES, reducing::CASES, begun::CASES, wrong::CASES]
        .into_iter()
        .flatten()
}

/// Bytes around every boundary of the algorithms: board, piece.
const SIZES: [usize; 10] = [0, 1, 8, 55, 56, 57, 1000, 16383, 16385, 3 * 16384 + 40];
/// The largest of them, with room to spare.
const LARGEST: usize = 50_000;

/// A byte that depends on rank, round and place.
fn pattern(rank: u32, round: usize, index: usize) -> u8 {
    let mixed = u64::from(rank) * 131 + round as u64 * 29 + index as u64 * 7;
    (mixed + (index as u64 >> 8)) as u8
}

fn filled(rank: u32, round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| pattern(rank, round, index)).collect()
}

/// Where data lie: a program's own memory, or the node's, from where others can read it directly.
enum Space<T: Datum> {
    Own(Vec<T>),
    Mapped(Window<T>, usize),
}

impl<T: Datum> Space<T> {
    /// Collective.
    fn new(team: &Team, mapped: bool, len: usize, zero: T) -> Result<Space<T>> {
        Ok(if mapped {
            Space::Mapped(Window::allocate(team, len.max(1))?, len)
        } else {
            Space::Own(vec![zero; len])
        })
    }

    /// The first elements, with these values.
    fn filled(&mut self, values: &[T]) -> &mut [T] {
        let data = match self {
            Space::Own(data) => &mut data[..],
            // SAFETY: this rank's part of a window that nobody accesses by operations; while the
            // slice is in use others read it in collectives only.
            Space::Mapped(window, len) => unsafe {
                std::slice::from_raw_parts_mut(window.local().as_ptr(), *len)
            },
        };
        let data = &mut data[..values.len()];
        data.copy_from_slice(values);
        data
    }
}
