//! Large messages where something is refused or lost: a receiver that gives no buffers, a sender
//! that dies while it fills one, or is stopped before it copies its half, a kernel that copies no more. Ranks are processes, each case is a
//! job of its own; a filter on the command line selects cases by name.

#[path = "../support/mod.rs"]
mod support;

use hither::world::Outcome;
use hither::{Error, Job, Rank, Result, Team};
use rustix::fd::AsRawFd;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use support::options::Options;
use support::ranks;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-pools";

struct Case {
    name: &'static str,
    ranks: u32,
    settings: &'static [(&'static str, &'static str)],
    /// Ranks that are to end badly.
    killed: &'static [u32],
    run: fn(&Job) -> Result<()>,
}

/// One buffer for each of [`BUFFERS`], and no more.
const FIXED: &[(&str, &str)] = &[
    ("HITHER_EAGER", "fixed"),
    ("HITHER_EAGER_LIMIT", "100K"),
    ("HITHER_EAGER_FIXED_BUFFERS", "3"),
    ("HITHER_EAGER_BUFFERS", "3"),
    ("HITHER_LEND_LIMIT", "0"),
];
const BUFFERS: u64 = 3;
const ALWAYS: &[(&str, &str)] = &[("HITHER_EAGER", "always"), ("HITHER_LEND_LIMIT", "0")];
const PLAIN: &[(&str, &str)] = &[("HITHER_EAGER", "fixed"), ("HITHER_LEND_LIMIT", "0")];

const HALVES: &[(&str, &str)] = &[("HITHER_CMA", "halves"), PLAIN[0], PLAIN[1]];

const LEND: &[(&str, &str)] = &[("HITHER_LEND", "always")];
/// Whatever is measured, and all of it through shared buffers.
const PAST: &[(&str, &str)] = &[("HITHER_STORES", "nontemporal"), ("HITHER_CMA", "0"), LEND[0]];

const CASES: &[Case] = &[
    Case { name: "refused", ranks: 2, settings: ALWAYS, killed: &[], run: refused },
    Case {
        name: "dead_senders_buffers",
        ranks: 3,
        settings: FIXED,
        killed: &[2],
        run: dead_sender,
    },
    Case { name: "no_copy_from_the_start", ranks: 2, settings: PLAIN, killed: &[], run: never },
    Case { name: "no_copy_any_more", ranks: 2, settings: PLAIN, killed: &[], run: no_more },
    Case { name: "no_half_any_more", ranks: 2, settings: HALVES, killed: &[], run: no_more },
    Case { name: "stopped_before_its_half", ranks: 2, settings: HALVES, killed: &[], run: stopped },
    Case { name: "lent_or_announced", ranks: 2, settings: &[], killed: &[], run: middle },
    Case { name: "lent_in_a_flow", ranks: 2, settings: &[], killed: &[], run: flow },
    Case { name: "always_lent", ranks: 2, settings: LEND, killed: &[], run: middle },
    Case { name: "past_the_caches", ranks: 2, settings: PAST, killed: &[], run: middle },
    Case { name: "past_the_caches_in_a_flow", ranks: 2, settings: PAST, killed: &[], run: flow },
];

fn main() {
    let options = Options::read(&[]);
    if let Some([name]) = options.behind(RANK) {
        let case = CASES.iter().find(|case| case.name == name).expect("a case of that name");
        if case.name == "refused" && std::env::var("HITHER_RANK").as_deref() == Ok("1") {
            // SAFETY: this process has no other thread yet.
            unsafe { std::env::set_var("HITHER_EAGER_BYTES", "0") };
        }
        let job = Job::init().expect("joining the job");
        (case.run)(&job).unwrap_or_else(|e| panic!("{name}, rank {}: {e}", job.rank()));
        if case.killed.is_empty() {
            job.finish().expect("leaving the job");
        }
        return println!("well");
    }
    let filter = options.word().unwrap_or_default();
    let mut failed = 0;
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        let outcome = launch(case);
        let ok = (0..case.ranks).all(|rank| {
            let well = ranks::said(&outcome, rank as usize).lines().any(|line| line == "well");
            well != case.killed.contains(&rank)
        });
        println!("test {} ... {}", case.name, if ok { "ok" } else { "FAILED" });
        if !ok {
            failed += 1;
            eprintln!("{}", outcome.summary());
            outcome.stderr.iter().for_each(|text| eprint!("{}", String::from_utf8_lossy(text)));
        }
    }
    assert_eq!(failed, 0, "cases that failed");
}

