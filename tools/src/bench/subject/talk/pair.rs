//! One pair of ranks, one thread each: back and forth, and streams.

use super::pairs::Streaming;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use crate::bench::subject::echo::{self, End as _};
use hither::{Any, Error, Job, Rank, Result};
use std::sync::Arc;

/// One end of a pair.
pub struct End {
    /// Its job.
    pub job: Arc<Job>,
    /// The other end.
    pub peer: Rank,
    /// What it sends and receives.
    pub private: Vec<u8>,
}

impl End {
    /// Of ranks 2 i and 2 i + 1, for messages of `size` bytes.
    pub fn new(crew: &Crew, size: usize) -> Result<End> {
        let job = crew.job()?.clone();
        let peer = Rank(crew.rank() ^ 1);
        if peer.0 >= crew.size() {
            return Err(Error::invalid("bench p2p", "it wants an even number of ranks"));
        }
        job.link().promote(job.team().slot_of(peer)?)?;
        Ok(End { job, peer, private: vec![0; size] })
    }
}

impl echo::End for End {
    fn private(&mut self) -> &mut [u8] {
        &mut self.private
    }

    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.job.team().send(self.peer, 1, &self.private)
    }

    #[inline(always)]
    fn receive(&mut self) -> Result<()> {
        self.job.team().recv(self.peer, 1, &mut self.private).map(drop)
    }
}

/// As many as possible from even ranks to the odd ones above them, which answer the last.
pub struct Stream {
    end: End,
    any: bool,
    leads: bool,
}

impl Stream {
    /// Of messages of `size` bytes, received from their source or (`any`) from any.
    pub fn new(crew: &Crew, size: usize, any: bool) -> Result<Stream> {
        let end = End::new(crew, size)?;
        Ok(Stream { end, any, leads: crew.rank().is_multiple_of(2) })
    }
}

impl Streaming for Stream {
    fn produce(&mut self, count: u64) -> Result<()> {
        let end = &mut self.end;
        for i in 0..count {
            end.private[..8].copy_from_slice(&i.to_ne_bytes());
            end.send()?;
        }
        end.receive()
    }

    fn consume(&mut self, count: u64) -> Result<()> {
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

/// An operation is a message.
impl Side for Stream {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| self.produce(count))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.leads { self.produce(count) } else { self.consume(count) }
    }
}
