//! Maps, and what nodes make of them, against the lists that they stand for.

use super::*;
use crate::topo::Block;
use proptest::prelude::*;

/// The names of nodes, one for each rank, as blocks say it.
fn listed(ranks: u32, blocks: &[Block]) -> Vec<u32> {
    let of = |block: &Block| {
        let each = block.each as usize;
        (0..block.nodes).flat_map(move |over| vec![block.node + over; each]).collect::<Vec<_>>()
    };
    blocks.iter().cycle().flat_map(of).take(ranks as usize).collect()
}

/// Nodes numbered in the order in which they come.
fn renumbered(names: &[u32]) -> Vec<u32> {
    let mut known = Vec::new();
    let number = |name: &u32| {
        known.iter().position(|other| other == name).unwrap_or_else(|| {
            known.push(*name);
            known.len() - 1
        }) as u32
    };
    names.iter().map(number).collect()
}

/// Everything that is said of a job whose ranks are on these nodes.
fn check(places: &Places, nodes: &[u32]) -> std::result::Result<(), TestCaseError> {
    let ranks = nodes.len() as u32;
    let count = nodes.iter().max().unwrap() + 1;
    let on = |node: u32| {
        let own = |rank: &u32| nodes[*rank as usize] == node;
        (0..ranks).filter(own).collect::<Vec<u32>>()
    };
    prop_assert_eq!((places.ranks(), places.nodes()), (ranks, count));
    prop_assert_eq!(places.in_order(), nodes.is_sorted(), "{:?} {:?}", places, nodes);
    prop_assert_eq!(places.node_of(ranks), None);
    prop_assert_eq!(places.local_of(ranks), None);
    prop_assert_eq!((places.count_on(count), places.ranks_on(count).count()), (0, 0));
    prop_assert!(Placement::of(places.clone(), count).is_err());
    for node in 0..count {
        let own = on(node);
        prop_assert_eq!(places.count_on(node) as usize, own.len());
        prop_assert!(places.ranks_on(node).eq(own.iter().copied()), "{:?} {}", places, node);
        let seen = Placement::of(places.clone(), node).unwrap();
        prop_assert_eq!((seen.node(), seen.locals() as usize), (node, own.len()));
        prop_assert!(seen.local_ranks().eq(own.iter().copied()));
        // A node's own first, in the order of ranks; then the others in that order.
        let others = (0..ranks).filter(|rank| nodes[*rank as usize] != node);
        let order: Vec<u32> = own.iter().copied().chain(others).collect();
        for (slot, rank) in (0u16..).map(Slot).zip(order.iter().copied().map(Rank)) {
            prop_assert_eq!(seen.slot_of(rank), Some(slot), "{:?} {}", seen, rank);
            prop_assert_eq!(seen.rank_of(slot), Some(rank), "{:?} {}", seen, slot);
            let of = nodes[rank.index()];
            prop_assert_eq!(seen.node_of(rank), Some(of));
            prop_assert_eq!(seen.is_local(slot), of == node);
        }
        prop_assert_eq!(seen.slot_of(Rank(ranks)), None);
        prop_assert_eq!(seen.rank_of(Slot(ranks as u16)), None);
        for (local, rank) in (0u16..).map(Slot).zip(own.into_iter().map(Rank)) {
            prop_assert_eq!(seen.local_of(rank), Some(local));
            let first = Placement::of(places.clone(), 0).unwrap();
            prop_assert_eq!(&first.seen_from(rank), &seen);
        }
        prop_assert_eq!(&seen.seen_from(Rank(ranks)), &seen);
    }
    // Blocks that it names make it again.
    prop_assert_eq!(&Places::of_blocks(ranks, &places.blocks()).unwrap(), places);
    Ok(())
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let block = (0u32..7, 1u32..5, 1u32..5);
    let block = block.prop_map(|(node, nodes, each)| Block { node, nodes, each });
    prop::collection::vec(block, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_blocks_are_those_of_the_list(ranks in 1..60u32, nodes in 1..20u32) {
        let nodes = nodes.min(ranks);
        let (each, more) = (ranks / nodes, ranks % nodes);
        let counts: Vec<u32> = (0..nodes).map(|node| each + u32::from(node < more)).collect();
        let list: Vec<u32> =
            (0u32..).zip(&counts).flat_map(|(node, count)| vec![node; *count as usize]).collect();
        let places = Places::equal(ranks, nodes).unwrap();
        check(&places, &list)?;
        prop_assert_eq!(&Places::counts(&counts).unwrap(), &places);
        prop_assert_eq!(&Places::listed(&list).unwrap(), &places);
        prop_assert_eq!(places.bytes(), size_of::<Places>());
    }

    #[test]
    fn cyclic_blocks_are_those_of_the_list(ranks in 1..60u32, block in 1..9u32, nodes in 1..9u32) {
        let made = Places::cyclic(ranks, block, nodes);
        prop_assert_eq!(made.is_ok(), nodes <= ranks.div_ceil(block), "{:?}", made);
        if let Ok(places) = made {
            let list: Vec<u32> = (0..ranks).map(|rank| rank / block % nodes).collect();
            check(&places, &list)?;
            prop_assert_eq!(&Places::listed(&list).unwrap(), &places);
            prop_assert_eq!(places.bytes(), size_of::<Places>());
        }
    }

    #[test]
    fn nodes_of_any_sizes_are_those_of_the_list(counts in prop::collection::vec(1..9u32, 1..12)) {
        let list: Vec<u32> =
            (0u32..).zip(&counts).flat_map(|(node, count)| vec![node; *count as usize]).collect();
        check(&Places::counts(&counts).unwrap(), &list)?;
    }

    #[test]
    fn blocks_are_those_of_the_list(blocks in blocks(), ranks in 1..90u32) {
        let places = Places::of_blocks(ranks, &blocks).unwrap();
        let list = renumbered(&listed(ranks, &blocks));
        check(&places, &list)?;
    }

    #[test]
    fn lists_are_what_they_are(list in prop::collection::vec(0..5u32, 1..40)) {
        let places = Places::listed(&list).unwrap();
        check(&places, &renumbered(&list))?;
        prop_assert!(places.bytes() <= size_of::<Places>() + 32 + 16 * list.len());
    }
}

#[test]
fn impossible_jobs_are_refused() {
    for (ranks, nodes, node) in [(0, 1, 0), (4, 0, 0), (4, 5, 0), (4, 2, 2), (1 << 17, 2, 0)] {
        assert!(Placement::new(ranks, nodes, node).is_err(), "{ranks} {nodes} {node}");
    }
    let block = |nodes, each| Block { node: 0, nodes, each };
    for blocks in [&[][..], &[block(0, 1)], &[block(1, 0)], &[block(1, 1), block(1, 0)]] {
        assert!(Places::of_blocks(4, blocks).is_err(), "{blocks:?}");
    }
    for counts in [&[][..], &[3, 0, 1], &[u32::MAX, u32::MAX]] {
        assert!(Places::counts(counts).is_err(), "{counts:?}");
    }
    assert!(Places::listed(&[]).is_err() && Places::listed(&vec![0; 1 << 17]).is_err());
    assert!(Places::cyclic(4, 0, 1).is_err() && Places::cyclic(4, 1, 0).is_err());
}

#[test]
fn blocks_of_any_numbers_do_not_overflow() {
    let most = u32::MAX;
    for (node, nodes, each) in [(most, most, most), (most, 1, most), (0, most, 1), (most, most, 1)]
    {
        let blocks = [Block { node, nodes, each }, Block { node: 0, nodes, each }];
        let places = Places::of_blocks(MAX_RANKS, &blocks).unwrap();
        let seen = Placement::of(places, 0).unwrap().seen_from(Rank(MAX_RANKS - 1));
        let last = seen.slot_of(Rank(MAX_RANKS - 1)).unwrap();
        assert_eq!(seen.rank_of(last), Some(Rank(MAX_RANKS - 1)));
    }
}

#[test]
fn regular_jobs_of_any_size_have_maps_of_one_size() {
    for ranks in [100, 1000, MAX_RANKS] {
        let equal = Places::equal(ranks, 64).unwrap();
        let cyclic = Places::cyclic(ranks, 1, 50).unwrap();
        let blocks = Places::cyclic(ranks, 4, 16).unwrap();
        for places in [equal, cyclic, blocks] {
            assert_eq!(places.bytes(), size_of::<Places>());
            let nodes: Vec<u32> = (0..ranks).map(|rank| places.node_of(rank).unwrap()).collect();
            assert_eq!(Places::listed(&nodes).unwrap(), places);
        }
    }
    assert!(size_of::<Places>() <= 32 && size_of::<Placement>() <= 72);
}

#[test]
fn uneven_nodes_cost_their_blocks_not_their_ranks() {
    // 900 nodes with 64 ranks, then ten with 48, then the first one again.
    let mut nodes: Vec<u32> = (0..57_600).map(|rank| rank / 64).collect();
    nodes.extend((0..480).map(|rank| 900 + rank / 48));
    nodes.extend([0; 5]);
    let places = Places::listed(&nodes).unwrap();
    assert!(places.bytes() <= size_of::<Places>() + 16 + 3 * 16, "{places:?}");
    assert_eq!((places.node_of(58_079), places.local_of(58_079)), (Some(909), Some(47)));
    assert_eq!((places.node_of(58_084), places.local_of(58_084)), (Some(0), Some(68)));
    let first = Placement::of(places, 0).unwrap();
    assert_eq!(first.slot_of(Rank(58_084)), Some(Slot(68)));
    assert_eq!(first.rank_of(Slot(69)), Some(Rank(64)));
}

#[test]
fn what_repeats_itself_is_kept_once() {
    let block = |node, nodes, each| Block { node, nodes, each };
    // Rounds written out, the last one cut short.
    let rounds = [block(0, 2, 3), block(0, 2, 3), block(0, 1, 3), block(1, 1, 1)];
    let places = Places::of_blocks(16, &rounds).unwrap();
    assert_eq!(places, Places::cyclic(16, 3, 2).unwrap());
    // Uneven ones, again and again, by their pattern.
    let pattern = [block(0, 1, 1), block(1, 1, 2)];
    let small = Places::of_blocks(7, &pattern).unwrap();
    let large = Places::of_blocks(60_000, &pattern).unwrap();
    assert_eq!(small.bytes(), large.bytes());
    let list: Vec<u32> = (0..60_000).map(|rank| large.node_of(rank).unwrap()).collect();
    assert_eq!(Places::listed(&list).unwrap(), large);
}
