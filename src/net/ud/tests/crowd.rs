//! Many processes that all talk to all, with less memory than they could use.

use super::world::{COOKIE, Faults, Flight, MS, Random, US, check, message};
use crate::net::ud::*;
use crate::net::wire::Header;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Host {
    /// Messages that came, by peer.
    came: Vec<u64>,
    opened: usize,
}

impl Upper for Host {
    fn message(&mut self, peer: u32, channel: u8, bytes: &[u8]) -> Verdict {
        assert_eq!(u32::from(channel), peer);
        assert_eq!(check(channel, bytes), self.came[peer as usize]);
        self.came[peer as usize] += 1;
        Verdict::Taken
    }

    fn event(&mut self, _peer: u32, event: Event) {
        assert_eq!(event, Event::Opened);
        self.opened += 1;
    }
}

struct Process {
    shared: Shared,
    peers: Vec<Peer>,
    host: Host,
    begun: Vec<u64>,
}

/// `count` messages from each to each, some of them of many pieces.
fn all_to_all(size: u32, count: u64, faults: Faults, change: impl Fn(&mut Config)) -> Vec<Process> {
    let mut processes: Vec<Process> = (0..size)
        .map(|me| {
            let mut config = Config { me, size, ..super::world::config(0) };
            change(&mut config);
            let peers = (0..size).map(|id| Peer::new(id, &config, 0)).collect();
            let host = Host { came: vec![0; size as usize], opened: 0 };
            let shared = Shared::new(config).unwrap();
            Process { shared, peers, host, begun: vec![0; size as usize] }
        })
        .collect();
    let mut random = Random::new(u64::from(size));
    let mut flights: BinaryHeap<Flight> = BinaryHeap::new();
    let (mut now, mut datagrams) = (0, 0);
    loop {
        let mut done = true;
        for (me, process) in processes.iter_mut().enumerate() {
            let Process { shared, peers, host, begun } = process;
            for (id, peer) in peers.iter_mut().enumerate().filter(|(id, _)| *id != me) {
                peer.tick(shared, now, host);
                while begun[id] < count {
                    let number = begun[id];
                    let length = if number % 5 == 0 { 3000 } else { 100 };
                    let bytes = message(me as u8, number, length);
                    let sent = match peer.send(shared, me as u8, &[&bytes], now) {
                        Err(Refused::Unfinished) => peer.resume(shared, &[&bytes], now),
                        sent => sent,
                    };
                    match sent {
                        Ok(Sent::Whole(_)) => begun[id] += 1,
                        Ok(Sent::Part) | Err(Refused::Full) => break,
                        Err(refused) => panic!("{refused:?}"),
                    }
                }
                peer.transmit(shared, now, &mut |bytes| {
                    if !random.chance(faults.loss) {
                        let arrives = now + faults.latency + random.below(faults.jitter + 1);
                        flights.push(Reverse((arrives, datagrams, id, bytes.to_vec())));
                    }
                    datagrams += 1;
                    true
                });
                done &= begun[id] == count && peer.is_drained();
            }
            assert!(shared.assembling() <= shared.config().assembling);
            assert!(shared.buffers().used() <= shared.config().buffers + size);
        }
        if done {
            return processes;
        }
        assert!(now < 60_000 * MS, "stuck");
        // In steps, as a thread does that looks now and then.
        now += 50 * US;
        while flights.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, to, bytes))) = flights.pop() else { break };
            let (header, body) = Header::decode(&bytes, COOKIE).unwrap();
            let Process { shared, peers, host, .. } = &mut processes[to];
            peers[header.from as usize].receive(shared, &header, body, now, host);
        }
    }
}

fn check_all(processes: &[Process], count: u64) {
    for (me, process) in processes.iter().enumerate() {
        for (id, came) in process.host.came.iter().enumerate() {
            assert_eq!(*came, if id == me { 0 } else { count }, "{id} to {me}");
        }
        assert_eq!(process.host.opened, processes.len() - 1);
        assert_eq!(process.shared.assembling(), 0);
        assert_eq!(process.shared.counters.rejects.total(), 0);
    }
}

#[test]
fn processes_with_little_memory_get_through_all_the_same() {
    // Memory for one message in pieces at a time, and for the datagrams of one peer.
    let scarce = |config: &mut Config| {
        config.buffers = SPAN;
        config.assembling = 4000;
    };
    for (loss, jitter) in [(0, 0), (50, 300 * US)] {
        let faults = Faults { loss, jitter, ..Faults::NONE };
        let processes = all_to_all(6, 20, faults, scarce);
        check_all(&processes, 20);
        assert!(processes.iter().any(|process| process.shared.counters.starved > 0));
    }
}

#[test]
fn what_a_process_has_for_its_peers_is_what_they_use() {
    let processes = all_to_all(40, 3, Faults::NONE, |_| {});
    check_all(&processes, 3);
    for mut process in processes {
        let now = 10_000 * MS;
        for peer in &mut process.peers {
            peer.tick(&mut process.shared, now, &mut process.host);
            assert_eq!(peer.bytes(), size_of::<Peer>());
        }
        assert_eq!(process.shared.buffers().used(), 0);
    }
}
