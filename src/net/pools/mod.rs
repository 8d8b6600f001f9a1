//! What a process receives large eager messages in, over queue pairs: a shared receive queue per
//! size class, with buffers posted to it (paper 000 §3.3), and what of them to free (§4.4). Pure:
//! it counts buffers and says what to do with each; the host has them.
//!
//! ```text
//!   made --> posted --a message comes--> busy --the program is done--> posted again
//!              |                           |                            or freed: not needed
//!              | fewer than the low water  |                            for an age
//!              +--> as many again are made, within the limits
//! ```
//! Classes, limits and ages are those of [`crate::base::adapt::Pools`], as in a node's memory. What
//! differs is what a device does: a sender does not see whether a buffer is left, so some always
//! have to be posted (a message without one is sent again by the device, RNR, which is slow, or
//! breaks the queue pair); and a buffer that is posted cannot be taken back from its queue. So
//! buffers are made when few are left, not when none is, and freed when they come out of the queue
//! with a message; what lies in the queue of a class goes when its last user has left and the queue
//! is destroyed.

#[cfg(test)]
mod tests;

use crate::base::adapt::{Class, Limits, Pools, Refusal};

/// What all queues of a process may have, and how soon they are filled up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// As of pools in memory.
    pub limits: Limits,
    /// Posted buffers of a class below which more are made: so many, and one more per user.
    pub low_water: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { limits: Limits::default(), low_water: 3 }
    }
}

/// What to do with a buffer that the program is done with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Post it to its queue again.
    Post,
    /// Free it.
    Free,
}

/// A queue as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Its class: buffers are as large as its threshold.
    pub class: Class,
    /// Peers whose queue pairs are joined to it.
    pub users: u32,
    /// Buffers waiting for messages.
    pub posted: u32,
    /// Buffers with messages in them.
    pub busy: u32,
    /// Fewer posted ones than that are too few.
    pub low_water: u32,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    class: Class,
    posted: u32,
    busy: u32,
    /// To be freed as they come out of the queue.
    surplus: u32,
}

/// See the module. Times are nanoseconds since any one time.
#[derive(Clone, Debug)]
pub struct Queues {
    settings: Settings,
    pools: Pools,
    /// In no order, at most as many as there may be pools.
    kept: Vec<Kept>,
}

impl Queues {
    /// No queues.
    pub fn new(settings: Settings) -> Queues {
        Queues { settings, pools: Pools::new(settings.limits), kept: Vec::new() }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.pools.bytes()
    }

    /// Every queue.
    pub fn iter(&self) -> impl Iterator<Item = Queue> {
        self.kept.iter().map(|kept| {
            let users = self.pools.get(kept.class).map_or(0, |pool| pool.users);
            let Kept { class, posted, busy, .. } = *kept;
            Queue { class, users, posted, busy, low_water: self.low_water(class) }
        })
    }

    /// The queue of `class`.
    pub fn get(&self, class: Class) -> Option<Queue> {
        self.iter().find(|queue| queue.class == class)
    }

    /// The class whose queue takes messages of `bytes` bytes, headers counted.
    pub fn class_for(bytes: u64) -> Option<Class> {
        Class::covering(bytes)
    }

    /// The largest class that [`join`](Self::join) could ever allow.
    pub fn largest(&self) -> Option<Class> {
        self.pools.largest()
    }

    /// Whether a peer could join the queue of `class` now.
    pub fn can_join(&self, class: Class) -> bool {
        self.pools.can_join(class)
    }

    fn low_water(&self, class: Class) -> u32 {
        match self.pools.get(class) {
            Some(pool) if pool.users > 0 => {
                self.settings.low_water.saturating_add(pool.users).min(self.settings.limits.buffers)
            }
            _ => 0,
        }
    }

    fn find(&mut self, class: Class) -> Option<&mut Kept> {
        self.kept.iter_mut().find(|kept| kept.class == class)
    }

