//! The small broadcast: the root posts a value of up to 56 bytes where all members look, and goes on.
//!
//! ```text
//! root       post n in its line n mod 16     value | word of the call and history, n     notify
//! others     wait for n there, copy          every fourth: seen = n                      notify
//! root       before post n: all have seen n - 16
//! ```
//! Posts have numbers of their own, the same in all members whoever the root is. They are no phases:
//! nobody waits for who has nothing to say, so where ranks share cores a broadcast hands none round that
//! somebody else's next value does not need.
//!
//! As the root goes on, members in different calls may pass each other here. Each finds out where it
//! waits: by the word beside the number, in which there is a hash of all that was posted before; by the
//! calls that others have written down under the number of its own; and by the words of the next
//! synchronising step, in which there is the same hash.

use super::block::{Board, POSTS};
use super::core::{Core, Place};
use super::sign::Sign;
use super::step::Course;
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Result};

/// After how many posts a member says what it has seen.
const SAY: u32 = POSTS as u32 / 4;

/// Members for each core up to which there are few.
const FEW: u32 = 2;

/// What a member knows of the posts of its team.
#[derive(Debug, Default)]
pub(super) struct Posted {
    /// Number of the last one.
    number: AtomicU32,
    /// A hash of the words of all.
    history: AtomicU32,
    /// Up to where all members have seen them, as far as this one has asked.
    passed: AtomicU32,
}

// Only the thread that holds `busy`, or the queue when nobody does, writes these.
impl Posted {
    #[inline]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn history(&self) -> u32 {
        self.history.load(Ordering::Relaxed)
    }

    #[inline]
    fn begin(&self, sign: Sign) -> u32 {
        let number = self.number().wrapping_add(1);
        self.number.store(number, Ordering::Relaxed);
        let history = self.history().wrapping_mul(0x9e37_79b1).wrapping_add(sign.word | 1);
        self.history.store(history, Ordering::Relaxed);
        number
    }
}

/// Whether the line of a post is free for it when all have seen those up to `seen`. Numbers wrap.
#[inline]
fn is_free(number: u32, seen: u32) -> bool {
    number.wrapping_sub(seen) <= POSTS as u32
}

/// The line of a post. Posts that follow each other are not neighbours, as processors fetch lines in
/// pairs: one is polled while the next is written.
#[inline]
fn line(number: u32) -> usize {
    let slot = number as usize % POSTS;
    (slot * 2) % POSTS + slot / (POSTS / 2)
}

impl Core {
    #[inline]
    fn post_of(&self, rank: u32, number: u32) -> &Board {
        &self.block.lines(rank).posts[line(number)]
    }

    /// Posts the first bytes of `data`, as many as fit into a board, if this member is the root; else has there
    /// what the root has posted.
    ///
    /// Cost: the root stores one line, and reads what the others have seen once in several posts; the
    /// others fetch that line.
    #[inline]
    pub fn broadcast(
        &self,
        sign: Sign,
        deadline: &Deadline,
        root: u32,
        data: &mut [u8],
    ) -> Result<()> {
        let number = self.begin_post(sign);
        if root == self.rank {
            if !self.has_room(number) {
                self.look_for_room(sign, number, deadline)?;
            }
            self.post(sign, number, data);
        } else {
            let post = self.post_of(root, number);
            if !self.comes_at_once::<false>(&post.step, self.step_of(number, sign)) {
                self.await_post(sign, root, number, deadline)?;
            }
            post.get_bytes(0, data);
        }
        self.note_seen(number);
        Ok(())
    }

    #[inline]
    fn begin_post(&self, sign: Sign) -> u32 {
        let number = self.posted.begin(sign);
        self.begin(sign);
        number
    }

    #[inline]
    fn post(&self, sign: Sign, number: u32, data: &[u8]) {
        self.post_of(self.rank, number).put_bytes(data, self.step_of(number, sign));
        self.block.lines(self.rank).wait.notify();
    }

    /// Whether the root has posted; whether it ever will, this member cannot see here.
    #[inline]
    fn posted_by(&self, root: u32, sign: Sign, number: u32) -> Option<Result<()>> {
        let seen = self.post_of(root, number).step.load(Ordering::Acquire);
        if seen == self.step_of(number, sign) {
            return Some(Ok(()));
        }
        (seen as u32 == number && seen != 0).then(|| Err(self.mismatch(root)))
    }

