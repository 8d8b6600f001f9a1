//! Tries the checker itself on logs that are known to be right, and on the same spoilt in each of
//! the ways that it is to notice.

use super::check::{Entry, judge};
use super::script::{REGIONS, Round};
use super::support::random::Random;

type Logs = Vec<Vec<Entry>>;

/// Makes sure that right logs are believed; the number of spoilt ones that were refused.
pub fn run() -> usize {
    let mut refused = 0;
    for seed in 0..40 {
        let mut round = Round::new(seed, "direct", 3);
        round.concurrent = false;
        round.info.am_ordering = Default::default();
        let mut random = Random::new(seed);
        for target in 0..round.targets {
            let logs = written(&round, target, &mut random);
            judge(&round, target, &logs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            for (name, spoil) in SPOILS {
                for _ in 0..20 {
                    let mut spoilt = logs.clone();
                    if !spoil(&mut spoilt, &mut random) {
                        continue;
                    }
                    let verdict = judge(&round, target, &spoilt);
                    assert!(verdict.is_err(), "seed {seed}: {name} was believed");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}: hardly any log could be spoilt");
    refused
}

/// Logs as they are when the messages of all ranks come one after the other.
fn written(round: &Round, target: u32, random: &mut Random) -> Logs {
    let mut left: Vec<Vec<_>> = (0..round.ranks)
        .map(|origin| {
            let mut messages: Vec<_> =
                round.messages(origin).filter(|message| message.target == target).collect();
            messages.reverse();
            messages
        })
        .collect();
    let mut logs = vec![Vec::new(); REGIONS];
    while left.iter().any(|messages| !messages.is_empty()) {
        let origin = random.below(round.ranks.into()) as usize;
        let Some(message) = left[origin].pop() else { continue };
        let mut call = 0;
        while call < message.segments as u64 {
            let end = (call + 1 + random.below(3)).min(message.segments as u64);
            for region in message.regions.clone() {
                logs[region].extend((call..end).map(|segment| Entry {
                    origin: origin as u32,
                    message: message.number,
                    handler: message.handler,
                    segment,
                    call,
                }));
            }
            call = end;
        }
    }
    logs
}

type Spoil = fn(&mut Logs, &mut Random) -> bool;

/// Ways to spoil logs; false if these cannot be spoilt so, or only into right ones.
const SPOILS: [(&str, Spoil); 5] = [
    ("a lost entry", |logs, random| {
        let Some((log, at)) = pick(logs, random) else { return false };
        log.remove(at);
        true
    }),
    ("a doubled entry", |logs, random| {
        let Some((log, at)) = pick(logs, random) else { return false };
        log.push(log[at]);
        true
    }),
    ("an overtaking message", |logs, random| {
        let Some((log, at)) = pick(logs, random) else { return false };
        let same = |other: &Entry| other.origin == log[at].origin;
        let Some(other) = log[at + 1..].iter().position(same) else { return false };
        log.swap(at, at + 1 + other);
        true
    }),
    ("an interrupted call", |logs, random| {
        let Some((log, at)) = pick(logs, random) else { return false };
        let [.., first, second] = log[..=at] else { return false };
        let call = |entry: Entry| (entry.origin, entry.message, entry.call);
        let stranger = |other: &Entry| other.origin != first.origin;
        let Some(other) = log.iter().position(stranger) else { return false };
        if call(first) != call(second) {
            return false;
        }
        let entry = log.remove(other);
        let at = log.iter().position(|entry| *entry == second).expect("it is still there");
        log.insert(at, entry);
        true
    }),
    ("calls in another order elsewhere", |logs, random| {
        // Two neighbours of different origins, in two logs next to each other: swapped in one.
        let at = random.below(REGIONS as u64 - 1) as usize;
        let call = |entry: &Entry| (entry.origin, entry.message, entry.call);
        let calls = |log: &[Entry]| {
            let mut calls: Vec<_> = log.iter().map(call).collect();
            calls.dedup();
            calls
        };
        let (here, there) = (calls(&logs[at]), calls(&logs[at + 1]));
        let pair = here.windows(2).find(|pair| {
            let both = pair.iter().all(|call| there.contains(call));
            both && pair[0].0 != pair[1].0
        });
        let Some([first, second]) = pair else { return false };
        let (of_first, rest): (Vec<Entry>, Vec<Entry>) =
            logs[at].iter().partition(|entry| call(entry) == *first);
        let end = rest.iter().rposition(|entry| call(entry) == *second).expect("it is there");
        let (before, after) = rest.split_at(end + 1);
        logs[at] = [before, &of_first, after].concat();
        true
    }),
];

fn pick<'l>(logs: &'l mut Logs, random: &mut Random) -> Option<(&'l mut Vec<Entry>, usize)> {
    let log = &mut logs[random.below(REGIONS as u64) as usize];
    let len = log.len() as u64;
    (len > 0).then(|| (log, random.below(len) as usize))
}
