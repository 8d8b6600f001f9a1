//! What a handler has changed of a copy of the persistent part, as it travels back to be stored.
//!
//! ```text
//!   before  | a | b | c | d | e | f |        elements, told from where one begins
//!   after   | a | B | C | d | e | F |
//!
//!   0 version u64 | 8 bytes of the list u32 | 12 0 u32 | 16 list | data
//!   list    (skip, length) of each run, in bytes: 1, 2;  2, 1 times the size of an element
//!   data    B C F
//! ```
//! Runs consist of whole elements, the longest there are without an unchanged one: what others do
//! meanwhile to elements that the handler does not change is not touched. Skips and lengths are
//! numbers of seven bits a byte, lowest first, the highest bit set in all bytes but the last one.

use crate::base::{Error, Result};

/// Bytes before the list.
const HEAD: usize = 16;
/// Fewest bytes of changes: a run has a skip, a length and a byte.
pub(crate) const LEAST: u64 = HEAD as u64 + 3;

/// Where elements begin in a copy, and how long they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Bytes before the first whole element.
    pub lead: usize,
    /// Bytes of an element, at least 1.
    pub element: usize,
}

impl Grain {
    /// The next boundary behind `at`.
    fn end(self, at: usize, len: usize) -> usize {
        let end = if at < self.lead {
            self.lead
        } else {
            self.lead + ((at - self.lead) / self.element + 1) * self.element
        };
        end.min(len)
    }

    /// The runs of changed elements: first byte and end.
    fn runs<'b>(self, before: &'b [u8], after: &'b [u8]) -> impl Iterator<Item = (usize, usize)> {
        let len = before.len().min(after.len());
        let mut at = 0;
        std::iter::from_fn(move || {
            let changed = |from: usize, to: usize| before[from..to] != after[from..to];
            // Most is unchanged: some elements at a time, then one by one.
            let many = self.element * (512 / self.element).max(1);
            while at >= self.lead && len - at >= many && !changed(at, at + many) {
                at += many;
            }
            while at < len && !changed(at, self.end(at, len)) {
                at = self.end(at, len);
            }
            let first = at;
            while at < len && changed(at, self.end(at, len)) {
                at = self.end(at, len);
            }
            (first < at).then_some((first, at))
        })
    }
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What the copy of a part that had `version` was `before` the handler and is `after` it: the
/// changes in the form above; nothing if there are none.
pub(crate) fn of(version: u64, before: &[u8], after: &[u8], grain: Grain) -> Option<Vec<u8>> {
    let mut out = vec![0; HEAD];
    let (mut end, mut changed) = (0, 0);
    for (from, to) in grain.runs(before, after) {
        put_number(&mut out, (from - end) as u64);
        put_number(&mut out, (to - from) as u64);
        changed += to - from;
        end = to;
    }
    if changed == 0 {
        return None;
    }
    let list = u32::try_from(out.len() - HEAD).ok()?;
    out[..8].copy_from_slice(&version.to_le_bytes());
    out[8..12].copy_from_slice(&list.to_le_bytes());
    out.reserve_exact(changed);
    for (from, to) in grain.runs(before, after) {
        out.extend_from_slice(&after[from..to]);
    }
    Some(out)
}

/// Changes as they came from somebody, looked at before they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes<'b> {
    /// The version that the copy had.
    pub version: u64,
    list: &'b [u8],
    data: &'b [u8],
}

fn bad() -> Error {
    Error::Incompatible { what: "changes of a persistent part", why: "they are none of it".into() }
}

