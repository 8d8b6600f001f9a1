//! Messages that go back and forth, over whatever moves them.

use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};

/// One end of two that exchange messages.
pub trait End {
    /// What it sends and receives.
    fn private(&mut self) -> &mut [u8];
    /// Sends the buffer.
    fn send(&mut self) -> Result<()>;
    /// Waits for the next message, and has it in the buffer.
    fn receive(&mut self) -> Result<()>;
}

/// Back and forth. An operation is a round trip.
pub struct BackAndForth<E> {
    end: E,
    turn: u64,
}

impl<E: End> BackAndForth<E> {
    /// By one end.
    pub fn new(end: E) -> BackAndForth<E> {
        BackAndForth { end, turn: 0 }
    }
}

impl<E: End> Side for BackAndForth<E> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (end, turn) = (&mut self.end, &mut self.turn);
        meter.run(count, |_| {
            *turn += 1;
            end.private()[..8].copy_from_slice(&turn.to_ne_bytes());
            end.send()?;
            end.receive()
        })?;
        if self.end.private()[..8] != self.turn.to_ne_bytes() {
            return Err(Error::invalid("bench", "a message came back changed"));
        }
        Ok(())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.end.private()[..8].fill(0);
            self.end.receive()?;
            self.end.send()?;
        }
        Ok(())
    }
}
