//! Dynamic windows: their owners attach and detach memory while others use it.
//!
//! ```text
//!   PartInfo of the owner          table in the commons, ordered by address
//!   +---------------------+        +---------------+------------------------------+
//!   | attached (SeqWord)  |   +--> | address: u64  | bytes: u63, mapped: 1 bit    |
//!   | table  -------------+---+    | ...           |                              |
//!   | count               |        +---------------+------------------------------+
//!   +---------------------+
//! ```
//! Displacements are addresses in the owner's process; of shared memory they are the same in every
//! process of the node. An origin looks its range up in the target's table: a search of log n
//! steps in lines that change only when the owner attaches or detaches, checked by the sequence
//! word. Only the owner changes its table, one thread at a time. A table that gets full is copied
//! to one of twice the size; readers of the old one notice by the sequence word.
//!
//! An operation that is carried out while its target detaches that memory is an error of the
//! program, as in MPI; it finds the memory that was there, or what came to lie there.

use super::place::{Parts, Place, Span, misaligned};
use crate::base::sync::{AtomicU64, Ordering, yield_now};
use crate::base::{Error, Offset, Rank, Result};
use crate::layout::Datum;
use crate::rma::block::{PartInfo, WindowBlock};
use crate::rma::core::Core;
use crate::rma::memory::{Memory, Region, stride_of};
use crate::rma::remote::OwnPart;
use crate::rma::window::Window;
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::{SharedLayout, locate};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Memory that is attached to a dynamic window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attached {
    /// Address of its first byte: the displacement of its first element. A plain number, to be
    /// sent to other ranks.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// One attachment, in the shared table.
#[repr(C)]
struct Row {
    address: AtomicU64,
    /// [`MAPPED`] and the number of bytes.
    extent: AtomicU64,
}

// SAFETY: repr(C) of atomics.
unsafe impl SharedLayout for Row {}

const ROW: u64 = size_of::<Row>() as u64;
const _: () = assert!(ROW == 16);
/// Others have the memory mapped.
const MAPPED: u64 = 1 << 63;

/// A row by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    address: u64,
    bytes: u64,
    mapped: bool,
}

impl Row {
    fn read(&self) -> Entry {
        let extent = self.extent.load(Ordering::Relaxed);
        let address = self.address.load(Ordering::Relaxed);
        Entry { address, bytes: extent & !MAPPED, mapped: extent & MAPPED != 0 }
    }

    fn fill(&self, entry: Entry) {
        self.address.store(entry.address, Ordering::Relaxed);
        let mapped = if entry.mapped { MAPPED } else { 0 };
        self.extent.store(entry.bytes | mapped, Ordering::Relaxed);
    }
}

/// The rows at `table`, as many as its owner says there are, if they lie in the segment.
fn rows(node: &Node, table: u64, count: u64) -> Option<&[Row]> {
    let length = count.checked_mul(ROW)?;
    if table == 0 || count == 0 {
        return (count == 0).then_some(&[]);
    }
    let first = locate(node.mapping(), Offset(table), length, ROW).ok()?;
    // SAFETY: `locate` checked that `count` aligned rows lie in the mapping, which the node keeps;
    // rows are atomics, so any bytes are valid and others may write them.
    Some(unsafe { std::slice::from_raw_parts(first.cast().as_ptr(), count as usize) })
}

/// Looks for the attachment that the `bytes` bytes at `address` lie in.
fn search(rows: &[Row], address: u64, bytes: u64) -> Option<Entry> {
    let after = rows.partition_point(|row| row.address.load(Ordering::Relaxed) <= address);
    let entry = rows.get(after.checked_sub(1)?)?.read();
    let inside = address - entry.address.min(address);
    inside.checked_add(bytes).is_some_and(|end| end <= entry.bytes).then_some(entry)
}

impl PartInfo {
    /// The attachment that a range lies in. `None` if the table is being changed.
    fn look_up(&self, node: &Node, address: u64, bytes: u64) -> Option<Option<Entry>> {
        self.attached.read(|| {
            let table = self.table.load(Ordering::Relaxed);
            let count = self.count.load(Ordering::Relaxed);
            search(rows(node, table, count)?, address, bytes)
        })
    }
}

