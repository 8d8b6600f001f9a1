//! What it costs to bring a message and a receive together, by how many others wait: the same for
//! ten and for a hundred thousand, or the queues are lists.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hither::base::Slot;
use hither::p2p::matching::{Arrive, Envelope, Matching, Pattern, Post};
use std::hint::black_box;

const ENTRIES: [u32; 3] = [10, 1_000, 100_000];
const CONTEXT: u32 = 3;
const SOURCES: u32 = 16;

type Queues = Matching<u64, [u64; 4]>;

fn envelope(i: u32) -> Envelope {
    Envelope { context: CONTEXT, source: Slot((i % SOURCES) as u16), tag: i / SOURCES }
}

/// How a receive names what it wants.
#[derive(Clone, Copy)]
enum Wild {
    Nothing,
    Tag,
    Source,
    Both,
}

const WILD: [(&str, Wild); 4] = [
    ("exact", Wild::Nothing),
    ("any tag", Wild::Tag),
    ("any source", Wild::Source),
    ("any source, any tag", Wild::Both),
];

fn pattern(envelope: Envelope, wild: Wild) -> Pattern {
    let Envelope { context, source, tag } = envelope;
    let source = matches!(wild, Wild::Nothing | Wild::Tag).then_some(source);
    let tag = matches!(wild, Wild::Nothing | Wild::Source).then_some(tag);
    Pattern { context, source, tag }
}

/// Entries in an order that no cache foresees.
fn scattered(entries: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..entries).collect();
    let mut state = 1u64;
    for i in (1..order.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

/// A receive is posted among `entries` posted ones, and its message arrives.
fn posted(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/post then arrive");
    group.throughput(Throughput::Elements(1));
    for (name, wild) in WILD {
        for entries in ENTRIES {
            let order = scattered(entries);
            let mut queues = Queues::new();
            for &i in &order {
                // None of these wants what arrives: they are of sources that send nothing.
                let source = Slot((SOURCES + i % SOURCES) as u16);
                let other = pattern(Envelope { source, ..envelope(i) }, Wild::Nothing);
                queues.post(other, u64::from(i));
            }
            let mut next = order.iter().cycle();
            group.bench_function(BenchmarkId::new(name, entries), |b| {
                b.iter(|| {
                    let envelope = envelope(*next.next().expect("a cycle"));
                    let waits = queues.post(pattern(black_box(envelope), wild), 1);
                    assert!(matches!(waits, Post::Waiting(_)));
                    assert!(matches!(queues.arrive(black_box(&envelope)), Arrive::Matched(..)));
                });
            });
        }
    }
    group.finish();
}

/// A message arrives among `entries` unexpected ones, and a receive takes the one it wants:
/// the earliest one of them all where it takes any.
fn unexpected(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/arrive then post");
    group.throughput(Throughput::Elements(1));
    for (name, wild) in WILD {
        for entries in ENTRIES {
            let order = scattered(entries);
            let mut queues = Queues::new();
            for &i in &order {
                queues.insert(envelope(i), [0; 4]);
            }
            let mut next = order.iter().cycle();
            group.bench_function(BenchmarkId::new(name, entries), |b| {
                b.iter(|| {
                    let envelope = envelope(*next.next().expect("a cycle"));
                    let arrived = queues.arrive(black_box(&envelope));
                    assert!(matches!(arrived, Arrive::Unexpected));
                    queues.insert(envelope, [0; 4]);
                    let taken = queues.post(pattern(black_box(envelope), wild), 1);
                    assert!(matches!(taken, Post::Matched(..)));
                });
            });
        }
    }
    group.finish();
}

/// Queues fill to the top and empty again, in another order.
fn tide(c: &mut Criterion) {
    let mut group = c.benchmark_group("matching/fill and empty");
    for entries in ENTRIES {
        let order = scattered(entries);
        group.throughput(Throughput::Elements(u64::from(entries)));
        group.bench_function(BenchmarkId::new("posted, exact", entries), |b| {
            let fill = || {
                let mut queues = Queues::new();
                for i in 0..entries {
                    queues.post(pattern(envelope(i), Wild::Nothing), u64::from(i));
                }
                queues
            };
            let empty = |mut queues: Queues| {
                for &i in &order {
                    assert!(matches!(queues.arrive(&envelope(i)), Arrive::Matched(..)));
                }
                queues
            };
            b.iter_batched(fill, empty, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, posted, unexpected, tide);
criterion_main!(benches);
