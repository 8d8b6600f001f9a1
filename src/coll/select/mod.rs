//! Which algorithm carries out which call: a table, read from the top, that the setting
//! `HITHER_COLL` puts rows before.
//!
//! ```text
//! setting   = row { "," row }
//! row       = operation ":" range [ "@" range ] "=" algorithm      allreduce:0-56=boards
//! operation = a name of the table, or "*"                          *:64K-=direct
//! range     = low "-" high | low "-" | number | "*"                broadcast:1M-@2-4=pieces
//! ```
//! The first range counts bytes (see [`Row::bytes`]), the second members. All members must have
//! the same setting: the algorithm is part of what is compared between them.
//!
//! A row that cannot be used for a call is passed over: boards hold 56 bytes, shares need at
//! least one unit of data per member, and what is not mapped cannot be read directly.

mod parse;
#[cfg(test)]
mod tests;

use super::block::{BOARD, PIECE};
use super::sign::What;
use crate::base::{Result, settings};
use std::fmt;
use std::sync::Arc;

/// How a collective moves its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// Each member shows up to 56 bytes in the cache line that also synchronises: one transfer
    /// per peer, no barrier; with more than 16 members, or where barriers are by count, a barrier
    /// and then a look.
    Boards = 1,
    /// Each member shows 16 KiB at a time; barrier; each takes, or combines, what it wants.
    Pieces = 2,
    /// The same, but each member combines a share of the elements for all.
    Shares = 3,
    /// Members read each other's data where they lie, if that is in the node's memory.
    Direct = 4,
    /// Barriers: ceil(log4 n) rounds of flags, each polled by three; no line that all write.
    Dissemination = 5,
    /// Barriers: one counter; the last to arrive releases all, with one waking.
    Count = 6,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::Boards,
        Algorithm::Pieces,
        Algorithm::Shares,
        Algorithm::Direct,
        Algorithm::Dissemination,
        Algorithm::Count,
    ];

    /// What it is called in settings and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Boards => "boards",
            Algorithm::Pieces => "pieces",
            Algorithm::Shares => "shares",
            Algorithm::Direct => "direct",
            Algorithm::Dissemination => "dissemination",
            Algorithm::Count => "count",
        }
    }

    pub(super) fn from_raw(raw: u8) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|how| *how as u8 == raw)
    }

    /// Whether it is there for an operation at all.
    pub const fn serves(self, what: What) -> bool {
        use What::{
            Allreduce, Alltoallv, Barrier, Exscan, Gatherv, Reduce, ReduceScatter,
            ReduceScatterBlock, Scan, Scatterv,
        };
        if !what.is_chosen() {
            return false;
        }
        match self {
            Algorithm::Dissemination | Algorithm::Count => matches!(what, Barrier),
            Algorithm::Boards | Algorithm::Pieces => !matches!(what, Barrier),
            Algorithm::Shares => matches!(what, Reduce | Allreduce | Scan | Exscan),
            Algorithm::Direct => !matches!(
                what,
                Barrier
                    | Gatherv
                    | Scatterv
                    | Alltoallv
                    | Scan
                    | Exscan
                    | ReduceScatter
                    | ReduceScatterBlock
            ),
        }
    }

    /// Whether it can carry out a call on so many bytes.
    fn fits(self, what: What, bytes: u64, members: u32) -> bool {
        let board = BOARD as u64;
        match self {
            Algorithm::Boards => match what {
                // One board holds what there is for all members.
                What::Scatter | What::Alltoall | What::ReduceScatterBlock => {
                    bytes.checked_mul(members.into()).is_some_and(|all| all <= board)
                }
                // And beside the data, what the others do not know of them.
                What::Gatherv | What::Scatterv | What::Alltoallv => false,
                _ => bytes <= board,
            },
            Algorithm::Shares => members as usize <= PIECE / 64,
            _ => true,
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The operation; all for `None`.
    pub what: Option<What>,
    /// From and to how many bytes: of the data (broadcast, reductions, scans), or of one member's
    /// block (gathers, scatters, alltoall).
    pub bytes: (u64, u64),
    /// From and to how many members.
    pub members: (u32, u32),
    /// Only where every rank of the job can have a core of its own (`true`), or only where not.
    pub cores: Option<bool>,
    /// What is done.
    pub algorithm: Algorithm,
    /// Whether the setting has put it there.
    pub set: bool,
}

const fn row(what: What, bytes: (u64, u64), members: (u32, u32), algorithm: Algorithm) -> Row {
    Row { what: Some(what), bytes, members, cores: None, algorithm, set: false }
}

const ALL: u64 = u64::MAX;
const ANY: (u32, u32) = (1, u32::MAX);
/// Bytes from which on it pays to tell each other addresses first.
const LARGE: u64 = 32 << 10;

/// The rows that are always there. What no row is for goes by pieces.
const DEFAULTS: &[Row] = &[
    // Without cores for all, what costs is handing them round, and one waking is enough.
    Row { cores: Some(true), ..row(What::Barrier, (0, ALL), ANY, Algorithm::Dissemination) },
    Row { cores: Some(false), ..row(What::Barrier, (0, ALL), ANY, Algorithm::Count) },
    row(What::Broadcast, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Broadcast, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Broadcast, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Gather, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Gather, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Gather, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Gatherv, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Scatter, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Scatter, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Scatter, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Scatterv, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Allgather, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Allgather, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Allgather, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Allgatherv, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Allgatherv, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Allgatherv, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Alltoall, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Alltoall, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Alltoall, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Alltoallv, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Reduce, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Reduce, (LARGE, ALL), (1, 4), Algorithm::Direct),
    row(What::Reduce, (0, ALL), (1, 3), Algorithm::Pieces),
    row(What::Reduce, (0, ALL), ANY, Algorithm::Shares),
    row(What::Allreduce, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Allreduce, (LARGE, ALL), ANY, Algorithm::Direct),
    row(What::Allreduce, (0, ALL), (1, 2), Algorithm::Pieces),
    row(What::Allreduce, (0, 1024), (1, 8), Algorithm::Pieces),
    row(What::Allreduce, (0, ALL), ANY, Algorithm::Shares),
    row(What::ReduceScatter, (0, ALL), ANY, Algorithm::Pieces),
    row(What::ReduceScatterBlock, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::ReduceScatterBlock, (0, ALL), ANY, Algorithm::Pieces),
    row(What::Scan, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Scan, (0, ALL), (1, 3), Algorithm::Pieces),
    row(What::Scan, (0, 1024), (1, 8), Algorithm::Pieces),
    row(What::Scan, (0, ALL), ANY, Algorithm::Shares),
    row(What::Exscan, (0, BOARD as u64), ANY, Algorithm::Boards),
    row(What::Exscan, (0, ALL), (1, 3), Algorithm::Pieces),
    row(What::Exscan, (0, 1024), (1, 8), Algorithm::Pieces),
    row(What::Exscan, (0, ALL), ANY, Algorithm::Shares),
];

/// What a call does: `first`, or `otherwise` where that turns out not to be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub first: Algorithm,
    pub otherwise: Algorithm,
}

