//! Progress without input, and making room (paper 001 §3.4.2, §3.4.4, §3.4.5, figure 3.9).
//!
//! ```text
//!   Engine::progress    all active windows
//!   calls and answers   the one target that they are about
//! ```
//!
//! A pool that is used up is never enlarged. A target object is won back by sending all that is
//! pending for one target and waiting until it is done there: one whose synchronisation is
//! finished and that has few operations pending is chosen among at most [`Limits::visits`]
//! (one after the other, so that every one gets its turn). An operation object is won back by
//! sending; that needs no waiting.
//!
//! [`Limits::visits`]: super::Limits::visits

use super::engine::Engine;
use super::host::Host;
use super::message::{Message, Riders, WindowId};
use super::pools::Id;
use super::shared::Shared;
use super::table::TargetObject;
use super::window::Window;

impl Engine {
    /// Puts a window on the list of active ones.
    pub(super) fn activate(&mut self, id: WindowId) {
        if let Some(window) = self.windows.get_mut(&id)
            && !std::mem::replace(&mut window.active, true)
        {
            self.active.push_back(id);
        }
    }

    /// Does what can be done without input in all windows that have any such work; whether some
    /// is left. When it returns false, only a call or a message can bring more.
    pub fn progress<H: Host>(&mut self, host: &mut H) -> bool {
        self.shared.tick += 1;
        self.shared.clear(host);
        self.make_outstanding(host);
        for _ in 0..self.active.len() {
            let Some(id) = self.active.pop_front() else { break };
            let Some(window) = self.windows.get_mut(&id) else { continue };
            window.active = false;
            window.progress(&mut self.shared, host);
            if window.again {
                self.activate(id);
            }
        }
        !self.active.is_empty() || self.shared.owes()
    }

    /// Looks at a few target objects, from where the last look ended; the best one by `rank`
    /// (the smallest; none for those that do not come into question).
    fn choose<K: Ord>(
        &mut self,
        rank: impl Fn(&Shared, &Window, &TargetObject) -> Option<K>,
    ) -> Option<Id> {
        let pool = &self.shared.pools.targets;
        let size = pool.size() as Id;
        let (mut best, mut visited): (Option<(K, Id)>, usize) = (None, 0);
        let mut hand = self.shared.pools.hand;
        for _ in 0..size {
            let id = hand;
            hand = (hand + 1) % size;
            let Some(object) = pool.get(id) else { continue };
            let Some(window) = self.windows.get(&object.window) else { continue };
            visited += 1;
            if let Some(key) = rank(&self.shared, window, object)
                && best.as_ref().is_none_or(|(least, _)| key < *least)
            {
                best = Some((key, id));
            }
            if visited >= self.shared.limits.visits {
                break;
            }
        }
        self.shared.pools.hand = hand;
        best.map(|(_, id)| id)
    }

    fn work_on<H: Host>(&mut self, host: &mut H, id: Id) {
        let Some(object) = self.shared.pools.targets.get(id) else { return };
        let of = object.window;
        let Some(window) = self.windows.get_mut(&of) else { return };
        window.work(&mut self.shared, host, id);
        if window.again {
            self.activate(of);
        }
    }

    /// Makes room for a target object of window `id`, if not at once.
    pub(super) fn make_target<H: Host>(&mut self, host: &mut H, id: WindowId) {
        // A lock-all epoch that finds no object needs none any more.
        if let Some(window) = self.windows.get_mut(&id) {
            window.switch_wide(&mut self.shared);
            self.activate(id);
        }
        let found = self.choose(|_, window, object| {
            let fits = !object.evict && object.closing.is_none();
            fits.then(|| (!window.synchronised(object), object.pending.len()))
        });
        let Some(found) = found else { return };
        let object = &mut self.shared.pools.targets[found];
        object.evict = true;
        let of = object.window;
        // An object of a lock-all epoch can go only if all of its locks are kept otherwise.
        if let Some(window) = self.windows.get_mut(&of) {
            window.switch_wide(&mut self.shared);
            self.activate(of);
        }
        self.work_on(host, found);
    }

    /// Makes room for an operation object by sending those of one target.
    pub(super) fn make_operation<H: Host>(&mut self, host: &mut H) {
        let found = self.choose(|_, window, object| {
            let fits = !object.pending.is_empty();
            fits.then(|| (!window.synchronised(object), object.push, object.pending.len()))
        });
        let Some(found) = found else { return };
        self.shared.pools.targets[found].push = true;
        self.shared.counters.drains += 1;
        self.work_on(host, found);
    }

    /// With as many operations outstanding as there may be: asks a few targets how far they are.
    pub(super) fn make_outstanding<H: Host>(&mut self, host: &mut H) {
        if self.shared.may_go_out() {
            return;
        }
        let found = self.choose(|_, window, object| {
            let fits = object.asked < object.issued && window.synchronised(object);
            fits.then_some(object.asked)
        });
        let Some(found) = found else { return };
        let TargetObject { window, rank, issued, .. } = self.shared.pools.targets[found];
        let riders = Riders { ack: true, ..Riders::default() };
        let message = Message::Control { seq: issued, riders };
        if self.shared.send(host, window, rank, &message) == super::Sent::Yes {
            self.shared.pools.targets[found].asked = issued;
        }
    }
}
