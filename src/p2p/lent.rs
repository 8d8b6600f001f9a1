//! Messages of middle size between processes of a node: in buffers of the *sender's* in the node's memory,
//! lent to the receiver with the message that names them.
//!
//! ```text
//!  sender                                     receiver
//!    takes a buffer, copies in; LENT -------> match; copy out
//!    the oldest lent one is back? that one <- word = 0: the buffer is the sender's again
//!    none? another; no more? announced, or in the message itself
//!
//!  a buffer    line 0    word (see `words::Lent`), note (see `middle`)
//!              line 1..  data
//! ```
//! Beside data in the message itself this is a copy less, for there they lie between tags, and lanes are
//! short; beside a copy by the kernel both sides copy, each its message, without a system call; and the sender
//! needs nothing more of its receiver. Data that both have mapped are not sent so: the receiver copies them
//! once.
//!
//! There are as many buffers of a size as were lent at a time, up to a limit. They take turns, oldest first,
//! as long as they are no more than [`TURNS`] bytes: one that was just emptied is still in the other core's
//! own cache, and written to only after that has let it go (which takes twice as long as memory that neither
//! has near); more of them would leave the caches altogether. What is beyond that waits until it is needed.
//!
//! A locked instruction behind a copy waits until all that it has written has reached the cache, line by line. So
//! the locks of the shelves cost their usual thread none, nor does a loan.
//!
//! A block of buffers is the job's until its sender leaves and has all of it back: a receiver may still copy
//! out when the sender has died. Buffers of a receiver that has died are the sender's again.

use super::lead::Lead;
use super::middle::{Timed, Turns, Verdict, Way};
use super::words::Lent;
use crate::base::filling::{self, Filled, Filling, Manner, Stores};
use crate::base::sync::{AtomicU64, Ordering, spin_hint};
use crate::base::{Offset, Slot};
use crate::link::biased::{Biased, Guard};
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::locate;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sizes of buffers: powers of two from 4 to 512 KiB.
const SMALLEST: usize = 12;
pub(super) const CLASSES: usize = 8;
/// Most bytes of such a message.
pub(super) const MOST: usize = 1 << (SMALLEST + CLASSES - 1);
/// Up to so many bytes they may be one by itself; larger ones are lent only where they follow each other.
pub(super) const SINGLE: usize = 64 << 10;
/// Up to so many bytes they travel in the message as fast.
pub(super) const FEW: usize = 1024;
/// Bytes before the data.
pub(super) const HEAD: usize = 64;
/// Bytes of the buffers of a size, at most. An endpoint that is not the process's has an eighth.
const BYTES: [usize; CLASSES] =
    [2 << 20, 2 << 20, 2 << 20, 2 << 20, 4 << 20, 4 << 20, 4 << 20, 4 << 20];
/// Messages between two looks from which on it is worth while to have many buffers take turns.
const HOT: u32 = 64;
/// Bytes of buffers that take turns: more than a core's own cache holds. (On one with 1 MiB of it 64 KiB went at 15 GB/s
/// through half as many, and at 33 through these.)
const TURNS: usize = 2 << 20;
/// But no fewer buffers.
const FEWEST: usize = 4;
/// Which part of these a sender waits for, and the longest that copying so many bytes takes.
const WAITED: usize = 4;
const SLOW: usize = 4 << 10;
const SLOWEST: Duration = Duration::from_nanos(256);
/// Pauses between two looks.
const LOOK: u32 = 4;
/// Bytes of buffers that are made at a time, at least.
const LEAST: usize = 64 << 10;
/// Searches in vain between two that look at more than the oldest buffer.
const VAIN: u32 = 16;
/// Looks without a message in between after which memory is given back.
const QUIET: u32 = 8;

#[inline]
pub(super) fn class_of(len: usize) -> usize {
    let exponent = (usize::BITS - len.saturating_sub(1).leading_zeros()) as usize;
    exponent.saturating_sub(SMALLEST).min(CLASSES - 1)
}

fn size_of(class: usize) -> usize {
    1 << (SMALLEST + class)
}

