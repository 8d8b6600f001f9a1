//! Messages, writes and reads of connected queue pairs.

use super::lab::*;
use super::{Lab, Node, Pair};
use crate::net::memory::Memory;
use crate::net::provider::*;

pub fn messages_arrive_with_their_bytes_and_immediate_data(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    to_a.receive(&[
        Receive { id: 1, pieces: &[b.local(0, 100)] },
        Receive { id: 2, pieces: &[b.local(100, 100)] },
    ])
    .unwrap();
    a.fill(0, b"first");
    let data = Data::Pieces(&[a.local(0, 5)]);
    let second = Operation::Send { data: Data::Inline(&[b"sec", b"ond!"]), immediate: Some(77) };
    to_b.post(&[Work::new(10, Operation::Send { data, immediate: None }), Work::new(11, second)])
        .unwrap();
    let one = b.expect(1, Status::Success);
    assert_eq!((one.length, one.immediate, one.opcode), (5, None, Opcode::Receive));
    assert_eq!(one.queue_pair, to_a.number());
    let two = b.expect(2, Status::Success);
    assert_eq!((two.length, two.immediate), (7, Some(77)));
    assert_eq!((b.bytes(0, 5), b.bytes(100, 7)), (b"first".to_vec(), b"second!".to_vec()));
    assert_eq!(a.expect(10, Status::Success).opcode, Opcode::Send);
    assert_eq!(a.expect(11, Status::Success).queue_pair, to_b.number());
}

pub fn pieces_are_gathered_and_scattered(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    let bytes = pattern(3, 300);
    a.fill(0, &bytes);
    let pieces = [b.local(10, 7), b.local(500, 0), b.local(1000, 400)];
    to_a.receive(&[Receive { id: 1, pieces: &pieces }]).unwrap();
    to_b.post(&[send(2, &[a.local(0, 100), a.local(100, 1), a.local(101, 199)])]).unwrap();
    assert_eq!(b.expect(1, Status::Success).length, 300);
    assert_eq!(b.bytes(10, 7), bytes[..7]);
    assert_eq!(b.bytes(1000, 293), bytes[7..]);
    assert_eq!(b.bytes(1293, 10), [0; 10]);
    a.expect(2, Status::Success);
    let into = [a.local(5000, 3), a.local(6000, 290)];
    to_b.post(&[read(3, &into, b.at(1000))]).unwrap();
    a.expect(3, Status::Success);
    assert_eq!(a.bytes(5000, 3), bytes[7..10]);
    assert_eq!(a.bytes(6000, 290), bytes[10..]);
}

pub fn inline_bytes_may_change_after_posting(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    let mut bytes = *b"as it was";
    let data = Data::Inline(&[&bytes]);
    to_b.post(&[Work::new(1, Operation::Write { data, to: b.at(8), immediate: None })]).unwrap();
    bytes.fill(0);
    a.expect(1, Status::Success);
    assert_eq!(b.bytes(8, 9), b"as it was");
    assert_eq!(bytes, [0; 9]);
}

pub fn writes_land_where_they_should_and_tell_nobody(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    let bytes = pattern(9, 1000);
    a.fill(0, &bytes);
    to_b.post(&[write(1, &[a.local(0, 1000)], b.at(333))]).unwrap();
    let done = a.expect(1, Status::Success);
    assert_eq!((done.opcode, done.length), (Opcode::Write, 1000));
    assert_eq!(b.bytes(333, 1000), bytes);
    assert_eq!((b.bytes(332, 1), b.bytes(1333, 1)), (vec![0], vec![0]));
    b.quiet();
}

pub fn writes_with_immediate_data_use_a_receive(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    to_a.receive(&[Receive { id: 5, pieces: &[] }]).unwrap();
    a.fill(0, &[9; 40]);
    let data = Data::Pieces(&[a.local(0, 40)]);
    let operation = Operation::Write { data, to: b.at(64), immediate: Some(0xdead_beef) };
    to_b.post(&[Work::new(1, operation)]).unwrap();
    let got = b.expect(5, Status::Success);
    assert_eq!((got.opcode, got.immediate), (Opcode::ReceiveWrite, Some(0xdead_beef)));
    assert_eq!(got.length, 40);
    assert_eq!(b.bytes(64, 40), [9; 40]);
    a.expect(1, Status::Success);
}

pub fn reads_fetch_and_fences_wait_for_them(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    let bytes = pattern(1, 20_000);
    b.fill(0, &bytes);
    let (into, from) = ([a.local(0, 20_000)], [a.local(0, 20_000)]);
    let back = Work { fenced: true, ..write(2, &from, b.at(30_000)) };
    to_b.post(&[read(1, &into, b.at(0)), back]).unwrap();
    assert_eq!(a.expect(1, Status::Success).opcode, Opcode::Read);
    a.expect(2, Status::Success);
    assert_eq!(a.bytes(0, 20_000), bytes);
    assert_eq!(b.bytes(30_000, 20_000), bytes, "the write went before the read was done");
}

pub fn nothing_is_something_too(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    to_a.receive(&[Receive { id: 1, pieces: &[] }]).unwrap();
    let nowhere = Remote { address: 0, key: 0 };
    to_b.post(&[send(2, &[]), write(3, &[], nowhere), read(4, &[], nowhere)]).unwrap();
    assert_eq!(b.expect(1, Status::Success).length, 0);
    (2..5).for_each(|id| assert_eq!(a.expect(id, Status::Success).length, 0));
}

