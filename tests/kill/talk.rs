//! Tagged messages of all sizes between all, with points at which a rank has something under way.
//!
//! What a survivor gets of the dead must be whole and in order, as far as it comes; nobody may
//! wait for what does not come. Ranks that are alive may have stopped because of a death
//! elsewhere, so a wait also looks at the whole team.

use super::fuse::at;
use super::windows::Work;
use hither::{Any, Pending, Rank, Result, Team};

pub const WORKS: &[Work] = &[
    Work { name: "talk", points: POINTS, mapped: true, run: small },
    Work { name: "talk-large", points: POINTS, mapped: true, run: large },
    Work { name: "talk-endpoints", points: POINTS, mapped: true, run: endpoints },
    Work { name: "talk-any", points: &["after a send began"], mapped: true, run: any },
    Work { name: "talk-pools", points: POOL_POINTS, mapped: true, run: pools },
    Work {
        name: "talk-blocking",
        points: &["before a blocking call"],
        mapped: true,
        run: blocking,
    },
];

const POINTS: &[&str] =
    &["after a receive was posted", "after a send began", "after a receive", "after all"];

/// Makes progress until a request is over, or somebody in the team is gone.
fn finish(team: &Team, request: &mut dyn Pending) -> Result<()> {
    let slots: Vec<_> = team.ranks().map(|rank| team.slot_of(rank)).collect::<Result<_>>()?;
    for turn in 1u32.. {
        if request.test()? {
            break;
        }
        if turn.is_multiple_of(256) {
            team.node().check(slots.iter().copied(), "talking")?;
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn content(from: Rank, round: u32, size: usize) -> Vec<u32> {
    (0..size as u32).map(|i| i ^ round << 8 ^ from.0).collect()
}

fn talk(team: &Team, rounds: u32, sizes: &[usize]) -> Result<()> {
    let me = team.rank();
    for round in 0..rounds {
        let size = sizes[round as usize % sizes.len()];
        let to = Rank((me.0 + round) % team.size());
        let from = Rank((me.0 + team.size() - round % team.size()) % team.size());
        // In turn, sender and receiver come first.
        let early = round.is_multiple_of(2);
        let post = || team.irecv(from, round, vec![0u32; size]);
        let mut receive = if early { Some(post()?) } else { None };
        at("after a receive was posted");
        let mut send = team.isend(to, round, content(me, round, size))?;
        at("after a send began");
        let mut receive = match receive.take() {
            Some(receive) => receive,
            None => post()?,
        };
        finish(team, &mut receive)?;
        let (got, _) = receive.wait()?;
        assert!(got == content(from, round, size), "a message of {size} came changed");
        at("after a receive");
        finish(team, &mut send)?;
        send.wait()?;
        at("after all");
    }
    team.barrier()
}

fn small(team: &Team, rounds: u32) -> Result<()> {
    talk(team, rounds, &[0, 1, 2, 12, 100, 1000, 1700])
}

fn large(team: &Team, rounds: u32) -> Result<()> {
    talk(team, rounds, &[2000, 20_000, 300_000])
}

/// The same by an endpoint of its own, made again now and then.
fn endpoints(team: &Team, rounds: u32) -> Result<()> {
    for _ in 0..rounds.div_ceil(50) {
        let all = team.endpoints(2)?;
        let _only = all[1].funnel()?;
        talk(&all[0], 25, &[0, 12, 1700, 20_000])?;
        talk(&all[1], 25, &[100, 300_000])?;
    }
    team.barrier()
}

const POOL_POINTS: &[&str] =
    &["with messages in others' pools", "with messages in its own pools", "after a pool was used"];

/// More large messages than their receivers have buffers, asked for only when all were sent.
fn pools(team: &Team, rounds: u32) -> Result<()> {
    const MESSAGES: u32 = 6;
    let me = team.rank();
    for round in 0..rounds {
        let size = [2500usize, 12_000, 30_000][round as usize % 3];
        let to = Rank((me.0 + 1 + round % 2) % team.size());
        let from = Rank((me.0 + 2 * team.size() - 1 - round % 2) % team.size());
        let send = |i| team.isend(to, i, content(me, round * MESSAGES + i, size));
        let mut sends = (0..MESSAGES).map(send).collect::<Result<Vec<_>>>()?;
        at("with messages in others' pools");
        std::thread::sleep(std::time::Duration::from_micros(200));
        team.iprobe::<u32>(from, Any)?;
        at("with messages in its own pools");
        for i in (0..MESSAGES).rev() {
            let mut receive = team.irecv(from, i, vec![0u32; size])?;
            finish(team, &mut receive)?;
            let (got, _) = receive.wait()?;
            assert!(got == content(from, round * MESSAGES + i, size), "a message came changed");
            at("after a pool was used");
        }
        sends.iter_mut().try_for_each(|send| finish(team, send))?;
        sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
    }
    team.barrier()
}

/// Everybody to rank 0, which takes what comes; it answers each.
fn any(team: &Team, rounds: u32) -> Result<()> {
    // A sender may be a round ahead of another.
    let mut begun = vec![0u32; team.size() as usize];
    for round in 0..rounds {
        if team.rank().0 > 0 {
            let size = [1usize, 1000, 40_000][round as usize % 3];
            let mut send = team.isend(Rank(0), 1, content(team.rank(), round, size))?;
            at("after a send began");
            finish(team, &mut send)?;
            send.wait()?;
            let mut answer = team.irecv(Rank(0), 2, vec![0u32])?;
            finish(team, &mut answer)?;
            assert_eq!(answer.wait()?.0, [round]);
        } else {
            let mut buffer = vec![0u32; 40_000];
            for _ in 1..team.size() {
                let status = team.recv(Any, 1, &mut buffer)?;
                let round = &mut begun[status.source.index()];
                let want = content(status.source, *round, status.elements);
                assert!(buffer[..status.elements] == want, "a message came changed");
                let mut answer = team.isend(status.source, 2, vec![*round])?;
                *round += 1;
                finish(team, &mut answer)?;
                answer.wait()?;
            }
            at("after a send began");
        }
    }
    team.barrier()
}

/// Blocking calls between neighbours in pairs: the other one's death ends them.
fn blocking(team: &Team, rounds: u32) -> Result<()> {
    let me = team.rank();
    let partner = Rank(if me.0 ^ 1 < team.size() { me.0 ^ 1 } else { me.0 });
    let node = team.node();
    let alive = |rank: &Rank| team.slot_of(*rank).is_ok_and(|slot| !node.is_dead(slot));
    for round in 0..rounds {
        let size = [1usize, 1500, 60_000][round as usize % 3];
        // Both stop in the same round: told by what is sent.
        let stops = u32::from(!team.ranks().all(|rank| alive(&rank)));
        at("before a blocking call");
        let mut data = content(me, round, size);
        data[0] = stops;
        let mut got = vec![0; size];
        team.sendrecv(partner, 1, &data, partner, 1, &mut got)?;
        if size > 1 {
            assert_eq!(got[1..], content(partner, round, size)[1..]);
        }
        if stops + got[0] > 0 {
            break;
        }
    }
    team.barrier()
}
