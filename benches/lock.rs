//! The queue lock inside one process: uncontended, and handed back and forth between threads.

use criterion::{Criterion, criterion_group, criterion_main};
use hither::base::Slot;
use hither::shm::lock::QueueLock;
use hither::shm::node::Node;
use hither::{Deadline, Result};
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn node() -> Result<Arc<Node>> {
    let memory = Node::create_memory(1, 2 << 20)?;
    Node::attach(memory, Slot(0), Deadline::after(Duration::from_secs(10)))
}

fn uncontended(c: &mut Criterion) {
    let node = node().expect("this machine has memory files");
    let lock = QueueLock::default();
    c.bench_function("lock/uncontended", |b| {
        b.iter(|| black_box(lock.lock(&*node, Deadline::NEVER).is_ok()));
    });
    c.bench_function("lock/try_lock", |b| {
        b.iter(|| black_box(lock.try_lock(&*node).is_ok()));
    });
    let held = lock.try_lock(&*node).expect("a free lock");
    c.bench_function("lock/try_lock, held", |b| {
        b.iter(|| black_box(lock.try_lock(&*node).is_ok_and(|got| got.is_none())));
    });
    drop(held);
}

/// Time per acquisition when `threads` threads want nothing but the lock.
fn contended(c: &mut Criterion) {
    let node = node().expect("this machine has memory files");
    for threads in [2u64, 4] {
        let lock = QueueLock::default();
        c.bench_function(&format!("lock/contended by {threads} threads"), |b| {
            b.iter_custom(|iterations| {
                let each = iterations.div_ceil(threads);
                let barrier = Barrier::new(threads as usize + 1);
                std::thread::scope(|scope| {
                    let all: Vec<_> = (0..threads)
                        .map(|_| {
                            scope.spawn(|| {
                                barrier.wait();
                                (0..each).all(|_| lock.lock(&*node, Deadline::NEVER).is_ok())
                            })
                        })
                        .collect();
                    barrier.wait();
                    let start = Instant::now();
                    assert!(all.into_iter().all(|thread| thread.join().is_ok_and(|ok| ok)));
                    start.elapsed()
                })
            });
        });
    }
}

criterion_group!(benches, uncontended, contended);
criterion_main!(benches);
