//! What goes wrong, and that nothing else does.

use super::lab::*;
use super::{Lab, Node, Pair};
use crate::net::provider::*;
use std::time::Duration;

pub fn wrong_keys_bounds_and_rights_break_the_queue_pair_only(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let small = b.device.register(&b.memory, Access::REMOTE_READ).unwrap().remote();
    let read_only = b.device.register(&b.memory, Access::REMOTE_READ).unwrap();
    let good = b.region.remote();
    let wrong = [
        Remote { key: good.key ^ 0x1234, ..good.at(0) },
        Remote { key: small.key, ..good.at(0) },
        good.at(MEMORY as u64 - 7),
        good.at(u64::MAX - 3),
        Remote { address: 8, key: good.key },
        read_only.remote().at(0),
    ];
    a.fill(0, &[1; 8]);
    for (i, to) in wrong.into_iter().enumerate() {
        let (one, other) = (a.rc(), b.rc());
        connect(&*one, &*other);
        one.post(&[write(7, &[a.local(0, 8)], to)]).unwrap();
        assert_eq!(a.next().status, Status::RemoteAccess, "{i}");
        assert_eq!(one.state(), State::Error);
    }
    assert!(b.bytes(0, MEMORY).iter().all(|byte| *byte == 0), "something was written");
    if lab.tells_all() {
        assert_eq!(b.device.counters().refused, 6);
    }
    let (one, other) = (a.rc(), b.rc());
    connect(&*one, &*other);
    one.post(&[write(8, &[a.local(0, 8)], good.at(MEMORY as u64 - 8))]).unwrap();
    a.expect(8, Status::Success);
}

pub fn reads_are_refused_like_writes(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let write_only = b.device.register(&b.memory, Access::REMOTE_WRITE).unwrap().remote();
    for from in [write_only.at(0), b.at(MEMORY as u64 - 7), b.at(0).at_key(99)] {
        let (one, other) = (a.rc(), b.rc());
        connect(&*one, &*other);
        one.post(&[read(7, &[a.local(0, 8)], from)]).unwrap();
        a.expect(7, Status::RemoteAccess);
        let into = a.local(0, 8);
        one.post(&[Work::new(8, Operation::FetchAdd { into, at: from, add: 1 })]).unwrap();
        a.expect(8, Status::Flushed);
    }
}

trait AtKey {
    fn at_key(self, key: u32) -> Self;
}

impl AtKey for Remote {
    fn at_key(self, key: u32) -> Remote {
        Remote { key, ..self }
    }
}

pub fn what_is_behind_a_failure_is_flushed(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    to_b.receive(&[Receive { id: 50, pieces: &[a.local(0, 8)] }]).unwrap();
    let piece = [a.local(0, 8)];
    let bad = Remote { key: 0, ..b.at(0) };
    to_b.post(&[
        write(1, &piece, b.at(0)),
        write(2, &piece, bad),
        write(3, &piece, b.at(0)).unsignalled(),
        read(4, &piece, b.at(0)),
    ])
    .unwrap();
    a.expect(1, Status::Success);
    a.expect(2, Status::RemoteAccess);
    // The two sides are in no order with each other.
    let flushed = [(); 3].map(|()| a.next());
    assert!(flushed.iter().all(|done| done.status == Status::Flushed), "{flushed:?}");
    let ids = |receive| {
        let side = flushed.iter().filter(move |done| done.opcode.is_receive() == receive);
        side.map(|done| done.id).collect::<Vec<_>>()
    };
    assert_eq!((ids(false), ids(true)), (vec![3, 4], vec![50]));
    assert_eq!(a.event(), Event::QueuePairFailed(to_b.number()));
    to_b.post(&[write(5, &piece, b.at(0)).unsignalled()]).unwrap();
    a.expect(5, Status::Flushed);
    to_b.receive(&[Receive { id: 51, pieces: &[] }]).unwrap();
    a.expect(51, Status::Flushed);
}

pub fn wrong_local_keys_are_found_here(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let fixed = a.device.register(&a.memory, Access::REMOTE_READ).unwrap();
    let good = a.local(0, 8);
    let wrong = Local { key: good.key ^ 0xfff, ..good };
    let outside = Local { address: good.address + MEMORY as u64 - 4, ..good };
    let read_only = fixed.local(0, 8).unwrap();
    let works = [
        send(1, std::slice::from_ref(&wrong)),
        write(1, std::slice::from_ref(&outside), b.at(0)),
        read(1, std::slice::from_ref(&read_only), b.at(0)),
        read(1, std::slice::from_ref(&wrong), b.at(0)),
    ];
    for work in works {
        let (one, other) = (a.rc(), b.rc());
        connect(&*one, &*other);
        one.post(&[work, write(2, &[good], b.at(0))]).unwrap();
        a.expect(1, Status::LocalProtection);
        a.expect(2, Status::Flushed);
    }
}

