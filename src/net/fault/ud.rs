//! Datagram queue pairs with faults.

use super::pool::Pool;
use super::state::State;
use crate::base::Result;
use crate::net::provider::{
    Address, Data, Datagram, Device, Local, Peer, Receive, Refused, Time, UdQueuePair,
};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a datagram that is to be overtaken waits for another one.
const OVERTAKEN: Duration = Duration::from_millis(1);

struct Held {
    due: Time,
    /// Goes when another has gone.
    overtaken: bool,
    to: Peer,
    immediate: Option<u32>,
    solicited: bool,
    slot: usize,
    piece: Local,
}

pub(super) struct FaultUd {
    inner: Arc<dyn UdQueuePair>,
    /// Keeps the address of nowhere.
    _sink: Arc<dyn UdQueuePair>,
    nowhere: Peer,
    device: Arc<dyn Device>,
    state: Arc<State>,
    held: Mutex<(Vec<Held>, Pool)>,
    me: Weak<FaultUd>,
}

impl FaultUd {
    pub fn new(
        inner: Arc<dyn UdQueuePair>,
        sink: Arc<dyn UdQueuePair>,
        device: &Arc<dyn Device>,
        state: &Arc<State>,
    ) -> Result<Arc<FaultUd>> {
        let nowhere = inner.open_peer(&sink.address())?;
        let held = Mutex::new((Vec::new(), Pool::new(&**device)?));
        let (device, state) = (device.clone(), state.clone());
        let ud = Arc::new_cyclic(|me| {
            let me = me.clone();
            FaultUd { inner, _sink: sink, nowhere, device, state, held, me }
        });
        ud.state.add(Arc::downgrade(&ud));
        Ok(ud)
    }

    /// Sends what is due, and at `now` what waited to be overtaken.
    pub fn release(&self, now: Time) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, pool) = &mut *held;
        let (due, later) = std::mem::take(list).into_iter().partition(|held| held.due <= now);
        *list = later;
        let due: Vec<Held> = due;
        for held in due {
            if !self.send_held(&held) {
                pool.give(held.slot);
            }
        }
        if let Some(next) = list.iter().map(|held| held.due).min() {
            self.state.due(next);
        }
    }

    /// Its slot is free again.
    pub fn give(&self, slot: usize) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).1.give(slot);
    }

    /// Whether it was posted: its completion frees the slot.
    fn send_held(&self, held: &Held) -> bool {
        let number = self.inner.number();
        let id = self.state.lock().own(number, self.me.clone(), held.slot);
        let pieces = [held.piece];
        let datagram = Datagram {
            id,
            to: held.to,
            data: Data::Pieces(&pieces),
            immediate: held.immediate,
            signalled: true,
            solicited: held.solicited,
        };
        // Where there is no room for it, or its peer is unknown by now, it is lost.
        let sent = self.inner.send(&[datagram]).is_ok();
        if !sent {
            self.state.lock().disown(number, id);
        }
        sent
    }

    /// Keeps a copy to be sent at `due`; false where that cannot be.
    fn hold(&self, datagram: &Datagram<'_>, due: Time, overtaken: bool) -> bool {
        let bytes = match datagram.data {
            Data::Inline(parts) => Some(parts.concat()),
            Data::Pieces(pieces) => self.state.gather(pieces),
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, pool) = &mut *held;
        let Some((slot, piece)) = bytes.and_then(|bytes| pool.keep(&bytes)) else { return false };
        let Datagram { to, immediate, solicited, .. } = *datagram;
        list.push(Held { due, overtaken, to, immediate, solicited, slot, piece });
        drop(held);
        self.state.due(due);
        true
    }

    fn send_one(&self, datagram: &Datagram<'_>) -> Result<(), Refused> {
        let now = self.device.now();
        let (dropped, delay, overtaken, twice) = {
            let mut state = self.state.lock();
            let plan = state.plan;
            let dropped = state.happens(plan.drop);
            let delayed = !dropped && state.happens(plan.delay);
            let most = plan.delay_for.as_nanos() as u64;
            let delay =
                delayed.then(|| Duration::from_nanos(state.roll() % most.saturating_add(1)));
            let overtaken = !dropped && !delayed && state.happens(plan.reorder);
            (dropped, delay, overtaken, !dropped && state.happens(plan.duplicate))
        };
        let elsewhere = Datagram { to: self.nowhere, ..*datagram };
        let longest = self.device.capabilities().datagram;
        let valid = datagram.data.length() <= longest.into();
        if dropped {
            self.inner.send(&[elsewhere])?;
            self.state.lock().done.dropped += 1;
            return Ok(());
        }
        let due = if overtaken { Some(now.plus(OVERTAKEN)) } else { delay.map(|d| now.plus(d)) };
        if let Some(due) = due.filter(|_| valid) {
            // First what can be refused; a completion that says how it went comes of it too.
            self.inner.send(&[elsewhere])?;
            if !self.hold(datagram, due, overtaken) {
                self.state.lock().done.dropped += 1;
                return Ok(());
            }
            let mut state = self.state.lock();
            state.done.reordered += u64::from(overtaken);
            state.done.delayed += u64::from(!overtaken);
            return Ok(());
        }
        if twice {
            let first = Datagram { signalled: false, ..*datagram };
            if self.inner.send(&[first]).is_ok() {
                self.state.lock().done.duplicated += 1;
            }
        }
        self.inner.send(&[*datagram])?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = held.0.iter().any(|held| held.overtaken);
        held.0.iter_mut().filter(|held| held.overtaken).for_each(|held| held.due = now);
        drop(held);
        if waits {
            self.release(now);
        }
        Ok(())
    }
}

impl UdQueuePair for FaultUd {
    fn number(&self) -> u32 {
        self.inner.number()
    }

    fn address(&self) -> Address {
        self.inner.address()
    }

    fn open_peer(&self, address: &Address) -> Result<Peer> {
        self.inner.open_peer(address)
    }

    fn close_peer(&self, peer: Peer) {
        self.inner.close_peer(peer);
    }

    fn send(&self, datagrams: &[Datagram<'_>]) -> Result<(), Refused> {
        self.state.pump(self.device.now());
        for (posted, datagram) in datagrams.iter().enumerate() {
            self.send_one(datagram).map_err(|refused| Refused { posted, ..refused })?;
        }
        Ok(())
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.state.pump(self.device.now());
        self.inner.receive(receives)
    }
}
