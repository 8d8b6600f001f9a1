//! The target's side: carrying a unit out on this process's own part.
//!
//! ```text
//!   packet (scratch of the inbox) --- data ---> elements of the part, by the window's domain
//!   answer (one buffer)           <-- result --
//! ```
//! Nobody waits in here for the locks of the domain, but for a moment: the caller keeps the whole
//! path waiting. What has been done by then is remembered as [`Progress`], and the unit is put back.
//! What arrives is worked on where it was received; what was there goes into the buffer that is
//! sent back. Both hold one unit, so a target needs constant room whatever is sent to it.

use super::body::{Form, PieceReader, Unit};
use super::fault;
use crate::base::{Error, Rank, Result};
use crate::layout::{Cursor, Layout, Op};
use crate::rma::accumulate::Domain;
use crate::rma::ops::transfer::Action;
use crate::rma::remote::OwnPart;
use crate::rma::runtime::Fault;
use crate::shm::copy::{copy_in, copy_out};
use std::task::Poll;

/// Largest layout taken, in bytes of data.
const MOST_LAYOUT: usize = usize::MAX >> 3;

/// How much of a unit has been carried out, where a lock of the window's atomic domain was not to
/// be had: all that comes before a position.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the unit.
    done: usize,
    /// The result so far, of a unit that has one.
    result: Vec<u8>,
}

/// Carries out a unit on `own`, which is rank `me`'s part. What the origin is to get is appended
/// to `answer`. Pending means that somebody else is at work on the same elements: another call,
/// with what this one has left in `progress`, goes on where it stopped.
///
/// # Errors
/// What the origin is told. Elements before the one at fault may have been changed.
pub(super) fn perform(
    own: &dyn OwnPart,
    domain: &Domain,
    me: Rank,
    body: &[u8],
    answer: &mut Vec<u8>,
    progress: &mut Progress,
) -> Poll<Result<(), Fault>> {
    let Ok(unit) = Unit::decode(body) else { return Poll::Ready(Err(fault::malformed(1))) };
    let before = answer.len();
    let bytes = unit.bytes as usize;
    let fetches =
        matches!(unit.action, Action::Get | Action::GetAccumulate(_) | Action::CompareSwap);
    let begun = progress.done;
    if fetches {
        answer.extend_from_slice(&progress.result);
        answer.resize(before + bytes, 0);
    }
    let result = answer.get_mut(before + begun..).unwrap_or(&mut []);
    let data = unit.data.get(begun..).unwrap_or(&[]);
    let mut work = Work { domain, me, unit: &unit, data, result, begun, done: begun };
    let stopped = work.run(own);
    progress.done = work.done;
    match stopped {
        Ok(()) => Poll::Ready(Ok(())),
        Err(Stop::Fault(fault)) => {
            answer.truncate(before);
            Poll::Ready(Err(fault))
        }
        Err(Stop::Busy) => {
            let got = answer.get(before..before + progress.done).unwrap_or(&[]);
            progress.result.clear();
            progress.result.extend_from_slice(got);
            answer.truncate(before);
            Poll::Pending
        }
    }
}

/// Why a unit is not carried out to its end.
enum Stop {
    Fault(Fault),
    Busy,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// A unit half-way.
struct Work<'w> {
    domain: &'w Domain,
    me: Rank,
    unit: &'w Unit<'w>,
    /// What of the data and of the result has not been used.
    data: &'w [u8],
    result: &'w mut [u8],
    /// Bytes carried out before.
    begun: usize,
    /// And by now.
    done: usize,
}

