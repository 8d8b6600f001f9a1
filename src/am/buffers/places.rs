//! Places in spaces: taken by units, left by them, and where they lie.
//!
//! ```text
//!   granted    in its stretch of a buffer          promised    in a stretch carved out of a buffer,
//!   system     in memory of the origin's own                   or in memory that stands in for it
//! ```

use super::{Buffer, BufferId, Buffers, FIRST_GRANTED, Refusal, SYSTEM};
use crate::am::body::Place;
use crate::am::extent::Extents;

/// Memory of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// From this offset on in the origin's system buffer.
    System(u64),
    /// In memory that stands in for what the hint promises, as the attached buffers are lent out.
    StandIn(u64),
    /// In an attached buffer.
    Buffer(BufferId, u64),
}

/// What an origin has without asking.
#[derive(Debug)]
pub(super) struct Private {
    pub system: Extents,
    pub promised: Extents,
    pub carved: Option<Carved>,
}

/// The stretch of an attached buffer in which what was promised lies.
#[derive(Debug)]
pub(super) struct Carved {
    pub buffer: BufferId,
    offset: u64,
    /// Where no unit is staged here.
    free: Extents,
    /// Somebody waits for it, or it is to be detached: what comes is staged in the stand-in.
    leaving: bool,
}

impl Buffers {
    /// A unit takes its place; with `release` it is the last in its space.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`], [`Refusal::Taken`].
    pub fn enter(&mut self, origin: u32, place: Place, release: bool) -> Result<Where, Refusal> {
        let Place { space, position, bytes } = place;
        if space >= FIRST_GRANTED {
            let held = self.spaces.get_mut(&(origin, space)).filter(|held| !held.closing);
            let held = held.ok_or(Refusal::NoSpace)?;
            if !held.free.take_at(position, bytes) {
                return Err(Refusal::Taken);
            }
            held.closing = release;
            return Ok(Where::Buffer(held.buffer, held.offset + position));
        }
        let (system, promised) = (self.system, self.promised);
        let own = self.privates.entry(origin).or_insert_with(|| Private {
            system: Extents::new(system),
            promised: Extents::new(promised),
            carved: None,
        });
        if space == SYSTEM {
            let entered = own.system.take_at(position, bytes);
            return if entered { Ok(Where::System(position)) } else { Err(Refusal::Taken) };
        }
        if !own.promised.take_at(position, bytes) {
            return Err(Refusal::Taken);
        }
        if own.carved.is_none() {
            let waiting = &self.waiting;
            let unwanted = |len: u64| waiting.iter().all(|claim| claim.least > len);
            let usable = |buffer: &Buffer| !buffer.closing && unwanted(buffer.free.len());
            let mut usable = self.buffers.iter_mut().filter(|(_, buffer)| usable(buffer));
            let found = usable.find_map(|(id, buffer)| Some((*id, buffer.free.take(promised)?)));
            own.carved = found.map(|(buffer, offset)| {
                let free = Extents::new(promised);
                Carved { buffer, offset, free, leaving: false }
            });
        }
        Ok(match own.carved.as_mut().filter(|carved| !carved.leaving) {
            Some(carved) => {
                // No other unit is there: `promised` says so.
                carved.free.take_at(position, bytes);
                Where::Buffer(carved.buffer, carved.offset + position)
            }
            None => Where::StandIn(position),
        })
    }

    /// A unit that has entered leaves its place.
    pub fn leave(&mut self, origin: u32, place: Place) {
        let Place { space, position, bytes } = place;
        if space >= FIRST_GRANTED {
            let Some(held) = self.spaces.get_mut(&(origin, space)) else { return };
            held.free.give(position, bytes);
            if held.closing {
                self.close(origin, |number, _| number == space);
            }
            return;
        }
        let Some(own) = self.privates.get_mut(&origin) else { return };
        if space == SYSTEM {
            own.system.give(position, bytes);
            return;
        }
        own.promised.give(position, bytes);
        if let Some(carved) = &mut own.carved {
            carved.free.give(position, bytes);
        }
        self.uncarve(origin);
        self.grant();
    }

    /// Gives the stretch back in which an origin's promise lay, if nothing is in it.
    fn uncarve(&mut self, origin: u32) {
        let Some(own) = self.privates.get_mut(&origin) else { return };
        if let Some(carved) = own.carved.take_if(|carved| carved.free.is_whole()) {
            let buffer = self.buffers.get_mut(&carved.buffer);
            buffer.expect("nothing carved out goes").free.give(carved.offset, self.promised);
        }
    }

    /// Lets promises lie elsewhere from now on that lie in the buffers which `which` picks.
    pub(super) fn leave_carved(&mut self, which: impl Fn(BufferId, u64) -> bool) {
        for carved in self.privates.values_mut().filter_map(|own| own.carved.as_mut()) {
            let len = self.buffers.get(&carved.buffer).map_or(0, |buffer| buffer.free.len());
            carved.leaving |= which(carved.buffer, len);
        }
    }

    /// Whether an origin has nothing in its system buffer and its stand-in.
    pub fn is_idle(&self, origin: u32) -> bool {
        let own = self.privates.get(&origin);
        own.is_none_or(|own| own.system.is_whole() && own.promised.is_whole())
    }
}
