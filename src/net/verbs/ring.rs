//! What was posted to a queue of a queue pair and has not completed yet, in the order of posting. No
//! input or output.
//!
//! Operations that are not signalled have no completion of their own: that of a later one ends them
//! too. Each place remembers what a completion in error needs to be told rightly, since devices say
//! little then.

use super::bindings::Sge;
use crate::net::provider::Opcode;

/// One operation or receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub id: u64,
    pub opcode: Opcode,
    pub length: u32,
    /// The provider's own question whether the peer lives.
    pub ping: bool,
    /// Posted so that the peer refuses it: see `rc`.
    pub misaligned: bool,
    /// How many pieces of memory it names.
    pieces: u8,
}

impl Slot {
    pub fn new(id: u64, opcode: Opcode, length: u32) -> Slot {
        Slot { id, opcode, length, ping: false, misaligned: false, pieces: 0 }
    }

    /// The provider's own question whether the peer lives.
    pub fn ping() -> Slot {
        Slot { ping: true, ..Slot::new(0, Opcode::Write, 0) }
    }
}

/// See the module.
pub(super) struct Ring {
    slots: Vec<Slot>,
    pieces: Vec<Sge>,
    /// Pieces of one at most.
    most: usize,
    oldest: u64,
    next: u64,
}

impl Ring {
    pub fn new(depth: u32, pieces: u32) -> Ring {
        let (depth, most) = (depth as usize, pieces as usize);
        let slot = Slot::new(0, Opcode::Send, 0);
        let (slots, pieces) = (vec![slot; depth], vec![Sge::default(); depth * most]);
        Ring { slots, pieces, most, oldest: 0, next: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        (self.next - self.oldest) as usize
    }

    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.slots.len()
    }

    fn place(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    /// Adds one, which there must be room for; its number.
    pub fn push(&mut self, slot: Slot, pieces: &[Sge]) -> u64 {
        let (number, place) = (self.next, self.place(self.next));
        let kept = pieces.len().min(self.most);
        self.slots[place] = Slot { pieces: kept as u8, ..slot };
        self.pieces[place * self.most..][..kept].copy_from_slice(&pieces[..kept]);
        self.next += 1;
        number
    }

    /// Takes the last `count` back, which were not posted after all.
    pub fn take_back(&mut self, count: usize) {
        self.next -= count as u64;
    }

    /// The one with this number has completed: what it was, and how many ended with it (itself
    /// included). None if it is not here.
    pub fn complete(&mut self, number: u64) -> Option<(Slot, &[Sge], u32)> {
        if !(self.oldest..self.next).contains(&number) {
            return None;
        }
        let (ended, place) = ((number + 1 - self.oldest) as u32, self.place(number));
        self.oldest = number + 1;
        let slot = self.slots[place];
        Some((slot, &self.pieces[place * self.most..][..slot.pieces.into()], ended))
    }

    /// The oldest, taken out.
    pub fn pop(&mut self) -> Option<Slot> {
        self.complete(self.oldest).map(|(slot, ..)| slot)
    }

    /// Forgets all; how many there were.
    pub fn clear(&mut self) -> u32 {
        let count = self.len() as u32;
        self.oldest = self.next;
        count
    }

    /// The number of the next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// All before this one have ended.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_end_what_is_before_them() {
        let mut ring = Ring::new(4, 2);
        let piece = |addr| Sge { addr, length: 1, lkey: 2 };
        for id in 10..14 {
            ring.push(
                Slot::new(id, Opcode::Write, 0),
                &[piece(id), piece(id + 1)][..id as usize % 3],
            );
        }
        assert!(ring.is_full());
        let (slot, pieces, ended) = ring.complete(1).unwrap();
        assert_eq!((slot.id, pieces.len(), pieces[0].addr, ended), (11, 2, 11, 2));
        assert!(ring.complete(1).is_none() && ring.complete(4).is_none());
        assert_eq!(ring.push(Slot::new(14, Opcode::Send, 0), &[piece(14)]), 4);
        assert_eq!((ring.len(), ring.oldest(), ring.next()), (3, 2, 5));
        ring.take_back(1);
        assert_eq!((ring.pop().unwrap().id, ring.pop().unwrap().id), (12, 13));
        assert!(ring.pop().is_none());
        assert_eq!(ring.push(Slot::new(15, Opcode::Send, 0), &[]), 4);
        assert_eq!(ring.complete(4).unwrap().0.id, 15);
    }
}
