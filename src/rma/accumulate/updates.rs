//! Updates of elements whose type is known, as they begin: the native one without a call, the rest
//! in the [`super::domain`].

use super::domain::{Domain, Kinds, check_aligned};
use super::element::{Element, Run};
use crate::base::{Rank, Result, prefetch};
use crate::layout::Op;
use crate::shm::bias::Bias;
use crate::shm::node::Node;
use crate::shm::section::{self, Turn};
use std::ptr::NonNull;

/// What an update looks at first. Copied to where the update begins: each load that depends on
/// another one counts, for none can begin before the atomic instruction ahead is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    /// In the window's block.
    pub(super) bias: NonNull<Bias>,
    /// Names the attachment to the node for `section::mine`, or is [`SINGLE`].
    key: u64,
}

/// In place of an attachment's key, where elements are updated one by one for ever: nobody outwaits
/// what nobody says. No attachment has it.
const SINGLE: u64 = u64::MAX;

// SAFETY: `bias` points to an atomic of the window's block, which lives as long as it.
unsafe impl Send for Near {}
// SAFETY: as above.
unsafe impl Sync for Near {}

/// Updates of elements whose type is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updates<'w> {
    near: Near,
    domain: &'w Domain,
}

impl Near {
    /// What updates of the window look at whose way is in `bias`, by threads of `node`'s attachment.
    /// If `single`, they look at nothing but that.
    pub(super) fn new(bias: &Bias, node: &Node, single: bool) -> Near {
        let key = if single { SINGLE } else { node.section_key() };
        Near { bias: NonNull::from(bias), key }
    }

    /// Whether all elements that have a native way are updated by it, whatever the bias says.
    #[inline(always)]
    pub(super) fn is_single(&self) -> bool {
        self.key == SINGLE
    }

    /// Begins a section of this thread, if it has a word for that. There must be something to be said with it.
    #[inline(always)]
    pub(super) fn enter<'d>(&self, domain: &'d Domain) -> Option<Turn<'d>> {
        debug_assert!(!self.is_single());
        section::enter(self.key, || &**domain.team().node())
    }

    #[inline(always)]
    pub(super) fn bias(&self) -> &Bias {
        // SAFETY: in the window's block, which outlives the domain.
        unsafe { self.bias.as_ref() }
    }

    /// Runs a native update if that is the way at present and this thread has a word to say so.
    #[inline(always)]
    pub(super) fn natively<R>(&self, domain: &Domain, update: impl FnOnce() -> R) -> Option<R> {
        if self.is_single() {
            return Some(update());
        }
        let Some(turn) = self.enter(domain) else {
            std::hint::cold_path();
            return None;
        };
        let done = if self.bias().is_native() {
            Some(update())
        } else {
            std::hint::cold_path();
            None
        };
        turn.leave();
        done
    }
}

/// Whether the element there has a native way: always or never for types whose alignment is their
/// size, as far as the compiler is concerned.
#[inline(always)]
fn is_native<T: Element>(at: *mut T) -> bool {
    let align = T::KIND.align();
    T::NATIVE && (align_of::<T>() == align || at.addr().is_multiple_of(align))
}

