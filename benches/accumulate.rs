//! Accumulates in a job of one, each next to the smallest program that shows the limit: what the
//! atomic domain costs for one element, and what is left of the memory's speed for many. Threads
//! stand for other origins.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hither::{Job, Op, Rank, Window};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const ME: Rank = Rank(0);
const MIB: usize = 1 << 20;

/// A job of this one process: nobody launched it.
fn alone() -> Job {
    Job::init().expect("a job of one")
}

fn single(c: &mut Criterion) {
    let job = alone();
    let mut group = c.benchmark_group("one element");
    let bare = AtomicU64::new(0);
    let window = Window::<u64>::allocate(job.team(), 512).expect("4 KiB");
    let epoch = window.lock_all().expect("an epoch");
    group.bench_function("bare fetch_add", |b| b.iter(|| bare.fetch_add(black_box(1), Relaxed)));
    group.bench_function("fetch_and_op", |b| {
        b.iter(|| epoch.fetch_and_op(ME, 1, Op::Sum, black_box(1)));
    });
    group.bench_function("accumulate", |b| {
        b.iter(|| epoch.accumulate(ME, 1, Op::Sum, black_box(&[1])));
    });
    group.bench_function("bare compare_exchange", |b| {
        b.iter(|| bare.compare_exchange(black_box(0), 0, Relaxed, Relaxed));
    });
    group.bench_function("compare_and_swap", |b| {
        b.iter(|| epoch.compare_and_swap(ME, 2, black_box(0), 0));
    });
    group.bench_function("view fetch_and_op", |b| {
        let view = window.local();
        b.iter(|| view.fetch_and_op(3, Op::Sum, black_box(1)));
    });
}

/// One element among several threads that all update the same one.
fn contended(c: &mut Criterion) {
    let job = alone();
    let mut group = c.benchmark_group("one element, two threads");
    let bare = AtomicU64::new(0);
    let window = Window::<u64>::allocate(job.team(), 512).expect("4 KiB");
    let epoch = window.lock_all().expect("an epoch");
    let beside = |other: &(dyn Fn() + Sync), measured: &mut dyn FnMut()| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    other();
                }
            });
            measured();
            stop.store(true, Relaxed);
        });
    };
    let add = || {
        bare.fetch_add(1, Relaxed);
    };
    beside(&add, &mut || {
        group.bench_function("bare fetch_add", |b| b.iter(add));
    });
    let add = || {
        let _ = epoch.fetch_and_op(ME, 1, Op::Sum, 1);
    };
    beside(&add, &mut || {
        group.bench_function("fetch_and_op", |b| b.iter(add));
    });
}

fn many(c: &mut Criterion) {
    let job = alone();
    let mut group = c.benchmark_group("many elements");
    for bytes in [256, 4096, 16 << 10, MIB] {
        let len = bytes / 8;
        group.throughput(Throughput::Bytes(bytes as u64));
        let halves = vec![0.5f64; len];
        let mut private = vec![0.0f64; len];
        group.bench_function(BenchmarkId::new("f64 sum, private loop", bytes), |b| {
            b.iter(|| {
                for (a, b) in private.iter_mut().zip(black_box(&halves)) {
                    *a += b;
                }
                black_box(&mut private);
            });
        });
        let window = Window::<f64>::allocate(job.team(), len).expect("a part");
        let epoch = window.lock_all().expect("an epoch");
        for (name, op) in [("sum", Op::Sum), ("min", Op::Min), ("replace", Op::Replace)] {
            group.bench_function(BenchmarkId::new(format!("f64 {name}"), bytes), |b| {
                b.iter(|| epoch.accumulate(ME, 0, op, black_box(&halves)));
            });
        }
    }
}

/// The same 1 MiB updated by one thread and by two.
fn shared(c: &mut Criterion) {
    let job = alone();
    let mut group = c.benchmark_group("1 MiB by threads");
    let halves = vec![0.5f64; MIB / 8];
    let window = Window::<f64>::allocate(job.team(), MIB / 8).expect("a part");
    let epoch = window.lock_all().expect("an epoch");
    for threads in [1, 2] {
        group.throughput(Throughput::Bytes((64 * threads * MIB) as u64));
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter_batched(
                || (),
                |()| {
                    std::thread::scope(|scope| {
                        for _ in 0..threads {
                            scope.spawn(|| {
                                for _ in 0..64 {
                                    let _ = epoch.accumulate(ME, 0, Op::Sum, black_box(&halves));
                                }
                            });
                        }
                    });
                },
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, single, contended, many, shared);
criterion_main!(benches);
