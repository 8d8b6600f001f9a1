//! What the ranks do until one of them is killed.

use super::{TYPED, collectives, fuse, talk, windows};
use hither::base::Slot;
use hither::link::Message;
use hither::{Deadline, Error, Job, Op, Rank, Result, Team};
use std::time::{Duration, Instant};

/// Workloads without points to die at.
const NAMES: &[&str] = &["barrier", "reduce", "splits", "broadcast", "messages"];

/// Every workload, with the points at which a rank can be told to die.
pub fn all() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let plain = NAMES.iter().map(|&name| (name, &[][..]));
    plain.chain(all_works().map(|work| (work.name, work.points)))
}

/// Bytes that control structures, inboxes and lanes may have come to use meanwhile.
const SLACK: u64 = 3 << 20;
/// Bytes that each rank may have come to use for messages: pieces, pools, and what it lends.
const BUFFERS: u64 = (5 << 20) + (64 << 10);

/// Bytes of the node's memory that have pages.
fn pages_in_use() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc/self/fd").expect("the list of descriptors");
    entries
        .flatten()
        .filter(|entry| {
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            link.to_string_lossy().starts_with("/memfd:")
        })
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        // A file once, however many descriptors there are of it.
        .map(|memory| (memory.ino(), memory.blocks() * 512))
        .collect::<std::collections::BTreeMap<u64, u64>>()
        .values()
        .sum()
}

/// Longest time until what the survivors have let go of is free.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rounds that survivors go on after a death.
const ENCORE: u32 = 50;

/// Runs one rank; returns its exit code.
pub fn rank_main(args: &[String]) -> u8 {
    let Some(name) = args.first() else { return 1 };
    let survive = args.iter().any(|arg| arg == "survive");
    let job = match Job::init() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("{error}");
            return if error.is_death() { TYPED } else { 1 };
        }
    };
    fuse::light(args, job.rank().0);
    let before = pages_in_use();
    let error = match run(name, &job, job.team(), u32::MAX) {
        Err(error) => error,
        Ok(()) => return 0,
    };
    eprintln!("{error}");
    if !acceptable(&error) {
        return 1;
    }
    if !survive {
        return TYPED;
    }
    match go_on(name, &job, before) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("after the death: {error}");
            1
        }
    }
}

/// A death, or the report that another rank failed because of one.
fn acceptable(error: &Error) -> bool {
    error.is_death() || matches!(error, Error::PeerFailed { .. })
}

fn go_on(name: &str, job: &Job, before: u64) -> Result<()> {
    let survivors = job.team().shrink()?;
    assert!(survivors.size() < job.size(), "nobody is missing");
    run(name, job, &survivors, ENCORE)?;
    survivors.barrier()?;
    // All windows are gone, those of the dead too: so must be their memory.
    // A thread that runs what came for one may still be about to let it go.
    let begun = Instant::now();
    loop {
        let left = job.node().symmetric_in_use()?;
        if left == 0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{left} bytes of windows that nobody has any more");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pages = pages_in_use();
    let buffers = u64::from(job.size()) * BUFFERS;
    assert!(pages < before + SLACK + buffers, "{pages} bytes of memory in use, {before} before");
    survivors.barrier()
}

fn run(name: &str, job: &Job, team: &Team, rounds: u32) -> Result<()> {
    match name {
        "barrier" => (0..rounds).try_for_each(|_| team.barrier()),
        "reduce" => reduce(team, rounds),
        "splits" => splits(team, rounds),
        "broadcast" => broadcast(team, rounds),
        "messages" => messages(job, team, rounds),
        other => match all_works().find(|work| work.name == other) {
            Some(work) => (work.run)(team, rounds),
            None => Err(Error::invalid("workload", other)),
        },
    }
}

fn all_works() -> impl Iterator<Item = &'static windows::Work> {
    collectives::WORKS.iter().chain(windows::WORKS).chain(talk::WORKS)
}