/// Bytes from one buffer to the next: never a power of two, or all would lie in the same sets of the caches.
fn stride_of(class: usize) -> usize {
    size_of(class) + 3 * HEAD
}

/// A process's buffers.
pub(super) struct Lending {
    shelves: [Biased<Shelf>; CLASSES],
    share: usize,
    /// Bytes of blocks that may still be made.
    left: AtomicU64,
}

impl std::fmt::Debug for Lending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lending").field("share", &self.share).finish_non_exhaustive()
    }
}

/// Those of one size.
#[derive(Debug)]
struct Shelf {
    blocks: Vec<Block>,
    /// Buffers of all that are present.
    made: usize,
    /// Buffers that are not lent, beyond those that take turns; the one used last is the last.
    spare: Vec<u64>,
    /// To whom it was lent, oldest first; some are back.
    lent: VecDeque<(u64, Slot)>,
    vain: u32,
    lead: Lead,
    /// Messages in all.
    sent: u64,
    /// Messages since the last look, and looks since the last message.
    takes: u32,
    quiet: u32,
    /// Which way such messages go, where that is found out.
    turns: Turns,
    /// By which stores they are filled.
    filling: Filling,
}

/// Buffers that were made together.
#[derive(Debug)]
struct Block {
    at: Offset,
    len: u64,
    many: usize,
    /// Whether it has pages; if not, its buffers are none.
    present: bool,
}

fn word(node: &Node, at: u64) -> Option<Lent<'_>> {
    let at = locate(node.mapping(), Offset(at), 8, HEAD as u64).ok()?;
    // SAFETY: located, aligned, an atomic of any bits; the mapping lives as long as the node.
    Some(Lent(unsafe { at.cast::<AtomicU64>().as_ref() }))
}

/// What its two sides tell each other of how long its message takes.
fn note(node: &Node, at: u64) -> Option<&AtomicU64> {
    let at = locate(node.mapping(), Offset(at.checked_add(8)?), 8, 8).ok()?;
    // SAFETY: located, aligned, an atomic of any bits; the mapping lives as long as the node.
    Some(unsafe { at.cast::<AtomicU64>().as_ref() })
}

fn is_back(node: &Node, at: u64) -> bool {
    word(node, at).is_some_and(|word| word.is_back())
}

impl Shelf {
    fn new(stores: Stores) -> Shelf {
        Shelf {
            blocks: Vec::new(),
            made: 0,
            spare: Vec::new(),
            lent: VecDeque::new(),
            vain: 0,
            lead: Lead::default(),
            sent: 0,
            takes: 0,
            quiet: 0,
            turns: Turns::default(),
            filling: Filling::new(stores, filling::IN_TURN),
        }
    }

    /// A buffer that is not lent.
    fn take(&mut self, node: &Node, class: usize, all: &Lending) -> Option<(u64, Manner)> {
        let at = self.buffer(node, class, all)?;
        Some((at, self.filling.next(size_of(class))))
    }

    fn buffer(&mut self, node: &Node, class: usize, all: &Lending) -> Option<u64> {
        (self.quiet, self.takes) = (0, self.takes.saturating_add(1));
        let turns = all.turns(class);
        if self.takes > HOT && self.lent.len() * size_of(class) < turns {
            if self.spare.is_empty() {
                self.grow(node, class, turns, all);
            }
            if let Some(at) = self.spare.pop() {
                return Some(at);
            }
        }
        if let Some(at) = self.oldest(node) {
            self.vain = 0;
            if self.lent.len() * size_of(class) > turns
                && let Some(more) = self.oldest(node)
            {
                self.spare.push(more);
            }
            return Some(at);
        }
        if self.spare.is_empty() {
            // As many again: blocks are few.
            let twice = 2 * self.made * size_of(class);
            self.grow(node, class, twice, all);
        }
        if let Some(at) = self.spare.pop() {
            return Some(at);
        }
        self.vain = self.vain.wrapping_add(1);
        if self.vain % VAIN == 1 {
            // The oldest one may lie with a message that nobody asks for.
            self.reclaim(|at, _| is_back(node, at));
        }
        self.spare.pop()
    }

