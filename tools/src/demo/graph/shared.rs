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
        Ok(Reader {
            part: self.part,
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
            row.read(0, &mut graph.columns[start..])?;
            graph.rows.push(graph.columns.len());
        }
        Ok(graph)
    }
}

/// Reads rows of all ranks, where they lie: nobody writes them any more.
pub struct Reader<'a> {
    part: Partition,
    rows: LockAllEpoch<'a, u64>,
    columns: LockAllEpoch<'a, u32>,
}

impl<'a> Reader<'a> {
    fn bounds(&self, owner: Rank, local: usize) -> Result<[u64; 2]> {
        let rows = self.rows.window().part(owner)?;
        Ok([rows.get(local)?, rows.get(local + 1)?])
    }

    /// The neighbours of the vertex at a place. Costs two loads, nothing is copied.
    #[inline]
    pub fn row(&self, owner: Rank, local: usize) -> Result<View<'a, u32>> {
        let [start, end] = self.bounds(owner, local)?;
        self.columns.window().part(owner)?.slice(start as usize, end as usize)
    }

    /// The neighbours of a vertex.
    #[inline]
    pub fn neighbours(&self, vertex: u32) -> Result<View<'a, u32>> {
        let (owner, local) = self.part.place(vertex);
        self.row(owner, local)
    }
}
