//! Loom models: every interleaving (up to a bound of preemptions) of small casts, and every point
//! at which one of them may be killed.

use super::model::Env;
use super::*;
use crate::base::sync::futex_blocks;
use crate::shm::crash::kill_at;
use loom::thread;
use std::time::Duration;

/// Every schedule with at most `bound` preemptions (LOOM_MAX_PREEMPTIONS may lower it).
fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
    builder.max_branches = 20_000;
    builder.check(f);
}

/// As [`model`], where sleeps end by wakes alone: a lost one is a deadlock.
fn model_of_wakes(bound: usize, f: impl Fn() + Send + Sync + 'static) {
    futex_blocks(true);
    model(bound, f);
    futex_blocks(false);
}

fn expired() -> Deadline {
    Deadline::after(Duration::ZERO)
}

/// Takes the lock, is inside, gives it back.
fn visit(env: &Env, deadline: Deadline) -> Option<Option<Slot>> {
    let held = match env.shared.lock.acquire(env, deadline) {
        Ok(held) => held,
        Err(Error::TimedOut { .. }) => return None,
        Err(e) => panic!("{e}"),
    };
    let died = held.previous_holder_died();
    if died.is_some() {
        env.exit();
    }
    env.critical_section();
    env.shared.lock.release(env, held).unwrap();
    Some(died)
}

/// After everything: the lock works, is free, and has every node of every live slot back.
fn settle_all(envs: &[Env], nodes: usize) {
    let env = envs.last().unwrap();
    visit(env, Deadline::NEVER).unwrap();
    assert_eq!(env.word(), (0, 0, 0));
    for env in envs.iter().filter(|env| !env.is_dead(env.slot())) {
        assert_eq!(env.available(), nodes, "slot {}", env.slot());
    }
}

/// Runs each role on a slot of its own.
fn cast(nodes: usize, roles: &[fn(&Env)]) {
    let envs = Env::new(roles.len(), nodes);
    let threads: Vec<_> = roles[1..]
        .iter()
        .zip(&envs[1..])
        .map(|(&role, env)| {
            let env = env.clone();
            thread::spawn(move || role(&env))
        })
        .collect();
    roles[0](&envs[0]);
    threads.into_iter().for_each(|t| t.join().unwrap());
    settle_all(&envs, nodes);
}

fn patient(env: &Env) {
    assert_eq!(visit(env, Deadline::NEVER), Some(None));
}

fn patient_twice(env: &Env) {
    patient(env);
    patient(env);
}

fn hasty(env: &Env) {
    let _ = visit(env, expired());
}

fn survivor(env: &Env) {
    visit(env, Deadline::NEVER).unwrap();
}

#[test]
fn loom_two_slots_exclude_each_other() {
    model(4, || cast(1, &[patient_twice, patient]));
    model(3, || cast(1, &[patient_twice, patient_twice]));
    model_of_wakes(4, || cast(1, &[patient_twice, patient]));
    model_of_wakes(3, || cast(1, &[patient_twice, patient_twice]));
}

#[test]
fn loom_three_slots_exclude_each_other() {
    model(1, || cast(1, &[patient, patient, patient]));
    model_of_wakes(2, || cast(1, &[patient, patient, patient]));
}

#[test]
fn loom_threads_of_one_slot_share_its_ids() {
    model(3, || {
        let env = Env::new(1, 2).remove(0);
        let other = env.clone();
        let thread = thread::spawn(move || patient_twice(&other));
        patient_twice(&env);
        thread.join().unwrap();
        settle_all(&[env], 2);
    });
}

#[test]
fn loom_a_waiter_gives_up_while_the_lock_is_handed_over() {
    model(4, || cast(1, &[patient, hasty]));
    model(2, || cast(1, &[patient, hasty, patient]));
    model(1, || cast(1, &[patient_twice, hasty, hasty]));
}

#[test]
fn loom_more_threads_than_nodes() {
    model(2, || {
        let env = Env::new(1, 1).remove(0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let env = env.clone();
                thread::spawn(move || hasty(&env))
            })
            .collect();
        hasty(&env);
        threads.into_iter().for_each(|t| t.join().unwrap());
        settle_all(&[env], 1);
    });
}

#[test]
fn loom_try_lock_takes_over_from_the_dead() {
    model(2, || {
        let envs = Env::new(3, 1);
        let _held = envs[0].shared.lock.acquire(&envs[0], Deadline::NEVER).unwrap();
        envs[0].enter();
        envs[0].die();
        let env = envs[1].clone();
        let thread = thread::spawn(move || {
            if let Some(held) = env.shared.lock.try_acquire(&env).unwrap() {
                if held.previous_holder_died().is_some() {
                    env.exit();
                }
                env.critical_section();
                env.shared.lock.release(&env, held).unwrap();
            }
        });
        survivor(&envs[2]);
        thread.join().unwrap();
        settle_all(&envs, 1);
    });
}

/// One slot is killed at its n-th point, for every n it reaches, among the others.
fn killed_everywhere(bound: usize, mortal: fn(&Env), others: &'static [fn(&Env)]) {
    use std::sync::{Arc, Mutex};
    for n in 1.. {
        let reached = Arc::new(Mutex::new(false));
        let seen = reached.clone();
        model(bound, move || {
            let envs = Env::new(1 + others.len(), 1);
            let threads: Vec<_> = others
                .iter()
                .zip(&envs[1..])
                .map(|(&role, env)| {
                    let env = env.clone();
                    thread::spawn(move || role(&env))
                })
                .collect();
            if kill_at(n, || mortal(&envs[0])).is_none() {
                *seen.lock().unwrap() = true;
            }
            envs[0].die();
            threads.into_iter().for_each(|t| t.join().unwrap());
            settle_all(&envs, 1);
        });
        if !*reached.lock().unwrap() {
            assert!(n > 3, "no point was reached");
            break;
        }
    }
}

fn mortal_visit(env: &Env) {
    let held = env.shared.lock.acquire(env, Deadline::NEVER).unwrap();
    if held.previous_holder_died().is_some() {
        env.exit();
    }
    env.enter();
    crash::point();
    env.exit();
    env.shared.lock.release(env, held).unwrap();
}

#[test]
fn loom_killed_anywhere_with_one_other() {
    killed_everywhere(3, mortal_visit, &[survivor]);
    killed_everywhere(3, hasty, &[survivor]);
}

#[test]
fn loom_killed_anywhere_among_patient_and_hasty() {
    killed_everywhere(2, mortal_visit, &[survivor, hasty]);
}

#[test]
fn loom_killed_anywhere_among_two_patient() {
    killed_everywhere(1, mortal_visit, &[survivor, survivor]);
}