impl Core {
    /// [`Core::place_span`] for a dynamic window.
    pub(super) fn place_attached(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        span: Span,
    ) -> Result<Place<u8>> {
        let team = &self.block.team;
        let slot = team.slot_of(target)?;
        let node = team.node();
        if !node.is_local(slot) {
            return place_elsewhere(what, target, start, span);
        }
        let info = self.block.info(target.0);
        let from = start.checked_add_signed(span.lower);
        let to = start.checked_add_signed(span.upper);
        let (Some(from), Some(bytes)) = (from, from.zip(to).and_then(|(f, t)| t.checked_sub(f)))
        else {
            return Err(not_attached(what, target, start as u64, 0));
        };
        let deadline = team.deadline();
        let mut turns = 0u32;
        let found = loop {
            if let Some(found) = info.look_up(node, from as u64, bytes as u64) {
                break found;
            }
            turns += 1;
            if turns.is_multiple_of(64) {
                yield_now();
                // A table that stays half-changed is a dead owner's.
                node.check(std::iter::once(slot), what)?;
                if deadline.passed() {
                    return Err(Error::TimedOut {
                        during: what,
                        waited: deadline.waited(),
                        missing: vec![node.rank_of(slot)],
                    });
                }
            }
        };
        let Some(entry) = found else {
            return Err(not_attached(what, target, from as u64, bytes as u64));
        };
        if !start.is_multiple_of(span.align) {
            return Err(misaligned(what, start, 1, span.align));
        }
        // The owner too reaches its private memory by packets only: those hold it attached while
        // they use it, so that no other thread can detach and free it meanwhile; and they trust
        // the owner's own list, not the shared table.
        if self.packets || !entry.mapped {
            return Ok(Place::Away(start as u64));
        }
        let base = node.mapping().base();
        let offset = (from as u64).wrapping_sub(base.addr().get() as u64);
        // In the segment, whatever the table says.
        locate(node.mapping(), Offset(offset), bytes as u64, 1)?;
        Ok(Place::Here(base.as_ptr().with_addr(start)))
    }
}

/// Where a range is whose table is in another node's memory: its owner says whether it is attached,
/// where the operation is carried out.
fn place_elsewhere(
    what: &'static str,
    target: Rank,
    start: usize,
    span: Span,
) -> Result<Place<u8>> {
    let ends = start.checked_add_signed(span.lower).zip(start.checked_add_signed(span.upper));
    if ends.is_none() {
        return Err(not_attached(what, target, start as u64, 0));
    }
    if !start.is_multiple_of(span.align) {
        return Err(misaligned(what, start, 1, span.align));
    }
    Ok(Place::Away(start as u64))
}

/// What this process has attached to a dynamic window.
#[derive(Debug)]
pub(crate) struct Attachments {
    held: RwLock<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// By address.
    regions: BTreeMap<u64, Region>,
    /// Where the table lies, and the rows that it has room for: what others may have written
    /// over is not asked for it.
    table: u64,
    room: u64,
}

impl Attachments {
    pub(super) fn new() -> Attachments {
        Attachments { held: RwLock::default() }
    }

    fn attach(&self, block: &WindowBlock, region: &Region) -> Result<Attached> {
        const WHAT: &str = "Window::attach";
        let node = block.team.node();
        let (address, bytes) = (region.first.addr().get() as u64, region.bytes as u64);
        if bytes == 0 {
            return Err(Error::invalid(WHAT, "the memory has no bytes; attach some that has"));
        }
        let offset = region.offset_in(node)?;
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let before = held.regions.range(..address + bytes).next_back();
        if let Some((other, there)) = before.filter(|(other, r)| *other + r.bytes as u64 > address)
        {
            let why = format!(
                "{bytes} bytes at {address:#x} overlap the {} bytes at {other:#x} that are \
                 attached; detach those first",
                there.bytes
            );
            return Err(Error::Misuse { what: WHAT, why });
        }
        if let Some(offset) = offset {
            node.add_use(stride_of(node, offset)?, &block.holding)?;
        }
        let entry = Entry { address, bytes, mapped: offset.is_some() };
        if let Err(error) = insert(block, &mut held, entry) {
            if let Some(offset) = offset {
                node.end_use(stride_of(node, offset)?, &block.holding)?;
            }
            return Err(error);
        }
        held.regions.insert(address, region.clone());
        Ok(Attached { address, bytes })
    }

