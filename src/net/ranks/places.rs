//! The node of each process, and its index there.
//!
//! ```text
//!   block 4 of 2 nodes    0 0 0 0 1 1 1 1          block 1: cyclic     0 1 2 0 1 2 0 1 2
//!   block 2 of 2 nodes    0 0 1 1 0 0 1 1          runs                0 0 0 0 1 1 1 1 2 2 3 3
//!                                                                      (4 each) (from 2: 2 each)
//! ```

/// Where a process is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Place {
    /// The number of its node in the job.
    pub node: u32,
    /// Its index among the processes there, in the order of their numbers.
    pub local: u32,
}

/// Processes that fill nodes one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: u32,
    node: u32,
    /// How many of each node, and the index of the first one: the node may have had some before.
    each: u32,
    local: u32,
}

impl Run {
    fn at(self, process: u32) -> Place {
        let (over, within) =
            ((process - self.start) / self.each, (process - self.start) % self.each);
        Place { node: self.node + over, local: self.local + within }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// Blocks of so many go round all nodes.
    Regular {
        block: u32,
        nodes: u32,
    },
    Runs(Box<[Run]>),
    Table(Box<[Place]>),
}

/// Maps processes `0..len` to places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    len: u32,
    nodes: u32,
    form: Form,
}

impl Places {
    /// So many processes at each node, one node after the other.
    pub fn block(len: u32, each: u32) -> Places {
        let each = each.max(1);
        let nodes = len.div_ceil(each).max(1);
        Places { len, nodes, form: Form::Regular { block: each, nodes } }
    }

    /// One process after the other on the next node.
    pub fn cyclic(len: u32, nodes: u32) -> Places {
        Places::round_robin(len, 1, nodes)
    }

    /// Blocks of `block` processes go round `nodes` nodes.
    pub fn round_robin(len: u32, block: u32, nodes: u32) -> Places {
        let (block, nodes) = (block.max(1), nodes.max(1));
        let used = nodes.min(len.div_ceil(block)).max(1);
        Places { len, nodes: used, form: Form::Regular { block, nodes } }
    }

    /// The smallest form of a list of nodes, one for each process. Nodes are to be numbered from 0
    /// without gaps.
    pub fn detect(nodes: &[u32]) -> Places {
        let len = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let nodes = &nodes[..len as usize];
        let count = nodes.iter().max().map_or(0, |node| node.saturating_add(1));
        let block = nodes.iter().take_while(|node| **node == nodes[0]).count() as u32;
        let regular = Places::round_robin(len, block, count);
        let fits = |places: &Places| {
            (0..len)
                .zip(nodes)
                .all(|(i, node)| places.get(i).map(|place| place.node) == Some(*node))
        };
        if fits(&regular) {
            return Places { nodes: count, ..regular };
        }
        let form = match runs(nodes) {
            Some(runs) => Form::Runs(runs),
            None => Form::Table(each(nodes).collect()),
        };
        Places { len, nodes: count, form }
    }

    /// Processes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Where `process` is; nothing if there is none with that number.
    #[inline]
    pub fn get(&self, process: u32) -> Option<Place> {
        if process >= self.len {
            return None;
        }
        match &self.form {
            Form::Regular { block, nodes } => {
                let (turn, within) = (process / block, process % block);
                Some(Place { node: turn % nodes, local: turn / nodes * block + within })
            }
            Form::Runs(runs) => {
                let past = runs.partition_point(|run| run.start <= process);
                Some(runs[past.checked_sub(1)?].at(process))
            }
            Form::Table(table) => table.get(process as usize).copied(),
        }
    }

    /// The process at a place: computed for regular ones; else it costs what there are runs, or
    /// processes in the table.
    pub fn find(&self, place: Place) -> Option<u32> {
        let process = match &self.form {
            Form::Regular { block, nodes } => {
                let round = u64::from(place.local / block) * u64::from(*nodes);
                let turn = round + u64::from(place.node);
                let process = turn * u64::from(*block) + u64::from(place.local % block);
                (place.node < *nodes).then(|| u32::try_from(process).ok())?
            }
            Form::Runs(runs) => runs.iter().find_map(|run| {
                let over = place.node.checked_sub(run.node)?;
                let within = place.local.checked_sub(run.local).filter(|w| *w < run.each)?;
                let process = over.checked_mul(run.each)?.checked_add(within)?;
                let process = run.start.checked_add(process)?;
                (self.get(process) == Some(place)).then_some(process)
            }),
            Form::Table(table) => table.iter().position(|p| *p == place).map(|at| at as u32),
        };
        process.filter(|process| *process < self.len)
    }

    /// Bytes that it has, with this structure.
    pub fn bytes(&self) -> usize {
        size_of::<Places>()
            + match &self.form {
                Form::Regular { .. } => 0,
                Form::Runs(runs) => size_of_val(&**runs),
                Form::Table(table) => size_of_val(&**table),
            }
    }

    /// Whether its size does not depend on the number of processes.
    pub fn is_regular(&self) -> bool {
        matches!(self.form, Form::Regular { .. })
    }
}

/// The place of each process.
fn each(nodes: &[u32]) -> impl Iterator<Item = Place> {
    let mut counts = std::collections::HashMap::new();
    nodes.iter().map(move |&node| {
        let count: &mut u32 = counts.entry(node).or_default();
        *count += 1;
        Place { node, local: *count - 1 }
    })
}

/// As runs, if those are smaller than a table.
fn runs(nodes: &[u32]) -> Option<Box<[Run]>> {
    let most = std::mem::size_of_val(nodes) * 2 / size_of::<Run>();
    let mut runs: Vec<Run> = Vec::new();
    let mut places = each(nodes).zip(0u32..).peekable();
    while let Some((place, start)) = places.next() {
        let mut count = 1;
        while places.next_if(|(next, _)| next.node == place.node).is_some() {
            count += 1;
        }
        // The next node, with as many processes as those of the run, and none before.
        let goes_on = runs.last().is_some_and(|run| {
            let blocks = (start - run.start) / run.each;
            place == Place { node: run.node.saturating_add(blocks), local: run.local }
                && (count == run.each || (count < run.each && places.peek().is_none()))
        });
        if !goes_on {
            runs.push(Run { start, node: place.node, each: count, local: place.local });
            if runs.len() > most {
                return None;
            }
        }
    }
    Some(runs.into())
}
