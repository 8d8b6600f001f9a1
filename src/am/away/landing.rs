//! Results of a message's units as they come back, piece by piece, and where they land.
//!
//! ```text
//!   a unit's result    counts, if the output is variable | output, whole or packed
//!   notes              |------|-----------|--------------|-->  each piece in order, the last flagged
//!   landing            the origin's counts and output, as long as the caller lends them
//! ```

use super::memory::scatter;
use super::message::{Message, Owned};
use super::reply::lead;
use crate::am::body::{Place, Status, Work};
use crate::am::pack::{Form, Output, read_counts};
use crate::am::plan::Counts;
use crate::base::{Error, Rank, Result};

/// Where results go.
#[derive(Debug)]
pub(super) struct Landing {
    pub output: Owned,
    pub counts: Option<Counts>,
    pub scale: usize,
}

/// A unit that is not done.
#[derive(Debug)]
pub(super) struct Flight {
    pub unit: u32,
    pub place: Place,
    first: usize,
    segments: usize,
    /// How far its result has come.
    position: u64,
    lead: Vec<u8>,
    counts: Vec<u32>,
}

impl Flight {
    /// Nothing has come of it.
    pub fn new(unit: u32, place: Place, first: usize, segments: usize) -> Flight {
        Flight { unit, place, first, segments, position: 0, lead: Vec::new(), counts: Vec::new() }
    }
}

impl Message {
    /// Something came about a unit; its place if that was the last.
    ///
    /// # Errors
    /// What came makes no sense.
    pub fn noted(
        &mut self,
        unit: u32,
        (status, form): (Status, Form),
        position: u64,
        last: bool,
        data: &[u8],
    ) -> Result<Option<Place>> {
        let at = self.flights.iter().position(|flight| flight.unit == unit);
        let at = at.ok_or_else(|| bad(format!("nobody waits for unit {unit}")))?;
        let sending = self.sending().is_some_and(|(sending, _)| sending == unit);
        if sending {
            return Err(bad(format!("unit {unit} is done before it was sent")));
        }
        if status == Status::Done {
            let whole = self.land(at, form, position, data)?;
            if last && !whole {
                return Err(bad(format!("the result of unit {unit} is not whole")));
            }
        } else {
            self.stale |= status == Status::Stale;
            let error = self.trouble(status, data);
            self.fail(error);
        }
        if !last {
            return Ok(None);
        }
        Ok(Some(self.flights.swap_remove(at).place))
    }

    /// Puts bytes of a result where they belong; whether all have come then.
    fn land(&mut self, at: usize, form: Form, position: u64, data: &[u8]) -> Result<bool> {
        let vector = self.vector();
        let (entry, most) = (self.described.output.layout.size(), self.described.output.count);
        let each = self.each.1;
        let flight = &mut self.flights[at];
        if position != flight.position {
            return Err(bad(format!("bytes from {position} on came after {}", flight.position)));
        }
        let lead = lead(vector, most, flight.segments);
        let (head, data) = data.split_at(data.len().min(lead - flight.lead.len()));
        flight.lead.extend_from_slice(head);
        flight.position += (head.len() + data.len()) as u64;
        if flight.lead.len() < lead {
            return Ok(false);
        }
        if vector && flight.counts.len() < flight.segments {
            flight.counts.resize(flight.segments, 0);
            read_counts(most, &flight.lead, &mut flight.counts)?;
            if let Some(Landing { counts: Some(Counts(first)), scale, .. }) = &self.landing {
                for (i, &count) in flight.counts.iter().enumerate() {
                    // SAFETY: as many counts as the message has segments, lent until it is done.
                    unsafe { first.add(flight.first + i).write(count as usize * scale) };
                }
            }
        }
        let counts = vector.then_some(&flight.counts[..]);
        let (entry, most) = if self.work == Work::Run { (entry, most) } else { (each, 1) };
        let all = Output { entry, most, segments: flight.segments, counts };
        let total = (lead + all.bytes(form)) as u64;
        if flight.position > total {
            return Err(bad(format!("{} bytes of {total} came", flight.position)));
        }
        if let Some(landing) = &self.landing {
            let start = (flight.position - data.len() as u64) as usize - lead;
            let shape = landing.output.all(flight.first + flight.segments);
            let mut rest = data;
            for (at, len) in all.pieces(form, start, data.len()) {
                let (piece, after) = rest.split_at(len.min(rest.len()));
                rest = after;
                // SAFETY: the caller lends the memory until the message is done or given up; its
                // bounds were looked at, and the pieces are those of the unit's segments.
                unsafe { scatter(landing.output.at, shape, flight.first * each + at, piece)? };
            }
        }
        Ok(flight.position == total)
    }

    /// The error that a unit's status stands for.
    #[cold]
    fn trouble(&self, status: Status, data: &[u8]) -> Error {
        const WHAT: &str = "an active message";
        let (target, index) = (self.target, self.entry.index());
        match status {
            Status::Panicked => {
                let message = String::from_utf8_lossy(data).into_owned();
                Error::HandlerPanicked { index, target, message }
            }
            Status::Poisoned { culprit } => {
                Error::WindowPoisoned { target, culprit: Rank(culprit) }
            }
            Status::Unknown => Error::Misuse {
                what: WHAT,
                why: format!("rank {target} has no handler {index} (any more); register it again"),
            },
            Status::Stale | Status::Done => bad("a status that does not belong to it".into()),
            Status::Failed { why } if data.is_empty() => super::why::failed(target, index, why),
            Status::Failed { why } => {
                let text = String::from_utf8_lossy(data).into_owned();
                match why {
                    super::why::TOO_MANY => Error::Misuse { what: WHAT, why: text },
                    _ => Error::invalid(WHAT, text),
                }
            }
        }
    }
}

#[cold]
pub(super) fn bad(why: String) -> Error {
    Error::Incompatible { what: "a note about an active message", why }
}
