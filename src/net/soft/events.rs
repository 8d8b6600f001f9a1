//! Events of a device: a short queue; when it is full what it has already is not told twice.

use crate::net::provider::Event;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, Weak};

const KEPT: usize = 1024;

/// Something that wakes who waits on a channel.
pub trait Bell: Send + Sync {
    /// Wakes it: a completion or an event is there.
    fn ring(&self);
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    bells: Vec<Weak<dyn Bell>>,
}

/// The queue, and the channels it wakes.
#[derive(Default)]
pub struct Events(Mutex<State>);

impl Events {
    pub fn push(&self, event: Event) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.events.len() < KEPT {
            state.events.push_back(event);
        } else {
            let kind = std::mem::discriminant(&event);
            if state.events.iter().all(|other| std::mem::discriminant(other) != kind) {
                state.events.push_back(event);
            }
        }
        state.bells.retain(|bell| bell.upgrade().map(|bell| bell.ring()).is_some());
    }

    pub fn take(&self, into: &mut [Event]) -> usize {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = into.len().min(state.events.len());
        for (to, event) in into.iter_mut().zip(state.events.drain(..count)) {
            *to = event;
        }
        count
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).events.is_empty()
    }

    /// Rings `bell` at every event from now on.
    pub fn attach(&self, bell: Weak<dyn Bell>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bells.push(bell);
    }
}
