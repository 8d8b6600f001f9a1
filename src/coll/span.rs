//! What a member knows of a team whose members are on several nodes, and the steps that its calls
//! make between nodes.
//!
//! ```text
//!   team of 7      node A                 node B              node C
//!   ranks          0   2   5              1   4               3   6
//!   in its part    0*  1   2              0*  1               0*  1        * leads its part
//! ```
//! The members on one node are a *part*: they have a block of their own in their node's memory
//! (`block`), and do what can be done there as a team of one node would. Between parts tagged
//! messages go, in a context that programs do not have. They carry the number of the step and the
//! word of the call in their tag, so that calls that do not match are an error here too.

use super::call::Call;
use super::compare::Other;
use super::core::{Core, Place};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Offset, Rank, Result, Slot};
use crate::p2p::{Endpoint, Going, Letter, Mode, Owned, Pattern};
use crate::shm::node::Node;
use crate::shm::region::locate;
use crate::topo::Placement;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock};

/// Set in the contexts of messages of collectives.
pub(super) const COLLECTIVE: u32 = 1 << 31;

/// Who is in a team of several nodes.
#[derive(Debug)]
pub(super) enum Members {
    /// Everybody: computed.
    Whole(Placement),
    /// Those of a list in the node's memory, which the node's members share.
    Listed(Listed),
}

/// A member in such a list.
#[repr(C)]
struct Row {
    /// Its rank in the job.
    job_rank: AtomicU32,
    /// Its part.
    part: AtomicU32,
    /// Its number there.
    local: AtomicU32,
    /// Where a part's members, in order, are listed: of all parts, one after the other.
    sorted: AtomicU32,
}

const _: () = assert!(size_of::<Row>() == 16);

/// A list of members in the node's memory.
#[derive(Debug)]
pub(super) struct Listed {
    /// Keeps the mapping.
    node: Arc<Node>,
    /// `parts + 1` words: where a part begins among the sorted; then `size` rows.
    starts: NonNull<AtomicU32>,
    rows: NonNull<Row>,
    parts: u32,
    size: u32,
}

// SAFETY: both point to atomics in the mapping that `node` keeps.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    /// Bytes of a list.
    pub fn bytes(parts: u32, size: u32) -> u64 {
        (u64::from(parts) + 1).next_multiple_of(4) * 4 + u64::from(size) * size_of::<Row>() as u64
    }

    /// The list at an offset of the node's memory.
    pub fn view(node: &Arc<Node>, at: Offset, parts: u32, size: u32) -> Result<Listed> {
        let base = locate(node.mapping(), at, Self::bytes(parts, size), 16)?;
        let rows = (u64::from(parts) + 1).next_multiple_of(4) * 4;
        // SAFETY: inside what `locate` has checked.
        let rows = unsafe { base.add(rows as usize) }.cast();
        Ok(Listed { node: node.clone(), starts: base.cast(), rows, parts, size })
    }

    /// How many parts members of these ranks in the job are in.
    pub fn parts_of(node: &Node, job_ranks: &[u32]) -> u32 {
        let nodes: std::collections::BTreeSet<_> =
            job_ranks.iter().map(|&rank| node.placement().node_of(Rank(rank))).collect();
        nodes.len() as u32
    }

    /// Writes a fresh list: the members' ranks in the job, in the team's order.
    pub fn write(&self, job_ranks: &[u32]) {
        let placement = self.node.placement();
        let node_of = |rank: u32| placement.node_of(Rank(rank)).unwrap_or(0);
        // Parts are numbered in the order of their first members.
        let mut nodes: Vec<u32> = Vec::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (rank, &job_rank) in (0u32..).zip(job_ranks) {
            let node = node_of(job_rank);
            let part = nodes.iter().position(|&n| n == node).unwrap_or_else(|| {
                nodes.push(node);
                members.push(Vec::new());
                nodes.len() - 1
            });
            let Some(row) = self.row(rank) else { return };
            row.job_rank.store(job_rank, Ordering::Relaxed);
            row.part.store(part as u32, Ordering::Relaxed);
            row.local.store(members[part].len() as u32, Ordering::Relaxed);
            members[part].push(rank);
        }
        let mut next = 0;
        for (part, members) in (0u32..).zip(&members) {
            if let Some(start) = self.start(part) {
                start.store(next, Ordering::Relaxed);
            }
            for &rank in members {
                if let Some(row) = self.row(next) {
                    row.sorted.store(rank, Ordering::Relaxed);
                }
                next += 1;
            }
        }
        if let Some(end) = self.start(self.parts) {
            end.store(next, Ordering::Relaxed);
        }
    }

    fn start(&self, part: u32) -> Option<&AtomicU32> {
        // SAFETY: one of `parts + 1` words that `view` has checked.
        (part <= self.parts).then(|| unsafe { self.starts.add(part as usize).as_ref() })
    }

    fn row(&self, rank: u32) -> Option<&Row> {
        // SAFETY: one of `size` rows that `view` has checked.
        (rank < self.size).then(|| unsafe { self.rows.add(rank as usize).as_ref() })
    }

    fn field(&self, rank: u32, field: impl Fn(&Row) -> &AtomicU32) -> u32 {
        self.row(rank).map_or(0, |row| field(row).load(Ordering::Relaxed))
    }

    /// Where a part's members begin among the sorted, inside the list.
    fn begin(&self, part: u32) -> u32 {
        self.start(part).map_or(0, |start| start.load(Ordering::Relaxed)).min(self.size)
    }
}

