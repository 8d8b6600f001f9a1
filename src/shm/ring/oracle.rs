//! Property tests of both rings against a queue of the same capacity, and attempts to deceive
//! them with damaged memory.

use super::cell::{MOST_REPEATS, SHARED_BYTES, cells_for};
use super::inbox::{InboxMemory, InboxReceiver, InboxSender, dying};
use super::lane::{LANE_CELLS, LaneMemory, SHORT_CELLS};
use super::lane_receiver::{LaneReceiver, One, Taker};
use super::lane_sender::{LanePush, LaneSender};
use super::{
    FIRST_BYTES, Headed, InPlace, Label, MAX_MESSAGE, Polled, Push, SEVERAL_BYTES, Scratch,
};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Slot};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Message contents that differ from byte to byte and from message to message.
fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (seed.wrapping_mul(0x9e37_79b9) >> 7).wrapping_add(i * 31) as u8)
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Send { producer: u16, len: usize },
    Receive,
    Die { how: usize, cells: usize },
}

fn steps(max_len: usize, deaths: bool) -> impl Strategy<Value = Vec<Step>> {
    // Often the same, so that messages repeat what others begin with.
    let same = prop_oneof![Just(8usize), Just(16), Just(13), Just(24)];
    let len = prop_oneof![0..60usize, 0..=max_len, same];
    let send = (1..4u16, len).prop_map(|(producer, len)| Step::Send { producer, len });
    let die = (0..3usize, 1..=3usize).prop_map(|(how, cells)| Step::Die { how, cells });
    let weight = if deaths { 1 } else { 0 };
    let count = if cfg!(miri) { 60 } else { 600 };
    prop::collection::vec(prop_oneof![6 => send, 5 => Just(Step::Receive), weight => die], 1..count)
}

fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

type Queue = VecDeque<(u16, u64, Vec<u8>)>;

fn expect(found: Polled<'_>, oracle: &mut Queue) -> Result<(), TestCaseError> {
    match (found, oracle.pop_front()) {
        (Polled::Empty, None) => {}
        (Polled::Message(m), Some((from, seed, bytes))) => {
            prop_assert_eq!(m.from, Slot(from));
            prop_assert_eq!(m.label, Label::new(from as u8, seed).unwrap());
            prop_assert_eq!(m.bytes, &bytes[..]);
        }
        (found, want) => prop_assert!(false, "found {:?}, want {:?}", found, want),
    }
    Ok(())
}

/// What may still come to the cell of a lane's last message.
#[derive(Debug)]
struct LastCell {
    /// What the first message was: its group, and its length.
    first: (u64, usize),
    /// How many have come to it.
    repeats: usize,
}

impl LastCell {
    /// Whether a message takes no cell of its own.
    fn takes(&self, group: u64, len: usize, headed: bool) -> bool {
        headed && self.first == (group, len) && self.repeats < MOST_REPEATS
    }

    /// Once a message was sent, to this cell or to others.
    fn after(
        last: Option<LastCell>,
        added: bool,
        group: u64,
        len: usize,
        headed: bool,
    ) -> Option<LastCell> {
        match last {
            Some(LastCell { first, repeats }) if added => {
                Some(LastCell { first, repeats: repeats + 1 })
            }
            _ if len > SHARED_BYTES || !headed => None,
            _ => Some(LastCell { first: (group, len), repeats: 0 }),
        }
    }
}

/// Who looks more than once.
struct Looking<'t, T> {
    taker: &'t mut T,
    looks: u32,
}

impl<T: FnMut(&dyn InPlace) -> bool> Taker for Looking<'_, T> {
    fn takes(&mut self, message: impl InPlace) -> bool {
        (self.taker)(&message)
    }

    fn looks(&self) -> u32 {
        self.looks
    }
}

