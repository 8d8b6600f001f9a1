//! Shared receive queues: `ibv_srq`.

use super::PIECES;
use super::bindings::{self, RecvWr, Sge, SrqAttr, SrqInitAttr, number};
use super::context::{check, or_limits};
use super::hub::Hub;
use super::pair::{RECEIVE, pieces};
use super::ring::Slot;
use crate::base::Result;
use crate::net::provider::{Event, Opcode, PostError, Receive, Refused, SharedReceiveQueue};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Places of receives: posted ones are used by the device in any order.
struct Places {
    ids: Vec<u64>,
    /// Of each, so many.
    pieces: Vec<Sge>,
    counts: Vec<u8>,
    free: Vec<u32>,
}

/// See the module.
pub(super) struct VerbsShared {
    pub number: u32,
    pub depth: u32,
    most: u32,
    pub hub: Arc<Hub>,
    raw: NonNull<bindings::Srq>,
    places: Mutex<Places>,
}

// SAFETY: the library's functions may be called for one queue from any thread.
unsafe impl Send for VerbsShared {}
// SAFETY: as above.
unsafe impl Sync for VerbsShared {}

impl Drop for VerbsShared {
    fn drop(&mut self) {
        self.hub.forget_shared(self.number);
        // SAFETY: made once, destroyed once; queue pairs keep theirs.
        unsafe { (self.hub.verbs().ibv_destroy_srq)(self.raw()) };
    }
}

impl VerbsShared {
    pub fn new(hub: &Arc<Hub>, depth: u32, most: u32) -> Result<VerbsShared> {
        let attr = SrqAttr { max_wr: depth, max_sge: most, srq_limit: 0 };
        let mut wanted = SrqInitAttr { srq_context: std::ptr::null_mut(), attr };
        // SAFETY: the domain lives, and the queue keeps it.
        let raw = unsafe { (hub.verbs().ibv_create_srq)(hub.domain.raw(), &mut wanted) };
        let raw = or_limits("a shared receive queue", raw)?;
        let (count, hub) = (depth as usize, hub.clone());
        let places = Mutex::new(Places {
            ids: vec![0; count],
            pieces: vec![Sge::default(); count * most as usize],
            counts: vec![0; count],
            free: (0..depth).rev().collect(),
        });
        let number = hub.number();
        hub.know_shared(raw.as_ptr(), number);
        Ok(VerbsShared { number, depth, most, hub, raw, places })
    }

    pub fn raw(&self) -> *mut bindings::Srq {
        self.raw.as_ptr()
    }

    fn hand_over(&self, place: u32, pieces: &mut [Sge]) -> bool {
        let mut wr = RecvWr {
            wr_id: RECEIVE | u64::from(place),
            sg_list: pieces.as_mut_ptr(),
            num_sge: pieces.len() as i32,
            ..RecvWr::NONE
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue lives; the device copies the receive before the call returns.
        unsafe { (self.hub.context().ops().post_srq_recv)(self.raw(), &mut wr, &mut bad) == 0 }
    }

    fn post_one(&self, places: &mut Places, receive: &Receive<'_>) -> Result<(), PostError> {
        let mut own = [Sge::default(); PIECES];
        let count = pieces(receive.pieces, self.most, &mut own)?;
        let place = places.free.pop().ok_or(PostError::Full)?;
        let at = place as usize;
        (places.ids[at], places.counts[at]) = (receive.id, count as u8);
        let own = &mut own[..count];
        places.pieces[at * self.most as usize..][..count].copy_from_slice(own);
        if !self.hand_over(place, own) {
            places.free.push(place);
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// A receive of this place was used: calls `f` with what it was.
    pub fn complete<R>(&self, place: u64, f: impl FnOnce(&Slot, &[Sge]) -> R) -> Option<R> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(place).ok().filter(|at| *at < places.ids.len())?;
        let slot = Slot::new(places.ids[at], Opcode::Receive, 0);
        let count = usize::from(places.counts[at]);
        let result = f(&slot, &places.pieces[at * self.most as usize..][..count]);
        places.free.push(at as u32);
        Some(result)
    }

    /// Posts the receive of this place again, whose message went with its queue pair.
    pub fn again(&self, place: u64) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = usize::try_from(place).ok().filter(|at| *at < places.ids.len()) else {
            return;
        };
        let count = usize::from(places.counts[at]);
        let mut own = [Sge::default(); PIECES];
        own[..count].copy_from_slice(&places.pieces[at * self.most as usize..][..count]);
        if !self.hand_over(at as u32, &mut own[..count]) {
            places.free.push(at as u32);
        }
    }
}

impl SharedReceiveQueue for VerbsShared {
    fn number(&self) -> u32 {
        self.number
    }

    fn post(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for (posted, receive) in receives.iter().enumerate() {
            self.post_one(&mut places, receive).map_err(|why| Refused { posted, why })?;
        }
        Ok(())
    }

    fn arm_low_water(&self, mark: u32) -> Result<()> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.depth - places.free.len() as u32;
        drop(places);
        // Not all devices tell at once where it is low already.
        if left < mark {
            self.hub.events.push(Event::LowWater(self.number));
            return Ok(());
        }
        let mut attr = SrqAttr { max_wr: 0, max_sge: 0, srq_limit: mark };
        // SAFETY: the queue lives.
        let code =
            unsafe { (self.hub.verbs().ibv_modify_srq)(self.raw(), &mut attr, number::SRQ_LIMIT) };
        check("arming a shared receive queue", code)
    }
}
