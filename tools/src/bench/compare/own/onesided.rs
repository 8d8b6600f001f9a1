//! The loops of `benches/peers/onesided.c`.

use super::{Run, unknown};
use crate::bench::crew::Crew;
use crate::bench::pages::{Pages, buffers};
use hither::rma::{AccumulateOps, Epoch, Info, LockKind};
use hither::{Compare, Op, Rank, Result, SignalOp, Window};
use std::hint::black_box;

/// Operations a flush, of those that are completed many at a time.
const MANY: u64 = 128;
/// How many words behind the beginning of a page old values come back (see `benches/peers/common.h`).
const ASIDE: usize = 8;

/// The loop of that name. What is sent lies in the loop's own box, so that the compiler knows no more of it
/// than it does of the C programs' buffers.
pub fn make(crew: &Crew, name: &str, size: usize) -> Result<Run<'static>> {
    let team = crew.job()?.team().clone();
    let (rank, ranks) = (crew.rank(), crew.size());
    let target = Rank((rank + 1) % ranks);
    let acts = ranks > 2 || rank == 0;
    let words = size.div_ceil(8).max(1);
    let (name, single) = name.strip_prefix("single-").map_or((name, false), |name| (name, true));
    let info = if single {
        let accumulate_ops = AccumulateOps::SameOp;
        Info { accumulate_granularity: 8, accumulate_ops, ..Info::default() }
    } else {
        Info::default()
    };
    let window = Window::<u64>::builder(&team).info(info).allocate(words.max(8))?;
    // As `benches/peers` do: memory that was never written is read by other ways of the processor.
    window.local().write(0, &vec![0; words.max(8)])?;
    let origin = Pages::<u64>::new(words);
    let mut result = Pages::<u64>::new(words);
    let mut old = Pages::<u64>::new(words + ASIDE);
    let (name, many) = name.strip_suffix("-rate").map_or((name, false), |name| (name, true));
    let locked = |window: Window<u64>, kind: LockKind, whose: Rank, all: bool| -> Run<'static> {
        let team = team.clone();
        Box::new(move |n| {
            for _ in 0..if all || acts { n } else { 0 } {
                let lock = window.lock(whose, kind)?;
                lock.put(whose, 0, black_box(&[1]))?;
                lock.unlock()?;
            }
            if all { team.barrier() } else { Ok(()) }
        })
    };
    /// As in `benches/peers/onesided.c`, a loop that completes each operation and one that completes many at a time,
    /// and in each the only place that calls what it is of: so that is compiled into both.
    macro_rules! each {
        ($once:expr) => {
            match many {
                false => every::<1>(window, acts, target, $once),
                true => every::<MANY>(window, acts, target, $once),
            }
        };
    }
    Ok(match name {
        "put" => {
            each!(move |epoch: &Epoch<'_, u64>, target, _: &mut u64| epoch
                .put(target, 0, &origin)
                .map(|()| 0))
        }
        "get" => each!(move |epoch: &Epoch<'_, u64>, target, _: &mut u64| {
            epoch.get(target, 0, &mut result)?;
            black_box(&result);
            Ok(0)
        }),
        "accumulate" => each!(move |epoch: &Epoch<'_, u64>, target, _: &mut u64| {
            epoch.accumulate(target, 0, Op::Sum, &origin).map(|()| 0)
        }),
        "get-accumulate" => each!(move |epoch: &Epoch<'_, u64>, target, _: &mut u64| {
            epoch.get_accumulate(target, 0, Op::Sum, &origin, &mut old[ASIDE..])?;
            black_box(&old);
            Ok(0)
        }),
        "fetch-and-op" => {
            each!(move |epoch: &Epoch<'_, u64>, target, _: &mut u64| epoch.fetch_and_op(
                target,
                0,
                Op::Sum,
                1
            ))
        }
        "compare-and-swap" => {
            each!(|epoch: &Epoch<'_, u64>, target, expected: &mut u64| {
                let next = expected.wrapping_add(1);
                let found = epoch.compare_and_swap(target, 0, *expected, next)?;
                *expected = if found == *expected { next } else { found };
                Ok(0)
            })
        }
        "lock-shared" => locked(window, LockKind::Shared, target, false),
        "lock-exclusive" => locked(window, LockKind::Exclusive, target, false),
        "lock-contended" => locked(window, LockKind::Exclusive, Rank(0), true),
        "fence" => Box::new(move |n| {
            let mut fence = window.fence()?;
            for _ in 0..n {
                fence.next()?;
            }
            fence.end()
        }),
        "pscw" => Box::new(move |n| {
            let peer = Rank(rank ^ 1);
            for _ in 0..n {
                if rank.is_multiple_of(2) {
                    let access = window.start(&[peer])?;
                    access.put(peer, 0, black_box(&origin[..1]))?;
                    access.complete()?;
                } else {
                    window.post(&[peer])?.wait()?;
                }
            }
            Ok(())
        }),
        "signal" | "signal-bandwidth" => return signals(crew, name == "signal", size),
        _ => return Err(unknown(name)),
    })
}

