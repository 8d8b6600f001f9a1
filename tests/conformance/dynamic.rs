//! Dynamic windows: what is attached comes and goes.

use super::Written;
use super::kinds::{next, previous};
use super::memory::{assert_back, in_use};
use hither::rma::LockAllEpoch;
use hither::rma::{Attached, Memory, SignalOp};
use hither::{Error, Job, Op, Rank, Result, Window};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CASES: &[Written] = &[
    ("attach_and_detach", attach_detach),
    ("attach_what_cannot_be", attach_misuse),
    ("attached_memory_taken_back_is_written_no_more", taken_back),
    ("signals_beside_private_data", signal_beside_private),
    ("operations_beside_attachments", beside_attachments),
    ("thousands_of_attachments", many_attachments),
    ("attachments_come_and_go_under_operations", churn),
    ("attached_private_memory", attached_private),
    ("attached_memory_outlives_its_handle", attached_kept),
];

fn exchange(job: &Job, attached: Attached) -> Result<Vec<usize>> {
    let mut all = vec![0u64; job.size() as usize];
    job.team().allgather(&[attached.address], &mut all)?;
    Ok(all.into_iter().map(|address| address as usize).collect())
}

/// Whether a put is refused: by the call, or, where another node's process has to look, by a flush.
fn refused(epoch: &LockAllEpoch<'_, u64>, target: Rank, start: usize, values: &[u64]) -> bool {
    epoch.put(target, start, values).and_then(|()| epoch.flush(target)).is_err()
}

fn attach_detach(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 50)?;
    let epoch = window.lock_all()?;
    for round in 0..5u64 {
        let attached = window.attach(&memory)?;
        assert_eq!(attached.bytes, 400);
        let there = exchange(job, attached)?;
        epoch.put(next(job), there[next(job).index()] + 8 * 7, &[round + 100])?;
        epoch.accumulate(next(job), there[next(job).index()] + 8 * 7, Op::Sum, &[1])?;
        epoch.flush_all()?;
        job.team().barrier()?;
        let mut got = [0];
        memory.read(7, &mut got)?;
        assert_eq!(got, [round + 101]);
        let mut got = [0; 2];
        epoch.get(next(job), there[next(job).index()] + 8 * 6, &mut got)?;
        assert_eq!(got, [0, round + 101]);
        job.team().barrier()?;
        window.detach(attached)?;
        assert!(matches!(window.detach(attached), Err(Error::Misuse { .. })));
        job.team().barrier()?;
        assert!(refused(&epoch, next(job), there[next(job).index()], &[1]));
        job.team().barrier()?;
    }
    epoch.unlock_all()?;
    window.free()
}

fn attach_misuse(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 64)?;
    let part = |from, to| memory.part(from, to);
    let middle = window.attach(&part(16, 32)?)?;
    for (from, to) in [(16, 32), (0, 64), (0, 17), (31, 64), (20, 21), (0, 32), (16, 64)] {
        let refused = window.attach(&part(from, to)?);
        assert!(matches!(refused, Err(Error::Misuse { .. })), "{from}..{to}: {refused:?}");
    }
    let low = window.attach(&part(0, 16)?)?;
    let high = window.attach(&part(32, 64)?)?;
    assert!(matches!(window.attach(&part(5, 5)?), Err(Error::InvalidArgument { .. })));
    let wrong = Attached { bytes: 8, ..middle };
    assert!(matches!(window.detach(wrong), Err(Error::Misuse { .. })));
    for attached in [middle, low, high] {
        window.detach(attached)?;
    }
    let fixed = Window::<u64>::allocate(job.team(), 1)?;
    assert!(matches!(fixed.attach(&memory), Err(Error::Misuse { .. })));
    assert!(matches!(fixed.detach(low), Err(Error::Misuse { .. })));
    fixed.free()?;
    window.free()
}

