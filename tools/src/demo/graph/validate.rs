//! The five rules by which Graph 500 accepts a parent tree:
//!
//! 1. it is a tree (no cycles) rooted at the root;
//! 2. each tree edge connects vertices whose levels differ by exactly one;
//! 3. every edge of the input connects vertices whose levels differ by at most one,
//! 4. or that both are outside the tree: the tree spans the whole component of the root;
//! 5. each vertex and its parent are joined by an edge of the input.
//!
//! The input is the edge list itself, not the rows that were built from it, so that a mistake in
//! their construction is found too. Each rank checks its slice of the edges; the levels are
//! derived from the tree alone, which makes rule 2 part of rule 1.

use super::bitmap::Bitmap;
use super::kronecker::Edge;
use super::partition::NONE;

const OPEN: u32 = NONE - 1;

/// Level of every vertex from the parents (`NONE` outside the tree): rules 1 and 2.
pub fn levels(parents: &[u32], root: u32) -> Result<Vec<u32>, String> {
    if parents[root as usize] != root {
        return Err(format!("the root {root} is not its own parent"));
    }
    let mut levels = vec![NONE; parents.len()];
    levels[root as usize] = 0;
    let mut path = Vec::new();
    for start in 0..parents.len() as u32 {
        if parents[start as usize] == NONE {
            continue;
        }
        // Climb to a vertex whose level is known; OPEN marks this climb's own steps.
        let mut at = start;
        while levels[at as usize] == NONE {
            levels[at as usize] = OPEN;
            path.push(at);
            let parent = parents[at as usize];
            if parent == NONE {
                return Err(format!("vertex {at} is a parent but not in the tree"));
            }
            if parent as usize >= parents.len() {
                return Err(format!("the parent {parent} of vertex {at} is no vertex"));
            }
            at = parent;
        }
        if levels[at as usize] == OPEN {
            return Err(format!("vertex {at} is its own ancestor"));
        }
        let mut level = levels[at as usize];
        for vertex in path.drain(..).rev() {
            level += 1;
            levels[vertex as usize] = level;
        }
    }
    Ok(levels)
}

/// Checks rules 3 and 4 on some edges, and notes in `joined` the vertices whose parent an edge
/// leads to. Returns how many of the edges lie in the component (duplicates and loops count).
pub fn check_edges(
    parents: &[u32],
    levels: &[u32],
    edges: &[Edge],
    joined: &mut Bitmap,
) -> Result<u64, String> {
    let mut inside = 0;
    for &[u, v] in edges {
        let (lu, lv) = (levels[u as usize], levels[v as usize]);
        if (lu == NONE) != (lv == NONE) {
            return Err(format!(
                "the edge {u}-{v} leaves the tree: it does not span its component"
            ));
        }
        if lu == NONE {
            continue;
        }
        if lu.abs_diff(lv) > 1 {
            return Err(format!("the edge {u}-{v} connects the levels {lu} and {lv}"));
        }
        inside += 1;
        if parents[u as usize] == v {
            joined.insert(u);
        }
        if parents[v as usize] == u {
            joined.insert(v);
        }
    }
    Ok(inside)
}

/// Rule 5, once the notes of all ranks are combined.
pub fn check_joined(parents: &[u32], root: u32, joined: &Bitmap) -> Result<(), String> {
    for (vertex, &parent) in parents.iter().enumerate() {
        let vertex = vertex as u32;
        if parent != NONE && vertex != root && !joined.contains(vertex) {
            return Err(format!("no edge joins vertex {vertex} and its parent {parent}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::serial::Graph;
    use super::*;
    use proptest::prelude::*;

    fn check(parents: &[u32], root: u32, edges: &[Edge]) -> Result<u64, String> {
        let levels = levels(parents, root)?;
        let mut joined = Bitmap::new(parents.len());
        let inside = check_edges(parents, &levels, edges, &mut joined)?;
        check_joined(parents, root, &joined)?;
        Ok(inside)
    }

    const SQUARE: [Edge; 5] = [[0, 1], [1, 2], [2, 3], [3, 0], [4, 5]];

    #[test]
    fn a_right_tree_passes_and_counts_its_component() {
        assert_eq!(check(&[0, 0, 1, 0, NONE, NONE], 0, &SQUARE), Ok(4));
    }

    #[test]
    fn each_rule_catches_its_fault() {
        let fault = |parents: [u32; 6]| check(&parents, 0, &SQUARE).expect_err("a wrong tree");
        assert!(fault([1, 0, 1, 0, NONE, NONE]).contains("not its own parent"));
        assert!(fault([0, 2, 1, 0, NONE, NONE]).contains("its own ancestor"));
        assert!(fault([0, 0, 4, 0, NONE, NONE]).contains("not in the tree"));
        assert!(fault([0, 0, 77, 0, NONE, NONE]).contains("no vertex"));
        assert!(fault([0, 0, NONE, 0, NONE, NONE]).contains("leaves the tree"));
        // 3 reached the long way round: levels 0 and 3 are adjacent.
        assert!(fault([0, 0, 1, 2, NONE, NONE]).contains("levels"));
        // 2 hangs on 0 without an edge; the levels alone look right.
        assert!(fault([0, 0, 0, 0, NONE, NONE]).contains("no edge joins"));
    }

    proptest! {
        #[test]
        fn the_serial_search_passes_and_any_other_distance_fails(
            edges in proptest::collection::vec((0u32..20, 0u32..20), 1..60),
            vertex in 0u32..20, parent in 0u32..20,
        ) {
            let edges: Vec<Edge> = edges.iter().map(|&(u, v)| [u, v]).collect();
            let root = edges[0][0];
            let (mut parents, want) = Graph::new(20, &edges).search(root);
            let inside = edges.iter().filter(|e| want[e[0] as usize] != NONE).count() as u64;
            prop_assert_eq!(check(&parents, root, &edges), Ok(inside));
            prop_assert_eq!(&levels(&parents, root).expect("a tree"), &want);
            // Change one parent: the check passes exactly if the result is again a tree of
            // shortest paths along edges.
            parents[vertex as usize] = parent;
            let joined = vertex == parent && vertex == root
                || vertex != root && want[vertex as usize] != NONE && want[parent as usize] != NONE
                    && want[parent as usize] + 1 == want[vertex as usize]
                    && edges.iter().any(|e| *e == [vertex, parent] || *e == [parent, vertex]);
            prop_assert_eq!(check(&parents, root, &edges).is_ok(), joined);
        }
    }
}
