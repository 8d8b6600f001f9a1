//! Reading each other's data where they lie: data in the node's memory (windows, what the
//! symmetric heap has given out) need not be copied into pieces first.
//!
//! Members tell each other addresses, and everybody draws the same conclusion from them. A member
//! only ever reads others' data and writes its own: one that gives up and goes on with its
//! buffers then has nothing written into them. What it writes meanwhile, others may read; they
//! learn at the next step that the call has failed.

use super::board::Value;
use super::core::Core;
use super::step::Course;
use crate::base::{Error, Result, Slot};
use crate::shm::copy::opaque_copy;

impl Core {
    /// Where data lie in the node's memory, plus 1; 0 if they do not.
    fn address_of(&self, data: &[u8]) -> u64 {
        let node = &self.block.node;
        let heap = node.areas().heap(Slot(0)).0;
        if data.is_empty() {
            return heap + 1;
        }
        let base = node.mapping().base().as_ptr().addr();
        let start = data.as_ptr().addr().checked_sub(base).map(|start| start as u64);
        match start {
            Some(start) if self.may_read(start, data.len()) => start + 1,
            _ => 0,
        }
    }

    /// Whether a range lies among what the heap gives out.
    fn may_read(&self, start: u64, len: usize) -> bool {
        let node = &self.block.node;
        let end = start.checked_add(len as u64);
        start >= node.areas().heap(Slot(0)).0
            && end.is_some_and(|end| end <= node.mapping().length())
    }

    /// Copies what lies at an address that a member told.
    pub fn fetch(&self, address: u64, at: usize, into: &mut [u8]) -> Result<()> {
        let start = address.wrapping_sub(1).saturating_add(at as u64);
        if !self.may_read(start, into.len()) {
            return Err(Error::Incompatible {
                what: "an address in a collective",
                why: format!("{} bytes at {start} lie outside the heaps", into.len()),
            });
        }
        let base = self.block.node.mapping().base();
        // SAFETY: the range lies in the mapping, which the node keeps; `into` is this process's
        // own and does not overlap: nobody's data are another's. The copy is opaque, so that a
        // member that writes there after giving up makes bytes wrong, not the program.
        unsafe { opaque_copy(into.as_mut_ptr(), base.as_ptr().add(start as usize), into.len()) };
        Ok(())
    }
}

impl Course<'_> {
    /// Everybody's address of their `data`, if all whose `counts` is true have one; nobody may
    /// read `None`.
    pub async fn addresses(
        &self,
        data: Option<&[u8]>,
        counts: impl Fn(u32) -> bool,
    ) -> Result<Option<Vec<u64>>> {
        let mine = data.map_or(0, |data| self.core().address_of(data));
        let mine = Value::default().with_word(0, mine);
        let mut all = Vec::with_capacity(self.size() as usize);
        self.exchange(&mine, 8, |_, value| all.push(value.word(0))).await?;
        let everybody = (0u32..).zip(&all).all(|(rank, address)| !counts(rank) || *address != 0);
        Ok(everybody.then_some(all))
    }
}
