//! Origins on the target's own node, which work on its part themselves, and origins on other nodes,
//! whose packets the target carries out, at the same time on the same words. On one node all are near,
//! and the same holds.

use crate::Written;
use crate::kinds::next;
use hither::rma::LockEpoch;
use hither::{
    Any, Datum, Epoch, Info, Job, Layout, Located, LockKind, Memory, Op, Rank, Result, Window,
};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("mixed_ways_as_they_are_counted", counted),
    ("mixed_sums_of_single_elements", single_elements),
    ("mixed_sums_of_words_are_exact", sums),
    ("mixed_sums_of_many_are_exact", many),
    ("mixed_pairs_lose_no_update", pairs),
    ("mixed_pairs_are_swapped_one_at_a_time", swapped_pairs),
    ("mixed_tickets_are_unique", tickets),
    ("mixed_swaps_make_a_lock", swapped_lock),
    ("mixed_exclusive_locks_exclude", exclusive),
    ("mixed_lock_all_among_writers", all_among_writers),
    ("mixed_fences_order_phases", fences),
    ("mixed_groups_see_all", groups),
    ("mixed_flush_and_message", flushed),
    ("mixed_am_take_turns", turns),
    ("mixed_views_in_epochs", views),
];

const WORD: usize = size_of::<u64>();

/// The ranks on this rank's node.
fn near(job: &Job) -> Result<Vec<Rank>> {
    let mut ranks = vec![0; job.node_team().size() as usize];
    job.node_team().allgather(&[job.rank().0], &mut ranks)?;
    Ok(ranks.into_iter().map(Rank).collect())
}

