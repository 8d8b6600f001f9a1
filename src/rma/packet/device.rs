//! Large puts and gets on parts on other nodes, carried out by the devices: remote writes and reads by
//! the queue pair that requests go by.
//!
//! ```text
//!   put, get      reach          quiet             copy              packets, if it came to nothing
//!   ----------|-------------|----------------|-------------------|-------------------------->
//!     large,    the epoch     what was given    all is there:
//!     in one    gives access  before is done    nothing is left for flushes and ends of epochs
//! ```
//! So the rules are those of a part that this process has mapped (see `runtime::reach`), and the order
//! of one origin's calls is kept across both ways. The call waits until the bytes are in the target's
//! memory: its origin memory may be used again then, and nothing may land later.
//!
//! **Short gets** wait for their data whoever does it, so devices that take none of the target's processor
//! have them from the first element on that need not be whole. Short puts do not wait: many go together by
//! packets, of which those by devices would each take its way there and back.
//!
//! **Cold until hot.** Packets do it while no queue pair leads to the target, and while the answer to
//! the question where its part lies ([`places`](super::places)) is on its way.
//!
//! **What fails is done again by packets**, whole. Of a write whose queue pair failed some may yet land,
//! late, on what somebody else has put there since. So the target is told first that the place which the
//! write had is no place any more: it answers once that is so, and the epoch does not end before.
//!
//! Updates of single elements: see [`single`](super::single); long accumulates: [`modify`](super::modify).

use super::remote::Packets;
use super::waiting::Limit;
use crate::base::sync::Ordering;
use crate::base::{Rank, Result, Slot, settings};
use crate::link::core::Core;
use crate::link::far::{Direction, Far, Flow, Outcome, Transfer};
use crate::net::memory::Lent;
use crate::net::provider::{Remote, RemoteRegion};
use crate::rma::info::Info;
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Landing, Operation};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Poll;

/// Bytes of the longest element that is written whole. Devices promise less; a single one goes by
/// packets.
const WHOLE: usize = 8;

/// From how many bytes on gets are for devices that work for peers with the target's processor, where no
/// setting says otherwise: below, a request that a thread there carries out is as good.
const GET: usize = 4 << 10;

/// From how many bytes on operations are for devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    put: usize,
    get: usize,
    /// Shorter gets than this are for devices only that take none of the target's processor.
    get_by_all: usize,
    /// Of accumulates that the origin may carry out.
    pub accumulate: usize,
}

impl Sizes {
    /// None are.
    pub const NEVER: Sizes =
        Sizes { put: usize::MAX, get: usize::MAX, get_by_all: 0, accumulate: usize::MAX };

    /// What the settings, and a window's hints, say.
    pub fn from_settings(info: &Info) -> Result<Sizes> {
        let from = |setting: settings::Setting| match setting.bytes()? {
            0 => Ok(usize::MAX),
            bytes => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        };
        let accumulate = match (from(settings::NET_ACCUMULATE_FROM)?, info.locks_cover_owner) {
            (least, true) => least,
            (_, false) => usize::MAX,
        };
        let (get, get_by_all) = match settings::NET_GET_FROM.text().as_str() {
            "auto" => (0, GET),
            _ => (from(settings::NET_GET_FROM)?, 0),
        };
        Ok(Sizes { put: from(settings::NET_PUT_FROM)?, get, get_by_all, accumulate })
    }

    /// Whether an origin may carry accumulates out.
    pub fn modifies(&self) -> bool {
        self.accumulate != usize::MAX
    }

    /// Whether this device is one for an operation that is for devices.
    fn suit(&self, operation: &Operation<'_>, far: &dyn Far) -> bool {
        operation.action != Action::Get
            || operation.bytes >= self.get_by_all
            || far.capabilities().is_some_and(|device| device.offloads)
    }

    /// Whether an operation is for devices, which way, and this process's memory of it: a put or a get
    /// in one piece on both sides, long enough, and longer than what has to be whole.
    pub fn choose(&self, operation: &Operation<'_>) -> Option<(Direction, *mut u8)> {
        let (direction, from, memory) = match (operation.action, operation.landing) {
            (Action::Put, Landing::Nothing) => (Direction::Write, self.put, operation.origin),
            (Action::Get, Landing::Here(memory)) => (Direction::Read, self.get, memory),
            _ => return None,
        };
        let whole = operation.shape.is_none() && memory.shape.is_none();
        let long = operation.bytes >= from && operation.bytes > WHOLE;
        (whole && long && memory.bytes == operation.bytes).then_some((direction, memory.at))
    }
}

