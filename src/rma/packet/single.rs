//! Updates of single elements on parts on other nodes, carried out by the devices: fetch_and_op that adds
//! or only reads, and compare_and_swap, of elements of eight bytes.
//!
//! ```text
//!   call      reach, quiet         remote atomic        done: what was there
//!   -------|---------------|----------------------|---> refused, or never posted: packets
//!              as for puts    no thread there          '-> failed: nobody knows
//! ```
//! The rules are those of large puts and gets ([`device`](super::device)): the epoch gives access first,
//! and what was sent by packets before is done first.
//!
//! **One domain.** The target lets devices in before it tells anybody that it does ([`places`
//! ](super::places)): its node updates elements by atomic instructions from then on, never by plain ones
//! under locks, which a device does not know of. So only devices whose atomics are the processor's are
//! used.
//!
//! **Cold until hot.** That makes long accumulates on that node dearer, so it is asked for by who has
//! often updated single elements there.
//!
//! **Not what waits for nothing.** An accumulate returns when its operand has been copied, and many are
//! in a packet: by a device each would take its way there and back.
//!
//! **Exactly once, or an error.** An update that may have been carried out cannot be done again, and what
//! it has found is gone with the queue pair: devices keep no record that the peer's library could be asked
//! for. So it fails, by [`Error::Uncertain`], once it is certain that it is not carried out later. Where
//! devices gain nothing, as sockets do not, updates therefore go by packets, which come once whatever
//! fails. One that the target's device has refused, or that was not posted yet, goes by packets.

use super::device::{Carried, inside};
use super::remote::Packets;
use crate::base::sync::Ordering;
use crate::base::{Error, Result, settings};
use crate::layout::{Kind, Op};
use crate::link::far::{Far, Flow, Outcome, Update};
use crate::net::provider;
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Landing, Memory, Operation};

/// Bytes of what devices update.
const WORD: usize = 8;

/// Who carries updates of single elements out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Atomics {
    /// The device, where that spares the target's processor.
    Auto,
    /// The device, where it can.
    Always,
    /// The target's library.
    Never,
}

impl Atomics {
    /// What the settings say.
    pub fn from_settings() -> Result<Atomics> {
        match settings::NET_ATOMICS.text().as_str() {
            "auto" => Ok(Atomics::Auto),
            "always" => Ok(Atomics::Always),
            "never" => Ok(Atomics::Never),
            other => {
                let why = format!("\"{other}\" is neither auto, always nor never");
                Err(Error::invalid(settings::NET_ATOMICS.name, why))
            }
        }
    }

    /// Whether it is the device.
    fn by(self, far: &dyn Far) -> bool {
        let Some(device) = far.capabilities() else { return false };
        device.atomics == provider::Atomics::Cpu
            && match self {
                Atomics::Auto => device.offloads,
                Atomics::Always => true,
                Atomics::Never => false,
            }
    }
}

/// What a device is to do for an operation, and where what it finds goes; nothing if it cannot.
fn choose(operation: &Operation<'_>) -> Option<(Update, *mut u8)> {
    let Landing::Here(result) = operation.landing else { return None };
    let is_word = |memory: &Memory<'_>| memory.bytes == WORD && memory.shape.is_none();
    let word = |memory: Memory<'_>| {
        // SAFETY: an operation's memory is its caller's during the call, and has as many bytes.
        is_word(&memory).then(|| unsafe { memory.at.cast::<u64>().read_unaligned() })
    };
    if operation.bytes != WORD || operation.shape.is_some() || !is_word(&result) {
        return None;
    }
    let (integer, float) = match operation.kind {
        Some(Kind::U64 | Kind::I64) => (true, false),
        Some(Kind::F64) => (false, true),
        _ => (false, false),
    };
    let update = match operation.action {
        Action::GetAccumulate(Op::Sum) if integer => Update::Add(word(operation.origin)?),
        Action::GetAccumulate(Op::NoOp) if integer || float => Update::Add(0),
        Action::CompareSwap if integer || float => {
            let (compare, swap) = (word(operation.compare)?, word(operation.origin)?);
            Update::CompareSwap { compare, swap }
        }
        _ => return None,
    };
    Some((update, result.at))
}

