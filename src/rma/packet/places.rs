//! Where parts on other nodes are accessed by their devices: asked for at the target when it is first
//! of use, and kept. Nothing is known of those that nobody has asked for.
//!
//! ```text
//!   origin                                  target
//!      WHERE ------------------------------>  registers its part, if it is not; once for all who ask
//!      <------------------------------ PLACE  address, length, key; or nothing: packets do everything
//!
//!   after a write whose queue pair failed (see `device`):
//!      WHERE, key k is no good ------------>  if its key is k: registered no more; then anew
//!      (before anything else to the target)
//!      <------------------------------ PLACE  nothing that was sent under k lands any more
//! ```
//! Others whose transfers find that the key is gone ask again in the same way, and learn the new one.

use super::wire::Packet;
use super::world::{NOBODY, World};
use crate::base::{Rank, Slot};
use crate::link::Push;
use crate::link::core::Core;
use crate::link::far::Registered;
use crate::net::memory::Lent;
use crate::net::provider::{Access, RemoteRegion};
use crate::rma::remote::OwnPart;
use crate::rma::runtime::{Handled, Message, Sent, WindowId};
use crate::shm::node::Node;

/// What is known of a part on another node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// The question is on its way.
    Asked,
    There(RemoteRegion),
    /// Its device does not know it.
    Nowhere,
}

/// This process's own part while peers may access it. Dropped, they may not, and what one of them was
/// just doing is over.
#[derive(Debug)]
pub(super) struct Exposed {
    // In this order: registered no more, then back.
    registered: Registered,
    _lent: Lent,
}

impl Exposed {
    fn new(node: &Node, own: &dyn OwnPart) -> Option<Exposed> {
        let core = Core::of(node).ok()?;
        let (first, bytes) = own.whole()?;
        // SAFETY: the part is mapped until its window is closed, before which this is dropped; what is
        // in it is accessed by copies and atomics alone.
        let (lent, memory) = unsafe { Lent::new(first, bytes) };
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let registered = core.far()?.expose(&memory, access)?;
        Some(Exposed { registered, _lent: lent })
    }
}

/// A place that is to be none any more, before anything else is said to its owner.
#[derive(Debug)]
pub(super) struct Doubt {
    window: WindowId,
    rank: Rank,
    slot: Slot,
    key: u32,
    told: bool,
}

impl World {
    /// Where a part on another node is, if that is known; else asks, once.
    pub fn place(
        &mut self,
        node: &Node,
        window: WindowId,
        rank: Rank,
        slot: Slot,
    ) -> Option<RemoteRegion> {
        let site = self.sites.get(&window)?;
        match site.places.get(&rank.0) {
            Some(Known::There(region)) => return Some(*region),
            Some(Known::Asked | Known::Nowhere) => return None,
            None => {}
        }
        let (from, message) = (site.team.rank().0, Message::Where { stale: None });
        if self.put(node, slot, Packet { window, from, message }) == Sent::Yes
            && let Some(site) = self.sites.get_mut(&window)
        {
            site.places.insert(rank.0, Known::Asked);
        }
        None
    }

    /// The answer has come.
    pub fn learn(&mut self, window: WindowId, rank: Rank, region: &[u8]) {
        let region = <&[u8; RemoteRegion::BYTES]>::try_from(region).ok();
        let region = region.and_then(|bytes| RemoteRegion::decode(bytes).ok());
        let wanted = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let known = match region.filter(|region| region.access.allows(wanted)) {
            Some(region) => Known::There(region),
            None => Known::Nowhere,
        };
        self.doubts.retain(|doubt| !(doubt.told && (doubt.window, doubt.rank) == (window, rank)));
        let open = self.doubts.iter().any(|doubt| (doubt.window, doubt.rank) == (window, rank));
        if let Some(site) = self.sites.get_mut(&window) {
            site.places.insert(rank.0, if open { Known::Asked } else { known });
        }
    }

    /// What is known of a part is forgotten.
    pub fn forget_place(&mut self, window: WindowId, rank: Rank) {
        if let Some(site) = self.sites.get_mut(&window)
            && matches!(site.places.get(&rank.0), Some(Known::There(_)))
        {
            site.places.remove(&rank.0);
        }
    }

    /// A member of a window is gone: nothing of it can land, nor be told it.
    pub fn forget_member(&mut self, window: WindowId, rank: Rank) {
        self.doubts.retain(|doubt| (doubt.window, doubt.rank) != (window, rank));
        if let Some(site) = self.sites.get_mut(&window) {
            site.places.remove(&rank.0);
        }
    }

    /// A window is gone.
    pub fn forget_window(&mut self, window: WindowId) {
        self.doubts.retain(|doubt| doubt.window != window);
    }

    /// A write to the part with this key has failed: of what was sent something may yet land there,
    /// until its owner has been told.
    pub fn doubt(&mut self, node: &Node, window: WindowId, rank: Rank, slot: Slot, key: u32) {
        if let Some(site) = self.sites.get_mut(&window) {
            site.places.insert(rank.0, Known::Asked);
            self.doubts.push(Doubt { window, rank, slot, key, told: false });
            self.tell_doubts(node, Some(slot));
        }
    }

    /// Whether something may yet land in parts of a window.
    pub fn doubts(&self, window: WindowId) -> bool {
        self.doubts.iter().any(|doubt| doubt.window == window)
    }

    /// Tells the owners of places (only `to`, if that is some) that these are none any more; false if
    /// there was no room for all.
    pub fn tell_doubts(&mut self, node: &Node, to: Option<Slot>) -> bool {
        let mut all = true;
        let mut doubts = std::mem::take(&mut self.doubts);
        doubts.retain_mut(|doubt| {
            let due = !doubt.told && to.is_none_or(|to| to == doubt.slot);
            let site = self.sites.get(&doubt.window);
            let Some(from) = site.map(|site| site.team.rank().0) else { return false };
            if !due {
                return true;
            }
            let message = Message::Where { stale: Some(doubt.key) };
            let sent = self.send(node, doubt.slot, Packet { window: doubt.window, from, message });
            match sent {
                Ok(push) => doubt.told = push == Push::Sent,
                // Nothing can be sent there, nor come from there.
                Err(_) => return false,
            }
            all &= doubt.told;
            true
        });
        self.doubts = doubts;
        all
    }

    /// Tells whoever asks where this process's part is.
    pub fn tell_place(
        &mut self,
        node: &Node,
        to: Slot,
        window: WindowId,
        stale: Option<u32>,
    ) -> Handled {
        let mut from = NOBODY;
        let mut region = None;
        if let Some(site) = self.sites.get_mut(&window) {
            from = site.team.rank().0;
            if let Some(exposed) = &site.exposed
                && stale == Some(exposed.registered.whole().key)
            {
                site.exposed = None;
            }
            if site.exposed.is_none() {
                site.exposed = Exposed::new(node, &*site.own);
            }
            region = site.exposed.as_ref().map(|exposed| exposed.registered.whole().encode());
        }
        let region = region.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        match self.put(node, to, Packet { window, from, message: Message::Place { region } }) {
            Sent::Full => Handled::Busy,
            Sent::Yes | Sent::Gone => Handled::Done,
        }
    }
}
