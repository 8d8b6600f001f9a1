//! What each call does.

use super::{next, previous};
use crate::Written;
use hither::{
    Any, Cancelled, Hinted, Job, Pending, Persistent, Rank, Result, Status, finish_all, start_all,
    test_all, test_any, wait_all, wait_any,
};
use std::time::Duration;

pub const CASES: &[Written] = &[
    ("talk_ring", ring),
    ("talk_in_the_kernel_region", hints),
    ("talk_to_oneself", oneself),
    ("talk_any_source_any_tag", any),
    ("talk_order_by_tag", by_tag),
    ("talk_teams_do_not_meet", teams),
    ("talk_sendrecv", sendrecv),
    ("talk_probe", probe),
    ("talk_matched_probe", matched),
    ("talk_cancel", cancel),
    ("talk_dropped_requests", dropped),
    ("talk_wait_any", waits),
    ("talk_wait_all", waits_for_all),
    ("talk_futures", futures),
    ("talk_persistent", persistent),
    ("talk_beside_the_link", beside),
    ("talk_exchange_ends_all", exchange),
    ("talk_much_that_nobody_asked_for", unexpected),
    ("talk_floods_both_ways", floods),
];

fn ring(job: &Job) -> Result<()> {
    let team = job.team();
    for round in 0..100u64 {
        let mut got = [0u64; 2];
        let status = if job.rank().0 == 0 {
            team.send(next(job), 1, &[round, 1])?;
            let status = team.recv(previous(job), 1, &mut got)?;
            assert_eq!(got, [round, u64::from(job.size())]);
            status
        } else {
            let status = team.recv(previous(job), 1, &mut got)?;
            team.send(next(job), 1, &[got[0], got[1] + 1])?;
            status
        };
        assert_eq!(status, Status { source: previous(job), tag: 1, elements: 2, bytes: 16 });
    }
    team.barrier()
}

/// Hints change nothing that a program can see but how fast it is.
fn hints(job: &Job) -> Result<()> {
    assert_eq!(job.hint("in_kernel", "1")?, Hinted::Applied);
    ring(job)?;
    assert_eq!(job.hint("IN_KERNEL", "0")?, Hinted::Applied);
    {
        let _region = job.kernel_region()?;
        ring(job)?;
    }
    assert_eq!(job.hint("in kernel", "1")?, Hinted::Unknown);
    assert!(matches!(job.hint("in_kernel", "perhaps")?, Hinted::BadValue(_)));
    ring(job)
}

fn oneself(job: &Job) -> Result<()> {
    let (team, me) = (job.team(), job.rank());
    team.send(me, 5, &[1.5f64])?;
    team.send(me, 6, &[2.5f64])?;
    let mut got = [0.0];
    team.recv(me, 6, &mut got)?;
    assert_eq!(got, [2.5]);
    assert_eq!(team.recv(Any, Any, &mut got)?.tag, 5);
    for size in [10usize, 10_000, 1_000_000] {
        let large = vec![me.0; size];
        let receive = team.irecv(me, 7, vec![0; size])?;
        team.send(me, 7, &large)?;
        assert_eq!(receive.wait()?.0, large);
        let send = team.isend(me, 8, large.clone())?;
        let mut got = vec![0; size];
        team.recv(me, 8, &mut got)?;
        assert_eq!(got, large);
        send.wait()?;
    }
    team.barrier()
}

fn any(job: &Job) -> Result<()> {
    let team = job.team();
    let size = job.size();
    if job.rank().0 > 0 {
        team.send(Rank(0), job.rank().0, &[job.rank().0])?;
        team.send(Rank(0), 1000, &[job.rank().0 + 1])?;
    } else {
        let mut seen = vec![0; size as usize];
        for _ in 1..size {
            let mut got = [0];
            let status = team.recv(Any, 1000, &mut got)?;
            assert_eq!(got[0], status.source.0 + 1);
            seen[status.source.index()] += 1;
        }
        for from in 1..size {
            let mut got = [0];
            let status = team.recv(Rank(from), Any, &mut got)?;
            assert_eq!((status.tag, got[0]), (from, from));
            seen[from as usize] += 1;
        }
        assert!(seen[1..].iter().all(|&count| count == 2));
    }
    team.barrier()
}

fn by_tag(job: &Job) -> Result<()> {
    let team = job.team();
    for i in 0..60u32 {
        team.isend(next(job), i % 3, vec![i])?.wait()?;
    }
    for tag in [2, 0, 1] {
        for i in 0..20 {
            let mut got = [0];
            team.recv(previous(job), tag, &mut got)?;
            assert_eq!(got[0], 3 * i + tag, "order of tag {tag}");
        }
    }
    assert!(team.iprobe::<u32>(Any, Any)?.is_none());
    team.barrier()
}

