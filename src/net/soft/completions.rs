//! Completion queues of software devices.
//!
//! Room is taken when something is posted (or a shared receive is used) and given back when its
//! completion is polled, or when it ends without one: so a push always finds room.

use super::events::Bell;
use crate::base::sync::{AtomicU32, Ordering};
use crate::net::provider::{Arm, Completion, Status};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
pub struct Completions {
    ring: Mutex<Ring>,
    /// Completions there are, for a look without the lock.
    count: AtomicU32,
    room: AtomicU32,
    bell: Option<Arc<dyn Bell>>,
}

struct Ring {
    queue: VecDeque<Completion>,
    armed: Option<Arm>,
}

impl Completions {
    pub fn new(depth: u32, bell: Option<Arc<dyn Bell>>) -> Completions {
        Completions {
            ring: Mutex::new(Ring { queue: VecDeque::new(), armed: None }),
            count: AtomicU32::new(0),
            room: AtomicU32::new(depth),
            bell,
        }
    }

    /// Takes room for one completion; false if there is none.
    pub fn take_room(&self) -> bool {
        let less = |room: u32| room.checked_sub(1);
        self.room.try_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// Gives room back that no completion will use.
    pub fn give_room(&self, count: u32) {
        self.room.fetch_add(count, Ordering::AcqRel);
    }

    /// Adds a completion, for which room was taken.
    pub fn push(&self, completion: Completion, solicited: bool) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.queue.push_back(completion);
        self.count.store(ring.queue.len() as u32, Ordering::Release);
        let fires = match ring.armed {
            None => false,
            Some(Arm::Any) => true,
            Some(Arm::Solicited) => solicited || completion.status != Status::Success,
        };
        if fires {
            ring.armed = None;
            drop(ring);
            if let Some(bell) = &self.bell {
                bell.ring();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub fn poll(&self, into: &mut [Completion]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let count = into.len().min(ring.queue.len());
        for (to, completion) in into.iter_mut().zip(ring.queue.drain(..count)) {
            *to = completion;
        }
        self.count.store(ring.queue.len() as u32, Ordering::Release);
        drop(ring);
        self.give_room(count as u32);
        count
    }

    /// Arms it; false if nobody can wait for it.
    pub fn arm(&self, what: Arm) -> bool {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // Armed for more stays armed for more, as in devices.
        if ring.armed != Some(Arm::Any) {
            ring.armed = Some(what);
        }
        self.bell.is_some()
    }

    /// Forgets what a queue pair left here.
    pub fn forget(&self, queue_pair: u32) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ring.queue.len();
        ring.queue.retain(|completion| completion.queue_pair != queue_pair);
        let gone = before - ring.queue.len();
        self.count.store(ring.queue.len() as u32, Ordering::Release);
        drop(ring);
        self.give_room(gone as u32);
    }
}
