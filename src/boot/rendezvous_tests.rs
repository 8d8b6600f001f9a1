//! Processes of a rendezvous that are threads.

use super::super::meeting::tests::Scratch;
use super::*;

fn within(ms: u64) -> Deadline {
    Deadline::after(Duration::from_millis(ms))
}

fn memory() -> Result<OwnedFd> {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|e| Error::os("memfd_create", e))
}

fn on_threads<R: Send>(count: u32, body: impl Fn(u32) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let body = &body;
        let all: Vec<_> = (0..count).map(|n| scope.spawn(move || body(n))).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn everybody_gets_a_rank_the_memory_and_the_values() {
    let scratch = Scratch::new();
    // Twice under one name, one after the other.
    for _ in 0..2 {
        let seen = on_threads(6, |_| {
            let mut boot = Rendezvous::join_at(&scratch.place(), "x", 6, within(20_000)).unwrap();
            let fd = boot.node_memory(&memory, within(20_000)).unwrap();
            let large = vec![boot.rank().0 as u8; MAX_VALUE];
            for key in ["a", "b", "c"] {
                boot.put(key, &large).unwrap();
            }
            boot.fence(within(20_000)).unwrap();
            for rank in 0..6 {
                let value = boot.get(Rank(rank), "c", within(0)).unwrap().unwrap();
                assert_eq!(value, vec![rank as u8; MAX_VALUE]);
            }
            boot.fence(within(20_000)).unwrap();
            (boot.rank().0, boot.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
        });
        let mut ranks: Vec<u32> = seen.iter().map(|s| s.0).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..6).collect::<Vec<u32>>());
        assert!(seen.iter().all(|s| (s.1, s.2) == (seen[0].1, seen[0].2)));
        assert!(!scratch.0.join("dir").exists(), "nothing is left");
    }
}

#[test]
fn more_than_the_size_make_further_jobs() {
    let scratch = Scratch::new();
    let mut jobs = on_threads(9, |_| {
        let boot = Rendezvous::join_at(&scratch.place(), "x", 3, within(20_000)).unwrap();
        (boot.job(), boot.rank().0)
    });
    jobs.sort_unstable();
    for job in jobs.chunks(3) {
        assert!(job.iter().all(|j| j.0 == job[0].0), "{jobs:?}");
        assert_eq!(job.iter().map(|j| j.1).collect::<Vec<u32>>(), [0, 1, 2]);
    }
}

#[test]
fn too_few_are_counted_and_nothing_is_left() {
    let scratch = Scratch::new();
    let errors = on_threads(2, |_| {
        Rendezvous::join_at(&scratch.place(), "x", 3, within(300)).unwrap_err().to_string()
    });
    assert!(errors.iter().any(|e| e.contains("2 of 3")), "{errors:?}");
    assert!(!scratch.0.join("dir").exists());
}

#[test]
fn another_size_is_refused_and_does_not_disturb() {
    let scratch = Scratch::new();
    let Found::Nobody(leading) = scratch.place().enter(within(20_000)).unwrap() else {
        panic!("somebody else leads");
    };
    let place = scratch.place();
    std::thread::scope(|scope| {
        let gathering = named("x", 2, within(20_000));
        let leader = scope.spawn(move || gathering.lead(Door::Named(leading)).unwrap());
        let err = Rendezvous::join_at(&place, "x", 3, within(20_000)).unwrap_err();
        assert!(err.to_string().contains("expects 2 processes, this one 3"), "{err}");
        let second = Rendezvous::join_at(&place, "x", 2, within(20_000)).unwrap();
        assert_eq!(second.job(), leader.join().unwrap().job);
    });
}

#[test]
fn those_that_leave_the_lobby_are_replaced() {
    let scratch = Scratch::new();
    let place = scratch.place();
    let Found::Nobody(leading) = place.enter(within(20_000)).unwrap() else {
        panic!("somebody else leads");
    };
    // One greets and goes, one connects and says nothing, one talks nonsense.
    let mut calls = (0..3).map(|_| match place.enter(within(20_000)).unwrap() {
        Found::Leader(link) => link,
        Found::Nobody(_) => panic!("the leader is there"),
    });
    let hello = Message::Hello { version: wire::VERSION, pid: 1, size: 2 };
    socket::send(calls.next().unwrap().as_fd(), &hello, None).unwrap();
    let silent = calls.next().unwrap();
    rustix::io::write(calls.next().unwrap(), b"hello?").unwrap();
    std::thread::scope(|scope| {
        let gathering = named("x", 3, within(20_000));
        let leader = scope.spawn(move || gathering.lead(Door::Named(leading)).unwrap().rank);
        let place = &place;
        let join = move || Rendezvous::join_at(place, "x", 3, within(20_000)).unwrap().rank;
        let others = [scope.spawn(join), scope.spawn(join)];
        let mut ranks = others.map(|t| t.join().unwrap());
        ranks.sort_unstable();
        assert_eq!((leader.join().unwrap(), ranks), (0, [1, 2]));
    });
    drop(silent);
}

#[test]
fn the_death_of_a_member_is_told_to_all() {
    let scratch = Scratch::new();
    let errors = on_threads(4, |_| {
        let mut boot = Rendezvous::join_at(&scratch.place(), "x", 4, within(20_000)).unwrap();
        if boot.rank() == Rank(2) {
            return None;
        }
        Some(boot.fence(within(20_000)).unwrap_err().to_string())
    });
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|e| e.contains("rank 2 died")), "{errors:?}");
}

#[test]
fn a_late_member_is_named() {
    let scratch = Scratch::new();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let held = std::sync::Mutex::new(Some(held));
    let errors = on_threads(2, |_| {
        let mut boot = Rendezvous::join_at(&scratch.place(), "x", 2, within(20_000)).unwrap();
        if boot.rank() == Rank(1) {
            // Alive, but does not take part until the other one has given up.
            let _ = hold.lock().unwrap().recv();
            return None;
        }
        let err = boot.fence(within(100)).unwrap_err().to_string();
        drop(held.lock().unwrap().take());
        Some(err)
    });
    let err = errors.into_iter().flatten().next().unwrap();
    assert!(err.contains("missing: rank 1"), "{err}");
}
