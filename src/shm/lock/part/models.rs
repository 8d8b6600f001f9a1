//! Loom models: every interleaving, up to a bound of preemptions, of a few members, and every
//! point at which one of them may be killed.

use super::model::Member;
use super::*;
use crate::base::sync::futex_blocks;
use crate::shm::crash::kill_at;
use loom::thread;

type Role = fn(&Member);

/// Every schedule with at most `bound` preemptions (LOOM_MAX_PREEMPTIONS may lower it).
fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
    builder.max_branches = 20_000;
    builder.check(f);
}

fn play(members: &[Member], roles: &[Role]) {
    let threads: Vec<_> = roles[1..]
        .iter()
        .zip(&members[1..])
        .map(|(&role, member)| {
            let member = member.clone();
            thread::spawn(move || role(&member))
        })
        .collect();
    roles[0](&members[0]);
    threads.into_iter().for_each(|t| t.join().unwrap());
    members[roles.len() - 1].settle();
}

/// Each role by a member of its own, with sleeps that end by themselves; then with sleeps that end
/// by wakes alone, where a lost one is a deadlock.
fn cast(bound: usize, roles: &'static [Role]) {
    model(bound, move || play(&Member::group(roles.len(), 2), roles));
    futex_blocks(true);
    model(bound, move || play(&Member::group(roles.len(), 2), roles));
    futex_blocks(false);
}

fn write(member: &Member) {
    assert_eq!(member.write(0, Deadline::NEVER), Some(None));
}

fn write_other(member: &Member) {
    assert_eq!(member.write(1, Deadline::NEVER), Some(None));
}

fn read(member: &Member) {
    assert_eq!(member.read(0, Deadline::NEVER), Some(None));
}

fn read_twice(member: &Member) {
    read(member);
    read(member);
}

fn read_all(member: &Member) {
    member.read_all(Deadline::NEVER).unwrap();
}

#[test]
fn loom_readers_and_a_writer_exclude_each_other() {
    cast(3, &[read_twice, write]);
    cast(1, &[read, write, read]);
    cast(1, &[read, write, write]);
}

#[test]
fn loom_all_and_a_writer_exclude_each_other() {
    cast(3, &[read_all, write]);
    cast(1, &[read_all, write, read_all]);
}

#[test]
fn loom_all_among_writers_of_two_parts() {
    cast(1, &[read_all, write, write_other]);
}

/// The first member is killed at its n-th point, for every n it reaches, beside another.
fn killed_everywhere(bound: usize, mortal: Role, other: Role) {
    use std::sync::{Arc, Mutex};
    for n in 1.. {
        let reached = Arc::new(Mutex::new(false));
        let seen = reached.clone();
        model(bound, move || {
            let members = Member::group(2, 2);
            let survivor = members[1].clone();
            let thread = thread::spawn(move || other(&survivor));
            if kill_at(n, || mortal(&members[0])).is_none() {
                *seen.lock().unwrap() = true;
            }
            members[0].env.die();
            thread.join().unwrap();
            members[1].settle();
        });
        if !*reached.lock().unwrap() {
            assert!(n > 3, "no point was reached");
            break;
        }
    }
}

fn survive_write(member: &Member) {
    member.write(0, Deadline::NEVER).unwrap();
}

fn survive_read(member: &Member) {
    member.read(0, Deadline::NEVER).unwrap();
}

#[test]
fn loom_a_writer_killed_anywhere() {
    killed_everywhere(2, survive_write, survive_write);
    killed_everywhere(2, survive_write, survive_read);
    killed_everywhere(1, survive_write, read_all);
}

#[test]
fn loom_a_reader_killed_anywhere() {
    killed_everywhere(2, survive_read, survive_write);
    killed_everywhere(1, read_all, survive_write);
}
