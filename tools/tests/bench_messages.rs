//! The benchmarks of messages and collectives at their smallest: which rows there are and that they
//! say consistent things. Times are never judged.

mod rows;

use rows::{check, number, rows_of};
use serde_json::Value;

fn least(args: &[&str]) -> Vec<Value> {
    let rows = rows_of(&[args, &["--least"]].concat());
    rows.iter().for_each(check);
    rows
}

fn text<'r>(row: &'r Value, field: &str) -> &'r str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} of {row} is no text"))
}

fn count(rows: &[Value], holds: impl Fn(&str) -> bool) -> usize {
    rows.iter().filter(|row| holds(text(row, "what"))).count()
}

#[test]
fn messages_have_limits_that_move_the_same_bytes() {
    let rows = least(&["p2p"]);
    assert!(rows.iter().all(|row| row["bench"] == "p2p"));
    assert_eq!(count(&rows, |what| what == "one-way latency"), 16);
    // Five ways of three sizes, each with a goal and on a curve.
    let bandwidth: Vec<&Value> = rows.iter().filter(|row| row["unit"] == "GB/s").collect();
    assert_eq!(bandwidth.len(), 15);
    assert!(bandwidth.iter().all(|row| row["goal"] == "≥ 0.9x" && row["point"].is_object()));
    let pairs: Vec<&Value> =
        rows.iter().filter(|row| text(row, "what").ends_with("each pair")).collect();
    assert!(pairs.len() == 3 && pairs.iter().all(|row| number(row, "ranks") == 4.0));
    // By shared connections and by endpoints.
    assert_eq!(count(&rows, |what| what.contains("thread(s)")), 12);
}

#[test]
fn messages_between_nodes_stand_beside_the_same_sockets_without_a_library() {
    let rows = least(&["net"]);
    assert!(rows.iter().all(|row| row["bench"] == "net" && number(row, "ranks") == 2.0));
    for by in ["datagrams", "queue pairs"] {
        assert_eq!(count(&rows, |what| what == format!("one-way latency, {by}")), 7);
        assert_eq!(count(&rows, |what| what == format!("message rate, {by}")), 2);
        assert_eq!(count(&rows, |what| what == format!("bandwidth, {by}")), 3);
    }
    // A put and a get have a message and its answer by TCP for a limit.
    for by in ["packets", "queue pairs"] {
        for call in ["put and flush", "get"] {
            assert_eq!(count(&rows, |what| what == format!("{call}, by {by}")), 7);
        }
    }
    assert_eq!(count(&rows, |what| what.contains("lost")), 1);
    // By datagrams a message of one datagram has its like for a limit.
    let udp = rows.iter().filter(|row| text(row, "limit") == "UDP sockets").count();
    let switches = count(&rows, |what| what == "switch of the eager threshold");
    assert_eq!((udp, switches, rows.len()), (4 + 2 + 1, 4, 25 + 28 + 4));
}

#[test]
fn pairs_can_be_more_and_want_partners() {
    let rows = least(&["p2p-pairs-part", "--ranks", "6"]);
    assert!(rows.len() == 3 && rows.iter().all(|row| number(row, "ranks") == 6.0));
    let odd = rows::bench(&["p2p-pairs-part", "--ranks", "3", "--least"]);
    let errors = String::from_utf8_lossy(&odd.stderr);
    assert!(!odd.status.success() && errors.contains("even number"), "{errors}");
}

#[test]
fn every_collective_has_a_limit_of_its_kind() {
    let rows = least(&["collectives"]);
    // 13 calls of four sizes, the barrier, and two of mapped data.
    assert_eq!(rows.len(), 13 * 4 + 1 + 4);
    let limit = |what: &str, size: f64| {
        let row = rows.iter().find(|row| row["what"] == what && number(row, "size") == size);
        text(row.unwrap_or_else(|| panic!("{what} of {size}")), "limit").to_owned()
    };
    assert_eq!(limit("broadcast", 8.0), "copy in + copy out");
    assert_eq!(limit("allreduce", 8.0), "flag all-reduce");
    assert_eq!(limit("allgather", 1024.0), "copy in, barrier, copy out");
    assert_ne!(limit("reduce_scatter_block", 65536.0), limit("allreduce", 65536.0));
    assert_ne!(limit("broadcast", 65536.0), limit("broadcast, mapped", 65536.0));
}

#[test]
fn collectives_of_more_ranks_than_two_run() {
    assert_eq!(least(&["collectives", "--ranks", "3"]).len(), 57);
}

#[test]
fn overhead_has_both_sides_first_and_second() {
    let rows = least(&["overhead"]);
    let availability = |name: &str| {
        let of = |row: &&Value| text(row, "what").ends_with(&format!(": {name}, availability"));
        rows.iter().filter(of).collect::<Vec<_>>()
    };
    for name in ["put; work; flush", "get_request; work; wait"] {
        assert_eq!(availability(name).len(), 3 * 3, "three ways of three sizes of {name}");
    }
    for (name, goals) in [("isend", 2), ("irecv", 2)] {
        let late = availability(&format!("{name}, peer late"));
        assert_eq!((late.len(), availability(&format!("{name}, peer there")).len()), (9, 9));
        // Where somebody can copy, at 1 MiB.
        let asked: Vec<_> = late.iter().filter(|row| row["goal"] == "≥ 95 %").collect();
        assert!(asked.len() == goals && asked.iter().all(|row| row["size"] == 1 << 20));
    }
    let percent = rows.iter().filter(|row| row["unit"] == "%");
    assert!(percent.clone().count() * 2 == rows.len());
    assert!(percent.into_iter().all(|row| number(row, "value") <= 100.0));
}

fn stencil(args: &[&str], ranks: f64) {
    let rows = least(&[&["stencil3d"], args].concat());
    assert!(rows.iter().all(|row| number(row, "ranks") == ranks));
    // Nine figures of five modes at three sizes, and two verdicts for each size.
    assert_eq!(rows.len(), 3 * (9 * 5 + 2));
    let verdicts: Vec<&Value> =
        rows.iter().filter(|row| text(row, "what").starts_with("verdict: ")).collect();
    assert!(verdicts.len() == 6 && verdicts.iter().all(|row| row["holds"].is_boolean()));
    assert_eq!(count(&rows, |what| what == "step, dynamic"), 3);
    let held = |mode: &str| -> Vec<f64> {
        let what = format!("pool memory held, {mode}");
        rows.iter().filter(|row| row["what"] == what).map(|row| number(row, "value")).collect()
    };
    let (default, tuned) = (held("default"), held("fixed at 1 MiB"));
    assert!(default.len() == 3 && tuned.len() == 3);
    // A limit that is set by hand has its pools, whatever the messages.
    assert!(default.iter().zip(&tuned).all(|(default, tuned)| default < tuned));
}

#[test]
fn the_stencil_runs_in_all_modes() {
    stencil(&[], 2.0);
}

#[test]
fn the_stencil_runs_with_more_ranks_than_cores() {
    stencil(&["--ranks", "8"], 8.0);
}

#[test]
fn a_stencil_needs_neighbours() {
    let alone = rows::bench(&["stencil3d", "--ranks", "1", "--least"]);
    let errors = String::from_utf8_lossy(&alone.stderr);
    assert!(!alone.status.success() && errors.contains("at least 2 ranks"), "{errors}");
}
