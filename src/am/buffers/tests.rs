use super::*;
use crate::am::body::Place;
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Step {
    Reserve { origin: u32, least: u64, more: u64 },
    All { origin: u32 },
    Release(Index),
    Withdraw(Index),
    Attach(u64),
    Detach(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u32..6, 1u64..1500, 0u64..1500)
            .prop_map(|(origin, least, more)| Step::Reserve { origin, least, more }),
        1 => (0u32..6).prop_map(|origin| Step::All { origin }),
        6 => any::<Index>().prop_map(Step::Release),
        1 => any::<Index>().prop_map(Step::Withdraw),
        1 => (0u64..1500).prop_map(Step::Attach),
        1 => any::<Index>().prop_map(Step::Detach),
    ];
    prop::collection::vec(step, 1..80)
}

/// Who waits, told from outside: origin, ticket, least, most, in the order of arrival.
type Queue = Vec<(u32, u64, u64, u64)>;

/// Checks what was answered; the spaces that were granted.
fn look(buffers: &mut Buffers, queue: &mut Queue) -> Vec<(u32, u32)> {
    let largest = buffers.largest();
    let mut granted = Vec::new();
    for answer in buffers.answers().collect::<Vec<_>>() {
        let (Answer::Granted { origin, ticket, .. } | Answer::Refused { origin, ticket, .. }) =
            answer;
        let at = queue.iter().position(|claim| (claim.0, claim.1) == (origin, ticket));
        let at = at.expect("nobody asked for it");
        let (_, _, least, most) = queue.remove(at);
        match answer {
            Answer::Granted { spaces, .. } => {
                assert!(spaces.len() == 1, "{spaces:?}");
                let (number, bytes) = spaces[0];
                assert!(least <= bytes && bytes <= most, "{least} {bytes} {most}");
                let id = buffers.spaces[&(origin, number)].buffer;
                let len = buffers.buffers[&id].free.len();
                assert!(bytes <= least.max(len / 2), "{bytes} of {len} for {least}");
                // Nobody who came before could have used it.
                assert!(queue[..at].iter().all(|before| before.2 > len), "{queue:?} {len}");
                granted.push((origin, number));
            }
            Answer::Refused { largest: told, .. } => {
                assert!(told == largest && least > largest);
            }
        }
    }
    granted
}

/// No two spaces, and nothing that is free, share a byte.
fn check_memory(buffers: &Buffers) {
    for (id, buffer) in &buffers.buffers {
        let mut free = buffer.free.clone();
        for space in buffers.spaces.values().filter(|space| space.buffer == *id) {
            assert!(free.give(space.offset, space.free.len()), "{space:?} is free too");
        }
        assert!(free.is_whole(), "{free:?} got lost");
    }
}

proptest! {
    #[test]
    fn room_is_lent_in_turns_and_never_twice(sizes in prop::collection::vec(0u64..1500, 0..4), steps in steps()) {
        let mut buffers = Buffers::new(0, 0);
        let mut ids: Vec<BufferId> = sizes.iter().map(|bytes| buffers.attach(*bytes)).collect();
        let (mut queue, mut held) = (Queue::new(), Vec::<(u32, u32)>::new());
        for (ticket, step) in (0u64..).zip(steps) {
            match step {
                Step::Reserve { origin, least, more } => {
                    let waits = queue.iter().any(|claim| claim.0 == origin);
                    let asked = buffers.reserve(origin, ticket, least, least + more, false);
                    prop_assert_eq!(asked.is_err(), waits);
                    if !waits {
                        queue.push((origin, ticket, rounded(least), rounded(least + more)));
                    }
                }
                Step::All { origin } => {
                    let nobody_waits = queue.is_empty();
                    if buffers.reserve(origin, ticket, 1, u64::MAX, true).is_ok() {
                        let answers: Vec<Answer> = buffers.answers().collect();
                        prop_assert_eq!(answers.len(), 1);
                        if let Answer::Granted { spaces, .. } = &answers[0] {
                            prop_assert!(nobody_waits || spaces.is_empty());
                            held.extend(spaces.iter().map(|space| (origin, space.0)));
                        }
                    }
                }
                Step::Release(which) if !held.is_empty() => {
                    let (origin, space) = held.swap_remove(which.index(held.len()));
                    prop_assert_eq!(buffers.release(origin, space), Ok(()));
                    prop_assert_eq!(buffers.release(origin, space), Err(Refusal::NoSpace));
                }
                Step::Withdraw(which) if !queue.is_empty() => {
                    let (origin, ticket, ..) = queue.remove(which.index(queue.len()));
                    buffers.withdraw(origin, ticket);
                }
                Step::Attach(bytes) => ids.push(buffers.attach(bytes)),
                Step::Detach(which) if !ids.is_empty() => {
                    let id = ids.swap_remove(which.index(ids.len()));
                    buffers.detach(id);
                    let lent = buffers.spaces.values().any(|space| space.buffer == id);
                    prop_assert_eq!(buffers.detached(id).is_err(), lent);
                }
                _ => {}
            }
            held.extend(look(&mut buffers, &mut queue));
            check_memory(&buffers);
            // Whoever waits first does so because there is no room.
            if let Some(first) = queue.first() {
                let mut open = buffers.buffers.values().filter(|buffer| !buffer.closing);
                prop_assert!(open.all(|buffer| buffer.free.largest() < first.2));
            }
        }
        while let Some((origin, space)) = held.pop() {
            buffers.release(origin, space).unwrap();
            held.extend(look(&mut buffers, &mut queue));
        }
        prop_assert!(queue.is_empty() && buffers.spaces.is_empty(), "{queue:?} wait for ever");
    }
}

