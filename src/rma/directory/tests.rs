//! The vote, carried out for simulated teams of any size, against a plain array.

use super::*;
use crate::layout::{Numeric, Op};
use proptest::prelude::*;

/// Lets every member of a simulated team vote; the rounds it took and what each found.
fn vote(entries: &[Entry]) -> (usize, Vec<Option<[Pattern; FIELDS]>>) {
    let size = entries.len() as u32;
    let mut members: Vec<Finder> = (0..entries.len())
        .map(|rank| {
            let rank = rank as u32;
            Finder::new(size, rank, neighbourhood(&|r| entries[r as usize], rank))
        })
        .collect();
    let mut rounds = 0;
    loop {
        let mut all: Option<(Op, Vec<u64>)> = None;
        let mut asked = 0;
        for member in &mut members {
            let Some((op, words)) = member.ask() else { continue };
            asked += 1;
            match &mut all {
                None => all = Some((op, words.to_vec())),
                Some((first, sum)) => {
                    assert_eq!((*first, sum.len()), (op, words.len()), "all in one round");
                    for (sum, word) in sum.iter_mut().zip(words) {
                        *sum = u64::combine(op, *sum, *word);
                    }
                }
            }
        }
        let Some((_, sum)) = all else { break };
        assert_eq!(asked, members.len(), "all end in the same round");
        rounds += 1;
        for member in &mut members {
            if let Some((_, words)) = member.ask() {
                words.copy_from_slice(&sum);
            }
            member.learn();
        }
    }
    (rounds, members.into_iter().map(Finder::found).collect())
}

/// Holds what a team found against the entries; how many all-reduces it took and the form.
fn check(entries: &[Entry]) -> (usize, Directory) {
    let (rounds, found) = vote(entries);
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "all find the same");
    let directory = Directory {
        size: entries.len() as u32,
        form: Directory::form(found.into_iter().next().unwrap()),
    };
    let alone = Directory::of(entries.len() as u32, |rank| entries[rank as usize]);
    assert_eq!(format!("{alone:?}"), format!("{directory:?}"), "by one process");
    for (rank, entry) in entries.iter().enumerate() {
        if let Some(computed) = directory.computed(rank as u32) {
            assert_eq!(computed, *entry, "rank {rank} of {}", entries.len());
        }
        let table = |rank: u32| Ok(entries[rank as usize]);
        assert_eq!(directory.entry(rank as u32, &table).unwrap(), *entry);
    }
    assert!(directory.entry(entries.len() as u32, &|_| Ok(Entry::default())).is_err());
    (rounds, directory)
}

fn entries(size: u32, of: impl Fn(u64) -> Entry) -> Vec<Entry> {
    (0..u64::from(size)).map(of).collect()
}

#[test]
fn what_is_alike_is_kept_once() {
    for size in [1, 2, 8, 9, 10, 300] {
        let alike = entries(size, |_| Entry { offset: 77, bytes: 8, unit: 4, reach: 1 });
        let (rounds, directory) = check(&alike);
        assert_eq!((rounds, directory.name()), (2, "same"));
        assert!(directory.private_bytes() <= 48);
    }
}

#[test]
fn contiguous_bases_and_odd_even_units_are_computed() {
    let (rounds, directory) = check(&entries(4096, |rank| Entry {
        // Odd ranks have parts of 32 bytes, even ones of 100: bases grow by 132 in two steps.
        offset: 1 << 20 | (rank / 2 * 132 + rank % 2 * 100),
        bytes: if rank % 2 == 0 { 100 } else { 32 },
        unit: if rank % 2 == 0 { 4 } else { 16 },
        reach: 0,
    }));
    assert_eq!((rounds, directory.name()), (2, "cycle"));
    assert!(directory.private_bytes() <= 512);
}

#[test]
fn another_last_part_and_groups_of_neighbours_are_runs() {
    let size = 1000;
    let (_, directory) = check(&entries(size, |rank| Entry {
        offset: rank * 4096,
        bytes: if rank + 1 == u64::from(size) { 17 } else { 4096 },
        unit: [1, 8, 8, 2][(rank / 250) as usize],
        reach: 0,
    }));
    assert_eq!(directory.name(), "runs");
    assert!(directory.private_bytes() <= 1100);
}

#[test]
fn what_has_no_pattern_is_looked_up_after_three_rounds() {
    let (rounds, directory) = check(&entries(500, |rank| Entry {
        offset: 0,
        bytes: 8,
        unit: 1 + (rank * rank % 97) as u32,
        reach: 0,
    }));
    assert_eq!((rounds, directory.name()), (3, "looked up"));
}

#[test]
fn words_hold_an_entry() {
    let entry = Entry { offset: u64::MAX, bytes: 3, unit: u32::MAX, reach: 1 << 31 };
    assert_eq!(Entry::from_words(entry.to_words()), entry);
}

/// A number for each rank: a mixture of everything, with patterns and without.
fn column(size: usize) -> impl Strategy<Value = Vec<u64>> {
    let cycle = (proptest::collection::vec(any::<u64>(), 1..12), any::<u64>()).prop_map(
        move |(values, step)| {
            let at = |r: usize| {
                values[r % values.len()].wrapping_add((r / values.len()) as u64 * (step >> 40))
            };
            (0..size).map(at).collect::<Vec<u64>>()
        },
    );
    let runs = proptest::collection::vec((1usize..size.max(2), 0u64..50, 0u64..4), 1..12).prop_map(
        move |runs| {
            let stretch = |&(len, first, step): &(usize, u64, u64)| {
                (0..len as u64).map(move |i| first + i * step)
            };
            runs.iter().cycle().flat_map(stretch).take(size).collect::<Vec<u64>>()
        },
    );
    let noise = proptest::collection::vec(0u64..3, size);
    prop_oneof![cycle, runs, noise]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn every_rank_finds_what_an_array_would_hold(
        (offset, bytes, unit) in (1usize..90).prop_flat_map(|n| (column(n), column(n), column(n))),
    ) {
        let entries: Vec<Entry> = offset
            .iter()
            .zip(&bytes)
            .zip(&unit)
            .map(|((&offset, &bytes), &unit)| Entry { offset, bytes, unit: unit as u32, reach: 0 })
            .collect();
        check(&entries);
    }

    #[test]
    fn up_to_four_jumps_are_always_found(
        size in 20usize..400,
        mut jumps in proptest::collection::vec((1usize..400, any::<u64>(), any::<u64>()), 0..5),
        (first, mut step) in (any::<u64>(), any::<u64>()),
    ) {
        jumps.sort_by_key(|jump| jump.0);
        let (mut value, mut next) = (first, 0);
        let column: Vec<u64> = (0..size)
            .map(|rank| {
                if rank > 0 {
                    value = value.wrapping_add(step);
                }
                while next < jumps.len() && jumps[next].0 <= rank {
                    (value, step) = (jumps[next].1, jumps[next].2);
                    next += 1;
                }
                value
            })
            .collect();
        let entries: Vec<Entry> =
            column.iter().map(|&offset| Entry { offset, ..Entry::default() }).collect();
        let (_, directory) = check(&entries);
        prop_assert_eq!(directory.computed(0).is_some(), true);
    }
}
