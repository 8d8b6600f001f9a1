//! The buffers of one class in which a process receives large messages: a block of the node's
//! commons, made by the receiver, joined by those that may send into it.
//!
//! ```text
//!   roll       who holds the block: the receiver, and the senders that have joined
//!   PoolHead   64 B      class, buffers that fit
//!   words      8 B each  who has the buffer
//!   buffers    threshold bytes each, in whole pages; pages only where there is a buffer
//!
//!            make                 take (a sender)          arrived (its message has come)
//!   GONE ----------> FREE -------------------------> slot + 2 ---------------> slot + 2, ARRIVED
//!    ^   <---------- ^  <-------------------------------+                           |
//!        unmake      |         untake (that sender)                                 |
//!                    +--------------------------------------------------------------+
//!                      give_back (the receiver, which also frees what a dead sender had)
//! ```
//! A buffer is its sender's from `take` on, and the receiver's from the message on that says so: it
//! comes by the ring, which orders what was written before. Only FREE buffers are unmade, so nobody
//! writes to pages that are gone; and the block stays until all who hold it have left or died, so a
//! sender in mid-copy may outlive its receiver.

use super::words::Buffer;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Offset, Result, Slot};
use crate::p2p::adapt::Class;
use crate::shm::heap::Id;
use crate::shm::holding::Share;
use crate::shm::node::Node;
use crate::shm::region::{SharedLayout, locate};
use crate::shm::roll::Roll;
use std::ptr::NonNull;

/// What blocks of this kind are told by.
const KIND: u32 = 0x706f_6f6c;

/// Unit in which pages are given and taken.
const PAGE: u64 = 4096;

/// Start of the block behind the roll.
#[repr(C, align(64))]
struct PoolHead {
    class: AtomicU32,
    /// Written last.
    buffers: AtomicU32,
    _pad: [AtomicU32; 14],
}

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for PoolHead {}

const _: () = {
    assert!(size_of::<PoolHead>() == 64);
    assert!(std::mem::offset_of!(PoolHead, buffers) == 4);
};

/// A pool, as its receiver has it or as a sender that has joined.
#[derive(Debug)]
pub(super) struct PoolBlock {
    share: Share,
    class: Class,
    buffers: u32,
    /// The words, and the first buffer.
    words: NonNull<AtomicU64>,
    first: Offset,
    /// Where the next search begins.
    next: AtomicU32,
}

// SAFETY: `words` is a shared reference to atomics in a mapping that the attachment keeps, as long
// as the share is not left.
unsafe impl Send for PoolBlock {}
// SAFETY: as above.
unsafe impl Sync for PoolBlock {}

/// Bytes of a buffer of a class.
fn stride(class: Class) -> u64 {
    class.threshold().next_multiple_of(PAGE)
}

/// Bytes before the first buffer.
fn front(members: u32, buffers: u32) -> u64 {
    let words = u64::from(buffers) * size_of::<AtomicU64>() as u64;
    (Roll::bytes(members) + size_of::<PoolHead>() as u64 + words).next_multiple_of(PAGE)
}