    fn oldest(&mut self, node: &Node) -> Option<u64> {
        let back = self.lent.front().is_some_and(|(at, _)| is_back(node, *at));
        let at = if back { self.lent.pop_front().map(|(at, _)| at) } else { None }?;
        let note = note(node, at).map_or(0, |note| note.load(Ordering::Relaxed));
        Verdict::read(note).into_iter().for_each(|verdict| self.turns.note(verdict));
        Some(at)
    }

    /// Which way the next message goes.
    fn way(&mut self, node: &Node) -> Way {
        if self.turns.is_curious()
            && let Some(at) = self.oldest(node)
        {
            self.spare.push(at);
        }
        self.turns.next()
    }

    /// Makes those spare that `which` says.
    fn reclaim(&mut self, which: impl Fn(u64, Slot) -> bool) {
        let spare = &mut self.spare;
        self.lent.retain(|(at, to)| {
            let reclaimed = which(*at, *to);
            if reclaimed {
                spare.push(*at);
            }
            !reclaimed
        });
    }

    /// Makes more, until they have so many bytes, but at least one, if there may be more. Who gets none has
    /// another way.
    fn grow(&mut self, node: &Node, class: usize, until: usize, all: &Lending) {
        let (size, stride) = (size_of(class), stride_of(class));
        let left = all.left.load(Ordering::Relaxed) as usize / stride;
        let room = (BYTES[class] / all.share / size).saturating_sub(self.made).min(left);
        let many = (until / size).saturating_sub(self.made).max((LEAST / size).max(1)).min(room);
        if many == 0 {
            return;
        }
        let absent = self.blocks.iter().position(|block| !block.present && block.many <= room);
        let absent = absent.map(|at| self.blocks.swap_remove(at));
        let block = absent.or_else(|| {
            let len = ((many * stride) as u64).next_multiple_of(PAGE);
            let at = node.alloc_for_job(len).ok()?;
            Some(Block { at, len, many, present: false })
        });
        let Some(mut block) = block else { return };
        if all.spend(block.len) {
            block.present = node.reserve(block.at, block.len, "buffers for messages").is_ok();
            if !block.present {
                all.regain(block.len);
            }
        }
        if block.present {
            node.warm(block.at, block.len);
            self.made += block.many;
            self.spare.extend((0..block.many).map(|i| block.at.0 + (i * stride) as u64));
        }
        self.blocks.push(block);
    }

    /// Has the buffers of those blocks go of which all are here: which blocks that are.
    fn empty(&mut self, node: &Node) -> Vec<Offset> {
        self.reclaim(|at, _| is_back(node, at));
        let spare = &mut self.spare;
        let mut emptied = Vec::new();
        for block in self.blocks.iter_mut().filter(|block| block.present) {
            let inside = |at: &u64| (block.at.0..block.at.0 + block.len).contains(at);
            if spare.iter().filter(|at| inside(at)).count() == block.many {
                spare.retain(|at| !inside(at));
                self.made -= block.many;
                block.present = false;
                emptied.push(block.at);
            }
        }
        emptied
    }

    /// Gives the pages of blocks back of which all buffers are here.
    fn rest(&mut self, node: &Node, all: &Lending) {
        let emptied = self.empty(node);
        for block in self.blocks.iter().filter(|block| emptied.contains(&block.at)) {
            node.release(block.at, block.len);
            all.regain(block.len);
        }
    }

    /// Frees such blocks.
    fn leave(&mut self, node: &Node, all: &Lending) {
        let emptied = self.empty(node);
        let gone = self.blocks.iter().filter(|block| emptied.contains(&block.at));
        all.regain(gone.map(|block| block.len).sum());
        let (gone, kept) = std::mem::take(&mut self.blocks).into_iter().partition(|it| !it.present);
        self.blocks = kept;
        // One that cannot be freed stays until the job ends.
        Vec::into_iter(gone).for_each(|block: Block| drop(node.free_part(block.at)));
    }
}

