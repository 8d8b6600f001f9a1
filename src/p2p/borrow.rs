//! A buffer of a message's sender, as the receiver of the message has it; see [`lent`](super::lent) for what the
//! two agree on.
//!
//! Whether such a buffer lies where the message says, and is lent to this process, is looked at once, when the
//! message comes. What its sender writes to its word later is no reason to deliver nothing.

use super::lent::{HEAD, MOST};
use super::middle::{Asked, Verdict};
use super::words::Lent;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Offset, prefetch};
use crate::shm::node::Node;
use crate::shm::region::locate;
use std::ptr::NonNull;

/// Bytes of data whose lines are asked for when their message comes; more is on its way by itself.
const AHEAD: usize = 4096;

/// Such a buffer: lent to this process when it was made, and inside of the node's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Borrow(NonNull<u8>);

// SAFETY: an address in the node's memory, of which only atomics and data that its sender leaves alone are used,
// by whoever has the node.
unsafe impl Send for Borrow {}

impl Borrow {
    /// That at `at` with `len` bytes of data; nothing if there is none, or it is not lent to this process. Has the
    /// processor fetch its word, which is looked at and given back, and the first lines of its data, whose
    /// transfers else begin when the word is there.
    #[inline]
    pub fn of(node: &Node, at: u64, len: usize) -> Option<Borrow> {
        let (commons, length) = node.areas().commons();
        let whole = (HEAD + Some(len).filter(|len| *len <= MOST)?) as u64;
        if at.checked_sub(commons.0)?.checked_add(whole)? > length {
            return None;
        }
        let head = locate(node.mapping(), Offset(at), whole, HEAD as u64).ok()?;
        let borrow = Borrow(head);
        prefetch::to_write(head.as_ptr());
        prefetch::lines_to_read(borrow.data().as_ptr(), len.min(AHEAD));
        borrow.word(node).is_lent_to(node.slot()).then_some(borrow)
    }

    #[inline]
    fn at(self, _node: &Node, offset: usize) -> &AtomicU64 {
        // SAFETY: of the head, which is in the node's memory, and so aligned that this is, too: an atomic, of any
        // bits; mapped for as long as there is the node.
        unsafe { self.0.byte_add(offset).cast::<AtomicU64>().as_ref() }
    }

    #[inline]
    fn word(self, node: &Node) -> Lent<'_> {
        Lent(self.at(node, 0))
    }

    /// What its two sides tell each other of how long its message takes.
    #[inline]
    fn note(self, node: &Node) -> &AtomicU64 {
        self.at(node, 8)
    }

    /// The data: as many bytes in the node's memory as it was asked for.
    #[inline]
    pub fn data(self) -> NonNull<u8> {
        // SAFETY: inside of the mapping, or at its end, as was looked at.
        unsafe { self.0.byte_add(HEAD) }
    }

    /// What the sender wants to know of the way it came, if anything.
    #[inline]
    pub fn asked(self, node: &Node) -> Option<Asked> {
        Asked::read(self.note(node).load(Ordering::Relaxed))
    }

    /// Says so, before the buffer goes back.
    pub fn answer(self, node: &Node, verdict: Verdict) {
        self.note(node).store(verdict.note(), Ordering::Relaxed);
    }

    /// Its data were copied, or nobody wants them.
    #[inline]
    pub fn give_back(self, node: &Node) {
        self.word(node).give_back();
    }
}
