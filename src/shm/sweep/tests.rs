use crate::base::{Offset, Slot};
use crate::shm::crash::{self, kill_at, spare};
use crate::shm::heap::Id;
use crate::shm::holding::Holding;
use crate::shm::liveness;
use crate::shm::map::Mapping;
use crate::shm::node::Node;
use crate::shm::roll::{GONE, Roll};
use crate::shm::segment::Areas;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const HEAP: u64 = 1 << 21;
const BYTES: u64 = 8192;

/// Attachments of three slots to one memory.
fn nodes() -> Vec<Arc<Node>> {
    let fd = Node::create_memory(3, HEAP).unwrap();
    let length = Areas::new(3, HEAP).unwrap().length;
    let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
    let attach = |slot| Node::attach_mapped(fd.try_clone().unwrap(), Slot(slot), map.clone());
    (0..3).map(|slot| attach(slot).unwrap()).collect()
}

fn die(node: &Node) {
    liveness::mark_dead(node.header(), node.rank_slot(node.slot()), 0);
}

fn make(node: &Arc<Node>) -> Holding {
    let members = [Slot(0), Slot(1), Slot(2)];
    Holding::create(node, 7, 3 * 4096, 4096, &members, "a test").unwrap()
}

fn in_use(node: &Node) -> (u64, u64) {
    (node.symmetric_in_use().unwrap(), node.commons_in_use().unwrap())
}

/// The first word of a range, in the stride of slot 1.
fn word(node: &Node, at: u64) -> *mut u64 {
    let at = (node.areas().heap(Slot(1)).0 + at) as usize;
    // SAFETY: symmetric memory lies inside the mapping.
    unsafe { node.mapping().base().add(at).cast().as_ptr() }
}

/// What the survivor has of the one that dies.
#[derive(Default)]
struct Shared {
    holding: Option<Holding>,
    range: Option<u64>,
}

/// Makes a block with all that can belong to one, and takes it apart again. The survivor joins in
/// the middle, if `joins`, and `leaves` before the end.
fn life(
    mortal: &Arc<Node>,
    other: &Arc<Node>,
    joins: bool,
    leaves: bool,
    shared: &RefCell<Shared>,
) {
    let holding = make(mortal);
    let range = mortal.alloc_symmetric(&holding, BYTES, None).unwrap();
    let table = mortal.alloc_part(&holding, 100).unwrap();
    let memory = mortal.alloc_own(BYTES).unwrap();
    mortal.add_use(memory + 8, &holding).unwrap();
    let id = holding.id();
    if joins {
        spare(|| {
            let joined = Holding::join(other, Id::from_raw(id.raw()), Some(1)).unwrap().unwrap();
            // SAFETY: one thread, and memory that is in use.
            unsafe { word(other, range).write_volatile(77) };
            *shared.borrow_mut() = Shared { holding: Some(joined), range: Some(range) };
        });
    }
    mortal.add_use(memory, &holding).unwrap();
    let other_table = mortal.alloc_part(&holding, 5000).unwrap();
    mortal.free_part(table).unwrap();
    mortal.end_use(memory, &holding).unwrap();
    mortal.disown(memory).unwrap();
    if leaves {
        spare(|| *shared.borrow_mut() = Shared::default());
    }
    mortal.free_part(other_table).unwrap();
    drop(holding);
}

/// Slot 0 is killed at every point of making, using and leaving a block. What others hold stays,
/// and everything else is given back by the next sweep.
#[test]
fn whoever_dies_leaves_nothing_that_nobody_has() {
    for (joins, leaves) in [(false, false), (true, false), (true, true)] {
        for n in 1.. {
            let nodes = nodes();
            let (mortal, other) = (&nodes[0], &nodes[1]);
            let shared = RefCell::default();
            let lived = kill_at(n, || life(mortal, other, joins, leaves, &shared));
            die(mortal);
            let Shared { holding, range } = shared.take();
            let (symmetric, commons) = in_use(other);
            match (&holding, range) {
                (Some(holding), Some(range)) => {
                    assert!(symmetric >= BYTES && commons >= 3 * 4096, "killed at {n}");
                    assert!(holding.roll().presence(0) <= GONE);
                    // SAFETY: as above.
                    let kept = unsafe { word(other, range).read_volatile() };
                    assert_eq!(kept, 77, "killed at {n}");
                }
                _ => assert_eq!((symmetric, commons), (0, 0), "killed at {n}"),
            }
            drop(holding);
            assert_eq!(in_use(other), (0, 0), "killed at {n}, {joins}, {leaves}");
            // All of it can be used again, and is fresh.
            let again = make(other);
            let all = other.alloc_symmetric(&again, HEAP, None).unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { word(other, all).read_volatile() }, 0);
            drop(again);
            if lived.is_some() {
                assert!(n > 50, "{n} points are not the whole of it");
                break;
            }
        }
    }
}

