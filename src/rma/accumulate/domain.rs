//! The atomic domain of a window: what every update of an element goes through, whoever makes it:
//! accumulates, get_accumulates, fetch_and_ops and compare_and_swaps of all origins, and the
//! target's own through a [`View`](crate::rma::View). They never lose an update of one another.
//! Puts and gets, and a View's loads and stores, are no updates.
//!
//! Two things are wanted: one element updated for the price of one atomic instruction, and many
//! elements at the speed of the memory, for which atomic instructions are ten times too slow. So
//! the window has a [`Bias`](crate::shm::bias::Bias), a word that says which of the two is cheap at present:
//!
//! ```text
//!              few elements                  many elements, one stripe at a time
//!  Native      section: native               section: native
//!  Both        lock the stripe, native       lock the stripe, native
//!  Locked      lock the stripe, native       lock the stripe, section: plain (SIMD)
//! ```
//! A *stripe* is a stretch of [`STRIPE`] bytes of a part; the part's 32 locks take care of them in
//! turn. An operation on many elements goes through its stripes beginning at another one for each
//! origin, and passes over stripes that are being worked on until nothing else is left. So N
//! origins work on one target, and on the same elements, at the same time.
//!
//! When the way changes, the [`balance`](super::balance) says.
//!
//! *Windows of single elements.* Where a program has said that every element is to be updated by
//! itself ([`Info::accumulate_granularity`]), the way is Native for ever, nobody outwaits anybody,
//! and so no update says that it is under way.
//!
//! *Pairs* of 16 bytes have no native way: they are always updated under the lock, and stored by
//! one instruction. Nobody who dies leaves a torn element, so the next holder of the lock goes on.

use super::balance::{cost, gain};
use super::element::{self, Element, Run};
use super::updates::{Near, Updates};
use super::{kernel, pairs};
use crate::base::sync::AtomicI32;
use crate::base::{Deadline, Error, Rank, Result};
use crate::coll::Team;
use crate::layout::{Comb, Kind, Located, Op};
use crate::rma::block::{Stripe, WindowBlock};
use crate::rma::info::{AccumulateOps, Info};
use crate::shm::bias::Way;
use crate::shm::lock::LockGuard;
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a part that one lock protects: worked through in about a µs, a hundred times what its
/// lock costs.
pub(super) const STRIPE: usize = 16 << 10;
/// Up to so many elements are updated in one section before anything else is considered.
const FEW: usize = 4;
/// Bytes of the longest element.
const WHOLE: u32 = 16;
/// Elements updated natively in one section: some µs at most, for others may wait for its end.
const SECTION: usize = 256;

/// One process's side of a window's atomic domain. Every window has one: it is kept small.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(super) near: Near,
    block: Arc<WindowBlock>,
    /// ns lost by the present way: positive by native updates, negative by locks. Threads may
    /// overwrite each other's; it is an estimate.
    pub(super) balance: AtomicI32,
    pub(super) turn_after: i32,
    /// How many µs to wait for the lock of a stripe; 0: as long as the team waits.
    pub(super) patience: u32,
    /// Replacing may not meet another operation on the same element, so it needs no protection.
    replace_freely: bool,
}

/// How elements of a kind are updated.
pub(super) struct Kinds {
    pub(super) size: usize,
    /// None if there is no native way.
    pub(super) native: Option<unsafe fn(Run)>,
    teeth: unsafe fn(Run, usize, isize),
    pub(super) plain: unsafe fn(Run),
}

impl Kinds {
    pub(super) const fn of<T: Element>() -> Kinds {
        let native: Option<unsafe fn(Run)> =
            if T::NATIVE { Some(element::native::<T>) } else { None };
        let (teeth, plain) = (element::native_teeth::<T>, kernel::plain::<T>);
        Kinds { size: size_of::<T>(), native, teeth, plain }
    }
}

pub(super) fn kinds(kind: Kind) -> Kinds {
    match kind {
        Kind::U8 => Kinds::of::<u8>(),
        Kind::U16 => Kinds::of::<u16>(),
        Kind::U32 => Kinds::of::<u32>(),
        Kind::U64 => Kinds::of::<u64>(),
        Kind::I8 => Kinds::of::<i8>(),
        Kind::I16 => Kinds::of::<i16>(),
        Kind::I32 => Kinds::of::<i32>(),
        Kind::I64 => Kinds::of::<i64>(),
        Kind::F32 => Kinds::of::<f32>(),
        Kind::F64 => Kinds::of::<f64>(),
        Kind::F32Located => Kinds::of::<Located<f32, i32>>(),
        Kind::I32Located => Kinds::of::<Located<i32, i32>>(),
        Kind::U32Located => Kinds::of::<Located<u32, i32>>(),
        Kind::F64Located => Kinds::of::<Located<f64, i64>>(),
        Kind::I64Located => Kinds::of::<Located<i64, i64>>(),
        Kind::U64Located => Kinds::of::<Located<u64, i64>>(),
    }
}