impl Members {
    /// Members in all.
    pub fn size(&self) -> u32 {
        match self {
            Members::Whole(placement) => placement.ranks(),
            Members::Listed(list) => list.size,
        }
    }

    /// Nodes that have some.
    pub fn parts(&self) -> u32 {
        match self {
            Members::Whole(placement) => placement.nodes(),
            Members::Listed(list) => list.parts,
        }
    }

    /// The rank in the job of a member.
    pub fn job_rank(&self, rank: u32) -> Option<Rank> {
        match self {
            Members::Whole(placement) => (rank < placement.ranks()).then_some(Rank(rank)),
            Members::Listed(list) => {
                list.row(rank).map(|row| Rank(row.job_rank.load(Ordering::Relaxed)))
            }
        }
    }

    /// The part of a member.
    pub fn part_of(&self, rank: u32) -> u32 {
        match self {
            Members::Whole(placement) => placement.node_of(Rank(rank)).unwrap_or(0),
            Members::Listed(list) => {
                list.field(rank, |row| &row.part).min(list.parts.saturating_sub(1))
            }
        }
    }

    /// A member's number in its part.
    pub fn local_of(&self, rank: u32) -> u32 {
        match self {
            Members::Whole(placement) => placement.places().local_of(rank).unwrap_or(0),
            Members::Listed(list) => list.field(rank, |row| &row.local),
        }
    }

    /// How many members a part has.
    pub fn count_in(&self, part: u32) -> u32 {
        match self {
            Members::Whole(placement) => placement.places().count_on(part),
            Members::Listed(list) => list.begin(part + 1).saturating_sub(list.begin(part)),
        }
    }

