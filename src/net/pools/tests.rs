//! Queues under random use, against a host that counts its buffers.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const AGE: u64 = 1000;

fn class(exponent: u8) -> Class {
    Class::new(exponent).unwrap()
}

fn settings(bytes: u64, buffers: u32) -> Settings {
    Settings { limits: Limits { pools: 3, bytes, buffers, age: AGE }, low_water: 2 }
}

/// What a host has of one class.
#[derive(Default, Debug)]
struct Host {
    users: u32,
    posted: u32,
    busy: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u8, bool),
    Leave(u8),
    Come(u8),
    Done(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let class = || 10u8..15;
    prop_oneof![
        2 => (class(), prop::bool::weighted(0.9)).prop_map(|(c, memory)| Step::Join(c, memory)),
        1 => class().prop_map(Step::Leave),
        6 => class().prop_map(Step::Come),
        6 => class().prop_map(Step::Done),
        2 => (0..3 * AGE).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn buffers_are_within_limits_and_accounted_for(
        steps in prop::collection::vec(step(), 1..300),
        bytes in 3000u64..200_000,
        buffers in 1u32..20,
    ) {
        let mut queues = Queues::new(settings(bytes, buffers));
        let mut hosts: BTreeMap<u8, Host> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Join(c, memory) => {
                    let can = queues.can_join(class(c));
                    let joined = queues.join(class(c), now);
                    prop_assert_eq!(can, joined.is_ok());
                    if let Ok(count) = joined {
                        let host = hosts.entry(c).or_default();
                        prop_assert!(count > 0 || host.posted + host.busy > 0);
                        let count = if memory { count } else { count / 2 };
                        host.users += 1;
                        host.posted += count;
                        queues.made(class(c), count);
                    }
                }
                Step::Leave(c) => {
                    let Some(host) = hosts.get_mut(&c).filter(|host| host.users > 0) else { continue };
                    host.users -= 1;
                    let last = queues.leave(class(c), now);
                    prop_assert_eq!(last, host.users == 0);
                    if last {
                        host.posted = 0;
                    }
                }
                Step::Come(c) => {
                    let Some(host) = hosts.get_mut(&c).filter(|host| host.posted > 0) else { continue };
                    host.posted -= 1;
                    host.busy += 1;
                    let more = queues.came(class(c), now);
                    host.posted += more;
                    queues.made(class(c), more);
                }
                Step::Done(c) => {
                    let Some(host) = hosts.get_mut(&c).filter(|host| host.busy > 0) else { continue };
                    host.busy -= 1;
                    let low = queues.get(class(c)).unwrap().low_water;
                    match queues.done(class(c), now) {
                        Fate::Post => host.posted += 1,
                        Fate::Free => prop_assert!(host.users == 0 || host.posted >= low),
                    }
                }
                Step::Wait(time) => now += time,
            }
            let mut bytes_now = 0;
            for (c, host) in &hosts {
                let queue = queues.get(class(*c));
                let counts = queue.map(|q| (q.users, q.posted, q.busy)).unwrap_or_default();
                prop_assert_eq!(counts, (host.users, host.posted, host.busy), "class {}", c);
                prop_assert!(host.posted + host.busy <= buffers);
                bytes_now += u64::from(host.posted + host.busy) * class(*c).threshold();
            }
            prop_assert_eq!(queues.bytes(), bytes_now);
            prop_assert!(bytes_now <= bytes);
            prop_assert!(queues.iter().count() <= 3);
        }
    }
}

#[test]
fn a_burst_is_met_by_more_buffers_and_they_go_when_it_is_long_over() {
    let mut queues = Queues::new(settings(1 << 20, 64));
    let count = queues.join(class(12), 0).unwrap();
    assert_eq!(count, 3);
    queues.made(class(12), count);
    // Twenty messages before the program takes any: there is always a buffer.
    for i in 0..20 {
        assert!(queues.get(class(12)).unwrap().posted > 0, "{i}");
        let more = queues.came(class(12), 10);
        queues.made(class(12), more);
    }
    for _ in 0..20 {
        assert_eq!(queues.done(class(12), 20), Fate::Post);
    }
    let most = queues.get(class(12)).unwrap().posted;
    assert!((22..=48).contains(&most), "{most}");
    // One message at a time for long.
    for i in 0..200 {
        let now = 20 + AGE / 4 * (i + 1);
        assert_eq!(queues.came(class(12), now), 0);
        queues.done(class(12), now);
    }
    let left = queues.get(class(12)).unwrap();
    assert!(left.posted <= 4 && left.posted >= left.low_water, "{left:?}");
    assert!(queues.leave(class(12), AGE * 100));
    assert_eq!((queues.bytes(), queues.get(class(12))), (0, None));
}

#[test]
fn messages_outlive_their_queue() {
    let mut queues = Queues::new(settings(1 << 20, 64));
    let count = queues.join(class(12), 0).unwrap();
    queues.made(class(12), count);
    queues.came(class(12), 1);
    assert!(queues.leave(class(12), 2));
    assert_eq!(queues.bytes(), class(12).threshold());
    assert_eq!(queues.done(class(12), 3), Fate::Free);
    assert_eq!((queues.bytes(), queues.get(class(12))), (0, None));
    assert_eq!(Queues::class_for(4096 + 1024), Some(class(12)));
    assert_eq!(Queues::class_for(4096 + 1025), Some(class(13)));
}

#[test]
fn a_buffer_that_is_lost_is_made_anew() {
    let class = Class::SMALLEST;
    let mut queues =
        Queues::new(Settings { limits: Limits { age: 1_000, ..Limits::default() }, low_water: 1 });
    let made = queues.join(class, 0).unwrap();
    queues.made(class, made);
    let before = (queues.get(class).unwrap(), queues.bytes());
    assert_eq!(before.0.posted, made);
    queues.came(class, 1);
    assert_eq!(queues.done(class, 2), Fate::Post);
    queues.lost(class, 3);
    let after = queues.get(class).unwrap();
    assert_eq!((after.posted, after.busy), (made - 1, 0));
    assert_eq!(queues.bytes(), before.1 - class.threshold());
    // The next message finds that few are left.
    assert!(queues.came(class, 4) > 0);
}
