//! The node of each rank of a job, and its number there, without a table of ranks.
//!
//! ```text
//!   equal      0 0 0 1 1 2 2          7 ranks on 3 nodes, in blocks as equal as they can be
//!   cyclic     0 0 1 1 0 0 1          blocks of 2 go round 2 nodes
//!   pattern    0 1 1 2  0 1 1 2  0    blocks of any sizes, again and again
//! ```
//! In the manner of the maps of local process ids of paper 001 §5.3: the regular ones have a constant
//! size, others one that grows with the number of blocks of which their pattern is made. Whatever is
//! said of ranks and nodes comes as such blocks ([`Block`]), which is how MPI launchers say it, and
//! is brought to its smallest form.
//!
//! What is asked of a map is asked of a node's *stretches*: where within a period its ranks are.

use crate::base::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Most ranks of a job: a slot is a number of 16 bits, and some words hold it plus one.
pub const MAX_RANKS: u32 = u16::MAX as u32 - 1;

/// Ranks that follow each other, `each` of them on each of `nodes` nodes from `node` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The first node.
    pub node: u32,
    /// How many nodes.
    pub nodes: u32,
    /// Ranks on each.
    pub each: u32,
}

impl Block {
    fn ranks(self) -> u32 {
        self.nodes * self.each
    }
}

/// Ranks of a period that follow each other on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    /// The first one, counted from the period's.
    pub start: u32,
    /// How many.
    pub len: u32,
    /// Ranks of the same node before, in the period.
    pub before: u32,
}

/// What is repeated where there is no simpler rule.
#[derive(PartialEq, Eq, Debug)]
struct Pattern {
    /// Ranks of one round; those of the job, if there is but one.
    period: u32,
    /// Each with its first rank.
    runs: Box<[(u32, Block)]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// Consecutive blocks; the first nodes have one rank more if it does not come out even.
    Equal,
    /// Blocks of so many go round the nodes.
    Cyclic(u32),
    Pattern(Arc<Pattern>),
}

/// Maps the ranks of a job to nodes. Nodes are numbered in the order of their first ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    ranks: u32,
    nodes: u32,
    form: Form,
}

impl Places {
    /// Consecutive blocks on all nodes, as equal as they can be.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no ranks, no nodes, more nodes than ranks, too many ranks.
    pub fn equal(ranks: u32, nodes: u32) -> Result<Places> {
        check_ranks(ranks)?;
        if nodes == 0 || nodes > ranks {
            let why = format!("{nodes} nodes for {ranks} ranks; each node has one rank or more");
            return Err(Error::invalid("number of nodes", why));
        }
        Ok(Places { ranks, nodes, form: Form::Equal })
    }

    /// Blocks of `block` ranks go round `nodes` nodes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as of [`Places::equal`]; if there are fewer blocks than nodes.
    pub fn cyclic(ranks: u32, block: u32, nodes: u32) -> Result<Places> {
        Places::equal(ranks, nodes)?;
        if block == 0 || ranks.div_ceil(block) < nodes {
            let why = format!(
                "{ranks} ranks in blocks of {block} do not get round {nodes} nodes; give fewer \
                 nodes, or blocks of at most {}",
                // The largest with which the last node gets one.
                ranks.saturating_sub(1).checked_div(nodes - 1).unwrap_or(ranks)
            );
            return Err(Error::invalid("ranks in a block", why));
        }
        Places::of_blocks(ranks, &[Block { node: 0, nodes, each: block }])
    }

    /// So many ranks on each node, one node after the other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no nodes, a node without ranks, too many ranks.
    pub fn counts(counts: &[u32]) -> Result<Places> {
        let ranks = counts.iter().fold(0u32, |sum, count| sum.saturating_add(*count));
        let block = |(node, &each): (u32, &u32)| Block { node, nodes: 1, each };
        let blocks: Vec<Block> = (0u32..).zip(counts).map(block).collect();
        Places::of_blocks(ranks, &blocks)
    }

    /// The node of each rank, listed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no ranks, too many.
    pub fn listed(nodes: &[u32]) -> Result<Places> {
        let ranks = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let block = |same: &[u32]| Block { node: same[0], nodes: 1, each: same.len() as u32 };
        let blocks: Vec<Block> = nodes.chunk_by(|a, b| a == b).map(block).collect();
        Places::of_blocks(ranks, &blocks)
    }

