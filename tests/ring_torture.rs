//! Torture of the rings between real processes: senders are killed at arbitrary instructions,
//! in messages through the inbox and through lanes; what comes out is, for each of their threads,
//! an unbroken beginning of what it sent, and those who live lose nothing.
//!
//! `HITHER_TEST_ROUNDS=1000 cargo test --test ring_torture` soaks.

use hither::base::{Slot, settings};
use hither::boot;
use hither::link::{Link, MAX_MESSAGE, Message, Push};
use hither::shm::node::Node;
use hither::topo::Bind;
use hither::world::{Exit, Launcher, Output};
use hither::{Deadline, Error, Result};
use std::cell::Cell;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ROLE: &str = "HITHER_TEST_ROLE";
const SEED: &str = "HITHER_TEST_SEED";
const ROUNDS: &str = "HITHER_TEST_ROUNDS";

/// Rank 0 receives and kills, rank 1 sends and lives, the others send until they are killed.
const RANKS: u32 = 7;
const THREADS: u64 = 2;
/// Messages that rank 1 sends, and gets back.
const STEADY: u64 = 4000;

const DATA: u8 = 1;
const ECHO: u8 = 2;
const END: u8 = 3;

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

/// A well-mixed function of its arguments.
fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

fn payload(from: u16, thread: u64, seq: u64) -> Vec<u8> {
    let random = mix(u64::from(from) << 8 | thread, seq);
    let len = match random % 8 {
        0..=3 => random as usize / 8 % 49,
        4..=6 => random as usize / 8 % 600,
        _ => random as usize / 8 % (MAX_MESSAGE + 1),
    };
    (0..len as u64).map(|i| (random >> 8).wrapping_add(i * 7) as u8).collect()
}

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    match play(seed) {
        Ok(()) => exit(0),
        Err(e) => {
            eprintln!("{e}");
            exit(3)
        }
    }
}

fn play(seed: u64) -> Result<()> {
    let rank = settings::RANK.number()? as u32;
    let mut boot = boot::from_environment(limit())?;
    let fd = boot.node_memory(&|| Err(Error::boot("a launcher brings the memory")), limit())?;
    let node = Node::attach(fd, Slot(rank as u16), limit())?;
    node.await_all(limit())?;
    // Some never leave the inbox, some begin with a lane, some change on the way.
    let lane_after = [u32::MAX, 0, 20][mix(seed, rank.into()) as usize % 3];
    let link = Link::with_lane_after(node.clone(), lane_after)?;
    boot.fence(limit())?;
    match rank {
        0 => receive_and_kill(&link, seed)?,
        1 => send_and_live(&link)?,
        _ => send_until_killed(&Arc::new(link)),
    }
    node.leave();
    Ok(())
}

fn send_until_killed(link: &Arc<Link>) -> ! {
    let me = link.node().slot().0;
    for thread in 0..THREADS {
        let link = link.clone();
        std::thread::spawn(move || {
            for seq in 0.. {
                let bytes = payload(me, thread, seq);
                if let Err(e) = link.send(Slot(0), DATA, seq << 4 | thread, &bytes, limit()) {
                    eprintln!("{e}");
                    exit(4);
                }
            }
        });
    }
    loop {
        std::thread::park();
    }
}

fn send_and_live(link: &Link) -> Result<()> {
    let echoes = Cell::new(0);
    let on_message = |m: Message<'_>| {
        assert_eq!((m.from, m.kind, m.imm), (Slot(0), ECHO, echoes.get()));
        echoes.set(echoes.get() + 1);
    };
    for seq in 0..STEADY {
        let bytes = payload(1, 0, seq);
        let progress = || link.poll(on_message).map(|_| ());
        link.send_while(Slot(0), DATA, seq << 4, &bytes, limit(), progress)?;
    }
    let check = || link.node().check(std::iter::once(Slot(0)), "waiting for echoes");
    while echoes.get() < STEADY {
        link.recv_wait(limit(), check, on_message)?;
    }
    link.send(Slot(0), END, 0, &[], limit())
}

fn receive_and_kill(link: &Link, seed: u64) -> Result<()> {
    let node = link.node();
    let mut next = vec![[0u64; THREADS as usize]; RANKS as usize];
    let mut dying = vec![false; RANKS as usize];
    let mut echoed = 0;
    let mut ended = false;
    let patience = limit();
    while !ended || (2..RANKS as u16).any(|v| !node.is_dead(Slot(v))) {
        let on_message = |m: Message<'_>| {
            let (seq, thread) = (m.imm >> 4, m.imm & 15);
            if m.kind == END {
                ended = true;
                return;
            }
            let next = &mut next[m.from.index()][thread as usize];
            assert_eq!((m.kind, seq), (DATA, *next), "from rank {}", m.from);
            assert_eq!(m.bytes, payload(m.from.0, thread, seq), "from rank {}", m.from);
            *next += 1;
        };
        // Woken now and then although nothing comes: the last thing to happen may be a death.
        match link.recv_wait(Deadline::after(Duration::from_millis(2)), || Ok(()), on_message) {
            Ok(_) | Err(Error::TimedOut { .. }) => {}
            Err(e) => return Err(e),
        }
        assert!(!patience.passed(), "received {next:?}, ended {ended}, killed {dying:?}");
        while echoed < next[1][0] {
            // Rank 1 may be waiting for room here, so this must not wait for it.
            match link.try_send(Slot(1), ECHO, echoed, &[0; 100])? {
                Push::Sent => echoed += 1,
                Push::Full => break,
            }
        }
        for victim in 2..RANKS as u16 {
            let sent: u64 = next[usize::from(victim)].iter().sum();
            let dying = &mut dying[usize::from(victim)];
            if !*dying && sent > mix(seed, u64::from(victim) + 100) % 900 {
                let pid = node.rank_slot(Slot(victim)).pid.load(Ordering::Relaxed);
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                *dying = true;
            }
            if *dying {
                node.probe(Slot(victim));
            }
        }
    }
    // Everything of the dead has been received or given up, and their lanes are free.
    let patience = limit();
    let owners = &node.rank_slot(node.slot()).port.lane_owners;
    while owners.iter().any(|o| o.load(Ordering::Acquire) > 2) {
        assert!(!patience.passed(), "a dead rank's lane was not freed");
        link.poll(|m| assert!(m.from.0 >= 2))?;
    }
    assert_eq!(next[1][0], STEADY);
    println!("{:?}", link.counters());
    Ok(())
}

#[test]
fn killed_senders_never_wedge_a_ring() {
    let rounds: u64 = std::env::var(ROUNDS).map_or(25, |r| r.parse().unwrap());
    for seed in 0..rounds {
        let outcome = Launcher::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env(ROLE, "torture")
            .env(SEED, seed.to_string())
            .ranks(RANKS)
            .bind(Bind::None)
            .survive(true)
            .output(Output::Capture)
            .timeout(Duration::from_secs(150))
            .start()
            .unwrap()
            .wait()
            .unwrap();
        let text = || {
            let streams = outcome.stdout.iter().chain(&outcome.stderr);
            streams.map(|s| String::from_utf8_lossy(s)).collect::<Vec<_>>().join("\n")
        };
        let (steady, victims) = outcome.ranks.split_at(2);
        assert_eq!(steady, [Exit::Code(0); 2], "seed {seed}: {}", text());
        assert!(victims.iter().all(|v| *v == Exit::Signal(9)), "seed {seed}: {}", text());
    }
}
