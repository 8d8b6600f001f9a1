//! The distributed graph: compressed sparse rows in windows, so that any rank can read any row.
//!
//! ```text
//!   rows     of a rank: start of each owned vertex's row, and the end of the last
//!   columns  of a rank: the rows one after the other, neighbours ascending, without loops and
//!            duplicates
//! ```

use super::super::random::Stream;
use super::super::work::{exchange, largest, total};
use super::kronecker::Edge;
use super::partition::Partition;
use super::serial::{self, rows_of};
use hither::{LockAllEpoch, Rank, Result, Team, View, Window};

/// A graph over the ranks of a team.
pub struct Shared {
    /// Who owns what.
    pub part: Partition,
    /// Neighbours in all rows together: twice the number of different edges.
    pub entries: u64,
    rows: Window<u64>,
    columns: Window<u32>,
}

impl Shared {
    /// Collective: builds the rows from every rank's share of the edges.
    pub fn build(team: &Team, vertices: u32, edges: &[Edge]) -> Result<Shared> {
        let part = Partition::new(vertices, team.size(), team.rank().0);
        let pairs = exchange(team, [0u32; 2], |emit| {
            for &[u, v] in edges {
                if u != v {
                    for [row, neighbour] in [[u, v], [v, u]] {
                        let (owner, local) = part.place(row);
                        emit(owner.0, [local as u32, neighbour]);
                    }
                }
            }
        })?;
        let mine = rows_of(part.owned(), &pairs);
        drop(pairs);
        let starts: Vec<u64> = mine.rows.iter().map(|&at| at as u64).collect();
        let rows = Window::allocate(team, part.capacity() + 1)?;
        let columns = Window::allocate(team, largest(team, mine.columns.len())?)?;
        rows.local().write(0, &starts)?;
        columns.local().write(0, &mine.columns)?;
        let entries = total(team, mine.columns.len() as u64)?;
        Ok(Shared { part, entries, rows, columns })
    }

    /// Opens the rows for reading.
    pub fn reader(&self) -> Result<Reader<'_>> {
        let other = Rank((self.part.rank + 1) % self.part.ranks);
        Ok(Reader {
            part: self.part,
            mapped: self.rows.part(other).is_ok(),
            rows: self.rows.lock_all()?,
            columns: self.columns.lock_all()?,
        })
    }

    /// Up to `count` different vertices with neighbours; the same on every rank.
    pub fn roots(&self, count: usize, seed: u64) -> Result<Vec<u32>> {
        let reader = self.reader()?;
        let draw = Stream::new(seed ^ 0x0007_0075);
        let vertices = self.part.vertices;
        let drawn = (0..64 * count as u64).map(|i| draw.below(i, u64::from(vertices)) as u32);
        let mut roots = Vec::with_capacity(count);
        // Graphs with few edges: take what there is, in order.
        for vertex in drawn.chain(0..vertices) {
            if roots.len() == count {
                break;
            }
            let (owner, local) = self.part.place(vertex);
            let [start, end] = reader.bounds(owner, local)?;
            if start != end && !roots.contains(&vertex) {
                roots.push(vertex);
            }
        }
        Ok(roots)
    }

    /// The whole graph in private memory.
    pub fn gather(&self) -> Result<serial::Graph> {
        let reader = self.reader()?;
        let mut graph = serial::Graph { rows: vec![0], columns: Vec::new() };
        for vertex in 0..self.part.vertices {
            let (owner, local) = self.part.place(vertex);
            let row = reader.row(owner, local)?;
            let start = graph.columns.len();
            graph.columns.resize(start + row.len(), 0);
            row.read(&mut graph.columns[start..])?;
            graph.rows.push(graph.columns.len());
        }
        Ok(graph)
    }
}

/// The neighbours of a vertex.
pub enum Row<'a> {
    /// Where they lie.
    Here(View<'a, u32>),
    /// A copy, of what lies on another node.
    Copied(Vec<u32>),
}

impl Row<'_> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Row::Here(view) => view.len(),
            Row::Copied(row) => row.len(),
        }
    }

    /// One of them.
    #[inline]
    pub fn get(&self, index: usize) -> Result<u32> {
        match self {
            Row::Here(view) => view.get(index),
            Row::Copied(row) => Ok(row[index]),
        }
    }

    /// All of them.
    pub fn read(&self, into: &mut [u32]) -> Result<()> {
        match self {
            Row::Here(view) => view.read(0, into),
            Row::Copied(row) => {
                into.copy_from_slice(row);
                Ok(())
            }
        }
    }
}

/// Reads rows of all ranks, where they lie if all ranks are on one node: nobody writes them any more.
pub struct Reader<'a> {
    part: Partition,
    /// All parts are mapped.
    mapped: bool,
    rows: LockAllEpoch<'a, u64>,
    columns: LockAllEpoch<'a, u32>,
}

impl<'a> Reader<'a> {
    fn bounds(&self, owner: Rank, local: usize) -> Result<[u64; 2]> {
        let window = self.rows.window();
        let rows = match owner.0 == self.part.rank {
            true => window.local(),
            false if self.mapped => window.part(owner)?,
            false => {
                let mut bounds = [0; 2];
                self.rows.get(owner, local, &mut bounds)?;
                return Ok(bounds);
            }
        };
        Ok([rows.get(local)?, rows.get(local + 1)?])
    }

    /// The neighbours of the vertex at a place. Costs two loads, nothing is copied; on another node
    /// two round trips.
    #[inline]
    pub fn row(&self, owner: Rank, local: usize) -> Result<Row<'a>> {
        let [start, end] = self.bounds(owner, local)?;
        let (start, end) = (start as usize, end as usize);
        let window = self.columns.window();
        let columns = match owner.0 == self.part.rank {
            true => window.local(),
            false if self.mapped => window.part(owner)?,
            false => {
                let mut row = vec![0; end.saturating_sub(start)];
                self.columns.get(owner, start, &mut row)?;
                return Ok(Row::Copied(row));
            }
        };
        Ok(Row::Here(columns.slice(start, end)?))
    }

    /// The neighbours of a vertex.
    #[inline]
    pub fn neighbours(&self, vertex: u32) -> Result<Row<'a>> {
        let (owner, local) = self.part.place(vertex);
        self.row(owner, local)
    }
}
