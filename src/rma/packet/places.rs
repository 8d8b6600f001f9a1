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
//!
//! Whoever has often updated single elements there asks for more:
//! ```text
//!   origin                                  target
//!      WHERE, for updates, too ------------>  has its node's atomic domain be one that a device can
//!      <------------------------------ PLACE  be in, for as long as the window is there; then its
//!                                             rights say so
//! ```
//! What the device permits is the same for all; what they were told is what origins keep to.

use super::wire::Packet;
use super::world::{NOBODY, Site, World};
use crate::base::{Rank, Slot};
use crate::link::Push;
use crate::link::core::Core;
use crate::link::far::Registered;
use crate::net::memory::Lent;
use crate::net::provider::{Access, Atomics, RemoteRegion};
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

/// What every place is for.
fn copies() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// Updates of single elements of a part from which on it is asked whether devices may do them: a
/// domain that they are in does without what makes long accumulates fast.
const OFTEN: u32 = 64;

impl Exposed {
    /// `updates`: devices may update elements, if they can so that it does not matter to the
    /// processor's own updates.
    fn new(node: &Node, own: &dyn OwnPart, updates: bool) -> Option<Exposed> {
        let core = Core::of(node).ok()?;
        let far = core.far()?;
        let (first, bytes) = own.whole()?;
        let atomics = far.capabilities()?.atomics == Atomics::Cpu;
        // SAFETY: the part is mapped until its window is closed, before which this is dropped; what is
        // in it is accessed by copies and atomics alone.
        let (lent, memory) = unsafe { Lent::new(first, bytes) };
        let access = if updates && atomics { copies() | Access::REMOTE_ATOMIC } else { copies() };
        let registered = far.expose(&memory, access)?;
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

impl Site {
    fn updates_often(&self, rank: Rank) -> bool {
        self.singles.get(&rank.0).is_some_and(|count| *count >= OFTEN)
    }
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
        self.ask_place(node, window, rank, slot);
        None
    }

    /// Asks where a part is; whether there was room.
    fn ask_place(&mut self, node: &Node, window: WindowId, rank: Rank, slot: Slot) -> bool {
        let Some(site) = self.sites.get(&window) else { return false };
        let message = Message::Where { stale: None, updates: site.updates_often(rank) };
        let packet = Packet { window, from: site.team.rank().0, message };
        let sent = self.put(node, slot, packet) == Sent::Yes;
        if sent && let Some(site) = self.sites.get_mut(&window) {
            // What is known stays so until the answer is there.
            site.places.entry(rank.0).or_insert(Known::Asked);
        }
        sent
    }

    /// Where a part on another node is, if devices may update single elements there. Called for each
    /// such update: asks once there were many, and then now and then, for it may have to do with what
    /// else happens there.
    pub fn place_of_words(
        &mut self,
        node: &Node,
        window: WindowId,
        rank: Rank,
        slot: Slot,
    ) -> Option<RemoteRegion> {
        let site = self.sites.get_mut(&window)?;
        let known = site.places.get(&rank.0);
        match known {
            Some(Known::There(region)) if region.access.allows(Access::REMOTE_ATOMIC) => {
                return Some(*region);
            }
            Some(Known::Asked) => return None,
            _ => {}
        }
        let unknown = known.is_none();
        let count = site.singles.entry(rank.0).or_default();
        *count = count.saturating_add(1);
        let due = *count >= OFTEN && (unknown || count.is_power_of_two());
        if due && !self.ask_place(node, window, rank, slot)
            // The next one asks.
            && let Some(count) = self.sites.get_mut(&window)?.singles.get_mut(&rank.0)
        {
            *count -= 1;
        }
        None
    }

    /// The answer has come.
    pub fn learn(&mut self, window: WindowId, rank: Rank, region: &[u8]) {
        let region = <&[u8; RemoteRegion::BYTES]>::try_from(region).ok();
        let region = region.and_then(|bytes| RemoteRegion::decode(bytes).ok());
        let known = match region.filter(|region| region.access.allows(copies())) {
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

    /// A write to the part with this key has failed, or an update: of what was sent something may yet
    /// land there, until its owner has been told.
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
            let updates = self.sites.get(&doubt.window);
            let updates = updates.is_some_and(|site| site.updates_often(doubt.rank));
            let message = Message::Where { stale: Some(doubt.key), updates };
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
        updates: bool,
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
                site.exposed = Exposed::new(node, &*site.own, site.admits);
            }
            let exposed = site.exposed.as_ref().map(|exposed| exposed.registered.whole());
            region = exposed.map(|region| {
                let can = updates && region.access.allows(Access::REMOTE_ATOMIC);
                let admitted = can && site.domain.admit_devices();
                let access = if admitted { region.access } else { copies() };
                RemoteRegion { access, ..region }.encode()
            });
        }
        let region = region.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        match self.put(node, to, Packet { window, from, message: Message::Place { region } }) {
            Sent::Full => Handled::Busy,
            Sent::Yes | Sent::Gone => Handled::Done,
        }
    }
}
