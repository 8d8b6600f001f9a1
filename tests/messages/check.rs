//! Holds the logs against the promises of active messages.
//!
//! An entry says which segment of which message wrote it, and in which call of the handler. In
//! every log:
//! - each segment of each message that names the log is there, once, and nothing else;
//! - entries of one origin's messages are in the order in which these were issued, as far as
//!   `am_ordering` asks for it;
//! - unless messages may be concurrent: the segments of a call stand together, in order; and all
//!   logs of a part together allow one order of all calls.

use super::script::{ENTRIES, REGION, REGIONS, Round};
use std::collections::{BTreeMap, BTreeSet};

/// Who wrote a line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub origin: u32,
    /// Counts the messages of the origin.
    pub message: u64,
    pub handler: u32,
    pub segment: u64,
    /// First segment of the call.
    pub call: u64,
}

impl Entry {
    pub fn encode(&self) -> u64 {
        let Entry { origin, message, handler, segment, call } = *self;
        u64::from(origin) << 56 | message << 40 | u64::from(handler) << 36 | segment << 18 | call
    }

    pub fn decode(word: u64) -> Entry {
        Entry {
            origin: (word >> 56) as u32,
            message: word >> 40 & 0xffff,
            handler: (word >> 36 & 0xf) as u32,
            segment: word >> 18 & 0x3ffff,
            call: word & 0x3ffff,
        }
    }

    fn identity(&self) -> (u32, u64, u64) {
        (self.origin, self.message, self.segment)
    }

    fn of_call(&self) -> (u32, u64, u64) {
        (self.origin, self.message, self.call)
    }
}

/// The logs of a part.
pub fn logs(part: &[u64]) -> Result<Vec<Vec<Entry>>, String> {
    let (regions, _) = part.as_chunks::<REGION>();
    regions
        .iter()
        .map(|region| match region[0] as usize {
            count if count <= ENTRIES => {
                Ok(region[1..=count].iter().map(|word| Entry::decode(*word)).collect())
            }
            count => Err(format!("a log of {count} entries")),
        })
        .collect()
}

/// Judges the logs of `target`'s part.
pub fn judge(round: &Round, target: u32, logs: &[Vec<Entry>]) -> Result<(), String> {
    assert_eq!(logs.len(), REGIONS);
    for (region, log) in logs.iter().enumerate() {
        let there = |what: String| format!("log {region} of part {target}: {what}");
        complete(round, target, region, log).map_err(there)?;
        ordered(round, log).map_err(there)?;
        if !round.concurrent {
            together(log).map_err(there)?;
        }
    }
    if round.concurrent {
        return Ok(());
    }
    sequential(logs).map_err(|what| format!("part {target}: {what}"))
}

fn complete(round: &Round, target: u32, region: usize, log: &[Entry]) -> Result<(), String> {
    let mut wanted = BTreeSet::new();
    for origin in 0..round.ranks {
        let here = round
            .messages(origin)
            .filter(|message| message.target == target && message.regions.contains(&region));
        for message in here {
            let segments = 0..message.segments as u64;
            wanted
                .extend(segments.map(|segment| (origin, message.number, segment, message.handler)));
        }
    }
    for entry in log {
        let key = (entry.origin, entry.message, entry.segment, entry.handler);
        if !wanted.remove(&key) {
            return Err(format!("{entry:?} is there twice, or should not be"));
        }
    }
    wanted.first().map_or(Ok(()), |missing| Err(format!("{missing:?} is missing")))
}

fn ordered(round: &Round, log: &[Entry]) -> Result<(), String> {
    let wanted = round.info.am_ordering;
    for (at, late) in log.iter().enumerate() {
        for early in log[..at].iter().filter(|early| early.origin == late.origin) {
            let kept = match (early.message == late.message, early.handler == late.handler) {
                (true, _) => wanted.same_am,
                (false, true) => wanted.same_op,
                (false, false) => wanted.diff_op,
            };
            if kept && early.identity() > late.identity() {
                return Err(format!("{early:?} came before {late:?}"));
            }
        }
    }
    Ok(())
}

fn together(log: &[Entry]) -> Result<(), String> {
    let mut over = BTreeSet::new();
    for pair in log.windows(2) {
        let [before, after] = pair else { continue };
        if before.of_call() == after.of_call() {
            if after.segment != before.segment + 1 {
                return Err(format!("{after:?} follows {before:?} in one call"));
            }
            continue;
        }
        over.insert(before.of_call());
        if over.contains(&after.of_call()) {
            return Err(format!("the call of {after:?} was interrupted by {before:?}"));
        }
    }
    Ok(())
}

/// Whether there is an order of all calls that all logs agree with.
fn sequential(logs: &[Vec<Entry>]) -> Result<(), String> {
    let mut followers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for log in logs {
        for pair in log.windows(2).filter(|pair| pair[0].of_call() != pair[1].of_call()) {
            followers.entry(pair[0].of_call()).or_default().insert(pair[1].of_call());
        }
        for entry in log {
            followers.entry(entry.of_call()).or_default();
        }
    }
    let mut before: BTreeMap<_, usize> = followers.keys().map(|call| (*call, 0)).collect();
    for follower in followers.values().flatten() {
        *before.entry(*follower).or_default() += 1;
    }
    let mut free: Vec<_> =
        before.iter().filter(|(_, count)| **count == 0).map(|(call, _)| *call).collect();
    let mut done = 0;
    while let Some(call) = free.pop() {
        done += 1;
        for follower in &followers[&call] {
            let left = before.get_mut(follower).expect("every call was counted");
            *left -= 1;
            if *left == 0 {
                free.push(*follower);
            }
        }
    }
    if done == followers.len() {
        return Ok(());
    }
    Err(format!("no order of the {} calls explains all logs", followers.len()))
}
