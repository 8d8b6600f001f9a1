//! Which ranks are on which node, as a launcher says it in `PMI_process_mapping`.
//!
//! ```text
//! (vector,(0,2,4))            nodes 0 and 1 with 4 ranks each
//! (vector,(0,1,3),(1,1,2))    node 0 with 3 ranks, node 1 with 2
//! (vector,(0,3,1))            with 6 ranks: nodes 0, 1, 2 in turn, twice
//! ```
//! Each block is a first node, a number of nodes, and ranks on each; when there are more ranks, the
//! whole begins anew.

use crate::base::{Error, Result};
use crate::topo::{Block, Places};

/// Whether a mapping says nothing about nodes, where Slurm distributes ranks in this way: of any order that
/// its user may want (`--distribution=arbitrary`, a file of hosts) it says that each rank is on a node of
/// its own.
pub fn is_made_up(distribution: &str) -> bool {
    distribution.split([':', ',']).next() == Some("arbitrary")
}

/// The places that a mapping gives to `size` ranks.
///
/// # Errors
/// [`Error::Boot`] if it is no mapping.
pub fn places(mapping: &str, size: u32) -> Result<Places> {
    let blocks = blocks(mapping).ok_or_else(|| {
        let said: String = mapping.chars().take(200).collect();
        Error::boot(format!("the launcher's PMI_process_mapping is \"{said}\", which is none"))
    })?;
    Places::of_blocks(size, &blocks)
}

/// The blocks of a mapping: at least one, each of at least one rank.
fn blocks(mapping: &str) -> Option<Vec<Block>> {
    let text: String = mapping.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let inner = text.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split_inclusive(')') {
        let block = block.strip_prefix(',').unwrap_or(block);
        let numbers = block.strip_prefix('(')?.strip_suffix(')')?;
        let mut numbers = numbers.split(',').map(|number| number.parse::<u32>().ok());
        let (node, nodes, each) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if numbers.next().is_some() || nodes == 0 || each == 0 {
            return None;
        }
        blocks.push(Block { node, nodes, each });
    }
    (!blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(mapping: &str, size: u32) -> Option<Vec<u32>> {
        let places = places(mapping, size).ok()?;
        (0..size).map(|rank| places.node_of(rank)).collect()
    }

    #[test]
    fn mappings_of_launchers() {
        let list = |mapping, size| of(mapping, size).unwrap();
        assert_eq!(list("(vector,(0,1,8))", 8), [0; 8]);
        assert_eq!(list("(vector,(0,2,4))", 8), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(list("(vector,(3,2,2))", 4), [0, 0, 1, 1]);
        assert_eq!(list("(vector,(0,1,3),(1,1,2))", 5), [0, 0, 0, 1, 1]);
        assert_eq!(list("(vector,(0,2,3))", 5), [0, 0, 0, 1, 1]);
        assert_eq!(list("(vector,(0,1,2),(0,1,2))", 4), [0; 4]);
        assert_eq!(list(" (vector, (0,1,4)) ", 4), [0; 4]);
        // Again and again.
        assert_eq!(list("(vector,(0,1,1))", 4), [0; 4]);
        assert_eq!(list("(vector,(0,2,1))", 5), [0, 1, 0, 1, 0]);
        assert_eq!(list("(vector,(0,1,1),(1,1,2))", 5), [0, 1, 1, 0, 1]);
        // Nodes of different sizes, and in any order.
        assert_eq!(list("(vector,(0,2,2),(2,1,3))", 7), [0, 0, 1, 1, 2, 2, 2]);
        assert_eq!(list("(vector,(1,1,2),(0,1,2))", 4), [0, 0, 1, 1]);
        assert_eq!(list("(vector,(5,1,1),(0,1,2),(5,1,1))", 4), [0, 1, 1, 0]);
    }

    #[test]
    fn only_an_arbitrary_distribution_has_no_mapping() {
        for known in
            ["block", "cyclic", "cyclic:cyclic", "plane", "block:block,Pack", "", "arbitrar"]
        {
            assert!(!is_made_up(known), "{known}");
        }
        assert!(
            is_made_up("arbitrary")
                && is_made_up("arbitrary:block")
                && is_made_up("arbitrary,Pack")
        );
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for mapping in ["", "(vector)", "(vector,)", "(vector,(0,1))", "(vector,(0,0,1))", "x"] {
            let refused = places(mapping, 4).unwrap_err().to_string();
            assert!(refused.contains("PMI_process_mapping"), "{mapping}: {refused}");
        }
        for mapping in ["(vector,(0,1,0))", "(vector,(0,1,-1))", "(vector,(0,1,5000000000))"] {
            assert!(places(mapping, 4).is_err(), "{mapping}");
        }
    }

    proptest! {
        /// Against the nodes of ranks, listed.
        #[test]
        fn as_an_oracle_has_it(
            blocks in proptest::collection::vec((0u32..4, 1u32..4, 1u32..4), 1..4),
            size in 1u32..40,
        ) {
            let text: String = blocks.iter().map(|(a, b, c)| format!(",({a},{b},{c})")).collect();
            let mut ids = Vec::new();
            while ids.len() < size as usize {
                for (start, count, each) in &blocks {
                    for node in 0..*count {
                        ids.extend((0..*each).map(|_| start + node));
                    }
                }
            }
            ids.truncate(size as usize);
            let nodes = of(&format!("(vector{text})"), size).unwrap();
            let mut first = Vec::new();
            for (rank, id) in ids.iter().enumerate() {
                if !ids[..rank].contains(id) {
                    first.push(*id);
                }
                let number = first.iter().position(|other| other == id).unwrap();
                prop_assert_eq!(nodes[rank] as usize, number, "{:?} {:?}", ids, nodes);
            }
        }

        #[test]
        fn nonsense_never_panics(text in "\\(vector(,?[(),0-9]{0,12}){0,4}\\)?", size in 1u32..9) {
            let _ = places(&text, size);
        }
    }
}