fn beside_attachments(job: &Job) -> Result<()> {
    let window = Window::<u32>::builder(job.team()).dynamic()?;
    let memory = Memory::<u32>::shared(job.team(), 100)?;
    let one = window.attach(&memory.part(10, 20)?)?;
    window.attach(&memory.part(20, 30)?)?;
    let there = exchange(job, one)?;
    let epoch = window.lock_all()?;
    for target in [job.rank(), next(job)] {
        let first = there[target.index()];
        epoch.put(target, first, &[1; 10])?;
        epoch.put(target, first + 40, &[2; 10])?;
        epoch.put(target, first + 36, &[])?;
        for (start, count) in
            [(first - 4, 1), (first - 4, 11), (first, 11), (first + 76, 2), (first + 80, 1), (0, 1)]
        {
            let put = epoch.put(target, start, &vec![9; count]);
            assert!(put.and_then(|()| epoch.flush(target)).is_err(), "{count} at {start:#x}");
        }
        assert!(epoch.put(target, first + 2, &[9]).is_err(), "not aligned");
        assert!(epoch.put(target, usize::MAX - 3, &[9, 9]).is_err());
    }
    assert!(epoch.put(Rank(job.size()), there[0], &[9]).is_err());
    epoch.flush_all()?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut all = [0; 100];
    memory.read(0, &mut all)?;
    let want = |i| match i {
        10..20 => 1,
        20..30 => 2,
        _ => 0,
    };
    assert!((0..100).all(|i| all[i] == want(i)), "{all:?}");
    window.free()
}

fn many_attachments(job: &Job) -> Result<()> {
    const COUNT: usize = 3000;
    let before = in_use(job)?;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 4 * COUNT)?;
    // In an order that puts rows before, between and behind others.
    let place = |k: usize| (k * 7919) % COUNT;
    let attach = |k: usize| window.attach(&memory.part(4 * place(k), 4 * place(k) + 2)?);
    let mut all: Vec<Attached> = (0..COUNT).map(attach).collect::<Result<_>>()?;
    let base = exchange(job, Attached { address: memory.as_ptr().addr() as u64, bytes: 0 })?;
    let epoch = window.lock_all()?;
    let target = next(job);
    for k in (0..COUNT).step_by(37) {
        let at = base[target.index()] + 32 * k;
        epoch.put(target, at, &[k as u64, job.rank().0.into()])?;
        assert!(refused(&epoch, target, at + 16, &[1]), "between two attachments");
    }
    epoch.flush_all()?;
    job.team().barrier()?;
    for k in (0..COUNT).step_by(37) {
        let mut got = [0; 4];
        memory.read(4 * k, &mut got)?;
        assert_eq!(got, [k as u64, previous(job).0.into(), 0, 0]);
    }
    job.team().barrier()?;
    for attached in all.drain(..COUNT / 2) {
        window.detach(attached)?;
    }
    job.team().barrier()?;
    for k in (0..COUNT).step_by(41) {
        let refused = refused(&epoch, target, base[target.index()] + 32 * place(k), &[1]);
        assert_eq!(refused, k < COUNT / 2, "attachment {k}");
    }
    epoch.unlock_all()?;
    // The rest goes with the window.
    window.free()?;
    drop(memory);
    assert_back(job, before)
}

