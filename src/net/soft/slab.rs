//! Small numbers for things, never taken for another thing once given back.

/// Things by a number of 64 bits: index below, generation (of 29 bits) above.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((1, None));
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(index)
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        let (generation, value) = self.entries.get(number as u32 as usize)?;
        value.as_ref().filter(|_| u64::from(*generation) == number >> 32)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (generation, value) = self.entries.get_mut(number as u32 as usize)?;
        value.as_mut().filter(|_| u64::from(*generation) == number >> 32)
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = number as u32;
        let (generation, value) = self.entries.get_mut(index as usize)?;
        if u64::from(*generation) != number >> 32 {
            return None;
        }
        let value = value.take()?;
        // One that has come round is not used again.
        *generation += 1;
        if *generation < 1 << 29 {
            self.free.push(index);
        }
        Some(value)
    }
}
