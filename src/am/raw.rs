//! The untyped form of active messages: what `MPIX_Am`, `MPIX_Amv` and their handlers are made of
//! (figures 6.2, 6.4, 7.3 and 7.4 of paper 001).
//!
//! ```text
//!   MPIX_AM_USER_FUNCTION, MPIX_AMV_USER_FUNCTION    HandlerFunction, or a closure on RawCall
//!   MPIX_AM_OP_CREATE + MPIX_AM_WIN_OP_REGISTER      Window::register_function, register_untyped
//!   MPIX_AM_WIN_OP_DEREGISTER                        Window::deregister
//!   MPIX_AM, MPIX_AMV                                Epoch::post_raw; am_raw waits as well
//! ```
//! An untyped handler takes messages from typed code too, and typed handlers take untyped messages
//! ([`Window::untyped_handler`]): underneath they are the same.

use super::away::{Mode, Pending};
use super::call::RawCall;
use super::entry::Entry;
use super::handler::New;
use super::issue::{Sent, issue};
use super::plan::{Asked, Counts, Given, Placement};
use crate::base::request::Going;
use crate::base::{Rank, Result};
use crate::layout::{Datum, Layout, Shape};
use crate::rma::{Epoch, Request, Window};
use std::ffi::c_void;
use std::sync::Arc;
use std::task::Waker;

/// A handler whatever its types. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UntypedHandler(Arc<Entry>);

/// A handler as a C function (figures 6.2 and 7.3), with the context that it was registered with.
/// See [`RawCall`] for what the arguments are; `output_counts` is null unless output is variable.
/// It may unwind, which the origin of the message is told.
pub type HandlerFunction = unsafe extern "C-unwind" fn(
    input: *const c_void,
    input_segment_count: usize,
    input_layout: *const Layout,
    persistent: *mut c_void,
    persistent_count: usize,
    persistent_layout: *const Layout,
    output: *mut c_void,
    output_segment_count: usize,
    output_layout: *const Layout,
    segments: usize,
    segment_offset: usize,
    output_counts: *mut usize,
    context: *mut c_void,
);

/// A message without types (figures 6.4 and 7.4).
#[derive(Clone, Copy, Debug)]
pub struct RawMessage<'m> {
    /// Where the input is: `segments` times the segment's shape lies there.
    pub input: *const u8,
    /// One segment of the input.
    pub input_segment: Shape<'m>,
    /// Where the output goes.
    pub output: *mut u8,
    /// One segment of the output; of variable output, the most that it may have.
    pub output_segment: Shape<'m>,
    /// How many segments.
    pub segments: usize,
    /// An entry of the input as the handler gets it.
    pub input_there: &'m Layout,
    /// An entry of the output as the handler makes it.
    pub output_there: &'m Layout,
    /// Displacement of the persistent part in the target's part.
    pub displacement: usize,
    /// The persistent part, around the displacement.
    pub persistent: Shape<'m>,
    /// Where the counts of variable output go, as many as segments, in entries of the output's
    /// layout at the origin; null if the output is not variable, or nobody wants to know.
    pub counts: *mut usize,
    /// Where the handler runs, if the target's part is not mapped here.
    pub placement: Placement,
}

/// Context of a handler function: an address of the program's.
struct Context(*mut c_void);

// SAFETY: whoever registered it answers for its use by several threads.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

impl UntypedHandler {
    /// The index that it is registered under.
    pub fn index(&self) -> u32 {
        self.0.index()
    }

    /// Whether its output is variable.
    pub fn is_vector(&self) -> bool {
        self.0.is_vector()
    }
}

