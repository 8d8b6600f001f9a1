//! Messages on parts that are not mapped at the origin.

use super::plan::Plan;
use crate::base::{Error, Result};
use crate::rma::core::Core;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;

/// What keeps a request's output and counts: the plan's addresses lie in it. Whoever carries the
/// message out owns it until it is done, and gives it back then.
pub(crate) type Parcel = Box<dyn Any + Send + Sync>;

/// How long a call waits for its message.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Until it is done: output and counts are there.
    Wait,
    /// Until the input has been read. Output and counts, if there are any, lie at addresses that
    /// stay valid until the message is completed by a flush or the end of the epoch.
    Post,
    /// As `Post`; what is told later brings this back.
    Request(Parcel),
}

/// What became of a message that was issued.
#[expect(dead_code, reason = "for messages on parts that are away")]
#[derive(Debug)]
pub(crate) enum Issued {
    /// The call may return: `Wait`, `Post`.
    Done,
    /// A request has begun.
    Begun(Box<dyn Pending>),
}

/// A message that was begun with a request. Dropping it forgets the message, which is carried out
/// all the same.
pub(crate) trait Pending: Debug + Send + Sync {
    /// What keeps output and counts, if the message is done. If not: makes progress, and wakes
    /// `waker` once it is worth asking again. After a result it is not asked again.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<Parcel>>;

    /// As [`Pending::poll`], but waits. Notices dead peers, takes the team's deadline.
    fn wait(self: Box<Self>) -> Result<Parcel>;
}

/// Makes this process ready to run what packets bring for a window that has handlers now. Again
/// for every further handler.
pub(crate) fn attach(core: &Arc<Core>) -> Result<()> {
    let _ = core;
    Ok(())
}

/// Carries out a message on a part that is not mapped here.
pub(crate) fn issue(core: &Arc<Core>, plan: Plan<'_>, mode: Mode) -> Result<Issued> {
    let _ = (core, mode);
    let why = format!("rank {}'s part is reached by packets and not mapped here", plan.target);
    Err(Error::Misuse { what: "an active message", why })
}
