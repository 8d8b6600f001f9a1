//! Barrier, in two algorithms chosen by whether every member can have a core of its own.
//!
//! *Dissemination* (cores for all): in round r a member writes its phase into flag r of the
//! member 2^r places ahead and waits for flag r of its own. ceil(log2 n) rounds of one cache-line
//! transfer each, no hot spot. *Count* (shared cores): one fetch_add; the last to arrive releases
//! everybody. One waking is enough, where dissemination needs the cores to be handed round
//! log2 n times.

use super::block::Block;
use super::team::{Member, Team};
use crate::base::sync::Ordering;
use crate::base::{Deadline, Result};

const DURING: &str = "a barrier";

impl Team {
    /// Returns once every member has called it. What members wrote before is visible to all
    /// afterwards.
    ///
    /// Cost: ceil(log2 n) cache-line transfers one after the other (see the module); no system
    /// call unless someone sleeps.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if a member dies before it arrives, [`crate::Error::TimedOut`].
    pub fn barrier(&self) -> Result<()> {
        self.collective(DURING, |member, deadline| member.barrier(deadline).map(|_| ()))
    }
}

impl Team {
    /// The last barrier of all, after which members leave: by count, because only there nobody
    /// still waits for a message of somebody who is through.
    pub(crate) fn farewell(&self) -> Result<()> {
        self.collective("the end of the job", |member, deadline| {
            if member.block.size == 1 { Ok(()) } else { member.count(&member.block, deadline) }
        })
    }
}

impl Member {
    /// One barrier as the next phase; returns the phase.
    pub(super) fn barrier(&self, deadline: Deadline) -> Result<u32> {
        let phase = self.next_phase();
        let block = &self.block;
        if block.size > 1 {
            if self.cores_for_all() {
                self.disseminate(block, phase, deadline)?;
            } else {
                self.count(block, deadline)?;
            }
        }
        Ok(phase)
    }

    /// Whether every rank of the job can have a core of its own. The same in all members: it
    /// compares two numbers of the segment's header.
    pub(super) fn cores_for_all(&self) -> bool {
        let node = &self.block.node;
        node.size() <= node.header().cpus.load(Ordering::Relaxed)
    }

    fn disseminate(&self, block: &Block, phase: u32, deadline: Deadline) -> Result<()> {
        let size = block.size;
        let mine = block.lines(self.rank);
        let mut distance = 1;
        let mut round = 0;
        while distance < size {
            let partner = block.lines((self.rank + distance) % size);
            partner.flags[round].store(phase, Ordering::Release);
            partner.wait.notify();
            let flag = &mine.flags[round];
            // The partner may have begun the next phase, but cannot end it without this member.
            let reached = || {
                let reached = flag.load(Ordering::Acquire);
                reached == phase || reached == phase.wrapping_add(1)
            };
            if !reached() {
                let node = &block.node;
                mine.wait.wait(
                    node.pace(),
                    deadline,
                    DURING,
                    || reached().then_some(()),
                    || self.check(DURING),
                )?;
            }
            distance *= 2;
            round += 1;
        }
        Ok(())
    }

    fn count(&self, block: &Block, deadline: Deadline) -> Result<()> {
        let header = block.header();
        let number = self.counted.load(Ordering::Relaxed) + 1;
        self.counted.store(number, Ordering::Relaxed);
        let arrived = header.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        if arrived == number * u64::from(block.size) {
            header.released.store(number, Ordering::Release);
            header.wait.notify();
            return Ok(());
        }
        let released = || header.released.load(Ordering::Acquire) >= number;
        header.wait.wait(
            block.node.pace(),
            deadline,
            DURING,
            || released().then_some(()),
            || self.check(DURING),
        )
    }
}
