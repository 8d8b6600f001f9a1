//! Random operations against two arrays of bytes.

use super::lab::*;
use super::{Lab, Pair};
use crate::net::provider::*;

const SIZE: u64 = 4096;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Everything is fenced, so the operations of the queue pair happen one after the other, and two
/// arrays can do the same.
pub fn random_operations_agree_with_an_oracle(lab: &dyn Lab) {
    for seed in 1..5 {
        one_run(lab, &mut Dice(seed * 0x9e37_79b9));
    }
}

fn one_run(lab: &dyn Lab, dice: &mut Dice) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    let (mut here, mut there) = (pattern(1, SIZE as usize), pattern(2, SIZE as usize));
    a.fill(0, &here);
    b.fill(0, &there);
    let mut signalled = Vec::new();
    let mut received = Vec::new();
    for id in 0..400u64 {
        let length = dice.below(if id % 9 == 0 { SIZE / 2 } else { 70 });
        let from = dice.below(SIZE - length);
        let to = dice.below(SIZE - length);
        let (f, t, n) = (from as usize, to as usize, length as usize);
        // In two pieces, of which either may be empty.
        let cut = dice.below(length + 1);
        let pieces = [a.local(from, cut as u32), a.local(from + cut, (length - cut) as u32)];
        let data = Data::Pieces(&pieces);
        let word = to / 8 * 8;
        let (into, at) = (a.local(SIZE, 8), b.at(word));
        let w = word as usize;
        let old = u64::from_ne_bytes(there[w..w + 8].try_into().unwrap());
        let operation = match dice.below(6) {
            0 | 1 => {
                there[t..t + n].copy_from_slice(&here[f..f + n]);
                Operation::Write { data, to: b.at(to), immediate: None }
            }
            2 => {
                here[f..f + n].copy_from_slice(&there[t..t + n]);
                Operation::Read { into: &pieces, from: b.at(to) }
            }
            3 => {
                there[w..w + 8].copy_from_slice(&old.wrapping_add(id << 40).to_ne_bytes());
                Operation::FetchAdd { into, at, add: id << 40 }
            }
            4 => {
                let compare = if dice.below(2) == 0 { old } else { !old };
                if compare == old {
                    there[w..w + 8].copy_from_slice(&id.to_ne_bytes());
                }
                Operation::CompareSwap { into, at, compare, swap: id }
            }
            _ => {
                let into = [b.local(to, length as u32)];
                to_a.receive(&[Receive { id, pieces: &into }]).unwrap();
                received.push((id, length as u32));
                there[t..t + n].copy_from_slice(&here[f..f + n]);
                Operation::Send { data, immediate: Some(id as u32) }
            }
        };
        let work = Work { fenced: true, ..Work::new(id, operation) };
        if dice.below(3) == 0 || id % 32 == 31 {
            signalled.push(id);
            to_b.post(&[work]).unwrap();
        } else {
            to_b.post(&[work.unsignalled()]).unwrap();
        }
        if id % 32 == 31 {
            signalled.drain(..).for_each(|id| _ = a.expect(id, Status::Success));
            for (id, length) in received.drain(..) {
                let got = b.expect(id, Status::Success);
                assert_eq!((got.length, got.immediate), (length, Some(id as u32)));
            }
        }
    }
    to_b.post(&[write(1000, &[], b.at(0))]).unwrap();
    signalled.drain(..).for_each(|id| _ = a.expect(id, Status::Success));
    a.expect(1000, Status::Success);
    received.drain(..).for_each(|(id, _)| _ = b.expect(id, Status::Success));
    assert_eq!(a.bytes(0, SIZE as usize), here);
    assert_eq!(b.bytes(0, SIZE as usize), there);
}
