use super::*;
use proptest::prelude::*;

#[test]
fn every_call_has_an_algorithm_that_can_do_it() {
    let table = Table::with("").unwrap();
    for what in What::ALL {
        for members in [1, 2, 3, 8, 16, 17, 256, 257, 60_000] {
            for bytes in [0, 1, 28, 29, 56, 57, 16384, LARGE, 1 << 40, ALL] {
                for cores in [true, false] {
                    let choice = table.choose(what, bytes, members, cores);
                    assert_ne!(choice.otherwise, Algorithm::Direct);
                    for how in [choice.first, choice.otherwise] {
                        assert!(how.fits(what, bytes, members), "{what:?} {bytes} {members}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_of_the_setting_come_first() {
    let table = Table::with("allreduce:0-8=shares, *:1M-@2-4=pieces").unwrap();
    let choose = |bytes, members| table.choose(What::Allreduce, bytes, members, true).first;
    assert_eq!(choose(8, 3), Algorithm::Shares);
    assert_eq!(choose(9, 3), Algorithm::Boards);
    assert_eq!(choose(1 << 20, 4), Algorithm::Pieces);
    assert_eq!(choose(1 << 20, 5), Algorithm::Direct);
    assert!(table.rows()[0].set && table.rows()[1].set && !table.rows()[2].set);
    let everywhere = Table::with("*=direct").unwrap();
    let choice = everywhere.choose(What::Scan, 100_000, 2, true);
    assert_eq!(choice.first, Algorithm::Pieces, "there is no direct scan");
    let choice = everywhere.choose(What::Broadcast, 1, 2, true);
    assert_eq!((choice.first, choice.otherwise), (Algorithm::Direct, Algorithm::Boards));
}

#[test]
fn mistakes_are_explained() {
    for (text, says) in [
        ("allreduce", "there is no ="),
        ("allreduce:0-8=tree", "boards, pieces, shares, direct"),
        ("agree:0-8=boards", "none of barrier"),
        ("sum:0-8=boards", "none of barrier"),
        ("barrier:0-8=boards", "barrier has dissemination, count"),
        ("scan:0-8=direct", "scan has boards, pieces, shares"),
        ("allreduce:9-8=boards", "is empty"),
        ("allreduce:x-8=boards", "no number"),
        ("allreduce:0-57=boards", "56 bytes"),
        ("allreduce:0-8@0=boards", "not within 1"),
        ("allreduce:0-8@1-9999999999=boards", "not within 1"),
    ] {
        let error = Table::with(text).unwrap_err().to_string();
        assert!(error.contains("HITHER_COLL") && error.contains(says), "{text}: {error}");
    }
}

#[test]
fn ranges_say_what_calls_do() {
    let table = Table::with("reduce:100-200=shares").unwrap();
    for members in [1, 2, 5, 40] {
        for what in What::ALL {
            let ranges = table.ranges(what, members, true);
            assert_eq!((ranges[0].0.0, ranges[ranges.len() - 1].0.1), (0, ALL));
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].0.1 + 1, pair[1].0.0, "no gap");
            }
            for ((low, high), how) in ranges {
                for bytes in [low, low / 2 + high / 2, high] {
                    assert_eq!(table.choose(what, bytes, members, true).first, how);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_that_is_written_brings_it_down(text in "[a-z*:@=,0-9KM -]{0,40}") {
        let _ = Table::with(&text);
    }

    #[test]
    fn rows_are_read_as_they_are_written(
        what in 0usize..16,
        how in 0usize..6,
        low in 0u64..1 << 40,
        more in prop::option::of(0u64..1 << 40),
        members in prop::option::of((1u32..100, 0u32..100)),
    ) {
        let (what, algorithm) = (What::ALL[what], Algorithm::ALL[how]);
        prop_assume!(algorithm.serves(what));
        let bytes = (low, more.map_or(ALL, |more| low + more));
        prop_assume!(algorithm != Algorithm::Boards || bytes.1 <= 56 || bytes.1 == ALL);
        let members = members.map_or(ANY, |(low, more)| (low, low + more));
        let row = Row { what: Some(what), bytes, members, cores: None, algorithm, set: true };
        let table = Table::with(&row.to_string()).unwrap();
        prop_assert_eq!(&table.rows()[0], &row);
    }
}
