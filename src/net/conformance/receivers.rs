//! Receives that are too short, too late, shared, too few.

use super::lab::*;
use super::{Lab, Node, Pair};
use crate::net::provider::*;
use std::sync::Arc;

pub fn a_message_that_is_too_long_fails_both_ends(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    to_a.receive(&[Receive { id: 1, pieces: &[b.local(0, 7)] }]).unwrap();
    a.fill(0, &[1; 8]);
    to_b.post(&[send(2, &[a.local(0, 8)])]).unwrap();
    let done = a.next();
    // Some devices have another name for it at the sender.
    let other = !lab.tells_all() && done.status == Status::RemoteOperation;
    assert!(done.id == 2 && (done.status == Status::RemoteInvalid || other), "{done:?}");
    b.expect(1, Status::LocalLength);
    assert_eq!((to_b.state(), to_a.state()), (State::Error, State::Error));
    assert_eq!(b.bytes(0, 8), [0; 8]);
}

pub fn a_late_receive_is_waited_for(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    a.fill(0, b"late");
    to_b.post(&[send(1, &[a.local(0, 4)]), send(2, &[a.local(0, 3)])]).unwrap();
    a.quiet();
    to_a.receive(&[Receive { id: 3, pieces: &[b.local(0, 8)] }]).unwrap();
    b.expect(3, Status::Success);
    a.expect(1, Status::Success);
    b.quiet();
    to_a.receive(&[Receive { id: 4, pieces: &[b.local(8, 8)] }]).unwrap();
    b.expect(4, Status::Success);
    a.expect(2, Status::Success);
    assert_eq!(b.bytes(0, 11), b"late\0\0\0\0lat");
}

pub fn no_receive_for_too_long_is_an_error(lab: &dyn Lab) {
    let Pair { a, to_b, .. } = &Pair::with(lab, &impatient());
    to_b.post(&[send(1, &[a.local(0, 4)]), send(2, &[])]).unwrap();
    a.expect(1, Status::ReceiverNotReady);
    a.expect(2, Status::Flushed);
}

pub fn two_that_wait_for_receives_still_answer(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    // Reads and writes first, and behind them, both ways, messages for which there is no receive.
    b.fill(0, &[5; 8]);
    to_b.post(&[read(1, &[a.local(0, 8)], b.at(0)), send(2, &[a.local(8, 8)])]).unwrap();
    to_a.post(&[read(3, &[b.local(16, 8)], a.at(64)), send(4, &[b.local(0, 8)])]).unwrap();
    a.expect(1, Status::Success);
    b.expect(3, Status::Success);
    a.quiet();
    to_b.receive(&[Receive { id: 5, pieces: &[a.local(128, 8)] }]).unwrap();
    a.expect(5, Status::Success);
    b.expect(4, Status::Success);
    to_a.receive(&[Receive { id: 6, pieces: &[b.local(128, 8)] }]).unwrap();
    b.expect(6, Status::Success);
    a.expect(2, Status::Success);
}

type Connected = [Arc<dyn RcQueuePair>; 2];

/// Two nodes, `count` queue pairs between them, and what all those of the second receive from.
fn shared(
    lab: &dyn Lab,
    count: usize,
) -> (Node, Node, Vec<Connected>, Arc<dyn SharedReceiveQueue>) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let queue = b.device.shared_receive_queue(16, 1).unwrap();
    let pairs = (0..count).map(|_| {
        let queues = Queues { shared: Some(&queue), ..b.queues() };
        let pair = [a.rc(), b.device.rc(&queues, &RcOptions::default()).unwrap()];
        connect(&*pair[0], &*pair[1]);
        pair
    });
    let pairs = pairs.collect();
    (a, b, pairs, queue)
}

pub fn a_shared_queue_feeds_many_and_tells_when_it_is_low(lab: &dyn Lab) {
    let (a, b, pairs, queue) = shared(lab, 5);
    let why = pairs[0][1].receive(&[Receive { id: 0, pieces: &[] }]).unwrap_err().why;
    assert_eq!(why, PostError::Unsupported);
    for i in 0..16 {
        queue.post(&[Receive { id: i, pieces: &[b.local(8 * i, 8)] }]).unwrap();
    }
    let full = queue.post(&[Receive { id: 16, pieces: &[] }]).unwrap_err();
    assert_eq!((full.posted, full.why), (0, PostError::Full));
    queue.arm_low_water(12).unwrap();
    let mut events = [Event::PortUp; 2];
    for (i, pair) in pairs.iter().enumerate() {
        assert_eq!(b.device.events(&mut events), 0);
        pair[0].post(&[send(i as u64, &[a.local(0, 8)])]).unwrap();
        let got = b.next();
        assert_eq!((got.status, got.queue_pair), (Status::Success, pair[1].number()));
        assert_eq!(got.id, i as u64, "receives are used in order");
        a.expect(i as u64, Status::Success);
    }
    assert_eq!(b.event(), Event::LowWater(queue.number()));
    assert_eq!(b.device.events(&mut events), 0, "once");
    queue.arm_low_water(12).unwrap();
    assert_eq!(b.event(), Event::LowWater(queue.number()), "at once, since it is low");
    // A failed queue pair leaves the shared receives to the others.
    pairs[0][1].fail();
    assert_eq!(b.event(), Event::QueuePairFailed(pairs[0][1].number()));
    for i in 0..11 {
        pairs[1][0].post(&[send(i, &[a.local(0, 8)])]).unwrap();
        assert_eq!(b.expect(5 + i, Status::Success).queue_pair, pairs[1][1].number());
    }
}

pub fn an_exhausted_shared_queue_is_waited_for(lab: &dyn Lab) {
    let (a, b, pairs, queue) = shared(lab, 2);
    queue.post(&[Receive { id: 1, pieces: &[b.local(0, 8)] }]).unwrap();
    for pair in &pairs {
        pair[0].post(&[send(9, &[a.local(0, 8)])]).unwrap();
    }
    b.expect(1, Status::Success);
    a.expect(9, Status::Success);
    b.quiet();
    a.quiet();
    queue.post(&[Receive { id: 2, pieces: &[b.local(0, 8)] }]).unwrap();
    b.expect(2, Status::Success);
    a.expect(9, Status::Success);
}
