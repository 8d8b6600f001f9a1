//! From an edge-list file to a rank's share of edges over vertices `0..n`: finds out together
//! whether the first line is a header, and gives the file's vertex numbers, which may have gaps,
//! consecutive ones.

use super::super::input::Text;
use super::super::work::{Context, Stop, agree, largest, total};
use super::edge_list::{self, RawEdge, Rest};
use super::kronecker::Edge;
use hither::layout::Op;
use hither::{Rank, Result, Team, Window};

/// A rank's share of a graph's edges.
pub struct Loaded {
    /// Vertices of the whole graph.
    pub vertices: u32,
    /// This rank's edges.
    pub edges: Vec<Edge>,
    /// A remark for the reader.
    pub note: Option<String>,
}

/// Collective: reads a file.
pub fn load(context: &Context<'_>, text: &Text) -> Result<Loaded, Stop> {
    let team = context.team;
    let (rank, ranks) = (team.rank().index(), team.size() as usize);
    let mut edges = agree(team, edge_list::parse(text, rank, ranks))?;
    let note = drop_header(team, &mut edges)?;
    let lines = total(team, edges.len() as u64)?;
    let whole = if lines == 0 { Err(text.refuse("holds no edges")) } else { Ok(()) };
    agree(team, whole)?;

    let names = distinct(team, &edges)?;
    let fits = if names.len() < (u32::MAX - 1) as usize {
        Ok(())
    } else {
        Err(text.refuse(format!("{} vertices are more than this demo can number", names.len())))
    };
    agree(team, fits)?;
    let vertices = names.len() as u32;
    let edges = renumbered(&edges, &names);
    Ok(Loaded { vertices, edges, note })
}

/// Numbers vertices by their place in the ascending list of all names.
fn renumbered(edges: &[RawEdge], names: &[u64]) -> Vec<Edge> {
    let dense = names.last().is_none_or(|&last| last == names.len() as u64 - 1);
    let number = |name: u64| {
        // Every name is in the list, so the search's insertion point is its place.
        if dense { name as u32 } else { names.partition_point(|&n| n < name) as u32 }
    };
    edges.iter().map(|edge| edge.map(number)).collect()
}

/// Collective: removes a header line from where it was read.
fn drop_header(team: &Team, edges: &mut Vec<RawEdge>) -> Result<Option<String>> {
    let me = team.rank();
    let mut holder = [if edges.is_empty() { u32::MAX } else { me.0 }];
    team.allreduce(Op::Min, &mut holder)?;
    if holder[0] == u32::MAX {
        return Ok(None);
    }
    let holder = Rank(holder[0]);
    let mut first = [0; 2];
    if me == holder {
        first.copy_from_slice(&edges[0]);
    }
    team.broadcast(holder, &mut first)?;
    let rest_here = if me == holder { &edges[1..] } else { &edges[..] };
    // Only a line whose second number is the number of lines after it needs the costly part.
    let lines = total(team, rest_here.len() as u64)?;
    if first[1] != lines {
        return Ok(None);
    }
    let names = distinct(team, rest_here)?;
    let largest = names.last().copied().unwrap_or(0);
    let rest = Rest { lines, distinct: names.len() as u64, largest };
    if !edge_list::looks_like_header(first, rest) {
        return Ok(None);
    }
    if me == holder {
        edges.remove(0);
    }
    let [vertices, count] = first;
    Ok(Some(format!("took the first line \"{vertices} {count}\" for a header, not an edge")))
}

/// Collective: the ascending list of all vertices that any rank's edges name.
fn distinct(team: &Team, edges: &[RawEdge]) -> Result<Vec<u64>> {
    let mut mine: Vec<u64> = edges.iter().flatten().copied().collect();
    mine.sort_unstable();
    mine.dedup();
    let window = Window::<u64>::allocate(team, 1 + largest(team, mine.len())?)?;
    window.local().set(0, mine.len() as u64)?;
    window.local().write(1, &mine)?;
    team.barrier()?;
    let epoch = window.lock_all()?;
    let mut all = Vec::new();
    for rank in (0..team.size()).map(Rank) {
        let mut length = [0];
        epoch.get(rank, 0, &mut length)?;
        let start = all.len();
        all.resize(start + length[0] as usize, 0);
        if length[0] > 0 {
            epoch.get(rank, 1, &mut all[start..])?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_gaps_become_consecutive() {
        assert_eq!(renumbered(&[[7, 1 << 40], [3, 7]], &[3, 7, 1 << 40]), [[1, 2], [0, 1]]);
        assert_eq!(renumbered(&[[0, 2], [1, 0]], &[0, 1, 2]), [[0, 2], [1, 0]]);
        assert_eq!(renumbered(&[[u64::MAX, u64::MAX]], &[u64::MAX]), [[0, 0]]);
    }
}