    fn detach(&self, block: &WindowBlock, attached: Attached) -> Result<()> {
        let node = block.team.node();
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let there = held.regions.get(&attached.address);
        if there.is_none_or(|region| region.bytes as u64 != attached.bytes) {
            let why = format!(
                "no {} bytes at {:#x} are attached; detach what was attached, once",
                attached.bytes, attached.address
            );
            return Err(Error::Misuse { what: "Window::detach", why });
        }
        remove(node, block.info(block.team.rank().0), &held, attached.address);
        let Some(region) = held.regions.remove(&attached.address) else { return Ok(()) };
        match region.offset_in(node)? {
            None => Ok(()),
            Some(offset) => node.end_use(stride_of(node, offset)?, &block.holding),
        }
    }
}

impl OwnPart for Attachments {
    /// Detaching waits until the operation is over.
    fn with(&self, at: u64, bytes: u64, run: &mut dyn FnMut(*mut u8)) -> Result<(), u64> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let Some((start, region)) = held.regions.range(..=at).next_back() else { return Err(0) };
        let inside = at - start;
        if inside.checked_add(bytes).is_none_or(|end| end > region.bytes as u64) {
            return Err(0);
        }
        // Inside of the region, which the lock keeps attached.
        run(region.first.as_ptr().wrapping_add(inside as usize));
        Ok(())
    }

    /// Others come and go.
    fn whole(&self) -> Option<(std::ptr::NonNull<u8>, usize)> {
        None
    }
}

/// Rows of a table that holds at least `count`: a page of them, or a power of two more.
fn room_for(count: u64) -> u64 {
    (count.max(1) * ROW).next_power_of_two().max(PAGE) / ROW
}

/// Puts `entry` into this process's own table, of which `held` tells.
fn insert(block: &WindowBlock, held: &mut Held, entry: Entry) -> Result<()> {
    let (node, info) = (block.team.node(), block.info(block.team.rank().0));
    let count = held.regions.len() as u64;
    let shared = |table, count| rows(node, table, count).ok_or_else(damaged);
    if count >= held.room {
        let table = held.table;
        let length = room_for(count + 1) * ROW;
        // It belongs to the window, whose others may read it when this process is gone.
        let fresh = node.alloc_part(&block.holding, length)?;
        let filled = node.reserve(fresh, length, "a table of attachments").and_then(|()| {
            let (from, to) = (shared(table, count)?, shared(fresh.0, count)?);
            from.iter().zip(to).for_each(|(from, to)| to.fill(from.read()));
            Ok(())
        });
        if let Err(error) = filled {
            let _ = node.free_part(fresh);
            return Err(error);
        }
        info.attached.write(|| info.table.store(fresh.0, Ordering::Relaxed));
        (held.table, held.room) = (fresh.0, length / ROW);
        if table != 0 {
            node.free_part(Offset(table))?;
        }
    }
    let rows = shared(held.table, count + 1)?;
    let at = position(&rows[..count as usize], entry.address);
    info.attached.write(|| {
        info.count.store(count + 1, Ordering::Relaxed);
        for i in (at..count as usize).rev() {
            rows[i + 1].fill(rows[i].read());
        }
        rows[at].fill(entry);
    });
    Ok(())
}

/// The first row at or behind an address.
fn position(rows: &[Row], address: u64) -> usize {
    rows.partition_point(|row| row.address.load(Ordering::Relaxed) < address)
}

/// Takes the row of an address out of this process's own table.
fn remove(node: &Node, info: &PartInfo, held: &Held, address: u64) {
    let count = held.regions.len() as u64;
    let Some(rows) = rows(node, held.table, count) else { return };
    let at = position(rows, address);
    if rows.get(at).is_none_or(|row| row.read().address != address) {
        return;
    }
    info.attached.write(|| {
        for i in at + 1..rows.len() {
            rows[i - 1].fill(rows[i].read());
        }
        rows[rows.len() - 1].fill(Entry { address: 0, bytes: 0, mapped: false });
        info.count.store(count - 1, Ordering::Relaxed);
    });
}