impl Domain {
    /// The domain of the window whose block this is.
    pub fn new(block: &Arc<WindowBlock>, info: &Info) -> Domain {
        let (node, granularity) = (block.team.node(), info.accumulate_granularity);
        Domain {
            near: Near::new(&block.header().accumulate, node, (1..=WHOLE).contains(&granularity)),
            block: block.clone(),
            balance: AtomicI32::new(0),
            turn_after: node.turn_after() as i32,
            patience: 0,
            replace_freely: info.accumulate_ops == AccumulateOps::SameOp,
        }
    }

    #[inline]
    pub(super) fn team(&self) -> &Team {
        &self.block.team
    }

    /// What updates look at first, to be kept where they begin.
    #[inline]
    pub fn near(&self) -> Near {
        self.near
    }

    /// As [`Updates::accumulate`], of elements of a kind known at run time: `count` of them from
    /// `from`, which need not be aligned. What was there goes to `result`, if given, which need
    /// not be aligned either and may be `from`. The caller has checked that `op` applies to
    /// `kind`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `at` is not aligned for such elements; as for
    /// [`Updates::accumulate`].
    ///
    /// # Safety
    /// `at` begins `count` elements of `part`'s memory in this window, mapped here; `from` and
    /// `result` are private memory of as many.
    #[expect(clippy::too_many_arguments, reason = "an operation has that many operands")]
    pub unsafe fn update(
        &self,
        part: Rank,
        kind: Kind,
        op: Op,
        at: *mut u8,
        count: usize,
        from: *const u8,
        result: Option<*mut u8>,
    ) -> Result<()> {
        check_kind_aligned(kind, at)?;
        // SAFETY: the caller's.
        unsafe { self.run(part, &kinds(kind), Run { op, at, from, count, result }) }
    }

    /// As [`Domain::update`] without a result, of several runs at equal distances, the first of
    /// which begins at `at`; their operands follow one another from `from` on.
    ///
    /// Cost: of short runs in which elements are updated natively, the atomic instructions, and
    /// what says so once for [`SECTION`] of them; of others, [`Domain::update`]'s each.
    ///
    /// # Errors
    /// As for [`Domain::update`].
    ///
    /// # Safety
    /// As for [`Domain::update`], for each run.
    pub unsafe fn update_teeth(
        &self,
        part: Rank,
        kind: Kind,
        op: Op,
        (at, comb): (*mut u8, Comb),
        from: *const u8,
    ) -> Result<()> {
        check_kind_aligned(kind, at)?;
        check_kind_aligned(kind, at.wrapping_offset(comb.stride))?;
        let kinds = kinds(kind);
        let count = comb.len / kinds.size;
        let tooth = |i: usize| Run {
            op,
            at: at.wrapping_offset(comb.stride * i as isize),
            from: from.wrapping_add(comb.len * i),
            count,
            result: None,
        };
        let short = kinds.native.is_some() && (1..=FEW).contains(&count) && op != Op::NoOp;
        let step = if short { SECTION / count } else { 1 };
        let mut first = 0;
        while first < comb.count {
            let teeth = step.min(comb.count - first);
            // SAFETY: the caller's.
            let update = || unsafe { (kinds.teeth)(tooth(first), teeth, comb.stride) };
            if !short || self.near.natively(self, update).is_none() {
                for i in first..first + teeth {
                    // SAFETY: the caller's.
                    unsafe { self.run(part, &kinds, tooth(i))? };
                }
            }
            first += teeth;
        }
        Ok(())
    }

    /// As [`Updates::compare_swap`], of an element of a kind known at run time; what was there goes
    /// to `result`. The private operands need not be aligned.
    ///
    /// # Errors
    /// As for [`Domain::update`].
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub unsafe fn update_if_equal(
        &self,
        part: Rank,
        kind: Kind,
        at: *mut u8,
        expected: *const u8,
        new: *const u8,
        result: *mut u8,
    ) -> Result<()> {
        check_kind_aligned(kind, at)?;
        macro_rules! by {
            ($t:ty) => {{
                let (expected, new) = (expected.cast::<$t>(), new.cast::<$t>());
                // SAFETY: the caller's.
                unsafe {
                    let (expected, new) = (expected.read_unaligned(), new.read_unaligned());
                    let old = Updates::new(self.near, self).compare_swap::<$t>(
                        part,
                        at.cast(),
                        expected,
                        new,
                    )?;
                    result.cast::<$t>().write_unaligned(old);
                }
            }};
        }
        // Only the bits matter.
        match kind.size() {
            1 => by!(u8),
            2 => by!(u16),
            4 => by!(u32),
            8 => by!(u64),
            _ => by!(Located<u64, i64>),
        }
        Ok(())
    }