    /// A queue pair is going to be joined to the queue of `class`, which is to be made if it is
    /// not there. How many buffers to make and post; [`made`](Self::made) says how many there are
    /// then. One at least, or nobody could send; fewer than the low water only for want of memory.
    pub fn join(&mut self, class: Class, now: u64) -> Result<u32, Refusal> {
        let least = self.pools.join(class, now)?;
        if self.find(class).is_none() {
            self.kept.push(Kept { class, posted: 0, busy: 0, surplus: 0 });
        }
        Ok(least.max(self.wanted(class)))
    }

    /// Buffers that are missing up to the low water, as far as the limits go.
    fn wanted(&self, class: Class) -> u32 {
        let Some(kept) = self.kept.iter().find(|kept| kept.class == class) else { return 0 };
        let missing = self.low_water(class).saturating_sub(kept.posted);
        missing.min(self.room(class))
    }

    fn room(&self, class: Class) -> u32 {
        let limits = self.settings.limits;
        let buffers = self.pools.get(class).map_or(0, |pool| pool.buffers);
        let fit = limits.bytes.saturating_sub(self.pools.bytes()) / class.threshold();
        limits.buffers.saturating_sub(buffers).min(u32::try_from(fit).unwrap_or(u32::MAX))
    }

    /// So many buffers have been made and posted: as many as were asked for, or fewer if there was
    /// no memory.
    pub fn made(&mut self, class: Class, count: u32) {
        if let Some(kept) = self.find(class) {
            kept.posted += count;
            self.pools.made(class, count);
        }
    }

    /// A message came in a buffer of the queue of `class`. How many buffers to make and post: none,
    /// or as many as there are, if few are left.
    pub fn came(&mut self, class: Class, now: u64) -> u32 {
        let low = self.low_water(class);
        let Some(kept) = self.find(class) else { return 0 };
        kept.posted = kept.posted.saturating_sub(1);
        kept.busy += 1;
        let few = kept.posted < low;
        if few {
            // All that there are going to be are needed.
            kept.surplus = 0;
        }
        self.pools.taken(class, now);
        if few { self.pools.missed(class, now) } else { 0 }
    }

    /// The program is done with a message that came in a buffer of the queue of `class`.
    pub fn done(&mut self, class: Class, now: u64) -> Fate {
        self.pools.given_back(class, now);
        while let Some((of, surplus)) = self.pools.surplus(now) {
            // Beside those that were busy at once, the low water stays.
            let low = self.low_water(of);
            if let Some(kept) = self.find(of) {
                kept.surplus = surplus.saturating_sub(low);
            }
        }
        let low = self.low_water(class);
        let unused = self.pools.get(class).is_none_or(|pool| pool.users == 0);
        let Some(kept) = self.find(class) else { return Fate::Free };
        kept.busy = kept.busy.saturating_sub(1);
        if unused || (kept.surplus > 0 && kept.posted >= low) {
            kept.surplus = kept.surplus.saturating_sub(1);
            self.pools.freed(class, 1, now);
            self.tidy(class);
            return Fate::Free;
        }
        kept.posted += 1;
        Fate::Post
    }

    /// A buffer that was to be posted again could not be, and is freed.
    pub fn lost(&mut self, class: Class, now: u64) {
        if let Some(kept) = self.find(class) {
            kept.posted = kept.posted.saturating_sub(1);
            self.pools.freed(class, 1, now);
            self.tidy(class);
        }
    }

    /// A queue pair that was joined to the queue of `class` is gone. Whether it was the last one:
    /// then the queue is to be destroyed and what is posted to it freed, and it is gone here.
    /// Messages that are still in its buffers are freed as they are done with.
    pub fn leave(&mut self, class: Class, now: u64) -> bool {
        self.pools.leave(class);
        if self.pools.get(class).is_some_and(|pool| pool.users > 0) {
            return false;
        }
        let Some(kept) = self.find(class) else { return false };
        let posted = std::mem::take(&mut kept.posted);
        kept.surplus = 0;
        self.pools.freed(class, posted, now);
        self.tidy(class);
        true
    }

    /// Forgets a queue that has neither users nor buffers.
    fn tidy(&mut self, class: Class) {
        let users = self.pools.get(class).map_or(0, |pool| pool.users);
        self.kept
            .retain(|kept| kept.class != class || users > 0 || kept.posted > 0 || kept.busy > 0);
    }
}
