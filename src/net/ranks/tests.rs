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

fn node_lists() -> impl Strategy<Value = Vec<u32>> {
    let regular = (0u32..300, 1u32..9, 1u32..20)
        .prop_map(|(len, block, nodes)| (0..len).map(|i| i / block % nodes).collect());
    let runs = prop::collection::vec((1usize..6, 1usize..5), 0..12).prop_map(|runs| {
        let counts = runs.into_iter().flat_map(|(count, nodes)| vec![count; nodes]);
        counts.enumerate().flat_map(|(node, count)| vec![node as u32; count]).collect()
    });
    let wild = prop::collection::vec(0u32..7, 0..100);
    prop_oneof![regular, runs, wild]
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

    #[test]
    fn places_are_those_of_the_list(nodes in node_lists()) {
        let places = Places::detect(&nodes);
        prop_assert_eq!(places.len() as usize, nodes.len());
        prop_assert_eq!(places.nodes(), nodes.iter().max().map_or(0, |most| most + 1));
        let mut counts = [0; 64];
        for (process, node) in nodes.iter().enumerate() {
            let local = counts[*node as usize];
            counts[*node as usize] += 1;
            let place = Place { node: *node, local };
            prop_assert_eq!(places.get(process as u32), Some(place), "{:?}", places);
            prop_assert_eq!(places.find(place), Some(process as u32), "{:?}", places);
        }
        for (node, count) in counts.iter().enumerate() {
            prop_assert_eq!(places.find(Place { node: node as u32, local: *count }), None);
        }
        prop_assert_eq!(places.get(nodes.len() as u32), None);
        prop_assert!(places.bytes() <= size_of::<Places>() + 8 * nodes.len());
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
fn regular_jobs_of_any_size_have_maps_of_one_size() {
    for len in [1u32, 100, 1 << 20] {
        let (block, cyclic) = (Places::block(len, 64), Places::cyclic(len, 1000));
        let blocks = Places::round_robin(len, 4, 16);
        for places in [block, cyclic, blocks] {
            assert!(places.is_regular());
            assert_eq!(places.bytes(), size_of::<Places>());
            let nodes: Vec<u32> = (0..len).map(|i| places.get(i).unwrap().node).collect();
            let found = Places::detect(&nodes);
            assert!(found.is_regular());
            for i in [0, len / 2, len - 1] {
                assert_eq!(found.get(i), places.get(i));
                assert_eq!(places.find(places.get(i).unwrap()), Some(i));
            }
        }
        let rows = Numbers::identity(len).compose(&Numbers::linear(0, 2, len / 2)).unwrap();
        assert!(rows.is_regular() && Numbers::identity(len).is_regular());
        assert_eq!(rows.bytes(), size_of::<Numbers>());
    }
    assert!(size_of::<Numbers>() <= 32 && size_of::<Places>() <= 32);
}

#[test]
fn uneven_nodes_cost_their_runs_not_their_ranks() {
    // A thousand nodes with 64 processes, then ten with 48, then the first one again.
    let mut nodes: Vec<u32> = (0..64_000).map(|i| i / 64).collect();
    nodes.extend((0..480).map(|i| 1000 + i / 48));
    nodes.extend([0; 5]);
    let places = Places::detect(&nodes);
    assert!(places.bytes() <= size_of::<Places>() + 3 * 16, "{places:?}");
    assert_eq!(places.get(64_479), Some(Place { node: 1009, local: 47 }));
    assert_eq!(places.get(64_484), Some(Place { node: 0, local: 68 }));
    assert_eq!(places.find(Place { node: 0, local: 68 }), Some(64_484));
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
