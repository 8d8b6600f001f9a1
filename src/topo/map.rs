//! How a user says which ranks are to be on which node.

use super::places::Places;
use crate::base::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// How the ranks of a job are put on its nodes. As text: `block`, `cyclic`, `cyclic:4`, `3,1,4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Map {
    /// Consecutive ranks on each node, in blocks as equal as they can be.
    #[default]
    Block,
    /// Blocks of so many ranks go round the nodes.
    Cyclic(u32),
    /// So many consecutive ranks on each node.
    Counts(Vec<u32>),
}

impl Map {
    /// The nodes of so many ranks. Without a number of nodes there are as many as it names, or one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if ranks cannot be on nodes in this way.
    pub fn places(&self, ranks: u32, nodes: Option<u32>) -> Result<Places> {
        let counts = match self {
            Map::Block => return Places::equal(ranks, nodes.unwrap_or(1)),
            Map::Cyclic(block) => return Places::cyclic(ranks, *block, nodes.unwrap_or(1)),
            Map::Counts(counts) => counts,
        };
        let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let wrong = |why: String| Err(Error::invalid("map of ranks to nodes", why));
        if nodes.is_some_and(|nodes| nodes as usize != counts.len()) {
            let (has, nodes) = (counts.len(), nodes.unwrap_or_default());
            return wrong(format!(
                "{self} names the ranks on {has} nodes, and there are to be {nodes}; give one \
                 number for each node, or leave the number of nodes out"
            ));
        }
        if sum != u64::from(ranks) {
            return wrong(format!(
                "{self} places {sum} ranks, and there are to be {ranks}; give a number of ranks \
                 for each node that sum up to the ranks of the job"
            ));
        }
        Places::counts(counts)
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Map::Block => f.write_str("block"),
            Map::Cyclic(1) => f.write_str("cyclic"),
            Map::Cyclic(block) => write!(f, "cyclic:{block}"),
            Map::Counts(counts) => {
                let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
                f.write_str(&counts.join(","))
            }
        }
    }
}

impl FromStr for Map {
    type Err = Error;

    fn from_str(text: &str) -> Result<Map> {
        let number = |text: &str| text.trim().parse().ok().filter(|number: &u32| *number > 0);
        let map = match text.trim() {
            "block" => Some(Map::Block),
            "cyclic" => Some(Map::Cyclic(1)),
            text => match text.strip_prefix("cyclic:") {
                Some(block) => number(block).map(Map::Cyclic),
                None => text.split(',').map(number).collect::<Option<_>>().map(Map::Counts),
            },
        };
        map.ok_or_else(|| {
            let why = format!(
                "\"{text}\" is none; give block (consecutive ranks on each node), cyclic (one rank \
                 on each node in turn), cyclic:4 (blocks of 4 in turn), or the ranks on each node, \
                 as 3,1,4"
            );
            Error::invalid("map of ranks to nodes", why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(map: &str, ranks: u32, nodes: Option<u32>) -> Result<Vec<u32>> {
        let places = map.parse::<Map>()?.places(ranks, nodes)?;
        Ok((0..ranks).filter_map(|rank| places.node_of(rank)).collect())
    }

    #[test]
    fn ranks_are_where_the_text_says() {
        assert_eq!(nodes("block", 5, Some(2)).unwrap(), [0, 0, 0, 1, 1]);
        assert_eq!(nodes("cyclic", 5, Some(2)).unwrap(), [0, 1, 0, 1, 0]);
        assert_eq!(nodes("cyclic:2", 7, Some(3)).unwrap(), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(nodes("cyclic:2", 5, Some(3)).unwrap(), [0, 0, 1, 1, 2]);
        assert_eq!(nodes("1,3", 4, None).unwrap(), [0, 1, 1, 1]);
        assert_eq!(nodes(" 1, 3 ", 4, Some(2)).unwrap(), [0, 1, 1, 1]);
        assert_eq!(nodes("cyclic", 3, None).unwrap(), [0, 0, 0]);
        for text in ["block", "cyclic", "cyclic:3", "1,2,3"] {
            assert_eq!(text.parse::<Map>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for text in ["", "blocks", "cyclic:0", "cyclic:", "cyclic:x", "1,,2", "1,0", "-1", "3;1"] {
            let error = text.parse::<Map>().unwrap_err().to_string();
            assert!(error.contains("cyclic:4"), "{text}: {error}");
        }
        for (map, ranks, count, advice) in [
            ("block", 2, Some(3), "one rank or more"),
            ("cyclic", 2, Some(3), "one rank or more"),
            ("cyclic:3", 6, Some(3), "at most 2"),
            ("2,2", 5, None, "sum up"),
            ("2,2", 4, Some(3), "leave the number of nodes out"),
            ("4294967295,2", 1, None, "sum up"),
        ] {
            let error = nodes(map, ranks, count).unwrap_err().to_string();
            assert!(error.contains(advice), "{map}: {error}");
        }
    }
}