impl Lending {
    /// For the process's endpoint, or for another one; so many bytes at most.
    pub fn new(own: bool, bytes: u64, stores: Stores) -> Lending {
        let share = if own { 1 } else { 8 };
        let shelves = std::array::from_fn(|_| Biased::new(Shelf::new(stores)));
        Lending { shelves, share, left: AtomicU64::new(bytes / share as u64) }
    }

    /// Bytes of the buffers of a size that take turns.
    fn turns(&self, class: usize) -> usize {
        (TURNS / self.share).max(FEWEST * size_of(class))
    }

    /// Counts a block that is about to be made, if it may be.
    fn spend(&self, bytes: u64) -> bool {
        let (relaxed, spent) = (Ordering::Relaxed, |left: u64| left.checked_sub(bytes));
        self.left.try_update(relaxed, relaxed, spent).is_ok()
    }

    fn regain(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }

    #[inline]
    fn shelf(&self, class: usize) -> Guard<'_, Shelf> {
        self.shelves[class].lock()
    }

    /// Whether messages of a size follow each other before they are over: `others` says whether some are under way that
    /// went otherwise.
    pub fn flows(&self, node: &Node, class: usize, others: impl FnOnce() -> bool) -> bool {
        let last = self.shelf(class).lent.back().copied();
        // Asked without the shelf's lock, as it may take others.
        let under_way = last.is_some_and(|(at, _)| !is_back(node, at)) || others();
        self.shelf(class).lead.flows(under_way)
    }

    /// Waits for some of those that are lent, if it is as many as take turns. A short time at most: see
    /// [`lead`](super::lead).
    pub fn await_some(&self, node: &Node, class: usize) {
        let mut shelf = self.shelf(class);
        let many = self.turns(class) / size_of(class);
        let ahead = shelf.takes > HOT && shelf.lent.len() >= many;
        let oldest = |shelf: &Shelf, i| shelf.lent.get(i).map(|(at, _)| *at);
        if !ahead || oldest(&shelf, 0).is_none_or(|at| is_back(node, at)) || !shelf.lead.waits() {
            return;
        }
        let some = many.div_ceil(WAITED);
        let Some(last) = oldest(&shelf, some - 1) else { return };
        // Nothing is kept from others meanwhile, who may take it back.
        drop(shelf);
        let (began, moment) = (Instant::now(), SLOWEST * (some * size_of(class) / SLOW) as u32);
        let mut paid = is_back(node, last);
        while !paid && began.elapsed() < moment {
            (0..LOOK).for_each(|_| spin_hint());
            paid = is_back(node, last);
        }
        self.shelf(class).lead.waited(paid);
    }

    /// Whether as many are lent as take turns, the oldest of them, too.
    pub fn is_ahead(&self, node: &Node, class: usize) -> bool {
        let shelf = self.shelf(class);
        let many = self.turns(class) / size_of(class);
        shelf.lent.len() >= many && shelf.lent.front().is_some_and(|(at, _)| !is_back(node, *at))
    }

    /// Messages that were sent by them so far.
    pub fn sent(&self) -> u64 {
        (0..CLASSES).map(|class| self.shelf(class).sent).sum()
    }

    /// What is lent, and to whom.
    #[cfg(test)]
    pub fn out(&self) -> Vec<(u64, Slot)> {
        (0..CLASSES)
            .flat_map(|class| Vec::from_iter(self.shelf(class).lent.iter().copied()))
            .collect()
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let shelf = |class| {
            let shelf = self.shelf(class);
            shelf.blocks.iter().filter(|block| block.present).map(|block| block.len).sum::<u64>()
        };
        (0..CLASSES).map(shelf).sum()
    }

    /// Takes those back that a process has that is gone.
    pub fn bury(&self, peer: Slot) {
        (0..CLASSES).for_each(|class| self.shelf(class).reclaim(|_, to| to == peer));
    }

    /// To be called now and then: gives memory back that was not needed.
    pub fn look(&self, node: &Node) {
        for class in 0..CLASSES {
            let mut shelf = self.shelf(class);
            (shelf.quiet, shelf.takes) = (shelf.quiet.saturating_add(1), 0);
            if shelf.quiet >= QUIET && shelf.blocks.iter().any(|block| block.present) {
                shelf.rest(node, self);
            }
        }
    }

    /// Before the process leaves.
    pub fn leave(&self, node: &Node) {
        (0..CLASSES).for_each(|class| self.shelf(class).leave(node, self));
    }
}

