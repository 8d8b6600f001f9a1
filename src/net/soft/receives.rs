//! Receive queues: of one queue pair, or shared.

use super::completions::Completions;
use super::events::Events;
use super::pieces::Pieces;
use crate::net::provider::{Event, PostError, Receive, Refused};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// A receive, posted.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub id: u64,
    pub pieces: Pieces,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Posted>,
    low_water: u32,
}

/// See the module.
pub struct Receives {
    state: Mutex<State>,
    depth: u32,
    pieces: u32,
    /// Shortest receive that is taken.
    shortest: u64,
    /// A shared one's number in events.
    pub number: Option<u32>,
}

impl Receives {
    pub fn new(depth: u32, pieces: u32, shortest: u64, number: Option<u32>) -> Receives {
        Receives { state: Mutex::default(), depth, pieces, shortest, number }
    }

    fn check(&self, receive: &Receive<'_>) -> Result<Posted, PostError> {
        if receive.pieces.len() > self.pieces as usize {
            return Err(PostError::TooManyPieces);
        }
        let pieces = Pieces::new(receive.pieces)?;
        if pieces.length() < self.shortest {
            return Err(PostError::TooShort { length: pieces.length(), needed: self.shortest });
        }
        Ok(Posted { id: receive.id, pieces })
    }

    /// Posts receives. One queue pair's own take room in its completion queue now.
    pub fn post(&self, receives: &[Receive<'_>], own: Option<&Completions>) -> Result<(), Refused> {
        for (posted, receive) in receives.iter().enumerate() {
            let receive = self.check(receive).map_err(|why| Refused { posted, why })?;
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let full = state.queue.len() >= self.depth as usize;
            if full || own.is_some_and(|queue| !queue.take_room()) {
                return Err(Refused { posted, why: PostError::Full });
            }
            state.queue.push_back(receive);
        }
        Ok(())
    }

    /// Takes the next receive, with room for its completion; none if there is not both.
    pub fn take(&self, completions: &Completions, events: &Events) -> Option<Posted> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.queue.is_empty() || self.number.is_some() && !completions.take_room() {
            return None;
        }
        let receive = state.queue.pop_front();
        if let Some(number) = self.number
            && (state.queue.len() as u64) < u64::from(state.low_water)
        {
            state.low_water = 0;
            drop(state);
            events.push(Event::LowWater(number));
        }
        receive
    }

    /// See [`SharedReceiveQueue::arm_low_water`](crate::net::provider::SharedReceiveQueue).
    pub fn arm_low_water(&self, mark: u32, events: &Events) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let low = (state.queue.len() as u64) < u64::from(mark);
        state.low_water = if low { 0 } else { mark };
        drop(state);
        if let (true, Some(number)) = (low, self.number) {
            events.push(Event::LowWater(number));
        }
    }

    /// Takes all back, where they are a queue pair's own.
    pub fn drain(&self) -> VecDeque<Posted> {
        match self.number {
            Some(_) => VecDeque::new(),
            None => {
                std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).queue)
            }
        }
    }

    pub fn is_shared(&self) -> bool {
        self.number.is_some()
    }
}
