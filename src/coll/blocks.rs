//! Where the members' blocks lie in data that have one for each.

use super::block::BOARD;
use crate::base::{Error, Result};
use crate::layout::Datum;
use std::ops::Range;

/// The bytes of plain elements.
pub(super) fn bytes_of<T: Datum>(data: &[T]) -> &[u8] {
    // SAFETY: Datum has no padding, so every byte is initialised; lifetime and length are data's.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// The bytes of plain elements, to write.
pub(super) fn bytes_of_mut<T: Datum>(data: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a valid Datum.
    unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}

/// Lengths of the members' blocks, in elements, and where they begin: one after the other, or
/// where a second list says ([`Parts::at`]). A slice, a `Vec` or an array of lengths is one.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'p> {
    counts: &'p [usize],
    starts: Option<&'p [usize]>,
}

impl<'p> Parts<'p> {
    /// Blocks of these lengths that begin at these elements.
    pub fn at(counts: &'p [usize], starts: &'p [usize]) -> Parts<'p> {
        Parts { counts, starts: Some(starts) }
    }

    /// Elements of all blocks together.
    pub fn total(&self) -> usize {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The blocks of `members` members in `len` elements `T`.
    pub(super) fn ranges<T: Datum>(
        &self,
        members: u32,
        len: usize,
        during: &'static str,
    ) -> Result<Blocks> {
        let bad = |why: String| Err(Error::invalid(during, why));
        let lists = [Some(self.counts), self.starts];
        for list in lists.into_iter().flatten() {
            if list.len() != members as usize {
                return bad(format!("{} entries for {members} members", list.len()));
            }
        }
        let mut ranges = Vec::with_capacity(members as usize);
        let mut next = 0usize;
        for (rank, &count) in self.counts.iter().enumerate() {
            let start = self.starts.map_or(next, |starts| starts[rank]);
            match start.checked_add(count) {
                Some(end) if end <= len => {
                    ranges.push(start * size_of::<T>()..end * size_of::<T>());
                    next = end;
                }
                _ => {
                    return bad(format!(
                        "the block of rank {rank} has {count} elements from {start} on, which do \
                         not lie within the {len} elements given"
                    ));
                }
            }
        }
        Ok(Blocks::Listed(ranges))
    }
}

impl<'p> From<&'p [usize]> for Parts<'p> {
    fn from(counts: &'p [usize]) -> Self {
        Parts { counts, starts: None }
    }
}

impl<'p> From<&'p Vec<usize>> for Parts<'p> {
    fn from(counts: &'p Vec<usize>) -> Self {
        Parts { counts, starts: None }
    }
}

impl<'p, const N: usize> From<&'p [usize; N]> for Parts<'p> {
    fn from(counts: &'p [usize; N]) -> Self {
        Parts { counts, starts: None }
    }
}

/// The members' blocks, in bytes.
#[derive(Clone, Debug)]
pub(super) enum Blocks {
    /// All of one length, one after the other.
    Even(usize),
    /// A range for each.
    Listed(Vec<Range<usize>>),
}

impl Blocks {
    /// The block of a member.
    pub fn of(&self, rank: u32) -> Range<usize> {
        match self {
            Blocks::Even(each) => rank as usize * each..(rank as usize + 1) * each,
            Blocks::Listed(ranges) => ranges[rank as usize].clone(),
        }
    }

    /// Bytes of the largest.
    pub fn most(&self) -> usize {
        match self {
            Blocks::Even(each) => *each,
            Blocks::Listed(ranges) => ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0),
        }
    }

    /// Whether every member has one that a board can hold.
    pub fn fit_boards(&self) -> bool {
        self.most() <= BOARD
    }

    /// Their lengths as one number, for calls that all make with the same.
    pub fn digest(&self) -> u64 {
        match self {
            Blocks::Even(each) => *each as u64,
            Blocks::Listed(ranges) => ranges.iter().fold(ranges.len() as u64, |sum, range| {
                (sum ^ range.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
            }),
        }
    }
}

/// Elements of each member's block, if `all` holds one of the same length for each.
pub(super) fn even(all: usize, members: u32, during: &'static str) -> Result<usize> {
    if all.is_multiple_of(members as usize) {
        return Ok(all / members as usize);
    }
    Err(Error::invalid(during, format!("{all} elements are no equal blocks of {members} members")))
}

/// An error unless `all` has room for a block of `each` elements for every member.
pub(super) fn check_even(
    all: usize,
    each: usize,
    members: u32,
    during: &'static str,
) -> Result<()> {
    if each.checked_mul(members as usize) == Some(all) {
        return Ok(());
    }
    Err(Error::invalid(
        during,
        format!("there are {all} elements; {members} ranks times {each} are needed"),
    ))
}

/// Elements of value zero, in which results are put.
pub(super) fn zeros<T: Datum>(len: usize, during: &'static str) -> Result<Vec<T>> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        what: format!("the result of {during}"),
        wanted: (len as u64).saturating_mul(size_of::<T>() as u64),
        available: 0,
        limit: "this process's memory".into(),
        advice: "use smaller data",
    })?;
    // SAFETY: any bytes are a Datum, zeros too.
    data.resize(len, unsafe { std::mem::zeroed() });
    Ok(data)
}