/// No buffer is wanted: the message is to be announced.
pub(super) struct Announced;

/// A buffer with a message in it, of which its receiver does not know yet.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    lender: Lender<'a>,
    class: usize,
    at: u64,
    to: Slot,
    /// How it is to be filled, and was.
    manner: Manner,
    filled: Option<Filled>,
    state: State,
}

/// Whose it is. A count of references is dear behind a copy, so it is changed only for a message that has to wait.
#[derive(Debug)]
enum Lender<'a> {
    Near(&'a Arc<Lending>),
    Kept(Arc<Lending>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Unsent,
    Sent,
    /// Another loan has the buffer.
    Passed,
}

impl Lender<'_> {
    fn lending(&self) -> &Arc<Lending> {
        match self {
            Lender::Near(lending) => lending,
            Lender::Kept(lending) => lending,
        }
    }
}

impl<'a> Loan<'a> {
    fn new(lending: &'a Arc<Lending>, class: usize, at: (u64, Manner), to: Slot) -> Loan<'a> {
        let (lender, (at, manner)) = (Lender::Near(lending), at);
        Loan { lender, class, at, to, manner, filled: None, state: State::Unsent }
    }

    /// A buffer of a size for a receiver, if there is one.
    pub fn take(lending: &'a Arc<Lending>, node: &Node, class: usize, to: Slot) -> Option<Self> {
        let at = lending.shelf(class).take(node, class, lending)?;
        Some(Loan::new(lending, class, at, to))
    }

    /// The same, unless the message is to be announced: with whether its time is wanted.
    pub fn take_in_turn(
        lending: &'a Arc<Lending>,
        node: &Node,
        class: usize,
        to: Slot,
    ) -> Result<(Option<Self>, Timed), Announced> {
        let mut shelf = lending.shelf(class);
        let Way::Lent(timed) = shelf.way(node) else { return Err(Announced) };
        let at = shelf.take(node, class, lending);
        Ok((at.map(|at| Loan::new(lending, class, at, to)), timed))
    }

    /// What is in it is the receiver's from now on, once it is told. With a note to it.
    pub fn lend(&self, node: &Node, words: u64) {
        note(node, self.at).into_iter().for_each(|note| note.store(words, Ordering::Relaxed));
        word(node, self.at).into_iter().for_each(|word| word.lend(self.to));
    }

    /// How it is to be filled.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// It was filled.
    pub fn note(&mut self, filled: Filled) {
        self.filled = Some(filled);
    }

    /// What the receiver is told.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// It was told.
    pub fn sent(mut self) {
        self.state = State::Sent;
    }

    /// The same loan, for a message that waits.
    pub fn keep(mut self) -> Loan<'static> {
        let lender = Lender::Kept(self.lender.lending().clone());
        let state = std::mem::replace(&mut self.state, State::Passed);
        let Loan { class, at, to, manner, filled, .. } = self;
        Loan { lender, class, at, to, manner, filled, state }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.state == State::Passed {
            return;
        }
        let mut shelf = self.lender.lending().shelf(self.class);
        self.filled.into_iter().for_each(|filled| shelf.filling.note(filled));
        if self.state == State::Sent {
            shelf.sent += 1;
            shelf.lent.push_back((self.at, self.to));
        } else {
            shelf.spare.push(self.at);
        }
    }
}

/// The data in a buffer: where it is known to be one.
pub(super) fn data_at(node: &Node, at: u64, len: usize) -> Option<NonNull<u8>> {
    locate(node.mapping(), Offset(at.checked_add(HEAD as u64)?), len as u64, 1).ok()
}
