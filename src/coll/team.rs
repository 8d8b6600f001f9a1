//! A group of processes that communicate collectively.
//!
//! Life cycle: created by all members (`Team::whole` by the job, then `split`, `shrink`), its
//! block is freed by the last member that drops it or dies (see `shm::holding`).
//! A collective that fails (death of a member, or a deadline) leaves the members' phases apart,
//! so it breaks the team: every later collective of any member fails at once with the cause.
//! One-sided operations on its windows are not affected.

use super::block::Block;
use super::call::Call;
use super::core::Core;
use super::queue::Queue;
use super::revoke::GRACE;
use super::select::Selected;
use super::sign::Sign;
use super::span::{Members, Span};
use super::step::{Course, run_through};
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::base::{Deadline, Error, Rank, Result, Slot, forked, reentry};
use crate::link::biased::{Biased, Guard};
use crate::p2p::Endpoint;
use crate::shm::holding::Holding;
use crate::shm::node::Node;
use crate::shm::roll::READY;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A group of processes. Cloning is cheap; all clones are one member.
///
/// Every collective must be called by all members in the same order, those that block and those
/// that do not in one order together; within a process by one thread at a time (a second one gets
/// [`Error::Misuse`]). Calls of other teams may go on at the same time in other threads.
#[derive(Debug, Clone)]
pub struct Team {
    pub(super) member: Arc<Member>,
    limit: Option<Duration>,
}

/// This process's membership.
#[derive(Debug)]
pub(super) struct Member {
    pub core: Arc<Core>,
    /// Ranks below this are their slots: all members', or none. Nothing needs to be looked up for them.
    alike: u32,
    /// This member's rank.
    pub rank: u32,
    /// Whoever has it is in a collective. Biased, for a read-modify-write would wait until the flag of the last
    /// call has reached the cache, in a line that the others poll.
    busy: Biased<()>,
    /// Collectives that were begun.
    pub queue: Queue,
    /// A survivors' team has been made of it, once and for all.
    pub shrunk: AtomicBool,
    /// The team's context in messages.
    pub context: u32,
    /// What messages are sent and received by; made when the first one is.
    pub endpoint: OnceLock<Arc<Endpoint>>,
    /// Deaths of members that a receive from any source has reported.
    pub deaths_reported: AtomicU32,
    /// Where to go on asking members whether they live.
    pub asked: AtomicU32,
    /// What keeps the block: of all teams but the whole job's, whose block lasts. Behind `block`: it
    /// is dropped last.
    _holding: Option<Holding>,
}

impl std::ops::Deref for Member {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Team {
    /// Reserves this process's area of the whole job's team. Called before the process declares
    /// itself ready, so that nobody touches the area before it is there.
    pub(crate) fn prepare_whole(node: &Arc<Node>) -> Result<()> {
        let (whole, local) = (Block::place_of_whole(node), Block::place_of_node(node));
        let places = if whole == local { vec![whole] } else { vec![whole, local] };
        for place in places {
            Block::view(node, place, node.size())?.reserve_area(node.slot().0.into())?;
            if node.slot() == Slot(0) {
                Block::create_lasting(node, place)?;
            }
        }
        Ok(())
    }

    /// The team of the whole job; every process is ready.
    pub(crate) fn whole(node: &Arc<Node>) -> Result<Team> {
        let block = Block::open(node, Block::place_of_whole(node), node.size())?;
        let rank = node.slot().0.into();
        let placement = node.placement().clone();
        if placement.nodes() == 1 {
            return Self::from_block(block, rank, true, None, None);
        }
        let members = Members::Whole(placement);
        // The whole job's is the first context of all, which no other team gets.
        let span = Span::new(members, node.rank_of(node.slot()).0, 0);
        Self::from_block(block, rank, false, None, Some(span))
    }

    /// The team of the ranks on this node; the whole team if there is one node.
    pub(crate) fn of_node(node: &Arc<Node>) -> Result<Team> {
        let block = Block::open(node, Block::place_of_node(node), node.size())?;
        Self::from_block(block, node.slot().0.into(), true, None, None)
    }

    pub(super) fn from_block(
        block: Block,
        rank: u32,
        identity: bool,
        holding: Option<Holding>,
        span: Option<Span>,
    ) -> Result<Team> {
        let table = block.node.attachment(Selected::new)?.0.clone();
        block.roll.note(rank, READY);
        block.header().wait.notify();
        let own = block.header().context.load(Ordering::Relaxed);
        let context = span.as_ref().map_or(own, Span::team_context);
        let span = span.map(Box::new);
        let core = Core::new(block, rank, table, span);
        let member = Member {
            context,
            endpoint: OnceLock::new(),
            deaths_reported: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            alike: if identity { core.members() } else { 0 },
            rank: core.me(),
            core: Arc::new(core),
            busy: Biased::new(()),
            queue: Queue::default(),
            shrunk: AtomicBool::new(false),
            _holding: holding,
        };
        Ok(Team { member: Arc::new(member), limit: None })
    }

    /// This process's rank in the team.
    #[inline]
    pub fn rank(&self) -> Rank {
        Rank(self.member.me())
    }

    /// Number of members.
    #[inline]
    pub fn size(&self) -> u32 {
        self.member.members()
    }

    /// All ranks of the team in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + Clone + use<> {
        (0..self.size()).map(Rank)
    }

    /// The same team with a time limit on each synchronising step of its collective calls (most
    /// have one; making windows and teams takes a few); a call that passes the limit fails with [`Error::TimedOut`] and breaks the team.
    pub fn with_deadline(&self, limit: Duration) -> Team {
        Team { member: self.member.clone(), limit: Some(limit) }
    }