/// Slot 0 dies with everything; slot 1 is killed at every point of sweeping it; slot 2 finishes.
#[test]
fn whoever_dies_sweeping_is_swept_too() {
    for n in 1.. {
        let nodes = nodes();
        let holding = make(&nodes[0]);
        nodes[0].alloc_symmetric(&holding, BYTES, None).unwrap();
        nodes[0].alloc_part(&holding, 100).unwrap();
        let memory = nodes[0].alloc_own(BYTES).unwrap();
        nodes[0].add_use(memory, &holding).unwrap();
        let kept = make(&nodes[2]);
        let own = nodes[0].alloc_own(BYTES).unwrap();
        nodes[0].add_use(own, &kept).unwrap();
        std::mem::forget(holding);
        die(&nodes[0]);
        let lived = kill_at(n, || in_use(&nodes[1]));
        die(&nodes[1]);
        assert_eq!(in_use(&nodes[2]), (BYTES, 3 * 4096), "killed at {n}");
        drop(kept);
        assert_eq!(in_use(&nodes[2]), (0, 0), "killed at {n}");
        if lived.is_some() {
            assert!(n > 10, "{n} points are not the whole of it");
            break;
        }
    }
}

thread_local! {
    /// Last rites that have come to their end.
    static PERFORMED: Cell<u32> = const { Cell::new(0) };
}

fn perform(node: &Node, kind: u32, at: Offset, size: u32) {
    let roll = Roll::view(node.mapping(), at, size).unwrap();
    assert_eq!((kind, roll.kind(), roll.size()), (7, 7, 3), "the block is still there");
    crash::point();
    PERFORMED.set(PERFORMED.get() + 1);
    crash::point();
}

/// Slot 0 is killed at every point of leaving a block as the last: whoever goes on performs the last
/// rites, if it had not come to an end with them. They come before the memory goes.
#[test]
fn no_block_goes_without_its_last_rites() {
    for n in 1.. {
        let nodes = nodes();
        nodes.iter().for_each(|node| node.last_rites(perform));
        let holding = make(&nodes[0]);
        nodes[0].alloc_part(&holding, 100).unwrap();
        PERFORMED.set(0);
        let lived = kill_at(n, || drop(holding));
        die(&nodes[0]);
        assert_eq!(in_use(&nodes[1]), (0, 0), "killed at {n}");
        let times = PERFORMED.get();
        assert!((1..=2).contains(&times), "{times} times, killed at {n}");
        if lived.is_some() {
            assert!(n > 10, "{n} points are not the whole of it");
            break;
        }
    }
}

/// As above, where the sweeper is killed as well.
#[test]
fn no_sweep_forgets_last_rites() {
    for n in 1.. {
        let nodes = nodes();
        nodes.iter().for_each(|node| node.last_rites(perform));
        std::mem::forget(make(&nodes[0]));
        die(&nodes[0]);
        PERFORMED.set(0);
        let lived = kill_at(n, || in_use(&nodes[1]));
        die(&nodes[1]);
        assert_eq!(in_use(&nodes[2]), (0, 0), "killed at {n}");
        assert!((1..=2).contains(&PERFORMED.get()), "killed at {n}");
        if lived.is_some() {
            assert!(n > 10, "{n} points are not the whole of it");
            break;
        }
    }
}

#[test]
fn a_block_is_not_joined_when_nobody_holds_it() {
    let nodes = nodes();
    let join = |slot: usize, id| Holding::join(&nodes[slot], id, None);
    let holding = make(&nodes[0]);
    let id = holding.id();
    let second = join(1, id).unwrap().unwrap();
    assert_eq!((second.rank(), second.at()), (1, holding.at()));
    drop(holding);
    assert!(join(2, id).unwrap().is_some(), "the second one holds it");
    drop(second);
    assert!(join(2, id).unwrap().is_none());
    // Its place is taken by another one, which it is not taken for.
    let next = make(&nodes[0]);
    assert!(join(2, id).unwrap().is_none());
    let alone = Holding::create(&nodes[0], 7, 4096, 4096, &[Slot(0)], "a test").unwrap();
    assert!(join(1, alone.id()).is_err(), "it is none of its members");
    let orphan = next.id();
    std::mem::forget(next);
    die(&nodes[0]);
    assert!(join(1, orphan).unwrap().is_none(), "who held it is dead");
}

#[test]
fn where_there_is_no_room_the_dead_make_some() {
    let nodes = nodes();
    let holding = make(&nodes[1]);
    nodes[1].alloc_symmetric(&holding, HEAP, None).unwrap();
    let mine = make(&nodes[0]);
    assert!(nodes[0].alloc_symmetric(&mine, 4096, None).is_err());
    std::mem::forget(holding);
    die(&nodes[1]);
    nodes[0].alloc_symmetric(&mine, HEAP, None).unwrap();
    drop(mine);
    assert_eq!(in_use(&nodes[0]), (0, 0));
}