/// Every rank attaches and detaches one half of its memory over and over, while others use the
/// other half, which stays.
fn churn(job: &Job) -> Result<()> {
    const ROUNDS: usize = 400;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 2048)?;
    let attached = window.attach(&memory.part(0, 1024)?)?;
    let there = exchange(job, attached)?;
    std::thread::scope(|scope| -> Result<()> {
        let own = scope.spawn(|| -> Result<()> {
            let mut coming: Vec<Attached> = Vec::new();
            for round in 0..ROUNDS {
                for k in 0..8 {
                    let at = 1024 + (round * 13 + k * 127) % 1016;
                    match window.attach(&memory.part(at, at + 3)?) {
                        Ok(attached) => coming.push(attached),
                        Err(Error::Misuse { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                while coming.len() > 4 {
                    window.detach(coming.swap_remove(round % coming.len()))?;
                }
            }
            coming.into_iter().try_for_each(|attached| window.detach(attached))
        });
        let epoch = window.lock_all()?;
        for round in 0..ROUNDS {
            for target in job.team().ranks() {
                let at = there[target.index()] + 8 * (round % 1024);
                epoch.accumulate(target, at, Op::Sum, &[1])?;
            }
        }
        epoch.unlock_all()?;
        own.join().expect("the thread that attaches")
    })?;
    job.team().barrier()?;
    let mut sums = vec![0; 1024];
    memory.read(0, &mut sums)?;
    assert!(sums[..ROUNDS].iter().all(|sum| *sum == u64::from(job.size())));
    assert!(sums[ROUNDS..].iter().all(|sum| *sum == 0));
    window.free()
}

fn attached_private(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::private(vec![0u64; 20]);
    let attached = window.attach(&memory)?;
    let there = exchange(job, attached)?;
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        epoch.accumulate(target, there[target.index()] + 8, Op::Sum, &[1, 2])?;
        assert!(refused(&epoch, target, there[target.index()] + 160, &[1]));
    }
    epoch.put(next(job), there[next(job).index()], &[7])?;
    epoch.flush_all()?;
    let mut back = [0];
    epoch.get(next(job), there[next(job).index()], &mut back)?;
    assert_eq!(back, [7]);
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut got = [0; 4];
    memory.read(0, &mut got)?;
    let all = u64::from(job.size());
    assert_eq!(got, [7, all, 2 * all, 0]);
    job.team().barrier()?;
    window.detach(attached)?;
    assert_eq!(memory.into_vec().expect("detached").len(), 20);
    window.free()
}

/// One thread writes to what another one of the owner's detaches and takes back: once taken back,
/// it is written no more.
fn taken_back(job: &Job) -> Result<()> {
    const LEN: usize = 1 << 17;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let epoch = window.lock_all()?;
    let values = [vec![1; LEN], vec![2; LEN]];
    for _ in 0..10 {
        let memory = Memory::private(vec![0u64; LEN]);
        let attached = window.attach(&memory)?;
        let written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Until one comes too late, which is reported by it or by flush.
                let put = |values: &[u64]| {
                    epoch.put(job.rank(), attached.address as usize, values)?;
                    epoch.flush(job.rank())
                };
                while values.iter().all(|values| put(values).is_ok()) {
                    written.store(true, Ordering::Release);
                }
                let _ = epoch.flush(job.rank());
            });
            while !written.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            window.detach(attached).unwrap();
            let taken = memory.into_vec().expect("detached, and the only handle");
            // What a put that is still at work would come to last.
            let last = black_box(&taken)[LEN - 1];
            writer.join().unwrap();
            assert_eq!(black_box(&taken)[LEN - 1], last, "written to after it was taken back");
        });
    }
    epoch.unlock_all()?;
    window.free()
}

/// Data in private memory and a signal in shared memory of one window: the signal is the later.
fn signal_beside_private(job: &Job) -> Result<()> {
    const LEN: usize = 1 << 15;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let data = Memory::private(vec![0u64; LEN]);
    let word = Memory::<u64>::shared(job.team(), 1)?;
    let (data_at, word_at) = (window.attach(&data)?, window.attach(&word)?);
    let (data_of, word_of) = (exchange(job, data_at)?, exchange(job, word_at)?);
    let epoch = window.lock_all()?;
    for round in 1..10u64 {
        let to = next(job);
        let (at, signal) = (data_of[to.index()], word_of[to.index()]);
        epoch.put_signal(to, at, &vec![round; LEN], &epoch, signal, SignalOp::Set, round)?;
        let mut seen = [0];
        while seen != [round] {
            epoch.flush_all()?;
            word.read(0, &mut seen)?;
        }
        let mut got = vec![0; LEN];
        data.read(0, &mut got)?;
        assert!(got.iter().all(|value| *value == round), "the signal overtook the data");
        job.team().barrier()?;
    }
    epoch.unlock_all()?;
    window.free()
}

fn attached_kept(job: &Job) -> Result<()> {
    let before = in_use(job)?;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 600)?;
    memory.write(0, &[6; 600])?;
    let there = exchange(job, window.attach(&memory)?)?;
    drop(memory);
    // What came free would be taken by these.
    let others = [Memory::<u64>::shared(job.team(), 600)?, Memory::shared(job.team(), 600)?];
    let epoch = window.lock_all()?;
    let mut got = [0; 600];
    epoch.get(next(job), there[next(job).index()], &mut got)?;
    assert_eq!(got, [6; 600]);
    epoch.unlock_all()?;
    drop(others);
    window.free()?;
    assert_back(job, before)
}