    #[inline(never)]
    fn await_post(&self, sign: Sign, root: u32, number: u32, deadline: &Deadline) -> Result<()> {
        let mut come = Ok(());
        let posted = || self.posted_by(root, sign, number).map(|posted| come = posted);
        self.wait_on(root, *deadline, sign.what.during(), posted)?;
        come
    }

    /// Waits for one member. Where there are few to a core it may be worth keeping one's own for a while,
    /// or leaving that of the member (see `habit`, `aside`); where there are more, that keeps others
    /// from coming at all.
    fn wait_on<R>(
        &self,
        rank: u32,
        deadline: Deadline,
        during: &'static str,
        poll: impl FnMut() -> Option<R>,
    ) -> Result<R> {
        let (node, cell) = (&self.block.node, &self.block.lines(rank).wait);
        let check = || self.check(during);
        if self.block.size <= FEW * node.header().cpus.load(Ordering::Relaxed) {
            let peer = self.block.member(rank).ok();
            return node.wait_for(cell, peer, deadline, during, poll, check);
        }
        node.wait(cell, deadline, during, poll, check)
    }

    /// Says that this member is through with a post, if the time has come.
    #[inline]
    fn note_seen(&self, number: u32) {
        if number.is_multiple_of(SAY) {
            let mine = self.block.lines(self.rank);
            mine.been.seen.store(number, Ordering::Release);
            mine.wait.notify();
        }
    }

    /// Whether the line of a post is known to be free.
    #[inline]
    fn has_room(&self, number: u32) -> bool {
        is_free(number, self.posted.passed.load(Ordering::Relaxed))
    }

    /// Whether a member has seen what was in the line of a post before.
    #[inline]
    fn made_room(&self, rank: u32, number: u32) -> Option<u32> {
        let seen = self.block.lines(rank).been.seen.load(Ordering::Acquire);
        is_free(number, seen).then_some(seen)
    }

    #[cold]
    fn look_for_room(&self, sign: Sign, number: u32, deadline: &Deadline) -> Result<()> {
        let during = sign.what.during();
        let mut most = 0;
        for rank in (0..self.block.size).filter(|&rank| rank != self.rank) {
            let made = || self.made_room(rank, number);
            let seen = match made() {
                Some(seen) => seen,
                None => self.wait_on(rank, *deadline, during, made)?,
            };
            most = most.max(number.wrapping_sub(seen));
        }
        self.posted.passed.store(number.wrapping_sub(most), Ordering::Relaxed);
        Ok(())
    }
}

