//! Units coming in: their places, their streams, and what becomes of those that make no sense.

use super::super::arriving::Arriving;
use super::super::describe::{self, Staging};
use super::super::memory::Block;
use super::super::run::{Job, Outcome};
use super::super::why::fault;
use super::{Attached, MOST_OPEN, Origin, Server};
use crate::am::body::Unit;
use crate::am::buffers::Where;
use crate::am::order::Mark;
use crate::base::{Rank, Result};
use crate::rma::runtime::Fault;

impl Server {
    fn origin(&mut self, origin: Rank) -> &mut Origin {
        self.origins.entry(origin.0).or_default()
    }

    /// A unit begins to arrive; whether it is complete and to be run.
    pub(super) fn unit(&mut self, origin: Rank, unit: Unit<'_>) -> Result<bool, Fault> {
        if unit.place.bytes == 0 {
            let own = self.origins.get_mut(&origin.0);
            let told = own.and_then(|own| own.open.remove(&unit.message));
            self.spent.told(told);
            return Ok(false);
        }
        let own = self.origin(origin);
        let key = (unit.message, unit.unit);
        let total = unit.stream().ok_or(fault(9))?;
        if own.arriving.contains_key(&key) || unit.described as usize > describe::MOST {
            return Err(fault(6));
        }
        // Every message that has begun and not ended costs memory until it does.
        if unit.described > 0
            && !unit.ends
            && own.open.len() >= MOST_OPEN
            && !own.open.contains_key(&unit.message)
        {
            return Err(fault(40));
        }
        // An origin sends one stream at a time, so one description is enough to keep.
        if unit.described > 0 && own.arriving.values().any(|unit| !unit.begun) {
            return Err(fault(42));
        }
        let there = self.buffers.enter(origin.0, unit.place, unit.release);
        let there = there.map_err(|refusal| fault(10 + refusal as u64))?;
        let memory = self.memory(origin, there, unit.place.bytes);
        if memory.is_none() {
            self.done.no_memory += 1;
        }
        self.done.bytes_in = self.done.bytes_in.saturating_add(unit.input);
        let own = self.origin(origin);
        let told = own.open.get(&unit.message).cloned();
        let arriving = Arriving {
            head: Unit { data: &[], ..unit },
            memory,
            description: Vec::new(),
            told: if unit.described == 0 { told } else { None },
            staging: Staging { input: 0, output: 0, counts: 0, bytes: 0 },
            received: 0,
            total,
            begun: false,
            wrong: None,
        };
        own.arriving.insert(key, arriving);
        self.feed(origin, key, unit.data)
    }

    /// The address of a place; nothing if this process has no memory for it.
    fn memory(&mut self, origin: Rank, there: Where, bytes: u64) -> Option<*mut u8> {
        let sizes = self.sizes;
        let (first, offset) = match there {
            Where::Buffer(id, offset) => {
                if Some(id) == self.shared && !self.attached.contains_key(&id) {
                    let block = Block::new("what origins share", sizes.shared).ok()?;
                    let first = block.first();
                    self.attached.insert(id, Attached { first, _block: Some(block) });
                    self.count_system();
                }
                (self.attached.get(&id)?.first, offset)
            }
            Where::System(offset) => {
                let own = self.origin(origin);
                let fresh = own.system.is_none();
                let buffer = block(&mut own.system, "a system buffer", sizes.system)?;
                let first = buffer.at(offset, bytes);
                if fresh {
                    self.count_system();
                }
                return first;
            }
            Where::StandIn(offset) => {
                self.done.stood_in += 1;
                let own = self.origin(origin);
                return block(&mut own.stand_in, "a promised buffer", sizes.promised)?
                    .at(offset, bytes);
            }
        };
        Some(first.wrapping_add(offset as usize))
    }

    fn count_system(&mut self) {
        self.done.system_most = self.done.system_most.max(self.system_bytes());
    }

    /// More of a unit that has begun to arrive; whether it is complete and to be run.
    pub(super) fn more(
        &mut self,
        origin: Rank,
        key: (u64, u32),
        position: u64,
        data: &[u8],
    ) -> Result<bool, Fault> {
        let own = self.origins.get_mut(&origin.0).ok_or(fault(3))?;
        let arriving = own.arriving.get(&key).ok_or(fault(4))?;
        if arriving.received != position {
            return Err(fault(5));
        }
        self.feed(origin, key, data)
    }

    /// The next bytes of a unit's stream; whether it is complete and to be run.
    fn feed(&mut self, origin: Rank, key: (u64, u32), data: &[u8]) -> Result<bool, Fault> {
        let own = self.origins.entry(origin.0).or_default();
        let Some(arriving) = own.arriving.get_mut(&key) else { return Err(fault(4)) };
        let head = arriving.head;
        if data.len() as u64 > arriving.total - arriving.received {
            return Err(fault(9));
        }
        let described = u64::from(head.described);
        let missing = (described - described.min(arriving.received)) as usize;
        let (description, input) = data.split_at(missing.min(data.len()));
        arriving.description.extend_from_slice(description);
        let position = (arriving.received + description.len() as u64).saturating_sub(described);
        arriving.received += data.len() as u64;
        // With the description complete, or none to come, everything can be checked.
        if !arriving.begun && arriving.received >= described {
            arriving.begun = true;
            arriving.wrong = arriving.begin(&self.handlers).err();
            let told = arriving.told.clone().filter(|_| described > 0 && !head.ends);
            let before = told.and_then(|told| own.open.insert(head.message, told));
            self.spent.told(before);
        }
        if head.ends {
            self.spent.told(own.open.remove(&head.message));
        }
        if arriving.wrong.is_none() {
            arriving.put(position as usize, input);
        }
        if arriving.received < arriving.total {
            return Ok(false);
        }
        let Some(arriving) = own.arriving.remove(&key) else { return Err(fault(4)) };
        Ok(self.complete(origin, arriving))
    }

    /// A unit has come: whether it is to be run.
    fn complete(&mut self, origin: Rank, arriving: Arriving) -> bool {
        let Arriving { head, memory, told, staging, wrong, .. } = arriving;
        let first = match (wrong, memory) {
            (None, Some(first)) => first,
            (wrong, _) => {
                let status = wrong.unwrap_or(Arriving::NO_ROOM);
                self.reply(origin, head, told, Outcome::failed(status), std::ptr::null());
                return false;
            }
        };
        let mark =
            Mark { message: head.message, handler: head.handler, at: head.at, span: head.span };
        let job = Job { origin, head, first, told, staging };
        self.queue.push(origin.0, mark, head.concurrent, job);
        true
    }
}

/// The first byte of a buffer, which is made if it is not there.
fn block<'b>(block: &'b mut Option<Block>, what: &'static str, bytes: usize) -> Option<&'b Block> {
    if block.is_none() {
        *block = Block::new(what, bytes).ok();
    }
    block.as_ref()
}
