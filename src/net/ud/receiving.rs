//! What comes from a peer: put in order, put together, handed on.
//!
//! ```text
//!    base: the next to be handed on
//!     | 0 | 1 | 1 | 0 | 1 | 0 ...     mask: those that are kept, since something before them is
//!     acknowledged = base + ones at the lower end          missing or the host had no room
//! ```

use super::config::SPAN;
use super::{Buffer, Config, Event, Shared};
use crate::net::wire::{Fragment, Further, Reject};

/// What the host says to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has it.
    Taken,
    /// It has no room: [`Peer::deliver`](super::Peer::deliver) offers it again.
    Later,
}

/// Who gets what comes.
pub trait Upper {
    /// A whole message of `peer`'s; the next one in order.
    fn message(&mut self, peer: u32, channel: u8, bytes: &[u8]) -> Verdict;

    /// What became of the connection to `peer`.
    fn event(&mut self, peer: u32, event: Event);
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// The next one, and nothing is missing behind it.
    InOrder,
    /// New, and something is missing or was until now.
    Ahead,
    /// It had come before.
    Again,
    /// There is no memory for it.
    Starved,
}

#[derive(Debug)]
struct Held {
    buffers: [Option<Buffer>; SPAN as usize],
    lengths: [u16; SPAN as usize],
}

/// A message of which not all pieces have come, or which the host has not taken yet.
#[derive(Debug)]
struct Assembly {
    bytes: Vec<u8>,
    total: u32,
    channel: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Receiving {
    base: u32,
    /// The number of the message that the next piece belongs to.
    message: u32,
    /// Messages of the next datagram that the host has; it had no room for the others.
    had: u16,
    mask: u64,
    held: Option<Box<Held>>,
    assembly: Option<Box<Assembly>>,
    /// What is kept waits for memory that others have, not for the host.
    starved: bool,
}

impl Receiving {
    pub fn new(first: u32) -> Receiving {
        Receiving {
            base: first,
            message: 0,
            had: 0,
            mask: 0,
            held: None,
            assembly: None,
            starved: false,
        }
    }

    /// Up to which everything has come; what of the later ones has; credit from there on.
    #[inline]
    pub fn state(&self, span: u32) -> (u32, u64, u32) {
        let ones = self.mask.trailing_ones();
        let selective = self.mask.checked_shr(ones + 1).unwrap_or(0);
        (self.base.wrapping_add(ones), selective, span.saturating_sub(ones))
    }

    /// Whether there is something that the host has not taken.
    pub fn is_held_back(&self) -> bool {
        self.mask & 1 != 0 || self.assembly.as_ref().is_some_and(|a| a.is_whole())
    }

    /// Whether what is kept waits for memory: to be tried again before long.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Whether something is kept that is worth nothing without what is still to come.
    pub fn is_incomplete(&self) -> bool {
        (self.mask != 0 && self.mask & 1 == 0)
            || self.assembly.as_ref().is_some_and(|assembly| !assembly.is_whole())
    }

    /// A datagram with this piece of a message.
    #[inline]
    pub fn receive(
        &mut self,
        peer: u32,
        sequence: u32,
        body: &[u8],
        shared: &mut Shared,
        upper: &mut impl Upper,
    ) -> Result<Came, Reject> {
        let piece = Fragment::decode(body)?;
        let ahead = sequence.wrapping_sub(self.base);
        if ahead >= shared.config.span {
            // A receiver's credit, and so the distance of what is old, is a span at most; a span
            // more may have been acknowledged meanwhile.
            let behind = self.base.wrapping_sub(sequence);
            return if behind <= 2 * SPAN { Ok(Came::Again) } else { Err(Reject::Sequence) };
        }
        if self.mask & (1 << ahead) != 0 {
            return Ok(Came::Again);
        }
        let in_order = self.mask == 0;
        if ahead == 0 {
            let Shared { config, assembling, .. } = &mut *shared;
            match self.take(peer, piece, config, assembling, upper)? {
                Took::All => {
                    self.base = self.base.wrapping_add(1);
                    self.mask >>= 1;
                    self.drain(peer, shared, upper)?;
                    return Ok(if in_order { Came::InOrder } else { Came::Ahead });
                }
                Took::NoMemory => return Ok(Came::Starved),
                Took::HostIsFull => {}
            }
        }
        let Some(buffer) = shared.buffers.take() else { return Ok(Came::Starved) };
        let held = self.held.get_or_insert_with(|| {
            Box::new(Held { buffers: [const { None }; SPAN as usize], lengths: [0; SPAN as usize] })
        });
        // Longer ones than the job's datagrams cannot be kept, nor are they sent.
        let Some(room) = shared.buffers.get_mut(&buffer).get_mut(..body.len()) else {
            shared.buffers.give(buffer);
            return Err(Reject::Length);
        };
        room.copy_from_slice(body);
        let at = (sequence % SPAN) as usize;
        (held.buffers[at], held.lengths[at]) = (Some(buffer), body.len() as u16);
        self.mask |= 1 << ahead;
        Ok(if in_order && ahead == 0 { Came::InOrder } else { Came::Ahead })
    }

