//! The path from an operation to the target's memory and back, without a transport: cut into
//! units, carried out, landed; held against a plain copy.

use super::MOST_BODY;
use super::cut::{Cutter, land};
use super::dice::Dice;
use super::execute::{self, Progress};
use crate::base::Rank;
use crate::layout::{Cursor, Kind, Layout, Op};
use crate::rma::accumulate::Domain;
use crate::rma::info::Info;
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Landing, Memory, Operation, OwnPart};
use std::task::Poll;

/// A part in private memory.
#[derive(Debug)]
struct Plain {
    first: *mut u8,
    bytes: u64,
}

// SAFETY: used by one thread.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl OwnPart for Plain {
    fn with(&self, at: u64, bytes: u64, run: &mut dyn FnMut(*mut u8)) -> Result<(), u64> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(self.bytes);
        }
        run(self.first.wrapping_add(at as usize));
        Ok(())
    }

    fn whole(&self) -> Option<(std::ptr::NonNull<u8>, usize)> {
        None
    }
}

/// Carries a unit out, without anybody in the way.
fn perform(
    own: &Plain,
    domain: &Domain,
    body: &[u8],
    answer: &mut Vec<u8>,
) -> Result<(), crate::rma::runtime::Fault> {
    match execute::perform(own, domain, Rank(0), body, answer, &mut Progress::default()) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("nobody else is at work"),
    }
}

/// Runs `body` with a domain, which belongs to a window.
fn with_domain(body: impl Fn(&Domain) + Send + Sync) {
    crate::Job::threads(1, |job| {
        let window = crate::Window::<u64>::allocate(job.team(), 1).unwrap();
        body(&Domain::new(&window.core().block, &Info::default()));
    })
    .unwrap();
}

/// Carries an operation out unit by unit.
fn run(part: &mut [u64], domain: &Domain, operation: &Operation<'_>) -> usize {
    let own = Plain { first: part.as_mut_ptr().cast(), bytes: size_of_val(part) as u64 };
    let mut cutter = Cutter::new(operation).unwrap();
    let (mut body, mut answer, mut units, mut done) = (Vec::new(), Vec::new(), 0, 0);
    while let Some(cut) = cutter.next(&mut body).unwrap() {
        assert!(body.len() <= MOST_BODY && cut.position == done);
        done += cut.bytes;
        units += 1;
        answer.clear();
        perform(&own, domain, &body, &mut answer).unwrap();
        assert!(answer.len() <= MOST_BODY);
        if let Landing::Here(memory) = &operation.landing {
            assert_eq!(answer.len(), cut.bytes);
            // SAFETY: made for writing by the caller.
            unsafe { land(memory, cut.position, &answer).unwrap() };
        }
    }
    assert_eq!(done, operation.bytes);
    units
}

fn operation<'m>(action: Action, at: u64, bytes: usize) -> Operation<'m> {
    Operation {
        what: "a test",
        target: Rank(0),
        at,
        bytes,
        shape: None,
        action,
        kind: Some(Kind::U64),
        element: 8,
        origin: Memory::NONE,
        compare: Memory::NONE,
        landing: Landing::Nothing,
    }
}

/// A layout of `u64`s that do not overlap, and a number of copies: inside of 0..limit elements.
fn random_layout(dice: &mut Dice) -> (Layout, usize) {
    let base = Layout::of::<u64>();
    let layout = match dice.below(4) {
        0 => base.contiguous(1 + dice.below(50) as usize),
        1 => {
            let block = 1 + dice.below(5) as usize;
            base.vector(1 + dice.below(40) as usize, block, block as isize + dice.below(9) as isize)
        }
        2 => {
            // Blocks at random distances, too many for the wire form to travel with each unit.
            let mut at = 0;
            let blocks: Vec<(isize, usize)> = (0..1 + dice.below(600))
                .map(|_| {
                    let len = 1 + dice.below(4) as usize;
                    let start = at + dice.below(5) as isize;
                    at = start + len as isize;
                    (start, len)
                })
                .collect();
            base.indexed(&blocks)
        }
        _ => {
            base.vector(3, 2, 4).and_then(|inner| inner.hvector(1 + dice.below(20) as usize, 1, 96))
        }
    };
    (layout.unwrap(), 1 + dice.below(4) as usize)
}

/// Indices of the elements of a shape, in packed order.
fn elements(layout: &Layout, count: usize) -> Vec<usize> {
    let mut cursor = Cursor::new(layout.times(count)).unwrap();
    let mut all = Vec::new();
    while let Some(piece) = cursor.next_piece(8) {
        assert_eq!(piece.len, 8);
        all.push(piece.offset as usize / 8);
    }
    all
}

const ROOM: usize = 16 << 10;

