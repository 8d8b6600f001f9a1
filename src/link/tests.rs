//! The link between ranks that are threads, or turns, of one process.

use super::*;
use crate::base::Offset;
use crate::base::Rank;
use crate::base::sync::Ordering;
use crate::shm::liveness::eventually;
use crate::shm::map::Mapping;
use crate::shm::region::SharedRef;
use crate::shm::ring::inbox::{InboxMemory, dying};
use crate::shm::segment::{Areas, LANES};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

fn links(count: u16, lane_after: u32) -> Vec<Option<Link>> {
    let fd = Node::create_memory(count.into(), 1 << 21).unwrap();
    let length = Areas::new(count.into(), 1 << 21).unwrap().length;
    let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
    let attach = |slot| {
        let fd = fd.try_clone().unwrap();
        let node = Node::attach_mapped(fd, Slot(slot), map.clone()).unwrap();
        Some(Link::with_lane_after(node, lane_after).unwrap())
    };
    (0..count).map(attach).collect()
}

fn pair(lane_after: u32) -> (Link, Link) {
    let mut links = links(2, lane_after);
    let b = links.pop().flatten().unwrap();
    (links.pop().flatten().unwrap(), b)
}

/// Every message that has arrived: sender, immediate value, payload.
fn receive_all(link: &Link) -> Vec<(u16, u64, Vec<u8>)> {
    let mut all = Vec::new();
    while link.poll(|m| all.push((m.from.0, m.imm, m.bytes.to_vec()))).unwrap() > 0 {}
    all
}

/// The same by polls as of a program that waits.
fn receive_all_waiting(link: &Link) -> Vec<(u16, u64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut keep = |m: Message<'_>| all.push((m.from.0, m.imm, m.bytes.to_vec()));
    while link.wire().poll_waiting(&mut keep).unwrap() > 0 {}
    all
}

fn owned_lanes(link: &Link) -> usize {
    let owners = &link.node().rank_slot(link.node().slot()).port.lane_owners;
    owners.iter().filter(|o| o.load(Ordering::Relaxed) != 0).count()
}

/// What a process does that is killed: nothing at all, its descriptors are closed.
fn kill(link: Link) {
    let node = link.node.clone();
    link.core.table().for_each(|vc| vc.lock().forget());
    drop(link);
    drop(node);
}

