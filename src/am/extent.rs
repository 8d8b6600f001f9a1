//! Which bytes of a buffer are free.
//!
//! ```text
//!  0                                len
//!  |  free  | taken |  free  | taken |      extents: [0, a) [b, c), never empty, never touching
//! ```

/// The free bytes of a buffer, as stretches in order.
///
/// Everything costs a look at the stretches at most; there are few, as what is given back joins
/// its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    len: u64,
    free: Vec<(u64, u64)>,
}

impl Extents {
    /// A buffer that is all free.
    pub fn new(len: u64) -> Extents {
        Extents { len, free: if len > 0 { vec![(0, len)] } else { Vec::new() } }
    }

    /// Bytes of the buffer.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether everything is free.
    pub fn is_whole(&self) -> bool {
        self.free.iter().map(|(start, end)| end - start).sum::<u64>() == self.len
    }

    /// Bytes of the longest free stretch.
    pub fn largest(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).max().unwrap_or(0)
    }

    /// Takes `bytes` bytes, which are not none, at the first place where there are so many.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let (start, _) = *self.free.iter().find(|(start, end)| end - start >= bytes)?;
        self.take_at(start, bytes).then_some(start)
    }

    /// Takes the bytes from `start` on, which are not none; false, and nothing changes, unless all
    /// of them are free.
    pub fn take_at(&mut self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let after = self.free.partition_point(|(first, _)| *first <= start);
        let Some(&(first, last)) = after.checked_sub(1).and_then(|i| self.free.get(i)) else {
            return false;
        };
        if bytes == 0 || end > last {
            return false;
        }
        let i = after - 1;
        match (first < start, end < last) {
            (false, false) => drop(self.free.remove(i)),
            (false, true) => self.free[i].0 = end,
            (true, false) => self.free[i].1 = start,
            (true, true) => {
                self.free[i].1 = start;
                self.free.insert(after, (end, last));
            }
        }
        true
    }

    /// Takes everything that is free: beginnings and lengths.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u64, u64)> {
        std::mem::take(&mut self.free).into_iter().map(|(start, end)| (start, end - start))
    }

    /// Gives the bytes from `start` on back, which are not none; false, and nothing changes, unless
    /// all of them were taken.
    pub fn give(&mut self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes).filter(|end| *end <= self.len && bytes > 0) else {
            return false;
        };
        let after = self.free.partition_point(|(first, _)| *first <= start);
        let before = after.checked_sub(1).map(|i| self.free[i]);
        let next = self.free.get(after).copied();
        if before.is_some_and(|(_, last)| last > start)
            || next.is_some_and(|(first, _)| first < end)
        {
            return false;
        }
        let joins_before = before.is_some_and(|(_, last)| last == start);
        let joins_next = next.is_some_and(|(first, _)| first == end);
        match (joins_before, joins_next) {
            (true, true) => {
                self.free[after - 1].1 = self.free[after].1;
                self.free.remove(after);
            }
            (true, false) => self.free[after - 1].1 = end,
            (false, true) => self.free[after].0 = start,
            (false, false) => self.free.insert(after, (start, end)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take(u64),
        TakeAt(u64, u64),
        Give(u64, u64),
        TakeAll,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u64..12).prop_map(Step::Take),
            3 => (0u64..34, 0u64..12).prop_map(|(at, n)| Step::TakeAt(at, n)),
            6 => (0u64..34, 0u64..12).prop_map(|(at, n)| Step::Give(at, n)),
            1 => Just(Step::TakeAll),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn as_a_map_of_bytes_would_do(len in 0u64..32, steps in steps()) {
            let mut extents = Extents::new(len);
            let mut free = vec![true; len as usize];
            for step in steps {
                match step {
                    Step::Take(n) => {
                        let at = (0..free.len()).find(|&at| {
                            free.get(at..at + n as usize).is_some_and(|all| all.iter().all(|f| *f))
                        });
                        prop_assert_eq!(extents.take(n), at.map(|at| at as u64));
                        if let Some(at) = at {
                            free[at..at + n as usize].fill(false);
                        }
                    }
                    Step::TakeAt(at, n) | Step::Give(at, n) => {
                        let takes = matches!(step, Step::TakeAt(..));
                        let range = free.get_mut(at as usize..(at + n) as usize);
                        let range = range.filter(|all| n > 0 && all.iter().all(|f| *f == takes));
                        let did = if takes { extents.take_at(at, n) } else { extents.give(at, n) };
                        prop_assert_eq!(did, range.is_some());
                        if let Some(range) = range {
                            range.fill(!takes);
                        }
                    }
                    Step::TakeAll => {
                        for (at, n) in extents.take_all() {
                            let range = &mut free[at as usize..(at + n) as usize];
                            prop_assert!(n > 0 && range.iter().all(|f| *f));
                            range.fill(false);
                        }
                        prop_assert!(free.iter().all(|f| !*f));
                    }
                }
                let runs = free.split(|f| !*f).map(<[bool]>::len);
                prop_assert_eq!(extents.largest(), runs.max().unwrap_or(0) as u64);
                prop_assert_eq!(extents.is_whole(), free.iter().all(|f| *f));
            }
        }
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        let mut extents = Extents::new(64);
        assert!(!extents.take_at(8, u64::MAX) && !extents.give(u64::MAX, 8));
        assert!(extents.is_whole());
    }
}