/// A look at one message, which takes it or not, by the seed: whether it did.
fn take_one<const N: usize, const S: usize>(
    receiver: &mut LaneReceiver,
    lane: &LaneMemory<N, S>,
    seed: u64,
    oracle: &mut Queue,
) -> Result<bool, TestCaseError> {
    let mut seen = None;
    let several = (seed / 2).is_multiple_of(2);
    let mut taker = |m: &dyn InPlace| {
        let bytes = m.headed().map(|(head, behind)| {
            let mut bytes = head.to_ne_bytes().to_vec();
            bytes.resize(8 + behind, 0);
            // SAFETY: there is a head, and room for as many bytes as are behind it.
            assert!(unsafe { m.copy_behind_head(bytes[8..].as_mut_ptr()) });
            bytes
        });
        assert_eq!(m.size(), bytes.as_ref().map_or(m.size(), Vec::len));
        seen = Some((m.label(), bytes));
        !seed.is_multiple_of(2)
    };
    let looks = (seed / 4 % 4) as u32;
    prop_assert_eq!(receiver.has_next(lane), !oracle.is_empty());
    prop_assert_eq!(receiver.watch(lane, looks), !oracle.is_empty());
    let mut taker = Looking { taker: &mut taker, looks };
    let one = match several {
        true => receiver.take_several(lane, &mut taker),
        false => receiver.take_one(lane, &mut taker),
    };
    let next = oracle.front();
    prop_assert_eq!(one == One::Nothing, next.is_none());
    // Only what is in one cell is shown, and all of that; or only what is in several, and some of that.
    let in_one = next.filter(|next| match several {
        true => next.2.len() > FIRST_BYTES && next.2.len() <= SEVERAL_BYTES && seen.is_some(),
        false => next.2.len() <= FIRST_BYTES,
    });
    prop_assert_eq!(seen.is_some(), in_one.is_some());
    if let (Some((label, bytes)), Some((_, number, want))) = (seen, in_one) {
        prop_assert_eq!(label, Label::new(1, *number).unwrap());
        prop_assert_eq!(bytes.as_ref(), Some(want).filter(|want| want.len() >= 8));
    }
    prop_assert_eq!(one == One::Taken, in_one.is_some() && !seed.is_multiple_of(2));
    if one == One::Taken {
        oracle.pop_front();
    }
    Ok(one == One::Taken)
}

