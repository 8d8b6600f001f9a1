//! Members as threads, and every point at which one may be killed. Small enough for Miri.

use super::super::queue::resolve;
use super::super::word::{Id, Word};
use super::model::{Member, READING, WRITING, granted};
use super::*;
use crate::base::Rank;
use crate::shm::crash::kill_at;
use std::sync::{Barrier, mpsc};
use std::thread;

const ROUNDS: u32 = if cfg!(miri) { 6 } else { 2000 };

fn expired() -> Deadline {
    Deadline::after(Duration::ZERO)
}

#[test]
fn writers_readers_and_those_of_all_parts_exclude_each_other() {
    let members = Member::group(5, 8);
    thread::scope(|scope| {
        for (i, member) in members.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let part = (round + i as u32) % 2;
                    match (round as usize + i) % 5 {
                        0 | 1 => assert_eq!(member.write(part, Deadline::NEVER), Some(None)),
                        2 | 3 => assert_eq!(member.read(part, Deadline::NEVER), Some(None)),
                        _ => member.read_all(Deadline::NEVER).unwrap(),
                    }
                }
            });
        }
    });
    members[0].settle();
}

#[test]
fn readers_are_inside_together_and_with_those_of_all_parts() {
    let members = Member::group(4, 8);
    let together = Barrier::new(4);
    thread::scope(|scope| {
        for (i, member) in members.iter().enumerate() {
            let together = &together;
            scope.spawn(move || {
                for _ in 0..20 {
                    let all = i < 2;
                    let taken = if all {
                        lock_all(member, Deadline::NEVER)
                    } else {
                        lock_shared(member, 1, Deadline::NEVER)
                    };
                    granted(taken).unwrap();
                    member.enter(1, READING);
                    together.wait();
                    member.leave(1);
                    assert!(if all { unlock_all(member) } else { unlock_shared(member, 1) });
                }
            });
        }
    });
}

/// Waits until somebody has the gate of a part and `n` others stand in line behind.
fn until_in_line(member: &Member, part: u32, n: usize) {
    let gate = &member.lock_of(part).gate;
    loop {
        let w = gate.load();
        let (mut at, mut count) = (w.tail(), 0);
        while at != w.owner() && count < n {
            at = Id(resolve(&member.env, at).unwrap().2.prev.load(Ordering::Relaxed));
            count += 1;
        }
        if w != Word::FREE && count >= n {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn nobody_overtakes_a_writer_that_waits_for_readers() {
    let members = Member::group(4, 8);
    granted(lock_shared(&members[0], 0, expired())).unwrap();
    granted(lock_all(&members[3], expired())).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| members[1].write(0, Deadline::NEVER));
        until_in_line(&members[0], 0, 0);
        assert!(granted(lock_shared(&members[2], 0, expired())).is_none());
        assert!(granted(lock_all(&members[2], expired())).is_none());
        assert!(granted(lock_exclusive(&members[2], 0, expired())).is_none());
        granted(lock_shared(&members[2], 1, expired())).expect("another part");
        assert!(unlock_shared(&members[2], 1));
        assert!(unlock_shared(&members[0], 0));
        assert!(granted(lock_shared(&members[0], 0, expired())).is_none());
        assert!(unlock_all(&members[3]));
        assert_eq!(writer.join().unwrap(), Some(None));
    });
    members[0].settle();
}

#[test]
fn readers_and_writers_in_line_are_served_in_its_order() {
    let members = Member::group(5, 8);
    granted(lock_exclusive(&members[0], 0, expired())).unwrap();
    let (sender, order) = mpsc::channel();
    thread::scope(|scope| {
        for (i, member) in members.iter().enumerate().skip(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                // Two readers between two writers; the lock is held while the place is told.
                let writer = i == 1 || i == 4;
                let take = if writer { lock_exclusive } else { lock_shared };
                granted(take(member, 0, Deadline::NEVER)).unwrap();
                sender.send(i).unwrap();
                if writer {
                    unlock_exclusive(member, 0, true).unwrap();
                } else {
                    assert!(unlock_shared(member, 0));
                }
            });
            until_in_line(&members[0], 0, i);
        }
        unlock_exclusive(&members[0], 0, true).unwrap();
    });
    drop(sender);
    let order: Vec<usize> = order.iter().collect();
    assert!(order == [1, 2, 3, 4] || order == [1, 3, 2, 4], "{order:?}");
    members[0].settle();
}

#[test]
fn who_holds_a_part_is_told_so() {
    let members = Member::group(2, 8);
    let member = &members[0];
    let already = |taken: Result<Taken>| assert_eq!(taken.unwrap(), Taken::Already);
    granted(lock_shared(member, 0, expired())).unwrap();
    already(lock_shared(member, 0, expired()));
    already(lock_exclusive(member, 0, expired()));
    assert!(holds_any(member).unwrap() && !holds_any(&members[1]).unwrap());
    // Another stands at the gate meanwhile.
    assert!(granted(lock_exclusive(&members[1], 0, expired())).is_none());
    already(lock_shared(member, 0, expired()));
    assert!(unlock_shared(member, 0) && !unlock_shared(member, 0));
    granted(lock_exclusive(member, 0, expired())).unwrap();
    already(lock_shared(member, 0, expired()));
    already(lock_exclusive(member, 0, expired()));
    assert!(holds_any(member).unwrap());
    assert!(try_unlock_exclusive(member, 0).unwrap());
    assert!(!try_unlock_exclusive(member, 0).unwrap());
    granted(lock_all(member, expired())).unwrap();
    already(lock_all(member, expired()));
    already(lock_exclusive(member, 0, expired()));
    assert!(unlock_all(member) && !unlock_all(member));
    members[1].settle();
}

