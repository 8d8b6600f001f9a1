//! Active messages while a rank dies: in the middle of a handler, with room reserved at others, with
//! all buffers of another. By packets the survivors then go on with the same window: what the dead
//! had reserved must come back.

use super::fuse::at;
use hither::am::UserBuffer;
use hither::{Call, Error, Handler, LockKind, Placement, Rank, Result, Team, Window};
use std::time::{Duration, Instant};

/// Points of [`messages`].
pub const POINTS: &[&str] = &[
    "inside a handler",
    "with room reserved",
    "with messages under way",
    "with requests under way",
    "holding all buffers",
];

/// Elements of a segment that fits into no system buffer.
const LARGE: usize = 5000;
/// Bytes attached: for one such segment and its output, not two.
const ATTACHED: usize = 100_000;
/// Where ranks say that they are through.
const THROUGH: usize = 8;
/// Longest time until all survivors are through.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a rank has of the window.
struct Hand<'t> {
    team: &'t Team,
    window: Window<u64>,
    add: Handler<u64, u64, u64>,
    tell: Handler<u64, u64, u64>,
    buffer: UserBuffer,
}

/// Messages of all kinds to everybody in turn.
pub fn messages(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, THROUGH + team.size() as usize)?;
    let add = window.register(1, |call: Call<'_, u64, u64, u64>| {
        // Two words that stay equal.
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + 1);
        at("inside a handler");
        let _ = call.persistent.set(1, old + 1);
        call.output.fill(old);
    })?;
    let tell = window.register(2, |call: Call<'_, u64, u64, u64>| {
        let _ = call.persistent.set(0, call.input[0]);
    })?;
    let buffer = window.attach_buffer(ATTACHED)?;
    let hand = Hand { team, window, add, tell, buffer };
    let worked = hand.work(rounds);
    match &worked {
        Err(error) if error.is_death() && hand.by_packets() => hand.aftermath()?,
        Err(_) => {}
        Ok(()) => {
            hand.window.detach_buffer(&hand.buffer)?;
            team.barrier()?;
        }
    }
    worked
}

impl Hand<'_> {
    /// Where parts are mapped, a death in a handler poisons them instead.
    fn by_packets(&self) -> bool {
        !self.window.packet_counters().is_empty()
    }

    fn work(&self, rounds: u32) -> Result<()> {
        let (team, window) = (self.team, &self.window);
        let large = vec![1u64; LARGE];
        let mut output = vec![0u64; LARGE];
        team.barrier()?;
        for round in 0..rounds {
            let target = Rank((team.rank().0 + round) % team.size());
            let epoch = window.lock_all()?;
            let message = || epoch.message(&self.add, target).persistent(0..2);
            message().segments(1).input(&large).placement(Placement::Target).post()?;
            at("with room reserved");
            for _ in 0..20 {
                message().input(&[1]).placement(Placement::Target).post()?;
            }
            at("with messages under way");
            let request = message().segments(2).input(&[1, 2]).placement(Placement::Target);
            let request = request.request(1)?;
            at("with requests under way");
            request.wait()?;
            epoch.unlock_all()?;
            let lock = window.lock(target, LockKind::Exclusive)?;
            let message = lock.message(&self.add, target).persistent(0..2).input(&large);
            message.placement(Placement::Target).output(&mut output).run()?;
            at("holding all buffers");
            lock.unlock()?;
            if round % 8 == 7 {
                team.barrier()?;
                let local = window.local();
                assert_eq!(local.get(0)?, local.get(1)?, "a handler was left half-way");
                team.barrier()?;
            }
        }
        team.barrier()
    }

    /// Large messages between all that live and have the window still; then the buffer goes, in
    /// which nobody may have any room.
    fn aftermath(&self) -> Result<()> {
        let mut there: Vec<Rank> = self.team.ranks().collect();
        there.retain(|rank| self.visit(*rank));
        // Also itself.
        assert!(there.contains(&self.team.rank()), "its own part is out of reach");
        let begun = Instant::now();
        let mut pings = 0u32;
        loop {
            let local = self.window.local();
            let missing = |rank: &Rank| local.get(THROUGH + rank.index()).is_ok_and(|t| t == 0);
            let mut absent: Vec<Rank> = there.iter().copied().filter(missing).collect();
            if absent.is_empty() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{absent:?} are never through");
            std::thread::sleep(Duration::from_millis(2));
            pings += 1;
            if pings.is_multiple_of(32) {
                // Some never had come as far as this.
                absent.retain(|rank| self.say(*rank).is_err());
                there.retain(|rank| !absent.contains(rank));
            }
        }
        self.window.detach_buffer(&self.buffer)
    }

    /// Large messages to a rank, and the word that this one is through; whether it is there.
    fn visit(&self, target: Rank) -> bool {
        let visited = self.window.lock(target, LockKind::Shared).and_then(|lock| {
            let (large, mut output) = (vec![1u64; LARGE], vec![0u64; LARGE]);
            for _ in 0..3 {
                let message = lock.message(&self.add, target).persistent(0..2).input(&large);
                message.placement(Placement::Target).output(&mut output).run()?;
            }
            lock.unlock()
        });
        match visited.and_then(|()| self.say(target)) {
            Ok(()) => true,
            // Dead, or it has let the window go for that.
            Err(error) => {
                let typed = error.is_death() || matches!(error, Error::Misuse { .. });
                assert!(typed, "to rank {target}: {error}");
                false
            }
        }
    }

    fn say(&self, target: Rank) -> Result<()> {
        let lock = self.window.lock(target, LockKind::Shared)?;
        let at = THROUGH + self.team.rank().index();
        let message = lock.message(&self.tell, target).persistent(at..at + 1).input(&[1]);
        message.placement(Placement::Target).run()?;
        lock.unlock()
    }
}
