//! Each fault does what it says, over the simulator and over sockets.

use super::{Done, FaultDevice, Plan};
use crate::net::conformance::lab::{Lab, Node, SimLab, SocketLab, connect, impatient, write};
use crate::net::provider::*;
use std::sync::Arc;
use std::time::Duration;

fn labs() -> [Box<dyn Lab>; 2] {
    [Box::new(SimLab::plain()), Box::new(SocketLab::new("127.0.0.1"))]
}

/// Sends `count` numbered datagrams through a plan; what arrived, in order, and what was done.
fn run(lab: &dyn Lab, plan: Plan, count: u32) -> (Vec<u32>, Done) {
    let faulty = FaultDevice::over(lab.device(), plan);
    let (a, b) = (Node::new(faulty.clone()), Node::new(lab.device()));
    let queues = Queues { receive_depth: 900, ..b.queues() };
    let (one, other) = (a.ud(), b.device.ud(&queues).unwrap());
    let capabilities = b.device.capabilities();
    let length = capabilities.datagram + capabilities.datagram_prefix;
    // All receives share one place: what counts is in the immediate data.
    let piece = [b.local(0, length)];
    for id in 0..count * 2 {
        other.receive(&[Receive { id: id.into(), pieces: &piece }]).unwrap();
    }
    let to = one.open_peer(&other.address()).unwrap();
    let mine = [a.local(0, 40)];
    let mut arrived = Vec::new();
    let mut take = |patience| {
        while let Some(got) = b.within(patience) {
            assert_eq!((got.status, got.source), (Status::Success, one.address()));
            arrived.push(got.immediate.unwrap());
        }
    };
    for i in 0..count {
        let data = if i % 2 == 0 { Data::Pieces(&mine) } else { Data::Inline(&[b"inline"]) };
        let (immediate, signalled) = (Some(i), i % 3 == 0);
        let datagram = Datagram { id: i.into(), to, data, immediate, signalled, solicited: false };
        one.send(&[datagram]).unwrap();
        if signalled {
            let done = a.expect(i.into(), Status::Success);
            assert_eq!((done.opcode, done.queue_pair), (Opcode::Send, one.number()));
        }
        take(Duration::ZERO);
    }
    // Held ones leave while their sender waits.
    assert_eq!(a.within(Duration::from_millis(100)), None);
    take(Duration::from_millis(200));
    (arrived, faulty.done())
}

#[test]
fn without_faults_everything_arrives() {
    for lab in labs() {
        let (arrived, done) = run(&*lab, Plan::default(), 300);
        assert_eq!(arrived, (0..300).collect::<Vec<_>>());
        assert_eq!(done, Done::default());
    }
}

#[test]
fn dropped_ones_do_not_arrive_and_the_others_do() {
    for lab in labs() {
        let (arrived, done) = run(&*lab, Plan { seed: 5, drop: 200, ..Plan::default() }, 400);
        assert!((40..120).contains(&done.dropped), "{done:?}");
        assert_eq!(arrived.len() as u64, 400 - done.dropped);
        assert!(arrived.is_sorted());
    }
}

#[test]
fn duplicated_ones_arrive_twice() {
    for lab in labs() {
        let (arrived, done) = run(&*lab, Plan { seed: 6, duplicate: 300, ..Plan::default() }, 400);
        assert!((80..160).contains(&done.duplicated), "{done:?}");
        assert_eq!(arrived.len() as u64, 400 + done.duplicated);
    }
}

#[test]
fn delayed_and_overtaken_ones_arrive_once_in_another_order() {
    for lab in labs() {
        let delay_for = Duration::from_millis(20);
        let delayed = Plan { seed: 7, delay: 200, delay_for, ..Plan::default() };
        for plan in [delayed, Plan { seed: 8, reorder: 200, ..Plan::default() }] {
            let (mut arrived, done) = run(&*lab, plan, 300);
            assert!(done.delayed + done.reordered > 20, "{done:?}");
            assert!(!arrived.is_sorted());
            arrived.sort();
            // No slot for it: it is lost, and counted.
            assert_eq!(arrived.len() as u64, 300 - done.dropped);
            arrived.dedup();
            assert_eq!(arrived.len() as u64, 300 - done.dropped);
        }
    }
}

#[test]
fn everything_at_once_is_the_same_again_with_the_same_seed() {
    let delay_for = Duration::from_millis(3);
    let plan = |seed| Plan {
        seed,
        drop: 200,
        duplicate: 100,
        delay: 100,
        delay_for,
        reorder: 100,
        cut: 0,
    };
    let once = run(&SimLab::plain(), plan(9), 400);
    assert_eq!(run(&SimLab::plain(), plan(9), 400), once);
    assert_ne!(run(&SimLab::plain(), plan(10), 400), once);
}

#[test]
fn cut_queue_pairs_fail_as_if_nobody_answered_and_can_be_made_anew() {
    for lab in labs() {
        let faulty = FaultDevice::over(lab.device(), Plan { cut: 1000, ..Plan::default() });
        let (a, b) = (Node::new(faulty.clone()), Node::new(lab.device()));
        let (one, other) = (a.rc(), b.rc_with(&impatient()));
        connect(&*one, &*other);
        let piece = [a.local(0, 8)];
        one.receive(&[Receive { id: 9, pieces: &piece }]).unwrap();
        one.post(&[write(1, &piece, b.at(0)), write(2, &piece, b.at(0))]).unwrap();
        a.expect(9, Status::Flushed);
        a.expect(1, Status::RetryExceeded);
        a.expect(2, Status::Flushed);
        // The peer's end learns it when it is used.
        other.post(&[write(3, &[b.local(0, 8)], a.at(0))]).unwrap();
        b.expect(3, Status::RetryExceeded);
        faulty.set_plan(Plan::default());
        one.reset().unwrap();
        other.reset().unwrap();
        connect(&*one, &*other);
        one.post(&[write(4, &piece, b.at(0))]).unwrap();
        a.expect(4, Status::Success);
        faulty.cut_all();
        assert_eq!(one.state(), State::Error);
        one.post(&[write(5, &piece, b.at(0)), write(6, &piece, b.at(0))]).unwrap();
        a.expect(5, Status::RetryExceeded);
        a.expect(6, Status::Flushed);
        assert_eq!(faulty.done().cut, 2);
    }
}

#[test]
fn some_posts_of_many_are_cut() {
    let lab = SimLab::plain();
    let plan = Plan { seed: 3, cut: 100, ..Plan::default() };
    let faulty: Arc<FaultDevice> = FaultDevice::over(lab.device(), plan);
    let (a, b) = (Node::new(faulty.clone()), Node::new(lab.device()));
    let (one, other) = (a.rc_with(&impatient()), b.rc_with(&impatient()));
    connect(&*one, &*other);
    let mut failed = 0;
    for id in 0..200 {
        one.post(&[write(id, &[a.local(0, 8)], b.at(0))]).unwrap();
        let done = a.next();
        assert_eq!(done.id, id);
        if done.status != Status::Success {
            assert_eq!(done.status, Status::RetryExceeded);
            failed += 1;
            one.reset().unwrap();
            other.reset().unwrap();
            connect(&*one, &*other);
        }
    }
    assert_eq!(failed, faulty.done().cut);
    assert!((5..50).contains(&failed), "{failed}");
}
