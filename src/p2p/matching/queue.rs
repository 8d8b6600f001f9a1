//! Entries in lists, each found by name: the one structure behind both queues.
//!
//! ```text
//!   table:   name -> first, last
//!   entries: [ number | label | value | links of list 0 .. N-1 ]   a slab with a free list
//! ```
//! An entry is in one or several of its `N` lists at a time, in each between its neighbours, so
//! it can be taken out from anywhere. Entries get numbers in the order in which they come, and
//! lists are in that order. A list is in the table as long as it has entries.
//!
//! While all entries are in one list, of the same name, that may be *apart*: it is not in the table then, and
//! nothing is looked up.

use super::pattern::Name;
use super::table::{Place, Seed, Table};

/// No entry.
const NONE: u32 = u32::MAX;

/// What an entry is found by.
pub(super) trait Label: Copy {
    fn context(&self) -> u32;
    /// Name of the entry's `list`th list.
    fn name(&self, list: usize) -> Name;
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    behind: u32,
}

const UNLINKED: Links = Links { before: NONE, behind: NONE };

#[derive(Debug)]
struct Entry<L, V, const N: usize> {
    /// 0 if the entry is free: the next free one is then behind it in list 0.
    number: u64,
    label: L,
    /// Bit `i`: it is in its `i`th list.
    lists: u8,
    links: [Links; N],
    value: Option<V>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Queue<L, V, const N: usize> {
    entries: Vec<Entry<L, V, N>>,
    free: u32,
    len: usize,
    lists: Table<List>,
    /// The one list that there is, if it is apart.
    apart: Option<List>,
}

/// First entry of a list, and where the list is.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub index: u32,
    pub number: u64,
    list: usize,
    place: Place,
}

impl<L: Label, V, const N: usize> Queue<L, V, N> {
    pub fn new(seed: Seed) -> Self {
        Queue { entries: Vec::new(), free: NONE, len: 0, lists: Table::new(seed), apart: None }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// First entry of the list `name`, which is the `list`th one of its entries.
    #[inline]
    pub fn first(&self, list: usize, name: &Name) -> Option<First> {
        let place = self.lists.find(name)?;
        let index = self.lists.at(place).first;
        Some(First { index, number: self.entries[index as usize].number, list, place })
    }

    /// Whether the list `name` has entries.
    #[inline]
    pub fn has(&self, name: &Name) -> bool {
        self.lists.find(name).is_some()
    }

    /// The entry at `index`, if it is the one with this number.
    #[inline]
    pub fn get(&self, index: u32, number: u64) -> Option<(&L, &V)> {
        let entry = self.entries.get(index as usize).filter(|entry| entry.number == number)?;
        entry.value.as_ref().map(|value| (&entry.label, value))
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32, number: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(index as usize).filter(|entry| entry.number == number)?;
        entry.value.as_mut()
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64, &L, &V)> {
        self.entries.iter().zip(0..).filter_map(|(entry, index)| {
            entry.value.as_ref().map(|value| (index, entry.number, &entry.label, value))
        })
    }

    /// From now on entries are of one name, and their list, the first one of each, is apart. There are no entries.
    #[inline]
    pub fn set_apart(&mut self) {
        self.apart = Some(List::default());
    }

    /// Puts the list that is apart into the table, if it is not empty: entries may have any names from now on.
    pub fn join(&mut self) {
        let Some(List { first, last }) = self.apart.take() else { return };
        if let Some(entry) = self.entries.get(first as usize) {
            let place = self.lists.entry(&entry.label.name(0));
            *self.lists.at_mut(place) = List { first, last };
        }
    }

    /// Appends an entry to those of its lists that have a bit in `lists`. `number` is not 0 and
    /// higher than any before. Returns its index.
    #[inline]
    pub fn push(&mut self, number: u64, label: L, value: V, lists: u8) -> u32 {
        let index = self.free;
        let links = [UNLINKED; N];
        let index = match self.entries.get_mut(index as usize) {
            Some(free) => {
                self.free = free.links[0].behind;
                (free.number, free.label, free.lists) = (number, label, lists);
                (free.links, free.value) = (links, Some(value));
                index
            }
            None => {
                self.entries.push(Entry { number, label, lists, links, value: Some(value) });
                // Memory for as many entries as there are indexes is not to be had.
                (self.entries.len() - 1) as u32
            }
        };
        self.len += 1;
        for list in (0..N).filter(|list| lists >> list & 1 != 0) {
            self.link(index, list);
        }
        index
    }

    #[inline]
    fn link(&mut self, index: u32, list: usize) {
        let ends = match &mut self.apart {
            Some(apart) => apart,
            None => {
                let name = self.entries[index as usize].label.name(list);
                let place = self.lists.entry(&name);
                self.lists.at_mut(place)
            }
        };
        let before = std::mem::replace(&mut ends.last, index);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.links[list].behind = index,
            None => ends.first = index,
        }
        self.entries[index as usize].links[list].before = before;
    }