impl Course<'_> {
    /// As [`Core::broadcast`].
    pub async fn broadcast_post(&self, root: u32, data: &mut [u8]) -> Result<()> {
        let core = self.core();
        if let Some(deadline) = self.blocking() {
            return core.broadcast(self.sign, &deadline, root, data);
        }
        let number = core.begin_post(self.sign);
        if root == core.rank {
            if !core.has_room(number) {
                for rank in (0..core.block.size).filter(|&rank| rank != core.rank) {
                    let made = || core.made_room(rank, number).map(|_| Ok(()));
                    self.until(Place::Lines(rank), made).await?;
                }
                core.posted.passed.store(number.wrapping_sub(POSTS as u32), Ordering::Relaxed);
            }
            core.post(self.sign, number, data);
        } else {
            let posted = || core.posted_by(root, self.sign, number);
            self.until(Place::Lines(root), posted).await?;
            core.post_of(root, number).get_bytes(0, data);
        }
        core.note_seen(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;
    use crate::base::{Error, Rank};
    use crate::coll::Team;
    use crate::layout::Op;
    use std::time::Duration;

    #[test]
    fn posts_that_follow_each_other_lie_apart() {
        let lines: Vec<usize> = (0..POSTS as u32).map(line).collect();
        let mut sorted = lines.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..POSTS).collect::<Vec<_>>());
        for number in 0..2 * POSTS as u32 {
            assert_ne!(line(number) / 2, line(number + 1) / 2, "{number}");
        }
    }

    /// Numbers wrap, and a root that was none for long knows nothing any more.
    #[test]
    fn lines_are_free_once_all_have_seen_them() {
        assert!(is_free(16, 0) && !is_free(17, 0));
        assert!(is_free(3, u32::MAX - 12) && !is_free(4, u32::MAX - 12));
        assert!(!is_free(1 << 31, 5) && !is_free(u32::MAX, 5));
    }

    /// Posts and steps that synchronise in turn, from `first` on; every member is the root now and then.
    fn broadcasts(team: &Team, first: u32) -> Result<()> {
        let core = &team.member.core;
        core.posted.number.store(first, Ordering::Relaxed);
        core.posted.passed.store(first, Ordering::Relaxed);
        core.block.lines(core.rank).been.seen.store(first, Ordering::Relaxed);
        team.barrier()?;
        for round in 0..400u64 {
            let root = (round / 40 % 4 + round % 3 / 2) % 4;
            let mine = [round * 4 + u64::from(core.rank), !round, 7];
            let mut data = mine;
            if round % 5 == 0 {
                data =
                    team.ibroadcast(Rank(root as u32), mine)?.wait()?.try_into().unwrap_or([0; 3]);
            } else {
                team.broadcast(Rank(root as u32), &mut data)?;
            }
            assert_eq!(data, [round * 4 + root, !round, 7], "round {round} at {}", core.rank);
            if round % 67 == 0 {
                team.barrier()?;
            }
        }
        Ok(())
    }

    #[test]
    fn posts_come_in_order_when_their_numbers_wrap() {
        for first in [0, u32::MAX - 100, (1 << 31) - 100] {
            let ends = Job::threads(4, move |job| broadcasts(job.team(), first));
            ends.unwrap().into_iter().for_each(|end| end.unwrap());
        }
    }

    /// What a member does instead of two broadcasts of rank 0 and a barrier.
    type Other = fn(&Team) -> Result<()>;

    const OTHERS: [(&str, Other); 7] = [
        ("one only", |team| {
            team.broadcast(Rank(0), &mut [0u64])?;
            team.barrier()
        }),
        ("one more", |team| {
            (0..3).try_for_each(|_| team.broadcast(Rank(0), &mut [0u64]))?;
            team.barrier()
        }),
        ("the barrier first", |team| {
            team.barrier()?;
            (0..2).try_for_each(|_| team.broadcast(Rank(0), &mut [0u64]))
        }),
        ("the barrier between", |team| {
            team.broadcast(Rank(0), &mut [0u64])?;
            team.barrier()?;
            team.broadcast(Rank(0), &mut [0u64])
        }),
        ("another root", |team| {
            (0..2).try_for_each(|_| team.broadcast(Rank(team.size() - 1), &mut [0u64]))?;
            team.barrier()
        }),
        ("itself as the root", |team| {
            (0..2).try_for_each(|_| team.broadcast(team.rank(), &mut [0u64]))?;
            team.barrier()
        }),
        ("another length", |team| {
            (0..2).try_for_each(|_| team.broadcast(Rank(0), &mut [0u32]))?;
            team.barrier()
        }),
    ];

    /// No member gets through, whoever went on ahead, and the two calls are named.
    #[test]
    fn members_in_other_calls_find_out() {
        for ((name, other), (size, differs, late)) in OTHERS.into_iter().flat_map(|other| {
            [(4, 2, 0), (4, 2, 1), (4, 2, 2), (2, 1, 0), (2, 1, 1)].map(|form| (other, form))
        }) {
            let ends = Job::threads(size, move |job| {
                let team = job.team();
                team.allreduce(Op::Max, &mut [1u8])?;
                if job.rank() == Rank(late) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                if job.rank() == Rank(differs) {
                    other(team)?;
                } else {
                    (0..2).try_for_each(|_| team.broadcast(Rank(0), &mut [0u64]))?;
                    team.barrier()?;
                }
                // Who is through learns of it here.
                team.barrier()
            });
            for (rank, end) in ends.unwrap().into_iter().enumerate() {
                let Err(Error::Mismatch { a_has, b_has, .. }) = &end else {
                    panic!("{name}, {size} members, {late} late, rank {rank}: {end:?}");
                };
                assert_ne!(a_has, b_has, "{name}, {size} members, {late} late, rank {rank}");
            }
        }
    }
}