/// Operations under a lock of all, completed so many at a time, with a word that they may keep.
fn every<const MANY: u64>(
    window: Window<u64>,
    acts: bool,
    target: Rank,
    mut once: impl FnMut(&Epoch<'_, u64>, Rank, &mut u64) -> Result<u64> + 'static,
) -> Run<'static> {
    let mut kept = 0;
    Box::new(move |n| {
        if !acts {
            return Ok(());
        }
        let epoch = window.lock_all()?;
        // Local variables, as in C.
        let (target, mut state) = (target, kept);
        let mut total = 0u64;
        for i in 0..n {
            align();
            total = total.wrapping_add(once(&epoch, target, &mut state)?);
            if i % MANY == MANY - 1 {
                epoch.flush(target)?;
            }
        }
        epoch.flush(target)?;
        kept = state;
        black_box(total);
        epoch.unlock_all()
    })
}

/// Has a loop of a few instructions begin where lines of code do, as compilers of C have it: the same loop takes up to
/// a tenth longer elsewhere, by where the linker puts it.
#[inline(always)]
fn align() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: instructions that do nothing.
    unsafe {
        std::arch::asm!(".p2align 5", options(nomem, nostack, preserves_flags));
    }
}

/// Puts with a signal behind them: there and back, or windows of them one way, each answered.
fn signals(crew: &Crew, one: bool, size: usize) -> Result<Run<'static>> {
    const LINE: usize = 8;
    let team = crew.job()?.team().clone();
    let (peer, even) = (Rank(crew.rank() ^ 1), crew.rank().is_multiple_of(2));
    let slots = if one { 1 } else { buffers(size) };
    let words = size.div_ceil(8);
    let stride = words.next_multiple_of(LINE).max(LINE);
    let (signal, answer) = (slots * stride, slots * stride + LINE);
    let window = Window::<u64>::allocate(&team, answer + LINE)?;
    let mut sources: Vec<Pages<u64>> = (0..slots).map(|_| Pages::new(words)).collect();
    let (mut signals, mut answers) = (0, 0);
    Ok(Box::new(move |n| {
        let epoch = window.lock_all()?;
        let place = |at: usize, source: &[u64]| {
            epoch.put_signal(peer, at * stride, source, &epoch, signal, SignalOp::Add, 1)
        };
        let await_all = |word, all| window.wait_until(word, Compare::Ge, all).map(drop);
        if one {
            for i in 0..n {
                signals += 1;
                if even {
                    if let Some(word) = sources[0].first_mut() {
                        *word = i;
                    }
                    place(0, &sources[0])?;
                    await_all(signal, signals)?;
                } else {
                    await_all(signal, signals)?;
                    place(0, &sources[0])?;
                }
            }
            return epoch.unlock_all();
        }
        let mut left = n as usize;
        while left > 0 {
            let count = left.min(slots);
            if even {
                for (at, source) in sources.iter().enumerate().take(count) {
                    place(at, source)?;
                }
                answers += 1;
                await_all(answer, answers)?;
            } else {
                signals += count as u64;
                await_all(signal, signals)?;
                epoch.put_signal(peer, 0, &[], &epoch, answer, SignalOp::Add, 1)?;
            }
            left -= count;
        }
        epoch.unlock_all()
    }))
}