fn launch(case: &Case) -> Outcome {
    let mut launcher = ranks::launcher()
        .args([RANK, case.name])
        .ranks(case.ranks)
        .survive(!case.killed.is_empty())
        .env("HITHER_WAIT_TIMEOUT", "60")
        .timeout(Duration::from_secs(120));
    for (key, value) in case.settings {
        launcher = launcher.env(key, value);
    }
    ranks::run(launcher)
}

fn content(from: Rank, number: u64, len: usize) -> Vec<u64> {
    (0..len as u64).map(|i| i ^ number << 20 ^ u64::from(from.0) << 40).collect()
}

/// A message each way that overlaps with something, and what it says.
fn overlap(team: &Team, other: Rank, number: u64) -> Result<()> {
    const LEN: usize = 4000;
    let send = team.isend(other, 1, content(team.rank(), number, LEN))?;
    let receive = team.irecv(other, 1, vec![0u64; LEN])?;
    std::thread::sleep(Duration::from_millis(1));
    let (got, _) = receive.wait()?;
    assert!(got == content(other, number, LEN), "message {number} came changed");
    send.wait().map(drop)
}

/// Rank 1 has no memory for buffers: rank 0 asks once, is told so, and goes on as before.
fn refused(job: &Job) -> Result<()> {
    let (team, me) = (job.team(), job.rank());
    let other = Rank(1 - me.0);
    let mut over = [0u64];
    let mut number = 0;
    while over == [0] {
        overlap(team, other, number)?;
        number += 1;
        over = [team.message_counters()?.refusals];
        team.broadcast(Rank(0), &mut over)?;
        assert!(number < 5000, "rank 0 never asked: {:?}", team.message_counters()?);
    }
    for _ in 0..200 {
        overlap(team, other, number)?;
        number += 1;
    }
    let now = team.message_counters()?;
    assert_eq!((now.pooled, now.switches, now.eager_threshold), (0, 0, 0), "{now:?}");
    assert_eq!(now.refusals, u64::from(me == Rank(0)), "who was refused asks no more: {now:?}");
    assert_eq!((now.pool_buffers_made, now.protocol_errors), (0, 0), "{now:?}");
    team.barrier()
}

/// A message that fits into a buffer of a pool, and into no small one.
const POOLED: usize = 10_000;

/// Sends to rank 0 until one message has gone by its pool; each has an answer.
fn reach_the_pool(team: &Team) -> Result<()> {
    for number in 0..5000 {
        team.send(Rank(0), 1, &content(team.rank(), number, POOLED))?;
        team.recv(Rank(0), 2, &mut [0u8])?;
        if team.message_counters()?.pooled > 0 {
            return team.send(Rank(0), 3, &[0u8]);
        }
    }
    panic!("nothing went by a pool: {:?}", team.message_counters()?)
}

/// Answers [`reach_the_pool`] of one rank.
fn be_reached(team: &Team, by: Rank) -> Result<()> {
    let (mut into, mut number) = (vec![0u64; POOLED], 0);
    while team.iprobe::<u8>(by, 3)?.is_none() {
        if team.iprobe::<u64>(by, 1)?.is_some() {
            team.recv(by, 1, &mut into)?;
            assert!(into == content(by, number, POOLED));
            team.send(by, 2, &[0u8])?;
            number += 1;
        } else {
            std::thread::yield_now();
        }
    }
    team.recv(by, 3, &mut [0u8]).map(drop)
}