impl<T: Datum> Window<T> {
    /// Attaches memory to this rank's part of a dynamic window, which keeps it until
    /// [`Window::detach`] or until the window is gone. Not collective; any number may be attached.
    ///
    /// Others reach element `i` by the displacement `address + i * size_of T`. Cost: the lock of
    /// the symmetric heap for shared memory; moving the rows behind it in the table.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the window is not dynamic, or the memory overlaps what is attached;
    /// [`Error::InvalidArgument`] for no bytes; [`Error::OutOfMemory`]; [`Error::Exhausted`] if the node
    /// has thousands of allocations and uses of shared memory by windows already.
    pub fn attach<U: Datum>(&self, memory: &Memory<U>) -> Result<Attached> {
        let region = memory.region();
        self.attachments("Window::attach")?.attach(&self.core().block, region)
    }

    /// Detaches what [`Window::attach`] attached. Operations by packets that are being carried out
    /// on it are waited for; that no others come is up to the program.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is not attached.
    pub fn detach(&self, attached: Attached) -> Result<()> {
        self.attachments("Window::detach")?.detach(&self.core().block, attached)
    }

    fn attachments(&self, what: &'static str) -> Result<&Arc<Attachments>> {
        match &self.core().parts {
            Parts::Dynamic(attachments) => Ok(attachments),
            _ => Err(Error::Misuse {
                what,
                why: "only dynamic windows can do that; make one with WindowBuilder::dynamic"
                    .into(),
            }),
        }
    }
}

#[cold]
fn not_attached(what: &'static str, target: Rank, address: u64, bytes: u64) -> Error {
    let why = format!(
        "{bytes} bytes at {address:#x} are not inside of one piece of memory that rank {target} has \
         attached; attach it first, and use its address as displacement"
    );
    Error::invalid(what, why)
}

#[cold]
fn damaged() -> Error {
    Error::Incompatible {
        what: "a table of attachments",
        why: "some process has overwritten it; end the job".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(entries: &[(u64, u64)]) -> Vec<Row> {
        let row = |&(address, extent): &(u64, u64)| Row {
            address: AtomicU64::new(address),
            extent: AtomicU64::new(extent),
        };
        entries.iter().map(row).collect()
    }

    #[test]
    fn ranges_are_found_in_one_attachment_only() {
        let rows = table(&[(100, 10), (110, 10), (1 << 40, 8 | MAPPED)]);
        assert_eq!(search(&rows, 100, 10).map(|e| e.address), Some(100));
        assert_eq!(search(&rows, 105, 6), None, "it reaches into the next one");
        assert_eq!(search(&rows, 110, 10).map(|e| e.address), Some(110));
        assert_eq!(search(&rows, 99, 1), None);
        assert_eq!(search(&rows, u64::MAX, u64::MAX), None);
        assert!(search(&rows, 1 << 40, 8).is_some_and(|e| e.mapped));
        assert_eq!(search(&[], 5, 0), None);
    }

    #[test]
    fn tables_double() {
        assert_eq!(room_for(0), 256);
        assert_eq!(room_for(256), 256);
        assert_eq!(room_for(257), 512);
        assert_eq!(room_for(513), 1024);
    }

    proptest! {
        #[test]
        fn agrees_with_a_search_of_all(
            gaps in prop::collection::vec((0u64..20, 1u64..20), 0..40),
            address in 0u64..900,
            bytes in 0u64..30,
        ) {
            let mut at = 0;
            let mut all = Vec::new();
            for (gap, bytes) in gaps {
                all.push((at + gap, bytes));
                at += gap + bytes;
            }
            let inside = |&&(start, len): &&(u64, u64)| {
                start <= address && address + bytes <= start + len
            };
            // The last of them: an empty range at a border lies in two.
            let want = all.iter().rfind(inside).map(|entry| entry.0);
            let got = search(&table(&all), address, bytes).map(|entry| entry.address);
            // An empty range at the end of one, with another behind it that does not begin there.
            prop_assert_eq!(got, want);
        }
    }
}