impl Packets {
    /// Has the target's device carry an update of a single element out, if that is for it, and waits for
    /// it. False if packets are to do it.
    ///
    /// # Errors
    /// As for operations: no epoch, a target that is gone, the deadline. [`Error::Uncertain`].
    pub(super) fn update(&self, operation: &Operation<'_>) -> Result<bool> {
        if self.atomics == Atomics::Never {
            return Ok(false);
        }
        let Some((update, result)) = choose(operation) else { return Ok(false) };
        let (what, target) = (operation.what, operation.target);
        let slot = self.team.slot_of(target)?;
        if self.node.is_local(slot) {
            return Ok(false);
        }
        let hot = |far: &&dyn Far| self.atomics.by(*far) && far.is_hot(slot, Flow::Requests);
        let Some(far) = self.far().filter(hot) else { return Ok(false) };
        let place = self.agent.enter()?.world.place_of_words(&self.node, self.id, target, slot);
        let there = place.and_then(|region| inside(region, operation.at, WORD));
        // What is not aligned is refused by the target.
        let aligned = there.filter(|there| there.address.is_multiple_of(WORD as u64));
        let (Some(region), Some(there)) = (place, aligned) else { return Ok(false) };
        if self.performs(target) {
            return Ok(false);
        }
        let limit = self.limit();
        self.clear_way(what, target, &limit)?;
        let Some(transfer) = far.update(slot, Flow::Requests.into(), update, there) else {
            return Ok(false);
        };
        let carried = Carried { far, slot, transfer: transfer.clone(), _lent: None };
        let (outcome, waited) = self.finish(what, &limit, carried);
        let mut state = self.agent.enter_regardless();
        match outcome {
            Outcome::Done => state.world.moved.updated += 1,
            // Maybe because that is no place any more.
            Outcome::Stopped => state.world.forget_place(self.id, target),
            Outcome::Failed => {
                state.world.moved.failed += 1;
                self.doubtful.store(true, Ordering::Release);
                state.world.doubt(&self.node, self.id, target, slot, region.key);
            }
        }
        drop(state);
        match outcome {
            Outcome::Done => {
                // SAFETY: the landing memory of an operation is for writing, by its contract; it has as
                // many bytes.
                unsafe { result.cast::<u64>().write_unaligned(transfer.old()) };
                Ok(true)
            }
            Outcome::Stopped => self.naming(Some(target), waited).map(|()| false),
            Outcome::Failed => {
                self.naming(Some(target), waited)?;
                let sure = self.dispel(what, &limit);
                self.naming(Some(target), sure)?;
                // It may have failed because the target is gone.
                self.clear_way(what, target, &limit)?;
                Err(Error::Uncertain { what, rank: self.node.rank_of(slot) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rank;
    use proptest::prelude::*;

    proptest! {
        /// Exactly what a device does as the library would: sums of integers, reads, and comparisons of
        /// bits, of one element of eight bytes whose result is waited for.
        #[test]
        fn devices_get_single_words_whose_result_is_waited_for(
            kind in prop::sample::select(&Kind::ALL[..]),
            op in prop::sample::select(&Op::ALL[..]),
            action in 0..4,
            count in 1usize..3,
            waits in any::<bool>(),
            (value, expected) in any::<(u64, u64)>(),
        ) {
            let action = match action {
                0 => Action::CompareSwap,
                1 => Action::GetAccumulate(op),
                2 => Action::Accumulate(op),
                _ => Action::Get,
            };
            let bytes = count * kind.size();
            let (values, expects) = (value.to_ne_bytes().repeat(4), expected.to_ne_bytes().repeat(4));
            let mut into = vec![0u8; bytes];
            let landing = match waits {
                true => Landing::Here(Memory::of_mut(&mut into)),
                false => Landing::Later,
            };
            let operation = Operation {
                what: "a test",
                target: Rank(1),
                at: 0,
                bytes,
                shape: None,
                action,
                kind: Some(kind),
                element: kind.size(),
                origin: Memory::of(&values[..bytes]),
                compare: Memory::of(&expects[..bytes]),
                landing,
            };
            let integer = matches!(kind, Kind::U64 | Kind::I64);
            let want = match action {
                Action::GetAccumulate(Op::Sum) if integer => Some(Update::Add(value)),
                Action::GetAccumulate(Op::NoOp) if integer || kind == Kind::F64 => {
                    Some(Update::Add(0))
                }
                Action::CompareSwap if integer || kind == Kind::F64 => {
                    Some(Update::CompareSwap { compare: expected, swap: value })
                }
                _ => None,
            };
            let want = want.filter(|_| waits && count == 1);
            prop_assert_eq!(choose(&operation).map(|(update, _)| update), want);
        }
    }
}
