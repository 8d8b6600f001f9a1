//! Becoming part of a node.
//!
//! Attaching: take the slot's record lock, agree with the others on one address (below), map the
//! whole file there (the one mapping a process has of it), reserve this process's inbox.
//!
//! ```text
//! slot 0 (leader)                            others
//!   base = candidate; round += 1   ------>     try to map at base without replacing anything
//!   wait for all votes             <------     vote = round << 1 | mapped
//!   all mapped: agreed = 1         ------>     done
//!   else: unmap, next candidate, up to ROUNDS times; then agreed = 2 and everyone fails
//! ```

use super::aside::Aside;
use super::crowd::Crowd;
use super::forked::Presence;
use super::habit::Habits;
use super::liveness::{self, may_act};
use super::lock::LocalNodes;
use super::map::{self, Mapping, PAGE};
use super::node::{Attachments, Node};
use super::park::Pace;
use super::region::SharedRef;
use super::segment::{
    self, Areas, INBOX_BYTES, NodeHeader, RankSlot, STATE_DEAD, STATE_EMPTY, STATE_JOINING,
    STATE_LEFT, STATE_READY,
};
use crate::base::sync::{self, AtomicBool, AtomicU32, Ordering};
use crate::base::{Deadline, Error, Offset, Rank, Result, Slot, settings};
use crate::topo::Placement;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Addresses tried before giving up.
const ROUNDS: u32 = 32;
/// Candidates lie between these addresses: above executables and their heaps without address
/// randomisation, below position-independent executables and shared libraries.
const LOWEST: u64 = 0x1000_0000_0000;
const HIGHEST: u64 = 0x5500_0000_0000;
/// A random 64-bit number from the kernel.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::os("getrandom", e))?;
    Ok(u64::from_le_bytes(bytes))
}

fn random_base(length: u64) -> Result<u64> {
    const GIB: u64 = 1 << 30;
    let room = (HIGHEST - LOWEST).saturating_sub(length) / GIB;
    Ok(LOWEST + random()? % room.max(1) * GIB)
}

pub(super) type Head = (OwnedFd, Arc<Mapping>, Areas, u32);

/// Opens the file anew, validates its header, and maps the control structures.
pub(super) fn open_head(fd: OwnedFd) -> Result<Head> {
    let own = map::reopen(&fd)?;
    let length = map::sealed_length(&own)?;
    if length < PAGE {
        return Err(Error::Incompatible {
            what: "the node's shared memory",
            why: format!("it has only {length} bytes"),
        });
    }
    let page = Arc::new(Mapping::anywhere(&own, PAGE)?);
    let header: SharedRef<NodeHeader> = SharedRef::new(&page, Offset(0))?;
    let (areas, size) = segment::validate(&header, length)?;
    let head = Arc::new(Mapping::anywhere(&own, areas.head_bytes())?);
    Ok((own, head, areas, size))
}

/// State of a process between opening the file and being ready.
pub(super) struct Wiring {
    pub fd: OwnedFd,
    pub head: Arc<Mapping>,
    pub header: SharedRef<NodeHeader>,
    pub areas: Areas,
    pub size: u32,
    pub placement: Placement,
    pub slot: Slot,
    /// Once this process has entered.
    pub presence: Option<Presence>,
}

impl Wiring {
    /// Opens the file of the node for `slot`, in a job of one node or as `placement` says.
    pub fn open(fd: OwnedFd, placement: Option<Placement>, slot: Slot) -> Result<Wiring> {
        let (fd, head, areas, size) = open_head(fd)?;
        let header: SharedRef<NodeHeader> = SharedRef::new(&head, Offset(0))?;
        let placement = placement.map_or_else(|| Placement::one_node(size), Ok)?;
        if placement.locals() != size {
            return Err(Error::Incompatible {
                what: "the node's shared memory",
                why: format!("it is for {size} ranks, not for {}", placement.locals()),
            });
        }
        Ok(Wiring { presence: None, fd, head, header, areas, size, placement, slot })
    }

    /// The rank in the job of a process of this node.
    fn rank(&self, slot: Slot) -> Rank {
        self.placement.rank_of(slot).unwrap_or(Rank(slot.0.into()))
    }