    /// The deadline of a call that starts now.
    #[inline]
    pub(crate) fn deadline(&self) -> Deadline {
        self.limit.map_or(Deadline::NEVER, Deadline::after)
    }

    /// Whether the team's collectives have ended.
    pub(crate) fn is_broken(&self) -> bool {
        self.member.intact("a look").is_err()
    }

    /// The slot of a rank. Computed for the whole job's team, else read from the shared table.
    #[inline]
    pub fn slot_of(&self, rank: Rank) -> Result<Slot> {
        if rank.0 < self.member.alike {
            return Ok(Slot(rank.0 as u16));
        }
        self.member.slot(rank.0)
    }

    /// The same without saying why not.
    #[inline(always)]
    pub(super) fn slot_at_once(&self, rank: Rank) -> Option<Slot> {
        if rank.0 < self.member.alike { Some(Slot(rank.0 as u16)) } else { self.looked_up(rank) }
    }

    #[inline(never)]
    fn looked_up(&self, rank: Rank) -> Option<Slot> {
        self.member.slot(rank.0).ok()
    }

    /// Whether rank and slot are the same number for every member.
    #[inline]
    pub fn is_identity(&self) -> bool {
        self.member.alike > 0
    }

    /// The attachment to the node.
    #[inline]
    pub fn node(&self) -> &Arc<Node> {
        &self.member.block.node
    }

    /// Whether members are on several nodes.
    #[inline]
    pub fn spans_nodes(&self) -> bool {
        self.member.span.is_some()
    }

    /// How many members are on this node.
    pub(crate) fn locals(&self) -> u32 {
        self.member.block.size
    }

    /// This member's number among those on its node.
    pub(crate) fn local_rank(&self) -> u32 {
        self.member.core.rank
    }

    /// The number of a member among those on this node, if it is one of them.
    pub(crate) fn local_of(&self, rank: Rank) -> Option<u32> {
        match &self.member.span {
            None => (rank.0 < self.size()).then_some(rank.0),
            Some(span) if rank.0 < span.members.size() => {
                (span.members.part_of(rank.0) == span.part).then(|| span.members.local_of(rank.0))
            }
            Some(_) => None,
        }
    }

    /// The members on this node, in order.
    pub(crate) fn local_ranks(&self) -> Box<dyn Iterator<Item = Rank> + '_> {
        match &self.member.span {
            None => Box::new(self.ranks()),
            Some(span) => Box::new(span.members.members_of(span.part).map(Rank)),
        }
    }

    /// Runs one collective that blocks: refuses a second thread and a broken team, finishes what
    /// was begun before, and breaks the team when the collective fails half-way.
    #[inline]
    pub(super) fn collective<R>(
        &self,
        during: &'static str,
        run: impl FnOnce(&Core, &Deadline) -> Result<R>,
    ) -> Result<R> {
        let member = &*self.member;
        Member::may_enter(during)?;
        // Two variables, for the one that is there as a rule stays in registers then.
        let owner = member.busy.lock_as_owner();
        let _other = match owner {
            Some(_) => None,
            None => Some(member.busy.try_lock_shared().ok_or_else(|| occupied(during))?),
        };
        let whole = Whole(member);
        let result = self.collective_inside(during, run);
        // Only a panic may find it: to ask whether there is one would take more of each call.
        std::mem::forget(whole);
        result
    }

    #[inline(always)]
    fn collective_inside<R>(
        &self,
        during: &'static str,
        run: impl FnOnce(&Core, &Deadline) -> Result<R>,
    ) -> Result<R> {
        let member = &*self.member;
        let until;
        // By reference, so that the usual one need not be written down.
        let deadline = match self.limit {
            None => &Deadline::NEVER,
            Some(limit) => {
                until = Deadline::after(limit);
                &until
            }
        };
        member.intact(during)?;
        if !member.queue.is_idle() {
            member.finish_begun(*deadline, during)?;
        }
        let result =
            run(&member.core, deadline).map_err(|error| member.failed(error, GRACE, during))?;
        member.note_through();
        Ok(result)
    }

    /// As [`Team::collective`], of steps.
    pub(super) fn run<R>(
        &self,
        sign: Sign,
        steps: impl AsyncFnOnce(&Call<'_>) -> Result<R>,
    ) -> Result<R> {
        self.collective(sign.what.during(), |core, deadline| {
            run_through(steps(&Call::new(Course::blocking_call(core, sign, *deadline))))
        })
    }
}

/// Gives the team up if the thread panics: the others must not wait for a member that will never get to the
/// end of its call.
pub(super) struct Whole<'m>(&'m Member);

impl Drop for Whole<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

impl Member {
    #[inline]
    fn may_enter(during: &'static str) -> Result<()> {
        reentry::refuse_inside(during)?;
        // A new thread of a forked child could find everybody there already.
        forked::refuse_forked(during)
    }

    /// Lets one thread in to begin a call.
    pub fn enter(&self, during: &'static str) -> Result<(Whole<'_>, Guard<'_, ()>)> {
        Self::may_enter(during)?;
        let inside = self.busy.try_lock().ok_or_else(|| occupied(during))?;
        Ok((Whole(self), inside))
    }
}

#[cold]
fn occupied(during: &'static str) -> Error {
    Error::Misuse {
        what: during,
        why: "another thread of this rank is in a collective call of the same team; \
              call them one after the other, or use a team per thread"
            .into(),
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.abandon_begun();
        if let Some(endpoint) = self.endpoint.get()
            && !forked::is_forked()
        {
            endpoint.forget_context(self.context);
        }
    }
}
