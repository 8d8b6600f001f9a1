//! Which ranks are on which node, as a launcher says it in `PMI_process_mapping`.
//!
//! ```text
//! (vector,(0,2,4))            nodes 0 and 1 with 4 ranks each
//! (vector,(0,1,3),(1,1,2))    node 0 with 3 ranks, node 1 with 2
//! ```
//! Each block is a first node, a number of nodes, and ranks on each; when there are more ranks, the
//! whole begins anew.

use crate::base::{Error, Rank, Result};

/// A rank's place among the nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Nodes of the job.
    pub nodes: u32,
    /// The first rank on this one's node, and how many are there.
    pub first: u32,
    pub count: u32,
}

impl Layout {
    /// Everybody on one node.
    pub fn one_node(size: u32) -> Layout {
        Layout { nodes: 1, first: 0, count: size }
    }

    /// That of `rank` of `size`.
    ///
    /// # Errors
    /// [`Error::Boot`]: it is no mapping, or one with ranks in other ways than in consecutive
    /// blocks as equal as they can be.
    pub fn of(mapping: &str, rank: Rank, size: u32) -> Result<Layout> {
        let blocks = blocks(mapping).ok_or_else(|| {
            let said: String = mapping.chars().take(200).collect();
            Error::boot(format!("the launcher's PMI_process_mapping is \"{said}\", which is none"))
        })?;
        let irregular = || {
            let said: String = mapping.chars().take(200).collect();
            Error::boot(format!(
                "the launcher has placed the ranks as {said}; hither needs consecutive ranks on \
                 each node, and as many on each (one more on the first nodes if they do not come \
                 out even): use -ppn with MPICH's mpiexec, --distribution=block with Slurm"
            ))
        };
        let (mut nodes, mut last, mut rising) = (0u32, None, true);
        each_node(&blocks, size, |id, _| {
            rising &= last.is_none_or(|last| id > last);
            (nodes, last) = (nodes + 1, Some(id));
        });
        if !rising {
            return Err(irregular());
        }
        let (each, more) = (size / nodes, size % nodes);
        let (mut at, mut first, mut even) = (0, 0, true);
        let mut own = Layout { nodes, first: 0, count: 0 };
        each_node(&blocks, size, |_, count| {
            even &= count == each + u32::from(at < more);
            if (first..first + count).contains(&rank.0) {
                own = Layout { nodes, first, count };
            }
            (at, first) = (at + 1, first + count);
        });
        if even { Ok(own) } else { Err(irregular()) }
    }
}

/// Calls `f` with each node and how many of `size` ranks follow each other there.
fn each_node(blocks: &[(u32, u32, u32)], size: u32, mut f: impl FnMut(u64, u32)) {
    let (mut next, mut open) = (0, None);
    while next < size {
        for &(start, count, each) in blocks {
            for node in 0..count {
                let (id, more) = (u64::from(start) + u64::from(node), each.min(size - next));
                if more == 0 {
                    break;
                }
                next += more;
                open = match open {
                    Some((same, so_far)) if same == id => Some((id, so_far + more)),
                    before => {
                        before.into_iter().for_each(|(id, count)| f(id, count));
                        Some((id, more))
                    }
                };
            }
        }
    }
    open.into_iter().for_each(|(id, count)| f(id, count));
}

/// The blocks of a mapping: at least one, each of at least one rank.
fn blocks(mapping: &str) -> Option<Vec<(u32, u32, u32)>> {
    let text: String = mapping.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let inner = text.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split_inclusive(')') {
        let block = block.strip_prefix(',').unwrap_or(block);
        let numbers = block.strip_prefix('(')?.strip_suffix(')')?;
        let mut numbers = numbers.split(',').map(|number| number.parse::<u32>().ok());
        let (start, count, each) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if numbers.next().is_some() || count == 0 || each == 0 {
            return None;
        }
        blocks.push((start, count, each));
    }
    (!blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(mapping: &str, rank: u32, size: u32) -> Option<(u32, u32, u32)> {
        let layout = Layout::of(mapping, Rank(rank), size).ok()?;
        Some((layout.nodes, layout.first, layout.count))
    }

    #[test]
    fn mappings_of_launchers() {
        assert_eq!(of("(vector,(0,1,8))", 5, 8), Some((1, 0, 8)));
        assert_eq!(of("(vector,(0,2,4))", 5, 8), Some((2, 4, 4)));
        assert_eq!(of("(vector,(3,2,4))", 3, 8), Some((2, 0, 4)));
        assert_eq!(of("(vector,(0,1,3),(1,1,2))", 4, 5), Some((2, 3, 2)));
        assert_eq!(of("(vector,(0,2,3))", 2, 5), Some((2, 0, 3)));
        assert_eq!(of("(vector,(0,1,2),(0,1,2))", 3, 4), Some((1, 0, 4)));
        assert_eq!(of(" (vector, (0,1,4)) ", 3, 4), Some((1, 0, 4)));
        // One node that is filled again and again.
        assert_eq!(of("(vector,(0,1,1))", 3, 4), Some((1, 0, 4)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        // In turns; uneven; more on the later ones; and no mappings.
        for mapping in ["(vector,(0,2,1))", "(vector,(0,1,3),(1,1,1))", "(vector,(0,1,1),(1,1,3))"]
        {
            let refused = Layout::of(mapping, Rank(0), 4).unwrap_err().to_string();
            assert!(refused.contains("consecutive"), "{mapping}: {refused}");
        }
        for mapping in ["", "(vector)", "(vector,)", "(vector,(0,1))", "(vector,(0,0,1))", "x"] {
            assert!(Layout::of(mapping, Rank(0), 4).is_err(), "{mapping}");
        }
        for mapping in ["(vector,(0,1,0))", "(vector,(0,1,-1))", "(vector,(0,1,5000000000))"] {
            assert!(Layout::of(mapping, Rank(0), 4).is_err(), "{mapping}");
        }
    }

    proptest! {
        /// Against the nodes of ranks, listed.
        #[test]
        fn as_an_oracle_has_it(
            blocks in proptest::collection::vec((0u32..4, 1u32..4, 1u32..4), 1..4),
            size in 1u32..20, rank in 0u32..20,
        ) {
            let rank = rank % size;
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
            let mut distinct = ids.clone();
            distinct.dedup();
            let nodes = distinct.len() as u32;
            let even = ids.iter().enumerate().all(|(at, id)| {
                let (each, more) = (size / nodes, size % nodes);
                let at = at as u32;
                let large = more * (each + 1);
                let node = if at < large { at / (each + 1) } else { more + (at - large) / each };
                distinct[node as usize] == *id
            });
            let sorted = distinct.is_sorted();
            let layout = Layout::of(&format!("(vector{text})"), Rank(rank), size);
            prop_assert_eq!(layout.is_ok(), even && sorted, "{:?} {:?}", ids, layout);
            if let Ok(layout) = layout {
                let own = ids[rank as usize];
                let first = ids.iter().position(|id| *id == own).unwrap() as u32;
                let count = ids.iter().filter(|id| **id == own).count() as u32;
                prop_assert_eq!(layout, Layout { nodes, first, count });
            }
        }

        #[test]
        fn nonsense_never_panics(text in "\\(vector(,?[(),0-9]{0,12}){0,4}\\)?", size in 1u32..9) {
            let _ = Layout::of(&text, Rank(0), size);
        }
    }
}