/// Memory of so many bytes of which the second half is no more.
fn half_gone(bytes: usize) -> &'static [u64] {
    let file = rustix::fs::memfd_create("half", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, bytes as u64).expect("its length");
    // SAFETY: a fresh mapping, never taken down.
    let at = unsafe {
        let (rights, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), bytes, rights, kind, file.as_raw_fd(), 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    rustix::fs::ftruncate(&file, bytes as u64 / 2).expect("its new length");
    // SAFETY: only read, by a copy that ends this process where the file does.
    unsafe { std::slice::from_raw_parts(at.cast(), bytes / 8) }
}

/// Rank 2 fills all of rank 0's buffers but one, and dies in the midst of filling that: they come
/// back, those whose messages had come when these are received. Then rank 1 has them.
fn dead_sender(job: &Job) -> Result<()> {
    let (team, me) = (job.team(), job.rank());
    if me != Rank(0) {
        reach_the_pool(team)?;
    } else {
        be_reached(team, Rank(1))?;
        be_reached(team, Rank(2))?;
    }
    let before = team.message_counters()?;
    match me.0 {
        2 => {
            team.recv(Rank(0), 5, &mut [0u8])?;
            let whole = (0..BUFFERS - 1).map(|i| team.isend(Rank(0), 6, content(me, i, POOLED)));
            whole
                .collect::<Result<Vec<_>>>()?
                .into_iter()
                .try_for_each(|it| it.wait().map(drop))?;
            let now = team.message_counters()?;
            assert_eq!(now.pooled - before.pooled, BUFFERS - 1, "{now:?}");
            team.send(Rank(0), 7, half_gone(POOLED * 8))?;
            panic!("it outlived its memory");
        }
        0 => {
            team.send(Rank(2), 5, &[0u8])?;
            let mut into = vec![0u64; POOLED];
            let lost = team.recv(Rank(2), 7, &mut into);
            assert!(matches!(lost, Err(Error::RankDied { rank: Rank(2), .. })), "{lost:?}");
            for number in 0..BUFFERS - 1 {
                team.recv(Rank(2), 6, &mut into)?;
                assert!(into == content(Rank(2), number, POOLED), "a message of the dead");
            }
            team.send(Rank(1), 5, &[0u8])?;
            team.recv(Rank(1), 7, &mut [0u8])?;
            for number in 0..BUFFERS {
                team.recv(Rank(1), 6, &mut into)?;
                assert!(into == content(Rank(1), number, POOLED));
            }
            let now = team.message_counters()?;
            assert_eq!(now.pool_buffers_made, BUFFERS, "{now:?}");
            team.send(Rank(1), 8, &[0u8])
        }
        _ => {
            team.recv(Rank(0), 5, &mut [0u8])?;
            let whole = (0..BUFFERS).map(|i| team.isend(Rank(0), 6, content(me, i, POOLED)));
            let whole = whole.collect::<Result<Vec<_>>>()?;
            let now = team.message_counters()?;
            let gone = (now.pooled - before.pooled, now.missed - before.missed);
            assert_eq!(gone, (BUFFERS, 0), "buffers that the dead had are lost: {now:?}");
            team.send(Rank(0), 7, &[0u8])?;
            whole.into_iter().try_for_each(|it| it.wait().map(drop))?;
            team.recv(Rank(0), 8, &mut [0u8]).map(drop)
        }
    }
}

/// Has the kernel refuse to copy between processes, with what security modules say, from now on and
/// for all threads; false if it does not let this process do so.
fn forbid_copies() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |k: i64, jt: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf: 0,
        k: k as u32,
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut program = [
        // The number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump(libc::SYS_process_vm_readv, 2),
        jump(libc::SYS_process_vm_writev, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const filter,
            ) == 0
    }
}

