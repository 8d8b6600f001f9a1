//! loom models of both rings, on rings of four cells: the code that ships, every interleaving.
//!
//! The cells' bodies are loom's cells here, so a model also fails when consumer and producer
//! ever touch one at the same time, whatever they read. Nobody in a model spins: threads try a
//! bounded number of times side by side, and what is left is received after they have ended.

use super::inbox::{InboxMemory, InboxReceiver, InboxSender, dying};
use super::lane::LaneMemory;
use super::lane_receiver::{LaneReceiver, One};
use super::lane_sender::{LanePush, LaneSender};
use super::{FIRST_BYTES, Headed, InPlace, Label, Polled, Push, Scratch};
use crate::base::Slot;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

const CELLS: usize = 4;

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// An inbox whose first lap is partly used up, so that what the model sends wraps around.
struct Fixture {
    inbox: Arc<InboxMemory<CELLS>>,
    receiver: InboxReceiver,
    scratch: Scratch,
    next: [u64; 4],
    got: u64,
}

impl Fixture {
    fn new(used: usize) -> Fixture {
        let mut this = Fixture {
            inbox: Arc::new(InboxMemory::new()),
            receiver: InboxReceiver::new(),
            scratch: Scratch::new(),
            next: [0; 4],
            got: 0,
        };
        for _ in 0..used {
            assert_eq!(send(&mut InboxSender::default(), &this.inbox, 3, 0, 1), 1);
            this.next[3] = 0;
            assert!(this.poll(|_| false));
        }
        this.got = 0;
        this
    }

    /// Takes a message, if one is there; checks that it is whole and the next of its producer.
    fn poll(&mut self, is_dead: impl Fn(Slot) -> bool) -> bool {
        match self.receiver.poll(&self.inbox, &mut self.scratch, is_dead).unwrap() {
            Polled::Message(m) => {
                let from = m.from.index();
                assert_eq!(usize::from(m.label.kind()), from);
                assert_eq!(m.label.imm(), self.next[from]);
                assert!(m.bytes.iter().all(|&b| u64::from(b) == self.next[from]));
                self.next[from] += 1;
                self.got += 1;
                true
            }
            Polled::Empty | Polled::Unfinished(_) => false,
        }
    }
}

/// Tries once to send message number `imm` in `cells` cells; returns the number of the next.
fn send(
    sender: &mut InboxSender,
    inbox: &InboxMemory<CELLS>,
    me: u16,
    imm: u64,
    cells: usize,
) -> u64 {
    let label = Label::new(me as u8, imm).unwrap();
    let bytes = [imm as u8; 60];
    let bytes = if cells == 1 { &bytes[..8] } else { &bytes[..] };
    match sender.try_send(inbox, Slot(me), label, bytes).unwrap() {
        Push::Sent => imm + 1,
        Push::Full => imm,
    }
}

fn two_producers(used: usize, sizes: [[usize; 2]; 2]) {
    explore(3, move || {
        let mut fixture = Fixture::new(used);
        let producers = [1u16, 2].map(|me| {
            let inbox = fixture.inbox.clone();
            let sizes = sizes[usize::from(me) - 1];
            loom::thread::spawn(move || {
                let mut sender = InboxSender::default();
                sizes.iter().fold(0, |sent, &n| send(&mut sender, &inbox, me, sent, n))
            })
        });
        for _ in 0..2 {
            fixture.poll(|_| false);
        }
        let sent: u64 = producers.into_iter().map(|p| p.join().unwrap()).sum();
        while fixture.poll(|_| false) {}
        assert_eq!(fixture.got, sent, "what was sent was received");
        assert!(sent >= 1, "an empty ring takes the first message");
    });
}

#[test]
fn loom_inbox_two_producers_short_messages() {
    two_producers(3, [[1, 1], [1, 1]]);
}

#[test]
fn loom_inbox_two_producers_long_messages() {
    two_producers(3, [[2, 1], [1, 2]]);
}