fn teams(job: &Job) -> Result<()> {
    let team = job.team();
    let other = team.split(Some(job.rank().0 % 2), u32::MAX - job.rank().0)?.expect("a team");
    let (me, size) = (other.rank().0, other.size());
    let (to, from) = (Rank((me + 1) % size), Rank((me + size - 1) % size));
    team.isend(next(job), 1, vec![1u8])?.wait()?;
    other.isend(to, 1, vec![2u8])?.wait()?;
    let mut got = [0u8];
    let status = other.recv(Any, Any, &mut got)?;
    assert_eq!((got[0], status.source), (2, from));
    let status = team.recv(Any, Any, &mut got)?;
    assert_eq!((got[0], status.source), (1, previous(job)));
    // What nobody receives does not come to another team that takes the place of this one.
    other.send(to, 9, &[3u8])?;
    other.barrier()?;
    drop(other);
    team.barrier()?;
    let again = team.split(Some(0), 0)?.expect("a team");
    again.barrier()?;
    assert!(again.iprobe::<u8>(Any, Any)?.is_none());
    team.barrier()
}

fn sendrecv(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [1usize, 500, 5000, 200_000] {
        let data = vec![job.rank().0 + size as u32; size];
        let mut got = vec![0; size];
        let status = team.sendrecv(next(job), 4, &data, previous(job), 4, &mut got)?;
        assert_eq!((status.source, status.elements), (previous(job), size));
        assert!(got.iter().all(|&value| value == previous(job).0 + size as u32));
    }
    team.barrier()
}

fn probe(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [0usize, 3, 3000, 30_000] {
        let send = team.isend(next(job), 11, vec![7u32; size])?;
        let status = team.probe::<u32>(previous(job), Any)?;
        assert_eq!((status.tag, status.elements, status.bytes), (11, size, 4 * size));
        assert_eq!(team.iprobe::<u8>(Any, 11)?.map(|status| status.elements), Some(4 * size));
        assert!(team.iprobe::<u32>(Any, 12)?.is_none());
        let mut got = vec![0u32; status.elements];
        team.recv(status.source, status.tag, &mut got)?;
        assert!(got.iter().all(|&value| value == 7));
        send.wait()?;
        assert!(team.iprobe::<u32>(Any, Any)?.is_none());
        team.barrier()?;
    }
    team.barrier()
}

fn matched(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [1usize, 3000, 300_000] {
        let first = team.isend(next(job), 1, vec![1u8; size])?;
        let second = team.isend(next(job), 1, vec![2u8; size])?;
        let message = team.mprobe::<u8>(previous(job), 1)?;
        assert_eq!(message.status().elements, size);
        let mut got = vec![0; size];
        team.recv(previous(job), 1, &mut got)?;
        assert!(got.iter().all(|&byte| byte == 2), "the first one was taken out");
        message.recv(&mut got)?;
        assert!(got.iter().all(|&byte| byte == 1));
        first.wait()?;
        second.wait()?;
        assert!(team.improbe::<u8>(Any, Any)?.is_none());
        team.barrier()?;
    }
    team.barrier()
}

fn cancel(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [4usize, 100_000] {
        let receive = team.irecv(previous(job), 3, vec![9u8; size])?;
        let Cancelled::Withdrawn(buffer) = receive.cancel()? else { panic!("nothing was sent") };
        assert_eq!(buffer, vec![9; size]);
        team.barrier()?;
        let receive = team.irecv(previous(job), 3, vec![9u8; size])?;
        team.isend(next(job), 3, vec![1u8; size])?.wait()?;
        // The barrier comes after the message has been received or at least begun to be.
        team.barrier()?;
        let mut receive = receive;
        while !receive.test()? {}
        let Cancelled::Received(buffer, status) = receive.cancel()? else { panic!("it came") };
        assert_eq!((buffer, status.elements), (vec![1; size], size));
        team.barrier()?;
    }
    team.barrier()
}

/// Requests that nobody waits for: their messages arrive, and leave the order as it is.
fn dropped(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [10usize, 50_000] {
        drop(team.irecv(previous(job), 1, vec![0u8; size])?);
        std::mem::forget(team.irecv(previous(job), 1, vec![0u8; size])?);
        let receive = team.irecv(previous(job), 1, vec![0u8; size])?;
        for i in 0..3u8 {
            drop(team.isend(next(job), 1, vec![i; size])?);
        }
        assert_eq!(receive.wait()?.0, vec![2; size], "the third receive has the third message");
        team.barrier()?;
    }
    team.barrier()
}