    // By value: operands whose addresses are taken would go to memory before every native update.

    /// # Safety
    /// As for [`Updates::fetch_op`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn fetch_op_locked<T: Element>(
        &self,
        part: Rank,
        at: *mut T,
        op: Op,
        value: T,
    ) -> Result<T> {
        // SAFETY: the caller's.
        self.under_lock(part, at.addr(), T::NATIVE, || unsafe { T::fetch_op(at, op, value) })
    }

    /// # Safety
    /// As for [`Updates::compare_swap`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn compare_swap_locked<T: Element>(
        &self,
        part: Rank,
        at: *mut T,
        expected: T,
        new: T,
    ) -> Result<T> {
        // SAFETY: the caller's.
        self.under_lock(part, at.addr(), T::NATIVE, || unsafe {
            T::compare_swap(at, expected, new)
        })
    }

    /// Runs the update of one element while holding the lock of the stripe at `addr`.
    fn under_lock<R>(
        &self,
        part: Rank,
        addr: usize,
        native: bool,
        update: impl FnOnce() -> R,
    ) -> Result<R> {
        let stripe = self.stripe(part, addr);
        let (guard, loss) = match self.try_lock(stripe) {
            Some(guard) => (guard, cost::LOCK - cost::NATIVE as i32),
            None => (self.lock(stripe, native)?, cost::CONTENDED),
        };
        let result = update();
        drop(guard);
        if native {
            self.weigh(-loss);
        }
        Ok(result)
    }

    /// A number for an address that is the same in every process that maps it. Addresses have 47
    /// bits, so private memory (of which only its owner updates anything) gets numbers of its own
    /// on the other side of the segment, and no run wraps around.
    #[inline(always)]
    pub(super) fn offset(&self, addr: usize) -> usize {
        // Counted from the page of a word that has the same place in the segment in all of them.
        let page = self.near.bias.addr().get() & !(PAGE as usize - 1);
        addr.wrapping_sub(page) & ((1 << 48) - 1)
    }

    pub(super) fn stripe(&self, part: Rank, addr: usize) -> &Stripe {
        let index = self.offset(addr) / STRIPE;
        // Origins begin at stripes that are often a power of two apart: those must not share locks.
        let index = index.wrapping_add((index >> 5).wrapping_mul(7));
        self.block.stripe(part.0, index)
    }

    pub(super) fn try_lock<'a>(&'a self, stripe: &'a Stripe) -> Option<LockGuard<'a, Node>> {
        stripe.lock.lock_if_free(&**self.team().node())
    }

    /// Waits for a lock. That its last holder died changes nothing if it left whole elements.
    #[cold]
    pub(super) fn lock<'a>(
        &'a self,
        stripe: &'a Stripe,
        native: bool,
    ) -> Result<LockGuard<'a, Node>> {
        let node = &**self.team().node();
        let deadline = match self.patience {
            0 => self.team().deadline(),
            us => Deadline::after(Duration::from_micros(us.into())),
        };
        let guard = stripe.lock.lock(node, deadline)?;
        match guard.previous_holder_died() {
            Some(slot) if !native && !pairs::WHOLE => {
                Err(node.died(slot, "an accumulate on pairs, one of which may be torn"))
            }
            _ => Ok(guard),
        }
    }

    /// Updates the elements of a run.
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub(super) unsafe fn run(&self, part: Rank, kinds: &Kinds, run: Run) -> Result<()> {
        // SAFETY: the caller's.
        if unsafe { self.at_once(kinds, run) } {
            return Ok(());
        }
        if let (1, Some(native)) = (run.count, kinds.native) {
            // SAFETY: the caller's.
            return self.under_lock(part, run.at.addr(), true, || unsafe { native(run) });
        }
        // SAFETY: the caller's.
        unsafe { self.each_stripe(part, kinds, run) }
    }

    /// Updates the elements of a run if they are few and there is a native way at present, or if
    /// they need none; whether they are.
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub(super) unsafe fn at_once(&self, kinds: &Kinds, run: Run) -> bool {
        let Some(native) = kinds.native else { return false };
        // SAFETY: the caller's.
        let update = || unsafe { native(run) };
        if run.op == Op::NoOp || run.op == Op::Replace && self.replace_freely {
            update();
            return true;
        }
        if (run.count <= FEW || self.near.is_single()) && self.near.natively(self, update).is_some()
        {
            return true;
        }
        if run.count > 1 {
            // What the native way costs more than the other one.
            let loss = match (run.op, run.result) {
                (Op::Replace, None) => -cost::LOCK,
                _ => gain(run.count).saturating_sub(cost::LOCK),
            };
            self.weigh(loss);
        }
        false
    }

    /// Updates the elements of a run stripe by stripe.
    ///
    /// # Safety
    /// As for [`Domain::update`].
    unsafe fn each_stripe(&self, part: Rank, kinds: &Kinds, run: Run) -> Result<()> {
        let addr = self.offset(run.at.addr());
        let first = addr / STRIPE;
        let count = match run.count {
            0 => 0,
            n => (addr + (n - 1) * kinds.size) / STRIPE - first + 1,
        };
        // An element belongs to the stripe that its first byte lies in.
        let begin = |k: usize| match k {
            0 => 0,
            k => ((first + k) * STRIPE - addr).div_ceil(kinds.size).min(run.count),
        };
        let turn = self.team().rank().0 as usize * count / (self.team().size() as usize).max(1);
        let mut done = 0;
        while done < count {
            let mut busy = 0u64;
            let batch = (count - done).min(64);
            for wait in [false, true] {
                for i in 0..batch {
                    if wait && busy & 1 << i == 0 {
                        continue;
                    }
                    let k = (turn + done + i) % count;
                    let (from, to) = (begin(k), begin(k + 1));
                    // SAFETY: from <= to <= run.count.
                    let slice = unsafe { run.slice(kinds.size, from, to - from) };
                    // SAFETY: the caller's, for this part of the run; it lies in one stripe.
                    if !unsafe { self.one_stripe(part, kinds, slice, wait)? } {
                        busy |= 1 << i;
                    }
                }
            }
            done += batch;
        }
        Ok(())
    }

    /// Updates elements of one stripe; false, and nothing is updated, if its lock is needed and
    /// taken and the caller does not want to wait.
    ///
    /// # Safety
    /// As for [`Domain::update`]; all elements begin in one stripe.
    unsafe fn one_stripe(&self, part: Rank, kinds: &Kinds, run: Run, wait: bool) -> Result<bool> {
        let all = run.count;
        // SAFETY: the caller's.
        let run = unsafe { self.natively_first(kinds, run) };
        if run.count == 0 {
            return Ok(true);
        }
        let stripe = self.stripe(part, run.at.addr());
        let guard = match self.try_lock(stripe) {
            Some(guard) => guard,
            // Once some are updated the rest cannot be put off: all would be done again.
            None if !wait && run.count == all => return Ok(false),
            None => self.lock(stripe, kinds.native.is_some())?,
        };
        // SAFETY: the caller's; the lock is held.
        unsafe { self.locked(kinds, run) };
        drop(guard);
        Ok(true)
    }

    /// Updates elements natively as long as that is the way; what is left.
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub(super) unsafe fn natively_first(&self, kinds: &Kinds, mut run: Run) -> Run {
        let Some(native) = kinds.native else { return run };
        while run.count > 0 && self.near.bias().is_native() {
            let now = run.count.min(SECTION);
            // SAFETY: now <= run.count, twice.
            let (part, rest) = unsafe {
                (run.slice(kinds.size, 0, now), run.slice(kinds.size, now, run.count - now))
            };
            // SAFETY: the caller's.
            if self.near.natively(self, || unsafe { native(part) }).is_none() {
                break;
            }
            run = rest;
        }
        run
    }

    /// Updates elements of one stripe, whose lock is held.
    ///
    /// # Safety
    /// As for [`Domain::update`].
    pub(super) unsafe fn locked(&self, kinds: &Kinds, run: Run) {
        let Some(native) = kinds.native else {
            // SAFETY: the caller's; elements without a native way are updated under locks only.
            unsafe { (kinds.plain)(run) };
            return;
        };
        if let Some(turn) = self.near.enter(self) {
            let alone = self.near.bias().way() == Way::Locked;
            if alone {
                // SAFETY: the caller's; everybody else's updates need the lock.
                unsafe { (kinds.plain)(run) };
            }
            turn.leave();
            if alone {
                return;
            }
        }
        // SAFETY: the caller's.
        unsafe { native(run) };
    }
}

/// An error if an element of that type at `at` cannot be updated whole. Costs nothing for types
/// whose alignment is their size: the caller has seen to that.
#[inline(always)]
pub(super) fn check_aligned<T: Element>(at: *mut T) -> Result<()> {
    if align_of::<T>() == T::KIND.align() {
        return Ok(());
    }
    check_kind_aligned(T::KIND, at.cast())
}

pub(super) fn check_kind_aligned(kind: Kind, at: *mut u8) -> Result<()> {
    // Of pairs under a lock no more is asked than of their halves.
    let align = kind.align();
    if at.addr().is_multiple_of(align) { Ok(()) } else { Err(misaligned(kind, align)) }
}

#[cold]
fn misaligned(kind: Kind, align: usize) -> Error {
    let why = format!(
        "an element of {} bytes lies at an address that is no multiple of {align}; only aligned \
         elements are updated whole",
        kind.size()
    );
    Error::invalid("the target of an accumulate", why)
}