    /// Takes out the first entry of a list; nothing may have changed since it was found.
    #[inline]
    pub fn pop(&mut self, first: First) -> (L, V) {
        let First { index, list, place, .. } = first;
        let behind = self.entries[index as usize].links[list].behind;
        match self.entries.get_mut(behind as usize) {
            Some(entry) => {
                entry.links[list].before = NONE;
                self.lists.at_mut(place).first = behind;
            }
            None => self.lists.remove(place),
        }
        self.entries[index as usize].lists &= !(1 << list);
        self.take(index)
    }

    /// Takes out the first entry of the list that is apart: its index and number, too. Nothing is searched.
    #[inline]
    pub fn pop_apart(&mut self) -> Option<(u32, u64, L, V)> {
        let apart = self.apart.as_mut()?;
        let index = apart.first;
        let entry = self.entries.get_mut(index as usize)?;
        let behind = entry.links[0].behind;
        let (number, label) = (entry.number, entry.label);
        let value = entry.value.take()?;
        entry.number = 0;
        entry.links[0].behind = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        apart.first = behind;
        match self.entries.get_mut(behind as usize) {
            Some(entry) => entry.links[0].before = NONE,
            None => apart.last = NONE,
        }
        Some((index, number, label, value))
    }

    /// Takes out the entry at `index`, if it is the one with this number.
    pub fn remove(&mut self, index: u32, number: u64) -> Option<(L, V)> {
        self.get(index, number)?;
        Some(self.take(index))
    }

    /// Takes the entry out of all lists it is in. Costs nothing more for what stands between
    /// others, a search in the table for what stands at an end.
    #[inline]
    fn take(&mut self, index: u32) -> (L, V) {
        let Entry { label, lists, links, .. } = self.entries[index as usize];
        for list in (0..N).filter(|list| lists >> list & 1 != 0) {
            let Links { before, behind } = links[list];
            if let Some(entry) = self.entries.get_mut(before as usize) {
                entry.links[list].behind = behind;
            }
            if let Some(entry) = self.entries.get_mut(behind as usize) {
                entry.links[list].before = before;
            }
            if before != NONE && behind != NONE {
                continue;
            }
            if let Some(apart) = &mut self.apart {
                if before == NONE {
                    apart.first = behind;
                }
                if behind == NONE {
                    apart.last = before;
                }
                continue;
            }
            let Some(place) = self.lists.find(&label.name(list)) else { continue };
            match (before, behind) {
                (NONE, NONE) => self.lists.remove(place),
                (NONE, _) => self.lists.at_mut(place).first = behind,
                _ => self.lists.at_mut(place).last = before,
            }
        }
        let entry = &mut self.entries[index as usize];
        entry.number = 0;
        entry.links[0].behind = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        // An entry that has a number has a value.
        (label, entry.value.take().expect("an entry in use"))
    }

    /// Puts the entries of a context into their `list`th lists, in which none of them is.
    #[cold]
    pub fn build(&mut self, list: usize, context: u32) {
        let within = |(_, _, label, _): &(u32, u64, &L, &V)| label.context() == context;
        let mut found: Vec<(u64, u32)> =
            self.iter().filter(within).map(|(index, number, ..)| (number, index)).collect();
        found.sort_unstable();
        for (_, index) in found {
            self.entries[index as usize].lists |= 1 << list;
            self.link(index, list);
        }
    }

    /// Lists in the table.
    #[cfg(test)]
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Entries and places of the table that there is memory for.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, usize) {
        (self.entries.capacity(), self.lists.places())
    }
}