impl<'b> Changes<'b> {
    /// The changes of a part of `span` bytes.
    ///
    /// # Errors
    /// [`Error::Incompatible`] for anything else than what [`of`] makes for a copy as long.
    pub fn read(bytes: &'b [u8], span: u64) -> Result<Changes<'b>> {
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(bad)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let list = usize::try_from(word(8)).map_err(|_| bad())?;
        let (list, data) = rest.split_at_checked(list).ok_or_else(bad)?;
        let (mut at, mut left, mut numbers) = (0u64, data.len() as u64, Numbers(list));
        while let Some((skip, len)) = numbers.pair()? {
            // Runs are apart, but for the first one from the beginning.
            if len == 0 || len > left || skip == 0 && at > 0 {
                return Err(bad());
            }
            at = at.checked_add(skip).and_then(|at| at.checked_add(len)).ok_or_else(bad)?;
            left -= len;
        }
        if left > 0 || at > span || at == 0 {
            return Err(bad());
        }
        Ok(Changes { version: word(0), list, data })
    }

    /// Each run: where it begins, and what is to be there.
    pub fn each(&self) -> impl Iterator<Item = (usize, &'b [u8])> {
        let (mut at, mut data, mut numbers) = (0, self.data, Numbers(self.list));
        std::iter::from_fn(move || {
            let (skip, len) = numbers.pair().ok()??;
            let (run, rest) = data.split_at_checked(len as usize)?;
            let first = at + skip as usize;
            (at, data) = (first + run.len(), rest);
            Some((first, run))
        })
    }
}

/// Numbers of a list.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn pair(&mut self) -> Result<Option<(u64, u64)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        Ok(Some((self.number()?, self.number()?)))
    }

    fn number(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(bad)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // One form only.
                return if byte == 0 && shift > 0 { Err(bad()) } else { Ok(value) };
            }
        }
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn store(part: &mut [u8], changes: &[u8]) {
        let span = part.len() as u64;
        for (at, run) in Changes::read(changes, span).expect("what was made").each() {
            part[at..at + run.len()].copy_from_slice(run);
        }
    }

    proptest! {
        #[test]
        fn what_was_changed_is_stored_and_nothing_else(
            before in prop::collection::vec(0u8..4, 0..200),
            seed in any::<u64>(),
            element in prop_oneof![1usize..20, Just(64)],
            lead in 0usize..20,
            dense in 1u64..40,
        ) {
            let grain = Grain { lead: lead % element, element };
            let mut state = seed | 1;
            let after: Vec<u8> = before
                .iter()
                .map(|&byte| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
                    if (state >> 33).is_multiple_of(dense) { byte ^ 8 } else { byte }
                })
                .collect();
            // What others have made of the part meanwhile.
            let mut part: Vec<u8> = before.iter().map(|byte| byte | 128).collect();
            match of(seed, &before, &after, grain) {
                None => prop_assert_eq!(&before, &after),
                Some(changes) => {
                    prop_assert_eq!(Changes::read(&changes, before.len() as u64).unwrap().version, seed);
                    prop_assert!(changes.len() as u64 >= LEAST);
                    store(&mut part, &changes);
                }
            }
            for (at, &byte) in part.iter().enumerate() {
                // The element that the byte belongs to.
                let from = match at.checked_sub(grain.lead) {
                    None => 0,
                    Some(behind) => grain.lead + behind / element * element,
                };
                let to = grain.end(at, part.len());
                let own = before[from..to] != after[from..to];
                prop_assert_eq!(byte, if own { after[at] } else { before[at] | 128 }, "at {}", at);
            }
        }

        #[test]
        fn whatever_comes_is_refused_or_stays_inside(
            mut bytes in prop::collection::vec(any::<u8>(), 0..60),
            list in 0u8..20,
            span in 0u64..300,
        ) {
            if bytes.len() >= HEAD {
                bytes[8..16].copy_from_slice(&u64::from(list).to_le_bytes());
            }
            if let Ok(changes) = Changes::read(&bytes, span) {
                let mut end = 0;
                for (at, run) in changes.each() {
                    prop_assert!(at >= end && !run.is_empty());
                    end = at + run.len();
                }
                prop_assert!(end as u64 <= span && end > 0);
            }
        }

        #[test]
        fn damage_does_no_harm(at in 0usize..40, bit in 0u8..8, cut in 0usize..40) {
            let before = [0u8; 64];
            let mut after = before;
            (3..64).step_by(5).for_each(|i| after[i] = 1);
            let mut changes = of(7, &before, &after, Grain { lead: 0, element: 1 }).unwrap();
            let len = changes.len();
            changes[at % len] ^= 1 << bit;
            changes.truncate(len - cut.min(len));
            if let Ok(changes) = Changes::read(&changes, 64) {
                prop_assert!(changes.each().all(|(at, run)| at + run.len() <= 64));
            }
        }
    }

    #[test]
    fn runs_are_as_short_as_can_be() {
        let before = [0u8; 48];
        let mut after = before;
        // Two bytes of one element, and two elements one after the other.
        (after[8], after[15], after[24], after[39]) = (1, 1, 1, 1);
        let changes = of(9, &before, &after, Grain { lead: 0, element: 8 }).unwrap();
        let changes = Changes::read(&changes, 48).unwrap();
        let runs: Vec<(usize, usize)> = changes.each().map(|(at, run)| (at, run.len())).collect();
        assert_eq!(runs, [(8, 8), (24, 16)]);
        assert!(of(9, &before, &before, Grain { lead: 0, element: 8 }).is_none());
    }
}