fn reduce(team: &Team, rounds: u32) -> Result<()> {
    let mut data = vec![0u64; 5000];
    for round in 0..rounds {
        data.fill(u64::from(round) + u64::from(team.rank().0));
        let len = if round % 2 == 0 { 1 } else { data.len() };
        team.allreduce(Op::Max, &mut data[..len])?;
        let want = u64::from(round) + u64::from(team.size()) - 1;
        assert!(data[..len].iter().all(|&v| v == want), "a wrong sum");
    }
    Ok(())
}

fn broadcast(team: &Team, rounds: u32) -> Result<()> {
    let mut data = vec![0u8; 50_000];
    for round in 0..rounds {
        let root = Rank(round % team.size());
        if team.rank() == root {
            data.fill(round as u8);
        }
        team.broadcast(root, &mut data)?;
        assert!(data.iter().all(|&b| b == round as u8), "wrong bytes");
    }
    Ok(())
}

fn splits(team: &Team, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        if let Some(half) = team.split(Some(team.rank().0 % 2), round)? {
            half.barrier()?;
        }
    }
    Ok(())
}

/// Everybody sends numbered messages of all sizes to everybody, through inboxes and lanes: none
/// may be lost, doubled, damaged or out of order between survivors.
fn messages(job: &Job, team: &Team, rounds: u32) -> Result<()> {
    let link = job.link();
    let slots: Vec<Slot> = team.ranks().map(|rank| team.slot_of(rank)).collect::<Result<_>>()?;
    let expected = vec![0; slots.len()];
    // The survivors' numbering must not be taken for that of the first run.
    let era = u64::from(team.size()) << 32;
    let deaths = job.deaths();
    let mut ledger = Ledger { slots, expected, era };
    for number in 0..u64::from(rounds) {
        let bytes = vec![fill(number); length(number)];
        for at in 0..ledger.slots.len() {
            let peer = ledger.slots[at];
            // A peer without room may be alive but no longer receiving, because somebody died.
            let progress = || {
                link.poll(|message| ledger.note(&message))?;
                if job.deaths() == deaths { Ok(()) } else { ledger.check(job) }
            };
            link.send_while(peer, 1, era | number, &bytes, Deadline::NEVER, progress)?;
        }
        ledger.wait(job, number.saturating_sub(AHEAD))?;
    }
    // What is under way is received before anybody stops listening.
    ledger.wait(job, u64::from(rounds))?;
    team.barrier()
}

/// Rounds that a sender may be ahead of what it has received.
const AHEAD: u64 = 20;

/// The next message expected of each member.
struct Ledger {
    slots: Vec<Slot>,
    expected: Vec<u64>,
    era: u64,
}

impl Ledger {
    fn note(&mut self, message: &Message<'_>) {
        let from = self.slots.iter().position(|&slot| slot == message.from);
        let (Some(from), true) = (from, message.imm >> 32 == self.era >> 32) else { return };
        let number = message.imm & 0xffff_ffff;
        assert_eq!(number, self.expected[from], "lost, doubled or out of order");
        assert_eq!(message.bytes.len(), length(number), "wrong length");
        assert!(message.bytes.iter().all(|&byte| byte == fill(number)), "damaged");
        self.expected[from] += 1;
    }

    fn check(&self, job: &Job) -> Result<()> {
        job.node().check(self.slots.iter().copied(), "sending")
    }

    /// Receives until every member's messages below `number` are here.
    fn wait(&mut self, job: &Job, number: u64) -> Result<()> {
        while self.expected.iter().any(|&next| next < number) {
            let slots = self.slots.clone();
            let check = || job.node().check(slots.iter().copied(), "receiving");
            job.link().recv_wait(Deadline::NEVER, check, |message| self.note(&message))?;
        }
        Ok(())
    }
}

fn fill(number: u64) -> u8 {
    (number % 251) as u8
}

fn length(number: u64) -> usize {
    [0, 8, 48, 49, 300, 512, 2000][number as usize % 7]
}
