//! A plain graph in private memory and the textbook breadth-first search: the oracle of the tests
//! and the data of the threads baseline.

use super::kronecker::Edge;
use super::partition::NONE;

/// Compressed sparse rows of an undirected graph without loops and duplicate edges.
pub struct Graph {
    /// Row `v` is `columns[rows[v]..rows[v + 1]]`.
    pub rows: Vec<usize>,
    /// Neighbours, ascending in each row.
    pub columns: Vec<u32>,
}

/// Rows from directed pairs (row, neighbour): sorted, without duplicates.
pub fn rows_of(count: usize, pairs: &[Edge]) -> Graph {
    let mut starts = vec![0usize; count + 1];
    for pair in pairs {
        starts[pair[0] as usize + 1] += 1;
    }
    for row in 0..count {
        starts[row + 1] += starts[row];
    }
    let mut place = starts.clone();
    let mut columns = vec![0u32; pairs.len()];
    for pair in pairs {
        let at = &mut place[pair[0] as usize];
        columns[*at] = pair[1];
        *at += 1;
    }
    // Sort each row and close the gaps that duplicates leave.
    let mut rows = Vec::with_capacity(count + 1);
    rows.push(0);
    let mut end = 0;
    for row in 0..count {
        let range = starts[row]..starts[row + 1];
        columns[range.clone()].sort_unstable();
        let begin = end;
        for at in range {
            if end == begin || columns[end - 1] != columns[at] {
                columns[end] = columns[at];
                end += 1;
            }
        }
        rows.push(end);
    }
    columns.truncate(end);
    columns.shrink_to_fit();
    Graph { rows, columns }
}

#[cfg(test)]
impl Graph {
    /// The undirected graph of an edge list.
    pub fn new(vertices: u32, edges: &[Edge]) -> Graph {
        let pairs: Vec<Edge> =
            edges.iter().filter(|e| e[0] != e[1]).flat_map(|&[u, v]| [[u, v], [v, u]]).collect();
        rows_of(vertices as usize, &pairs)
    }

    /// Parent and level of every vertex; `NONE` where the root does not reach.
    pub fn search(&self, root: u32) -> (Vec<u32>, Vec<u32>) {
        let count = self.rows.len() - 1;
        let (mut parents, mut levels) = (vec![NONE; count], vec![NONE; count]);
        let mut queue = std::collections::VecDeque::from([root]);
        (parents[root as usize], levels[root as usize]) = (root, 0);
        while let Some(vertex) = queue.pop_front() {
            let row = self.rows[vertex as usize]..self.rows[vertex as usize + 1];
            for &next in &self.columns[row] {
                if parents[next as usize] == NONE {
                    parents[next as usize] = vertex;
                    levels[next as usize] = levels[vertex as usize] + 1;
                    queue.push_back(next);
                }
            }
        }
        (parents, levels)
    }
}

const _: () = assert!(NONE == u32::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_without_duplicates_and_loops() {
        let graph = Graph::new(5, &[[3, 1], [1, 3], [3, 0], [2, 2], [3, 1]]);
        assert_eq!(graph.rows, [0, 1, 2, 2, 4, 4]);
        assert_eq!(graph.columns, [3, 3, 0, 1]);
    }

    #[test]
    fn levels_of_a_known_graph() {
        // 0-1-2-3 with a shortcut 0-3, and 4-5 apart.
        let graph = Graph::new(6, &[[0, 1], [1, 2], [2, 3], [0, 3], [4, 5]]);
        let (parents, levels) = graph.search(0);
        assert_eq!(levels, [0, 1, 2, 1, NONE, NONE]);
        assert_eq!(parents[0], 0);
        assert_eq!(parents[4], NONE);
    }

    #[test]
    fn the_shipped_graph_has_the_known_level_counts() {
        let text =
            super::super::super::input::Text::shipped("--graph", "g", super::super::GNUTELLA);
        let edges = super::super::edge_list::parse(&text, 0, 1).expect("a good list");
        let edges: Vec<Edge> = edges.iter().map(|e| [e[0] as u32, e[1] as u32]).collect();
        let graph = Graph::new(26_518, &edges);
        let (_, levels) = graph.search(0);
        // SNAP publishes the size of the largest weakly connected component.
        assert_eq!(levels.iter().filter(|&&l| l != NONE).count(), 26_498);
    }
}
