//! Sleeping and being woken; threads.

use super::lab::*;
use super::{Lab, Node, Pair};
use crate::net::provider::*;
use std::time::Duration;

pub fn an_armed_queue_ends_a_wait(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    for id in 0..20 {
        to_a.receive(&[Receive { id, pieces: &[b.local(0, 8)] }]).unwrap();
        b.queue.arm(Arm::Any).unwrap();
        assert_eq!(b.queue.poll(&mut [Completion::NONE]), 0);
        to_b.post(&[send(id, &[a.local(0, 8)])]).unwrap();
        let until = b.device.now().plus(LONG);
        let mut got = [Completion::NONE];
        while b.queue.poll(&mut got) == 0 {
            assert_ne!(b.channel.wait(until), Woken::Elapsed);
        }
        assert_eq!((got[0].id, got[0].status), (id, Status::Success));
        a.expect(id, Status::Success);
    }
}

pub fn solicited_ones_only(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    for id in 0..3 {
        to_a.receive(&[Receive { id, pieces: &[b.local(0, 8)] }]).unwrap();
    }
    b.queue.arm(Arm::Solicited).unwrap();
    to_b.post(&[send(1, &[])]).unwrap();
    a.expect(1, Status::Success);
    // Spurious wakes are allowed, so that this one ends is all that can be said.
    b.channel.wait(b.device.now().plus(Duration::from_millis(20)));
    b.queue.arm(Arm::Solicited).unwrap();
    to_b.post(&[Work { solicited: true, ..send(2, &[]) }]).unwrap();
    let until = b.device.now().plus(LONG);
    assert_eq!(b.channel.wait(until), Woken::Ready);
    let mut got = [Completion::NONE; 4];
    assert_eq!(b.queue.poll(&mut got), 2);
}

pub fn a_wait_has_an_end(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    a.queue.arm(Arm::Any).unwrap();
    let now = a.device.now();
    assert_eq!(a.channel.wait(now.plus(Duration::from_millis(10))), Woken::Elapsed);
    assert!(a.device.now().since(now) >= Duration::from_millis(10));
    assert_eq!(a.channel.wait(Time(0)), Woken::Elapsed, "one that is over already");
    assert_eq!(a.channel.descriptor().is_some(), lab.has_descriptors());
}

pub fn anyone_can_wake_a_sleeper(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    a.channel.wake();
    let forever = Time::NEVER;
    assert_eq!(a.channel.wait(forever), Woken::Called, "before it sleeps");
    if lab.is_virtual() {
        return;
    }
    let channel = a.channel.clone();
    let waker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        channel.wake();
    });
    assert_eq!(a.channel.wait(forever), Woken::Called);
    waker.join().unwrap();
    assert_eq!(a.channel.wait(a.device.now().plus(Duration::from_millis(5))), Woken::Elapsed);
}

pub fn threads_share_a_device(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let pairs: Vec<_> = (0..4).map(|_| (a.rc(), b.rc())).collect();
    pairs.iter().for_each(|(one, other)| connect(&**one, &**other));
    let (device, memory) = (&a.device, &a.memory);
    let (own, remote) = (a.local(0, 8), b.region.remote());
    // Kept until all is done: what is under way on a region that is dropped may fail.
    let regions: Vec<Region> = std::thread::scope(|scope| {
        let start = |i: u64| {
            let one = &pairs[i as usize].0;
            scope.spawn(move || {
                let region = device.register(memory, Access::LOCAL_WRITE).unwrap();
                for round in 0..16 {
                    let into = [region.local(64 + 8 * i, 8).unwrap()];
                    let at = remote.at(8 * i);
                    one.post(&[
                        write((i << 8) | (2 * round), &[own], at),
                        read((i << 8) | (2 * round + 1), &into, at),
                    ])
                    .unwrap();
                }
                region
            })
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut next = [0; 4];
    for _ in 0..128 {
        let done = a.next();
        let (who, id) = ((done.id >> 8) as usize, done.id & 0xff);
        assert_eq!((done.status, id), (Status::Success, next[who]), "in order");
        next[who] += 1;
    }
    a.quiet();
    drop(regions);
}
