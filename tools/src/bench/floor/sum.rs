//! The loop of an accumulate over private memory: `target[i] += origin[i]`.

use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;

/// Adds one private array of f64 to another. An operation is the whole array.
pub struct PrivateSum {
    target: Vec<f64>,
    origin: Vec<f64>,
}

impl PrivateSum {
    /// Arrays of `bytes` bytes.
    pub fn new(bytes: usize) -> PrivateSum {
        PrivateSum { target: vec![0.0; bytes / 8], origin: vec![1.0; bytes / 8] }
    }
}

impl Side for PrivateSum {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| {
            let origin = black_box(self.origin.as_slice());
            for (t, o) in black_box(self.target.as_mut_slice()).iter_mut().zip(origin) {
                *t += *o;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_added_every_time() {
        let mut side = PrivateSum::new(800);
        side.lead(3, &mut Meter::whole()).unwrap();
        assert_eq!(side.target, [3.0; 100]);
    }
}