    /// `ranks` ranks in these blocks one after the other; when there are more ranks, the whole begins
    /// anew. Any numbers name nodes: they are numbered in the order of their first ranks here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no ranks, no blocks, blocks without ranks, too many ranks.
    pub fn of_blocks(ranks: u32, blocks: &[Block]) -> Result<Places> {
        check_ranks(ranks)?;
        if blocks.is_empty() || blocks.iter().any(|block| block.nodes == 0 || block.each == 0) {
            let why = "each node and each block has one rank or more";
            return Err(Error::invalid("ranks on nodes", why));
        }
        let (mut runs, nodes) = numbered(cut(ranks, blocks));
        let mut period: u32 = runs.iter().map(|run| run.ranks()).sum();
        shorten(&mut runs, &mut period, ranks);
        let form = match runs[..] {
            _ if nodes == 1 => Form::Equal,
            _ if period == ranks && is_equal(&runs, ranks, nodes) => Form::Equal,
            [Block { each, .. }] => Form::Cyclic(each),
            // One round, the last block of which is not full.
            [a, b] if period == ranks && b.node == a.nodes && b.nodes == 1 && b.each < a.each => {
                Form::Cyclic(a.each)
            }
            _ => {
                let mut start = 0;
                let placed = runs.into_iter().map(|run| {
                    start += run.ranks();
                    (start - run.ranks(), run)
                });
                Form::Pattern(Arc::new(Pattern { period, runs: placed.collect() }))
            }
        };
        Ok(Places { ranks, nodes, form })
    }

    /// Blocks that make the same map.
    pub fn blocks(&self) -> Vec<Block> {
        match &self.form {
            Form::Equal => {
                let (each, more) = (self.ranks / self.nodes, self.ranks % self.nodes);
                let large = Block { node: 0, nodes: more, each: each + 1 };
                let small = Block { node: more, nodes: self.nodes - more, each };
                [large, small].into_iter().filter(|block| block.nodes > 0).collect()
            }
            &Form::Cyclic(each) => vec![Block { node: 0, nodes: self.nodes, each }],
            Form::Pattern(pattern) => pattern.runs.iter().map(|(_, run)| *run).collect(),
        }
    }

    /// Ranks of the job.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Nodes of the job.
    #[inline]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Ranks after which the map repeats itself.
    pub(super) fn period(&self) -> u32 {
        match &self.form {
            Form::Equal => self.ranks,
            Form::Cyclic(block) => block * self.nodes,
            Form::Pattern(pattern) => pattern.period,
        }
    }

    /// Where in a period the ranks of a node are, in order.
    pub(super) fn stretches(&self, node: u32) -> impl Iterator<Item = Stretch> + '_ {
        let (only, runs): (_, &[(u32, Block)]) = match &self.form {
            _ if node >= self.nodes => (None, &[]),
            Form::Equal => {
                let (each, more) = (self.ranks / self.nodes, self.ranks % self.nodes);
                let start = node * each + node.min(more);
                (Some((start, each + u32::from(node < more))), &[])
            }
            Form::Cyclic(block) => (Some((node * block, *block)), &[]),
            Form::Pattern(pattern) => (None, &pattern.runs),
        };
        let of_runs = runs.iter().filter_map(move |(start, run)| {
            let over = node.checked_sub(run.node).filter(|over| *over < run.nodes)?;
            Some((start + over * run.each, run.each))
        });
        only.into_iter().chain(of_runs).scan(0, |before, (start, len)| {
            *before += len;
            Some(Stretch { start, len, before: *before - len })
        })
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        if rank >= self.ranks {
            return None;
        }
        Some(match &self.form {
            Form::Equal => {
                let (each, more) = (self.ranks / self.nodes, self.ranks % self.nodes);
                let large = more * (each + 1);
                if rank < large { rank / (each + 1) } else { more + (rank - large) / each }
            }
            Form::Cyclic(block) => rank / block % self.nodes,
            Form::Pattern(pattern) => {
                let within = rank % pattern.period;
                let past = pattern.runs.partition_point(|(start, _)| *start <= within);
                let (start, run) = pattern.runs.get(past.checked_sub(1)?)?;
                run.node + (within - start) / run.each
            }
        })
    }

    /// How many ranks below `rank` a node has.
    fn below(&self, node: u32, rank: u32) -> u32 {
        let (rounds, within) = (rank / self.period(), rank % self.period());
        let of = |stretch: Stretch| {
            rounds * stretch.len + within.saturating_sub(stretch.start).min(stretch.len)
        };
        self.stretches(node).map(of).sum()
    }

    /// The number of a rank on its node.
    pub fn local_of(&self, rank: u32) -> Option<u32> {
        Some(self.below(self.node_of(rank)?, rank))
    }

    /// How many ranks a node has; none if there is no such node.
    pub fn count_on(&self, node: u32) -> u32 {
        self.below(node, self.ranks)
    }

    /// The next ranks of a node, from `from` on, that follow each other.
    fn stretch_from(&self, node: u32, from: u32) -> Range<u32> {
        let period = self.period();
        let (round, within) = (from / period * period, from % period);
        let next = self.stretches(node).find(|stretch| stretch.start + stretch.len > within);
        let again = || self.stretches(node).next().map(|first| (round + period, first));
        let Some((round, next)) = next.map(|next| (round, next)).or_else(again) else {
            return 0..0;
        };
        let start = (round + next.start).max(from);
        start.min(self.ranks)..(round + next.start + next.len).min(self.ranks)
    }

    /// The ranks on a node, in order; none if there is no such node.
    pub fn ranks_on(&self, node: u32) -> impl Iterator<Item = u32> + Clone + '_ {
        let next = move |before: &Range<u32>| Some(self.stretch_from(node, before.end));
        let all = std::iter::successors(next(&(0..0)), next);
        all.take_while(|stretch| !stretch.is_empty()).flatten()
    }

    /// Whether the ranks of each node follow each other, those of the next node behind them.
    pub fn in_order(&self) -> bool {
        match &self.form {
            Form::Equal => true,
            Form::Cyclic(_) => self.period() >= self.ranks,
            Form::Pattern(pattern) => {
                let rises =
                    |pair: &[(u32, Block)]| pair[1].1.node + 1 >= pair[0].1.node + pair[0].1.nodes;
                pattern.period >= self.ranks && pattern.runs.windows(2).all(rises)
            }
        }
    }

    /// Bytes that it has, with this structure.
    pub fn bytes(&self) -> usize {
        size_of::<Places>()
            + match &self.form {
                Form::Equal | Form::Cyclic(_) => 0,
                Form::Pattern(pattern) => size_of::<Pattern>() + size_of_val(&*pattern.runs),
            }
    }
}

