//! What reliability costs, in datagrams and in the network's time.

use super::world::*;
use crate::net::ud::*;

/// Datagrams needed per datagram sent, and the time needed per time taken, for `count` messages of
/// a datagram each, over a network that sends one datagram per microsecond.
fn share(seed: u64, loss: u64, jitter: u64, latency: u64) -> (f64, f64, Counters) {
    let count = 20_000;
    let faults = Faults { loss, jitter, latency, gap: US, ..Faults::NONE };
    let mut world = World::new(seed, faults, |_| {});
    world.processes[0].queue.extend(vec![200; count]);
    world.settle(10_000 * MS);
    assert_eq!(world.processes[1].host.came.len(), count);
    let needed = count as f64;
    let datagrams = needed / world.datagrams as f64;
    let time = needed * US as f64 / world.now as f64;
    (datagrams, time, world.processes[0].shared.counters.clone())
}

#[test]
fn nearly_all_datagrams_are_needed_without_loss() {
    let (datagrams, time, counters) = share(1, 0, 0, 10 * US);
    assert!(datagrams >= 0.9, "{datagrams}");
    assert!(time >= 0.9, "{time}");
    assert_eq!((counters.resent, counters.timeouts, counters.spurious), (0, 0, 0));
}

#[test]
fn one_lost_of_a_hundred_costs_little() {
    for seed in 0..3 {
        let (datagrams, time, counters) = share(seed, 10, 0, 10 * US);
        assert!(datagrams >= 0.85, "{datagrams}: {counters:?}");
        assert!(time >= 0.7, "{time}: {counters:?}");
        // Lost datagrams are found by those behind them, not by waiting.
        assert!(counters.timeouts < 30, "{counters:?}");
    }
}

#[test]
fn one_lost_of_five_still_gets_through() {
    let (datagrams, time, counters) = share(3, 200, 0, 10 * US);
    assert!(datagrams >= 0.5, "{datagrams}: {counters:?}");
    assert!(time >= 0.1, "{time}: {counters:?}");
}

#[test]
fn what_comes_out_of_order_is_not_taken_for_lost_for_long() {
    let (datagrams, time, counters) = share(3, 0, 8 * US, 10 * US);
    assert!(datagrams >= 0.6, "{datagrams}: {counters:?}");
    assert!(time >= 0.6, "{time}: {counters:?}");
    assert!(counters.resent < 1_000, "{counters:?}");
}

#[test]
fn connections_that_are_idle_are_small() {
    assert!(size_of::<Peer>() <= 256, "{}", size_of::<Peer>());
    let mut world = World::new(3, Faults { loss: 100, ..Faults::NONE }, |_| {});
    world.processes[0].queue.extend([300; 100]);
    world.settle(1000 * MS);
    assert!(world.processes.iter().any(|process| process.peer.bytes() > size_of::<Peer>()));
    world.check_idle();
    let buffers = world.processes[0].shared.buffers().bytes();
    assert!(buffers <= 128 * 264 + 4 * 128, "{buffers}");
}
