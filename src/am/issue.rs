//! What every way of issuing a message comes to: checked, and carried out here or sent.

use super::away::{self, Issued, Mode, Parcel, Pending};
use super::entry::Entry;
use super::origin;
use super::plan::{Asked, Plan};
use crate::base::{Rank, Result, reentry};
use crate::layout::Datum;
use crate::rma::Epoch;
use crate::rma::kind::Place;
use std::sync::Arc;

pub(super) const WHAT: &str = "an active message";

/// What became of a message.
pub(super) enum Sent {
    /// Nothing is left to do for this call; what a request keeps, if it is one.
    Done(Option<Parcel>),
    /// A request goes on.
    Going(Box<dyn Pending>),
}

/// Issues a message.
///
/// # Errors
/// See [`Epoch::am`] and [`super::Message::run`].
///
/// # Safety
/// The addresses of input, output and counts are valid for what is said to be there, and not
/// accessed otherwise: the input until this returns; the others as well for [`Mode::Wait`], until
/// the message is completed for [`Mode::Post`], as long as the parcel is kept for
/// [`Mode::Request`].
pub(super) unsafe fn issue<T: Datum>(
    epoch: &Epoch<'_, T>,
    entry: &Arc<Entry>,
    target: Rank,
    asked: Asked<'_>,
    mode: Mode,
) -> Result<Sent> {
    let window = epoch.window();
    reentry::refuse_inside(WHAT)?;
    entry.usable_on(window.id())?;
    epoch.admit(WHAT, target)?;
    let so = (epoch.assertions().concurrent_am, epoch.is_exclusive());
    let plan = Plan::new(window.core(), entry, target, asked, so)?;
    window.check_alive(target, WHAT)?;
    let at = match plan.persistent.place {
        _ if plan.segments == 0 => return Ok(Sent::Done(parcel_of(mode))),
        Place::Here(at) => at,
        Place::Away(_) => {
            return Ok(match away::issue(window.core(), plan, mode)? {
                Issued::Done => Sent::Done(None),
                Issued::Begun(pending) => Sent::Going(pending),
            });
        }
    };
    // SAFETY: the caller's; the place is mapped here.
    unsafe { origin::run(window.core(), &plan, at)? };
    Ok(Sent::Done(parcel_of(mode)))
}

fn parcel_of(mode: Mode) -> Option<Parcel> {
    match mode {
        Mode::Request(parcel) => Some(parcel),
        Mode::Wait | Mode::Post => None,
    }
}
