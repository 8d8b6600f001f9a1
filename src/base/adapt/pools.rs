//! What a process receives large eager messages in: pools of buffers, one per class, each for all
//! peers that may send messages of that class (paper 000 §3.3), and what of them to free (§4.4).
//! Pure: it counts buffers and says how many there should be; the host has them.
//!
//! ```text
//!   peers that switched to class 64 KiB --+
//!   ...                                   +--> pool of 64 KiB: buffers, busy ones, age
//!   peers that switched to class 1 MiB ------> pool of 1 MiB
//! ```
//! A pool is there as long as it has users or buffers; there are no more of them than the limit
//! says (paper: 20). It begins with one buffer, and one more for each user. A sender that finds no
//! buffer free goes by rendezvous, and its receiver, who sees that, doubles the pool, within
//! limits for each pool and for all of them. Buffers that were not needed for an age
//! ([`Age`](super::age::Age)) are surplus; so may be all: what comes then goes by rendezvous once.
//!
//! The paper's shared receive queues have to have buffers posted for whatever may come; a pool in
//! shared memory can be empty, since senders see that.

use super::age::Age;
use super::class::Class;
use crate::base::{Result, settings};

/// What all pools of a process may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pools.
    pub pools: usize,
    /// Bytes of buffers in all.
    pub bytes: u64,
    /// Buffers of one pool.
    pub buffers: u32,
    /// Nanoseconds for which a buffer must not have been needed.
    pub age: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { pools: 20, bytes: 64 << 20, buffers: 256, age: 1_000_000_000 }
    }
}