fn counter<T: Datum>(window: &Window<T>, name: &str) -> u64 {
    let all = window.packet_counters();
    all.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// So many times as there are for four ranks, fewer where more ranks do it with more targets.
fn share(job: &Job, each: u64) -> u64 {
    each * 4 / u64::from(job.size().max(4))
}

/// Whether operations on parts of the own node go without packets at all.
fn may_be_direct() -> bool {
    !std::env::var("HITHER_RMA_MEDIUM").is_ok_and(|medium| medium == "packets")
}

/// Every operation there is, on a part of at least 8 elements from `start` on.
fn every_operation(epoch: &Epoch<'_, u64>, target: Rank, start: usize) -> Result<()> {
    let unit = epoch.window().attributes().unit;
    let at = |element: usize| start + element * WORD / unit;
    let pair = Layout::of::<u64>().hvector(2, 1, 2 * WORD as isize)?;
    let (two, pair) = (Layout::of::<u64>(), pair.times(1));
    let two = two.times(2);
    let mut got = [0; 2];
    epoch.put(target, at(0), &[1, 2])?;
    epoch.get(target, at(0), &mut got)?;
    epoch.accumulate(target, at(0), Op::Sum, &[1; 8])?;
    epoch.get_accumulate(target, at(0), Op::Max, &[1, 1], &mut got)?;
    epoch.fetch_and_op(target, at(1), Op::Sum, 1)?;
    epoch.compare_and_swap(target, at(1), 0, 1)?;
    epoch.put_layout(target, at(0), pair, &[1, 2], two)?;
    epoch.get_layout(target, at(0), pair, &mut got, two)?;
    epoch.accumulate_layout(target, at(0), pair, Op::Sum, &[1, 2], two)?;
    let (mut more, none) = ([0; 2], [0u64; 2]);
    epoch.get_accumulate_layout(target, at(0), pair, Op::Sum, &none, two, &mut more, two)?;
    epoch.get_request(target, at(0), 2)?.wait()?;
    epoch.get_accumulate_request(target, at(0), Op::Sum, &[1])?.wait()?;
    Ok(())
}

/// Operations on parts of the own node send nothing, those on others' do.
fn counted(job: &Job) -> Result<()> {
    let (team, near) = (job.team(), near(job)?);
    let (me, len) = (job.rank().index(), |rank: usize| 16 + rank % 3);
    let attached = Memory::<u64>::shared(team, 16)?;
    let dynamic = Window::<u64>::builder(team).dynamic()?;
    let mut places = vec![0; job.size() as usize];
    let there = dynamic.attach(&attached)?;
    team.allgather(&[there.address as usize], &mut places)?;
    let zero = vec![0; places.len()];
    let private = Memory::private(vec![0u64; 16]);
    // Each with where its parts begin, and whether the memory is mapped.
    let windows = [
        (Window::<u64>::allocate(team, 16)?, &zero, true),
        (Window::builder(team).different_sizes().allocate(len(me))?, &zero, true),
        (Window::builder(team).create(Memory::shared(team, 16)?)?, &zero, true),
        (Window::builder(team).create(private)?, &zero, false),
        (dynamic, &places, true),
    ];
    for (kind, (window, starts, mapped)) in windows.iter().enumerate() {
        let add = window.register::<u64, u64>(1, |call| {
            let _ = call.persistent.fetch_and_op(0, Op::Sum, call.input[0]);
        })?;
        for target in team.ranks() {
            // Its own part is mapped for each, but where operations on attached memory look it up.
            let here = near.contains(&target) && (*mapped || target == job.rank());
            let start = starts[target.index()];
            let epoch = window.lock(target, LockKind::Shared)?;
            let before = counter(window, "operations_sent");
            every_operation(&epoch, target, start)?;
            epoch.flush()?;
            if start == 0 {
                epoch.am(&add, target, 0..1, &[1], &mut [])?;
                epoch.message(&add, target).persistent(0..1).input(&[1]).run()?;
            }
            let sent = counter(window, "operations_sent") - before;
            let direct = here && may_be_direct();
            assert_eq!(sent == 0, direct, "kind {kind}, target {target}: {sent} sent");
            epoch.unlock()?;
        }
        team.barrier()?;
    }
    windows.into_iter().try_for_each(|(window, ..)| window.free())
}

/// Single words, by every operation that adds; some of the origins ask for the result.
fn sums(job: &Job) -> Result<()> {
    let each = share(job, 150);
    let window = Window::<u64>::allocate(job.team(), 4)?;
    let floats = Window::<f64>::allocate(job.team(), 2)?;
    let (epoch, float) = (window.lock_all()?, floats.lock_all()?);
    for round in 0..each {
        for target in job.team().ranks() {
            match (round + u64::from(job.rank().0)) % 3 {
                0 => epoch.accumulate(target, 0, Op::Sum, &[1])?,
                1 => drop(epoch.fetch_and_op(target, 0, Op::Sum, 1)?),
                _ => epoch.get_accumulate(target, 0, Op::Sum, &[1], &mut [0])?,
            }
            epoch.accumulate(target, 1, Op::Sum, &[1, 2, 3])?;
            float.accumulate(target, 1, Op::Sum, &[0.5])?;
        }
    }
    epoch.unlock_all()?;
    float.unlock_all()?;
    job.team().barrier()?;
    let all = each * u64::from(job.size());
    let mut mine = [0; 4];
    window.local().read(0, &mut mine)?;
    assert_eq!(mine, [all, all, 2 * all, 3 * all]);
    assert_eq!(floats.local().get(1)?, 0.5 * all as f64);
    window.free()?;
    floats.free()
}

/// Has far origins work on `target` while near ones, its owner aside, do so all the time. Returns how
/// often each near one did.
fn from_both_sides(
    job: &Job,
    target: Rank,
    mut near_work: impl FnMut() -> Result<()>,
    far_work: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let over = Window::<u64>::allocate(job.team(), 1)?;
    let near = near(job)?;
    let far = u64::from(job.size()) - near.len() as u64;
    let epoch = over.lock_all()?;
    let mut times = 0;
    if !near.contains(&target) {
        far_work()?;
        for rank in job.team().ranks() {
            epoch.accumulate(rank, 0, Op::Sum, &[1])?;
        }
        epoch.flush_all()?;
    } else if job.rank() != target {
        let begun = Instant::now();
        while times < 20 || over.local().fetch_and_op(0, Op::NoOp, 0)? < far {
            near_work()?;
            times += 1;
            assert!(begun.elapsed() < Duration::from_secs(100), "the far ones do not end");
        }
    }
    epoch.unlock_all()?;
    over.free()?;
    Ok(times)
}

/// So many elements that they are updated under locks, while others update single ones of them.
fn many(job: &Job) -> Result<()> {
    const LEN: usize = 6000;
    let far = share(job, 30) as u32;
    let window = Window::<u32>::allocate(job.team(), LEN)?;
    let (ones, near) = (vec![1; LEN], near(job)?);
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        let single = [0, 3, LEN / 2, LEN - 1];
        let all_and_some = || {
            epoch.accumulate(target, 0, Op::Sum, &ones)?;
            single
                .into_iter()
                .try_for_each(|index| epoch.fetch_and_op(target, index, Op::Sum, 1).map(drop))
        };
        let times = from_both_sides(job, target, all_and_some, || {
            (0..far).try_for_each(|_| all_and_some())?;
            epoch.flush(target)
        })?;
        let mut sum = [if near.contains(&target) { times as u32 } else { far }];
        job.team().allreduce(Op::Sum, &mut sum)?;
        let mut found = vec![0; LEN];
        epoch.get(target, 0, &mut found)?;
        for (index, got) in found.into_iter().enumerate() {
            let want = if single.contains(&index) { 2 * sum[0] } else { sum[0] };
            assert_eq!(got, want, "element {index} of {target}");
        }
    }
    epoch.unlock_all()?;
    window.free()
}

