//! Tagged messages between ranks: latency, no cliff, rate, bandwidth from private and from shared
//! memory, several threads.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::memcpy::Memcpy;
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::Ring;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Unit};
use hither::{Any, Error, Job, Memory, Rank, Result, Team};
use std::sync::Arc;

/// Sizes of latencies: those of `lane`, so that the two can be held against each other.
const SIZES: [usize; 10] = [8, 16, 32, 40, 64, 128, 256, 512, 1024, 4096];

/// One end of a pair.
struct End {
    job: Arc<Job>,
    peer: Rank,
    private: Vec<u8>,
}

impl End {
    fn new(crew: &Crew, size: usize) -> Result<End> {
        let job = crew.job()?.clone();
        let peer = Rank(u32::from(crew.leads()));
        job.link().promote(job.team().slot_of(peer)?)?;
        Ok(End { job, peer, private: vec![0; size] })
    }

    #[inline(always)]
    fn send(&self) -> Result<()> {
        self.job.team().send(self.peer, 1, &self.private)
    }

    #[inline(always)]
    fn receive(&mut self) -> Result<()> {
        self.job.team().recv(self.peer, 1, &mut self.private).map(drop)
    }
}

/// Back and forth. An operation is a round trip.
struct BackAndForth {
    end: End,
    turn: u64,
}

impl Side for BackAndForth {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (end, turn) = (&mut self.end, &mut self.turn);
        meter.run(count, |_| {
            *turn += 1;
            end.private[..8].copy_from_slice(&turn.to_ne_bytes());
            end.send()?;
            end.receive()
        })?;
        if self.end.private[..8] != self.turn.to_ne_bytes() {
            return Err(Error::invalid("bench", "a message came back changed"));
        }
        Ok(())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.end.private[..8].fill(0);
            self.end.receive()?;
            self.end.send()?;
        }
        Ok(())
    }
}

/// As many as possible from rank 0 to rank 1, which answers the last. An operation is a message.
struct Stream {
    end: End,
    any: bool,
}

impl Side for Stream {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let end = &mut self.end;
        meter.batch(|| {
            for i in 0..count {
                end.private[..8].copy_from_slice(&i.to_ne_bytes());
                end.send()?;
            }
            end.receive()
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let end = &mut self.end;
        for _ in 0..count {
            if self.any {
                end.job.team().recv(Any, Any, &mut end.private)?;
            } else {
                end.receive()?;
            }
        }
        if end.private[..8] != (count - 1).to_ne_bytes() {
            return Err(Error::invalid("bench", "a stream of messages was not what was sent"));
        }
        end.send()
    }
}

/// Large messages from rank 0 to rank 1, each answered by an empty one: the copies follow each
/// other, as in a program that uses what it gets.
struct Large {
    end: End,
    shared: Option<Memory<u8>>,
}

impl Large {
    fn new(crew: &Crew, size: usize, shared: bool) -> Result<Large> {
        let end = End::new(crew, size)?;
        let shared = if shared { Some(Memory::shared(end.job.team(), size)?) } else { None };
        Ok(Large { end, shared })
    }
}

impl Side for Large {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (end, shared) = (&mut self.end, &mut self.shared);
        meter.run(count, |_| {
            let team = end.job.team();
            match shared.take() {
                Some(memory) => *shared = Some(team.isend(end.peer, 1, memory)?.wait()?),
                None => team.send(end.peer, 1, &end.private)?,
            }
            team.recv(end.peer, 2, &mut [0u8; 0]).map(drop)
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let end = &mut self.end;
        for _ in 0..count {
            end.receive()?;
            end.job.team().send(end.peer, 2, &[0u8; 0])?;
        }
        Ok(())
    }
}

/// Several threads of each rank, each with a partner of its own in the other, back and forth. An
/// operation is a round trip of all.
struct Threads {
    job: Arc<Job>,
    peer: Rank,
    threads: u32,
}

impl Threads {
    fn play(&self, count: u64, leads: bool) -> Result<()> {
        let (team, peer): (&Team, Rank) = (self.job.team(), self.peer);
        let one = |tag: u32| -> Result<()> {
            let mut word = [0u64];
            for i in 0..count {
                if leads {
                    team.send(peer, tag, &[i])?;
                    team.recv(peer, tag, &mut word)?;
                } else {
                    team.recv(peer, tag, &mut word)?;
                    team.send(peer, tag, &word)?;
                }
                if word != [i] {
                    return Err(Error::invalid("bench", "threads got each other's messages"));
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..self.threads).map(|tag| scope.spawn(move || one(tag))).collect();
            let ended = all.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::invalid("bench", "a thread panicked")))
            });
            ended.collect::<Result<Vec<()>>>().map(drop)
        })
    }
}

impl Side for Threads {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| self.play(count, true))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        self.play(count, false)
    }
}

/// `p2p`.
pub fn cases() -> Vec<Case> {
    const BENCH: &str = "p2p";
    let back_and_forth = move |crew: &Crew, size| {
        let end = End::new(crew, size)?;
        Ok::<_, Error>(Box::new(BackAndForth { end, turn: 0 }))
    };
    let first = move |crew: &Crew| {
        let floor = Box::new(PingPong::new(crew, 2)?);
        Ok(Pair { subject: back_and_forth(crew, 8)?, floor })
    };
    let goal = Goal::AtMost(1.6);
    let what = "one-way latency";
    let mut cases =
        vec![Case::latency(BENCH, what, 8, "ping-pong, two lines", goal, first).one_way()];
    for size in SIZES {
        let setup = move |crew: &Crew| {
            let floor = Box::new(CopyCells::new(crew, size)?);
            Ok(Pair { subject: back_and_forth(crew, size)?, floor })
        };
        let case = Case::latency(BENCH, what, size, "copy in + copy out", Goal::None, setup);
        cases.push(case.one_way());
    }
    for (size, any, goal) in [
        (8, false, Goal::AtLeast(0.35)),
        (8, true, Goal::None),
        (128, false, Goal::None),
        (512, false, Goal::None),
    ] {
        let setup = move |crew: &Crew| {
            let subject = Box::new(Stream { end: End::new(crew, size)?, any });
            Ok(Pair { subject, floor: Box::new(Ring::new(crew, size)?) })
        };
        let what = if any { "message rate, any source" } else { "message rate" };
        let case = Case::latency(BENCH, what, size, "bare ring", goal, setup);
        cases.push(case.counted_in(Unit::MillionPerSecond));
    }
    for shared in [false, true] {
        for size in [64 << 10, 1 << 20, 16 << 20] {
            let setup = move |crew: &Crew| {
                let subject = Box::new(Large::new(crew, size, shared)?);
                Ok(Pair { subject, floor: Box::new(Memcpy::new(crew, size, true)?) })
            };
            let what = if shared { "from shared memory" } else { "from private memory" };
            let goal = if shared { Goal::AtLeast(0.9) } else { Goal::None };
            let case = Case::latency(BENCH, what, size, "memcpy, one core", goal, setup);
            cases.push(case.counted_in(Unit::GigabytesPerSecond));
        }
    }
    for threads in [1, 2, 4] {
        let setup = move |crew: &Crew| {
            let subject = Box::new(Threads {
                job: crew.job()?.clone(),
                peer: Rank(u32::from(crew.leads())),
                threads,
            });
            Ok(Pair { subject, floor: Box::new(PingPong::new(crew, 2)?) })
        };
        let what = format!("round trips of {threads} thread(s)");
        let case = Case::latency(BENCH, what, 8, "ping-pong, two lines", Goal::None, setup);
        cases.push(case.counted_in(Unit::MillionPerSecond));
    }
    cases
}