/// The table with the rows of a setting before it.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// The table of this process: `HITHER_COLL` and the rows that are always there.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] says what is wrong with the setting.
    pub fn of_settings() -> Result<Table> {
        Table::with(&settings::COLL.text())
    }

    /// The table with these rows before it, written as in the setting.
    ///
    /// # Errors
    /// As for [`Table::of_settings`].
    pub fn with(setting: &str) -> Result<Table> {
        let mut rows = parse::rows(setting)?;
        rows.extend_from_slice(DEFAULTS);
        Ok(Table { rows })
    }

    /// Its rows, first to last.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What a call does.
    pub(super) fn choose(&self, what: What, bytes: u64, members: u32, cores: bool) -> Choice {
        let fits = |row: &&Row| {
            row.what.is_none_or(|of| of == what)
                && (row.bytes.0..=row.bytes.1).contains(&bytes)
                && (row.members.0..=row.members.1).contains(&members)
                && row.cores.is_none_or(|wanted| wanted == cores)
                && row.algorithm.serves(what)
                && row.algorithm.fits(what, bytes, members)
        };
        let mut all = self.rows.iter().filter(fits).map(|row| row.algorithm);
        let first = all.next().unwrap_or(Algorithm::Pieces);
        let otherwise = match first {
            Algorithm::Direct => all.find(|how| *how != Algorithm::Direct),
            other => Some(other),
        };
        Choice { first, otherwise: otherwise.unwrap_or(Algorithm::Pieces) }
    }

    /// What calls of these sizes do in a team of `members` with a core for every rank or not:
    /// ranges of bytes with the algorithm in each.
    pub fn ranges(&self, what: What, members: u32, cores: bool) -> Vec<((u64, u64), Algorithm)> {
        // The algorithm changes only where a row begins or ends, or where boards are full.
        let board = BOARD as u64;
        let mut starts = vec![0, board + 1, board / u64::from(members.max(1)) + 1];
        for row in &self.rows {
            starts.extend([Some(row.bytes.0), row.bytes.1.checked_add(1)].into_iter().flatten());
        }
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<((u64, u64), Algorithm)> = Vec::new();
        for (at, &start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).map_or(ALL, |next| next - 1);
            let how = self.choose(what, start, members, cores).first;
            match ranges.last_mut() {
                Some((range, before)) if *before == how => range.1 = end,
                _ => ranges.push(((start, end), how)),
            }
        }
        ranges
    }
}

/// The table once per attachment to a node: settings do not change.
pub(super) struct Selected(pub Arc<Table>);

impl Selected {
    pub fn new() -> Result<Selected> {
        Table::of_settings().map(|table| Selected(Arc::new(table)))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.map_or("*", What::name))?;
        write!(f, ":{}", Span(self.bytes.0, self.bytes.1, ALL))?;
        if self.members != ANY {
            let (low, high) = self.members;
            write!(f, "@{}", Span(low.into(), high.into(), u32::MAX.into()))?;
        }
        write!(f, "={}", self.algorithm.name())
    }
}

/// A range as settings write it; `2` without an end.
struct Span(u64, u64, u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span(low, high, most) = *self;
        match (low, high) {
            (low, high) if high == most => write!(f, "{}-", size_text(low)),
            (low, high) => write!(f, "{}-{}", size_text(low), size_text(high)),
        }
    }
}

/// A number of bytes as settings write it: `64K`, `1M`.
pub fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
