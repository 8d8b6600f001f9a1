//! Reading each other's data where they lie: data in the node's memory (windows, what the
//! symmetric heap has given out) need not be copied into pieces first, nor private data that the
//! kernel copies from one process to another, where that is faster (see [`ways`](super::ways)).
//!
//! ```text
//! word 0 of a member's board    0: nobody may read;  address + 1;  PRIVATE | address
//! word 1                        whether the kernel copies from all other members for this one
//! words 2, 3                    what it knows of which way is faster
//! ```
//! Members tell each other addresses, and everybody draws the same conclusion from them. A member
//! only ever reads others' data and writes its own: one that gives up and goes on with its
//! buffers then has nothing written into them. What it writes meanwhile, others may read; they
//! learn at the next step that the call has failed.

use super::board::Value;
use super::core::Core;
use super::step::Course;
use super::ways::{Kind, Known, Timed, Way};
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot};
use crate::p2p::{read_private, reads_private, wants_kernel};
use crate::shm::copy::opaque_copy;

/// In what members tell each other: an address of the member's own.
const PRIVATE: u64 = 1 << 63;

/// Whether the kernel copies.
pub(super) const NEVER: u64 = 0;
const IF_FASTER: u64 = 1;
const ALWAYS: u64 = 2;

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

    /// Whether the kernel copies what the other members' private memory has, for this one: [`NEVER`],
    /// [`IF_FASTER`], [`ALWAYS`]. Not between ranks of one process: a member that gives up frees what another
    /// thread would read.
    fn by_kernel(&self) -> Result<u64> {
        let found = self.by_kernel.load(Ordering::Relaxed);
        if found != NEVER {
            return Ok(found);
        }
        let node = &self.block.node;
        let others = (0..self.block.size).filter(|rank| *rank != self.rank);
        let others: Result<Vec<Slot>> = others.map(|rank| self.block.member(rank)).collect();
        let found = match (reads_private(node, &others?)?, wants_kernel(node)?) {
            (false, _) | (_, Some(false)) => NEVER,
            (true, None) => IF_FASTER,
            (true, Some(true)) => ALWAYS,
        };
        self.by_kernel.store(found, Ordering::Relaxed);
        Ok(found)
    }

    /// Copies what lies at an address that member `rank` told. Private data: a system call for
    /// each MiB.
    pub fn fetch(&self, rank: u32, address: u64, at: usize, into: &mut [u8]) -> Result<()> {
        if address & PRIVATE != 0 {
            let start = (address & !PRIVATE).saturating_add(at as u64);
            return read_private(&self.block.node, self.block.member(rank)?, start, into);
        }
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
    /// As [`Course::addresses`], of private data too.
    /// Nothing also where the kernel would have to copy, but this call of its kind is to go by pieces. Then, or if
    /// the kernel does copy, the second that is returned is to be kept until the call is over.
    pub async fn sources(
        &self,
        kind: Kind,
        data: Option<&[u8]>,
        counts: impl Fn(u32) -> bool,
    ) -> Result<(Option<Vec<u64>>, Option<Timed<'_>>)> {
        let mapped = data.map_or(0, |data| self.core().address_of(data));
        let private = data.map_or(0, |data| data.as_ptr().addr() as u64 | PRIVATE);
        let mine = if mapped == 0 { private } else { mapped };
        let ways = &self.core().ways;
        let [calls, times] = ways.known(kind).to_words();
        let mine = Value::default()
            .with_word(0, mine)
            .with_word(1, self.core().by_kernel()?)
            .with_word(2, calls)
            .with_word(3, times);
        let mut all = Vec::with_capacity(self.size() as usize);
        let (mut least, mut most) = (ALWAYS, NEVER);
        let mut known = Known::default();
        self.exchange(&mine, 32, |_, value| {
            all.push(value.word(0));
            (least, most) = (least.min(value.word(1)), most.max(value.word(1)));
            known = known.join(Known::from_words([value.word(2), value.word(3)]));
        })
        .await?;
        let mut told = (0u32..).zip(&all).filter(|(rank, _)| counts(*rank));
        let readable = |address: u64| address != 0 && (least != NEVER || address & PRIVATE == 0);
        if !told.clone().all(|(_, at)| readable(*at)) {
            return Ok((None, None));
        }
        if !told.any(|(_, at)| at & PRIVATE != 0) || most == ALWAYS {
            return Ok((Some(all), None));
        }
        let way = known.next();
        let timed = ways.time(kind, known.calls, way);
        Ok(((way == Way::Kernel).then_some(all), Some(timed)))
    }

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