fn payload(seed: u64) -> Vec<u8> {
    let len = [0, 8, 48, 49, 130, 512, 3000][seed as usize % 7];
    (0..len).map(|i| (seed + i) as u8).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Send(u16, u16),
    Poll(u16, bool),
    Promote(u16, u16),
    Revoke(u16),
    Kill(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = || 0..4u16;
    let step = prop_oneof![
        400 => (any(), any()).prop_map(|(a, b)| Step::Send(a, b)),
        200 => (any(), prop::bool::ANY).prop_map(|(at, waits)| Step::Poll(at, waits)),
        20 => (any(), any()).prop_map(|(a, b)| Step::Promote(a, b)),
        20 => any().prop_map(Step::Revoke),
        1 => any().prop_map(Step::Kill),
    ];
    prop::collection::vec(step, 1..1500)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever connections do (become hot, lose their lanes, lose their peers): each pair is a
    /// queue, everything sent is received, also what the dead had sent.
    #[test]
    fn every_pair_is_a_queue(steps in steps(), lane_after in 0..12u32) {
        let mut links = links(4, lane_after);
        let mut oracle: HashMap<(u16, u16), VecDeque<u64>> = HashMap::new();
        let poll = |links: &[Option<Link>], oracle: &mut HashMap<_, VecDeque<u64>>, at, waits| {
            let Some(link) = &links[usize::from(at)] else { return Ok(()) };
            for (from, imm, bytes) in [receive_all, receive_all_waiting][usize::from(waits)](link) {
                let want = oracle.get_mut(&(from, at)).and_then(VecDeque::pop_front);
                prop_assert_eq!(Some(imm), want, "from {} to {}", from, at);
                prop_assert_eq!(bytes, payload(imm));
            }
            Ok(())
        };
        for (seed, step) in steps.into_iter().enumerate() {
            let seed = seed as u64;
            match step {
                Step::Send(a, b) => {
                    let Some(link) = &links[usize::from(a)] else { continue };
                    match link.try_send(Slot(b), 1, seed, &payload(seed)) {
                        Ok(Push::Sent) => oracle.entry((a, b)).or_default().push_back(seed),
                        Ok(Push::Full) => {}
                        Err(e) => prop_assert!(e.is_death() && links[usize::from(b)].is_none()),
                    }
                }
                Step::Poll(at, waits) => poll(&links, &mut oracle, at, waits)?,
                Step::Promote(a, b) => {
                    if let Some(link) = &links[usize::from(a)] {
                        let _ = link.promote(Slot(b)).unwrap();
                    }
                }
                Step::Revoke(at) => {
                    if let Some(link) = &links[usize::from(at)] {
                        link.core.receiver.lock().revoke_oldest(0);
                    }
                }
                Step::Kill(at) => {
                    if let Some(link) = links[usize::from(at)].take() {
                        kill(link);
                        for link in links.iter().flatten() {
                            eventually("the death is seen", || link.node().probe(Slot(at)));
                        }
                    }
                }
            }
        }
        for at in 0..4 {
            poll(&links, &mut oracle, at, at % 2 > 0)?;
        }
        for (&(from, to), left) in &oracle {
            prop_assert!(links[usize::from(to)].is_none() || left.is_empty(), "{from} to {to}");
        }
        for link in links.iter().flatten() {
            prop_assert_eq!(owned_lanes(link) as u64, link.counters().lanes);
        }
    }
}

#[test]
fn more_peers_than_lanes_share_them_and_keep_their_order() {
    const SENDERS: u16 = LANES as u16 + 8;
    // With fewer lanes than peers the threshold grows with the distance, which is unknown here.
    let links = links(SENDERS + 1, 1);
    let links: Vec<Link> = links.into_iter().flatten().collect();
    let (receiver, senders) = links.split_first().unwrap();
    let mut next = vec![0u64; SENDERS.into()];
    let mut sent = vec![0u64; SENDERS.into()];
    let mut drain = |sent: &[u64]| {
        for (from, imm, bytes) in receive_all(receiver) {
            let next = &mut next[usize::from(from) - 1];
            assert_eq!((imm, bytes), (*next, payload(*next)), "from {from}");
            *next += 1;
        }
        assert_eq!(next, sent);
    };
    for round in 0..400 {
        // The first 64 open lanes and then fall silent; the others want them.
        let active = if round < 10 { 0..SENDERS } else { SENDERS - 8..SENDERS };
        for i in active {
            let seq = &mut sent[usize::from(i)];
            let pushed = senders[usize::from(i)].try_send(Slot(0), 0, *seq, &payload(*seq));
            assert_eq!(pushed.unwrap(), Push::Sent);
            *seq += 1;
        }
        drain(&sent);
    }
    let late = &senders[usize::from(SENDERS) - 8..];
    assert!(late.iter().all(|l| l.is_hot(Slot(0))), "idle lanes went to those who wanted them");
    assert!(receiver.counters().reclaims >= 8);
    // Who lost a lane notices, and falls back.
    for (i, sender) in senders.iter().enumerate() {
        assert_eq!(sender.try_send(Slot(0), 0, sent[i], &payload(sent[i])).unwrap(), Push::Sent);
        sent[i] += 1;
    }
    drain(&sent);
    assert_eq!(owned_lanes(receiver) as u64, receiver.counters().lanes);
}

#[test]
fn in_the_kernel_region_connections_become_hot_at_once() {
    let (a, b) = pair(100);
    let send = |count: u64| {
        for i in 0..count {
            assert_eq!(a.try_send(Slot(1), 0, i, &payload(i)).unwrap(), Push::Sent);
        }
        assert_eq!(receive_all(&b).len() as u64, count);
    };
    send(20);
    assert!(!a.is_hot(Slot(1)));
    let region = a.core.hints().kernel_region();
    send(1);
    assert!(a.is_hot(Slot(1)));
    drop(region);
    // Nobody is told never to have a lane, and has one because of a hint.
    let (a, b) = pair(u32::MAX);
    assert!(a.core.hints().hint("in_kernel", "1").is_applied());
    for i in 0..5 {
        assert_eq!(a.try_send(Slot(1), 0, i, &payload(i)).unwrap(), Push::Sent);
    }
    assert!(!a.is_hot(Slot(1)) && receive_all(&b).len() == 5);
}

#[test]
fn the_lane_of_a_dead_sender_is_emptied_then_freed() {
    let (a, b) = pair(0);
    for i in 0..20 {
        assert_eq!(a.try_send(Slot(1), 0, i, &payload(i)).unwrap(), Push::Sent);
    }
    assert!(a.is_hot(Slot(1)));
    kill(a);
    eventually("the death is seen", || b.node().probe(Slot(0)));
    let got: Vec<u64> = receive_all(&b).into_iter().map(|m| m.1).collect();
    assert_eq!(got, (0..20).collect::<Vec<_>>());
    b.poll(|_| ()).unwrap();
    assert_eq!((owned_lanes(&b), b.counters().lanes), (0, 0));
    assert!(b.try_send(Slot(0), 0, 0, &[]).unwrap_err().is_death());
}

#[test]
fn a_lane_whose_owner_died_before_it_said_so_is_freed() {
    let (a, b) = pair(1000);
    b.node().rank_slot(Slot(1)).port.lane_owners[7].store(1, Ordering::Relaxed);
    assert_eq!(a.try_send(Slot(1), 0, 0, &[]).unwrap(), Push::Sent);
    kill(a);
    eventually("the death is seen", || b.node().probe(Slot(0)));
    assert_eq!(receive_all(&b).len(), 1);
    b.poll(|_| ()).unwrap();
    assert_eq!(owned_lanes(&b), 0);
}

#[test]
fn a_message_that_a_dead_sender_left_unfinished_is_stepped_over_without_help() {
    let mut links = links(3, 1000);
    let c = links.pop().flatten().unwrap();
    let b = links.pop().flatten().unwrap();
    let a = links.pop().flatten().unwrap();
    let at = c.node().areas().inbox(Slot(2));
    let inbox: SharedRef<InboxMemory> = SharedRef::new(c.node().mapping(), at).unwrap();
    assert!(dying::before_commit(&*inbox, Slot(0), 3));
    kill(a);
    assert_eq!(b.try_send(Slot(2), 5, 6, &[7]).unwrap(), Push::Sent);
    // Nobody has noticed the death: the waiting receiver asks.
    let mut got = Vec::new();
    let deadline = Deadline::after(Duration::from_secs(60));
    c.recv_wait(deadline, || Ok(()), |m| got.push((m.from, m.kind, m.imm))).unwrap();
    assert_eq!(got, [(Slot(1), 5, 6)]);
    assert_eq!(c.counters().skipped, 1);
}

#[test]
fn a_full_peer_is_backpressure_and_its_time_out_names_it() {
    for lane_after in [0, u32::MAX] {
        let (a, b) = pair(lane_after);
        let mut count = 0;
        while a.try_send(Slot(1), 0, count, &[1; 512]).unwrap() == Push::Sent {
            count += 1;
        }
        let deadline = Deadline::after(Duration::from_millis(5));
        match a.send(Slot(1), 0, 0, &[], deadline) {
            // A short message may still fit where a long one does not.
            Ok(()) => count += 1,
            Err(Error::TimedOut { missing, .. }) => assert_eq!(missing, [Rank(1)]),
            Err(e) => panic!("{e}"),
        }
        assert_eq!(receive_all(&b).len() as u64, count);
        assert_eq!(a.try_send(Slot(1), 0, 0, &[1; 512]).unwrap(), Push::Sent);
    }
}

#[test]
fn a_sender_that_waits_for_room_learns_of_the_death_of_its_peer() {
    for lane_after in [0, u32::MAX] {
        let (a, b) = pair(lane_after);
        while a.try_send(Slot(1), 0, 0, &[1; 512]).unwrap() == Push::Sent {}
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                loop {
                    if let Err(e) = a.send(Slot(1), 0, 0, &[1; 512], Deadline::NEVER) {
                        return e;
                    }
                }
            });
            kill(b);
            let error = waiting.join().unwrap();
            assert!(matches!(error, Error::RankDied { rank: Rank(1), .. }), "{error}");
        });
    }
}

