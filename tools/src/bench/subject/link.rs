//! Short messages between two ranks, through the shared inbox or a private lane.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::Ring;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Unit};
use crate::bench::subject::echo::{self, BackAndForth, End as _};
use hither::base::Slot;
use hither::{Deadline, Error, Job, Rank, Result};
use std::sync::Arc;

/// Sizes up to which there must be no cliff, and some beyond.
const SIZES: [usize; 10] = [8, 16, 32, 48, 64, 128, 256, 512, 1024, 4096];

/// One end of a connection.
struct End {
    job: Arc<Job>,
    peer: Slot,
    private: Vec<u8>,
    /// Messages that have arrived and have not been asked for.
    waiting: u64,
}

impl End {
    /// Between ranks 0 and 1.
    fn new(crew: &Crew, size: usize, lane: bool) -> Result<End> {
        let job = crew.job()?.clone();
        let peer = job.team().slot_of(Rank(u32::from(crew.leads())))?;
        if lane && !job.link().promote(peer)? {
            return Err(Error::invalid("bench", "the peer has no lane to give"));
        }
        Ok(End { job, peer, private: vec![0; size], waiting: 0 })
    }
}

impl echo::End for End {
    fn private(&mut self) -> &mut [u8] {
        &mut self.private
    }

    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.job.link().send(self.peer, 0, 0, &self.private, Deadline::NEVER)
    }

    #[inline(always)]
    fn receive(&mut self) -> Result<()> {
        let link = self.job.link();
        let private = &mut self.private;
        while self.waiting == 0 {
            let check = || link.node().check([self.peer].into_iter(), "a benchmark");
            self.waiting += link.recv_wait(Deadline::NEVER, check, |message| {
                if message.bytes.len() == private.len() {
                    private.copy_from_slice(message.bytes);
                }
            })? as u64;
        }
        self.waiting -= 1;
        Ok(())
    }
}

/// As many as possible from rank 0 to rank 1, which answers the last. An operation is a message.
struct Stream(End);

impl Side for Stream {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| {
            for i in 0..count {
                self.0.private[..8].copy_from_slice(&i.to_ne_bytes());
                self.0.send()?;
            }
            self.0.receive()
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.0.receive()?;
        }
        if self.0.private[..8] != (count - 1).to_ne_bytes() || self.0.waiting > 0 {
            return Err(Error::invalid("bench", "a stream of messages was not what was sent"));
        }
        self.0.send()
    }
}

fn cases(bench: &'static str, lane: bool) -> Vec<Case> {
    let back_and_forth = move |crew: &Crew, size| {
        let end = End::new(crew, size, lane)?;
        Ok::<_, Error>(Box::new(BackAndForth::new(end)))
    };
    let first = move |crew: &Crew| {
        let floor = Box::new(PingPong::new(crew, 2)?);
        Ok(Pair { subject: back_and_forth(crew, 8)?, floor })
    };
    let mut cases = vec![
        Case::latency(
            bench,
            "one-way latency",
            8,
            "ping-pong, two lines",
            Goal::AtMost(1.3),
            first,
        )
        .one_way(),
    ];
    for size in SIZES {
        let goal = if size <= 512 { Goal::AtMost(1.2) } else { Goal::None };
        let setup = move |crew: &Crew| {
            let floor = Box::new(CopyCells::new(crew, size)?);
            Ok(Pair { subject: back_and_forth(crew, size)?, floor })
        };
        cases.push(
            Case::latency(bench, "one-way latency", size, "copy in + copy out", goal, setup)
                .one_way(),
        );
    }
    for size in [8, 48, 128, 512] {
        let goal = if size == 8 || size == 128 { Goal::AtLeast(0.7) } else { Goal::None };
        let setup = move |crew: &Crew| {
            let subject = Box::new(Stream(End::new(crew, size, lane)?));
            Ok(Pair { subject, floor: Box::new(Ring::new(crew, size)?) })
        };
        cases.push(
            Case::latency(bench, "message rate", size, "bare ring", goal, setup)
                .counted_in(Unit::MillionPerSecond),
        );
    }
    cases
}

/// `inbox`.
pub fn inbox() -> Vec<Case> {
    cases("inbox", false)
}

/// `lane`.
pub fn lane() -> Vec<Case> {
    cases("lane", true)
}