impl<'w> Updates<'w> {
    /// Those of a domain, whose [`Domain::near`] is `near`.
    #[inline(always)]
    pub fn new(near: Near, domain: &'w Domain) -> Updates<'w> {
        Updates { near, domain }
    }

    /// As [`Updates::fetch_op`], if that takes no lock; `None`, and nothing has changed, if it does.
    /// Nothing in it can fail, so that it is short enough to be inlined.
    ///
    /// # Safety
    /// As for [`Updates::fetch_op`].
    #[inline(always)]
    pub unsafe fn fetch_op_natively<T: Element>(&self, at: *mut T, op: Op, value: T) -> Option<T> {
        if !is_native(at) {
            return None;
        }
        if op == Op::NoOp {
            // Whole in any case.
            // SAFETY: the caller's.
            return Some(unsafe { T::load(at) });
        }
        // SAFETY: the caller's.
        self.near.natively(self.domain, || unsafe { T::fetch_op(at, op, value) })
    }

    /// As [`Updates::compare_swap`], if that takes no lock; see [`Updates::fetch_op_natively`].
    ///
    /// # Safety
    /// As for [`Updates::fetch_op`].
    #[inline(always)]
    pub unsafe fn compare_swap_natively<T: Element>(
        &self,
        at: *mut T,
        expected: T,
        new: T,
    ) -> Option<T> {
        if !is_native(at) {
            return None;
        }
        prefetch::to_write(at);
        // SAFETY: the caller's.
        self.near.natively(self.domain, || unsafe { T::compare_swap(at, expected, new) })
    }

    /// As [`Updates::accumulate`] of one element, if that takes no lock: false, and nothing has
    /// changed, if it does; see [`Updates::fetch_op_natively`].
    ///
    /// # Safety
    /// As for [`Updates::fetch_op`].
    #[inline(always)]
    pub unsafe fn accumulate_natively<T: Element>(&self, at: *mut T, op: Op, value: T) -> bool {
        if !is_native(at) {
            return false;
        }
        let update = || {
            // SAFETY: the caller's.
            unsafe {
                match op {
                    Op::Replace => T::store(at, value),
                    op => drop(T::fetch_op(at, op, value)),
                }
            }
        };
        prefetch::to_write(at);
        self.near.natively(self.domain, update).is_some()
    }

    /// Atomically replaces `*at` by `*at OP value`; returns what was there.
    ///
    /// Cost while single elements are what the window sees: [`Element::fetch_op`]'s, a load of a
    /// line of the block that is seldom written, and two stores to a line of the thread's own, for
    /// which the next atomic instruction waits. Otherwise a lock and its release on top. Where the
    /// window was told that elements are updated one by one
    /// ([`Info::accumulate_granularity`](crate::rma::Info)), [`Element::fetch_op`]'s alone.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the lock was not to be had within the team's limit.
    ///
    /// # Safety
    /// `at` is an aligned element of `part`'s memory in this window, mapped here.
    #[inline(always)]
    pub unsafe fn fetch_op<T: Element>(
        &self,
        part: Rank,
        at: *mut T,
        op: Op,
        value: T,
    ) -> Result<T> {
        check_aligned::<T>(at)?;
        if !T::NATIVE {
            // SAFETY: the caller's.
            return unsafe { self.domain.fetch_op_locked(part, at, op, value) };
        }
        if op == Op::NoOp {
            // Whole in any case.
            // SAFETY: the caller's.
            return Ok(unsafe { T::load(at) });
        }
        // SAFETY: the caller's.
        match self.near.natively(self.domain, || unsafe { T::fetch_op(at, op, value) }) {
            Some(old) => Ok(old),
            // SAFETY: the caller's.
            None => unsafe { self.domain.fetch_op_locked(part, at, op, value) },
        }
    }

    /// Atomically replaces `*at` by `new` if its bits equal `expected`'s; returns what was there.
    /// Cost and errors as for [`Updates::fetch_op`].
    ///
    /// # Safety
    /// As for [`Updates::fetch_op`].
    #[inline(always)]
    pub unsafe fn compare_swap<T: Element>(
        &self,
        part: Rank,
        at: *mut T,
        expected: T,
        new: T,
    ) -> Result<T> {
        check_aligned::<T>(at)?;
        if !T::NATIVE {
            // SAFETY: the caller's.
            return unsafe { self.domain.compare_swap_locked(part, at, expected, new) };
        }
        // SAFETY: the caller's.
        match self.near.natively(self.domain, || unsafe { T::compare_swap(at, expected, new) }) {
            Some(old) => Ok(old),
            // SAFETY: the caller's.
            None => unsafe { self.domain.compare_swap_locked(part, at, expected, new) },
        }
    }

    /// `at[i] = at[i] OP values[i]`, each element atomically.
    ///
    /// Cost: as for [`Updates::fetch_op`] per element while few elements at a time are what the
    /// window sees; else one lock per 16 KiB and plain vector instructions within.
    ///
    /// # Errors
    /// As for [`Updates::fetch_op`]; some of the elements are updated then.
    ///
    /// # Safety
    /// As for [`Updates::fetch_op`], for `values.len()` elements.
    #[inline(always)]
    pub unsafe fn accumulate<T: Element>(
        &self,
        part: Rank,
        at: *mut T,
        op: Op,
        values: &[T],
    ) -> Result<()> {
        check_aligned::<T>(at)?;
        if let [value] = *values
            // SAFETY: the caller's.
            && unsafe { self.accumulate_natively(at, op, value) }
        {
            return Ok(());
        }
        let from = values.as_ptr().cast();
        let run = Run { op, at: at.cast(), from, count: values.len(), result: None };
        // SAFETY: the caller's.
        unsafe { self.domain.run(part, &const { Kinds::of::<T>() }, run) }
    }
}

impl std::ops::Deref for Updates<'_> {
    type Target = Domain;
    #[inline(always)]
    fn deref(&self) -> &Domain {
        self.domain
    }
}
