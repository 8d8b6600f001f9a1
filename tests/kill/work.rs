//! What the ranks do until one of them is killed.

use super::TYPED;
use hither::base::Slot;
use hither::link::Message;
use hither::{Deadline, Error, Job, Op, Rank, Result, Team, Window};

/// Every workload.
pub const NAMES: &[&str] = &[
    "barrier",
    "reduce",
    "fence",
    "active",
    "windows",
    "splits",
    "atomics",
    "broadcast",
    "messages",
];

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
    match go_on(name, &job) {
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

fn go_on(name: &str, job: &Job) -> Result<()> {
    let survivors = job.team().shrink()?;
    assert!(survivors.size() < job.size(), "nobody is missing");
    run(name, job, &survivors, ENCORE)?;
    survivors.barrier()
}

fn run(name: &str, job: &Job, team: &Team, rounds: u32) -> Result<()> {
    match name {
        "barrier" => (0..rounds).try_for_each(|_| team.barrier()),
        "reduce" => reduce(team, rounds),
        "fence" => fence(team, rounds),
        "active" => active(team, rounds),
        "windows" => windows(team, rounds),
        "splits" => splits(team, rounds),
        "atomics" => atomics(team, rounds),
        "broadcast" => broadcast(team, rounds),
        "messages" => messages(job, team, rounds),
        other => Err(Error::invalid("workload", other)),
    }
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

fn fence(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 1000)?;
    let mut epoch = window.fence()?;
    let next = Rank((team.rank().0 + 1) % team.size());
    for round in 0..rounds {
        epoch.put(next, 0, &[u64::from(round); 1000])?;
        epoch.next()?;
        assert_eq!(window.local().get(999)?, u64::from(round));
        epoch.next()?;
    }
    epoch.end()
}

/// A lock per target, taken by all: the victim often dies holding one or waiting for one.
fn active(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 2)?;
    let add = window.register::<u64, u64>(1, |call| {
        // Two words that must stay equal: half-done is visible.
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + 1);
        std::hint::spin_loop();
        let _ = call.persistent.set(1, old + 1);
        call.output[0] = old;
    })?;
    let epoch = window.lock_all()?;
    let mut seen = [0];
    for round in 0..rounds {
        for target in team.ranks() {
            epoch.am(&add, target, 0..2, &[1], &mut seen)?;
        }
        if round % 64 == 63 {
            team.barrier()?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()?;
    assert_eq!(window.local().get(0)?, window.local().get(1)?);
    team.barrier()
}

fn windows(team: &Team, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        let window = Window::<u32>::allocate(team, 10_000)?;
        assert_eq!(window.local().get(9_999)?, 0, "a fresh window is not zero");
        window.local().set(9_999, round)?;
        window.free()?;
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

fn atomics(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 4)?;
    let epoch = window.lock_all()?;
    for round in 0..rounds {
        let target = Rank(round % team.size());
        epoch.accumulate(target, 0, Op::Sum, &[1, 1])?;
        epoch.fetch_and_op(target, 2, Op::Max, u64::from(round))?;
        epoch.flush(target)?;
        if round % 256 == 255 {
            team.barrier()?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()
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
