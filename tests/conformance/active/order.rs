//! The order that messages keep unless they are let off it (paper 001 §6.4.5): those of one origin
//! that meet in a target's memory run there in the order in which they were issued, whatever their
//! handlers, sizes, forms and places are, and so do the segments of each.

use crate::Written;
use crate::support::random::Random;
use hither::{Call, Job, Placement, Rank, Result, Window};
use std::ops::Range;

pub const CASES: &[Written] = &[("am_order_of_random_messages", random_messages)];

/// Elements that an origin has at each target.
const CELLS: usize = 12;
/// Messages of an origin in an epoch.
const MESSAGES: u64 = 120;
const EPOCHS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Form {
    Run,
    Posted,
    Requested,
}

/// A message as its origin issues it.
struct Drawn {
    target: usize,
    cells: Range<usize>,
    handler: usize,
    segments: usize,
    /// Words of a segment's input.
    each: usize,
    form: Form,
    placement: Placement,
}

fn draw(random: &mut Random, size: usize) -> Drawn {
    let mut pick = |bound: usize| random.below(bound as u64) as usize;
    let start = pick(CELLS);
    Drawn {
        target: pick(size),
        cells: start..start + 1 + pick(CELLS - start),
        handler: pick(2),
        // Mostly small; sometimes of many units.
        segments: [1, 1, 2, 7, 150][pick(5)],
        each: [1, 1, 3, 40][pick(4)],
        form: [Form::Run, Form::Posted, Form::Posted, Form::Requested][pick(4)],
        placement: [Placement::Target, Placement::Auto, Placement::Origin][pick(3)],
    }
}

/// What the messages of an origin are in an epoch, in order.
fn drawn(origin: u32, epoch: u64, size: usize) -> impl Iterator<Item = (u64, Drawn)> {
    let mut random = Random::new(epoch << 32 | u64::from(origin) << 8 | 0x5a);
    (1..=MESSAGES).map(move |i| (epoch * MESSAGES + i, draw(&mut random, size)))
}

/// The number of a segment: greater than that of all before it.
fn number(message: u64, segment: usize) -> u64 {
    message << 16 | (segment as u64 + 1)
}

/// Each segment leaves its number in the elements, in which it may find smaller ones only.
fn follow(call: Call<'_, u64, u64, u64>) {
    let each = call.input.len() / call.segments;
    for (at, input) in call.input.chunks(each).enumerate() {
        let mine = number(input[0], call.segment_offset + at);
        for cell in 0..call.persistent.len() {
            let last = call.persistent.get(cell).expect("an element");
            assert!(last < mine, "{mine:#x} at {cell} behind {last:#x}");
            call.persistent.set(cell, mine).expect("an element");
        }
    }
}

fn random_messages(job: &Job) -> Result<()> {
    let (team, size) = (job.team(), job.size() as usize);
    let me = job.rank().0;
    let window = Window::<u64>::allocate(team, size * CELLS)?;
    let handlers = [window.register(1, follow)?, window.register(2, follow)?];
    for round in 0..EPOCHS {
        let epoch = window.lock_all()?;
        let mut requests = Vec::new();
        for (message, drawn) in drawn(me, round, size) {
            let input = vec![message; drawn.segments * drawn.each];
            let first = me as usize * CELLS;
            let begun = epoch
                .message(&handlers[drawn.handler], Rank(drawn.target as u32))
                .persistent(first + drawn.cells.start..first + drawn.cells.end)
                .segments(drawn.segments)
                .input(&input)
                .placement(drawn.placement);
            match drawn.form {
                Form::Run => begun.run()?,
                Form::Posted => begun.post()?,
                Form::Requested => requests.push(begun.request(1)?),
            }
        }
        for request in requests {
            request.wait()?;
        }
        epoch.unlock_all()?;
        team.barrier()?;
        for origin in 0..job.size() {
            let mut last = [0; CELLS];
            for (message, drawn) in (0..=round).flat_map(|round| drawn(origin, round, size)) {
                if drawn.target == me as usize {
                    last[drawn.cells].fill(number(message, drawn.segments - 1));
                }
            }
            for (cell, last) in last.into_iter().enumerate() {
                let is = window.local().get(origin as usize * CELLS + cell)?;
                assert_eq!(is, last, "epoch {round}, element {cell} of origin {origin}");
            }
        }
        team.barrier()?;
    }
    window.free()
}