fn waits(job: &Job) -> Result<()> {
    let team = job.team();
    let mut a = team.irecv(previous(job), 1, vec![0u8; 8])?;
    let mut b = team.irecv(previous(job), 2, vec![0u8; 100_000])?;
    assert_eq!(test_any(&mut [&mut a, &mut b])?, None);
    team.barrier()?;
    let sent = team.isend(next(job), 2, vec![2u8; 100_000])?;
    assert_eq!(wait_any(&mut [&mut a, &mut b])?, Some(1));
    assert_eq!(b.wait()?.0[..3], [2; 3]);
    sent.wait()?;
    team.barrier()?;
    team.send(next(job), 1, &[1u8; 8])?;
    assert_eq!(wait_any(&mut [&mut a])?, Some(0));
    a.wait()?;
    assert_eq!(wait_any(&mut [])?, None);
    team.barrier()
}

fn futures(job: &Job) -> Result<()> {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let team = job.team();
    for size in [1usize, 100_000] {
        let mut receive = pin!(team.irecv(previous(job), 1, vec![0u32; size])?);
        let mut send = pin!(team.isend(next(job), 1, vec![5u32; size])?);
        let mut context = Context::from_waker(Waker::noop());
        let (got, status) = loop {
            if let Poll::Ready(got) = receive.as_mut().poll(&mut context) {
                break got?;
            }
            std::thread::yield_now();
        };
        assert_eq!((got, status.elements), (vec![5; size], size));
        while send.as_mut().poll(&mut context).is_pending() {}
        team.barrier()?;
    }
    team.barrier()
}

/// Sends, receives and persistent requests together; what became of each is still there.
fn waits_for_all(job: &Job) -> Result<()> {
    let team = job.team();
    assert!(test_all(&mut [])?);
    wait_all(&mut [])?;
    for size in [3usize, 20_000] {
        let mut receives = Vec::new();
        for tag in 0..4 {
            receives.push(team.irecv(previous(job), tag, vec![0u32; size])?);
        }
        let mut short = team.irecv(previous(job), 4, vec![0u32; size - 1])?;
        let mut started = team.recv_init(Any, 5, vec![0u32; size]);
        let mut idle = team.send_init(next(job), 6, vec![0u32; size]);
        started.start()?;
        let mut all: Vec<&mut dyn Pending> = receives.iter_mut().map(|it| it as _).collect();
        all.push(&mut short);
        assert!(!test_all(&mut all)?, "nobody has sent anything");
        team.barrier()?;
        let mut sends = Vec::new();
        for tag in [5, 3, 1, 0, 2, 4] {
            sends.push(team.isend(next(job), tag, vec![tag + team.rank().0; size])?);
        }
        let mut all: Vec<&mut dyn Pending> = receives.iter_mut().map(|it| it as _).collect();
        all.extend(sends.iter_mut().map(|it| it as &mut dyn Pending));
        all.extend([&mut short as &mut dyn Pending, &mut started, &mut idle]);
        wait_all(&mut all)?;
        assert!(test_all(&mut all)?);
        for (tag, receive) in (0..).zip(receives) {
            let (got, status) = receive.wait()?;
            assert_eq!((status.tag, status.elements), (tag, size));
            assert!(got.iter().all(|value| *value == tag + previous(job).0));
        }
        assert!(matches!(short.wait(), Err(hither::Error::Truncated { .. })));
        assert_eq!(started.wait()?.map(|status| status.tag), Some(5));
        sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
        team.barrier()?;
    }
    // One that does not come: the others are as they were.
    let limited = team.with_deadline(Duration::from_millis(20));
    let mut never = limited.irecv(previous(job), 77, vec![0u8; 4])?;
    let error = wait_all(&mut [&mut never]);
    assert!(matches!(error, Err(hither::Error::TimedOut { .. })), "{error:?}");
    assert!(matches!(never.cancel()?, Cancelled::Withdrawn(_)));
    team.barrier()
}

