//! A group of processes that communicate collectively.
//!
//! Life cycle: created by all members (`Team::whole` by the job, then `split`, `shrink`), its
//! block is freed by the last member that drops it or dies (see `shm::holding`).
//! A collective that fails (death of a member, or a deadline) leaves the members' phases apart,
//! so it breaks the team: every later collective of any member fails at once with the cause.
//! One-sided operations on its windows are not affected.

use super::block::Block;
use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::{Deadline, Error, Rank, Result, Slot, forked, reentry};
use crate::p2p::Endpoint;
use crate::shm::holding::Holding;
use crate::shm::node::Node;
use crate::shm::roll::READY;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A group of processes. Cloning is cheap; all clones are one member.
///
/// Every collective must be called by all members in the same order; within a process by one
/// thread at a time (a second one gets [`Error::Misuse`]).
#[derive(Debug, Clone)]
pub struct Team {
    pub(super) member: Arc<Member>,
    limit: Option<Duration>,
}

/// This process's membership.
#[derive(Debug)]
pub(super) struct Member {
    pub block: Block,
    pub rank: u32,
    /// Rank equals slot for every member: nothing needs to be looked up.
    pub identity: bool,
    /// Number of the last synchronising step.
    pub phase: AtomicU32,
    /// Number of the last count barrier.
    pub counted: AtomicU64,
    /// A collective is in progress in this process.
    pub busy: AtomicBool,
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

impl Team {
    /// Reserves this process's area of the whole job's team. Called before the process declares
    /// itself ready, so that nobody touches the area before it is there.
    pub(crate) fn prepare_whole(node: &Arc<Node>) -> Result<()> {
        let block = Block::view(node, node.areas().commons().0, node.size())?;
        block.reserve_area(node.slot().0.into())?;
        if node.slot() == Slot(0) {
            Block::create_whole(node)?;
        }
        Ok(())
    }

    /// The team of the whole job; every process is ready.
    pub(crate) fn whole(node: &Arc<Node>) -> Result<Team> {
        let block = Block::open(node, node.areas().commons().0, node.size())?;
        let rank = node.slot().0.into();
        Ok(Self::from_block(block, rank, true, None))
    }

    pub(super) fn from_block(
        block: Block,
        rank: u32,
        identity: bool,
        holding: Option<Holding>,
    ) -> Team {
        block.roll.note(rank, READY);
        block.header().wait.notify();
        let context = block.header().context.load(Ordering::Relaxed);
        let member = Member {
            context,
            endpoint: OnceLock::new(),
            deaths_reported: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            block,
            rank,
            identity,
            phase: AtomicU32::new(0),
            counted: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            shrunk: AtomicBool::new(false),
            _holding: holding,
        };
        Team { member: Arc::new(member), limit: None }
    }

    /// This process's rank in the team.
    #[inline]
    pub fn rank(&self) -> Rank {
        Rank(self.member.rank)
    }

    /// Number of members.
    #[inline]
    pub fn size(&self) -> u32 {
        self.member.block.size
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
        if self.member.identity && rank.0 < self.size() {
            return Ok(Slot(rank.0 as u16));
        }
        self.member.block.member(rank.0)
    }

    /// Whether rank and slot are the same number for every member.
    #[inline]
    pub fn is_identity(&self) -> bool {
        self.member.identity
    }

    /// The attachment to the node.
    #[inline]
    pub fn node(&self) -> &Arc<Node> {
        &self.member.block.node
    }

    /// Runs one collective: refuses a second thread and a broken team, and breaks the team when
    /// the collective fails half-way.
    pub(super) fn collective<R>(
        &self,
        during: &'static str,
        run: impl FnOnce(&Member, Deadline) -> Result<R>,
    ) -> Result<R> {
        reentry::refuse_inside(during)?;
        // A new thread of a forked child could find everybody there already.
        forked::refuse_forked(during)?;
        let member = &*self.member;
        if member.busy.swap(true, Ordering::Acquire) {
            return Err(Error::Misuse {
                what: during,
                why: "another thread of this rank is in a collective call of the same team; \
                      call them one after the other, or use a team per thread"
                    .into(),
            });
        }
        let _busy = Busy(member);
        let result = member.intact(during).and_then(|()| run(member, self.deadline()));
        if let Err(error) = &result {
            member.note_failure(error);
        }
        result
    }
}

/// One thread is inside a collective.
struct Busy<'m>(&'m Member);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The others must not wait for a member that will never get to the end of this one.
            self.0.give_up();
        }
        self.0.busy.store(false, Ordering::Release);
    }
}

/// In the `broken` word: no death but a member that fell out of step.
pub(super) const OUT_OF_STEP: u32 = 1 << 31;

impl Member {
    /// An error if the team's collectives have ended.
    #[inline]
    pub fn intact(&self, during: &'static str) -> Result<()> {
        match self.block.header().broken.load(Ordering::Acquire) {
            0 => Ok(()),
            raw => Err(self.broken_error(raw, during)),
        }
    }

    #[cold]
    fn broken_error(&self, raw: u32, during: &'static str) -> Error {
        if raw & OUT_OF_STEP != 0 {
            return Error::Misuse {
                what: during,
                why: format!(
                    "an earlier collective of this team was given up by rank {} of the job, so \
                     its members are no longer in step; make a new team with Team::shrink",
                    (raw & !OUT_OF_STEP).saturating_sub(1)
                ),
            };
        }
        match self.block.node.checked_slot(u64::from(raw) - 1) {
            Ok(slot) => self.block.node.died(slot, during),
            Err(error) => error,
        }
    }

    /// What `broken` says of this process.
    fn own_mark(&self) -> u32 {
        u32::from(self.block.node.slot().0) + 1
    }

    /// Breaks the team if the error leaves its members out of step.
    fn note_failure(&self, error: &Error) {
        match error {
            Error::RankDied { rank, .. } | Error::RankLeft { rank, .. } => {
                self.break_team(rank.0 + 1);
            }
            Error::TimedOut { .. } => self.give_up(),
            _ => {}
        }
    }

    /// Breaks the team because this member will not do its part.
    pub fn give_up(&self) {
        self.break_team(OUT_OF_STEP | self.own_mark());
    }

    /// Ends the team's collectives for all, unless they have ended, and tells who waits.
    fn break_team(&self, mark: u32) {
        let header = self.block.header();
        let first = header.broken.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            header.wait.notify();
            for rank in 0..self.block.size {
                self.block.lines(rank).wait.notify();
            }
        }
    }

    /// The check of every wait: the team is intact and nobody in it is gone.
    pub fn check(&self, during: &'static str) -> Result<()> {
        self.intact(during)?;
        let slots = (0..self.block.size).filter_map(|r| self.block.member(r).ok());
        self.block.node.check(slots, during)
    }

    /// Begins the next synchronising step and returns its number.
    pub fn next_phase(&self) -> u32 {
        // Only the thread that holds `busy` gets here.
        let phase = self.phase.load(Ordering::Relaxed).wrapping_add(1);
        self.phase.store(phase, Ordering::Relaxed);
        phase
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.get()
            && !forked::is_forked()
        {
            endpoint.forget_context(self.context);
        }
    }
}
