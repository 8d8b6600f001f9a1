//! Pools under random use, and under phases that try to make them free and make buffers in turns.

use super::*;
use crate::base::adapt::{MOST_WEIGHT, REGRET};
use proptest::prelude::*;

const AGE: u64 = 1000;

fn class(exponent: u8) -> Class {
    Class::new(exponent).unwrap()
}

fn limits(pools: usize, bytes: u64, buffers: u32) -> Limits {
    Limits { pools, bytes, buffers, age: AGE }
}

/// Asks for all surplus there is and frees it.
fn reclaim(pools: &mut Pools, now: u64) -> u32 {
    let mut count = 0;
    while let Some((class, surplus)) = pools.surplus(now) {
        pools.freed(class, surplus, now);
        count += surplus;
    }
    count
}

#[test]
fn pools_are_shared_and_limited() {
    let mut pools = Pools::new(limits(2, 1 << 30, 100));
    let join = |pools: &mut Pools, exponent| {
        pools.join(class(exponent), 0).inspect(|&more| pools.made(class(exponent), more))
    };
    assert_eq!(join(&mut pools, 16), Ok(2));
    assert_eq!(join(&mut pools, 16), Ok(1));
    assert_eq!(join(&mut pools, 20), Ok(2));
    assert_eq!(join(&mut pools, 18), Err(Refusal::TooMany));
    assert!(!pools.can_join(class(18)) && pools.can_join(class(20)));
    assert_eq!(pools.bytes(), 3 * (65_536 + 1024) + 2 * ((1 << 20) + 1024));
    // The place of a pool is free again when its users and its buffers are gone.
    pools.leave(class(20));
    assert!(!pools.can_join(class(18)));
    assert_eq!(pools.surplus(1), Some((class(20), 2)));
    assert_eq!(pools.surplus(1), None, "told once per eighth of an age");
    pools.freed(class(20), 1, 1);
    assert_eq!(pools.surplus(1 + AGE / 8), Some((class(20), 1)));
    pools.freed(class(20), 1, 1 + AGE / 8);
    assert_eq!(join(&mut pools, 18), Ok(2));
    assert_eq!(pools.iter().count(), 2);
}

#[test]
fn memory_is_limited() {
    let one = class(16).threshold();
    let mut pools = Pools::new(limits(20, 5 * one - 1, 100));
    assert_eq!(pools.join(class(16), 0), Ok(2));
    pools.made(class(16), 2);
    assert_eq!(pools.missed(class(16), 0), 2);
    // The host could make only one.
    pools.made(class(16), 1);
    assert_eq!(pools.missed(class(16), 0), 1);
    pools.made(class(16), 1);
    assert_eq!(pools.missed(class(16), 0), 0);
    assert_eq!(pools.join(class(16), 0), Ok(0));
    assert_eq!(pools.join(class(15), 0), Ok(1), "one more of half the size fits");
    pools.made(class(15), 1);
    assert_eq!(pools.join(class(14), 0), Ok(1));
    pools.made(class(14), 1);
    assert_eq!(pools.join(class(17), 0), Err(Refusal::TooLarge));
    assert_eq!(pools.largest(), Some(class(18)));
    let mut few = Pools::new(limits(20, 1 << 40, 3));
    assert_eq!(few.join(class(16), 0), Ok(2));
    few.made(class(16), 2);
    assert_eq!(few.missed(class(16), 0), 1);
}

#[test]
fn what_was_needed_within_the_age_stays() {
    let mut pools = Pools::new(limits(20, 1 << 30, 100));
    let c = class(16);
    let more = pools.join(c, 0).unwrap();
    pools.made(c, more);
    let more = pools.missed(c, 0);
    pools.made(c, more);
    let more = pools.missed(c, 0);
    pools.made(c, more);
    assert_eq!(pools.get(c).unwrap().buffers, 8);
    // Three at once now and then, for a long time.
    for now in (10..10 * AGE).step_by(300) {
        (0..3).for_each(|_| pools.taken(c, now));
        (0..3).for_each(|_| pools.given_back(c, now + 5));
        reclaim(&mut pools, now + 6);
    }
    assert_eq!(pools.get(c).unwrap().buffers, 3);
    // Buffers that are busy stay, however long.
    pools.taken(c, 10 * AGE);
    for now in (10 * AGE..40 * AGE).step_by(50) {
        reclaim(&mut pools, now);
    }
    assert_eq!(pools.get(c), Some(Pool { class: c, users: 1, buffers: 1, busy: 1 }));
    pools.given_back(c, 40 * AGE);
    reclaim(&mut pools, 40 * AGE + AGE / 2);
    assert_eq!(pools.get(c).unwrap().buffers, 1);
    reclaim(&mut pools, 42 * AGE);
    assert_eq!((pools.get(c).unwrap().buffers, pools.bytes()), (0, 0));
    // Empty, it is still there for its user.
    assert_eq!(pools.missed(c, 43 * AGE), 1);
}

/// One pool and a sender that sends bursts: a message finds a buffer free or goes by rendezvous.
struct Phases {
    pools: Pools,
    now: u64,
    /// Times that buffers were missed after some had been freed.
    anew: u64,
    freed: bool,
}

const C: u8 = 16;

impl Phases {
    fn new() -> Phases {
        let mut pools = Pools::new(limits(20, 1 << 30, 64));
        let more = pools.join(class(C), 0).unwrap();
        pools.made(class(C), more);
        Phases { pools, now: 0, anew: 0, freed: false }
    }