pub fn a_peer_that_is_gone_does_not_answer(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::with(lab, &impatient());
    let piece = [a.local(0, 8)];
    to_b.post(&[write(1, &piece, b.at(0))]).unwrap();
    a.expect(1, Status::Success);
    let at = b.at(0);
    drop((to_a, b));
    to_b.post(&[write(2, &piece, at), write(3, &piece, at)]).unwrap();
    a.expect(2, Status::RetryExceeded);
    a.expect(3, Status::Flushed);
    assert_eq!(a.event(), Event::QueuePairFailed(to_b.number()));
}

pub fn nobody_there(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let one = a.rc_with(&impatient());
    let gone = b.rc().address();
    one.connect(&gone).unwrap();
    one.post(&[write(1, &[a.local(0, 8)], b.at(0))]).unwrap();
    a.expect(1, Status::RetryExceeded);
    // One that is there, but connected to somebody else.
    let (two, three, four) = (a.rc_with(&impatient()), b.rc(), a.rc());
    connect(&*three, &*four);
    two.connect(&three.address()).unwrap();
    two.post(&[write(2, &[a.local(0, 8)], b.at(0))]).unwrap();
    a.expect(2, Status::RetryExceeded);
    four.post(&[write(3, &[a.local(0, 8)], b.at(0))]).unwrap();
    a.expect(3, Status::Success);
}

pub fn keepalive_finds_a_dead_peer_behind_an_idle_queue_pair(lab: &dyn Lab) {
    let keepalive = Some(Duration::from_millis(100));
    let Pair { a, b, to_b, to_a } = Pair::with(lab, &RcOptions { keepalive, ..impatient() });
    a.quiet();
    assert_eq!(to_b.state(), State::Ready);
    drop((to_a, b));
    assert_eq!(a.event(), Event::QueuePairFailed(to_b.number()));
    assert_eq!(to_b.state(), State::Error);
}

pub fn keepalive_leaves_a_living_one_alone(lab: &dyn Lab) {
    let keepalive = Some(Duration::from_millis(30));
    // In virtual time nothing else can take long.
    let options = if lab.is_virtual() { impatient() } else { patient() };
    let Pair { a, b, to_b, to_a } = Pair::with(lab, &RcOptions { keepalive, ..options });
    let a_while = Duration::from_secs(if lab.is_virtual() { 30 } else { 1 });
    assert_eq!(a.within(a_while), None);
    assert_eq!((to_b.state(), to_a.state()), (State::Ready, State::Ready));
    to_b.post(&[write(1, &[a.local(0, 8)], b.at(0))]).unwrap();
    a.expect(1, Status::Success);
}

pub fn failing_flushes_and_resetting_starts_again(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    let (old, piece) = (to_b.address(), [a.local(0, 8)]);
    to_b.receive(&[Receive { id: 1, pieces: &piece }]).unwrap();
    to_b.fail();
    assert_eq!(to_b.state(), State::Error);
    a.expect(1, Status::Flushed);
    to_b.post(&[write(2, &piece, b.at(0))]).unwrap();
    // Forgotten, though it was not polled.
    to_b.reset().unwrap();
    assert_eq!(to_b.state(), State::Init);
    assert_ne!(to_b.address(), old);
    a.quiet();
    to_a.reset().unwrap();
    connect(&*to_b, &*to_a);
    to_a.receive(&[Receive { id: 3, pieces: &[b.local(0, 8)] }]).unwrap();
    to_b.post(&[send(4, &piece)]).unwrap();
    b.expect(3, Status::Success);
    a.expect(4, Status::Success);
    // And again, with much under way.
    for id in 0..50 {
        to_b.post(&[read(id, &piece, b.at(0))]).unwrap();
    }
    to_b.reset().unwrap();
    to_a.reset().unwrap();
    connect(&*to_b, &*to_a);
    to_b.post(&[write(60, &piece, b.at(0))]).unwrap();
    a.expect(60, Status::Success);
}

pub fn other_queue_pairs_go_on(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let pairs = [(a.rc(), b.rc()), (a.rc(), b.rc())];
    pairs.iter().for_each(|(one, other)| connect(&**one, &**other));
    let piece = [a.local(0, 8)];
    pairs[0].0.post(&[write(1, &piece, Remote { address: 1, key: 1 })]).unwrap();
    a.expect(1, Status::RemoteAccess);
    pairs[1].0.post(&[write(2, &piece, b.at(0))]).unwrap();
    a.expect(2, Status::Success);
    assert_eq!(pairs[1].1.state(), State::Ready);
}