impl PoolBlock {
    /// A pool without any buffer, with room for so many, or for fewer if there is no room for these.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Exhausted`].
    pub fn create(node: &Node, class: Class, mut buffers: u32) -> Result<PoolBlock> {
        let all: Vec<Slot> = node.locals().collect();
        loop {
            let front = front(node.size(), buffers);
            let len = front + u64::from(buffers) * stride(class);
            match Share::create(node, KIND, len, front, &all, "a pool of buffers") {
                Ok(share) => {
                    let at = Offset(share.at().0 + Roll::bytes(node.size()));
                    let head = Self::head(node, at)?;
                    head.class.store(u32::from(class.exponent()), Ordering::Relaxed);
                    head.buffers.store(buffers, Ordering::Release);
                    return Self::view(node, share);
                }
                Err(Error::OutOfMemory { .. }) if buffers > 1 => buffers /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// Joins the pool that `id` names; nothing if its receiver is gone.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if it is no pool.
    pub fn join(node: &Node, id: Id) -> Result<Option<PoolBlock>> {
        let Some(share) = Share::join(node, id, None)? else { return Ok(None) };
        if share.roll().kind() != KIND {
            share.leave(node)?;
            let why = "the block that a peer named is none; end the job".into();
            return Err(Error::Incompatible { what: "a pool of buffers", why });
        }
        Self::view(node, share).map(Some)
    }

    fn head(node: &Node, at: Offset) -> Result<&PoolHead> {
        let head = locate(node.mapping(), at, size_of::<PoolHead>() as u64, 64)?;
        // SAFETY: located, aligned, any bits are a PoolHead; the mapping lives as long as the node.
        Ok(unsafe { head.cast::<PoolHead>().as_ref() })
    }

    /// The pool in a block, as its head says; everything is checked against the block's length.
    fn view(node: &Node, share: Share) -> Result<PoolBlock> {
        let members = share.roll().size();
        let at = Offset(share.at().0 + Roll::bytes(members));
        let head = Self::head(node, at)?;
        let buffers = head.buffers.load(Ordering::Acquire);
        let class = u8::try_from(head.class.load(Ordering::Relaxed)).ok().and_then(Class::new);
        let front = front(members, buffers);
        let fits = |class: &Class| {
            let all = u64::from(buffers).checked_mul(stride(*class));
            all.and_then(|all| all.checked_add(front)).is_some_and(|len| len <= share.len())
        };
        let Some(class) = class.filter(fits) else {
            let why = format!("{buffers} buffers at {} do not fit; end the job", share.at());
            return Err(Error::Incompatible { what: "a pool of buffers", why });
        };
        let words = Offset(at.0 + size_of::<PoolHead>() as u64);
        let words = locate(node.mapping(), words, u64::from(buffers) * 8, 8)?.cast();
        let first = Offset(share.at().0 + front);
        Ok(PoolBlock { share, class, buffers, words, first, next: AtomicU32::new(0) })
    }

    /// Its name, for senders to join it.
    pub fn id(&self) -> Id {
        self.share.id()
    }

    /// Its class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Leaves it. Not to be used afterwards.
    pub fn leave(&self, node: &Node) {
        // What cannot be freed now goes when this process does.
        let _ = self.share.leave(node);
    }

    fn word(&self, index: u32) -> Option<Buffer<'_>> {
        // SAFETY: `view` located so many words.
        let word = |index| unsafe { self.words.add(index as usize).as_ref() };
        (index < self.buffers).then(|| Buffer(word(index)))
    }

    fn all(&self) -> impl Iterator<Item = (u32, Buffer<'_>)> {
        (0..self.buffers).filter_map(|index| Some((index, self.word(index)?)))
    }

    /// Where a buffer lies.
    pub fn buffer(&self, node: &Node, index: u32) -> Result<NonNull<u8>> {
        if index >= self.buffers {
            let why = format!("buffer {index} of {}; end the job", self.buffers);
            return Err(Error::Incompatible { what: "a pool of buffers", why });
        }
        let at = Offset(self.first.0 + u64::from(index) * stride(self.class));
        locate(node.mapping(), at, self.class.threshold(), 1)
    }

    /// Sender: a free buffer, if there is one. One compare-exchange if the one looked at first is
    /// free; at most a look at every word.
    pub fn take(&self, node: &Node) -> Option<u32> {
        let start = self.next.load(Ordering::Relaxed);
        for i in 0..self.buffers {
            let index = (start + i) % self.buffers;
            if self.word(index)?.take(node.slot()) {
                self.next.store(index + 1, Ordering::Relaxed);
                return Some(index);
            }
        }
        None
    }

    /// Sender: gives a buffer back of which it has told nobody.
    pub fn untake(&self, me: Slot, index: u32) {
        if let Some(word) = self.word(index) {
            word.untake(me);
        }
    }

    /// Receiver: `from` says that there is a message in the buffer; false if it is not its.
    pub fn arrived(&self, from: Slot, index: u32) -> bool {
        self.word(index).is_some_and(|word| word.arrived(from))
    }

    /// Receiver: the message was copied out.
    pub fn give_back(&self, index: u32) {
        if let Some(word) = self.word(index) {
            word.give_back();
        }
    }

    /// Receiver: `peer` is dead, and all that it had sent has come: frees what it had taken.
    pub fn free_of(&self, peer: Slot) {
        self.all().for_each(|(_, word)| word.free_of(peer));
    }

    /// Receiver: makes up to `count` more buffers; how many there are of them.
    pub fn make(&self, node: &Node, count: u32) -> u32 {
        let gone = self.all().filter(|(_, word)| word.is_gone());
        let places: Vec<u32> = gone.take(count as usize).map(|p| p.0).collect();
        let (stride, mut made) = (stride(self.class), 0);
        for run in places.chunk_by(|a, b| *b == *a + 1) {
            let at = Offset(self.first.0 + u64::from(run[0]) * stride);
            let len = stride * run.len() as u64;
            if node.reserve(at, len, "buffers for large messages").is_err() {
                break;
            }
            for index in run {
                made += 1;
                self.give_back(*index);
            }
        }
        made
    }

    /// Receiver: unmakes up to `count` buffers that are free; how many.
    pub fn unmake(&self, node: &Node, count: u32) -> u32 {
        let mut gone = 0;
        for (index, word) in self.all() {
            if gone == count {
                break;
            }
            if word.unmake() {
                let stride = stride(self.class);
                node.release(Offset(self.first.0 + u64::from(index) * stride), stride);
                gone += 1;
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::map::Mapping;
    use crate::shm::segment::Areas;
    use std::sync::Arc;

    fn two() -> (Arc<Node>, Arc<Node>) {
        let fd = Node::create_memory(2, 1 << 21).unwrap();
        let length = Areas::new(2, 1 << 21).unwrap().length;
        let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
        let other = fd.try_clone().unwrap();
        let b = Node::attach_mapped(other, Slot(1), map.clone()).unwrap();
        (Node::attach_mapped(fd, Slot(0), map).unwrap(), b)
    }

    #[test]
    fn a_buffer_has_one_sender_at_a_time_and_goes_only_when_it_is_free() {
        let (a, b) = two();
        let class = Class::new(14).unwrap();
        let mine = PoolBlock::create(&a, class, 8).unwrap();
        let theirs = PoolBlock::join(&b, mine.id()).unwrap().unwrap();
        assert_eq!(theirs.take(&b), None, "there is no buffer yet");
        assert_eq!((mine.make(&a, 3), mine.make(&a, 0)), (3, 0));
        let taken: Vec<u32> = std::iter::from_fn(|| theirs.take(&b)).collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(mine.unmake(&a, 8), 0);
        assert!(!mine.arrived(Slot(0), taken[0]), "it is another one's");
        assert!(mine.arrived(Slot(1), taken[0]) && !mine.arrived(Slot(1), taken[0]));
        assert!(!mine.arrived(Slot(1), 8) && !mine.arrived(Slot(1), u32::MAX));
        theirs.untake(Slot(1), taken[0]);
        assert_eq!(theirs.take(&b), None, "a sender cannot take back what it has told of");
        theirs.untake(Slot(1), taken[1]);
        assert_eq!(mine.unmake(&a, 8), 1);
        // The sender dies: what has arrived stays the receiver's.
        mine.free_of(Slot(1));
        assert_eq!(mine.unmake(&a, 8), 1);
        mine.give_back(taken[0]);
        assert_eq!((mine.make(&a, 9), mine.unmake(&a, 9)), (7, 8));
        let used = a.commons_in_use().unwrap();
        mine.leave(&a);
        assert_eq!(a.commons_in_use().unwrap(), used, "the sender still has it");
        theirs.leave(&b);
        assert_eq!(a.commons_in_use().unwrap(), 0);
    }

    #[test]
    fn what_is_no_pool_of_the_class_is_refused() {
        let (a, b) = two();
        let class = Class::new(12).unwrap();
        let mine = PoolBlock::create(&a, class, 2).unwrap();
        let all = [Slot(0), Slot(1)];
        let other = Share::create(&a, 7, 4096, 4096, &all, "a test").unwrap();
        assert!(PoolBlock::join(&b, other.id()).is_err());
        let at = Offset(mine.share.at().0 + Roll::bytes(2));
        let head = PoolBlock::head(&a, at).unwrap();
        for absurd in [u32::MAX, 9000] {
            head.buffers.store(absurd, Ordering::Relaxed);
            assert!(PoolBlock::join(&b, mine.id()).is_err());
        }
        head.buffers.store(2, Ordering::Relaxed);
        assert!(PoolBlock::join(&b, mine.id()).unwrap().is_some());
        mine.leave(&a);
        assert!(PoolBlock::join(&b, Id::from_raw(u64::MAX)).unwrap().is_none());
    }

    #[test]
    fn every_buffer_is_where_it_should_be_and_readable_to_its_end() {
        let (a, b) = two();
        for class in [10, 12, 16].map(|exponent| Class::new(exponent).unwrap()) {
            let mine = PoolBlock::create(&a, class, 5).unwrap();
            let theirs = PoolBlock::join(&b, mine.id()).unwrap().unwrap();
            assert_eq!(mine.make(&a, 5), 5);
            let len = class.threshold() as usize;
            for index in 0..5 {
                let at = theirs.buffer(&b, index).unwrap();
                // SAFETY: a buffer that was made; nobody else has it.
                unsafe { std::ptr::write_bytes(at.as_ptr(), index as u8 + 1, len) };
            }
            for index in 0..5 {
                let at = mine.buffer(&a, index).unwrap();
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
                assert!(bytes.iter().all(|byte| *byte == index as u8 + 1));
            }
            assert!(mine.buffer(&a, 5).is_err());
        }
    }
}