pub fn large_ones_arrive_whole(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    let size = 3_333_333;
    let (here, there) = (Memory::zeroed(size).unwrap(), Memory::zeroed(size).unwrap());
    let mine = a.device.register(&here, Access::ALL).unwrap();
    let theirs = b.device.register(&there, Access::ALL).unwrap();
    let (mut bytes, mut back) = (pattern(5, size), vec![0; size]);
    assert!(here.write(0, &bytes));
    let (from, to) = (mine.local(0, size as u32).unwrap(), theirs.local(0, size as u32).unwrap());
    to_a.receive(&[Receive { id: 1, pieces: &[to] }]).unwrap();
    to_b.post(&[send(2, &[from])]).unwrap();
    assert_eq!(b.expect(1, Status::Success).length, size as u32);
    a.expect(2, Status::Success);
    assert!(there.read(0, &mut back) && back == bytes);
    bytes.reverse();
    assert!(here.write(0, &bytes));
    to_b.post(&[write(3, &[from], theirs.remote().at(0))]).unwrap();
    a.expect(3, Status::Success);
    assert!(there.read(0, &mut back) && back == bytes);
    assert!(here.write(0, &vec![0; size]));
    to_b.post(&[read(4, &[from], theirs.remote().at(0))]).unwrap();
    a.expect(4, Status::Success);
    assert!(here.read(0, &mut back) && back == bytes);
}

pub fn completions_come_in_order_and_unsignalled_ones_not_at_all(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    for round in 0..10u64 {
        for i in 0..60u64 {
            let id = round * 60 + i;
            let (piece, at) = ([a.local(8 * i, 8)], b.at(8 * i));
            let work = if i % 3 == 0 { read(id, &piece, at) } else { write(id, &piece, at) };
            let last = i == 59 || i % 7 == 0;
            let work = if last { work } else { work.unsignalled() };
            to_b.post(&[work]).unwrap();
        }
        let signalled = (0..60u64).filter(|i| *i == 59 || i % 7 == 0);
        for i in signalled {
            a.expect(round * 60 + i, Status::Success);
        }
    }
    a.quiet();
}

pub fn both_ways_at_once(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    for i in 0..32 {
        to_a.receive(&[Receive { id: 1000 + i, pieces: &[b.local(1024 * i, 512)] }]).unwrap();
        to_b.receive(&[Receive { id: 1000 + i, pieces: &[a.local(1024 * i, 512)] }]).unwrap();
    }
    let (mine, theirs) = ([a.local(33_000, 500)], [b.local(33_000, 400)]);
    for i in 0..32 {
        to_b.post(&[send(i, &mine)]).unwrap();
        to_a.post(&[send(i, &theirs)]).unwrap();
    }
    for (node, length) in [(&a, 400), (&b, 500)] {
        let (mut sent, mut got) = (0, 1000);
        for _ in 0..64 {
            let done = node.next();
            assert_eq!(done.status, Status::Success);
            if done.opcode.is_receive() {
                assert_eq!((done.id, done.length), (got, length));
                got += 1;
            } else {
                assert_eq!(done.id, sent);
                sent += 1;
            }
        }
    }
}

pub fn posts_before_the_peer_connects_arrive(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let (one, other) = (a.rc(), b.rc());
    assert_eq!(one.state(), State::Init);
    other.receive(&[Receive { id: 1, pieces: &[b.local(0, 8)] }]).unwrap();
    let refused = one.post(&[send(2, &[])]).unwrap_err();
    assert_eq!((refused.posted, refused.why), (0, PostError::NotReady));
    one.connect(&other.address()).unwrap();
    assert_eq!(one.state(), State::Ready);
    assert!(one.connect(&other.address()).is_err());
    one.post(&[send(2, &[])]).unwrap();
    a.quiet();
    other.connect(&one.address()).unwrap();
    b.expect(1, Status::Success);
    a.expect(2, Status::Success);
}

pub fn a_queue_pair_may_be_connected_to_itself(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    let own = a.rc();
    own.connect(&own.address()).unwrap();
    own.receive(&[Receive { id: 1, pieces: &[a.local(0, 8)] }]).unwrap();
    a.fill(100, b"to me");
    own.post(&[send(2, &[a.local(100, 5)])]).unwrap();
    let mut ids = [a.next().id, a.next().id];
    ids.sort();
    assert_eq!(ids, [1, 2]);
    assert_eq!(a.bytes(0, 5), b"to me");
}

pub fn many_queue_pairs_work_at_once(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let pairs: Vec<_> = (0..100).map(|_| (a.rc(), b.rc())).collect();
    pairs.iter().for_each(|(one, other)| connect(&**one, &**other));
    for (i, (one, _)) in (0..).zip(&pairs) {
        a.fill(8 * i, &i.to_ne_bytes());
        one.post(&[write(i, &[a.local(8 * i, 8)], b.at(8 * i))]).unwrap();
    }
    let mut seen: Vec<u64> = (0..100).map(|_| a.next()).map(|done| done.id).collect();
    seen.sort();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    (0..100u64).for_each(|i| assert_eq!(b.bytes(8 * i, 8), i.to_ne_bytes()));
}
