//! The policy under the paper's workload, and under anything.

use super::*;
use proptest::prelude::*;

const AGE: u64 = 1000;

fn settings(when: When, limit: usize) -> Settings {
    Settings { when, limit, after: 1, age: AGE }
}

/// Does at once what is advised.
fn obey(promotion: &mut Promotion, advice: Option<Advice>) {
    match advice {
        Some(Advice::Make(peer)) => promotion.made(peer),
        Some(Advice::GiveUp(peer)) => promotion.gone(peer),
        None => {}
    }
}

/// Paper 003's experiment: an all-to-all of small messages in the preparation, then shifts between
/// neighbours in the kernel region.
#[test]
fn an_all_to_all_outside_the_kernel_makes_no_connection() {
    let run = |when| {
        let mut promotion = Promotion::new(settings(when, 128));
        for round in 0..100 {
            for peer in 1..2048 {
                let advice = promotion.note_send(peer, false, round);
                obey(&mut promotion, advice);
            }
            for _ in 0..50 {
                let advice = promotion.note_send(1, true, round);
                obey(&mut promotion, advice);
            }
        }
        promotion.connections()
    };
    assert_eq!([When::Never, When::Kernel, When::Traffic].map(run), [0, 1, 128]);
}

#[test]
fn at_the_limit_the_least_used_goes_for_one_that_is_used_more() {
    let mut promotion = Promotion::new(settings(When::Kernel, 2));
    for (peer, count) in [(1, 5), (2, 9)] {
        for i in 0..count {
            let advice = promotion.note_send(peer, true, 0);
            assert_eq!(advice, (i == 0).then_some(Advice::Make(peer)));
            obey(&mut promotion, advice);
        }
    }
    // Twice as many as the least used one has, when that is looked at.
    let mut advice = Vec::new();
    for _ in 0..40 {
        advice.extend(promotion.note_send(3, true, 0));
    }
    assert_eq!(advice, [Advice::GiveUp(1)]);
    // It is asked for when the place is free, not before.
    promotion.gone(1);
    assert_eq!(promotion.note_send(3, true, 0), Some(Advice::Make(3)));
    promotion.refused(3);
    assert_eq!((promotion.connections(), promotion.note_send(3, true, 0)), (1, None));
    // A peer that refused may ask itself.
    assert!(promotion.asked(3, 0) && !promotion.asked(9, 0));
    assert_eq!(promotion.connections(), 2);
}

#[test]
fn what_is_not_used_for_long_is_given_up() {
    let mut promotion = Promotion::new(settings(When::Kernel, 8));
    for peer in 0..4 {
        for _ in 0..=peer * 20 {
            let advice = promotion.note_send(peer, true, 0);
            obey(&mut promotion, advice);
        }
    }
    assert_eq!(promotion.unused(0), None);
    assert_eq!(promotion.unused(AGE), Some(Advice::GiveUp(0)));
    assert_eq!(promotion.unused(AGE), None);
    promotion.gone(0);
    while let Some(Advice::GiveUp(peer)) = promotion.unused(20 * AGE) {
        promotion.gone(peer);
    }
    assert_eq!(promotion.connections(), 0);
    // Not being able to is no reason to lose count.
    let advice = promotion.note_send(5, true, 20 * AGE);
    obey(&mut promotion, advice);
    assert_eq!(promotion.unused(40 * AGE), Some(Advice::GiveUp(5)));
    promotion.made(5);
    assert_eq!((promotion.connections(), promotion.leaving), (1, 0));
    promotion.forget(5);
    assert_eq!((promotion.connections(), promotion.known.len()), (0, 3 + 1));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32, bool),
    Asked(u32),
    Answer(prop::sample::Index, u8),
    Wait(u64),
    Unused,
    Forget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = || prop_oneof![3 => 0u32..6, 1 => 0u32..300];
    prop_oneof![
        20 => (peer(), any::<bool>()).prop_map(|(peer, kernel)| Step::Send(peer, kernel)),
        1 => peer().prop_map(Step::Asked),
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(i, how)| Step::Answer(i, how)),
        1 => (0..AGE * 2).prop_map(Step::Wait),
        1 => Just(Step::Unused),
        1 => peer().prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a host that keeps its own books.
    #[test]
    fn there_are_never_more_than_the_limit_and_only_the_kernel_asks(
        limit in 0usize..5,
        steps in prop::collection::vec(step(), 1..500),
    ) {
        let mut promotion = Promotion::new(settings(When::Kernel, limit));
        let (mut asked, mut pairs, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        let mut refused = Vec::new();
        let mut now = 0;
        for step in steps {
            let advice = match step {
                Step::Send(peer, kernel) => {
                    let advice = promotion.note_send(peer, kernel, now);
                    prop_assert!(kernel || advice.is_none());
                    prop_assert!(advice.is_none_or(|a| a == Advice::Make(peer) || pairs.len() + asked.len() + leaving.len() == limit));
                    advice
                }
                Step::Asked(peer) => {
                    let known = [&asked, &pairs, &leaving].iter().any(|list| list.contains(&peer));
                    let may = promotion.asked(peer, now);
                    prop_assert_eq!(may, known || pairs.len() + asked.len() + leaving.len() < limit);
                    if may && !known {
                        asked.push(peer);
                        refused.retain(|other| *other != peer);
                    }
                    None
                }
                Step::Answer(index, how) => {
                    let waits: Vec<u32> = asked.iter().chain(&leaving).copied().collect();
                    if !waits.is_empty() {
                        let peer = waits[index.index(waits.len())];
                        asked.retain(|other| *other != peer);
                        leaving.retain(|other| *other != peer);
                        match how % 4 {
                            0 => {
                                promotion.refused(peer);
                                refused.push(peer);
                            }
                            1 => promotion.gone(peer),
                            _ => {
                                promotion.made(peer);
                                pairs.push(peer);
                            }
                        }
                    }
                    None
                }
                Step::Wait(time) => {
                    now += time;
                    None
                }
                Step::Unused => promotion.unused(now),
                Step::Forget(peer) => {
                    promotion.forget(peer);
                    for list in [&mut asked, &mut pairs, &mut leaving, &mut refused] {
                        list.retain(|other| *other != peer);
                    }
                    None
                }
            };
            match advice {
                Some(Advice::Make(peer)) => {
                    prop_assert!(!refused.contains(&peer));
                    prop_assert!([&asked, &pairs, &leaving].iter().all(|list| !list.contains(&peer)));
                    asked.push(peer);
                }
                Some(Advice::GiveUp(peer)) => {
                    prop_assert!(pairs.contains(&peer));
                    pairs.retain(|other| *other != peer);
                    leaving.push(peer);
                }
                None => {}
            }
            prop_assert_eq!(promotion.connections(), asked.len() + pairs.len() + leaving.len());
            prop_assert!(promotion.connections() <= limit);
            prop_assert!(promotion.known.len() <= promotion.most_others() + 2 * limit + refused.len());
        }
    }
}
