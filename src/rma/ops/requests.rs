//! Request forms: operations whose completion is waited for, asked for, or awaited on its own.

use super::away::Operands;
use super::transfer::Action;
use crate::base::Request;
use crate::base::{Error, Rank, Result};
use crate::layout::op::check_op;
use crate::layout::{Datum, Op};
use crate::rma::accumulate::Element;
use crate::rma::epoch::Epoch;
use crate::rma::kind::Place;
use crate::rma::remote::Landing;
use crate::rma::request::later;

impl<T: Datum> Epoch<'_, T> {
    /// As [`Epoch::put`]. The request is done when `values` may be used again, which a put on
    /// return already allows: it is for programs that treat all operations alike. That the data
    /// has arrived is what flush and the end of the epoch tell.
    pub fn put_request(&self, target: Rank, start: usize, values: &[T]) -> Result<Request<()>> {
        self.put(target, start, values).map(Request::done)
    }

    /// Begins to read `count` elements of `target` from displacement `start` on; the request
    /// brings them.
    ///
    /// Mapped memory is read before the call returns. Cost besides: the vector.
    ///
    /// # Errors
    /// As for [`Epoch::get`]; [`Error::OutOfMemory`] if there is no room for the elements.
    pub fn get_request(&self, target: Rank, start: usize, count: usize) -> Result<Request<Vec<T>>> {
        const WHAT: &str = "get_request";
        self.admit(WHAT, target)?;
        // Before anything is allocated: a wrong count would ask for too much.
        let place = self.window.place(WHAT, target, start, count)?;
        if let Place::Away(at) = place {
            // `place` checked that so many bytes lie in a part.
            let bytes = count * size_of::<T>();
            let none = Operands::send::<T>(Action::Get, None, &[]);
            return self.later(WHAT, target, at, Operands { bytes, ..none });
        }
        let mut values = zeroed::<T>(WHAT, count)?;
        self.get(target, start, &mut values)?;
        Ok(Request::done(values))
    }

    fn later(
        &self,
        what: &'static str,
        target: Rank,
        at: u64,
        operands: Operands<'_>,
    ) -> Result<Request<Vec<T>>> {
        let remote = self.window.remote(what, target)?.clone();
        let operands = Operands { landing: Landing::Later, ..operands };
        let ticket = self.window.away(what, target, at, operands)?;
        let ticket = ticket.ok_or_else(|| Error::invalid(what, "it was begun without a ticket"))?;
        Ok(later(remote, ticket, elements_of::<T>))
    }
}

impl<T: Element> Epoch<'_, T> {
    /// As [`Epoch::accumulate`]; for the request see [`Epoch::put_request`].
    pub fn accumulate_request(
        &self,
        target: Rank,
        start: usize,
        op: Op,
        values: &[T],
    ) -> Result<Request<()>> {
        self.accumulate(target, start, op, values).map(Request::done)
    }

    /// Begins a [`Epoch::get_accumulate`]; the request brings what was there. With [`Op::NoOp`]
    /// the values are not looked at, but there are as many as elements are read.
    ///
    /// Mapped memory is updated before the call returns. Cost besides: the vector.
    pub fn get_accumulate_request(
        &self,
        target: Rank,
        start: usize,
        op: Op,
        values: &[T],
    ) -> Result<Request<Vec<T>>> {
        const WHAT: &str = "get_accumulate_request";
        self.admit(WHAT, target)?;
        check_op::<T>(op)?;
        if let Place::Away(at) = self.window.place(WHAT, target, start, values.len())? {
            let operands = Operands::send(Action::GetAccumulate(op), Some(T::KIND), values);
            return self.later(WHAT, target, at, operands);
        }
        let mut result = zeroed::<T>(WHAT, values.len())?;
        self.get_accumulate(target, start, op, values, &mut result)?;
        Ok(Request::done(result))
    }
}

/// `count` elements of zero bits.
pub(crate) fn zeroed<T: Datum>(what: &'static str, count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::OutOfMemory {
        what: format!("the result of {what}"),
        wanted: (count as u64).saturating_mul(size_of::<T>() as u64),
        available: 0,
        limit: "memory of this process".into(),
        advice: "ask for fewer elements at a time",
    })?;
    // SAFETY: room for `count` elements was reserved; all bit patterns are valid.
    unsafe {
        std::ptr::write_bytes::<T>(values.as_mut_ptr(), 0, count);
        values.set_len(count);
    }
    Ok(values)
}

/// The elements whose bytes these are.
fn elements_of<T: Datum>(bytes: Vec<u8>) -> Result<Vec<T>> {
    let count = bytes.len() / size_of::<T>().max(1);
    let mut values = zeroed::<T>("a request", count)?;
    // SAFETY: `count` elements have at most as many bytes as there are; plain data.
    unsafe {
        let to = values.as_mut_ptr().cast::<u8>();
        to.copy_from_nonoverlapping(bytes.as_ptr(), count * size_of::<T>());
    }
    Ok(values)
}
