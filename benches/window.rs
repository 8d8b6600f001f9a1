//! Windows in a job of one: what operations cost in instructions, without another core.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hither::am::Call;
use hither::rma::Assertions;
use hither::{Job, Op, Rank, Window};
use std::hint::black_box;

const ME: Rank = Rank(0);

/// A job of this one process: nobody launched it.
fn alone() -> Job {
    Job::init().expect("a job of one")
}

fn operations(c: &mut Criterion) {
    let job = alone();
    let window = Window::<u64>::allocate(job.team(), 512).expect("4 KiB");
    let epoch = window.lock_all().expect("an epoch");
    c.bench_function("window/put", |b| b.iter(|| epoch.put(ME, 1, black_box(&[7]))));
    c.bench_function("window/get", |b| {
        b.iter(|| {
            let mut value = [0];
            epoch.get(ME, 1, &mut value).map(|()| black_box(value))
        });
    });
    c.bench_function("window/put, flush", |b| {
        b.iter(|| epoch.put(ME, 1, black_box(&[7])).and_then(|()| epoch.flush(ME)));
    });
    c.bench_function("window/fetch_and_op", |b| {
        b.iter(|| epoch.fetch_and_op(ME, 1, Op::Sum, black_box(1)));
    });
    c.bench_function("window/compare_and_swap", |b| {
        b.iter(|| epoch.compare_and_swap(ME, 2, black_box(0), 0));
    });
    c.bench_function("window/view get", |b| b.iter(|| window.local().get(black_box(3))));
}

fn active_messages(c: &mut Criterion) {
    let job = alone();
    let window = Window::<u64>::allocate(job.team(), 8).expect("64 B");
    let handler = window
        .register(1, |call: Call<'_, u64, u64, u64>| {
            let old = call.persistent.get(0).unwrap_or(0);
            let _ = call.persistent.set(0, old + call.input[0]);
            call.output[0] = old;
        })
        .expect("a free index");
    for (name, concurrent_am) in [("serialised", false), ("concurrent", true)] {
        let assertions = Assertions { concurrent_am, ..Assertions::default() };
        let epoch = window.lock_all_with(assertions).expect("an epoch");
        let mut output = [0];
        c.bench_function(&format!("am/{name}"), |b| {
            b.iter(|| epoch.am(&handler, ME, 0..1, black_box(&[1]), &mut output));
        });
    }
}

fn accumulate(c: &mut Criterion) {
    let job = alone();
    let mut group = c.benchmark_group("accumulate");
    let integers = Window::<u64>::allocate(job.team(), 1 << 17).expect("1 MiB");
    let floats = Window::<f64>::allocate(job.team(), 1 << 17).expect("1 MiB");
    let (integers, floats) =
        (integers.lock_all().expect("an epoch"), floats.lock_all().expect("an epoch"));
    for len in [1usize, 64, 1 << 17] {
        group.throughput(Throughput::Bytes(8 * len as u64));
        let (ones, halves) = (vec![1u64; len], vec![0.5f64; len]);
        for (name, op) in [("sum", Op::Sum), ("max", Op::Max), ("replace", Op::Replace)] {
            group.bench_function(BenchmarkId::new(format!("u64 {name}"), len), |b| {
                b.iter(|| integers.accumulate(ME, 0, op, black_box(&ones)));
            });
        }
        group.bench_function(BenchmarkId::new("f64 sum", len), |b| {
            b.iter(|| floats.accumulate(ME, 0, Op::Sum, black_box(&halves)));
        });
    }
}

fn allocate(c: &mut Criterion) {
    let job = alone();
    c.bench_function("window/allocate and drop 4 KiB", |b| {
        b.iter(|| Window::<u64>::allocate(job.team(), 512).is_ok());
    });
}

criterion_group!(benches, operations, active_messages, accumulate, allocate);
criterion_main!(benches);
