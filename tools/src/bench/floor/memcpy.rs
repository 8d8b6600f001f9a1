//! The system's memcpy between private and shared memory, in one process.

use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;

/// Copies of `size` bytes, rank 0 alone. The bytes stay the same, so caches do what they can.
pub struct Memcpy {
    area: Area,
    private: Vec<u8>,
    out: bool,
}

impl Memcpy {
    /// From private into shared memory, or (`out`) from shared into private.
    pub fn new(crew: &Crew, size: usize, out: bool) -> Result<Memcpy> {
        Ok(Memcpy { area: crew.block().take(size)?, private: vec![1; size], out })
    }
}

impl Side for Memcpy {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let size = self.private.len();
        let (mut to, mut from) = (self.area.bytes(0, size), self.private.as_mut_ptr());
        if self.out {
            std::mem::swap(&mut to, &mut from);
        }
        meter.run(count, |_| {
            // SAFETY: both are `size` bytes long and apart; the others leave the area alone.
            unsafe { std::ptr::copy_nonoverlapping(black_box(from), black_box(to), size) };
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::with_crew;

    #[test]
    fn bytes_move_in_the_direction_asked_for() {
        with_crew(1, |crew| {
            let mut side = Memcpy::new(&crew, 1000, false).unwrap();
            side.lead(1, &mut Meter::whole()).unwrap();
            // SAFETY: inside the area, nobody else here.
            assert_eq!(unsafe { *side.area.bytes(999, 1) }, 1);
            let mut side = Memcpy::new(&crew, 1000, true).unwrap();
            side.lead(1, &mut Meter::whole()).unwrap();
            assert_eq!(side.private, [0; 1000]);
        });
    }
}