    fn block(&self, slot: Slot) -> Result<SharedRef<RankSlot>> {
        SharedRef::new(&self.head, self.areas.slot(slot))
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + Clone + use<> {
        (0..self.size as u16).map(Slot)
    }

    pub fn enter(&mut self) -> Result<()> {
        if u32::from(self.slot.0) >= self.size {
            return Err(Error::boot(format!("slot {} in a job of {}", self.slot, self.size)));
        }
        self.presence = Some(Presence::take(self.fd.as_fd(), self.slot)?);
        let block = self.block(self.slot)?;
        let entered = block.state.compare_exchange(
            STATE_EMPTY,
            STATE_JOINING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if entered.is_err() {
            return Err(Error::Misuse {
                what: "joining the node",
                why: format!("rank {} has been part of this job before", self.rank(self.slot)),
            });
        }
        block.pid.store(std::process::id(), Ordering::Relaxed);
        if !sync::register_asymmetric() {
            self.header.full_fences.store(1, Ordering::Release);
        }
        let what = "this rank's inbox";
        map::reserve(self.fd.as_fd(), self.areas.inbox(self.slot).0, INBOX_BYTES, what)?;
        self.header.wiring.notify();
        Ok(())
    }

    /// Runs the address agreement of the module's diagram.
    pub fn agree(&self, deadline: Deadline) -> Result<Mapping> {
        let leader = self.slot == Slot(0);
        for round in 1..=ROUNDS {
            if leader {
                self.header.base.store(random_base(self.areas.length)?, Ordering::Relaxed);
                self.header.round.store(round, Ordering::Release);
                self.header.wiring.notify();
            } else {
                self.await_leader(round, deadline)?;
            }
            let base = self.header.base.load(Ordering::Relaxed);
            let mapping = Mapping::at(&self.fd, self.areas.length, base)?;
            let vote = u64::from(round) << 1 | u64::from(mapping.is_some());
            self.block(self.slot)?.vote.store(vote, Ordering::Release);
            self.header.wiring.notify();
            if leader {
                let all = self.collect_votes(round, deadline)?;
                let verdict = if all {
                    1
                } else if round == ROUNDS {
                    2
                } else {
                    0
                };
                if verdict != 0 {
                    self.header.agreed.store(verdict, Ordering::Release);
                    self.header.wiring.notify();
                }
            }
            match (self.await_verdict(round, deadline)?, mapping) {
                (1, Some(mapping)) => return Ok(mapping),
                (0, _) => {}
                _ => break,
            }
        }
        Err(Error::boot(format!(
            "no address for {} bytes is free in every rank (tried {ROUNDS}); \
             lower HITHER_HEAP_SIZE, or look for sanitizers that occupy the address space",
            self.areas.length
        )))
    }

    fn await_leader(&self, round: u32, deadline: Deadline) -> Result<()> {
        self.wait(deadline, std::iter::once(Slot(0)), |w| {
            w.header.round.load(Ordering::Acquire) >= round
        })
    }

    /// 1 agreed, 2 hopeless, 0 another round has begun.
    fn await_verdict(&self, round: u32, deadline: Deadline) -> Result<u32> {
        self.wait(deadline, std::iter::once(Slot(0)), |w| {
            self.slot == Slot(0)
                || w.header.agreed.load(Ordering::Acquire) != 0
                || w.header.round.load(Ordering::Acquire) > round
        })?;
        Ok(self.header.agreed.load(Ordering::Acquire))
    }

    fn collect_votes(&self, round: u32, deadline: Deadline) -> Result<bool> {
        let mut all = true;
        for slot in self.slots() {
            let block = self.block(slot)?;
            let voted = |_: &Wiring| block.vote.load(Ordering::Acquire) >> 1 >= u64::from(round);
            self.wait(deadline, std::iter::once(slot), voted)?;
            all &= block.vote.load(Ordering::Acquire) & 1 == 1;
        }
        Ok(all)
    }

    /// Waits for a condition of the wiring; on time-out names every rank that has not arrived.
    fn wait(
        &self,
        deadline: Deadline,
        on: impl Iterator<Item = Slot> + Clone,
        ready: impl Fn(&Wiring) -> bool,
    ) -> Result<()> {
        let poll = || ready(self).then_some(());
        let check = || {
            for slot in on.clone().filter(|&s| s != self.slot) {
                let block = self.block(slot)?;
                if may_act(block.state.load(Ordering::Acquire))
                    && !liveness::held_by_other(self.fd.as_fd(), slot)
                {
                    liveness::mark_dead(&self.header, &block, 0);
                }
                if matches!(block.state.load(Ordering::Acquire), STATE_DEAD | STATE_LEFT) {
                    return Err(Error::RankDied {
                        rank: self.rank(slot),
                        cause: liveness::describe_end(&block),
                        during: "wiring the job up",
                    });
                }
            }
            Ok(())
        };
        let waited = self.header.wiring.wait(Pace::SHARED, deadline, "wiring", poll, check);
        waited.map_err(|e| match e {
            Error::TimedOut { during, waited, .. } => {
                let absent = |s: &Slot| {
                    self.block(*s).is_ok_and(|b| b.state.load(Ordering::Acquire) == STATE_EMPTY)
                };
                let missing = self.slots().filter(absent).map(|s| self.rank(s)).take(16).collect();
                Error::TimedOut { during, waited, missing }
            }
            e => e,
        })
    }

    pub fn into_node(self, map: Arc<Mapping>) -> Result<Arc<Node>> {
        let header: SharedRef<NodeHeader> = SharedRef::new(&map, Offset(0))?;
        // Before there is anybody who could use the mapping.
        let presence = self.presence.ok_or_else(|| Error::boot("this process has not entered"))?;
        presence.mapped(&map)?;
        let (pace, crowd, habits) = choose_pace(self.size, header.cpus.load(Ordering::Relaxed))?;
        let node = Node {
            _presence: presence,
            map,
            areas: self.areas,
            fd: self.fd,
            slot: self.slot,
            size: self.size,
            placement: self.placement,
            beyond: OnceLock::new(),
            header,
            pace,
            crowd,
            aside: settings::STEP_ASIDE.switch()?.then(Aside::default).filter(|_| habits.is_some()),
            habits,
            huge_pages: settings::HUGE_PAGES.switch()?,
            leaving: AtomicBool::new(false),
            lock_nodes: LocalNodes::default(),
            section_words: Arc::default(),
            turn_after: settings::UPDATE_SWITCH.number()?.min(i32::MAX as u64) as u32,
            probe_cursor: AtomicU32::new(0),
            attachments: Attachments::default(),
        };
        if node.huge_pages {
            node.map.advise_huge(node.areas.heap(node.slot).0, node.areas.stride);
        }
        Ok(Arc::new(node))
    }
}

impl Node {
    /// Declares this process ready and waits until every rank of the node is; then, if all of them could
    /// register, switches this process to asymmetric fences.
    pub fn await_all(&self, deadline: Deadline) -> Result<()> {
        self.rank_slot(self.slot).state.store(STATE_READY, Ordering::Release);
        self.header.wiring.notify();
        let slots = (0..self.size as u16).map(Slot);
        for slot in slots.clone() {
            let block = self.rank_slot(slot);
            let ready = || block.state.load(Ordering::Acquire) >= STATE_READY;
            self.header
                .wiring
                .wait(
                    self.pace,
                    deadline,
                    "wiring",
                    || ready().then_some(()),
                    || self.check(std::iter::once(slot), "wiring the job up"),
                )
                .map_err(|e| match e {
                    Error::TimedOut { during, waited, .. } => {
                        let late = |s: &Slot| {
                            self.rank_slot(*s).state.load(Ordering::Acquire) < STATE_READY
                        };
                        let missing = slots.clone().filter(late).map(|s| self.rank_of(s));
                        Error::TimedOut { during, waited, missing: missing.take(16).collect() }
                    }
                    e => e,
                })?;
            // Ready once, but dead before it had prepared what the others will use.
            if block.state.load(Ordering::Acquire) == STATE_DEAD {
                return Err(self.died(slot, "wiring the job up"));
            }
        }
        sync::use_full_fences(self.header.full_fences.load(Ordering::Acquire) != 0);
        Ok(())
    }
}

/// How to wait, and whether to look at how many threads do.
fn choose_pace(size: u32, cpus: u32) -> Result<(Pace, Crowd, Option<Habits>)> {
    if settings::SPIN.text() != "auto" {
        let pace = if size <= cpus { Pace::DEDICATED } else { Pace::SHARED };
        let spins = settings::SPIN.number()?.min(u64::from(u32::MAX)) as u32;
        return Ok((Pace { spins, ..pace }, Crowd::ignored(), None));
    }
    Ok(match cpus.checked_div(size) {
        Some(share @ 1..) => (Pace::DEDICATED.measured(), Crowd::new(share), None),
        _ => (Pace::SHARED, Crowd::ignored(), Some(Habits::new())),
    })
}