#[test]
fn random_shapes_on_both_sides_move_as_a_plain_copy_does() {
    with_domain(|domain| {
        let mut dice = Dice::new(3);
        let mut most_units = 0;
        for _ in 0..300 {
            let (there, count) = random_layout(&mut dice);
            let at_target = elements(&there, count);
            let bytes = at_target.len() * 8;
            let shift = dice.below(20) as usize;
            let packed = Layout::of::<u64>().contiguous(at_target.len()).unwrap();
            let (here, copies) = if dice.below(2) == 0 {
                (packed, 1)
            } else {
                (Layout::of::<u64>().vector(at_target.len(), 1, 2).unwrap(), 1)
            };
            let at_origin = elements(&here, copies);
            let mut part: Vec<u64> = (0..ROOM as u64).collect();
            let mut want = part.clone();
            let origin: Vec<u64> = (0..ROOM).map(|_| dice.next()).collect();
            let action = [
                Action::Put,
                Action::Get,
                Action::Accumulate(Op::Sum),
                Action::GetAccumulate(Op::BitXor),
            ][dice.below(4) as usize];
            let mut result = vec![0u64; ROOM];
            let mut want_result = result.clone();
            for (&t, &o) in at_target.iter().zip(&at_origin) {
                let old = want[shift + t];
                match action {
                    Action::Put => want[shift + t] = origin[o],
                    Action::Accumulate(_) => want[shift + t] = old.wrapping_add(origin[o]),
                    Action::GetAccumulate(_) => want[shift + t] = old ^ origin[o],
                    _ => {}
                }
                if matches!(action, Action::Get | Action::GetAccumulate(_)) {
                    want_result[o] = old;
                }
            }
            let shape = here.times(copies);
            let mut op = operation(action, shift as u64 * 8, bytes);
            op.shape = Some(there.times(count));
            if action != Action::Get {
                op.origin = Memory::of(&origin).shaped(shape, bytes);
            }
            if matches!(action, Action::Get | Action::GetAccumulate(_)) {
                op.landing = Landing::Here(Memory::of_mut(&mut result).shaped(shape, bytes));
            }
            most_units = most_units.max(run(&mut part, domain, &op));
            assert!(part == want && result == want_result, "{action:?} {there:?} x {count}");
        }
        assert!(most_units > 2, "some took several units: {most_units}");
    });
}

#[test]
fn large_operations_take_bounded_units() {
    with_domain(|domain| {
        let mut part = vec![1u64; 1 << 20];
        let values: Vec<u64> = (0..part.len() as u64).collect();
        let mut op = operation(Action::Accumulate(Op::Sum), 0, part.len() * 8);
        op.origin = Memory::of(&values);
        let units = run(&mut part, domain, &op);
        assert!(units > 1000);
        assert!(part.iter().zip(0u64..).all(|(p, i)| *p == i + 1));
    });
}

#[test]
fn what_lies_outside_is_refused_and_nothing_happens() {
    with_domain(|domain| {
        let part = [5u64; 8];
        let own = Plain { first: part.as_ptr().cast_mut().cast(), bytes: 64 };
        let values = [1u64; 4];
        let mut answer = Vec::new();
        let mut try_at = |at: u64, layout: Option<&Layout>| {
            let mut op = operation(Action::Put, at, 32);
            op.origin = Memory::of(&values);
            op.shape = layout.map(|layout| layout.times(1));
            let mut body = Vec::new();
            Cutter::new(&op).unwrap().next(&mut body).unwrap();
            perform(&own, domain, &body, &mut answer)
        };
        let wide = Layout::of::<u64>().vector(4, 1, 3).unwrap();
        let low = Layout::of::<u64>().indexed(&[(-1, 4)]).unwrap();
        for (at, layout) in [
            (40, None),
            (u64::MAX - 8, None),
            (0, Some(&wide)),
            (u64::MAX - 8, Some(&wide)),
            (0, Some(&low)),
        ] {
            let fault = try_at(at, layout).unwrap_err();
            let error = super::fault::error("put", Rank(0), fault);
            assert!(
                matches!(
                    error,
                    crate::Error::OutOfBounds { len: 8, .. }
                        | crate::Error::OutOfBounds { len: 0, .. }
                ),
                "{at} {layout:?}: {error}"
            );
        }
        assert_eq!(part, [5; 8]);
        try_at(8, Some(&low)).unwrap();
        assert_eq!(part[..5], [1, 1, 1, 1, 5]);
    });
}

#[test]
fn damaged_units_never_leave_the_part() {
    with_domain(|domain| {
        let mut dice = Dice::new(11);
        // The part lies in the middle of memory that must not change.
        let mut memory = vec![0u64; 3 * 1024];
        let (there, count) = random_layout(&mut dice);
        let values = vec![7u64; 4096];
        let mut done = 0;
        for round in 0..60_000 {
            let mut op = operation(Action::Accumulate(Op::Sum), dice.below(64) * 8, 0);
            let layout = if round % 2 == 0 { there.clone() } else { random_layout(&mut dice).0 };
            op.shape = Some(layout.times(count));
            op.bytes = layout.times(count).size().unwrap();
            op.origin = Memory::of(&values[..op.bytes / 8]);
            if round % 3 == 0 {
                op.action = Action::Get;
                op.origin = Memory::NONE;
            }
            let mut body = Vec::new();
            Cutter::new(&op).unwrap().next(&mut body).unwrap();
            for _ in 0..dice.below(4) {
                let at = dice.below(body.len().min(80) as u64) as usize;
                body[at] = dice.below(256) as u8;
            }
            let first = memory[1024..2048].as_mut_ptr();
            let own = Plain { first: first.cast(), bytes: 8 << 10 };
            let mut answer = Vec::new();
            done += u32::from(perform(&own, domain, &body, &mut answer).is_ok());
        }
        assert!(done > 1000, "{done}");
        assert!(memory[..1024].iter().chain(&memory[2048..]).all(|v| *v == 0));
    });
}
