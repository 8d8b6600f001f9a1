//! Buffers that are lent: never one to two, however they come back; none is lost; memory goes back.

use super::borrow::Borrow;
use super::lent::{CLASSES, Lending, Loan};
use crate::base::Slot;
use crate::base::filling::Stores;
use crate::shm::map::Mapping;
use crate::shm::node::Node;
use crate::shm::segment::Areas;
use proptest::prelude::*;
use std::sync::Arc;

fn nodes() -> [Arc<Node>; 2] {
    let fd = Node::create_memory(2, 1 << 21).unwrap();
    let length = Areas::new(2, 1 << 21).unwrap().length;
    let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
    [0, 1].map(|slot| {
        let fd = fd.try_clone().unwrap();
        Node::attach_mapped(fd, Slot(slot), map.clone()).unwrap()
    })
}

/// Lends one to rank 1.
fn lend(lending: &Arc<Lending>, node: &Node, class: usize) -> Option<u64> {
    let loan = Loan::take(lending, node, class, Slot(1))?;
    let at = loan.at();
    loan.lend(node, 0);
    loan.sent();
    Some(at)
}

fn give_back(receiver: &Node, at: u64) {
    Borrow::of(receiver, at, 0).unwrap().give_back(receiver);
}

fn quiet(lending: &Lending, node: &Node) {
    (0..100).for_each(|_| lending.look(node));
}

#[derive(Clone, Debug)]
enum Step {
    Lend(usize),
    /// Taken, and not sent after all.
    Drop(usize),
    /// One of those that are out.
    Back(prop::sample::Index),
    Look,
    Die,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CLASSES).prop_map(Step::Lend),
        1 => (0..CLASSES).prop_map(Step::Drop),
        3 => any::<prop::sample::Index>().prop_map(Step::Back),
        1 => Just(Step::Look),
        1 => (0..20u8).prop_map(|n| if n == 0 { Step::Die } else { Step::Look }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 100 }))]

    #[test]
    fn no_buffer_is_lent_twice(steps in prop::collection::vec(step(), 0..600), own: bool) {
        let [node, receiver] = nodes();
        let lending = Arc::new(Lending::new(own, 6 << 20, Stores::Auto));
        let mut out = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::Lend(class) => {
                    if let Some(at) = lend(&lending, &node, class) {
                        prop_assert!(out.insert(at, class).is_none(), "{at:#x} was out");
                        prop_assert!(Borrow::of(&receiver, at, 4096 << class).is_some());
                        prop_assert!(Borrow::of(&node, at, 1).is_none(), "it is not lent to its owner");
                    }
                }
                Step::Drop(class) => {
                    if let Some(loan) = Loan::take(&lending, &node, class, Slot(1)) {
                        prop_assert!(!out.contains_key(&loan.at()));
                    }
                }
                Step::Back(which) => {
                    let all: Vec<u64> = out.keys().copied().collect();
                    if !all.is_empty() {
                        give_back(&receiver, *which.get(&all));
                        out.remove(which.get(&all));
                    }
                }
                Step::Look => lending.look(&node),
                Step::Die => {
                    lending.bury(Slot(0));
                    // Those of the one that has died are had again, though it gave none back.
                    lending.bury(Slot(1));
                    out.clear();
                }
            }
        }
        // Ranges do not overlap.
        for (a, b) in out.iter().zip(out.iter().skip(1)) {
            prop_assert!(a.0 + 64 + (4096 << a.1) <= *b.0);
        }
        quiet(&lending, &node);
        prop_assert!(out.is_empty() || lending.bytes() > 0);
        let most = if own { 6 << 20 } else { 6 << 17 };
        prop_assert!(lending.bytes() <= most);
        out.keys().for_each(|at| give_back(&receiver, *at));
        quiet(&lending, &node);
        prop_assert_eq!(lending.bytes(), 0, "memory is kept that nobody needs");
    }
}

#[test]
fn a_sender_is_ahead_when_as_many_are_out_as_take_turns_until_the_oldest_is_back() {
    let [node, receiver] = nodes();
    let lending = Arc::new(Lending::new(true, 16 << 20, Stores::Auto));
    // Of 64 KiB, thirty-two.
    let out: Vec<u64> = (0..32).map_while(|_| lend(&lending, &node, 4)).collect();
    assert_eq!(out.len(), 32);
    assert!(lending.is_ahead(&node, 4) && !lending.is_ahead(&node, 3));
    give_back(&receiver, out[7]);
    assert!(lending.is_ahead(&node, 4));
    give_back(&receiver, out[0]);
    assert!(!lending.is_ahead(&node, 4));
    let another = lend(&lending, &node, 4).unwrap();
    for at in out.iter().enumerate().filter(|(i, _)| ![0, 7].contains(i)).map(|(_, at)| *at) {
        give_back(&receiver, at);
    }
    give_back(&receiver, another);
    quiet(&lending, &node);
    assert_eq!(lending.bytes(), 0);
}

#[test]
fn there_is_an_end_to_them_and_they_come_back_in_any_order() {
    let [node, receiver] = nodes();
    let lending = Arc::new(Lending::new(true, 16 << 20, Stores::Auto));
    for class in 0..CLASSES {
        let all: Vec<u64> = std::iter::from_fn(|| lend(&lending, &node, class)).collect();
        assert!(all.len() >= 8, "{}", all.len());
        assert!(lending.bytes() <= 16 << 20);
        // The oldest stays out.
        all[1..].iter().rev().for_each(|at| give_back(&receiver, *at));
        let found = |_| lend(&lending, &node, class);
        let again: Vec<u64> = (0..2 * all.len().max(16)).filter_map(found).collect();
        assert_eq!(again.len(), all.len() - 1, "of size {class}");
        assert!(!again.contains(&all[0]));
        again.iter().chain(&all[..1]).for_each(|at| give_back(&receiver, *at));
        // All sizes together may have less than each by itself.
        quiet(&lending, &node);
    }
}

#[test]
fn who_leaves_keeps_only_what_is_out() {
    let [node, receiver] = nodes();
    let lending = Arc::new(Lending::new(true, 16 << 20, Stores::Auto));
    let kept = lend(&lending, &node, 4).unwrap();
    let back = lend(&lending, &node, 4).unwrap();
    give_back(&receiver, back);
    let unsent = Loan::take(&lending, &node, 2, Slot(1)).unwrap();
    lending.leave(&node);
    assert!(Borrow::of(&receiver, kept, 64 << 10).is_some(), "what is under way is not freed");
    let left = lending.bytes();
    assert!(left > 0);
    drop(unsent);
    give_back(&receiver, kept);
    lending.leave(&node);
    assert_eq!(lending.bytes(), 0);
    // Its next message finds memory again.
    assert!(lend(&lending, &node, 4).is_some());
}