/// Pairs of 16 bytes have no native way: each is updated under the lock of its stripe, and stored as a
/// whole even if it stays as it was.
fn pairs(job: &Job) -> Result<()> {
    let each = share(job, 150);
    let window = Window::<Located<u64, i64>>::allocate(job.team(), job.size() as usize)?;
    let pair = |value| Located { value, index: 7 };
    let (nothing, mine) = (vec![pair(0); window.len()], job.rank().index());
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        let unchanged = || epoch.accumulate(target, 0, Op::MaxLoc, &nothing);
        from_both_sides(job, target, unchanged, || {
            for value in 1..=each {
                let mut old = [pair(0)];
                epoch.get_accumulate(target, mine, Op::MaxLoc, &[pair(value)], &mut old)?;
                assert_eq!(old[0].value, value - 1, "a greater one was lost");
            }
            Ok(())
        })?;
    }
    epoch.unlock_all()?;
    window.free()
}

/// Who swaps first wins, with pairs as well.
fn swapped_pairs(job: &Job) -> Result<()> {
    let each = share(job, 40);
    let window = Window::<Located<u64, i64>>::allocate(job.team(), 1)?;
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        let mut known = Located { value: 0, index: 0 };
        let mut done = 0;
        while done < each {
            let new = Located { value: known.value + 1, index: known.index - 1 };
            let found = epoch.compare_and_swap(target, 0, known, new)?;
            done += u64::from(found == known);
            known = if found == known { new } else { found };
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let all = each * u64::from(job.size());
    assert_eq!(window.local().get(0)?, Located { value: all, index: -(all as i64) });
    window.free()
}

/// Nobody draws what somebody else has drawn.
fn tickets(job: &Job) -> Result<()> {
    let each = share(job, 200) as usize;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for target in job.team().ranks() {
        let epoch = window.lock(target, LockKind::Shared)?;
        let drawn: Result<Vec<u64>> =
            (0..each).map(|_| epoch.fetch_and_op(target, 0, Op::Sum, 1)).collect();
        epoch.unlock()?;
        let mut drawn = drawn?;
        assert!(drawn.is_sorted());
        let mut all = vec![0; each * job.size() as usize];
        job.team().allgather(&drawn, &mut all)?;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..all.len() as u64), "of {target}");
        drawn.clear();
    }
    window.free()
}

