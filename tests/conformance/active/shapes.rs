//! Layouts of segments, with where their elements lie: known here without the library's cursor.

use hither::{Layout, Result, Shape};

/// Elements of a segment, in packed order.
pub const EACH: usize = 8;
/// Elements of the persistent part: constants, then sums.
pub const PART: usize = 16;
/// Elements of a window.
pub const WINDOW: usize = 64;

/// How one side of a message's segments looks.
#[derive(Debug)]
pub struct Side {
    pub name: &'static str,
    /// One segment at the origin: layout and count; none if the elements follow each other.
    pub here: Option<(Layout, usize)>,
    /// An entry at the target; none if as at the origin.
    pub there: Option<Layout>,
    /// Element of the origin's buffer in which element `k` of segment `s` lies.
    at: fn(usize, usize) -> usize,
    /// Elements from one segment to the next at the origin.
    pub stride: usize,
    /// Elements of an entry at the target, and at the origin.
    pub entry: (usize, usize),
}

impl Side {
    /// Elements that a buffer for so many segments needs.
    pub fn room(&self, segments: usize) -> usize {
        segments * self.stride
    }

    pub fn at(&self, segment: usize, k: usize) -> usize {
        (self.at)(segment, k)
    }

    pub fn here(&self) -> Option<Shape<'_>> {
        self.here.as_ref().map(|(layout, count)| layout.times(*count))
    }

    /// Whether entries at the target are whole numbers of the origin's, as counts need it.
    pub fn countable(&self) -> bool {
        self.entry.0.is_multiple_of(self.entry.1)
    }
}

fn dense(s: usize, k: usize) -> usize {
    s * EACH + k
}

fn every_second(s: usize, k: usize) -> usize {
    (s * EACH + k) * 2
}

/// Blocks of four in the order 3, 0, 1, 5 of six.
fn shuffled(s: usize, k: usize) -> usize {
    (s * 2 + k / 4) * 6 + [3, 0, 1, 5][k % 4]
}

/// All sides that are tried, for `u32`.
pub fn sides() -> Result<Vec<Side>> {
    let one = Layout::of::<u32>();
    let second = one.resized(0, 8)?;
    let third = one.resized(0, 12)?;
    let shuffle = one.indexed(&[(3, 1), (0, 2), (5, 1)])?.resized(0, 24)?;
    let gapped = one.contiguous(2)?.resized(0, 16)?;
    let side = |name, here, there, at, stride, entry| Side { name, here, there, at, stride, entry };
    Ok(vec![
        side("dense", None, None, dense, EACH, (1, 1)),
        side(
            "strided to dense",
            Some((second.clone(), EACH)),
            Some(one.clone()),
            every_second,
            2 * EACH,
            (1, 1),
        ),
        side("strided on both sides", Some((second, EACH)), None, every_second, 2 * EACH, (1, 1)),
        side("dense to strided", None, Some(third), dense, EACH, (1, 1)),
        side(
            "shuffled to pairs",
            Some((shuffle.clone(), 2)),
            Some(one.contiguous(2)?),
            shuffled,
            12,
            (2, 4),
        ),
        side(
            "shuffled to one entry",
            Some((shuffle, 2)),
            Some(one.contiguous(8)?),
            shuffled,
            12,
            (8, 4),
        ),
        side("dense to gapped pairs", None, Some(gapped), dense, EACH, (2, 1)),
    ])
}

/// A persistent part of [`PART`] elements of `u64`.
pub struct Part {
    pub displacement: usize,
    /// None: elements that follow each other.
    pub shape: Option<(Layout, usize)>,
    /// Element of the target's part in which element `k` lies.
    pub at: fn(usize) -> usize,
}

impl Part {
    pub fn shape(&self) -> Option<Shape<'_>> {
        self.shape.as_ref().map(|(layout, count)| layout.times(*count))
    }
}

/// All parts that are tried; they do not overlap.
pub fn parts() -> Result<Vec<Part>> {
    let one = Layout::of::<u64>();
    let pairs = one.vector(PART / 2, 2, 3)?;
    // Downwards from the displacement.
    let backwards = one.hvector(PART, 1, -8)?;
    Ok(vec![
        Part { displacement: 0, shape: None, at: |k| k },
        Part { displacement: 17, shape: Some((pairs, 1)), at: |k| 17 + k / 2 * 3 + k % 2 },
        Part { displacement: 62, shape: Some((backwards, 1)), at: |k| 62 - k },
    ])
}