impl<T: Datum> Window<T> {
    /// As [`Window::register`], without types: `run` gets addresses and layouts. `vector`: its
    /// output is variable.
    pub fn register_untyped(
        &self,
        index: u32,
        vector: bool,
        run: impl Fn(&mut RawCall<'_>) + Send + Sync + 'static,
    ) -> Result<UntypedHandler> {
        let byte = Layout::of::<u8>();
        let new = New {
            vector,
            types: None,
            elements: [Layout::of::<T>(), byte.clone(), byte],
            typed: None,
            run: Box::new(move |call| {
                run(call);
                Ok(())
            }),
        };
        self.enter(index, new).map(UntypedHandler)
    }

    /// As [`Window::register_untyped`], of a function and a context that it gets in every call.
    ///
    /// # Safety
    /// Until the handler is deregistered and the window is gone, `function` may be called by any
    /// thread of this process, several at a time if messages are asserted to be concurrent; it
    /// accesses only what its arguments describe and what `context` lets it.
    pub unsafe fn register_function(
        &self,
        index: u32,
        vector: bool,
        function: HandlerFunction,
        context: *mut c_void,
    ) -> Result<UntypedHandler> {
        let context = Context(context);
        self.register_untyped(index, vector, move |call| {
            let (from, part, to) = (call.input_segment, call.persistent_shape, call.output_segment);
            let counts = call.counts.as_deref_mut();
            let counts = counts.map_or(std::ptr::null_mut(), |counts| counts.as_mut_ptr());
            // SAFETY: the caller of `register_function` answers for it.
            unsafe {
                function(
                    call.input.cast(),
                    from.count,
                    from.layout,
                    call.persistent.cast(),
                    part.count,
                    part.layout,
                    call.output.cast(),
                    to.count,
                    to.layout,
                    call.segments,
                    call.segment_offset,
                    counts,
                    context.get(),
                );
            }
        })
    }

    /// What is registered under `index`, whatever its types.
    pub fn untyped_handler(&self, index: u32) -> Option<UntypedHandler> {
        Entry::find(self.core(), index).map(UntypedHandler)
    }
}

impl<T: Datum> Epoch<'_, T> {
    /// Issues a message without types and waits until it has run. See [`super::Message::run`].
    ///
    /// # Errors
    /// As for [`super::Message::run`].
    ///
    /// # Safety
    /// Around `input`, the bytes of all segments are initialised and nobody writes them before this
    /// returns; around `output`, nobody else accesses those of all segments, nor the counts. If the
    /// handler is a typed one, the same holds for the bytes between those that the shapes describe.
    pub unsafe fn am_raw(
        &self,
        handler: &UntypedHandler,
        target: Rank,
        message: &RawMessage<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { issue(self, &handler.0, target, asked(message), Mode::Wait).map(drop) }
    }

    /// Issues a message without types, as MPI does: output and counts are there after the next
    /// flush of the target, or the end of the epoch, which report what went wrong with it. The
    /// input may be used again at once.
    ///
    /// # Safety
    /// As for [`Epoch::am_raw`]; output and counts stay valid, and nobody else accesses them,
    /// until the message is completed so.
    pub unsafe fn post_raw(
        &self,
        handler: &UntypedHandler,
        target: Rank,
        message: &RawMessage<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { issue(self, &handler.0, target, asked(message), Mode::Post).map(drop) }
    }

    /// Issues a message without types; output and counts are there when the request is done. The
    /// input may be used again at once.
    ///
    /// # Safety
    /// As for [`Epoch::am_raw`]; output and counts stay valid, and nobody else accesses them,
    /// until the request is done, or, if it is dropped before, until the end of the epoch.
    pub unsafe fn request_raw(
        &self,
        handler: &UntypedHandler,
        target: Rank,
        message: &RawMessage<'_>,
    ) -> Result<Request<()>> {
        let mode = Mode::Request(Box::new(()));
        // SAFETY: the caller's.
        Ok(match unsafe { issue(self, &handler.0, target, asked(message), mode)? } {
            Sent::Done(_) => Request::done(()),
            Sent::Going(pending) => Request::going(Box::new(Awaited(pending))),
        })
    }
}

fn asked<'m>(message: &RawMessage<'m>) -> Asked<'m> {
    let counts = if message.counts.is_null() { None } else { Some(Counts(message.counts)) };
    Asked {
        segments: message.segments,
        input: Given { at: message.input.cast_mut(), room: None, segment: message.input_segment },
        output: Given { at: message.output, room: None, segment: message.output_segment },
        target_input: message.input_there,
        target_output: message.output_there,
        displacement: message.displacement,
        persistent: message.persistent,
        counts,
        placement: message.placement,
    }
}

/// A request's message that is on its way.
struct Awaited(Box<dyn Pending>);

impl Going<()> for Awaited {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<()>> {
        Some(self.0.poll(waker)?.map(drop))
    }

    fn wait(self: Box<Self>) -> Result<()> {
        self.0.wait().map(drop)
    }
}