/// Where `bytes` bytes at `at` of a part lie, if they lie in what is registered.
pub(super) fn inside(region: RemoteRegion, at: u64, bytes: usize) -> Option<Remote> {
    let end = at.checked_add(bytes as u64)?;
    (end <= region.length).then(|| region.at(at))
}

/// A transfer under way. Dropped, it is over, and the memory back.
pub(super) struct Carried<'f> {
    pub far: &'f dyn Far,
    pub slot: Slot,
    pub transfer: Arc<Transfer>,
    // Dropped last: it waits for the device.
    pub _lent: Option<Lent>,
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        if self.transfer.outcome().is_none() {
            self.far.break_off(self.slot, Flow::Requests);
        }
    }
}

impl Packets {
    /// What leads to other nodes.
    pub(super) fn far(&self) -> Option<&dyn Far> {
        let far = self.far.get_or_init(|| Core::of(&self.node).ok()?.far().cloned());
        far.as_deref()
    }

    /// Whether something is performed at a target besides operations. That comes by packets.
    pub(super) fn performs(&self, target: Rank) -> bool {
        self.foreign.get().is_some_and(|foreign| !foreign.awaited(Some(target)).is_empty())
    }

    /// Waits until the epoch gives access to a part, and what was sent for it by packets is done.
    pub(super) fn clear_way(
        &self,
        what: &'static str,
        target: Rank,
        limit: &Limit<'_>,
    ) -> Result<()> {
        let cleared =
            self.ask_within(what, limit, |e, around, id| match e.reach(around, id, target.0) {
                Poll::Ready(Ok(())) => e.quiet(around, id, target.0),
                other => other,
            });
        self.naming(Some(target), cleared)
    }

    /// Waits for the end of a transfer; how it has ended, and what has kept this from waiting on.
    pub(super) fn finish(
        &self,
        what: &'static str,
        limit: &Limit<'_>,
        carried: Carried<'_>,
    ) -> (Outcome, Result<()>) {
        let transfer = carried.transfer.clone();
        let waited = self.drive(what, limit, |_| match transfer.outcome() {
            None => Poll::Pending,
            Some(_) => Poll::Ready(Ok(())),
        });
        drop(carried);
        (transfer.outcome().unwrap_or(Outcome::Failed), waited)
    }

    /// Has the devices carry an operation out, if that is for them, and waits for it. False if packets
    /// are to do it.
    ///
    /// # Errors
    /// As for operations: no epoch, a target that is gone, the deadline.
    pub(super) fn carry(&self, operation: &Operation<'_>) -> Result<bool> {
        let Some((direction, memory)) = self.sizes.choose(operation) else { return Ok(false) };
        let (what, target) = (operation.what, operation.target);
        let slot = self.team.slot_of(target)?;
        if self.node.is_local(slot) {
            return Ok(false);
        }
        let fit =
            |far: &&dyn Far| far.is_hot(slot, Flow::Requests) && self.sizes.suit(operation, *far);
        let Some(far) = self.far().filter(fit) else { return Ok(false) };
        let place = self.agent.enter()?.world.place(&self.node, self.id, target, slot);
        let there = place.and_then(|region| inside(region, operation.at, operation.bytes));
        let (Some(region), Some(there), Some(base)) = (place, there, NonNull::new(memory)) else {
            return Ok(false);
        };
        if self.performs(target) {
            return Ok(false);
        }
        let limit = self.limit();
        self.clear_way(what, target, &limit)?;
        // SAFETY: the memory of an operation stays what it is during its call, in which this is given
        // back; a get's is for writing, by its contract, a put's is only read.
        let (lent, here) = unsafe { Lent::new(base, operation.bytes) };
        let Some(transfer) = far.copy(slot, Flow::Requests.into(), direction, there, &here) else {
            return Ok(false);
        };
        drop(here);
        let carried = Carried { far, slot, transfer, _lent: Some(lent) };
        let (outcome, waited) = self.finish(what, &limit, carried);
        let mut state = self.agent.enter_regardless();
        let moved = &mut state.world.moved;
        match (outcome, direction) {
            (Outcome::Done, Direction::Write) => moved.written += 1,
            (Outcome::Done, Direction::Read) => moved.read += 1,
            _ => moved.failed += 1,
        }
        match (outcome, direction) {
            (Outcome::Failed, Direction::Write) => {
                self.doubtful.store(true, Ordering::Release);
                state.world.doubt(&self.node, self.id, target, slot, region.key);
            }
            // Maybe because that is no place any more.
            (Outcome::Failed, Direction::Read) => state.world.forget_place(self.id, target),
            _ => {}
        }
        drop(state);
        self.naming(Some(target), waited)?;
        Ok(outcome == Outcome::Done)
    }

