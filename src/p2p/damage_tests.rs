//! What a peer says that makes no sense: every word of packets about thresholds and of messages in
//! pools, absurd and almost right. Nobody crashes, waits, or gets what was not sent.

use super::adapt::Class;
use super::matching::Pattern;
use super::record::{Buffer, Place};
use super::send::{Letter, Mode};
use super::wire::{self, Words};
use super::{Endpoint, MessageCounters};
use crate::base::{Deadline, Error, Slot};
use crate::link::Push;
use crate::shm::map::Mapping;
use crate::shm::node::Node;
use crate::shm::ring::Label;
use crate::shm::segment::Areas;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const CONTEXT: u32 = 1;

fn pair() -> [Endpoint; 2] {
    let fd = Node::create_memory(2, 1 << 21).unwrap();
    let length = Areas::new(2, 1 << 21).unwrap().length;
    let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
    [0, 1].map(|slot| {
        let fd = fd.try_clone().unwrap();
        Endpoint::of(&Node::attach_mapped(fd, Slot(slot), map.clone()).unwrap()).unwrap()
    })
}

/// Sends what rank 0's library would not, to rank 1, which looks at it.
fn say(ends: &[Endpoint; 2], label: Label, words: Words) {
    let sent = ends[0].wire().try_send(Slot(1), label, words.bytes()).unwrap();
    assert_eq!(sent, Push::Sent);
    let _ = ends[1].progress();
}

/// An ordinary message from rank 0 to rank 1.
fn hello(ends: &[Endpoint; 2]) -> Result<(), Error> {
    let letter = Letter { to: Slot(1), context: CONTEXT, rank: 0, tag: 7, element: 1 };
    ends[0].send(letter, b"hello", Mode::Standard, || Deadline::NEVER)?;
    let mut got = [0u8; 5];
    let pattern = Pattern { context: CONTEXT, source: Some(Slot(0)), tag: Some(7) };
    // SAFETY: the array outlives the call, which ends or gives the record up.
    let buffer = unsafe { Buffer::new(Place::flat(got.as_mut_ptr(), 5), 1, 1) };
    let deadline = || Deadline::after(Duration::from_secs(20));
    ends[1].receive(&pattern, buffer, deadline, "a test", || Ok(()))?;
    assert_eq!(&got, b"hello");
    Ok(())
}

fn senseless(end: &Endpoint) -> u64 {
    let MessageCounters { protocol_errors, .. } = end.counters();
    protocol_errors
}

/// Words that are almost right, at an edge, or anything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..8,
        Just(u64::MAX),
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
        // Packets: a kind, a class, who moves.
        (0u64..8, 0u64..24, 0u64..4)
            .prop_map(|(kind, class, moves)| kind | class << 8 | moves << 16),
        // Places: a class and a buffer.
        (8u64..24, 0u64..6).prop_map(|(class, buffer)| class << 32 | buffer),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

    /// Packets of a switch: whatever they say, messages go on.
    #[test]
    fn absurd_packets_stop_no_messages(all in prop::collection::vec((word(), word()), 1..20)) {
        let ends = pair();
        hello(&ends).unwrap();
        for (packet, pool) in all {
            say(&ends, Label::new(wire::SWITCH, 0).unwrap(), Words::new([packet, pool]));
        }
        prop_assert!(hello(&ends).is_ok());
        // What rank 0 is answered it did not ask for: that too is a packet that makes no sense.
        prop_assert!(ends[0].progress().is_ok());
        prop_assert!(senseless(&ends[0]) <= 1 && senseless(&ends[1]) <= 1);
    }

    /// Messages in buffers that there are not, or that are others': a typed error for the one who
    /// got it, for a message is lost; its sender is well.
    #[test]
    fn messages_in_absurd_places_are_errors(words in prop::array::uniform3(word()), lent: bool) {
        let ends = pair();
        hello(&ends).unwrap();
        let kind = if lent { wire::LENT } else { wire::POOL };
        let label = wire::label(kind, CONTEXT, 1).unwrap();
        say(&ends, label, Words::new(words));
        prop_assert_eq!(senseless(&ends[1]), 1);
        let damaged = ends[1].progress();
        prop_assert!(matches!(damaged, Err(Error::Incompatible { .. })), "{:?}", damaged);
        prop_assert!(ends[0].progress().is_ok());
    }
}

/// A packet that is whole but has no place is counted once, and the peer's later ones are ignored.
#[test]
fn a_peer_that_made_no_sense_is_not_listened_to() {
    let ends = pair();
    hello(&ends).unwrap();
    let packet = |kind: u64, class: u64| {
        say(&ends, Label::new(wire::SWITCH, 0).unwrap(), Words::new([kind | class << 8, 0]));
    };
    packet(9, 0);
    assert_eq!(senseless(&ends[1]), 1);
    let class = u64::from(Class::new(14).unwrap().exponent());
    packet(1, class);
    packet(77, 77);
    assert_eq!(senseless(&ends[1]), 1);
    assert_eq!(ends[1].counters().pool_buffers_made, 0, "a request of that peer was heard");
    hello(&ends).unwrap();
}

/// A buffer that is lent once is received from once, by the one to whom it is lent.
#[test]
fn what_is_not_lent_is_not_read() {
    let ends = pair();
    hello(&ends).unwrap();
    let data = vec![7u8; 5000];
    let letter = Letter { to: Slot(1), context: CONTEXT, rank: 0, tag: 7, element: 1 };
    ends[0].send(letter, &data, Mode::Standard, || Deadline::NEVER).unwrap();
    assert_eq!(ends[0].counters().lent, 1);
    let lending = &ends[0].messenger.lending;
    let (at, _) = lending.out().pop().unwrap();
    let say_of = |len| {
        let label = wire::label(wire::LENT, CONTEXT, 1).unwrap();
        say(&ends, label, Words::new([wire::head(0, 7), len, at]));
    };
    ends[1].progress().unwrap();
    assert_eq!(senseless(&ends[1]), 0);
    say_of(u64::MAX - 7);
    assert_eq!(senseless(&ends[1]), 1, "no buffer is so long");
    let node = &ends[1].node;
    super::borrow::Borrow::of(node, at, 0).unwrap().give_back(node);
    say_of(100);
    assert_eq!(senseless(&ends[1]), 2, "it was given back");
}

/// Payloads of other lengths.
#[test]
fn cut_packets_are_errors() {
    for kind in [wire::SWITCH, wire::POOL, wire::LENT, wire::ADVERT, wire::FULFILLED, wire::RTS] {
        let ends = pair();
        hello(&ends).unwrap();
        say(&ends, wire::label(kind, CONTEXT, 1).unwrap(), Words::new([1, 2, 3, 4]));
        assert_eq!(senseless(&ends[1]), 1, "{kind}");
        assert!(matches!(ends[1].progress(), Err(Error::Incompatible { .. })), "{kind}");
    }
}