/// One producer dies at a step while another sends; the ring goes on over several laps.
fn death(die: fn(&InboxMemory<CELLS>, Slot, usize) -> bool, cells: usize) {
    explore(3, move || {
        let mut fixture = Fixture::new(2);
        let dead = Arc::new(AtomicU32::new(0));
        let victim = {
            let (inbox, dead) = (fixture.inbox.clone(), dead.clone());
            loom::thread::spawn(move || {
                let died_inside = die(&inbox, Slot(1), cells);
                dead.store(1, Ordering::Release);
                died_inside
            })
        };
        let survivor = {
            let inbox = fixture.inbox.clone();
            loom::thread::spawn(move || {
                let mut sender = InboxSender::default();
                let sent = send(&mut sender, &inbox, 2, 0, 2);
                (send(&mut sender, &inbox, 2, sent, 1), sender)
            })
        };
        let is_dead = |s: Slot| s == Slot(1) && dead.load(Ordering::Acquire) == 1;
        for _ in 0..2 {
            fixture.poll(is_dead);
        }
        let (mut sent, mut sender) = survivor.join().unwrap();
        let died_inside = victim.join().unwrap();
        while fixture.poll(is_dead) {}
        assert_eq!(fixture.got, sent);
        assert_eq!(fixture.receiver.skipped(), u64::from(died_inside));
        // Nothing that was skipped is in the way of later laps.
        for cells in [2, 2, 1, 2, 2] {
            let inbox = fixture.inbox.clone();
            assert_eq!(send(&mut sender, &inbox, 2, sent, cells), sent + 1);
            sent += 1;
            assert!(fixture.poll(is_dead));
        }
    });
}

#[test]
fn loom_inbox_producer_dies_after_its_claim() {
    death(dying::after_claim, 1);
    death(dying::after_claim, 2);
}

#[test]
fn loom_inbox_producer_dies_after_moving_the_tail() {
    death(dying::after_tail, 2);
}

#[test]
fn loom_inbox_producer_dies_before_its_commit() {
    death(dying::before_commit, 2);
}

#[test]
fn loom_lane_wraps_around() {
    lane::<CELLS>(3, 4, &[8, 104, 100, 48, 49], false);
}

/// Short messages that do not repeat each other have a cell each, of which the consumer can't know that nothing
/// else comes to it.
#[test]
fn loom_lane_short_ones_by_themselves() {
    lane::<CELLS>(3, 5, &[8, 24, 16, 8, 16, 16], false);
    lane::<CELLS>(3, 4, &[16, 104, 8, 24, 8], false);
}

/// Messages that repeat the first one's label and first word come to its cell until that is full, or until
/// another one comes: while the consumer looks at it, has taken the first one, or has gone on; and to the last
/// cell of a lap.
#[test]
fn loom_lane_repeats_in_a_cell() {
    lane::<CELLS>(3, 5, &[16, 16, 16, 16, 16, 16], true);
    lane::<CELLS>(3, 5, &[24, 16, 16, 8, 8, 16], true);
}

/// A message finds no room, so laps become longer: while the consumer is in the lap before, or at the end of
/// one.
#[test]
fn loom_lane_grows() {
    lane::<7>(3, 5, &[40, 40, 40, 104, 40, 40, 104], false);
    lane::<7>(3, 6, &[104, 48, 40, 40, 40, 40, 104, 40], false);
}