proptest! {
    #![proptest_config(cases())]

    /// 13 cells: laps end in the middle of messages. The dead owner is slot 9.
    #[test]
    fn an_inbox_is_a_queue_even_if_producers_die(steps in steps(48 + 5 * 56, true)) {
        const N: usize = 13;
        let inbox = InboxMemory::<N>::new();
        let mut senders = [InboxSender::default(); 4];
        let mut receiver = InboxReceiver::new();
        let mut scratch = Scratch::new();
        let mut oracle = Queue::new();
        let (mut used, mut claims, mut died) = (0usize, VecDeque::new(), 0);
        for (seed, step) in steps.into_iter().enumerate() {
            let seed = seed as u64;
            match step {
                Step::Send { producer, len } => {
                    let bytes = content(seed, len);
                    let label = Label::new(producer as u8, seed).unwrap();
                    let sender = &mut senders[producer as usize];
                    let push = sender.try_send(&inbox, Slot(producer), label, &bytes).unwrap();
                    let fits = used + cells_for(len) <= N;
                    prop_assert_eq!(push, if fits { Push::Sent } else { Push::Full });
                    if fits {
                        used += cells_for(len);
                        claims.push_back((cells_for(len), false));
                        oracle.push_back((producer, seed, bytes));
                    }
                }
                Step::Receive => {
                    let found = receiver.poll(&inbox, &mut scratch, |s| s == Slot(9)).unwrap();
                    let message = matches!(found, Polled::Message(_));
                    expect(found, &mut oracle)?;
                    while let Some((cells, dead)) = claims.pop_front() {
                        used -= cells;
                        if dead { died += 1 } else { break }
                    }
                    prop_assert!(message || used == 0);
                    prop_assert_eq!(receiver.skipped(), died);
                }
                Step::Die { how, cells } => {
                    let die = [dying::after_claim::<N>, dying::after_tail, dying::before_commit][how];
                    // A death right after a claim that nobody has helped along is met by the
                    // next producer only; so let one meet it now and then.
                    if die(&inbox, Slot(9), cells) {
                        used += cells;
                        claims.push_back((cells, true));
                    }
                }
            }
        }
    }

    #[test]
    fn a_lane_is_a_queue(steps in steps(48 + 5 * 56, false)) {
        const N: usize = 13;
        let lane = LaneMemory::<N, N>::new();
        let mut sender = LaneSender::open(&lane, Slot(1)).unwrap();
        let mut receiver = LaneReceiver::open(&lane, sender.generation().low_bits()).unwrap();
        let sending = AtomicU32::new(0);
        let mut scratch = Scratch::new();
        let mut oracle = Queue::new();
        let mut used = VecDeque::new();
        let (mut last, mut held) = (None::<LastCell>, 0);
        for (seed, step) in steps.into_iter().enumerate() {
            prop_assert_eq!(receiver.is_empty(&lane), oracle.is_empty());
            let seed = seed as u64;
            match step {
                Step::Send { len, .. } => {
                    // Eight in a row share label and first word, if they are as long.
                    let group = seed / 8;
                    let mut bytes = content(seed, len);
                    let first = len.min(8);
                    bytes[..first].copy_from_slice(&content(group, first));
                    let label = Label::new(1, group).unwrap();
                    let room = |cells: usize| held + used.iter().sum::<usize>() + cells <= N;
                    let adds = |last: &Option<LastCell>, headed: bool| {
                        last.as_ref().is_some_and(|last| last.takes(group, len, headed))
                    };
                    // Some the short way, which may leave it to the other one even if there is room.
                    let headed = !seed.is_multiple_of(3) && len >= 8;
                    let short = headed && {
                        let (head, rest) = bytes.split_first_chunk::<8>().unwrap();
                        let payload = Headed(u64::from_ne_bytes(*head), rest);
                        match len {
                            0..=FIRST_BYTES => {
                                sender.try_one_guarded(&lane, &sending, label, payload)
                            }
                            _ => sender.try_several_guarded(&lane, &sending, label, payload),
                        }
                    };
                    prop_assert_eq!(sending.load(Ordering::Relaxed), 0);
                    let added = adds(&last, short);
                    prop_assert!(short || !headed || !adds(&last, true));
                    let cells = if added { 0 } else { cells_for(len) };
                    let fits = added || room(cells);
                    prop_assert!(!short || fits);
                    if !short {
                        let push = sender.try_send(&lane, label, &bytes).unwrap();
                        prop_assert_eq!(push, if fits { Push::Sent } else { Push::Full });
                    }
                    if fits {
                        used.push_back(cells);
                        oracle.push_back((1, group, bytes));
                        last = LastCell::after(last, added, group, len, short);
                    }
                }
                _ => {
                    let len = oracle.front().map(|(_, _, bytes)| bytes.len());
                    let short = !seed.is_multiple_of(3)
                        && take_one(&mut receiver, &lane, seed, &mut oracle)?;
                    if !short {
                        expect(receiver.poll(&lane, &mut scratch).unwrap(), &mut oracle)?;
                    }
                    // A cell that may get further messages is not free before the next one is looked at.
                    if let (Some(cells @ 1..), Some(len)) = (used.pop_front(), len) {
                        held = usize::from(cells == 1 && len <= SHARED_BYTES);
                    }
                }
            }
        }
    }

    /// As soon as a message finds no room, laps become longer, wherever the two sides are then.
    #[test]
    fn a_lane_that_grows_is_a_queue(steps in steps(48 + 5 * 56, false), refused in 0..4u32) {
        const N: usize = 61;
        const S: usize = 13;
        let lane = LaneMemory::<N, S>::new();
        let mut sender = LaneSender::open(&lane, Slot(1)).unwrap();
        let mut receiver = LaneReceiver::open(&lane, sender.generation().low_bits()).unwrap();
        let sending = AtomicU32::new(0);
        let mut scratch = Scratch::new();
        let mut oracle = Queue::new();
        let (mut used, mut most) = (VecDeque::new(), 0);
        for (seed, step) in steps.into_iter().enumerate() {
            let seed = seed as u64;
            match step {
                Step::Send { len, .. } => {
                    // Of a cell or more each, so that it is known how many are in use.
                    let len = len.max(SHARED_BYTES + 1);
                    let bytes = content(seed, len);
                    let label = Label::new(1, seed).unwrap();
                    let (head, rest) = bytes.split_first_chunk::<8>().unwrap();
                    let payload = Headed(u64::from_ne_bytes(*head), rest);
                    let sent = match seed % 3 {
                        0 if len <= FIRST_BYTES => {
                            sender.try_one_guarded(&lane, &sending, label, payload)
                        }
                        1 if len > FIRST_BYTES => {
                            sender.try_several_guarded(&lane, &sending, label, payload)
                        }
                        _ => {
                            let push = sender.try_push(&lane, label, payload).unwrap();
                            let full = used.iter().sum::<usize>() + cells_for(len) > S;
                            prop_assert!(push == Push::Sent || full);
                            push == Push::Sent
                        }
                    };
                    if sent {
                        used.push_back(cells_for(len));
                        oracle.push_back((1, seed, bytes));
                        most = most.max(used.iter().sum::<usize>());
                    }
                    if sender.wants_more() {
                        sender.grow(&lane, &sending, || refused != 0);
                        prop_assert!(!sender.wants_more());
                    }
                }
                _ => {
                    let short = !seed.is_multiple_of(3)
                        && take_one(&mut receiver, &lane, seed, &mut oracle)?;
                    if !short {
                        expect(receiver.poll(&lane, &mut scratch).unwrap(), &mut oracle)?;
                    }
                    used.pop_front();
                }
            }
            prop_assert_eq!(receiver.is_empty(&lane), oracle.is_empty());
            let all = if refused == 0 { S } else { N };
            prop_assert!(most <= all);
        }
        while !oracle.is_empty() {
            expect(receiver.poll(&lane, &mut scratch).unwrap(), &mut oracle)?;
        }
    }

    /// A lane goes through many hands at arbitrary places; what a producer left half-written and
    /// what older producers wrote is never taken for the present one's.
    #[test]
    fn a_lane_changes_hands_at_any_place(
        hands in prop::collection::vec((prop::collection::vec(0..300usize, 0..20), any::<bool>()), 1..30)
    ) {
        const N: usize = 13;
        let lane = LaneMemory::<N, N>::new();
        let sending = AtomicU32::new(0);
        let mut scratch = Scratch::new();
        let mut former: Option<LaneSender> = None;
        for (who, (lens, half_written)) in hands.into_iter().enumerate() {
            let me = Slot(who as u16 + 1);
            let mut sender = LaneSender::open(&lane, me).unwrap();
            let mut receiver = LaneReceiver::open(&lane, sender.generation().low_bits()).unwrap();
            for (i, len) in lens.into_iter().enumerate() {
                let bytes = content(i as u64, len);
                let label = Label::new(1, i as u64).unwrap();
                let push = sender.try_send_guarded(&lane, &sending, label, &bytes[..]).unwrap();
                prop_assert_eq!(push, LanePush::Sent);
                match receiver.poll(&lane, &mut scratch).unwrap() {
                    Polled::Message(m) => {
                        prop_assert_eq!(m.from, me);
                        prop_assert_eq!(m.bytes, &bytes[..]);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if half_written {
                sender.die_before_commit(&lane, 6);
            }
            receiver.revoke(&lane);
            prop_assert!(LaneReceiver::is_quiet(&sending));
            prop_assert!(matches!(receiver.poll(&lane, &mut scratch).unwrap(), Polled::Empty));
            receiver.close(&lane);
            let label = Label::new(0, 0).unwrap();
            for sender in former.iter_mut().chain([&mut sender]) {
                let push = sender.try_send_guarded(&lane, &sending, label, &[][..]).unwrap();
                prop_assert_eq!(push, LanePush::Revoked);
            }
            former = Some(sender);
        }
    }

    /// Whatever the control words and tags are overwritten with: an error or an odd message, but
    /// no panic, no endless loop, no access outside the ring.
    #[test]
    fn damaged_memory_is_an_error_not_a_crash(
        words in prop::collection::vec((0..40usize, any::<u64>(), any::<bool>()), 1..8),
        len in 0..300usize,
    ) {
        const N: usize = 13;
        let inbox = InboxMemory::<N>::new();
        let lane = LaneMemory::<N, N>::new();
        let mut lane_sender = LaneSender::open(&lane, Slot(1)).unwrap();
        let mut lane_receiver = LaneReceiver::open(&lane, lane_sender.generation().low_bits()).unwrap();
        let (mut sender, mut receiver) = (InboxSender::default(), InboxReceiver::new());
        let mut scratch = Scratch::new();
        let label = Label::new(3, 4).unwrap();
        let bytes = content(1, len);
        for (place, value, small) in words {
            let value = if small { value & 0x0000_0003_ffff_ffff } else { value };
            inbox.overwrite(place, value);
            lane.overwrite(place, value);
            for _ in 0..3 {
                let _ = sender.try_send(&inbox, Slot(1), label, &bytes);
                let _ = lane_sender.try_send(&lane, label, &bytes);
                let _ = lane_sender.try_push(&lane, label, Headed(5, &bytes[..len % 20]));
                let _ = receiver.poll(&inbox, &mut scratch, |_| true).map(|_| ());
                let mut taker = |m: &dyn InPlace| {
                    let mut there = [0u8; SEVERAL_BYTES];
                    let whole = m.headed().is_none_or(|(_, behind)| {
                        assert!(behind <= SEVERAL_BYTES - 8 && m.size() == behind + 8);
                        // SAFETY: there is a head, and room for as many bytes.
                        unsafe { m.copy_behind_head(there.as_mut_ptr()) }
                    });
                    whole && small
                };
                let _ = lane_receiver.has_next(&lane) | lane_receiver.watch(&lane, 1);
                let _ = lane_receiver.take_one(&lane, &mut taker);
                let _ = lane_receiver.take_several(&lane, &mut taker);
                let _ = lane_receiver.poll(&lane, &mut scratch).map(|_| ());
            }
        }
    }
}

#[test]
fn the_longest_message_fits_an_empty_ring_wherever_it_begins() {
    // Miri takes minutes to make long ones.
    const M: usize = if cfg!(miri) { SHORT_CELLS } else { super::inbox::INBOX_CELLS };
    const N: usize = if cfg!(miri) { SHORT_CELLS } else { LANE_CELLS };
    let inbox = Box::new(InboxMemory::<M>::new());
    let lane: Box<LaneMemory<N>> = Box::default();
    let mut lane_sender = LaneSender::open(&lane, Slot(1)).unwrap();
    let mut lane_receiver = LaneReceiver::open(&lane, lane_sender.generation().low_bits()).unwrap();
    let (mut sender, mut receiver) = (InboxSender::default(), InboxReceiver::new());
    let mut scratch = Scratch::new();
    let label = Label::new(0, 0).unwrap();
    let long = content(5, MAX_MESSAGE);
    let rounds = if cfg!(miri) { 3 } else { 3000 };
    for round in 0..rounds {
        let short = content(round, round as usize % 700);
        for bytes in [&short, &long] {
            assert_eq!(lane_sender.try_send(&lane, label, bytes).unwrap(), Push::Sent);
            assert_eq!(sender.try_send(&inbox, Slot(1), label, bytes).unwrap(), Push::Sent);
            match lane_receiver.poll(&lane, &mut scratch).unwrap() {
                Polled::Message(m) => assert_eq!(m.bytes, &bytes[..]),
                other => panic!("{other:?}"),
            }
            match receiver.poll(&inbox, &mut scratch, |_| false).unwrap() {
                Polled::Message(m) => assert_eq!(m.bytes, &bytes[..]),
                other => panic!("{other:?}"),
            }
        }
    }
    let too_long = vec![0; MAX_MESSAGE + 1];
    for error in [
        lane_sender.try_send(&lane, label, &too_long).unwrap_err(),
        sender.try_send(&inbox, Slot(1), label, &too_long).unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidArgument { .. }));
        assert!(error.to_string().contains(&MAX_MESSAGE.to_string()), "{error}");
    }
}

/// A lane that has grown holds all of its cells, and one that changes hands is short again.
#[test]
fn a_lane_grows_to_all_of_its_cells_until_it_changes_hands() {
    const N: usize = 61;
    const S: usize = 13;
    let lane = LaneMemory::<N, S>::new();
    let sending = AtomicU32::new(0);
    let mut scratch = Scratch::new();
    let label = Label::new(0, 0).unwrap();
    for me in 1..4 {
        let mut sender = LaneSender::open(&lane, Slot(me)).unwrap();
        let mut receiver = LaneReceiver::open(&lane, sender.generation().low_bits()).unwrap();
        let fill = |sender: &mut LaneSender| {
            let mut count = 0;
            while sender.try_send(&lane, label, &[1; FIRST_BYTES]).unwrap() == Push::Sent {
                count += 1;
            }
            count
        };
        let mut drain = |receiver: &mut LaneReceiver| {
            let mut count = 0;
            while let Polled::Message(m) = receiver.poll(&lane, &mut scratch).unwrap() {
                assert_eq!(m.from, Slot(me));
                count += 1;
            }
            count
        };
        assert_eq!((fill(&mut sender), drain(&mut receiver)), (S, S));
        assert!(sender.wants_more());
        sender.grow(&lane, &sending, || true);
        // The next lap has begun, and is a short one for the consumer, who has not come to it.
        let mut most = 0;
        for _ in 0..4 {
            let count = fill(&mut sender);
            assert_eq!(drain(&mut receiver), count);
            most = most.max(count);
        }
        assert!(most > N - N / 8 && most <= N, "{most}");
        receiver.revoke(&lane);
        assert!(LaneReceiver::is_quiet(&sending));
        receiver.close(&lane);
    }
}

#[test]
fn a_producer_that_stands_still_is_named_and_then_goes_on() {
    let inbox = InboxMemory::<13>::new();
    let mut receiver = InboxReceiver::new();
    let mut scratch = Scratch::new();
    assert!(dying::after_claim(&inbox, Slot(5), 2));
    let found = receiver.poll(&inbox, &mut scratch, |s| s == Slot(6)).unwrap();
    assert!(matches!(found, Polled::Unfinished(Slot(5))), "{found:?}");
    assert_eq!(receiver.skipped(), 0);
}

#[test]
fn producers_in_threads_lose_nothing() {
    const EACH: u64 = if cfg!(miri) { 40 } else { 20_000 };
    let inbox = InboxMemory::<61>::new();
    std::thread::scope(|scope| {
        for me in 1..4u16 {
            let inbox = &inbox;
            scope.spawn(move || {
                let mut sender = InboxSender::default();
                for i in 0..EACH {
                    let bytes = content(i, (i * u64::from(me) % 400) as usize);
                    let label = Label::new(me as u8, i).unwrap();
                    while sender.try_send(inbox, Slot(me), label, &bytes).unwrap() == Push::Full {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut receiver = InboxReceiver::new();
        let mut scratch = Scratch::new();
        let mut next = [0; 4];
        while next.iter().sum::<u64>() < 3 * EACH {
            match receiver.poll(&inbox, &mut scratch, |_| false).unwrap() {
                Polled::Message(m) => {
                    let i = &mut next[m.from.index()];
                    assert_eq!(m.label.imm(), *i);
                    assert_eq!(m.bytes, content(*i, (*i * u64::from(m.from.0) % 400) as usize));
                    *i += 1;
                }
                _ => std::thread::yield_now(),
            }
        }
    });
}