#[test]
fn two_that_flood_each_other_get_through_if_they_receive_while_they_wait() {
    const COUNT: u64 = 3000;
    for lane_after in [0, 100, u32::MAX] {
        let (a, b) = pair(lane_after);
        let run = |link: &Link, peer: u16| {
            let next = std::cell::Cell::new(0);
            let take = || {
                link.poll(|m| {
                    assert_eq!(m.imm, next.get());
                    next.set(m.imm + 1);
                })
            };
            for i in 0..COUNT {
                let progress = || take().map(|_| ());
                link.send_while(Slot(peer), 0, i, &[3; 700], Deadline::NEVER, progress).unwrap();
            }
            while next.get() < COUNT {
                let on_message = |m: Message<'_>| {
                    assert_eq!(m.imm, next.get());
                    next.set(m.imm + 1);
                };
                link.recv_wait(Deadline::NEVER, || Ok(()), on_message).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(&a, 1));
            run(&b, 0);
        });
    }
}

#[test]
fn many_threads_send_and_receive_while_lanes_come_and_go() {
    const EACH: u64 = 4000;
    let links: Vec<Link> = links(4, 8).into_iter().flatten().collect();
    let (receiver, senders) = links.split_first().unwrap();
    std::thread::scope(|scope| {
        for (i, link) in senders.iter().enumerate() {
            // Two threads of each process share the connection.
            for thread in 0..2 {
                scope.spawn(move || {
                    for seq in 0..EACH {
                        let imm = seq << 8 | thread << 4 | i as u64;
                        link.send(Slot(0), 0, imm, &payload(seq), Deadline::NEVER).unwrap();
                    }
                });
            }
        }
        let mut next = HashMap::new();
        let mut got = 0;
        while got < 6 * EACH {
            let on_message = |m: Message<'_>| {
                let next: &mut u64 = next.entry(m.imm & 0xff).or_default();
                assert_eq!(m.imm >> 8, *next);
                assert_eq!(m.bytes, payload(*next));
                *next += 1;
                got += 1;
            };
            receiver.recv_wait(Deadline::NEVER, || Ok(()), on_message).unwrap();
            if got % 97 == 0 {
                receiver.core.receiver.lock().revoke_oldest(0);
            }
        }
    });
    let hot: u64 = senders.iter().map(|l| l.counters().sent_hot).sum();
    assert!(hot > 0);
}

