//! Datagrams.

use super::lab::*;
use super::{Lab, Node};
use crate::net::provider::*;
use std::sync::Arc;

/// A receive of a datagram queue pair has this many bytes.
fn slot(node: &Node) -> u32 {
    let capabilities = node.device.capabilities();
    capabilities.datagram + capabilities.datagram_prefix
}

/// Posts one for `id` at the place of that number.
fn receive(node: &Node, ud: &Arc<dyn UdQueuePair>, id: u64) {
    let at = 256 + id * (1 << 16 >> 3);
    let length = slot(node).min(1 << 13);
    ud.receive(&[Receive { id, pieces: &[node.local(at, length)] }]).unwrap();
}

fn payload(node: &Node, done: &Completion) -> Vec<u8> {
    let prefix = u64::from(node.device.capabilities().datagram_prefix);
    node.bytes(256 + done.id * (1 << 16 >> 3) + prefix, done.length as usize)
}

fn datagram<'a>(id: u64, to: Peer, parts: &'a [&'a [u8]]) -> Datagram<'a> {
    let data = Data::Inline(parts);
    Datagram { id, to, data, immediate: None, signalled: true, solicited: false }
}

pub fn they_arrive_with_the_senders_address(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let (one, other) = (a.ud(), b.ud());
    receive(&b, &other, 1);
    let to = one.open_peer(&other.address()).unwrap();
    let hello = Datagram { immediate: Some(5), ..datagram(7, to, &[b"hel", b"lo"]) };
    one.send(&[hello]).unwrap();
    let got = b.expect(1, Status::Success);
    assert_eq!((got.length, got.immediate, got.opcode), (5, Some(5), Opcode::Receive));
    assert_eq!(got.source, one.address());
    assert_eq!((got.queue_pair, payload(&b, &got)), (other.number(), b"hello".to_vec()));
    let sent = a.expect(7, Status::Success);
    assert_eq!((sent.opcode, sent.queue_pair), (Opcode::Send, one.number()));
    one.send(&[Datagram { signalled: false, ..datagram(8, to, &[]) }]).unwrap();
    a.quiet();
}

pub fn the_sender_can_be_answered(lab: &dyn Lab) {
    let nodes: Vec<Node> = (0..4).map(|_| Node::new(lab.device())).collect();
    let uds: Vec<_> = nodes.iter().map(Node::ud).collect();
    (1..4).for_each(|id| receive(&nodes[0], &uds[0], id));
    for i in 1..4 {
        receive(&nodes[i], &uds[i], 0);
        let to = uds[i].open_peer(&uds[0].address()).unwrap();
        uds[i].send(&[datagram(9, to, &[&[i as u8]])]).unwrap();
        nodes[i].expect(9, Status::Success);
    }
    for _ in 1..4 {
        let got = nodes[0].next();
        let who = usize::from(payload(&nodes[0], &got)[0]);
        assert_eq!(got.source, uds[who].address());
        let back = uds[0].open_peer(&got.source).unwrap();
        let answer = Datagram { signalled: false, ..datagram(0, back, &[b"answer"]) };
        uds[0].send(&[answer]).unwrap();
        uds[0].close_peer(back);
    }
    for node in &nodes[1..] {
        let got = node.expect(0, Status::Success);
        assert_eq!((got.source, payload(node, &got)), (uds[0].address(), b"answer".to_vec()));
    }
}

pub fn what_nobody_waits_for_is_dropped(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let (one, other) = (a.ud(), b.ud());
    let to = one.open_peer(&other.address()).unwrap();
    one.send(&[datagram(1, to, &[b"nobody"])]).unwrap();
    a.expect(1, Status::Success);
    if lab.tells_all() {
        b.until(|| b.device.counters().unwanted == 1);
    } else {
        b.quiet();
    }
    receive(&b, &other, 1);
    b.quiet();
    one.send(&[datagram(2, to, &[b"somebody"])]).unwrap();
    assert_eq!(payload(&b, &b.expect(1, Status::Success)), b"somebody");
    drop(other);
    one.send(&[datagram(3, to, &[b"gone"])]).unwrap();
    a.expect(2, Status::Success);
    a.expect(3, Status::Success);
}

pub fn closed_peers_are_unknown(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    let one = a.ud();
    let to = one.open_peer(&one.address()).unwrap();
    receive(&a, &one, 1);
    one.send(&[Datagram { signalled: false, ..datagram(1, to, &[b"me"]) }]).unwrap();
    assert_eq!(a.expect(1, Status::Success).source, one.address());
    one.close_peer(to);
    one.close_peer(to);
    let refused = one.send(&[datagram(2, to, &[b"me"])]).unwrap_err();
    assert_eq!((refused.posted, refused.why), (0, PostError::UnknownPeer));
    let again = one.open_peer(&one.address()).unwrap();
    assert_ne!(again, to);
    assert_eq!(one.send(&[datagram(2, to, &[])]).unwrap_err().why, PostError::UnknownPeer);
}

pub fn from_pieces_and_inline(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let (one, other) = (a.ud(), b.ud());
    let to = one.open_peer(&other.address()).unwrap();
    let longest = a.device.capabilities().datagram;
    let bytes = pattern(8, longest as usize);
    a.fill(0, &bytes);
    receive(&b, &other, 2);
    let pieces = [a.local(0, 3), a.local(3, longest - 3)];
    let data = Data::Pieces(&pieces);
    one.send(&[Datagram { data, ..datagram(1, to, &[]) }]).unwrap();
    assert_eq!(payload(&b, &b.expect(2, Status::Success)), bytes);
    a.expect(1, Status::Success);
    let wrong = [Local { key: 0, ..pieces[0] }];
    one.send(&[Datagram { data: Data::Pieces(&wrong), ..datagram(3, to, &[]) }]).unwrap();
    a.expect(3, Status::LocalProtection);
    b.quiet();
}

pub fn shared_receives_serve_datagrams(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    let queue = b.device.shared_receive_queue(4, 1).unwrap();
    let queues = Queues { shared: Some(&queue), ..b.queues() };
    let (one, others) = (a.ud(), [(); 2].map(|()| b.device.ud(&queues).unwrap()));
    for id in 1..3 {
        let piece = b.local(256 + id * 8192, slot(&b).min(8192));
        queue.post(&[Receive { id, pieces: &[piece] }]).unwrap();
    }
    queue.post(&[Receive { id: 3, pieces: &[b.local(0, 2)] }]).unwrap();
    for (other, id) in others.iter().chain(&others[..1]).zip(1..) {
        let to = one.open_peer(&other.address()).unwrap();
        one.send(&[datagram(id, to, &[b"shared"])]).unwrap();
        a.expect(id, Status::Success);
        let status = if id == 3 { Status::LocalLength } else { Status::Success };
        assert_eq!(b.expect(id, status).queue_pair, other.number());
    }
}

pub fn strangers_are_dropped_and_counted(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.stranger()), Node::new(lab.device()));
    let (one, other) = (a.ud(), b.ud());
    receive(&b, &other, 1);
    let to = one.open_peer(&other.address()).unwrap();
    one.send(&[datagram(1, to, &[b"let me in"])]).unwrap();
    b.until(|| b.device.counters().strangers >= 1);
    let (mine, theirs) = (a.rc_with(&impatient()), b.rc());
    connect(&*mine, &*theirs);
    a.expect(1, Status::Success);
    mine.post(&[write(2, &[a.local(0, 8)], b.at(0))]).unwrap();
    a.expect(2, Status::RetryExceeded);
    b.until(|| b.device.counters().strangers >= 2);
    b.quiet();
}
