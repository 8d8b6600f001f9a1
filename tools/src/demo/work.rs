//! What all workloads share: agreeing on failures, timing, and sending items to their owners.

use super::progress::Progress;
use hither::layout::{Datum, Op};
use hither::{Error, Rank, Result, Team, Window};
use std::time::Instant;

/// What a workload runs with.
pub struct Context<'a> {
    /// The ranks that take part.
    pub team: &'a Team,
    /// Where progress is shown.
    pub progress: &'a Progress,
}

/// Why a workload ended without a result.
pub enum Stop {
    /// An error this rank has to report.
    Failed(Error),
    /// Another rank failed, and reports it.
    Elsewhere,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// Collective: everybody's results if all have one. Otherwise the lowest rank with an error keeps
/// it and the others learn that there is one: an input's first bad line is reported once.
pub fn agree<T>(team: &Team, mine: Result<T>) -> Result<T, Stop> {
    if let Err(error) = &mine
        && error.is_death()
    {
        return mine.map_err(Stop::Failed);
    }
    let mut failed = [if mine.is_err() { team.rank().0 } else { u32::MAX }];
    team.allreduce(Op::Min, &mut failed)?;
    match mine {
        Ok(value) if failed[0] == u32::MAX => Ok(value),
        Err(error) if failed[0] == team.rank().0 => Err(Stop::Failed(error)),
        _ => Err(Stop::Elsewhere),
    }
}

/// Collective: the complaint of the lowest rank that has one, on every rank.
pub fn verdict(team: &Team, mine: Result<(), String>) -> Result<Option<String>> {
    const LENGTH: usize = 240;
    let mut first = [if mine.is_err() { team.rank().0 } else { u32::MAX }];
    team.allreduce(Op::Min, &mut first)?;
    if first[0] == u32::MAX {
        return Ok(None);
    }
    let mut text = [0u8; LENGTH];
    if let Err(complaint) = &mine {
        let length = complaint.len().min(LENGTH);
        text[..length].copy_from_slice(&complaint.as_bytes()[..length]);
    }
    team.broadcast(Rank(first[0]), &mut text)?;
    let length = text.iter().position(|&b| b == 0).unwrap_or(LENGTH);
    Ok(Some(String::from_utf8_lossy(&text[..length]).into_owned()))
}

/// Collective: seconds from when all ranks began `work` until the last one had done it.
pub fn timed<E: From<Error>>(team: &Team, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    team.barrier()?;
    let start = Instant::now();
    work()?;
    let mut seconds = [start.elapsed().as_secs_f64()];
    team.allreduce(Op::Max, &mut seconds)?;
    Ok(seconds[0])
}

/// Collective: the sum of everybody's number.
pub fn total(team: &Team, mine: u64) -> Result<u64> {
    let mut sum = [mine];
    team.allreduce(Op::Sum, &mut sum)?;
    Ok(sum[0])
}

/// Collective: the largest of everybody's numbers, at least 1 (windows are not empty).
pub fn largest(team: &Team, mine: usize) -> Result<usize> {
    let mut most = [mine as u64];
    team.allreduce(Op::Max, &mut most)?;
    Ok(most[0].max(1) as usize)
}

/// Items collected for one rank before they travel.
const BATCH: usize = 1024;

/// Collective: sends items to the ranks that own them; returns what arrived here, in no order.
///
/// `produce` is called twice, to count and to send, and must produce the same items both times:
/// so nothing has to be kept but one batch for each rank. Owners hand out room in their windows
/// by fetch-and-add; items are put there directly.
pub fn exchange<T: Datum>(
    team: &Team,
    zero: T,
    produce: impl Fn(&mut dyn FnMut(u32, T)),
) -> Result<Vec<T>> {
    let ranks = team.size() as usize;
    let mut counts = vec![0u64; ranks];
    produce(&mut |owner, _| counts[owner as usize] += 1);

    let cursor = Window::<u64>::allocate(team, 1)?;
    let mut places = vec![0u64; ranks];
    let epoch = cursor.lock_all()?;
    for step in 0..ranks {
        // Everybody begins at another rank.
        let owner = (team.rank().index() + step) % ranks;
        if counts[owner] > 0 {
            places[owner] = epoch.fetch_and_op(Rank(owner as u32), 0, Op::Sum, counts[owner])?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()?;
    let arriving = cursor.local().get(0)? as usize;

    let inbox = Window::<T>::allocate(team, largest(team, arriving)?)?;
    let epoch = inbox.lock_all()?;
    let mut batches: Vec<Vec<T>> = vec![Vec::with_capacity(BATCH); ranks];
    let mut sent = Ok(());
    let mut send = |owner: usize, batch: &mut Vec<T>| -> Result<()> {
        epoch.put(Rank(owner as u32), places[owner] as usize, batch)?;
        places[owner] += batch.len() as u64;
        batch.clear();
        Ok(())
    };
    produce(&mut |owner, item| {
        let owner = owner as usize;
        batches[owner].push(item);
        if batches[owner].len() == BATCH && sent.is_ok() {
            sent = send(owner, &mut batches[owner]);
        }
    });
    sent?;
    for (owner, batch) in batches.iter_mut().enumerate() {
        if !batch.is_empty() {
            send(owner, batch)?;
        }
    }
    epoch.flush_all()?;
    epoch.unlock_all()?;
    team.barrier()?;
    let mut items = vec![zero; arriving];
    inbox.local().read(0, &mut items)?;
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither::Job;

    #[test]
    fn exchanged_items_arrive_once_at_their_owners() {
        for ranks in [1, 2, 5] {
            let arrived = Job::threads(ranks, |job| {
                let me = job.rank().0;
                // Rank 1 gets nothing, and rank 0 more than fits a batch.
                let items = move |emit: &mut dyn FnMut(u32, [u32; 2])| {
                    for i in 0..3 * BATCH as u32 + me {
                        let owner = if i % 3 == 0 { i % ranks } else { 0 };
                        emit(if owner == 1 { 0 } else { owner }, [me, i]);
                    }
                };
                exchange(job.team(), [0; 2], items).expect("an exchange")
            });
            let mut arrived = arrived.expect("a job");
            if ranks > 1 {
                assert!(arrived[1].is_empty());
            }
            assert!(
                arrived
                    .iter()
                    .skip(2)
                    .enumerate()
                    .all(|(r, items)| { items.iter().all(|item| item[1] % ranks == r as u32 + 2) })
            );
            let mut all: Vec<[u32; 2]> = arrived.drain(..).flatten().collect();
            all.sort_unstable();
            let want: Vec<[u32; 2]> =
                (0..ranks).flat_map(|r| (0..3 * BATCH as u32 + r).map(move |i| [r, i])).collect();
            assert!(all == want, "{ranks} ranks");
        }
    }

    #[test]
    fn the_lowest_failing_rank_reports() {
        let ends = Job::threads(4, |job| {
            let me = job.rank().0;
            let mine = if me >= 2 { Err(Error::invalid("x", me.to_string())) } else { Ok(me) };
            let agreed = agree(job.team(), mine).map_err(|stop| match stop {
                Stop::Failed(error) => Some(error.to_string()),
                Stop::Elsewhere => None,
            });
            let good = agree(job.team(), Ok(me));
            (agreed, matches!(good, Ok(value) if value == me))
        });
        let ends = ends.expect("a job");
        let all: Vec<_> = ends.iter().map(|(agreed, _)| agreed.clone()).collect();
        assert_eq!(all, [Err(None), Err(None), Err(Some("x: 2".into())), Err(None)]);
        assert!(ends.iter().all(|(_, good)| *good));
    }

    #[test]
    fn everybody_hears_the_first_complaint() {
        let heard = Job::threads(3, |job| {
            let me = job.rank().0;
            let long = "y".repeat(1000);
            let mine = if me > 0 { Err(format!("from {me} {long}")) } else { Ok(()) };
            let complaint = verdict(job.team(), mine).expect("a verdict");
            (complaint, verdict(job.team(), Ok(())).expect("a verdict"))
        });
        for (complaint, none) in heard.expect("a job") {
            assert!(complaint.is_some_and(|text| text.starts_with("from 1 yyy")));
            assert_eq!(none, None);
        }
    }
}
