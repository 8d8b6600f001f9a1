//! Remote atomics.

use super::{Lab, Pair};
use crate::base::sync::Ordering;
use crate::net::provider::*;

fn add(id: u64, into: Local, at: Remote, add: u64) -> Work<'static> {
    Work::new(id, Operation::FetchAdd { into, at, add })
}

pub fn adding_and_comparing_return_what_was(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    if a.device.capabilities().atomics == Atomics::None {
        return;
    }
    b.fill(64, &40u64.to_ne_bytes());
    let into = a.local(0, 8);
    to_b.post(&[add(1, into, b.at(64), 2)]).unwrap();
    assert_eq!(a.expect(1, Status::Success).opcode, Opcode::FetchAdd);
    assert_eq!((a.memory.load(0), b.memory.load(64)), (Some(40), Some(42)));
    for (id, compare, swap, old, new) in [(2, 41, 7, 42, 42), (3, 42, 7, 42, 7)] {
        let operation = Operation::CompareSwap { into, at: b.at(64), compare, swap };
        to_b.post(&[Work::new(id, operation)]).unwrap();
        assert_eq!(a.expect(id, Status::Success).opcode, Opcode::CompareSwap);
        assert_eq!((a.memory.load(0), b.memory.load(64)), (Some(old), Some(new)));
    }
    to_b.post(&[add(4, into, b.at(64), u64::MAX)]).unwrap();
    a.expect(4, Status::Success);
    assert_eq!(b.memory.load(64), Some(6), "it wraps");
}

pub fn they_are_atomic_with_the_processors_own(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    if a.device.capabilities().atomics != Atomics::Cpu {
        return;
    }
    let memory = b.memory.clone();
    let local = std::thread::spawn(move || {
        for _ in 0..20_000 {
            memory.word(8).unwrap().fetch_add(1, Ordering::Relaxed);
        }
    });
    for i in 0..500 {
        to_b.post(&[add(i, a.local(0, 8), b.at(8), 1 << 32)]).unwrap();
        a.expect(i, Status::Success);
    }
    local.join().unwrap();
    assert_eq!(b.memory.load(8), Some(500 << 32 | 20_000));
}

pub fn misaligned_words_are_refused(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    to_b.post(&[add(1, a.local(0, 8), b.at(4), 1)]).unwrap();
    a.expect(1, Status::RemoteInvalid);
    assert_eq!(to_b.state(), State::Error);
    assert_eq!(b.bytes(0, 16), [0; 16]);
}
