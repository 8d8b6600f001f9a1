//! How the output of vector messages travels: packed while little of it was filled, whole above.
//!
//! ```text
//!  output of a unit, 4 segments of at most 6 entries            counts 2 6 1 0
//!     |ee....|eeeeee|e.....|......|
//!
//!  stream, packed      2610 eeeeeeeee                    the entries that there are
//!  stream, whole       2610 ee....eeeeeee...........     everything, gaps too
//!  message without counts   eeeeeeeeeeeeeeeeeeeeeeee     always whole
//! ```
//! Packing costs a walk over the segments at both ends and saves bytes; beyond a threshold of
//! what was filled (paper 001 §7.2.2 and figure 7.10; the setting `HITHER_AM_PACK`) the walk costs
//! more than the bytes. The counts travel in either case, each in as few bytes as hold the largest
//! possible one.
//!
//! Everything here is in *packed positions*: where a byte would be if all segments were full and
//! their layouts without gaps. Either side turns those into its own memory with its own layout.

use crate::base::{Error, Result};

/// Which entries travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All that there could be.
    Whole,
    /// Those that the handler counted.
    Packed,
}

/// The output of some consecutive segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'c> {
    /// Bytes of an entry, as packed.
    pub entry: usize,
    /// Most entries in a segment.
    pub most: usize,
    /// Number of segments.
    pub segments: usize,
    /// Entries in each, for vector messages. None is more than `most`.
    pub counts: Option<&'c [u32]>,
}

impl Output<'_> {
    /// In which form to send it: packed if less than `threshold` of it is filled.
    pub fn form(&self, threshold: f64) -> Form {
        let filled = self.bytes(Form::Packed) as f64;
        let packs = self.counts.is_some() && filled < threshold * self.bytes(Form::Whole) as f64;
        if packs { Form::Packed } else { Form::Whole }
    }

    /// Bytes of data in that form, without the counts.
    pub fn bytes(&self, form: Form) -> usize {
        match (form, self.counts) {
            (Form::Packed, Some(counts)) => {
                counts.iter().map(|&count| count as usize).sum::<usize>() * self.entry
            }
            _ => self.segments * self.most * self.entry,
        }
    }

    /// The `len` bytes of data from `position` on, in that form: packed positions and lengths, in
    /// order, none of them empty.
    pub fn pieces(&self, form: Form, position: usize, len: usize) -> Pieces<'_> {
        let segment = self.most * self.entry;
        let counts = if form == Form::Packed { self.counts } else { None };
        let end = self.bytes(form).min(position.saturating_add(len));
        let left = end.saturating_sub(position);
        Pieces { entry: self.entry, segment, counts, index: 0, skip: position, left }
    }
}

/// See [`Output::pieces`].
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'c> {
    entry: usize,
    segment: usize,
    counts: Option<&'c [u32]>,
    /// Segment that comes next.
    index: usize,
    /// Bytes of data between the beginning of that segment and the next byte.
    skip: usize,
    left: usize,
}

impl Iterator for Pieces<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.left == 0 {
            return None;
        }
        let Some(counts) = self.counts else {
            return Some((self.skip, std::mem::take(&mut self.left)));
        };
        while let Some(&count) = counts.get(self.index) {
            let filled = count as usize * self.entry;
            let at = self.index * self.segment;
            // A full segment goes on in the next one.
            if self.skip >= filled {
                self.skip -= filled;
                self.index += 1;
                continue;
            }
            let len = (filled - self.skip).min(self.left);
            let piece = (at + self.skip, len);
            self.left -= len;
            self.skip += len;
            return Some(piece);
        }
        None
    }
}

