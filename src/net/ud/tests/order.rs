//! Every message exactly once, in order, whole, over a network that loses, doubles and reorders.

use super::world::*;
use crate::net::ud::*;
use crate::net::wire::{Header, Kind};
use proptest::prelude::*;

fn all_came(world: &World, counts: [usize; 2]) {
    for (i, process) in world.processes.iter().enumerate() {
        let numbers: Vec<u64> = process.host.came.iter().map(|(_, number)| *number).collect();
        assert!(numbers.iter().copied().eq(0..counts[1 - i] as u64), "{numbers:?}");
        assert_eq!(process.host.events, [Event::Opened]);
        assert_eq!(process.peer.confirmed(), counts[i] as u64);
    }
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    faults: Faults,
    lengths: [Vec<usize>; 2],
    refuses: u64,
    first: u32,
    span: u32,
    ack_every: u16,
    scarce: bool,
    cork: u32,
}

fn cases() -> impl Strategy<Value = Case> {
    let lengths = || prop::collection::vec(prop_oneof![3 => 8usize..200, 1 => 8usize..4000], 0..80);
    let faults = (0u64..400, 0u64..200, prop_oneof![Just(0), Just(5 * US), Just(200 * US)]);
    let sizes = (
        (1u32..=SPAN, 1u32..30),
        1u16..40,
        prop_oneof![Just(0u32), (0u32..200).prop_map(|n| n.wrapping_neg())],
    );
    (any::<u64>(), faults, [lengths(), lengths()], 0u64..600, sizes, any::<bool>()).prop_map(
        |(
            seed,
            (loss, doubling, jitter),
            lengths,
            refuses,
            ((span, cork), every, first),
            scarce,
        )| Case {
            seed,
            faults: Faults { loss, doubling, jitter, ..Faults::NONE },
            lengths,
            refuses: if refuses < 300 { 0 } else { refuses },
            first,
            span,
            ack_every: every.min(span as u16),
            scarce,
            cork,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_message_comes_once_and_in_order(case in cases()) {
        let mut world = World::new(case.seed, case.faults, |config| {
            config.first = case.first;
            config.span = case.span;
            config.ack_every = case.ack_every;
            config.cork = case.cork;
            if case.scarce {
                config.buffers = case.span;
                config.assembling = 4000;
            }
        });
        world.corks = case.seed % 3 * 400;
        for i in 0..2 {
            world.processes[i].queue.extend(&case.lengths[i]);
            world.processes[i].host.refuses = case.refuses;
        }
        world.settle(60_000 * MS);
        // What was acknowledged may still wait for the program to take it.
        world.check_idle();
        let counts = [case.lengths[0].len(), case.lengths[1].len()];
        if counts == [0, 0] {
            prop_assert!(world.processes.iter().all(|p| p.host.events.is_empty()));
        } else {
            all_came(&world, counts);
        }
        for process in &world.processes {
            prop_assert_eq!(process.shared.counters.rejects.total(), 0);
        }
    }

    /// Datagrams with changed bytes: whatever they say, nothing panics, nothing leaks.
    #[test]
    fn spoilt_datagrams_do_no_harm(seed: u64, garbling in 1u64..300, loss in 0u64..100) {
        let faults = Faults { garbling, loss, ..Faults::NONE };
        let mut world = World::new(seed, faults, |config| config.silence = 100 * MS);
        for process in &mut world.processes {
            process.queue.extend((0..60).map(|i| 8 + (i * 37) % 900));
            // What was garbled in a message's own bytes is not this layer's to find.
            process.host.refuses = 0;
        }
        struct Blind;
        impl Upper for Blind {
            fn message(&mut self, _: u32, _: u8, _: &[u8]) -> Verdict { Verdict::Taken }
            fn event(&mut self, _: u32, _: Event) {}
        }
        // By hand, since the world's programs look into their messages.
        let World { processes, random, .. } = &mut world;
        let mut now = 0;
        let mut ways: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..400 {
            for i in 0..2 {
                let Process { shared, peer, queue, .. } = &mut processes[i];
                if let Some(length) = queue.front() {
                    let bytes = vec![1; *length];
                    let sent = match peer.send(shared, 1, &[&bytes], now) {
                        Err(Refused::Unfinished) => peer.resume(shared, &[&bytes], now),
                        sent => sent,
                    };
                    if !matches!(sent, Ok(Sent::Part) | Err(Refused::Full)) {
                        queue.pop_front();
                    }
                }
                peer.transmit(shared, now, &mut |bytes| {
                    ways[i].push(bytes.to_vec());
                    true
                });
                for mut bytes in std::mem::take(&mut ways[1 - i]) {
                    if random.chance(garbling) {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] = random.next() as u8;
                    }
                    if let Ok((header, body)) = Header::decode(&bytes, COOKIE) {
                        peer.receive(shared, &header, body, now, &mut Blind);
                    }
                }
                peer.tick(shared, now, &mut Blind);
            }
            now += 300 * US;
        }
        for process in &mut world.processes {
            let fresh = Peer::new(1 - process.shared.config().me, process.shared.config(), now);
            std::mem::replace(&mut process.peer, fresh).close(&mut process.shared);
            prop_assert_eq!(process.shared.buffers().used(), 0);
            prop_assert_eq!(process.shared.assembling(), 0);
        }
    }
}

#[test]
fn a_connection_begins_with_a_greeting_from_either_side_or_both() {
    for both in [false, true] {
        for loss in [0, 700] {
            let mut world = World::new(5, Faults { loss, ..Faults::NONE }, |_| {});
            world.processes[0].queue.push_back(20);
            if both {
                world.processes[1].queue.push_back(30);
            }
            world.settle(2000 * MS);
            all_came(&world, [1, usize::from(both)]);
            world.check_idle();
        }
    }
}

#[test]
fn messages_of_all_lengths_that_matter_arrive() {
    let mut world = World::new(1, Faults::NONE, |_| {});
    let lengths = [8, 199, 200, 201, 400, 401, 3999, 4000];
    world.processes[0].queue.extend(lengths);
    world.settle(100 * MS);
    all_came(&world, [lengths.len(), 0]);
    // Empty ones have no number in them.
    struct Empty(u32);
    impl Upper for Empty {
        fn message(&mut self, _: u32, channel: u8, bytes: &[u8]) -> Verdict {
            assert_eq!((channel, bytes.len()), (9, 0));
            self.0 += 1;
            Verdict::Taken
        }
        fn event(&mut self, _: u32, _: Event) {}
    }
    let [a, b] = &mut world.processes;
    let now = world.now;
    assert_eq!(a.peer.send(&mut a.shared, 9, &[], now), Ok(Sent::Whole(8)));
    let mut empty = Empty(0);
    a.peer.transmit(&mut a.shared, now, &mut |bytes| {
        let (header, body) = Header::decode(bytes, COOKIE).unwrap();
        b.peer.receive(&mut b.shared, &header, body, now, &mut empty);
        true
    });
    assert_eq!(empty.0, 1);
    let long = vec![0; 4001];
    assert_eq!(a.peer.send(&mut a.shared, 1, &[&long], now), Err(Refused::TooLong));
}

#[test]
fn a_sender_is_told_when_there_is_no_room_and_a_part_blocks_others() {
    let mut world = World::new(1, Faults::NONE, |config| {
        config.span = 4;
        config.ack_every = 2;
        config.buffers = 4;
    });
    let Process { shared, peer, .. } = &mut world.processes[0];
    let long = message(1, 0, 1500);
    assert_eq!(peer.send(shared, 1, &[&long], 0), Ok(Sent::Part));
    assert_eq!(peer.send(shared, 1, &[&[1; 8]], 0), Err(Refused::Unfinished));
    assert_eq!(peer.resume(shared, &[&long[1..]], 0), Err(Refused::Unfinished));
    assert_eq!(peer.resume(shared, &[&long], 0), Ok(Sent::Part));
    assert_eq!(shared.buffers().used(), 4);
    world.processes[0].current = Some(long);
    world.processes[0].queue.push_back(1500);
    world.settle(100 * MS);
    all_came(&world, [1, 0]);
    let Process { shared, peer, .. } = &mut world.processes[0];
    for i in 1..5 {
        assert_eq!(peer.send(shared, 1, &[&message(1, i, 150)], world.now), Ok(Sent::Whole(i)));
    }
    assert_eq!(peer.send(shared, 1, &[&[1; 8]], world.now), Err(Refused::Full));
}

/// What is sent while little is under way goes at once, and alone; what comes then goes together.
#[test]
fn small_messages_go_together_while_others_are_under_way() {
    let mut world = World::new(1, Faults::NONE, |config| config.cork = 3);
    world.processes[0].queue.push_back(10);
    world.settle(10 * MS);
    let Process { shared, peer, begun, .. } = &mut world.processes[0];
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut take = |bytes: &[u8]| {
        out.push(bytes.to_vec());
        true
    };
    // 200 bytes are for messages: the first has 8, each further one 4 more; three datagrams go at
    // once, one when no other of that length fits, and one stays.
    for number in 1..=3 + 17 + 2 {
        let sent = peer.send(shared, 1, &[&message(1, number, 8)], world.now);
        assert_eq!(sent, Ok(Sent::Whole(number)));
        assert!(peer.transmit_most(shared, world.now, &mut take));
        assert_eq!(peer.has_output(), number > 3 && number != 20, "{number}");
    }
    *begun = 23;
    assert!(peer.transmit(shared, world.now, &mut take));
    assert!(!peer.has_output());
    assert_eq!(out.len(), 5);
    let [_, b] = &mut world.processes;
    let came = out.iter().map(|bytes| {
        let (header, body) = Header::decode(bytes, COOKIE).unwrap();
        let before = b.host.came.len();
        b.peer.receive(&mut b.shared, &header, body, world.now, &mut b.host);
        b.host.came.len() - before
    });
    assert_eq!(came.collect::<Vec<_>>(), [1, 1, 1, 17, 2]);
    world.settle(20 * MS);
    all_came(&world, [23, 0]);
}

/// Of messages in one datagram the program may take some now and others later.
#[test]
fn a_program_takes_what_it_has_room_for() {
    for refuses in [0, 300, 900] {
        let mut world = World::new(7, Faults { loss: 100, ..Faults::NONE }, |config| {
            config.buffers = 64;
        });
        world.processes[1].host.refuses = refuses;
        world.processes[0].queue.extend([8; 2000]);
        world.settle(60_000 * MS);
        world.check_idle();
        all_came(&world, [2000, 0]);
        let sent = world.processes[0].shared.counters.sent;
        assert!(sent < 300, "{sent} datagrams for 2000 messages of 8 bytes");
    }
}

#[test]
fn a_program_that_takes_nothing_bounds_what_its_peer_can_send() {
    let mut world = World::new(3, Faults::NONE, |_| {});
    world.processes[1].host.refuses = 1000;
    world.processes[0].queue.extend([100; 300]);
    world.run(300 * MS);
    let [a, b] = &world.processes;
    assert_eq!(b.host.came.len(), 0);
    assert_eq!(b.shared.buffers().used(), SPAN);
    assert!(a.begun <= 2 * u64::from(SPAN), "{}", a.begun);
    // It is asked for credit again and again, ever more slowly, and is not taken for dead.
    assert!(a.shared.counters.resent < 100, "{:?}", a.shared.counters);
    assert_eq!(a.host.events, [Event::Opened]);
    world.processes[1].host.refuses = 0;
    let before = world.now;
    world.settle(before + 100 * MS);
    // The credit comes when there is room, not when it is asked for.
    assert!(world.now - before < 5 * MS, "{}", world.now - before);
    all_came(&world, [300, 0]);
    world.check_idle();
}

#[test]
fn a_device_without_room_loses_nothing() {
    let mut world = World::new(3, Faults::NONE, |_| {});
    world.processes[0].queue.extend([100; 2]);
    world.settle(10 * MS);
    let [a, b] = &mut world.processes;
    for i in 2..12 {
        a.peer.send(&mut a.shared, 1, &[&message(1, i, 150)], world.now).unwrap();
    }
    // One datagram at a time.
    let mut rounds = 0;
    loop {
        let mut room = 1;
        let done = a.peer.transmit(&mut a.shared, world.now, &mut |bytes| {
            let sends = room > 0;
            if sends {
                room -= 1;
                let (header, body) = Header::decode(bytes, COOKIE).unwrap();
                assert_eq!(header.kind, Kind::Data);
                b.peer.receive(&mut b.shared, &header, body, world.now, &mut b.host);
            }
            sends
        });
        if done {
            break;
        }
        rounds += 1;
    }
    assert_eq!((rounds, b.host.came.len()), (9, 12));
    a.begun = 12;
    world.settle(20 * MS);
    all_came(&world, [12, 0]);
}