    fn burst(&mut self, messages: u32) {
        let mut taken = 0;
        for _ in 0..messages {
            let pool = self.pools.get(class(C)).unwrap();
            if pool.busy < pool.buffers {
                self.pools.taken(class(C), self.now);
                taken += 1;
            } else {
                self.anew += u64::from(std::mem::take(&mut self.freed));
                let more = self.pools.missed(class(C), self.now);
                self.pools.made(class(C), more);
            }
        }
        for _ in 0..taken {
            self.now += 1;
            self.pools.given_back(class(C), self.now);
        }
    }

    fn pause(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + AGE / 8);
            self.freed |= reclaim(&mut self.pools, self.now) > 0;
        }
    }
}

/// Phases of a program with pauses between them of any one length. Pauses shorter than five ages
/// are outgrown after the first few; longer ones cost one making of buffers each.
#[test]
fn buffers_do_not_come_and_go_with_the_phases_of_a_program() {
    for tenths in (1..=70).chain([100, 300, 1000]) {
        let pause = tenths * AGE / 10;
        let mut phases = Phases::new();
        let count = 200;
        for _ in 0..count {
            for _ in 0..20 {
                phases.burst(8);
                phases.pause(AGE / 20);
            }
            phases.pause(pause);
        }
        let (ages, anew) = (tenths / 10, phases.anew);
        if ages < 1 {
            assert_eq!(anew, 0, "pauses of {pause}");
        } else if ages < 5 {
            assert!(anew <= 4, "pauses of {pause}: {anew} times");
        }
        assert!(anew <= count, "pauses of {pause}: {anew} times");
        assert!(anew <= 7 + 2 * phases.now / (5 * AGE), "pauses of {pause}: {anew} times");
    }
}

/// The memory that a program does not use any more does go, whatever its past was.
#[test]
fn what_is_not_used_any_more_goes() {
    let mut phases = Phases::new();
    for _ in 0..100 {
        phases.burst(40);
        phases.pause(AGE * 3 / 2);
    }
    assert!(phases.pools.bytes() > 30 * class(C).threshold());
    phases.pause(2 * MOST_WEIGHT * AGE);
    assert_eq!(phases.pools.bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Bursts and pauses of any length in any order: the bound that `age` claims.
    #[test]
    fn buffers_are_made_anew_no_more_often_than_claimed(
        phases in prop::collection::vec((0u32..12, 0u64..12 * AGE), 1..400),
    ) {
        let mut run = Phases::new();
        for (messages, pause) in phases {
            run.burst(messages);
            run.pause(pause);
        }
        let bound = 7 + 2 * run.now / ((REGRET + 1) * AGE);
        prop_assert!(run.anew <= bound, "{} times in {} ages", run.anew, run.now / AGE);
    }

    /// Whatever the host does, the numbers are those of a plain account, and limits hold.
    #[test]
    fn the_account_is_right(
        steps in prop::collection::vec((0u8..7, 10u8..15, 0u32..5, 0u64..400), 1..300),
        most in 1usize..5,
    ) {
        let limits = limits(most, 100_000, 9);
        let mut pools = Pools::new(limits);
        let mut model: std::collections::BTreeMap<Class, Pool> = Default::default();
        let mut now = 0;
        for (step, exponent, count, passed) in steps {
            let c = class(exponent);
            now += passed;
            let bytes: u64 = model.values().map(|p| u64::from(p.buffers) * p.class.threshold()).sum();
            match step {
                0 => {
                    let has_buffers = model.get(&c).is_some_and(|p| p.buffers > 0);
                    let fits = bytes + c.threshold() <= limits.bytes;
                    let place = model.contains_key(&c) || model.len() < most;
                    let can = has_buffers || fits && place;
                    prop_assert_eq!(pools.can_join(c), can);
                    let joined = pools.join(c, now);
                    prop_assert_eq!(joined.is_ok(), can);
                    if let Ok(more) = joined {
                        let fresh = Pool { class: c, users: 0, buffers: 0, busy: 0 };
                        let pool = model.entry(c).or_insert(fresh);
                        pool.users += 1;
                        pool.buffers += more;
                        pools.made(c, more);
                    }
                }
                1 => {
                    pools.leave(c);
                    if let Some(pool) = model.get_mut(&c) {
                        pool.users = pool.users.saturating_sub(1);
                    }
                }
                2 => {
                    let more = pools.missed(c, now).min(count);
                    pools.made(c, more);
                    if let Some(pool) = model.get_mut(&c) {
                        pool.buffers += more;
                    } else {
                        prop_assert_eq!(more, 0);
                    }
                }
                3 => {
                    pools.taken(c, now);
                    if let Some(pool) = model.get_mut(&c) {
                        pool.busy = (pool.busy + 1).min(pool.buffers);
                    }
                }
                4 => {
                    pools.given_back(c, now);
                    if let Some(pool) = model.get_mut(&c) {
                        pool.busy = pool.busy.saturating_sub(1);
                    }
                }
                _ => {
                    while let Some((c, surplus)) = pools.surplus(now) {
                        let pool = model.get_mut(&c).unwrap();
                        prop_assert!(surplus <= pool.buffers - pool.busy);
                        let freed = surplus.min(count);
                        pools.freed(c, freed, now);
                        pool.buffers -= freed;
                    }
                }
            }
            model.retain(|_, pool| pool.users > 0 || pool.buffers > 0);
            let mut kept: Vec<Pool> = pools.iter().collect();
            kept.sort_by_key(|pool| pool.class);
            prop_assert!(kept.iter().eq(model.values()), "{:?}\n{:?}", kept, model);
            let bytes = kept.iter().map(|p| u64::from(p.buffers) * p.class.threshold()).sum::<u64>();
            prop_assert_eq!(pools.bytes(), bytes);
            prop_assert!(bytes <= limits.bytes && kept.len() <= most);
            prop_assert!(kept.iter().all(|pool| pool.buffers <= limits.buffers));
        }
    }
}