impl Limits {
    /// What the settings say, for pools in a node's memory and for those of queue pairs alike.
    ///
    /// # Errors
    /// Settings that are none.
    pub fn from_settings() -> Result<Limits> {
        let number = |setting: settings::Setting| {
            setting.number().map(|n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        let age = settings::EAGER_AGE.seconds()?.unwrap_or_default();
        Ok(Limits {
            pools: number(settings::EAGER_POOLS)? as usize,
            bytes: settings::EAGER_BYTES.bytes()?,
            buffers: number(settings::EAGER_BUFFERS)?,
            age: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}

/// Why a peer cannot have a pool here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There are as many pools as there may be, and none of that class.
    TooMany,
    /// Not even one buffer of that class fits into what is left.
    TooLarge,
}

/// A pool as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Its class.
    pub class: Class,
    /// Peers that may send into it.
    pub users: u32,
    /// Buffers it has.
    pub buffers: u32,
    /// Those that hold messages, as far as the receiver has seen them.
    pub busy: u32,
}

#[derive(Clone, Debug)]
struct Kept {
    pool: Pool,
    age: Age,
    /// When the host was last told of a surplus.
    told: Option<u64>,
}

/// See the module. Times are nanoseconds since any one time.
#[derive(Clone, Debug)]
pub struct Pools {
    limits: Limits,
    /// In no order, at most [`Limits::pools`].
    pools: Vec<Kept>,
    bytes: u64,
}

impl Pools {
    /// No pools.
    pub fn new(limits: Limits) -> Pools {
        Pools { limits, pools: Vec::new(), bytes: 0 }
    }

    /// Bytes of all buffers.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every pool.
    pub fn iter(&self) -> impl Iterator<Item = Pool> {
        self.pools.iter().map(|kept| kept.pool)
    }

    /// The pool of `class`.
    pub fn get(&self, class: Class) -> Option<Pool> {
        self.iter().find(|pool| pool.class == class)
    }

    #[inline]
    fn find(&mut self, class: Class) -> Option<&mut Kept> {
        self.pools.iter_mut().find(|kept| kept.pool.class == class)
    }

    /// The largest class that [`join`](Self::join) could ever allow.
    pub fn largest(&self) -> Option<Class> {
        Class::within(self.limits.bytes)
    }

    /// Whether a peer could join the pool of `class` now.
    pub fn can_join(&self, class: Class) -> bool {
        self.check(class).is_ok()
    }

    fn check(&self, class: Class) -> Result<(), Refusal> {
        match self.get(class) {
            Some(pool) if pool.buffers > 0 => Ok(()),
            _ if class.threshold() > self.limits.bytes.saturating_sub(self.bytes) => {
                Err(Refusal::TooLarge)
            }
            None if self.pools.len() >= self.limits.pools => Err(Refusal::TooMany),
            _ => Ok(()),
        }
    }

    /// A peer begins to use the pool of `class`. Returns how many buffers to make for it, which
    /// may be none; [`made`](Self::made) says how many there are then.
    pub fn join(&mut self, class: Class, now: u64) -> Result<u32, Refusal> {
        self.check(class)?;
        if self.find(class).is_none() {
            let pool = Pool { class, users: 0, buffers: 0, busy: 0 };
            self.pools.push(Kept { pool, age: Age::new(self.limits.age, now), told: None });
        }
        let room = self.room(class);
        let Some(Kept { pool, age, .. }) = self.find(class) else { return Ok(0) };
        pool.users += 1;
        let more = (pool.users + 1).saturating_sub(pool.buffers).min(room);
        if more > 0 {
            age.missed(pool.busy, now);
        }
        Ok(more)
    }

    /// Buffers that the pool of `class` may have beyond those it has.
    fn room(&self, class: Class) -> u32 {
        let buffers = self.get(class).map_or(0, |pool| pool.buffers);
        let fit = (self.limits.bytes.saturating_sub(self.bytes)) / class.threshold();
        self.limits.buffers.saturating_sub(buffers).min(u32::try_from(fit).unwrap_or(u32::MAX))
    }

    /// A peer uses the pool of `class` no more. What is left of the pool is surplus if it was the
    /// last one.
    pub fn leave(&mut self, class: Class) {
        if let Some(kept) = self.find(class) {
            kept.pool.users = kept.pool.users.saturating_sub(1);
        }
        self.tidy(class);
    }

    /// Forgets a pool that has neither users nor buffers.
    fn tidy(&mut self, class: Class) {
        self.pools
            .retain(|Kept { pool, .. }| pool.class != class || pool.users > 0 || pool.buffers > 0);
    }

    /// So many buffers have been made for the pool of `class`: as many as were asked for, or fewer
    /// if there was no memory.
    pub fn made(&mut self, class: Class, count: u32) {
        if let Some(kept) = self.find(class) {
            kept.pool.buffers += count;
            self.bytes += u64::from(count) * class.threshold();
        }
    }

    /// A message that was small enough for the pool of `class` came by rendezvous, since no buffer
    /// was free. Returns how many to make: as many as there are, or what the limits allow.
    pub fn missed(&mut self, class: Class, now: u64) -> u32 {
        let room = self.room(class);
        let Some(Kept { pool, age, .. }) = self.find(class) else { return 0 };
        age.missed(pool.busy, now);
        pool.buffers.max(1).min(room)
    }

    /// A message came in a buffer of the pool of `class`.
    #[inline]
    pub fn taken(&mut self, class: Class, now: u64) {
        if let Some(Kept { pool, age, .. }) = self.find(class) {
            let before = pool.busy;
            pool.busy = (before + 1).min(pool.buffers);
            age.note(before, pool.busy, now);
        }
    }

    /// Its buffer is free again.
    #[inline]
    pub fn given_back(&mut self, class: Class, now: u64) {
        if let Some(Kept { pool, age, .. }) = self.find(class) {
            let before = pool.busy;
            pool.busy = before.saturating_sub(1);
            age.note(before, pool.busy, now);
        }
    }

    /// A pool that has more buffers than it needs, and how many more. The host takes as many of
    /// them as it finds free away from the senders, frees them, and says so with
    /// [`freed`](Self::freed). A pool is named once per eighth of an age, so asking until there is
    /// no answer ends, and asking as often as that is enough.
    pub fn surplus(&mut self, now: u64) -> Option<(Class, u32)> {
        self.pools.iter_mut().find_map(|Kept { pool, age, told }| {
            if told.is_some_and(|told| now.saturating_sub(told) < age.eighth()) {
                return None;
            }
            let needed = if pool.users > 0 { age.needed(pool.busy, now) } else { pool.busy };
            let surplus = pool.buffers.saturating_sub(needed);
            (surplus > 0).then(|| {
                *told = Some(now);
                (pool.class, surplus)
            })
        })
    }

    /// So many of the surplus buffers of the pool of `class` have been freed; none where senders
    /// had taken them all without having said so yet.
    pub fn freed(&mut self, class: Class, count: u32, now: u64) {
        if let Some(Kept { pool, age, .. }) = self.find(class) {
            let count = count.min(pool.buffers);
            pool.buffers -= count;
            if count > 0 && pool.users > 0 {
                age.freed(now);
            }
            self.bytes -= u64::from(count) * class.threshold();
        }
        self.tidy(class);
    }
}

#[cfg(test)]
mod tests;