fn persistent(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [2usize, 50_000] {
        let mut send = team.send_init(next(job), 1, vec![0u32; size]);
        let mut sync = team.ssend_init(next(job), 2, vec![0u32; size]);
        let mut first = team.recv_init(previous(job), 1, vec![0u32; size]);
        let mut second = team.recv_init(Any, 2, vec![0u32; size]);
        assert!(first.wait()?.is_none() && first.test()?, "it is idle");
        for round in 0..5 {
            send.buffer().expect("idle").fill(round);
            sync.buffer().expect("idle").fill(round + 100);
            start_all(&mut [&mut second, &mut send, &mut first, &mut sync])?;
            assert!(send.start().is_err() && second.buffer().is_none(), "it is under way");
            finish_all(&mut [&mut send, &mut sync])?;
            let status = first.wait()?.expect("a message");
            assert_eq!((status.source, status.elements), (previous(job), size));
            assert_eq!(second.wait()?.map(|status| status.tag), Some(2));
            assert!(first.buffer().expect("idle").iter().all(|&value| value == round));
            assert!(second.buffer().expect("idle").iter().all(|&value| value == round + 100));
        }
        // Too long a message, and once more: the buffer is not lost.
        let long = team.isend(next(job), 1, vec![1u32; size + 1])?;
        first.start()?;
        assert!(matches!(first.wait(), Err(hither::Error::Truncated { .. })));
        long.wait()?;
        send.start()?;
        first.start()?;
        assert_eq!(first.wait()?.map(|status| status.elements), Some(size));
        send.wait()?;
        team.barrier()?;
    }
    team.barrier()
}

/// Short messages of the link and tagged ones do not lose each other, whoever looks.
fn beside(job: &Job) -> Result<()> {
    let (team, link) = (job.team(), job.link());
    let to = team.slot_of(next(job))?;
    let limit = hither::Deadline::after(Duration::from_secs(60));
    let mut raw = 0;
    for i in 0..50u64 {
        link.send(to, 3, i, &i.to_ne_bytes(), limit)?;
        team.isend(next(job), 1, vec![i; 3])?.wait()?;
        if i.is_multiple_of(2) {
            let mut got = [0; 3];
            team.recv(previous(job), 1, &mut got)?;
            assert_eq!(got, [i; 3]);
        }
        while raw <= i {
            link.recv_wait(
                limit,
                || Ok(()),
                |message| {
                    assert_eq!((message.kind, message.imm), (3, raw));
                    raw += 1;
                },
            )?;
        }
        if i % 2 == 1 {
            let mut got = [0; 3];
            team.recv(previous(job), 1, &mut got)?;
            assert_eq!(got, [i; 3]);
        }
    }
    team.barrier()
}

fn exchange(job: &Job) -> Result<()> {
    let team = job.team();
    let data = vec![3u64; 50_000];
    let mut got = vec![vec![0u64; 50_000]; 8];
    team.exchange(|scope| {
        for (i, into) in got.iter_mut().enumerate() {
            scope.irecv(previous(job), i as u32, into)?;
        }
        for i in (0..8).rev() {
            scope.isend(next(job), i, &data)?;
        }
        Ok(())
    })?;
    assert!(got.iter().all(|got| *got == data));
    // What was begun in an exchange that fails is undone.
    let mut buffer = vec![7u64; 50_000];
    let failed: Result<()> = team.exchange(|scope| {
        scope.irecv(previous(job), 99, &mut buffer)?;
        Err(hither::Error::invalid("a test", "on purpose"))
    });
    assert!(failed.is_err());
    team.barrier()?;
    let sent = team.isend(next(job), 99, data.clone())?;
    let mut into = vec![0u64; 50_000];
    team.recv(previous(job), 99, &mut into)?;
    sent.wait()?;
    assert!(into == data && buffer == [7; 50_000]);
    team.barrier()
}

/// More than the limit for messages that nobody asked for.
fn unexpected(job: &Job) -> Result<()> {
    let team = job.team();
    let count = 6_000u32;
    let sends: Result<Vec<_>> =
        (0..count).map(|i| team.isend(next(job), i % 2, vec![i; 1000])).collect();
    let sends = sends?;
    team.barrier()?;
    let mut got = vec![0; 1000];
    for tag in [1, 0] {
        for i in 0..count / 2 {
            team.recv(previous(job), tag, &mut got)?;
            assert!(got.iter().all(|&value| value == 2 * i + tag));
        }
    }
    sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
    let held = team.message_counters()?.unexpected_peak;
    // The limit, what was under way (rings), and announcements.
    assert!(held < (16 << 20) + (8 << 20), "{held} bytes were held");
    // Between nodes whoever is in the barrier below already sends messages, too: those of the
    // library itself are counted, but no program finds them.
    assert!(team.iprobe::<u32>(Any, Any)?.is_none());
    if !team.spans_nodes() {
        assert_eq!(team.message_counters()?.waiting, 0);
    }
    team.barrier()
}

/// Blocking sends both ways, more than the connections hold.
fn floods(job: &Job) -> Result<()> {
    let team = job.team();
    for i in 0..2000u32 {
        team.send(next(job), 1, &[i; 500])?;
    }
    let mut got = [0; 500];
    for i in 0..2000 {
        team.recv(previous(job), 1, &mut got)?;
        assert_eq!(got, [i; 500]);
    }
    team.barrier()
}