fn check_ranks(ranks: u32) -> Result<()> {
    if ranks == 0 || ranks > MAX_RANKS {
        let why = format!("{ranks} is not in 1..={MAX_RANKS}");
        return Err(Error::invalid("number of ranks", why));
    }
    Ok(())
}

/// As much of the blocks as so many ranks need; nodes still have the names that they were given.
fn cut(ranks: u32, blocks: &[Block]) -> Vec<(u64, Block)> {
    let mut left = ranks;
    let mut kept = Vec::new();
    let mut keep = |node: u64, nodes: u32, each: u32, left: &mut u32| {
        if nodes > 0 && each > 0 {
            kept.push((node, Block { node: 0, nodes, each }));
            *left -= nodes * each;
        }
    };
    for block in blocks {
        let full = block.nodes.min(left / block.each);
        let node = u64::from(block.node);
        keep(node, full, block.each, &mut left);
        if full < block.nodes {
            // The last one of all.
            let rest = left;
            keep(node + u64::from(full), 1, rest, &mut left);
            break;
        }
    }
    kept
}

/// The same with nodes numbered in the order of their first ranks, and how many there are.
fn numbered(named: Vec<(u64, Block)>) -> (Vec<Block>, u32) {
    // First name of nodes with consecutive names and numbers: how many, their first number.
    let mut known: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    let (mut runs, mut count) = (Vec::new(), 0);
    for (mut name, Block { mut nodes, each, .. }) in named {
        while nodes > 0 {
            let at = known.range(..=name).next_back().map(|(first, (len, number))| {
                let over = (name - first).min(u64::from(u32::MAX)) as u32;
                (len.saturating_sub(over), number + over.min(*len))
            });
            let (some, node) = match at.filter(|(rest, _)| *rest > 0) {
                Some((rest, node)) => (rest.min(nodes), node),
                None => {
                    let next = known.range(name..).next().map_or(u64::MAX, |(next, _)| *next);
                    let fresh = u64::from(nodes).min(next - name) as u32;
                    known.insert(name, (fresh, count));
                    count += fresh;
                    (fresh, count - fresh)
                }
            };
            append(&mut runs, Block { node, nodes: some, each });
            (name, nodes) = (name + u64::from(some), nodes - some);
        }
    }
    (runs, count)
}

/// Adds a run behind others: to the last of them if they are one.
fn append(runs: &mut Vec<Block>, run: Block) {
    match runs.last_mut() {
        Some(last) if last.nodes == 1 && run.nodes == 1 && last.node == run.node => {
            let run = Block { each: last.each + run.each, ..run };
            // It may be one of as many as those before have.
            runs.pop();
            append(runs, run);
        }
        Some(last) if last.node + last.nodes == run.node && last.each == run.each => {
            last.nodes += run.nodes;
        }
        _ => runs.push(run),
    }
}

/// Leaves one round of runs that are some rounds of shorter ones: what comes until they begin with
/// the first node again.
fn shorten(runs: &mut Vec<Block>, period: &mut u32, ranks: u32) {
    let nodes = |runs: &[Block]| {
        let each = |&Block { node, nodes, each }: &Block| {
            (node..node + nodes).map(move |node| (node, each))
        };
        runs.iter().flat_map(each).collect::<Vec<_>>()
    };
    let Some(again) = runs.iter().skip(1).position(|run| run.node == 0) else { return };
    let round = &runs[..again + 1];
    let shorter: u32 = round.iter().map(|run| run.ranks()).sum();
    let (round, all) = (nodes(round), nodes(runs));
    let mut pairs = all.iter().zip(round.iter().cycle()).peekable();
    while let Some((has, wants)) = pairs.next() {
        // The job may end within a block.
        let last = pairs.peek().is_none() && *period == ranks;
        if has != wants && !(last && has.0 == wants.0 && has.1 < wants.1) {
            return;
        }
    }
    if *period == ranks || period.is_multiple_of(shorter) {
        runs.truncate(again + 1);
        *period = shorter;
    }
}

/// Whether they are consecutive blocks as equal as they can be.
fn is_equal(runs: &[Block], ranks: u32, nodes: u32) -> bool {
    Places { ranks, nodes, form: Form::Equal }.blocks() == runs
}
