//! Endpoints: teams whose messages share nothing with those of other teams, one for each thread;
//! and messages of a team that one thread alone handles.

use super::super::Team;
use crate::base::{Error, Result};
use crate::layout::Op;
use crate::p2p::{Endpoint, Endpoints};
use crate::shm::segment::PORTS;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

const DURING: &str = "Team::endpoints";

/// Times that a number is asked for which another thread of some member may be about to take.
const ATTEMPTS: u32 = 1000;

impl Team {
    /// Makes `count` endpoints: teams of the same members, each of which has connections, matching
    /// and a place to sleep at that nothing else uses, in every member. Threads with an endpoint
    /// each take no lock that another one takes, for small messages; for large ones a lock of the
    /// process is held for some instructions.
    ///
    /// Endpoint `i` of a rank sends to endpoint `i` of the others: a thread that wants a message
    /// from it to be received by thread `j` there sends it by its endpoint `j`, as any thread may
    /// use any endpoint. Teams that are split off from an endpoint use that endpoint. Collectives of
    /// an endpoint are those of a team of its own, so each thread may be in one.
    ///
    /// Between nodes all endpoints of a process have one connection to each peer: threads that send there
    /// take turns at a lock.
    ///
    /// What belongs to an endpoint makes progress in calls that are about it; and, so that no peer
    /// waits for ever, in waits of other threads before they sleep, if nobody has looked after it
    /// since their last sleep.
    ///
    /// Collective over the team. Costs each member 132 KiB of shared memory for each endpoint, and
    /// 16 KiB for each peer that sends much to it; they are given back at the end of the job, and
    /// used again for endpoints that are made later.
    ///
    /// # Errors
    /// [`Error::Exhausted`]: more than 63 at a time in some member; those of [`Team::split`].
    pub fn endpoints(&self, count: usize) -> Result<Vec<Team>> {
        let counts = [count as u64, !(count as u64)];
        let mut least = counts;
        self.allreduce(Op::Min, &mut least)?;
        if least != counts {
            return Err(Error::invalid(DURING, "the members ask for different numbers of them"));
        }
        (0..count).map(|_| self.one_more()).collect()
    }

    fn one_more(&self) -> Result<Team> {
        let all = Endpoints::of(self.node())?;
        for _ in 0..ATTEMPTS {
            let mut taken = [all.taken()];
            self.allreduce(Op::BitOr, &mut taken)?;
            let number = taken[0].trailing_ones() as usize;
            if number > PORTS {
                return Err(Error::Exhausted {
                    what: "endpoints",
                    limit: PORTS as u64,
                    advice: "drop some, or let threads share them",
                });
            }
            let lease = all.lease(number);
            let mut won = [u64::from(lease.is_some())];
            self.allreduce(Op::Min, &mut won)?;
            let Some(lease) = lease.filter(|_| won[0] != 0) else {
                // Another thread of this process, or of a peer's, is making endpoints of another team.
                std::thread::yield_now();
                continue;
            };
            let opened = Endpoint::leased(self.node(), lease, self.spans_nodes());
            let endpoint = Arc::new(self.agree(DURING, opened)?);
            let made = self.split(Some(0), self.rank().0)?;
            let team = made.ok_or_else(|| Error::invalid(DURING, "a split made no team"))?;
            return team.with_endpoint(endpoint);
        }
        Err(Error::Exhausted {
            what: "attempts to agree on an endpoint",
            limit: ATTEMPTS.into(),
            advice: "make endpoints by one thread at a time",
        })
    }

    /// The same, just made, with another endpoint than the one it may have inherited.
    fn with_endpoint(mut self, endpoint: Arc<Endpoint>) -> Result<Team> {
        let Some(member) = Arc::get_mut(&mut self.member) else {
            return Err(Error::invalid(DURING, "a team that was just made is in use"));
        };
        member.endpoint = OnceLock::from(endpoint);
        Ok(self)
    }

    /// From now until the guard is dropped the calling thread alone may send, receive, probe, test and
    /// wait for what goes by this team's endpoint: that of [`Team::endpoints`], or the one of all
    /// other teams of the process. Calls of other threads fail with [`Error::Misuse`].
    ///
    /// It costs one comparison in each call, and no other thread can get in the way of this one, not
    /// by looking after it in a wait either: so what the process owes its peers in messages is done
    /// in waits of this thread only. (What comes for it from other nodes is put in its line by others, if
    /// nothing else could come otherwise.) Futures of requests ask to be polled again at once. Collective
    /// and one-sided calls are not concerned.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is funneled already.
    pub fn funnel(&self) -> Result<Funneled> {
        let endpoint = self.messages("funnel")?.clone();
        endpoint.bind()?;
        Ok(Funneled { endpoint, _here: PhantomData })
    }
}