impl Work<'_> {
    fn run(&mut self, own: &dyn OwnPart) -> Result<(), Stop> {
        let bytes = self.unit.bytes as usize;
        match self.unit.form {
            Form::Contiguous => {
                let begun = self.begun;
                self.span(own, 0, bytes as i64, |work, zero| {
                    work.piece(zero.wrapping_add(begun), bytes - begun)
                })
            }
            Form::Layout { count, position, wire } => {
                let layout = Layout::decode(wire, MOST_LAYOUT).map_err(|_| fault::malformed(2))?;
                let count = usize::try_from(count).map_err(|_| fault::malformed(3))?;
                let position = usize::try_from(position).map_err(|_| fault::malformed(4))?;
                let position =
                    position.checked_add(self.begun).ok_or_else(|| fault::malformed(4))?;
                let bytes = bytes - self.begun;
                let shape = layout.times(count);
                let bounds = shape.true_bounds().map_err(|_| fault::malformed(5))?;
                let mut cursor = Cursor::at(shape, position).map_err(|_| fault::malformed(6))?;
                if cursor.remaining() < bytes {
                    return Err(fault::malformed(7).into());
                }
                self.span(own, bounds.0 as i64, bounds.1 as i64, |work, zero| {
                    let mut left = bytes;
                    while let Some(piece) = cursor.next_piece(left) {
                        // Inside the shape's bounds, so inside the part.
                        work.piece(zero.wrapping_offset(piece.offset), piece.len)?;
                        left -= piece.len;
                    }
                    Ok(())
                })
            }
            Form::Pieces(pieces) => {
                let (mut low, mut high, mut sum) = (i64::MAX, i64::MIN, 0usize);
                for piece in PieceReader::new(pieces) {
                    let (offset, len) = piece.map_err(|_| fault::malformed(8))?;
                    sum = sum.saturating_add(len);
                    low = low.min(offset);
                    // The reader checked that the end can be named.
                    high = high.max(offset + len as i64);
                }
                if sum != bytes || low > high {
                    return Err(fault::malformed(9).into());
                }
                self.span(own, low, high, |work, zero| {
                    let mut before = work.begun;
                    for (offset, len) in PieceReader::new(pieces).flatten() {
                        let skip = before.min(len);
                        before -= skip;
                        work.piece(
                            zero.wrapping_offset(offset as isize + skip as isize),
                            len - skip,
                        )?;
                    }
                    Ok(())
                })
            }
        }
    }

    /// Calls `work` with the address of displacement 0 after checking that the bytes `low..high`
    /// from there on lie in the part.
    fn span(
        &mut self,
        own: &dyn OwnPart,
        low: i64,
        high: i64,
        mut work: impl FnMut(&mut Self, *mut u8) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let unit = self.unit;
        let bytes = high.checked_sub(low).and_then(|n| u64::try_from(n).ok());
        let bytes = bytes.ok_or_else(|| fault::malformed(10))?;
        let out_of_bounds = |len| {
            let start = unit.at.saturating_add_signed(low);
            fault::out_of_bounds(start, start.saturating_add(bytes), len, unit.element)
        };
        let Some(start) = unit.at.checked_add_signed(low) else {
            return Err(out_of_bounds(0).into());
        };
        let mut done = Ok(());
        let run = &mut |first: *mut u8| {
            done = work(self, first.wrapping_offset((low as isize).wrapping_neg()));
        };
        own.with(start, bytes, run).map_err(out_of_bounds)?;
        done
    }

    /// The next `len` bytes, which lie at `at`: inside the part.
    fn piece(&mut self, at: *mut u8, len: usize) -> Result<(), Stop> {
        let data = self.data;
        let now = data.as_ptr();
        let (domain, me) = (self.domain, self.me);
        // Lengths were checked for the whole unit, to which the pieces sum up.
        let wants_data = !self.unit.data.is_empty();
        let wants_result = !matches!(self.unit.action, Action::Put | Action::Accumulate(_));
        if wants_data && len > data.len() || wants_result && len > self.result.len() {
            return Err(fault::malformed(11).into());
        }
        let result = self.result.as_mut_ptr();
        let mut done = len;
        match (self.unit.action, self.unit.kind) {
            // SAFETY: `at` is memory of the part, `data` private; `len` bytes of each.
            (Action::Put, _) => unsafe { copy_in(at, now, len) },
            // SAFETY: as above, for the result.
            (Action::Get, _) => unsafe { copy_out(result, at, len) },
            (Action::Accumulate(op), Some(kind)) => {
                let count = whole(len, kind.size())?;
                // SAFETY: as above; the unit's reader checked that `op` applies to `kind`.
                let some = unsafe { domain.update_some(me, kind, op, at, count, now, None) };
                done = some.map_err(refused)? * kind.size();
            }
            (Action::GetAccumulate(op), Some(kind)) => {
                let count = whole(len, kind.size())?;
                // Without operands the result stands in for them: `NoOp` looks at none.
                let from =
                    if data.is_empty() && op == Op::NoOp { result.cast_const() } else { now };
                // SAFETY: as above, for data and result.
                let some =
                    unsafe { domain.update_some(me, kind, op, at, count, from, Some(result)) };
                done = some.map_err(refused)? * kind.size();
            }
            (Action::CompareSwap, Some(kind)) => {
                // SAFETY: as above; the data is twice as long, the expected value first.
                match unsafe { domain.update_if_equal(me, kind, at, now, now.add(len), result) } {
                    Ok(()) => return Ok(()),
                    Err(Error::TimedOut { .. }) => return Err(Stop::Busy),
                    Err(error) => return Err(refused(error).into()),
                }
            }
            _ => return Err(fault::malformed(12).into()),
        }
        self.done += done;
        if done < len {
            return Err(Stop::Busy);
        }
        self.data = self.data.get(len..).unwrap_or(&[]);
        let rest = std::mem::take(&mut self.result);
        self.result = rest.get_mut(len..).unwrap_or(&mut []);
        Ok(())
    }
}

fn whole(len: usize, size: usize) -> Result<usize, Fault> {
    if len.is_multiple_of(size) { Ok(len / size) } else { Err(fault::malformed(13)) }
}

fn refused(error: Error) -> Fault {
    match error {
        Error::InvalidArgument { .. } => fault::misaligned(),
        Error::RankDied { rank, .. } => fault::refused(u64::from(rank.0) + 1),
        _ => fault::refused(0),
    }
}