/// Large messages both ways, either side first, none of which may be lost.
fn exchange(team: &Team, rounds: u64) -> Result<()> {
    const LEN: usize = 50_000;
    let (me, other) = (team.rank(), Rank(1 - team.rank().0));
    for number in 0..rounds {
        let mut into = vec![0u64; LEN];
        let data = content(me, number, LEN);
        if (number + u64::from(me.0)).is_multiple_of(2) {
            team.send(other, 1, &data)?;
            team.recv(other, 1, &mut into)?;
        } else {
            let receive = team.irecv(other, 1, std::mem::take(&mut into))?;
            std::thread::sleep(Duration::from_millis(number % 3));
            into = receive.wait()?.0;
            team.send(other, 1, &data)?;
        }
        assert!(into == content(other, number, LEN), "message {number} came changed");
    }
    team.barrier()
}

/// Who is refused at the first attempt sends and gets everything in pieces.
fn never(job: &Job) -> Result<()> {
    let team = job.team();
    let mut forbidden = [u8::from(forbid_copies())];
    team.allreduce(hither::Op::Min, &mut forbidden)?;
    exchange(team, 20)?;
    let now = team.message_counters()?;
    if forbidden == [1] {
        assert!(now.streamed > 0 && (now.pulled, now.fulfilled) == (0, 0), "{now:?}");
    } else {
        println!("this process may not forbid itself anything: not looked at");
    }
    Ok(())
}

/// Who was allowed to copy, and is no more: the message at which it shows is whole too.
fn no_more(job: &Job) -> Result<()> {
    let team = job.team();
    exchange(team, 20)?;
    team.barrier()?;
    let before = team.message_counters()?;
    let mut forbidden = [u8::from(forbid_copies())];
    team.allreduce(hither::Op::Min, &mut forbidden)?;
    exchange(team, 20)?;
    let now = team.message_counters()?;
    if forbidden == [1] {
        assert!(now.streamed > before.streamed, "{now:?}");
        assert_eq!((now.pulled, now.fulfilled), (before.pulled, before.fulfilled), "{now:?}");
    } else {
        println!("this process may not forbid itself anything: not looked at");
    }
    Ok(())
}

/// Messages that are lent or announced, whichever is found to be faster: in turn, in windows both ways, and to
/// a receiver that comes late.
fn turns(team: &Team, number: &mut u64) -> Result<()> {
    const WINDOW: usize = 16;
    let (me, other) = (team.rank(), Rank(1 - team.rank().0));
    for len in [3000, 5000, 8192] {
        let mut into = vec![0u64; len];
        for round in 0..250u64 {
            *number += 1;
            let data = content(me, *number, len);
            if (round + u64::from(me.0)).is_multiple_of(2) {
                team.send(other, 1, &data)?;
            } else {
                team.recv(other, 1, &mut into)?;
                assert!(into == content(other, *number, len), "message {number} came changed");
            }
        }
        for round in 0..20u64 {
            let late = round >= 15 && me.0 == 1;
            let first = *number;
            let post = || (0..WINDOW).map(|_| team.irecv(other, 2, vec![0u64; len]));
            let early = if late { Vec::new() } else { post().collect::<Result<Vec<_>>>()? };
            let send = |i| team.isend(other, 2, content(me, first + i, len));
            let sends = (0..WINDOW as u64).map(send).collect::<Result<Vec<_>>>()?;
            if late {
                std::thread::sleep(Duration::from_millis(1));
            }
            let receives = if late { post().collect::<Result<Vec<_>>>()? } else { early };
            for (i, receive) in receives.into_iter().enumerate() {
                let expected = content(other, first + i as u64, len);
                assert!(receive.wait()?.0 == expected, "message {i} after {first} came changed");
            }
            sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
            *number += WINDOW as u64;
        }
    }
    team.barrier()
}

/// Messages of middle size, and again when the kernel copies no more.
fn middle(job: &Job) -> Result<()> {
    let (team, mut number) = (job.team(), 0);
    turns(team, &mut number)?;
    let before = team.message_counters()?;
    assert!(before.lent > 0, "{before:?}");
    let always = std::env::var("HITHER_LEND").is_ok_and(|lend| lend == "always");
    assert!(!always || before.announced == 0, "{before:?}");
    team.barrier()?;
    let mut forbidden = [u8::from(forbid_copies())];
    team.allreduce(hither::Op::Min, &mut forbidden)?;
    turns(team, &mut number)?;
    let now = team.message_counters()?;
    if forbidden == [1] {
        assert!(now.lent > before.lent, "{now:?}");
        assert_eq!((now.pulled, now.fulfilled), (before.pulled, before.fulfilled), "{now:?}");
    } else {
        println!("this process may not forbid itself anything: not looked at");
    }
    Ok(())
}