#[test]
fn a_link_that_is_dropped_gives_its_lanes_back() {
    let (a, b) = pair(0);
    assert_eq!(a.try_send(Slot(1), 0, 1, b"last words").unwrap(), Push::Sent);
    let node = a.node().clone();
    drop(a);
    assert_eq!(receive_all(&b), [(0, 1, b"last words".to_vec())]);
    assert_eq!((owned_lanes(&b), b.counters().reclaims), (0, 1));
    drop(node);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let (a, _b) = pair(0);
    for refused in [
        a.try_send(Slot(2), 0, 0, &[]),
        a.try_send(Slot(1), KINDS, 0, &[]),
        a.try_send(Slot(1), 0, 1 << 40, &[]),
        a.try_send(Slot(1), 0, 0, &[0; MAX_MESSAGE + 1]),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    assert_eq!(a.try_send(Slot(1), 0, 0, &[0; MAX_MESSAGE]).unwrap(), Push::Sent);
    assert_eq!(a.try_send(Slot(0), 9, 8, b"myself").unwrap(), Push::Sent);
    assert_eq!(receive_all(&a), [(0, 8, b"myself".to_vec())]);
}

#[test]
fn a_damaged_control_message_is_an_error() {
    let (a, b) = pair(u32::MAX);
    let at = b.node().areas().inbox(Slot(1));
    let inbox: SharedRef<InboxMemory> = SharedRef::new(a.node().mapping(), at).unwrap();
    let lane = a.node().areas().lane(Slot(1), 0);
    a.node().reserve(Offset(lane.0), 4096, "a test").unwrap();
    let switch = Label::new(control::SWITCH, 0).unwrap();
    let mut sender = crate::shm::ring::inbox::InboxSender::default();
    assert_eq!(sender.try_send(&inbox, Slot(0), switch, &[]).unwrap(), Push::Sent);
    assert!(matches!(b.poll(|_| ()), Err(Error::Incompatible { .. })));
}

#[test]
fn who_waits_for_a_lane_that_always_has_something_hears_the_others_too() {
    let links = links(3, 1000);
    let links: Vec<Link> = links.into_iter().flatten().collect();
    let [receiver, steady, seldom] = &links[..] else { panic!("three of them") };
    assert!(steady.promote(Slot(0)).unwrap());
    let (mut from_steady, mut waits) = (0, Vec::new());
    for round in 0..8 {
        assert_eq!(seldom.try_send(Slot(0), 2, round, b"seldom").unwrap(), Push::Sent);
        let (mut heard, mut waited) = (false, 0);
        while !heard {
            assert_eq!(steady.try_send(Slot(0), 1, 0, &[7; 100]).unwrap(), Push::Sent);
            waited += 1;
            assert!(waited < 100, "round {round} after {waits:?}");
            let mut on_message = |m: Message<'_>| match m.from {
                Slot(1) => from_steady += 1,
                from => {
                    assert_eq!((from, m.kind, m.imm, m.bytes), (Slot(2), 2, round, &b"seldom"[..]));
                    heard = true;
                }
            };
            let deadline = Deadline::after(Duration::from_secs(10));
            receiver.recv_wait(deadline, || Ok(()), &mut on_message).unwrap();
        }
        waits.push(waited);
    }
    // It was the lane alone that was looked into for most of the time.
    assert!(waits.iter().any(|waited| *waited > 30), "{waits:?}");
    let sent: i32 = waits.iter().sum();
    receiver.poll(|m| from_steady += i32::from(m.from == Slot(1))).unwrap();
    assert_eq!(from_steady, sent, "all that was sent has come once");
}

