//! Things with numbers that peers are told: a number is good for one thing only.

/// Things by number.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps `value`, and says under which number.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(index)
    }

    /// What has this number, if it is still here.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(number as u32 as usize)?;
        if u64::from(entry.0) == number >> 32 { entry.1.as_mut() } else { None }
    }

    /// Takes it out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.get_mut(number)?;
        let index = number as u32;
        let entry = &mut self.entries[index as usize];
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(index);
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
        self.entries.len() - self.free.len()
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
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get_mut(third), Some(&mut 'c'));
        assert_eq!(slab.get_mut(u64::MAX), None);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(third, &'c'), (second, &'b')]);
    }
}