/// Windows of messages one way. Receives of those that are lent by themselves are told to nobody; larger ones are lent
/// where one follows the other, whether or not their receiver is late.
fn flow(job: &Job) -> Result<()> {
    const WINDOW: usize = 16;
    let (team, me) = (job.team(), job.rank());
    let content = |number: usize, len: usize| {
        let word = |i: usize| (number * 1_000_003 + i) as u64;
        (0..len / 8).map(word).collect::<Vec<_>>()
    };
    let mut number = 0;
    for len in [20 << 10, 64 << 10, (64 << 10) + 8, 200_000, 512 << 10, (512 << 10) + 8] {
        let before = team.message_counters()?;
        for round in 0..24 {
            team.barrier()?;
            if me.0 == 0 {
                let send = |i| team.isend(Rank(1), 2, content(number + i, len));
                let sends = (0..WINDOW).map(send).collect::<Result<Vec<_>>>()?;
                sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
            } else {
                let post = || team.irecv(Rank(0), 2, vec![0u64; len / 8]);
                let receives = (0..WINDOW).map(|_| post()).collect::<Result<Vec<_>>>()?;
                if round % 2 == 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                for (i, receive) in receives.into_iter().enumerate() {
                    let came = receive.wait()?.0;
                    assert!(came == content(number + i, len), "{i} of {len} bytes came changed");
                }
            }
            number += WINDOW;
        }
        let now = team.message_counters()?;
        if me.0 == 1 && len <= 64 << 10 {
            assert_eq!(now.advertised, before.advertised, "{len} bytes: {now:?}");
        }
        if me.0 == 0 {
            let lent = now.lent - before.lent;
            // Where the kernel does not copy they may travel with their data.
            let expected = len <= 512 << 10 && now.pooled == before.pooled;
            assert!(lent > 0 || !expected, "none of {len} bytes lent: {now:?}");
            assert!(lent == 0 || len <= 512 << 10, "{len} bytes lent: {now:?}");
            assert!(now.lent_bytes <= 17 << 20, "{now:?}");
        }
    }
    team.barrier()
}

/// A receive ends at its deadline although its sender, who is to copy a half, is stopped: that half is not
/// written any more once the memory is the program's again, and the send ends.
fn stopped(job: &Job) -> Result<()> {
    const LEN: usize = 2 << 20;
    let (team, me) = (job.team(), job.rank());
    let mut pids = [0u32; 2];
    pids[me.0 as usize] = std::process::id();
    team.allreduce(hither::Op::Max, &mut pids)?;
    let signal = |which| {
        let pid = Pid::from_raw(pids[0] as i32).expect("a process");
        kill_process(pid, which).expect("a signal");
    };
    if me.0 == 0 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                signal(Signal::STOP);
            });
            team.send(Rank(1), 3, &vec![7u8; LEN])
        })?;
        return team.barrier();
    }
    // It waits asleep, and then not even that.
    std::thread::sleep(Duration::from_millis(300));
    let mut into = vec![0u8; LEN];
    let error = team.with_deadline(Duration::from_millis(200)).recv(Rank(0), 3, &mut into);
    signal(Signal::CONT);
    assert!(matches!(error, Err(Error::TimedOut { .. })), "{error:?}");
    team.barrier()?;
    // This rank's half is the larger one, as the sender begins later.
    let copied = into.iter().take_while(|&&byte| byte == 7).count();
    assert!(
        (LEN / 2..LEN * 5 / 8).contains(&copied),
        "{copied} of {LEN} bytes are this rank's half"
    );
    let rest = &into[copied..];
    assert!(rest.iter().all(|&byte| byte == 0), "the sender wrote to memory that was given back");
    Ok(())
}
