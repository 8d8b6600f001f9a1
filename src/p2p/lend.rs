//! Sending by buffers that are lent (see [`lent`](super::lent)): which messages may go so, which do, and the
//! copy.

use super::awake::follows;
use super::lent::{Announced, FEW, Loan, SINGLE, class_of, data_at};
use super::messenger::Messenger;
use super::middle::Timed;
use super::reach::{self, Reach};
use super::record::Place;
use crate::base::{Result, Slot, prefetch};
use crate::link::core::Wire;
use crate::shm::node::Node;

impl Messenger {
    /// Whether a message may go so. A comparison for what is short.
    #[inline(always)]
    pub(super) fn is_lendable(&self, node: &Node, to: Slot, place: &Place) -> bool {
        let len = place.len();
        len > FEW && len <= self.limits.lend && self.is_worth_lending(node, to, place)
    }

    #[inline(never)]
    fn is_worth_lending(&self, node: &Node, to: Slot, place: &Place) -> bool {
        // What else is announced is copied once where both have it mapped.
        let mapped = |at: *mut u8| reach::is_shared(node, at.addr() as u64, place.len() as u64);
        node.is_local(to)
            && (place.len() <= self.limits.eager
                || !place.address().is_some_and(mapped)
                    && self.reaches.of(node, to) != Reach::Mapped)
    }

    /// Sender: puts data into a buffer, if there is one. An uncontended lock, a line of the receiver's, and the
    /// copy.
    pub(super) fn try_lend(&self, wire: Wire<'_>, to: Slot, place: &Place) -> Option<Loan<'_>> {
        // Whatever comes now, it goes back by itself.
        let loan = Loan::take(&self.lending, wire.node, class_of(place.len()), to)?;
        self.fill(wire.node, loan, place, Timed::No)
    }

    /// The same for one that may be announced instead: nothing if it is to be. `blocks`: the caller waits for its
    /// end. A sender that is far ahead of its receiver waits for it first, a few microseconds; one that gets as much as
    /// it sends takes what has come (see [`lead`](super::lead)).
    ///
    /// # Errors
    /// Those of [`Messenger::progress`].
    pub(super) fn try_lend_large(
        &self,
        wire: Wire<'_>,
        to: Slot,
        place: &Place,
        blocks: bool,
    ) -> Result<Option<Loan<'_>>> {
        let (node, class) = (wire.node, class_of(place.len()));
        // Where ranks share cores, who has to wait for the receiver to be run waits for long.
        let pressed = blocks && !node.pace().is_awake();
        let one_way = self.judge.sent(class);
        if place.len() > SINGLE && self.limits.may_announce {
            let others = || self.engine().sendings.iter().next().is_some();
            if !one_way || pressed || !self.lending.flows(node, class, others) {
                return Ok(None);
            }
        }
        if one_way && node.pace().is_awake() {
            self.lending.await_some(node, class);
        } else if node.pace().is_awake() && self.lending.is_ahead(node, class) {
            self.progress(wire)?;
        }
        Ok(self.lend_or_announce(wire, to, place, (pressed, one_way)))
    }

    /// The rest of that: nothing if it is to be announced.
    fn lend_or_announce(
        &self,
        wire: Wire<'_>,
        to: Slot,
        place: &Place,
        (pressed, one_way): (bool, bool),
    ) -> Option<Loan<'_>> {
        let (node, class) = (wire.node, class_of(place.len()));
        if !self.limits.may_announce || pressed || self.reaches.copiers(false).is_err() {
            return self.try_lend(wire, to, place);
        }
        if !one_way && follows(node, to) {
            // One side alone that goes another way than the other would find out nothing.
            let announced = self.judge.follows_announced(class);
            return match announced && self.reaches.of(node, to) != Reach::Never {
                true => None,
                false => self.try_lend(wire, to, place),
            };
        }
        match Loan::take_in_turn(&self.lending, node, class, to) {
            Ok((loan, timed)) => self.fill(node, loan?, place, timed),
            Err(Announced) if self.reaches.of(node, to) == Reach::Never => {
                self.try_lend(wire, to, place)
            }
            Err(Announced) => None,
        }
    }

    fn fill<'a>(
        &self,
        node: &Node,
        mut loan: Loan<'a>,
        place: &Place,
        timed: Timed,
    ) -> Option<Loan<'a>> {
        let len = place.len();
        let began = if timed == Timed::No { 0 } else { self.switching.now() };
        let data = data_at(node, loan.at(), len)?;
        let manner = loan.manner();
        // The copy would ask for one after the other: they are in the receiver's cache.
        if len <= self.limits.ahead && manner.is_plain() {
            prefetch::lines_to_write(data.as_ptr(), len);
        }
        match place.address() {
            // SAFETY: the buffer is this sender's, and the data fit; the record is the engine's.
            Some(from) => loan.note(unsafe { manner.fill(data.as_ptr(), from, len) }),
            // SAFETY: as above.
            None => unsafe { place.read(0, data.as_ptr(), len) },
        }
        let took = if timed == Timed::No { 0 } else { self.switching.now().saturating_sub(began) };
        loan.lend(node, timed.note(took));
        self.switching.look_from_now_on();
        Some(loan)
    }
}
