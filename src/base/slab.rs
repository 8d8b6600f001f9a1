//! Things with numbers that others are told: a number is good for one thing only.

/// Generations of one place; after that many it stays empty. Numbers have their upper three bits
/// clear.
const GENERATIONS: u32 = 1 << 29;

/// Things by number: place below, generation, never 0, above.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    live: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new(), live: 0 }
    }
}

impl<T> Slab<T> {
    /// Keeps `value`, and says under which number.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((1, None));
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.1 = Some(value);
        self.live += 1;
        u64::from(entry.0) << 32 | u64::from(index)
    }

    /// What has this number, if it is still here.
    pub fn get(&self, number: u64) -> Option<&T> {
        let (generation, value) = self.entries.get(number as u32 as usize)?;
        value.as_ref().filter(|_| u64::from(*generation) == number >> 32)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (generation, value) = self.entries.get_mut(number as u32 as usize)?;
        value.as_mut().filter(|_| u64::from(*generation) == number >> 32)
    }

    /// Takes it out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        let index = number as u32;
        let (generation, value) = self.entries.get_mut(index as usize)?;
        let value = value.take()?;
        self.live -= 1;
        *generation += 1;
        if *generation < GENERATIONS {
            self.free.push(index);
        }
        Some(value)
    }

    /// Numbers and things.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, value))| {
            let number = u64::from(*generation) << 32 | index as u64;
            Some((number, value.as_ref()?))
        })
    }

    /// How many things are here.
    pub fn len(&self) -> usize {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_used_twice() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        let second = slab.insert('b');
        assert_eq!((slab.remove(first), slab.remove(first), slab.len()), (Some('a'), None, 1));
        let third = slab.insert('c');
        assert!(third != first && third as u32 == first as u32);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get(third), Some(&'c'));
        assert_eq!(slab.get_mut(third), Some(&mut 'c'));
        assert_eq!(slab.get_mut(u64::MAX), None);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(third, &'c'), (second, &'b')]);
    }

    #[test]
    fn a_place_that_has_had_all_its_generations_stays_empty() {
        let mut slab = Slab::default();
        let first = slab.insert(1);
        slab.entries[0].0 = GENERATIONS - 1;
        let last = u64::from(GENERATIONS - 1) << 32 | first & 0xffff_ffff;
        assert_eq!((slab.remove(last), slab.len()), (Some(1), 0));
        let next = slab.insert(2);
        assert_eq!((next as u32, slab.get(next), slab.len()), (1, Some(&2), 1));
    }
}
