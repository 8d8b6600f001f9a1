//! Memory that comes and goes.

use super::lab::*;
use super::{Lab, Pair};
use crate::net::memory::Memory;
use crate::net::provider::*;
use std::sync::Arc;

pub fn memory_is_given_back_only_when_the_device_has_let_go(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    let memory = Memory::zeroed(1 << 20).unwrap();
    let owner = Arc::downgrade(memory.owner());
    let region = b.device.register(&memory, Access::ALL).unwrap();
    drop(memory);
    let local = region.local(0, 1 << 20).unwrap();
    to_a.receive(&[Receive { id: 1, pieces: &[local] }]).unwrap();
    to_b.post(&[write(2, &[a.local(0, 8)], region.remote().at(0))]).unwrap();
    a.expect(2, Status::Success);
    assert!(owner.upgrade().is_some());
    drop(region);
    // Its receive ends in one of the two ways that are promised, and then nothing keeps it.
    to_b.post(&[send(3, &[a.local(0, 8)])]).unwrap();
    let done = b.next();
    assert!(matches!(done.status, Status::Success | Status::LocalProtection), "{done:?}");
    assert_eq!(done.id, 1);
    b.until(|| owner.upgrade().is_none());
}

pub fn what_was_unregistered_is_refused(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    let region = b.device.register(&b.memory, Access::ALL).unwrap();
    let at = region.remote().at(0);
    to_b.post(&[write(1, &[a.local(0, 8)], at)]).unwrap();
    a.expect(1, Status::Success);
    drop(region);
    let again = b.device.register(&b.memory, Access::ALL).unwrap();
    assert_ne!(again.remote().key, at.key);
    to_b.post(&[write(2, &[a.local(0, 8)], at)]).unwrap();
    a.expect(2, Status::RemoteAccess);
}
