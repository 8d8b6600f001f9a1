//! Ranks that are threads, with an allgather between them.

use super::*;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// An allgather between threads.
fn gatherer(size: u32) -> impl Fn(u32, &[u8]) -> Vec<Vec<u8>> + Clone {
    let state =
        Arc::new((Barrier::new(size as usize), Mutex::new(vec![Vec::new(); size as usize])));
    move |rank, own: &[u8]| {
        let (barrier, pieces) = &*state;
        pieces.lock().unwrap()[rank as usize] = own.to_vec();
        barrier.wait();
        let all = pieces.lock().unwrap().clone();
        barrier.wait();
        all
    }
}

fn on_threads<R: Send>(size: u32, body: impl Fn(u32) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let body = &body;
        let all: Vec<_> = (0..size).map(|r| scope.spawn(move || body(r))).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn memory() -> Result<OwnedFd> {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|e| Error::os("memfd_create", e))
}

#[test]
fn all_ranks_get_the_same_memory_and_values() {
    let gather = gatherer(5);
    let seen = on_threads(5, |rank| {
        let gather = gather.clone();
        let mut boot = FromAllgather::new(rank, 5, move |b| Ok(gather(rank, b))).unwrap();
        let fd = boot.node_memory(&memory, soon()).unwrap();
        boot.put("k", &[rank as u8]).unwrap();
        boot.fence(soon()).unwrap();
        for other in 0..5 {
            let value = boot.get(Rank(other), "k", soon()).unwrap().unwrap();
            assert_eq!(value, [other as u8]);
        }
        (boot.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
    });
    assert!(seen.iter().all(|s| *s == seen[0]), "{seen:?}");
}

#[test]
fn a_failure_to_make_memory_reaches_every_rank() {
    let gather = gatherer(3);
    let errors = on_threads(3, |rank| {
        let gather = gather.clone();
        let mut boot = FromAllgather::new(rank, 3, move |b| Ok(gather(rank, b))).unwrap();
        let make = || Err(Error::invalid("heap", "too large"));
        boot.node_memory(&make, soon()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|e| e.contains("too large")), "{errors:?}");
}

#[test]
fn a_rank_that_never_fetches_is_named() {
    let gather = gatherer(3);
    let errors = on_threads(3, |rank| {
        let gather = gather.clone();
        let mut boot = FromAllgather::new(rank, 3, move |b| Ok(gather(rank, b))).unwrap();
        if rank == 2 {
            boot.fence(soon()).unwrap();
            return None;
        }
        let limit = Deadline::after(Duration::from_millis(200));
        boot.node_memory(&memory, limit).err().map(|e| e.to_string())
    });
    assert!(errors[0].as_ref().unwrap().contains("missing: rank 2"), "{errors:?}");
    assert_eq!(errors[1], None);
}

#[test]
fn a_node_is_who_can_share_memory_and_calls_it_the_same() {
    let card = Card::of_this_process(0, 4).unwrap();
    let cards = |change: &dyn Fn(&mut Card)| {
        let mut all: Vec<Card> = (0..4).map(|rank| Card { rank, ..card.clone() }).collect();
        change(&mut all[1]);
        all
    };
    let seen = |change: &dyn Fn(&mut Card), from| {
        let (placement, known) = neighbours::places(&cards(change), Rank(from)).unwrap();
        (placement.local_ranks().collect::<Vec<u32>>(), known.beyond)
    };
    assert_eq!(seen(&|_| (), 2), (vec![0, 1, 2, 3], false));
    type Change<'a> = &'a dyn Fn(&mut Card);
    let apart: [(Change<'_>, bool); 4] = [
        (&|card| card.machine = "other".into(), true),
        (&|card| card.network.clear(), true),
        (&|card| card.user += 1, false),
        (&|card| card.node = "two".into(), false),
    ];
    for (change, beyond) in apart {
        assert_eq!(seen(change, 0), (vec![0, 2, 3], beyond));
        assert_eq!(seen(change, 1), (vec![1], beyond));
        assert_eq!(seen(change, 3), (vec![0, 2, 3], beyond));
    }
    let refused = |change: &dyn Fn(&mut Card)| {
        neighbours::places(&cards(change), Rank(0)).err().unwrap().to_string()
    };
    assert!(refused(&|card| card.size = 5).contains("number of ranks"));
    assert!(refused(&|card| card.rank = 2).contains("rank order"));
    assert!(neighbours::places(&[], Rank(0)).is_err());
}

#[test]
fn each_named_node_has_its_memory() {
    for names in ["aabb", "abab", "abcb", "abca", "aaab"] {
        let gather = gatherer(4);
        let seen = on_threads(4, |rank| {
            let gather = gather.clone();
            let node = &names[rank as usize..][..1];
            let mut boot =
                FromAllgather::on_node(node, rank, 4, move |b| Ok(gather(rank, b))).unwrap();
            assert!(!boot.reaches_beyond());
            let placement = boot.placement().unwrap();
            let fd = boot.node_memory(&memory, soon()).unwrap();
            boot.put("k", &[rank as u8]).unwrap();
            boot.fence(soon()).unwrap();
            assert_eq!(boot.get(Rank(3), "k", soon()).unwrap(), Some(vec![3]));
            let near: Vec<u32> = placement.local_ranks().collect();
            (near, boot.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
        });
        let names = names.as_bytes();
        for (one, (near, job, memory)) in seen.iter().enumerate() {
            let same = (0..4).filter(|&other| names[other] == names[one]);
            assert!(near.iter().map(|rank| *rank as usize).eq(same));
            assert_eq!(*job, seen[0].1);
            for other in 0..4 {
                assert_eq!(seen[other].2 == *memory, names[other] == names[one], "{seen:?}");
            }
        }
    }
}

#[test]
fn a_node_without_memory_does_not_keep_the_others_from_theirs() {
    let gather = gatherer(4);
    let errors = on_threads(4, |rank| {
        let gather = gather.clone();
        let node = ["a", "b"][rank as usize % 2];
        let mut boot = FromAllgather::on_node(node, rank, 4, move |b| Ok(gather(rank, b))).unwrap();
        let make = || if rank == 1 { Err(Error::boot("it is full")) } else { memory() };
        boot.node_memory(&make, soon()).err().map(|error| error.to_string())
    });
    assert_eq!((&errors[0], &errors[2]), (&None, &None));
    assert!(errors[1].as_ref().unwrap().contains("it is full"));
    assert!(errors[3].as_ref().unwrap().contains("rank 1 has no memory for its node: "));
}

#[test]
fn names_that_are_none_are_refused() {
    for name in ["", &"n".repeat(257)] {
        let refused = FromAllgather::on_node(name, 0, 1, |b| Ok(vec![b.to_vec()])).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    }
    FromAllgather::on_node(&"n".repeat(256), 0, 1, |b| Ok(vec![b.to_vec()])).unwrap();
}

/// What becomes, at rank 0 of two, of its cards and two fences with an allgather that changes the other
/// one's piece: it gets the number of the call, this rank's piece and that one.
fn lied_to(mut change: impl FnMut(u32, &[u8], &mut Vec<u8>) + Send) -> Result<()> {
    let card = Card::of_this_process(1, 2)?.encode();
    let mut calls = 0u32;
    let gather = move |own: &[u8]| {
        let mut piece = match calls {
            0 => card.clone(),
            fence => [1u32.to_le_bytes(), fence.to_le_bytes()].concat(),
        };
        calls += 1;
        change(calls, own, &mut piece);
        Ok(vec![own.to_vec(), piece])
    };
    let mut boot = FromAllgather::new(0, 2, gather)?;
    for _ in 0..2 {
        boot.put("k", b"value")?;
        boot.fence(soon())?;
    }
    Ok(())
}

#[test]
fn lies_are_found_out_in_every_call() {
    lied_to(|_, _, _| ()).unwrap();
    for lie in 1..=3 {
        let found = |change: &(dyn Fn(&[u8], &mut Vec<u8>) + Sync)| {
            let change = |call, own: &[u8], piece: &mut Vec<u8>| {
                if call == lie {
                    change(own, piece);
                }
            };
            let error = lied_to(change).unwrap_err();
            assert!(matches!(error, Error::Boot { .. }), "call {lie}: {error}");
            error.to_string()
        };
        let too_short = found(&|_, piece| piece.truncate(piece.len() - 1));
        found(&|_, piece| piece.clear());
        found(&|_, piece| piece.push(1));
        let anothers = found(&|own, piece| *piece = own.to_vec());
        match lie {
            1 => {
                assert!(too_short.contains("from rank 1 is not what hither gave"), "{too_short}");
                assert!(anothers.contains("comes from rank 0"), "{anothers}");
            }
            _ => assert!(anothers.contains(&format!("that of fence {} of rank 0", lie - 1))),
        }
    }
    // Of another call, and of another version.
    let mut before = Vec::new();
    let stale = lied_to(|call, _, piece| {
        if call == 3 {
            piece.clone_from(&before);
        }
        before.clone_from(piece);
    });
    assert!(
        stale
            .unwrap_err()
            .to_string()
            .contains("piece 1 for fence 2 of the wiring is that of fence 1")
    );
    let other = lied_to(|_, _, piece| piece[8] += 1);
    assert!(other.unwrap_err().to_string().contains("same version"));
    // Nothing but lies.
    for seed in 0..200u8 {
        let _ = lied_to(|call, _, piece| {
            let at = usize::from(seed) * 7 % piece.len();
            piece[at] = piece[at].wrapping_add(seed.wrapping_mul(call as u8) | 1);
        });
    }
}

#[test]
fn a_faulty_allgather_is_found_out() {
    let short = FromAllgather::new(0, 2, |b| Ok(vec![b.to_vec()]));
    assert!(short.is_err());
    let foreign = FromAllgather::new(0, 2, |b| Ok(vec![b.to_vec(), b"junk".to_vec()]));
    assert!(foreign.unwrap_err().to_string().contains("rank 1"));
    let swapped = FromAllgather::new(0, 2, |b| Ok(vec![vec![], b.to_vec()]));
    assert!(swapped.is_err());
    assert!(FromAllgather::new(2, 2, |b| Ok(vec![b.to_vec()])).is_err());
}