#[test]
fn places_are_checked() {
    let mut buffers = Buffers::new(256, 0);
    buffers.attach(1024);
    buffers.reserve(3, 9, 128, 128, false).unwrap();
    let granted: Vec<Answer> = buffers.answers().collect();
    let [Answer::Granted { origin: 3, ticket: 9, spaces }] = &granted[..] else {
        panic!("{granted:?}");
    };
    let [(space, 128)] = spaces[..] else { panic!("{spaces:?}") };
    let place = |space, position, bytes| Place { space, position, bytes };
    // Another's space, one that nobody has, beyond the end, twice the same, after the last.
    assert_eq!(buffers.enter(4, place(space, 0, 64), false), Err(Refusal::NoSpace));
    assert_eq!(buffers.enter(3, place(space + 1, 0, 64), false), Err(Refusal::NoSpace));
    assert_eq!(buffers.enter(3, place(space, 64, 128), false), Err(Refusal::Taken));
    assert_eq!(buffers.enter(3, place(GUARANTEED, 0, 64), false), Err(Refusal::Taken));
    assert!(buffers.enter(3, place(SYSTEM, 192, 64), false).is_ok());
    assert_eq!(buffers.enter(3, place(SYSTEM, 128, 128), false), Err(Refusal::Taken));
    assert!(buffers.enter(4, place(SYSTEM, 128, 128), false).is_ok());
    assert!(buffers.enter(3, place(space, 0, 64), true).is_ok());
    assert_eq!(buffers.enter(3, place(space, 64, 64), false), Err(Refusal::NoSpace));
    assert!(!buffers.is_idle(3) && !buffers.is_idle(4) && buffers.is_idle(5));
    buffers.leave(3, place(space, 0, 64));
    assert_eq!(buffers.release(3, space), Err(Refusal::NoSpace));
    buffers.leave(3, place(SYSTEM, 192, 64));
    assert!(buffers.is_idle(3));
}

#[test]
fn promises_make_way_and_are_kept() {
    let mut buffers = Buffers::new(0, 256);
    let ids = [buffers.attach(256), buffers.attach(512)];
    let place = |position| Place { space: GUARANTEED, position, bytes: 64 };
    let enter = |buffers: &mut Buffers, origin, position| {
        buffers.enter(origin, place(position), false).unwrap()
    };
    assert_eq!(enter(&mut buffers, 1, 0), Where::Buffer(ids[0], 0));
    assert_eq!(enter(&mut buffers, 2, 0), Where::Buffer(ids[1], 0));
    // Who has something there when a buffer is detached goes on beside it.
    buffers.detach(ids[0]);
    assert_eq!(buffers.detached(ids[0]), Err(vec![1]));
    assert_eq!(enter(&mut buffers, 1, 64), Where::StandIn(64));
    buffers.leave(1, place(0));
    assert_eq!(buffers.detached(ids[0]), Ok(()));
    // So does who is waited for; others do not begin there.
    buffers.reserve(9, 1, 512, 512, false).unwrap();
    assert_eq!(buffers.answers().count(), 0);
    assert_eq!(enter(&mut buffers, 2, 64), Where::StandIn(64));
    assert_eq!(enter(&mut buffers, 3, 0), Where::StandIn(0));
    buffers.leave(2, place(0));
    assert!(matches!(buffers.answers().next(), Some(Answer::Granted { origin: 9, .. })));
    buffers.leave(2, place(64));
    buffers.leave(1, place(64));
    buffers.leave(3, place(0));
    assert!((1..4).all(|origin| buffers.is_idle(origin)));
}