/// Bytes of a count of at most `most` entries.
pub(crate) fn width(most: usize) -> usize {
    match most {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Appends counts to a stream.
pub(crate) fn put_counts(most: usize, counts: &[u32], out: &mut Vec<u8>) {
    let width = width(most);
    out.reserve(counts.len() * width);
    for count in counts {
        out.extend_from_slice(&count.to_le_bytes()[..width]);
    }
}

/// Reads as many counts as `counts` has room for from the beginning of a stream.
///
/// # Errors
/// [`Error::Incompatible`] if there are fewer, or one of more than `most` entries.
pub(crate) fn read_counts(most: usize, stream: &[u8], counts: &mut [u32]) -> Result<()> {
    let bad = |why| Err(Error::Incompatible { what: "the counts of an active message", why });
    let width = width(most);
    if stream.len() / width < counts.len() {
        return bad(format!("{} bytes for {} segments", stream.len(), counts.len()));
    }
    for (count, bytes) in counts.iter_mut().zip(stream.chunks_exact(width)) {
        let mut word = [0; 4];
        word[..width].copy_from_slice(bytes);
        *count = u32::from_le_bytes(word);
        if *count as usize > most {
            return bad(format!("{count} entries in a segment of {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outputs() -> impl Strategy<Value = (usize, usize, Vec<u32>)> {
        (1usize..6, 0usize..400).prop_flat_map(|(entry, most)| {
            let counts = prop::collection::vec(0..=most as u32, 0..20);
            (Just(entry), Just(most), counts)
        })
    }

    /// Packed position of every byte of data, the slow way.
    fn oracle(entry: usize, most: usize, counts: &[u32], form: Form) -> Vec<usize> {
        let mut bytes = Vec::new();
        for (i, &count) in counts.iter().enumerate() {
            let filled = if form == Form::Packed { count as usize } else { most };
            bytes.extend((0..filled * entry).map(|b| i * most * entry + b));
        }
        bytes
    }

    proptest! {
        #[test]
        fn any_stretch_of_the_stream_is_where_it_belongs(
            (entry, most, counts) in outputs(),
            packed: bool,
            from in 0usize..4000,
            len in 0usize..3000,
        ) {
            let form = if packed { Form::Packed } else { Form::Whole };
            let segments = counts.len();
            let output = Output { entry, most, segments, counts: Some(&counts) };
            let want = oracle(entry, most, &counts, form);
            prop_assert_eq!(output.bytes(form), want.len());
            let from = from.min(want.len());
            let want = &want[from..want.len().min(from + len)];
            let mut got = Vec::new();
            for (at, len) in output.pieces(form, from, len) {
                prop_assert!(len > 0);
                got.extend(at..at + len);
            }
            prop_assert_eq!(&got, want);
        }

        #[test]
        fn counts_survive_the_stream(
            most in prop_oneof![0usize..300, 60_000usize..70_000, Just(u32::MAX as usize)],
            raw in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let counts: Vec<u32> = raw.iter().map(|c| (*c as usize % (most + 1)) as u32).collect();
            let mut stream = Vec::new();
            put_counts(most, &counts, &mut stream);
            prop_assert_eq!(stream.len(), counts.len() * width(most));
            let mut read = vec![0; counts.len()];
            read_counts(most, &stream, &mut read).unwrap();
            prop_assert_eq!(&read, &counts);
            if !counts.is_empty() {
                stream.pop();
                prop_assert!(read_counts(most, &stream, &mut read).is_err());
            }
        }

        #[test]
        fn packed_exactly_below_the_threshold((entry, most, counts) in outputs(), part in 0u32..=10) {
            let threshold = f64::from(part) / 10.0;
            let output = Output { entry, most, segments: counts.len(), counts: Some(&counts) };
            let (filled, all) = (output.bytes(Form::Packed), output.bytes(Form::Whole));
            let packs = output.form(threshold) == Form::Packed;
            prop_assert_eq!(packs, (filled as f64) < threshold * all as f64);
            let plain = Output { counts: None, ..output };
            prop_assert_eq!(plain.form(1.0), Form::Whole);
            prop_assert_eq!(plain.bytes(Form::Packed), all);
        }
    }

    #[test]
    fn counts_beyond_the_segment_are_refused() {
        assert!(read_counts(6, &[2, 7], &mut [0; 2]).is_err());
        assert!(read_counts(6, &[2, 6, 99], &mut [0; 2]).is_ok());
        assert!(read_counts(0, &[1], &mut [0]).is_err());
    }
}