/// See [`Team::funnel`]. Dropped by the thread that made it.
#[derive(Debug)]
pub struct Funneled {
    endpoint: Arc<Endpoint>,
    _here: PhantomData<*const ()>,
}

impl Drop for Funneled {
    fn drop(&mut self) {
        self.endpoint.unbind();
    }
}

#[cfg(test)]
mod tests {
    use crate::link::biased::turns_taken;
    use crate::{Job, Rank};
    use std::sync::Barrier;

    const THREADS: usize = 2;
    const TURNS: u64 = 20_000;

    /// Locks of others that the threads of a rank met on the way of their messages, all together.
    fn turns(job: &Job, endpoints: bool) -> u64 {
        let team = job.team();
        let own = team.endpoints(THREADS).unwrap();
        let ready = Barrier::new(THREADS);
        let (to, ready) = (Rank(1 - job.rank().0), &ready);
        let play = |number: usize| {
            let team = if endpoints { &own[number] } else { team };
            let round = |turn: u64| {
                team.send(to, number as u32, &[turn]).unwrap();
                let mut got = [0u64];
                team.recv(to, number as u32, &mut got).unwrap();
                assert_eq!(got, [turn]);
            };
            // Connections become hot, locks get their owners.
            (0..2000).for_each(round);
            ready.wait();
            let before = turns_taken();
            (0..TURNS).for_each(round);
            turns_taken() - before
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|number| scope.spawn(move || play(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    }

    /// Asserts that one of several tries goes as `good` says: the scheduler decides which thread looks
    /// after what another was kept from, and such a visit costs up to 256 turns at each lock. Where
    /// locks are in the way, no try is good.
    fn one_of_several<T: std::fmt::Debug>(attempt: impl Fn() -> T, good: impl Fn(&T) -> bool) {
        const TRIES: usize = 10;
        let mut seen = Vec::new();
        while seen.len() < TRIES {
            let result = attempt();
            if good(&result) {
                return;
            }
            seen.push(result);
        }
        panic!("none of {seen:?}");
    }

    #[test]
    fn threads_with_endpoints_meet_at_no_lock() {
        let attempt = || {
            let ends = Job::threads(2, |job| {
                let apart = turns(&job, true);
                job.team().barrier()?;
                let together = turns(&job, false);
                job.team().barrier()?;
                job.finish().map(|()| (apart, together))
            });
            ends.unwrap().into_iter().map(|end| end.unwrap()).collect::<Vec<_>>()
        };
        let good = |&(apart, together): &(u64, u64)| apart <= together / 20;
        one_of_several(attempt, |ends| ends.iter().all(good));
    }

    /// Messages between two answers.
    const WINDOW: u64 = 64;
    const WINDOWS: u64 = 400;

    /// Locks of others that threads of rank 0 meet that receive from a rank each; `None` elsewhere.
    fn turns_of_star(job: &Job) -> Option<u64> {
        let team = job.team();
        let window = |peer: Rank, turn: u64, leads: bool| {
            let mut got = [0u64];
            for i in 0..WINDOW {
                if leads {
                    team.recv(peer, 1, &mut got).unwrap();
                    assert_eq!(got, [turn * WINDOW + i]);
                } else {
                    team.send(peer, 1, &[turn * WINDOW + i]).unwrap();
                }
            }
            if leads {
                team.send(peer, 2, &[turn])
            } else {
                team.recv(peer, 2, &mut got).map(drop)
            }
            .unwrap();
        };
        if job.rank() != Rank(0) {
            (0..2 * WINDOWS).for_each(|turn| window(Rank(0), turn, false));
            return None;
        }
        let ready = &Barrier::new(THREADS);
        let play = |peer: u32| {
            // Connections become hot, locks get their owners.
            (0..WINDOWS).for_each(|turn| window(Rank(peer), turn, true));
            ready.wait();
            let before = turns_taken();
            (WINDOWS..2 * WINDOWS).for_each(|turn| window(Rank(peer), turn, true));
            turns_taken() - before
        };
        std::thread::scope(|scope| {
            let peers = 1..=THREADS as u32;
            let threads: Vec<_> = peers.map(|peer| scope.spawn(move || play(peer))).collect();
            Some(threads.into_iter().map(|thread| thread.join().unwrap()).sum())
        })
    }

    #[test]
    fn threads_that_receive_from_a_peer_each_meet_at_few_locks() {
        let attempt = || {
            let ends = Job::threads(1 + THREADS as u32, |job| {
                let turns = turns_of_star(&job);
                job.team().barrier()?;
                job.finish().map(|()| turns)
            });
            ends.unwrap().into_iter().find_map(|end| end.unwrap()).unwrap()
        };
        let messages = THREADS as u64 * WINDOWS * WINDOW;
        // Where one waits, or has not looked at the others for long.
        one_of_several(attempt, |turns| *turns <= messages / 8);
    }
}