#[test]
fn a_deadline_ends_every_wait_and_names_who_is_waited_for() {
    let members = Member::group(3, 8);
    let names = |taken: Result<Taken>, who: &[Rank]| match taken {
        Err(Error::TimedOut { missing, .. }) => assert_eq!(missing, who),
        other => panic!("{other:?}"),
    };
    granted(lock_shared(&members[1], 0, expired())).unwrap();
    names(lock_exclusive(&members[0], 0, expired()), &[Rank(1)]);
    granted(lock_shared(&members[2], 0, expired())).unwrap();
    assert!(unlock_shared(&members[1], 0) && unlock_shared(&members[2], 0));
    granted(lock_all(&members[2], expired())).unwrap();
    names(lock_exclusive(&members[0], 0, expired()), &[Rank(2)]);
    assert!(unlock_all(&members[2]));
    granted(lock_exclusive(&members[0], 0, expired())).unwrap();
    names(lock_shared(&members[1], 0, expired()), &[Rank(0)]);
    names(lock_all(&members[1], expired()), &[Rank(0)]);
    assert!(members[1].everywhere().is_empty());
    unlock_exclusive(&members[0], 0, true).unwrap();
    members[2].settle();
}

#[test]
fn who_was_lost_is_told_until_somebody_could_repair_it() {
    let members = Member::group(3, 8);
    granted(lock_exclusive(&members[0], 1, expired())).unwrap();
    members[0].env.die();
    assert_eq!(members[1].read(1, Deadline::NEVER), Some(Some(0)));
    assert_eq!(members[2].read(1, Deadline::NEVER), Some(Some(0)));
    assert_eq!(members[1].write(0, Deadline::NEVER), Some(None), "another part");
    assert_eq!(members[1].write(1, Deadline::NEVER), Some(Some(0)));
    assert_eq!(members[2].read(1, Deadline::NEVER), Some(None));
    // One that gives up its lock half-way is as good as dead.
    granted(lock_exclusive(&members[1], 1, expired())).unwrap();
    unlock_exclusive(&members[1], 1, false).unwrap();
    assert_eq!(members[2].write(1, Deadline::NEVER), Some(Some(1)));
    members[2].settle();
}

#[test]
fn a_member_killed_at_any_point_leaves_locks_that_work() {
    let roles: [fn(&Member); 3] = [
        |member| _ = member.write(0, Deadline::NEVER),
        |member| _ = member.read(0, Deadline::NEVER),
        |member| _ = member.read_all(Deadline::NEVER),
    ];
    for role in roles {
        for n in 1.. {
            let members = Member::group(2, 7);
            let lived = kill_at(n, || role(&members[0])).is_some();
            members[0].env.die();
            members[1].settle();
            if lived {
                assert!(n > 3, "no point was reached");
                break;
            }
        }
    }
}

/// As above, where the mortal cannot go straight through: somebody has the part exclusively, and
/// passes it on when the mortal is killed or in line.
#[test]
fn a_member_killed_in_line_leaves_locks_that_work() {
    let roles: [fn(&Member); 3] = [
        |member| _ = member.write(0, Deadline::NEVER),
        |member| _ = member.read(0, Deadline::NEVER),
        |member| _ = member.read_all(Deadline::NEVER),
    ];
    for role in roles {
        for n in 1.. {
            let members = Member::group(3, 7);
            granted(lock_exclusive(&members[2], 0, expired())).unwrap();
            members[2].enter(0, WRITING);
            let lived = thread::scope(|scope| {
                let mortal = scope.spawn(|| {
                    let lived = kill_at(n, || role(&members[0])).is_some();
                    members[0].env.die();
                    lived
                });
                thread::sleep(Duration::from_millis(2));
                members[2].leave(0);
                unlock_exclusive(&members[2], 0, true).unwrap();
                mortal.join().unwrap()
            });
            members[1].settle();
            if lived {
                assert!(n > 3, "no point was reached");
                break;
            }
        }
    }
}

/// Whoever takes all parts gives way to one that holds a part and wants another, whichever way
/// round that takes them.
#[test]
fn taking_all_parts_does_not_deadlock_with_those_that_hold_some() {
    let members = Member::group(3, 8);
    thread::scope(|scope| {
        for (i, member) in members[..2].iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..ROUNDS / 40 + 2 {
                    // Members order their own locks by falling number, all the same.
                    granted(lock_exclusive(member, 2, Deadline::NEVER)).unwrap();
                    if i == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    granted(lock_exclusive(member, 0, Deadline::NEVER)).unwrap();
                    member.enter(0, WRITING);
                    member.enter(2, WRITING);
                    member.leave(2);
                    member.leave(0);
                    unlock_exclusive(member, 0, true).unwrap();
                    unlock_exclusive(member, 2, true).unwrap();
                }
            });
        }
        for _ in 0..ROUNDS / 100 + 2 {
            members[2].read_all(Deadline::NEVER).unwrap();
        }
    });
    members[2].settle();
}
