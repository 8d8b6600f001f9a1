//! What only the simulator has: virtual time, determinism, many ranks.

use super::{Network, Parameters};
use crate::net::memory::Memory;
use crate::net::provider::*;
use std::sync::Arc;
use std::time::Duration;

struct Rank {
    channel: Arc<dyn Channel>,
    queue: Arc<dyn CompletionQueue>,
    memory: Memory,
    region: Region,
    ud: Arc<dyn UdQueuePair>,
}

fn rank(network: &Arc<Network>) -> Rank {
    let device = network.device(1);
    let channel = device.channel().unwrap();
    let queue = device.completion_queue(64, Some(&channel)).unwrap();
    let queues = Queues {
        send: &queue,
        receive: &queue,
        send_depth: 8,
        receive_depth: 8,
        pieces: 1,
        inline: 64,
        shared: None,
    };
    let ud = device.ud(&queues).unwrap();
    let memory = Memory::zeroed(256).unwrap();
    let region = device.register(&memory, Access::ALL).unwrap();
    let piece = region.local(0, 128).unwrap();
    for id in 0..2 {
        ud.receive(&[Receive { id, pieces: &[piece] }]).unwrap();
    }
    Rank { channel, queue, memory, region, ud }
}

/// A token goes round `size` ranks `rounds` times; when it was where.
fn ring(parameters: Parameters, size: usize, rounds: usize) -> Vec<(u64, u64)> {
    let network = Network::new(parameters);
    let ranks: Vec<Rank> = (0..size).map(|_| rank(&network)).collect();
    let peers: Vec<Peer> = (0..size)
        .map(|i| ranks[i].ud.open_peer(&ranks[(i + 1) % size].ud.address()).unwrap())
        .collect();
    let mut times = Vec::new();
    let send = |i: usize, token: u64| {
        let (bytes, signalled) = (token.to_le_bytes(), false);
        let data = Data::Inline(&[&bytes]);
        let (to, immediate) = (peers[i], None);
        let datagram = Datagram { id: 0, to, data, immediate, signalled, solicited: false };
        ranks[i].ud.send(&[datagram]).unwrap();
    };
    send(0, 0);
    for hop in 1..=size * rounds {
        let rank = &ranks[hop % size];
        rank.queue.arm(Arm::Any).unwrap();
        let mut got = [Completion::NONE];
        while rank.queue.poll(&mut got) == 0 {
            assert_ne!(rank.channel.wait(Time::NEVER), Woken::Elapsed, "the token is lost");
            rank.queue.arm(Arm::Any).unwrap();
        }
        let mut token = [0; 8];
        assert!(rank.memory.read(parameters.datagram_prefix.into(), &mut token));
        assert_eq!(u64::from_le_bytes(token), hop as u64 - 1);
        times.push((network.now().0, got[0].id));
        let piece = rank.region.local(0, 128).unwrap();
        rank.ud.receive(&[Receive { id: got[0].id, pieces: &[piece] }]).unwrap();
        send(hop % size, hop as u64);
    }
    times
}

fn parameters(seed: u64) -> Parameters {
    let (datagram, jitter) = (64, Duration::from_micros(5));
    Parameters { seed, datagram, jitter, ..Parameters::default() }
}

#[test]
fn thousands_of_ranks_run_in_one_thread() {
    assert_eq!(ring(parameters(1), 5000, 2).len(), 10_000);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let once = ring(parameters(3), 50, 4);
    assert_eq!(ring(parameters(3), 50, 4), once);
    assert_ne!(ring(parameters(4), 50, 4), once);
}

#[test]
fn time_is_latency_plus_bytes_over_bandwidth() {
    let parameters = Parameters {
        latency: Duration::from_micros(10),
        bandwidth: 1_000_000,
        datagram: 64,
        ..Parameters::default()
    };
    // 8 bytes and 24 of header at a byte a microsecond, and the latency, at each hop.
    let times = ring(parameters, 4, 1);
    let hops: Vec<u64> = times.iter().map(|(time, _)| time - 1).collect();
    assert_eq!(hops, [42_000, 84_000, 126_000, 168_000]);
}

#[test]
fn a_wait_for_what_can_never_come_ends() {
    let network = Network::new(parameters(1));
    let rank = rank(&network);
    rank.queue.arm(Arm::Any).unwrap();
    assert_eq!(rank.channel.wait(Time::NEVER), Woken::Elapsed);
}