/// A lock made of a word, and a count that only it protects.
fn swapped_lock(job: &Job) -> Result<()> {
    let each = share(job, 25);
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let name = u64::from(job.rank().0) + 1;
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        for _ in 0..each {
            let begun = Instant::now();
            while epoch.compare_and_swap(target, 0, 0, name)? != 0 {
                assert!(begun.elapsed() < Duration::from_secs(100), "nobody gives it back");
                std::thread::yield_now();
            }
            let mut count = [0];
            epoch.get(target, 1, &mut count)?;
            epoch.put(target, 1, &[count[0] + 1])?;
            epoch.flush(target)?;
            assert_eq!(epoch.compare_and_swap(target, 0, name, 0)?, name);
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    assert_eq!(window.local().get(1)?, each * u64::from(job.size()));
    window.free()
}

/// Adds 1 to each of some elements in a way that only mutual exclusion makes right.
fn add_one(epoch: &LockEpoch<'_, u64>, target: Rank, len: usize) -> Result<()> {
    let mut values = vec![0; len];
    epoch.get(target, 0, &mut values)?;
    assert!(values.iter().all(|value| *value == values[0]), "half of a change: {values:?}");
    values.iter_mut().for_each(|value| *value += 1);
    epoch.put(target, 0, &values)
}

fn exclusive(job: &Job) -> Result<()> {
    const LEN: usize = 1000;
    let each = share(job, 60);
    let window = Window::<u64>::allocate(job.team(), LEN)?;
    for round in 0..each {
        for target in job.team().ranks() {
            let epoch = window.lock(target, LockKind::Exclusive)?;
            add_one(&epoch, target, LEN)?;
            if round % 3 == 0 {
                epoch.flush()?;
                add_one(&epoch, target, LEN)?;
            }
            epoch.unlock()?;
        }
    }
    job.team().barrier()?;
    let all = (each + each.div_ceil(3)) * u64::from(job.size());
    assert_eq!((window.local().get(0)?, window.local().get(LEN - 1)?), (all, all));
    window.free()
}

/// Who has locked all parts finds them unchanged as long as that lasts, among those who change them.
fn all_among_writers(job: &Job) -> Result<()> {
    const LEN: usize = 600;
    let window = Window::<u64>::allocate(job.team(), LEN)?;
    for round in 0..share(job, 30) as u32 {
        if (round + job.rank().0).is_multiple_of(2) {
            for target in job.team().ranks() {
                let epoch = window.lock(target, LockKind::Exclusive)?;
                add_one(&epoch, target, LEN)?;
                epoch.unlock()?;
            }
        } else {
            let epoch = window.lock_all()?;
            for target in job.team().ranks() {
                let (mut first, mut again) = (vec![0; LEN], vec![0; LEN]);
                epoch.get(target, 0, &mut first)?;
                std::thread::sleep(Duration::from_micros(300));
                epoch.get(target, 0, &mut again)?;
                assert!(first.iter().chain(&again).all(|value| *value == first[0]), "{target}");
            }
            epoch.unlock_all()?;
        }
    }
    window.free()
}

/// What anybody writes in one phase, everybody finds in the next, and nothing of a later one. One part
/// gets much, so that its owner is behind the others.
fn fences(job: &Job) -> Result<()> {
    const LEN: usize = 6000;
    let size = job.size() as usize;
    let window = Window::<u64>::allocate(job.team(), size * LEN)?;
    let mut epoch = window.fence()?;
    for round in 1..16u64 {
        let target = Rank((round % size as u64) as u32);
        epoch.put(target, job.rank().index() * LEN, &vec![round; LEN])?;
        epoch.next()?;
        let mut found = vec![0; size * LEN];
        epoch.get(target, 0, &mut found)?;
        let other = found.iter().position(|value| *value != round);
        assert_eq!(other, None, "round {round}");
        epoch.next()?;
    }
    epoch.end()?;
    window.free()
}

/// Every origin, near and far, in one exposure; what they do is there when it is over.
fn groups(job: &Job) -> Result<()> {
    let size = job.size() as usize;
    let window = Window::<u64>::allocate(job.team(), size + 1)?;
    let everybody: Vec<Rank> = job.team().ranks().collect();
    for round in 1..25u64 {
        // The part is its owner's between exposures.
        window.local().set(size, 0)?;
        window.local().write(0, &vec![0; size])?;
        let exposure = window.post(&everybody)?;
        let access = window.start(&everybody)?;
        for &target in &everybody {
            access.put(target, job.rank().index(), &[round])?;
            access.accumulate(target, size, Op::Sum, &[round])?;
        }
        access.complete()?;
        exposure.wait()?;
        let mut mine = vec![0; size + 1];
        window.local().read(0, &mut mine)?;
        assert!(mine[..size].iter().all(|value| *value == round), "{round}: {mine:?}");
        assert_eq!(mine[size], round * u64::from(job.size()));
    }
    window.free()
}

/// Who is told by a message after a flush finds the data: the owner, and whoever gets them.
fn flushed(job: &Job) -> Result<()> {
    const LEN: usize = 500;
    let (team, window) = (job.team(), Window::<u64>::allocate(job.team(), LEN)?);
    let epoch = window.lock_all()?;
    let target = next(job);
    for round in 1..20u64 {
        epoch.put(target, 0, &[round; LEN])?;
        epoch.flush(target)?;
        for to in team.ranks() {
            team.send(to, 7, &[target.0])?;
        }
        for _ in team.ranks() {
            let (mut of, mut found) = ([0], vec![0; LEN]);
            team.recv(Any, 7, &mut of)?;
            epoch.get(Rank(of[0]), 0, &mut found)?;
            assert!(found.iter().all(|value| *value == round), "round {round} of {}", of[0]);
            if Rank(of[0]) == job.rank() {
                window.local().read(0, &mut found)?;
                assert!(found.iter().all(|value| *value == round), "round {round}, own");
            }
        }
        team.barrier()?;
    }
    epoch.unlock_all()?;
    window.free()
}

/// Handlers that only their turns keep apart, on parts with near and far origins.
fn turns(job: &Job) -> Result<()> {
    let each = share(job, 40);
    let window = Window::<u64>::allocate(job.team(), 64)?;
    let add = window.register::<u64, u64>(3, |call| {
        let mut all = [0; 64];
        let _ = call.persistent.read(0, &mut all);
        std::thread::yield_now();
        all.iter_mut().for_each(|value| *value += call.input[0]);
        let _ = call.persistent.write(0, &all);
        call.output[0] = all[0];
    })?;
    let epoch = window.lock_all()?;
    let mut drawn = Vec::new();
    for _ in 0..each {
        for target in job.team().ranks() {
            let mut now = [0];
            epoch.am(&add, target, 0..64, &[1], &mut now)?;
            drawn.push([u64::from(target.0), now[0]]);
        }
    }
    epoch.unlock_all()?;
    let mut all = vec![[0; 2]; drawn.len() * job.size() as usize];
    job.team().allgather(&drawn, &mut all)?;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), drawn.len() * job.size() as usize, "two had the same turn");
    let mut mine = [0; 64];
    window.local().read(0, &mut mine)?;
    assert_eq!(mine, [each * u64::from(job.size()); 64]);
    window.free()
}

