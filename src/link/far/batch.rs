//! Several messages of a flow in one send of a queue pair.
//!
//! ```text
//!   head: number of the first one, room | label 8, length 4, bytes | label 8, length 4, bytes | ...
//! ```
//! Their numbers follow each other. A send of a queue pair costs a device, and over sockets a system
//! call at both ends and another two for the answer, whatever it carries.

use crate::link::MAX_MESSAGE;

/// Bytes before each message's own.
pub(super) const ENTRY: usize = 12;

/// Messages in one: what is kept of a peer out of turn has a limit (`order::KEPT`).
pub(super) const MOST: u32 = 64;

/// Bytes of the longest message that others may join. Longer ones gain little.
pub(super) const SMALL: usize = 1024;

/// Messages that wait for each other, as they will travel.
#[derive(Default, Debug)]
pub(super) struct Batch {
    first: u64,
    count: u32,
    bytes: Vec<u8>,
}

impl Batch {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of the first one.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// All of them, for [`Entries`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is room for one of so many bytes.
    pub fn fits(&self, length: usize) -> bool {
        self.count < MOST && self.bytes.len() + ENTRY + length <= MAX_MESSAGE
    }

    /// Adds one that [`fits`](Batch::fits); its number follows that of the one before.
    pub fn add(&mut self, number: u64, label: u64, bytes: [&[u8]; 2]) {
        if self.is_empty() {
            self.first = number;
        }
        self.count += 1;
        self.bytes.extend_from_slice(&label.to_le_bytes());
        let length = (bytes[0].len() + bytes[1].len()) as u32;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        bytes.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// They are under way.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }
}

/// Labels and bytes of the messages in what a peer has sent; senseless ones end them.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries { rest: bytes }
    }

    /// Whether they are what [`Batch`] makes: at least one, not too many, nothing left over.
    pub fn are_sound(&self) -> bool {
        let mut all = self.clone();
        let count = all.by_ref().take(MOST as usize + 1).count();
        count > 0 && count <= MOST as usize && all.rest.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let (label, rest) = self.rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        Some((u64::from_le_bytes(*label), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out_until_there_is_no_room(
            all in prop::collection::vec(
                (any::<u64>(), prop::collection::vec(any::<u8>(), 0..600), 0usize..600), 1..100),
        ) {
            let mut batch = Batch::default();
            let mut there = Vec::new();
            for (number, (label, bytes, at)) in (9..).zip(&all) {
                if !batch.fits(bytes.len()) {
                    break;
                }
                let (a, b) = bytes.split_at(*at.min(&bytes.len()));
                batch.add(number, *label, [a, b]);
                there.push((*label, &bytes[..]));
            }
            prop_assert_eq!((batch.first(), batch.count() as usize), (9, there.len()));
            prop_assert!(batch.bytes().len() <= MAX_MESSAGE && batch.count() <= MOST);
            let entries = Entries::new(batch.bytes());
            prop_assert!(entries.are_sound());
            prop_assert_eq!(entries.collect::<Vec<_>>(), there);
            batch.clear();
            prop_assert!(batch.is_empty() && batch.bytes().is_empty());
        }

        #[test]
        fn whatever_a_peer_says_is_read_within_its_bytes(
            bytes in prop::collection::vec(0u8..40, 0..200),
        ) {
            let entries = Entries::new(&bytes);
            let sound = entries.are_sound();
            let length: usize = entries.map(|(_, one)| ENTRY + one.len()).sum();
            prop_assert!(length <= bytes.len());
            prop_assert!(!sound || length == bytes.len() && length > 0);
        }
    }

    #[test]
    fn none_too_many_and_leftovers_make_no_sense() {
        assert!(!Entries::new(&[]).are_sound());
        let one = [0; ENTRY];
        assert!(Entries::new(&one).are_sound());
        assert!(!Entries::new(&[0; ENTRY + 1]).are_sound());
        assert!(Entries::new(&one.repeat(MOST as usize)).are_sound());
        assert!(!Entries::new(&one.repeat(MOST as usize + 1)).are_sound());
    }
}