#[test]
fn a_wait_that_finds_messages_of_the_library_alone_looks_at_all_before_it_sleeps() {
    let links = links(3, 1000);
    let links: Vec<Link> = links.into_iter().flatten().collect();
    let [receiver, hot, other] = &links[..] else { panic!("three of them") };
    assert!(hot.promote(Slot(0)).unwrap());
    for _ in 0..4 {
        assert_eq!(hot.try_send(Slot(0), 0, 0, b"program").unwrap(), Push::Sent);
        assert_eq!(receiver.poll(|_| ()).unwrap(), 1);
    }
    // The first of a lane that is trusted is nobody's business here; the program's comes another way.
    let library = Label::new(KINDS, 0).unwrap();
    assert_eq!(hot.wire().try_send(Slot(0), library, &b"library"[..]).unwrap(), Push::Sent);
    assert_eq!(other.try_send(Slot(0), 3, 0, b"program").unwrap(), Push::Sent);
    let mut kinds = Vec::new();
    let polled = receiver.wire().poll_waiting(&mut |m: Message<'_>| kinds.push((m.from, m.kind)));
    assert_eq!((polled.unwrap(), kinds), (1, vec![(Slot(2), 3)]));
}

#[test]
fn who_waits_takes_what_follows_too_and_a_callback_that_polls_gets_nothing() {
    let (a, b) = pair(0);
    let mut next = 0;
    let send = |count: u64| {
        for i in 0..count {
            assert_eq!(a.try_send(Slot(1), 0, i, &payload(i)).unwrap(), Push::Sent);
        }
    };
    for _ in 0..10 {
        send(1);
        assert_eq!(b.wire().poll_waiting(&mut |_: Message<'_>| ()).unwrap(), 1, "trusted by now");
    }
    send(16);
    let mut polls = 0;
    while next < 16 {
        polls += 1;
        let taken = b.wire().poll_waiting(&mut |m: Message<'_>| {
            assert_eq!((m.imm, m.bytes), (next, &payload(next)[..]));
            next += 1;
            assert_eq!(b.poll(|_| panic!("a message inside of another")).unwrap(), 0);
        });
        assert!(taken.unwrap() > 0);
    }
    assert!(polls < 8, "{polls} polls");
    assert_eq!(b.wire().poll_waiting(&mut |_: Message<'_>| ()).unwrap(), 0);
}
