//! What packets that make no sense end, and what they leave alone.

use super::wire::Packet;
use crate::base::Slot;
use crate::link::Push;
use crate::link::service::{Channel, Outlet};
use crate::rma::info::{Info, Medium};
use crate::rma::runtime::{Message, WindowId};
use crate::{Error, Job, LockKind, Op, Rank, Result, Window};

fn window(job: &Job) -> Result<Window<u64>> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    Window::builder(job.team()).info(info).allocate(1)
}

fn add(window: &Window<u64>, target: Rank) -> Result<()> {
    let epoch = window.lock(target, LockKind::Exclusive)?;
    epoch.accumulate(target, 0, Op::Sum, &[1])?;
    epoch.unlock()
}

/// Works with `target` until that fails, and holds the error against what it must say.
fn fails(window: &Window<u64>, target: Rank) {
    let error = loop {
        match add(window, target) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!(matches!(error, Error::Incompatible { .. }), "{text}");
    assert!(text.contains(&format!("rank {target}")), "{text}");
}

/// Rank 1 sends rank 0 a packet; `forge` makes it for the window.
fn try_nonsense(channel: Channel, forge: impl Fn(WindowId) -> (u8, Vec<u8>) + Sync) {
    Job::threads(3, |job| -> Result<()> {
        let (first, me) = (window(&job)?, job.rank());
        let (liar, victim, third) = (Rank(1), Rank(0), Rank(2));
        if me == liar {
            let (kind, bytes) = forge(WindowId(first.core().block.identity()));
            let to: Slot = job.team().slot_of(victim)?;
            let mut outlet = Outlet::new(channel);
            assert_eq!(outlet.try_send(job.node(), to, kind, &bytes)?, Push::Sent);
        }
        job.team().barrier()?;
        for window in [first, window(&job)?] {
            match me {
                Rank(0) => fails(&window, liar),
                Rank(1) => fails(&window, victim),
                _ => (0..20).try_for_each(|_| add(&window, victim).and(add(&window, liar)))?,
            }
            for _ in 0..20 {
                add(&window, third)?;
                add(&window, me)?;
            }
            job.team().barrier()?;
            let epoch = window.lock(third, LockKind::Shared)?;
            let mut sum = [0];
            epoch.get(third, 0, &mut sum)?;
            epoch.unlock()?;
            assert_eq!(sum, [80], "what all three did with the third");
            job.team().barrier()?;
        }
        Ok(())
    })
    .unwrap()
    .into_iter()
    .for_each(|end| end.unwrap());
}

fn packet(message: Message<'_>, window: WindowId, from: u32) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    let kind = Packet { window, from, message }.encode(&mut bytes);
    (kind, bytes)
}

#[test]
fn a_packet_that_cannot_be_read_ends_what_is_done_with_its_sender_and_nothing_else() {
    try_nonsense(Channel::Requests, |_| (1, b"too short for a header".to_vec()));
    try_nonsense(Channel::Replies, |window| {
        let (kind, mut bytes) = packet(Message::Post { number: 1 }, window, 1);
        bytes[0] ^= 0x40;
        (kind, bytes)
    });
}

#[test]
fn a_packet_of_another_rank_is_not_believed() {
    try_nonsense(Channel::Replies, |window| packet(Message::Post { number: 1 }, window, 2));
}

#[test]
fn a_round_of_a_fence_that_nobody_can_have_come_to_is_not_believed() {
    let counts = [0; 8];
    for instance in [2, u64::MAX] {
        try_nonsense(Channel::Replies, |window| {
            packet(Message::Reduce { instance, round: 0, counts: &counts[..4] }, window, 1)
        });
    }
    try_nonsense(Channel::Replies, |window| {
        packet(Message::Barrier { instance: 5, round: 0 }, window, 1)
    });
    try_nonsense(Channel::Replies, |window| {
        packet(Message::Barrier { instance: 0, round: 63 }, window, 1)
    });
}
