//! Maps against the tables that they stand for.

use super::*;
use proptest::prelude::*;

fn lists() -> impl Strategy<Value = Vec<u32>> {
    let run = (
        any::<u16>(),
        prop_oneof![Just(0u32), Just(1), Just(4), Just(u32::MAX), any::<u32>()],
        1u32..40,
    );
    prop::collection::vec(run, 0..12).prop_map(|runs| {
        let values = |(first, step, len): (u16, u32, u32)| {
            (0..len).map(move |i| u32::from(first).wrapping_add(i.wrapping_mul(step)))
        };
        runs.into_iter().flat_map(values).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_those_of_the_list(list in lists()) {
        let numbers = Numbers::detect(list.iter().copied());
        prop_assert_eq!(numbers.len() as usize, list.len());
        prop_assert!(numbers.iter().eq(list.iter().copied()), "{:?}", numbers);
        prop_assert_eq!(numbers.get(list.len() as u32), None);
        // Never larger than the table.
        prop_assert!(numbers.bytes() <= size_of::<Numbers>() + 4 * list.len());
        for value in list.iter().chain(&[0, 7, u32::MAX]) {
            let found = numbers.find(*value);
            match list.contains(value) {
                true => prop_assert_eq!(found.map(|rank| list[rank as usize]), Some(*value)),
                false => prop_assert_eq!(found, None),
            }
        }
    }

    #[test]
    fn groups_of_groups_are_those_of_the_lists(
        outer in lists(),
        choice in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
        regular: bool,
        (first, step, len) in (0u32..50, prop_oneof![0u32..5, Just(u32::MAX), Just(u32::MAX - 1)], 0u32..60),
    ) {
        let map = Numbers::detect(outer.iter().copied());
        let ranks: Vec<u32> = if regular {
            (0..len).map(|i| first.wrapping_add(i.wrapping_mul(step))).collect()
        } else if outer.is_empty() {
            Vec::new()
        } else {
            choice.iter().map(|index| index.index(outer.len()) as u32).collect()
        };
        let wanted: Option<Vec<u32>> =
            ranks.iter().map(|rank| outer.get(*rank as usize).copied()).collect();
        let got = map.compose(&Numbers::detect(ranks.iter().copied()));
        prop_assert_eq!(got.map(|numbers| numbers.iter().collect::<Vec<_>>()), wanted);
    }

    /// Against a list in the order of use: what was asked for is what was put, no more than the
    /// limit is known, and the latest one always is.
    #[test]
    fn addresses_are_the_latest(
        limit in 1usize..9,
        steps in prop::collection::vec((0u32..15, 0u8..4), 1..200),
    ) {
        let mut addresses = Addresses::new(limit);
        let mut put = std::collections::HashMap::new();
        for (i, (process, what)) in steps.into_iter().enumerate() {
            match what {
                0 => {
                    addresses.forget(process);
                    put.remove(&process);
                    prop_assert_eq!(addresses.get(process), None);
                }
                1 => {
                    let got = addresses.get(process);
                    prop_assert!(got.is_none() || got == put.get(&process).copied());
                }
                _ => {
                    let address = Address::new(&[i as u8; 5]).unwrap();
                    addresses.put(process, address);
                    put.insert(process, address);
                    prop_assert_eq!(addresses.get(process), Some(address));
                }
            }
            prop_assert!(addresses.len() <= limit);
        }
    }
}

#[test]
fn regular_groups_of_any_size_have_maps_of_one_size() {
    for len in [1u32, 100, 1 << 20] {
        let rows = Numbers::identity(len).compose(&Numbers::linear(0, 2, len / 2)).unwrap();
        assert!(rows.is_regular() && Numbers::identity(len).is_regular());
        assert_eq!(rows.bytes(), size_of::<Numbers>());
    }
    assert!(size_of::<Numbers>() <= 32);
}

#[test]
fn the_hand_spares_what_was_asked_for() {
    let address = |i| Address::new(&[i]).unwrap();
    let mut addresses = Addresses::new(3);
    (0..3).for_each(|i| addresses.put(i, address(i as u8)));
    assert_eq!(addresses.get(0), Some(address(0)));
    addresses.put(3, address(3));
    assert_eq!((addresses.get(1), addresses.get(0)), (None, Some(address(0))));
    assert!(Address::new(&[0; 65]).is_none());
    assert_eq!(Address::new(&[1; 64]).unwrap().bytes(), [1; 64]);
    assert!(addresses.bytes() < 1000);
}