    /// Waits until nothing of writes that failed can land any more.
    pub(super) fn dispel(&self, during: &'static str, limit: &Limit<'_>) -> Result<()> {
        if !self.doubtful.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let sure = self.drive(during, limit, |state| match state.world.doubts(self.id) {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        });
        sure.inspect_err(|_| self.doubtful.store(true, Ordering::Release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Op, Shape};
    use crate::rma::remote::Memory;
    use proptest::prelude::*;

    fn operation<'m>(action: Action, landing: Landing<'m>, origin: Memory<'m>) -> Operation<'m> {
        let bytes = match landing {
            Landing::Here(memory) => memory.bytes,
            _ => origin.bytes,
        };
        Operation {
            what: "a test",
            target: Rank(1),
            at: 0,
            bytes,
            shape: None,
            action,
            kind: None,
            element: 1,
            origin,
            compare: Memory::NONE,
            landing,
        }
    }

    proptest! {
        /// Long puts and gets in one piece, nothing else, and nothing that has to be whole.
        #[test]
        fn devices_get_long_puts_and_gets_in_one_piece(
            bytes in 0usize..100,
            put in prop_oneof![1usize..100, Just(usize::MAX)],
            get in prop_oneof![1usize..100, Just(usize::MAX)],
            action in prop_oneof![
                Just(Action::Put),
                Just(Action::Get),
                Just(Action::Accumulate(Op::Sum)),
                Just(Action::Accumulate(Op::Replace)),
                Just(Action::GetAccumulate(Op::NoOp)),
                Just(Action::CompareSwap),
            ],
            landing in 0..3,
            shaped in any::<(bool, bool)>(),
        ) {
            let sizes = Sizes { put, get, get_by_all: 0, accumulate: usize::MAX };
            let mut values = vec![0u8; bytes];
            let data = vec![0u8; bytes];
            let layout = Layout::of::<u8>().vector(bytes, 1, 1).unwrap();
            let shape = Shape { layout: &layout, count: 1 };
            let origin = match shaped.0 {
                true => Memory::of(&data).shaped(shape, bytes),
                false => Memory::of(&data),
            };
            let into = match shaped.0 {
                true => Memory::of_mut(&mut values).shaped(shape, bytes),
                false => Memory::of_mut(&mut values),
            };
            let landing = match landing {
                0 => Landing::Nothing,
                1 => Landing::Here(into),
                _ => Landing::Later,
            };
            let mut asked = operation(action, landing, origin);
            asked.shape = shaped.1.then_some(shape);
            let from = match (action, landing) {
                (Action::Put, Landing::Nothing) => Some((Direction::Write, put)),
                (Action::Get, Landing::Here(_)) => Some((Direction::Read, get)),
                _ => None,
            };
            let want = from.filter(|(_, from)| bytes >= *from && bytes > 8 && shaped == (false, false));
            let got = sizes.choose(&asked).map(|(direction, _)| direction);
            prop_assert_eq!(got, want.map(|(direction, _)| direction));
        }

        /// Nothing outside of what is registered is ever named.
        #[test]
        fn places_lie_in_the_part(
            length in 0u64..1000,
            at in prop_oneof![0u64..1100, Just(u64::MAX), Just(u64::MAX - 5)],
            bytes in 0usize..1100,
        ) {
            let access = crate::net::provider::Access::ALL;
            let region = RemoteRegion { address: 1 << 40, length, key: 7, access };
            let fits = u128::from(at) + bytes as u128 <= u128::from(length);
            let want = fits.then(|| Remote { address: (1 << 40) + at, key: 7 });
            prop_assert_eq!(inside(region, at, bytes), want);
        }
    }
}
