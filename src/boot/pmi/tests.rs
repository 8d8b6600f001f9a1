//! Ranks that are threads, and a process manager that is one too.

use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

/// What the ranks' conversations share.
#[derive(Default)]
struct Manager {
    store: Mutex<HashMap<String, String>>,
    /// Arrivals at barriers, ever, and whether one of them waits no more.
    arrived: Mutex<u64>,
    turn: Condvar,
    size: u64,
    /// Most characters of a value, with its end; a few, if not given.
    most: Option<usize>,
    /// What it says of nodes is not true.
    untold: bool,
}

/// Answers one rank until it takes leave: whether it did.
fn converse(manager: &Manager, mut socket: UnixStream) -> bool {
    let most = manager.most.unwrap_or(80);
    let lines = BufReader::new(socket.try_clone().unwrap()).lines();
    for line in lines {
        let Ok(line) = line else { return false };
        // As much as Slurm reads.
        assert!(line.len() < 1024, "{line}");
        let word = |key: &str| {
            let found = line.split(' ').find_map(|word| word.strip_prefix(&format!("{key}=")));
            found.unwrap_or_default().to_owned()
        };
        let answer = match word("cmd").as_str() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={most}"),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs".to_owned(),
            "put" => {
                assert!(word("key").len() <= 64 && word("value").len() < most);
                let before = manager.store.lock().unwrap().insert(word("key"), word("value"));
                assert!(before.is_none(), "{line}: a key is put once");
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "get" => match manager.store.lock().unwrap().get(&word("key")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found".to_owned(),
            },
            "barrier_in" => {
                let mut arrived = manager.arrived.lock().unwrap();
                *arrived += 1;
                let all = arrived.div_ceil(manager.size) * manager.size;
                manager.turn.notify_all();
                drop(manager.turn.wait_while(arrived, |arrived| *arrived < all).unwrap());
                "cmd=barrier_out rc=0".to_owned()
            }
            "finalize" => {
                socket.write_all(b"cmd=finalize_ack rc=0\n").unwrap();
                return true;
            }
            other => panic!("{other}"),
        };
        socket.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
    false
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Runs `body` on ranks of a job with a mapping; whether each took leave.
fn job<R: Send>(
    size: u32,
    mapping: Option<&str>,
    body: impl Fn(Result<Pmi>) -> R + Sync,
) -> Vec<(R, bool)> {
    job_of(Manager { size: size.into(), ..Manager::default() }, mapping, body)
}

/// The same with this manager.
fn job_of<R: Send>(
    manager: Manager,
    mapping: Option<&str>,
    body: impl Fn(Result<Pmi>) -> R + Sync,
) -> Vec<(R, bool)> {
    let (size, told) = (manager.size as u32, !manager.untold);
    let manager = Arc::new(manager);
    if let Some(mapping) = mapping {
        let key = "PMI_process_mapping".to_owned();
        manager.store.lock().unwrap().insert(key, mapping.to_owned());
    }
    std::thread::scope(|scope| {
        let body = &body;
        let all: Vec<_> = (0..size)
            .map(|rank| {
                let (ours, theirs) = socket::stream_pair().unwrap();
                let manager = manager.clone();
                let other = scope.spawn(move || converse(&manager, UnixStream::from(theirs)));
                let join = move || Pmi::join_told(told, ours, Rank(rank), size, soon());
                let own = scope.spawn(move || body(join()));
                (own, other)
            })
            .collect();
        all.into_iter().map(|(own, other)| (own.join().unwrap(), other.join().unwrap())).collect()
    })
}

fn memory() -> Result<OwnedFd> {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|e| Error::os("memfd_create", e))
}

#[test]
fn ranks_of_a_node_share_its_memory_and_all_see_all_values() {
    for (mapping, nodes, first) in [
        (None, 1, [0; 5]),
        (Some("(vector,(0,1,3),(1,1,2))"), 2, [0, 0, 0, 3, 3]),
        (Some("(vector,(0,2,1))"), 2, [0, 1, 0, 1, 0]),
        (Some("(vector,(1,1,1),(0,1,3))"), 2, [0, 1, 1, 1, 0]),
    ] {
        let seen = job(5, mapping, |pmi| {
            let mut pmi = pmi.unwrap();
            assert_eq!((pmi.size(), pmi.placement().unwrap().nodes()), (5, nodes));
            let fd = pmi.node_memory(&memory, soon()).unwrap();
            // Long ones go in many pieces; a later one counts.
            for round in 0..3u8 {
                pmi.put("k", &[round, pmi.rank().0 as u8].repeat(200)).unwrap();
                assert_eq!(pmi.get(Rank(2), "other", soon()).unwrap(), None);
                pmi.fence(soon()).unwrap();
                for other in 0..5 {
                    let value = pmi.get(Rank(other), "k", soon()).unwrap().unwrap();
                    assert_eq!(value, [round, other as u8].repeat(200));
                }
                // Nobody puts the next one before all have seen this one.
                pmi.fence(soon()).unwrap();
            }
            assert!(pmi.get(Rank(5), "k", soon()).is_err());
            assert!(pmi.put(&"k".repeat(65), b"").is_err());
            (pmi.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
        });
        assert!(seen.iter().all(|(_, left)| *left), "all took leave");
        for (rank, ((job, memory), _)) in seen.iter().enumerate() {
            assert_eq!((*job, *memory), (seen[0].0.0, seen[first[rank]].0.1));
        }
        let apart = (1..5).filter(|&rank| seen[rank].0.1 != seen[0].0.1).count();
        let elsewhere = first.iter().filter(|leader| **leader != 0).count();
        assert_eq!(apart, elsewhere, "a memory for each node");
    }
}

/// What is said of nodes is known not to be true: all of these share memory.
#[test]
fn ranks_whose_places_nobody_tells_are_where_they_say() {
    let manager = Manager { size: 5, untold: true, ..Manager::default() };
    let seen = job_of(manager, Some("(vector,(0,5,1))"), |pmi| {
        let mut pmi = pmi.unwrap();
        assert_eq!(pmi.placement().unwrap().nodes(), 1);
        let fd = pmi.node_memory(&memory, soon()).unwrap();
        (pmi.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
    });
    assert!(seen.iter().all(|(known, left)| *known == seen[0].0 && *left), "{seen:?}");
}

/// Whatever the launcher says of values: one whose lines are short, and one that has room for any.
#[test]
fn what_is_put_fits_into_a_line_that_is_read_at_once() {
    for most in [63, 64, 900, 1024, 60_000] {
        let manager = Manager { size: 2, most: Some(most), ..Manager::default() };
        let seen = job_of(manager, None, |pmi| {
            let Ok(mut pmi) = pmi else { return false };
            let value = |rank: u32, length: usize| [rank as u8 + 1].repeat(length);
            for length in (0..80).chain(400..560).chain([32 << 10]) {
                pmi.put("k", &value(pmi.rank().0, length)).unwrap();
                pmi.fence(soon()).unwrap();
                let (other, key) = (Rank(1 - pmi.rank().0), "k");
                let got = pmi.get(other, key, soon()).unwrap();
                assert_eq!(got, Some(value(other.0, length)), "{length} of {most}");
                pmi.fence(soon()).unwrap();
            }
            true
        });
        // One character is for an end; less is of no use.
        assert!(seen.iter().all(|(joined, _)| *joined == (most > 63)), "{most}: {seen:?}");
    }
}

#[test]
fn why_there_is_no_memory_reaches_the_others_of_the_node() {
    let errors = job(4, Some("(vector,(0,2,2))"), |pmi| {
        let mut pmi = pmi.unwrap();
        let fails = pmi.rank() == Rank(2);
        let make = || if fails { Err(Error::boot("it is full")) } else { memory() };
        pmi.node_memory(&make, soon()).err().map(|error| error.to_string())
    });
    assert_eq!((&errors[0].0, &errors[1].0), (&None, &None));
    assert!(errors[2].0.as_ref().unwrap().contains("it is full"));
    assert!(errors[3].0.as_ref().unwrap().contains("rank 2 has no memory for its node"));
}

#[test]
fn what_is_no_mapping_and_senseless_ranks_are_refused() {
    let errors = job(4, Some("(vector,(0,2))"), |pmi| pmi.unwrap_err().to_string());
    let named = |(error, _): &(String, bool)| error.contains("PMI_process_mapping");
    assert!(errors.iter().all(named), "{errors:?}");
    for (rank, size) in [(1, 1), (0, 0), (3, 2), (0, MAX_SIZE + 1)] {
        let (ours, _theirs) = socket::stream_pair().unwrap();
        assert!(Pmi::join(ours, Rank(rank), size, soon()).is_err(), "{rank} of {size}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_a_deadline_that_passes() {
    let manager = Arc::new(Manager { size: 2, ..Manager::default() });
    let (ours, theirs) = socket::stream_pair().unwrap();
    let answers = manager.clone();
    let other = std::thread::spawn(move || converse(&answers, UnixStream::from(theirs)));
    let limit = Deadline::after(Duration::from_millis(100));
    let error = Pmi::join(ours, Rank(0), 2, limit).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    // The one that never came, for the thread's sake.
    *manager.arrived.lock().unwrap() += 1;
    manager.turn.notify_all();
    let _ = other.join();
}

#[test]
fn a_launcher_that_answers_nonsense_or_ends_is_an_error() {
    let answers = [
        "",
        "\n",
        "cmd=response_to_init rc=-1 msg=no\n",
        "cmd=response_to_init pmi_version=2 rc=0\n",
        "cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes vallen_max=8\ncmd=my_kvsname kvsname=k\n",
        "cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes vallen_max=900\ncmd=my_kvsname\n",
    ];
    for answer in answers {
        let (ours, theirs) = socket::stream_pair().unwrap();
        rustix::io::write(&theirs, answer.as_bytes()).unwrap();
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).unwrap();
        let error = Pmi::join(ours, Rank(0), 1, soon()).unwrap_err();
        assert!(matches!(error, Error::Boot { .. }), "{answer:?}: {error}");
    }
}

#[test]
fn only_a_socket_that_is_there_is_claimed_and_once() {
    use rustix::fd::{AsRawFd, IntoRawFd};
    for nonsense in ["", "x", "-1", "99999"] {
        assert!(claim(nonsense).unwrap_err().to_string().contains("PMI_FD"), "{nonsense}");
    }
    let file = memory().unwrap();
    assert!(claim(&file.as_raw_fd().to_string()).is_err(), "no socket");
    let (ours, _theirs) = socket::stream_pair().unwrap();
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::empty()).unwrap();
    let raw = ours.into_raw_fd();
    let claimed = claim(&format!(" {raw} ")).unwrap();
    assert!(claim(&raw.to_string()).unwrap_err().to_string().contains("taken"));
    drop(claimed);
}