/// A window that is told to update its elements one by one loses nothing, however many are updated at a time.
fn single_elements(job: &Job) -> Result<()> {
    const LEN: usize = 3000;
    const ROUNDS: usize = 6;
    let mut info = Info::default();
    assert!(info.set("mpi_accumulate_granularity", "8")?);
    let window = Window::<u64>::builder(job.team()).info(info).allocate(LEN)?;
    let (ones, mut old) = ([1; LEN], [0; LEN]);
    let epoch = window.lock_all()?;
    for round in 0..ROUNDS {
        for target in job.team().ranks() {
            epoch.accumulate(target, 0, Op::Sum, &ones)?;
            epoch.get_accumulate(target, 1, Op::Sum, &ones[1..], &mut old[1..])?;
            epoch.flush(target)?;
            // This rank's own updates are among what was there.
            assert!(old[1..].iter().all(|sum| *sum > 2 * round as u64));
            epoch.fetch_and_op(target, round, Op::Sum, 1)?;
            let mut seen = epoch.fetch_and_op(target, round, Op::NoOp, 0)?;
            loop {
                let was = epoch.compare_and_swap(target, round, seen, seen + 1)?;
                if was == seen {
                    break;
                }
                seen = was;
            }
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut mine = [0; LEN];
    window.local().read(0, &mut mine)?;
    for (at, sum) in mine.iter().enumerate() {
        let each = ROUNDS * (1 + usize::from(at > 0)) + 2 * usize::from(at < ROUNDS);
        assert_eq!(*sum, each as u64 * u64::from(job.size()), "element {at}");
    }
    job.team().barrier()?;
    window.free()
}

/// Parts of the own node as they are to loads and stores, within epochs.
fn views(job: &Job) -> Result<()> {
    let near = near(job)?;
    let window = Window::<u64>::builder(job.team()).info(Info::default()).allocate(300)?;
    for target in job.team().ranks() {
        let apart = job.team().spans_nodes();
        let mapped = may_be_direct() && near.contains(&target);
        assert_eq!(window.part(target).is_ok(), mapped && !apart, "{target} in no epoch");
        for _ in 0..20 {
            let epoch = window.lock(target, LockKind::Exclusive)?;
            match window.part(target) {
                Ok(view) if mapped => {
                    let mut all = [0; 300];
                    view.read(0, &mut all)?;
                    assert!(all.iter().all(|value| *value == all[0]));
                    view.write(0, &all.map(|value| value + 1))?;
                }
                Err(_) if !mapped => add_one(&epoch, target, 300)?,
                other => panic!("{target}: {other:?}"),
            }
            epoch.unlock()?;
        }
    }
    job.team().barrier()?;
    assert_eq!(window.local().get(299)?, 20 * u64::from(job.size()));
    window.free()
}