    /// Hands on what is kept, as far as it is in order and the host takes it. Whether any was.
    pub fn drain(
        &mut self,
        peer: u32,
        shared: &mut Shared,
        upper: &mut impl Upper,
    ) -> Result<bool, Reject> {
        let mut any = false;
        self.starved = false;
        while self.mask & 1 != 0 {
            let at = (self.base % SPAN) as usize;
            let Some(held) = self.held.as_mut() else { break };
            let Some(buffer) = held.buffers[at].take() else { break };
            let length = usize::from(held.lengths[at]);
            let Shared { config, assembling, buffers, .. } = &mut *shared;
            let took = Fragment::decode(&buffers.get(&buffer)[..length])
                .and_then(|piece| self.take(peer, piece, config, assembling, upper));
            if let Ok(Took::All) = took {
                buffers.give(buffer);
                self.base = self.base.wrapping_add(1);
                self.mask >>= 1;
                any = true;
                continue;
            }
            if let Some(held) = self.held.as_mut() {
                held.buffers[at] = Some(buffer);
            }
            self.starved = took? == Took::NoMemory;
            break;
        }
        if self.mask == 0 && self.assembly.as_ref().is_some_and(|a| a.is_whole()) {
            any |= self.finish(peer, &mut shared.assembling, upper);
        }
        Ok(any)
    }

    /// The next piece in order.
    #[inline]
    fn take(
        &mut self,
        peer: u32,
        (fragment, payload, further): (Fragment, &[u8], Further<'_>),
        config: &Config,
        assembling: &mut u64,
        upper: &mut impl Upper,
    ) -> Result<Took, Reject> {
        if self.assembly.as_ref().is_some_and(|assembly| assembly.is_whole())
            && !self.finish(peer, assembling, upper)
        {
            return Ok(Took::HostIsFull);
        }
        let Fragment { message, total, offset, channel } = fragment;
        let came = self.assembly.as_ref().map_or((0, total, channel), |assembly| {
            (assembly.bytes.len(), assembly.total, assembly.channel)
        });
        if message != self.message.wrapping_sub(self.had.into())
            || total > config.message
            || came != (offset as usize, total, channel)
        {
            return Err(Reject::Fragment);
        }
        if payload.len() == total as usize {
            if further.longest() > config.message as usize {
                return Err(Reject::Fragment);
            }
            let whole = std::iter::once((channel, payload)).chain(further);
            for (channel, bytes) in whole.skip(self.had.into()) {
                if upper.message(peer, channel, bytes) == Verdict::Later {
                    return Ok(Took::HostIsFull);
                }
                (self.message, self.had) = (self.message.wrapping_add(1), self.had + 1);
            }
            self.had = 0;
            return Ok(Took::All);
        }
        if self.assembly.is_none() {
            let mut bytes = Vec::new();
            if *assembling + u64::from(total) > config.assembling
                || bytes.try_reserve_exact(total as usize).is_err()
            {
                return Ok(Took::NoMemory);
            }
            *assembling += u64::from(total);
            self.assembly = Some(Box::new(Assembly { bytes, total, channel }));
        }
        if let Some(assembly) = self.assembly.as_mut() {
            assembly.bytes.extend_from_slice(payload);
            if assembly.is_whole() {
                // Whether the host takes it or not: the piece has been taken.
                self.finish(peer, assembling, upper);
            }
        }
        Ok(Took::All)
    }

    /// Offers a whole message that was put together.
    fn finish(&mut self, peer: u32, assembling: &mut u64, upper: &mut impl Upper) -> bool {
        let Some(assembly) = self.assembly.as_ref() else { return true };
        let taken = upper.message(peer, assembly.channel, &assembly.bytes) == Verdict::Taken;
        if taken {
            *assembling -= u64::from(assembly.total);
            self.assembly = None;
            self.message = self.message.wrapping_add(1);
        }
        taken
    }

    /// Gives memory back that is not in use.
    pub fn cool(&mut self) {
        if self.mask == 0 {
            self.held = None;
        }
    }

    /// Whether [`cool`](Self::cool) would do anything.
    pub fn is_warm(&self) -> bool {
        self.mask == 0 && self.held.is_some()
    }

    /// Forgets everything, and gives back what it had.
    pub fn clear(&mut self, first: u32, shared: &mut Shared) {
        if let Some(held) = self.held.take() {
            held.buffers.into_iter().flatten().for_each(|buffer| shared.buffers.give(buffer));
        }
        if let Some(assembly) = self.assembly.take() {
            shared.assembling -= u64::from(assembly.total);
        }
        *self = Receiving::new(first);
    }

    /// Bytes besides those of the structure.
    pub fn bytes(&self) -> usize {
        let held = self.held.as_ref().map_or(0, |_| size_of::<Held>());
        held + self.assembly.as_ref().map_or(0, |a| size_of::<Assembly>() + a.bytes.capacity())
    }
}

impl Assembly {
    fn is_whole(&self) -> bool {
        self.bytes.len() == self.total as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Took {
    All,
    HostIsFull,
    NoMemory,
}
