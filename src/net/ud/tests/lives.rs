//! Peers that fall silent, begin anew, leave; networks that are cut.

use super::world::*;
use crate::net::ud::*;
use crate::net::wire::Reject;
use proptest::prelude::*;

/// Holds what came against what was sent and what the sender was told.
fn check_sender(sender: &Process, came: &[(u8, u64)], receiver_lived: bool) {
    let life = sender.shared.config().incarnation as u8;
    let came = by_life(came).remove(&life).unwrap_or_default();
    let lost = lost(&sender.host.events);
    assert!(lost.windows(2).all(|pair| pair[0] < pair[1]), "lost twice: {lost:?}");
    assert!(came.iter().all(|number| *number < sender.begun + 1));
    for number in 0..sender.peer.confirmed() {
        let (here, gone) = (came.binary_search(&number), lost.binary_search(&number));
        assert!(
            here.is_ok() || gone.is_ok() || !receiver_lived,
            "{number} is confirmed, was not reported as lost, and did not come"
        );
    }
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_and_found_again() {
    let mut world = World::new(9, Faults::NONE, |config| config.silence = 50 * MS);
    world.processes[0].queue.extend([100; 5]);
    world.settle(10 * MS);
    let cut = world.now;
    world.cut = [cut + 500 * MS; 2];
    world.processes[0].queue.extend([100; 3]);
    world.run(cut + 40 * MS);
    assert_eq!(world.processes[0].host.events, [Event::Opened]);
    world.run(cut + 120 * MS);
    let silent = Event::Silent(Lost { first: 5, count: 3 });
    assert_eq!(world.processes[0].host.events, [Event::Opened, silent]);
    assert_eq!(world.processes[0].peer.confirmed(), 8);
    // What was given up does not come later; what is sent then does.
    world.run(cut + 600 * MS);
    world.processes[0].queue.extend([100; 4]);
    world.settle(cut + 900 * MS);
    let [a, b] = &world.processes;
    assert_eq!(by_life(&b.host.came)[&1], [0, 1, 2, 3, 4, 8, 9, 10, 11]);
    assert_eq!(a.host.events, [Event::Opened, silent, Event::Opened]);
    let restarted = Event::Restarted(Lost { first: 0, count: 0 });
    assert_eq!(b.host.events, [Event::Opened, restarted, Event::Opened]);
    world.check_idle();
}

#[test]
fn a_peer_that_never_was_there_is_given_up() {
    let mut world = World::new(9, Faults::NONE, |config| config.silence = 50 * MS);
    world.processes[1].alive = false;
    world.processes[0].queue.extend([100; 3]);
    world.run(200 * MS);
    let silent = Event::Silent(Lost { first: 0, count: 3 });
    assert_eq!(world.processes[0].host.events, [silent]);
    assert!(world.datagrams > 3 && world.datagrams < 40, "{}", world.datagrams);
    // Nothing was ever sent to it but greetings.
    assert_eq!(world.processes[0].shared.counters.sent, 0);
}

#[test]
fn an_idle_peer_is_asked_only_if_somebody_wants_to_know() {
    let set = |config: &mut Config| {
        config.keepalive = 10 * MS;
        config.silence = 50 * MS;
    };
    for watched in [false, true] {
        let mut world = World::new(9, Faults::NONE, set);
        world.processes[0].queue.push_back(10);
        world.settle(5 * MS);
        world.processes[0].peer.watch(watched);
        let before = world.datagrams;
        world.run(500 * MS);
        assert_eq!(world.processes[0].host.events, [Event::Opened]);
        let asked = world.datagrams - before;
        assert!(if watched { (90..110).contains(&asked) } else { asked <= 2 }, "{asked}");
        world.processes[1].alive = false;
        world.run(600 * MS);
        let silent = Event::Silent(Lost { first: 1, count: 0 });
        assert_eq!(world.processes[0].host.events.contains(&silent), watched);
    }
}

#[test]
fn a_restarted_peer_is_noticed_and_nothing_of_before_is_taken_for_now() {
    let mut world = World::new(4, Faults { jitter: 300 * US, ..Faults::NONE }, |_| {});
    world.processes[0].queue.extend([100; 30]);
    while world.processes[1].host.came.is_empty() {
        assert!(world.step(10 * MS));
    }
    let before = world.restart(1);
    assert!(!before.host.came.is_empty() && before.host.came.len() < 30);
    world.settle(1000 * MS);
    world.run(world.now + 5 * MS);
    let [a, b] = &world.processes;
    let events = &a.host.events;
    assert!(
        matches!(events[..], [Event::Opened, Event::Restarted(lost), Event::Opened] if lost.count > 0),
        "{events:?}"
    );
    let lost = lost(events);
    // Nothing came at both: what the second one has was sent after the first one was lost.
    let (first, second) = (by_life(&before.host.came), by_life(&b.host.came));
    let second = second.get(&1).cloned().unwrap_or_default();
    assert!(second.iter().all(|number| !first[&1].contains(number) && !lost.contains(number)));
    assert_eq!(b.host.events, [Event::Opened]);
    assert!(b.shared.counters.rejects.count(Reject::Stale) > 0);
    world.check_idle();
}

#[test]
fn who_leaves_says_so_when_all_is_acknowledged() {
    for loss in [0, 300] {
        let mut world = World::new(8, Faults { loss, ..Faults::NONE }, |_| {});
        world.processes[0].queue.extend([100; 50]);
        world.processes[1].queue.extend([100; 5]);
        world.settle(1000 * MS);
        let [a, _] = &mut world.processes;
        a.peer.send(&mut a.shared, 1, &[&message(1, 50, 8)], world.now).unwrap();
        a.begun += 1;
        assert!(!a.peer.has_parted());
        a.peer.leave();
        assert!(!a.peer.has_parted(), "the last message is on its way");
        assert_eq!(a.peer.send(&mut a.shared, 1, &[&[0; 8]], world.now), Err(Refused::Left));
        world.run(world.now + 1000 * MS);
        let [a, b] = &world.processes;
        assert_eq!(by_life(&b.host.came)[&1].len(), 51);
        assert!(
            matches!(b.host.events[..], [Event::Opened, Event::Left(_)]),
            "{:?}",
            b.host.events
        );
        assert_eq!(a.host.events, [Event::Opened]);
        check_sender(b, &a.host.came, true);
        assert_eq!(world.processes[0].peer.next(world.processes[0].shared.config()), None);
        let [a, b] = &mut world.processes;
        assert!(a.peer.has_parted());
        // The one that is left alone has nobody to tell.
        b.peer.leave();
        assert!(b.peer.has_parted());
        assert_eq!(b.peer.send(&mut b.shared, 1, &[&[0; 8]], world.now), Err(Refused::Left));
        world.check_idle();
    }
}

#[test]
fn a_peer_that_sends_nonsense_is_given_up() {
    use crate::net::wire::{Fragment, HEADER, Header, Kind, OVERHEAD};
    let mut world = World::new(8, Faults::NONE, |_| {});
    world.processes[0].queue.extend([100; 2]);
    world.settle(1000 * MS);
    let [_, b] = &mut world.processes;
    let life = 1 << 16;
    let header = Header {
        kind: Kind::Data,
        length: 24,
        credit: 1,
        cookie: COOKIE,
        from: 0,
        to: 1,
        from_life: life,
        to_life: life,
        sequence: 2,
        acknowledged: 0,
        selective: 0,
    };
    let mut bytes = [0; OVERHEAD + 8];
    // The third message is number 2, not 3.
    Fragment { message: 3, total: 8, offset: 0, channel: 1 }.encode(&mut bytes);
    b.peer.receive(&mut b.shared, &header, &bytes[HEADER..], world.now, &mut b.host);
    assert!(matches!(b.host.events[..], [Event::Opened, Event::Broken(_)]), "{:?}", b.host.events);
    assert_eq!(b.shared.counters.rejects.count(Reject::Fragment), 1);
    // Acknowledging what was never sent, and data beyond the credit, are dropped.
    let [a, _] = &mut world.processes;
    let wrong = [
        Header { acknowledged: 9, from: 1, to: 0, ..header },
        Header { acknowledged: 2, selective: 1, from: 1, to: 0, ..header },
        Header { sequence: 64, from: 1, to: 0, ..header },
        Header { sequence: 1 << 31, from: 1, to: 0, ..header },
    ];
    Fragment { message: 0, total: 8, offset: 0, channel: 1 }.encode(&mut bytes);
    for header in wrong {
        a.peer.receive(&mut a.shared, &header, &bytes[HEADER..], world.now, &mut a.host);
    }
    assert_eq!(a.shared.counters.rejects.count(Reject::Sequence), 4);
    for header in [Header { to: 5, ..header }, Header { from: 5, to: 0, ..header }] {
        a.peer.receive(&mut a.shared, &header, &bytes[HEADER..], world.now, &mut a.host);
    }
    assert_eq!(a.shared.counters.rejects.total(), 6);
    assert_eq!(a.host.events, [Event::Opened]);
    assert!(a.host.came.is_empty());
    // Both find together again.
    world.processes[1].queue.push_back(50);
    world.settle(world.now + 1000 * MS);
    assert_eq!(world.processes[0].host.came.len(), 1);
}

#[test]
fn lives_end_but_not_without_a_word() {
    let mut world = World::new(8, Faults::NONE, |config| {
        config.silence = 300 * US;
        config.most_timeout = 200 * US;
    });
    world.processes[1].alive = false;
    let mut count = 0;
    loop {
        let now = world.now;
        let Process { shared, peer, host, .. } = &mut world.processes[0];
        match peer.send(shared, 1, &[&[0; 8]], now) {
            Ok(Sent::Whole(number)) => assert_eq!(number, count),
            refused => {
                assert_eq!(refused, Err(Refused::Exhausted));
                break;
            }
        }
        count += 1;
        world.now += 301 * US;
        peer.tick(shared, world.now, host);
        assert_eq!(host.events.len() as u64, count);
    }
    assert_eq!(count, 1 << 16);
}

#[derive(Clone, Debug)]
enum Trouble {
    Messages(usize, Vec<usize>),
    Cut(usize, u64),
    Restart(usize),
    Pause(u64),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let lengths = prop::collection::vec(prop_oneof![3 => 8usize..200, 1 => 8usize..4000], 1..40);
    prop_oneof![
        5 => (0..2usize, lengths).prop_map(|(i, lengths)| Trouble::Messages(i, lengths)),
        2 => (0..2usize, 1u64..60).prop_map(|(i, ms)| Trouble::Cut(i, ms * MS)),
        1 => (0..2usize).prop_map(Trouble::Restart),
        5 => (1u64..3000).prop_map(|us| Trouble::Pause(us * US)),
        1 => (1u64..80).prop_map(|ms| Trouble::Pause(ms * MS)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    /// Cuts in one direction or both, longer and shorter than what makes a peer silent, processes
    /// killed and started again: no message twice, none out of order, none lost without a word.
    #[test]
    fn each_message_arrives_once_or_is_reported(
        seed: u64,
        loss in 0u64..300,
        doubling in 0u64..200,
        jitter in prop_oneof![Just(0), Just(100 * US), Just(20 * MS)],
        troubles in prop::collection::vec(trouble(), 1..25),
    ) {
        let faults = Faults { loss, doubling, jitter, ..Faults::NONE };
        let mut world = World::new(seed, faults, |config| config.silence = 30 * MS);
        let mut dead: [Vec<Process>; 2] = [Vec::new(), Vec::new()];
        for trouble in troubles {
            match trouble {
                Trouble::Messages(i, lengths) => world.processes[i].queue.extend(lengths),
                Trouble::Cut(i, time) => world.cut[i] = world.now + time,
                Trouble::Restart(i) => dead[i].push(world.restart(i)),
                Trouble::Pause(time) => world.run(world.now + time),
            }
        }
        world.faults = Faults { loss: 0, doubling: 0, ..faults };
        world.run(world.now + 3000 * MS);
        prop_assert!(world.is_settled(), "{:?}", world.processes[0].peer);
        world.check_idle();
        for i in 0..2 {
            // All that came at any of the receiver's lives, in order.
            let other = &world.processes[1 - i];
            let lives = dead[1 - i].iter().chain([other]);
            let came: Vec<(u8, u64)> = lives.flat_map(|p| p.host.came.iter().copied()).collect();
            by_life(&came);
            for sender in dead[i].iter().chain([&world.processes[i]]) {
                check_sender(sender, &came, dead[1 - i].is_empty());
            }
        }
        // And they can go on, once answers come back in less time than makes a peer silent. One may
        // find out only now that the other had given it up.
        world.faults.jitter = jitter.min(MS);
        world.run(world.now + 100 * MS);
        world.processes.iter_mut().for_each(|process| process.queue.push_back(300));
        world.settle(world.now + 1000 * MS);
        let counts = world.processes.each_ref().map(|process| process.host.came.len());
        let begun = world.processes.each_ref().map(|process| process.begun);
        world.processes.iter_mut().for_each(|process| process.queue.push_back(300));
        world.settle(world.now + 1000 * MS);
        for i in 0..2 {
            prop_assert_eq!(world.processes[i].host.came.len(), counts[i] + 1);
            prop_assert_eq!(world.processes[i].host.came[counts[i]].1, begun[1 - i]);
        }
    }
}