    /// The members of a part, in order.
    pub fn members_of(&self, part: u32) -> impl Iterator<Item = u32> + '_ {
        let (computed, listed) = match self {
            Members::Whole(placement) => (Some(placement.places().ranks_on(part)), None),
            Members::Listed(list) => {
                let sorted = list.begin(part)..list.begin(part + 1);
                (None, Some(sorted.map(|at| list.field(at, |row| &row.sorted))))
            }
        };
        computed.into_iter().flatten().chain(listed.into_iter().flatten())
    }

    /// Who leads a part.
    pub fn leader(&self, part: u32) -> u32 {
        self.members_of(part).next().unwrap_or(0)
    }

    /// Whether the members of each part follow each other, so that combining by parts keeps the
    /// order.
    pub fn in_order(&self) -> bool {
        match self {
            Members::Whole(placement) => placement.places().in_order(),
            Members::Listed(list) => {
                (0..list.size).all(|at| list.field(at, |row| &row.sorted) == at)
            }
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Span {
    pub members: Members,
    pub rank: u32,
    pub part: u32,
    /// Whether combining by parts keeps the order.
    pub in_order: bool,
    /// Calls so far: the same in all members.
    calls: AtomicU32,
    context: u32,
    endpoint: OnceLock<Arc<Endpoint>>,
    /// What others were in when they waited for this member.
    pub others: Mutex<Vec<Other>>,
    /// The context of the team whose survivors this one is of, if it is such a one.
    pub heir: Option<u32>,
}

impl Span {
    /// Of the member with a rank, in a team with this context.
    pub fn new(members: Members, rank: u32, context: u32) -> Span {
        let (part, in_order) = (members.part_of(rank), members.in_order());
        let context = context | COLLECTIVE;
        let (calls, endpoint) = (AtomicU32::new(0), OnceLock::new());
        let (others, heir) = (Mutex::default(), None);
        Span { members, rank, part, in_order, calls, context, endpoint, others, heir }
    }

    /// The same of the survivors of the team with a context.
    pub fn heir_of(self, heir: Option<u32>) -> Span {
        Span { heir, ..self }
    }

    /// The context of the team's messages.
    pub fn team_context(&self) -> u32 {
        self.context & !COLLECTIVE
    }

    /// Whether this member leads its part.
    pub fn leads(&self) -> bool {
        self.members.leader(self.part) == self.rank
    }

    /// The slot of a member.
    pub fn slot(&self, node: &Node, rank: u32) -> Result<Slot> {
        let slot = self.members.job_rank(rank).and_then(|rank| node.placement().slot_of(rank));
        slot.ok_or_else(|| {
            Error::invalid("rank", format!("{rank} in a team of {}", self.members.size()))
        })
    }

    pub fn endpoint(&self, node: &Arc<Node>) -> Result<&Arc<Endpoint>> {
        if let Some(endpoint) = self.endpoint.get() {
            return Ok(endpoint);
        }
        let endpoint = Arc::new(Endpoint::of(node)?);
        Ok(self.endpoint.get_or_init(|| endpoint))
    }

    /// A call begins: its number.
    pub fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

/// A message between nodes that goes on.
pub(super) struct Sent {
    going: Going<Vec<u8>>,
    to: u32,
}

/// One that is waited for.
pub(super) struct Awaited {
    going: Going<Vec<u8>>,
    from: u32,
    len: usize,
}

impl Call<'_> {
    /// The core and what reaches beyond the node.
    fn beyond(&self) -> Result<(&Core, &Span)> {
        let span = self.span().ok_or_else(|| Error::Misuse {
            what: "a collective",
            why: "a team of one node has nobody elsewhere; this is a fault of the library".into(),
        });
        span.map(|span| (self.core(), span))
    }

    /// The tag of this call's messages: calls that differ have different ones.
    fn tag(&self) -> u32 {
        // The number in the lower half: two calls of the same kind that are out of step differ.
        let number = self.number & 0xffff;
        self.course.sign.far_word() & 0xffff_0000 | number
    }

    fn letter(&self, span: &Span, core: &Core, to: u32) -> Result<Letter> {
        let to = span.slot(&core.block.node, to)?;
        Ok(Letter { to, context: span.context, rank: span.rank, tag: self.tag(), element: 0 })
    }

    /// Begins to send `bytes` to a member.
    pub fn tell(&self, to: u32, bytes: Vec<u8>) -> Result<Sent> {
        let (core, span) = self.beyond()?;
        let letter = self.letter(span, core, to)?;
        // SAFETY: the bytes are the record's owner's, and are only read.
        let record =
            unsafe { super::message::bytes_record(bytes.as_ptr().cast_mut(), bytes.len()) };
        let owned = Owned::new(record, bytes);
        Going::send(span.endpoint(&core.block.node)?, &letter, owned, Mode::Standard)
            .map(|going| Sent { going, to })
    }

    /// Begins to receive `len` bytes from a member.
    pub fn expect(&self, from: u32, len: usize) -> Result<Awaited> {
        let (core, span) = self.beyond()?;
        let source = Some(span.slot(&core.block.node, from)?);
        let pattern = Pattern { context: span.context, source, tag: None };
        let mut bytes = super::blocks::zeros::<u8>(len, self.course.sign.what.during())?;
        // SAFETY: the bytes are the record's owner's.
        let record = unsafe { super::message::bytes_record(bytes.as_mut_ptr(), len) };
        let owned = Owned::new(record, bytes);
        let going = Going::receive(span.endpoint(&core.block.node)?, &pattern, owned);
        Ok(Awaited { going, from, len })
    }

    /// What a member has sent.
    pub async fn hear(&self, awaited: Awaited) -> Result<Vec<u8>> {
        let Awaited { going, from, len } = awaited;
        self.finish(&going, from).await?;
        let (outcome, bytes) = going.finish();
        let arrived = match outcome {
            Ok(arrived) => arrived,
            // More than was expected: the calls differ.
            Err(Error::Truncated { .. }) => return Err(self.differs(from)),
            Err(error) => return Err(error),
        };
        match bytes {
            Some(bytes) if arrived.tag == self.tag() && arrived.bytes == len => Ok(bytes),
            _ => Err(self.differs(from)),
        }
    }

    /// Ends a send.
    pub async fn sent(&self, sent: Sent) -> Result<()> {
        self.finish(&sent.going, sent.to).await?;
        sent.going.finish().0.map(drop)
    }

    async fn finish(&self, going: &Going<Vec<u8>>, peer: u32) -> Result<()> {
        let core = self.core();
        let during = self.course.sign.what.during();
        if let Some(deadline) = self.course.blocking() {
            let check = || self.compare(peer).and_then(|()| core.check(during));
            return going.wait(deadline, during, check);
        }
        self.course
            .until(Place::Bell, || match going.test() {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            })
            .await
    }

    /// Receives `len` bytes from a member.
    pub async fn hear_from(&self, from: u32, len: usize) -> Result<Vec<u8>> {
        self.hear(self.expect(from, len)?).await
    }

    /// Sends bytes to a member.
    pub async fn tell_to(&self, to: u32, bytes: Vec<u8>) -> Result<()> {
        self.sent(self.tell(to, bytes)?).await
    }

    #[cold]
    fn differs(&self, from: u32) -> Error {
        let a_has = super::sign::describe(self.course.sign.words());
        Error::Mismatch {
            what: "the collective call (its team cannot be used any more)",
            a: Rank(self.rank()),
            a_has,
            b: Rank(from),
            b_has: "another call, or one of another length".into(),
        }
    }
}