/// A producer tries to send messages of so many bytes, while the consumer looks so many times. All have
/// the `same` label (but for its length) and first word, or each its own.
fn lane<const N: usize>(preemptions: usize, looks: usize, lens: &'static [usize], same: bool) {
    let number = move |sent: u64| if same { 9 } else { sent };
    let head = move |sent: u64| u64::from_ne_bytes([number(sent) as u8; 8]);
    explore(preemptions, move || {
        let lane = Arc::new(LaneMemory::<N, CELLS>::new());
        let mut sender = LaneSender::open(&lane, Slot(1)).unwrap();
        let sending = AtomicU32::new(0);
        let generation = sender.generation().low_bits();
        let producer = {
            let lane = lane.clone();
            loom::thread::spawn(move || {
                let mut sent = 0u64;
                for &len in lens {
                    let label = Label::new(len as u8, number(sent)).unwrap();
                    let mut bytes = [sent as u8; 104];
                    bytes[..8].copy_from_slice(&head(sent).to_ne_bytes());
                    let mut short = || {
                        let payload = Headed(head(sent), &bytes[8..len]);
                        match len {
                            0..=FIRST_BYTES => {
                                sender.try_one_guarded(&lane, &sending, label, payload)
                            }
                            _ => sender.try_several_guarded(&lane, &sending, label, payload),
                        }
                    };
                    if short() {
                        sent += 1;
                        continue;
                    }
                    let push = sender.try_send(&lane, label, &bytes[..len]).unwrap();
                    sent += u64::from(push == Push::Sent);
                    if sender.wants_more() {
                        sender.grow(&lane, &sending, || true);
                    }
                }
                sent
            })
        };
        let mut receiver = LaneReceiver::open(&lane, generation).unwrap();
        let mut scratch = Scratch::new();
        let mut got = 0;
        let mut poll = || {
            // Where they lie, but for one of them.
            let mut taker = |m: &dyn InPlace| {
                let (first, behind) = m.headed().unwrap();
                assert_eq!((m.label().imm(), first), (number(got), head(got)));
                assert_eq!(8 + behind, usize::from(m.label().kind()));
                let mut bytes = [0; 96];
                // SAFETY: there is a first word, and room for what is behind it.
                assert!(unsafe { m.copy_behind_head(bytes.as_mut_ptr()) });
                assert!(bytes[..behind].iter().all(|&b| u64::from(b) == got));
                got != 3
            };
            let announced = receiver.has_next(&lane);
            let mut one = receiver.take_one(&lane, &mut taker);
            if one == One::Left {
                one = receiver.take_several(&lane, &mut taker);
            }
            assert!(!announced || one != One::Nothing);
            match one {
                One::Taken => {
                    got += 1;
                    return true;
                }
                One::Nothing => return false,
                One::Left => {}
            }
            match receiver.poll(&lane, &mut scratch).unwrap() {
                Polled::Message(m) => {
                    assert_eq!(m.label.imm(), number(got));
                    assert_eq!(m.bytes.len(), usize::from(m.label.kind()));
                    assert_eq!(m.bytes[..8], head(got).to_ne_bytes());
                    assert!(m.bytes[8..].iter().all(|&b| u64::from(b) == got));
                    got += 1;
                    true
                }
                other => panic!("there was one: {other:?}"),
            }
        };
        for _ in 0..looks {
            poll();
        }
        let sent = producer.join().unwrap();
        while poll() {}
        assert_eq!(got, sent);
        assert!(receiver.is_empty(&lane));
        assert!(sent >= 2);
    });
}

/// The consumer takes the lane back while the producer sends, and uses it for another producer,
/// whose messages must neither mix with the first one's nor meet them in a cell.
#[test]
fn loom_lane_changes_hands_without_the_producer() {
    explore(3, || {
        let lane = Arc::new(LaneMemory::<CELLS, CELLS>::new());
        let sending = Arc::new(AtomicU32::new(0));
        let sent = Arc::new(AtomicU64::new(0));
        let mut first = LaneSender::open(&lane, Slot(1)).unwrap();
        let generation = first.generation().low_bits();
        let producer = {
            let (lane, sending, sent) = (lane.clone(), sending.clone(), sent.clone());
            loom::thread::spawn(move || {
                for i in 0..3 {
                    let label = Label::new(1, i).unwrap();
                    let push = first.try_send_guarded(&lane, &sending, label, &[7; 60][..]);
                    match push.unwrap() {
                        LanePush::Sent => sent.store(i + 1, Ordering::Relaxed),
                        LanePush::Full => {}
                        LanePush::Revoked => return,
                    };
                }
            })
        };
        let mut receiver = LaneReceiver::open(&lane, generation).unwrap();
        let mut scratch = Scratch::new();
        receiver.revoke(&lane);
        let mut producer = Some(producer);
        if !LaneReceiver::is_quiet(&sending) {
            producer.take().unwrap().join().unwrap();
        }
        let mut got = 0;
        while let Polled::Message(m) = receiver.poll(&lane, &mut scratch).unwrap() {
            assert_eq!((m.label.kind(), m.label.imm()), (1, got));
            got += 1;
        }
        receiver.close(&lane);

        let mut second = LaneSender::open(&lane, Slot(2)).unwrap();
        let generation = second.generation().low_bits();
        let label = Label::new(2, 9).unwrap();
        assert_eq!(second.try_send(&lane, label, &[9; 60]).unwrap(), Push::Sent);
        let mut receiver = LaneReceiver::open(&lane, generation).unwrap();
        match receiver.poll(&lane, &mut scratch).unwrap() {
            Polled::Message(m) => assert_eq!((m.from, m.bytes[59]), (Slot(2), 9)),
            other => panic!("the second producer's message is gone: {other:?}"),
        }
        if let Some(producer) = producer {
            producer.join().unwrap();
        }
        assert_eq!(sent.load(Ordering::Relaxed), got, "what was sent was received");
    });
}
