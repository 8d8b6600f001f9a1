//! Rings inside one process: a message in and out by one thread (instructions, no cache-line
//! transfers), and streams from one thread to another.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hither::Result;
use hither::base::Slot;
use hither::shm::ring::inbox::{InboxMemory, InboxReceiver, InboxSender};
use hither::shm::ring::lane::LaneMemory;
use hither::shm::ring::lane_receiver::LaneReceiver;
use hither::shm::ring::lane_sender::LaneSender;
use hither::shm::ring::{Label, Polled, Push, Scratch};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ME: Slot = Slot(1);
const SIZES: [usize; 5] = [8, 48, 64, 128, 512];

/// One end of a ring that can send, and one that can receive.
trait Ends: Sync {
    type Sender: Send;
    type Receiver: Send;
    fn open(&self) -> Result<(Self::Sender, Self::Receiver)>;
    fn send(&self, sender: &mut Self::Sender, label: Label, bytes: &[u8]) -> Result<Push>;
    /// Length of the next message, if there is one.
    fn receive(
        &self,
        receiver: &mut Self::Receiver,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>>;
}

fn length(polled: &Polled<'_>) -> Option<usize> {
    match polled {
        Polled::Message(message) => Some(black_box(message.bytes).len()),
        Polled::Empty | Polled::Unfinished(_) => None,
    }
}

struct Lane(Box<LaneMemory>);

impl Ends for Lane {
    type Sender = LaneSender;
    type Receiver = LaneReceiver;

    fn open(&self) -> Result<(LaneSender, LaneReceiver)> {
        let sender = LaneSender::open(&self.0, ME)?;
        let receiver = LaneReceiver::open(&self.0, sender.generation().low_bits())
            .ok_or_else(|| hither::Error::invalid("a lane", "was granted to another"))?;
        Ok((sender, receiver))
    }

    fn send(&self, sender: &mut LaneSender, label: Label, bytes: &[u8]) -> Result<Push> {
        sender.try_send(&self.0, label, bytes)
    }

    fn receive(&self, receiver: &mut LaneReceiver, scratch: &mut Scratch) -> Result<Option<usize>> {
        receiver.poll(&self.0, scratch).map(|polled| length(&polled))
    }
}

struct Inbox(Box<InboxMemory>);

impl Ends for Inbox {
    type Sender = InboxSender;
    type Receiver = InboxReceiver;

    fn open(&self) -> Result<(InboxSender, InboxReceiver)> {
        Ok((InboxSender::default(), InboxReceiver::new()))
    }

    fn send(&self, sender: &mut InboxSender, label: Label, bytes: &[u8]) -> Result<Push> {
        sender.try_send(&self.0, ME, label, bytes)
    }

    fn receive(
        &self,
        receiver: &mut InboxReceiver,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        receiver.poll(&self.0, scratch, |_| false).map(|polled| length(&polled))
    }
}

/// Time for `count` messages from one thread to another.
fn stream<E: Ends>(ends: &E, count: u64, size: usize) -> Result<Duration> {
    let (mut sender, mut receiver) = ends.open()?;
    let label = Label::new(1, 2)?;
    std::thread::scope(|scope| {
        let consumer = scope.spawn(move || -> Result<()> {
            let mut scratch = Scratch::new();
            let mut left = count;
            while left > 0 {
                match ends.receive(&mut receiver, &mut scratch)? {
                    Some(len) => {
                        assert_eq!(len, size);
                        left -= 1;
                    }
                    None => std::hint::spin_loop(),
                }
            }
            Ok(())
        });
        let bytes = vec![7; size];
        let start = Instant::now();
        for _ in 0..count {
            while ends.send(&mut sender, label, &bytes)? == Push::Full {
                std::thread::yield_now();
            }
        }
        let ended = consumer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map(|()| start.elapsed())
    })
}

fn ring<E: Ends>(c: &mut Criterion, name: &str, make: impl Fn() -> E) {
    let mut group = c.benchmark_group(name);
    for size in SIZES {
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("one thread", size), |b| {
            let ends = make();
            let (mut sender, mut receiver) = ends.open().expect("a fresh ring");
            let (label, bytes) = (Label::new(1, 2).expect("40 bits"), vec![7; size]);
            let mut scratch = Scratch::new();
            b.iter(|| {
                let sent = ends.send(&mut sender, label, black_box(&bytes));
                assert!(matches!(sent, Ok(Push::Sent)));
                let got = ends.receive(&mut receiver, &mut scratch);
                assert!(matches!(got, Ok(Some(len)) if len == size));
            });
        });
        group.bench_function(BenchmarkId::new("two threads", size), |b| {
            b.iter_custom(|count| stream(&make(), count, size).expect("a fresh ring"));
        });
    }
    group.finish();
}

fn lane(c: &mut Criterion) {
    ring(c, "lane", || Lane(Box::default()));
}

fn inbox(c: &mut Criterion) {
    ring(c, "inbox", || Inbox(Box::default()));
}

/// What a poll costs that finds nothing.
fn empty(c: &mut Criterion) {
    let mut scratch = Scratch::new();
    let lane = Lane(Box::default());
    let (_sender, mut receiver) = lane.open().expect("a fresh ring");
    c.bench_function("lane/empty poll", |b| {
        b.iter(|| assert!(matches!(lane.receive(&mut receiver, &mut scratch), Ok(None))));
    });
    let inbox = Inbox(Box::default());
    let (_, mut receiver) = inbox.open().expect("a fresh ring");
    c.bench_function("inbox/empty poll", |b| {
        b.iter(|| assert!(matches!(inbox.receive(&mut receiver, &mut scratch), Ok(None))));
    });
}

criterion_group!(benches, lane, inbox, empty);
criterion_main!(benches);
