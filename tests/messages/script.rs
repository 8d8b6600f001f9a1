//! What a seed decides: the window's hints, and which messages each rank sends. Every rank can tell
//! every other's.
//!
//! ```text
//!   a part     region 0        region 1              region 5
//!              |n|entries....|  |n|entries....|  ...  |n|entries....|
//!   a message        [---- regions 1, 2 ----)    or none
//! ```

use super::support::random::Random;
use hither::am::Placement;
use hither::rma::{AmOrdering, Info, Medium};
use std::ops::Range;

/// Logs in a part.
pub const REGIONS: usize = 6;
/// Entries of a log, at most.
pub const ENTRIES: usize = 640;
/// Elements of a log: a count and its entries.
pub const REGION: usize = 1 + ENTRIES;
/// Handlers; the last one has variable output.
pub const HANDLERS: u32 = 3;
/// Most messages of a rank.
const MESSAGES: u64 = 14;
/// Most segments of a message.
const SEGMENTS: u64 = 8;
const _: () = assert!(ENTRIES >= 6 * (MESSAGES * (SEGMENTS - 1)) as usize);

/// What all ranks know about a round.
#[derive(Clone, Debug)]
pub struct Round {
    pub seed: u64,
    pub ranks: u32,
    pub info: Info,
    /// Messages may run at the same time.
    pub concurrent: bool,
    /// Ranks whose parts are used.
    pub targets: u32,
    /// Bytes of each buffer that these attach, if any.
    pub attached: Option<usize>,
    /// Messages do run at the same time although they may not, to see whether that is noticed.
    pub racy: bool,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Run,
    Post,
    Request,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    pub number: u64,
    pub target: u32,
    pub handler: u32,
    pub regions: Range<usize>,
    pub segments: usize,
    /// Elements of a segment.
    pub input: usize,
    pub output: usize,
    pub form: Form,
    pub placement: Placement,
}

/// Messages that are sent in one epoch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Only this target is locked; exclusively or not.
    pub locked: Option<(u32, bool)>,
    pub messages: Vec<Message>,
}

impl Round {
    pub fn new(seed: u64, way: &str, ranks: u32) -> Round {
        let mut random = Random::new(seed);
        let mut coin = || random.below(2) == 0;
        let am_ordering = match coin() {
            true => AmOrdering::default(),
            false => AmOrdering { same_op: coin(), diff_op: coin(), same_am: coin() },
        };
        let medium = if way == "packets" { Medium::Packets } else { Medium::Auto };
        let mut info = Info { medium, am_ordering, ..Info::default() };
        info.am_buf_interleave_am_detach = coin();
        let targets = (1 + random.below(2) as u32).min(ranks);
        let promised = [0, 0, 1000, 30_000][random.below(4) as usize];
        (0..targets).for_each(|target| info.am_user_buffers.set(hither::Rank(target), promised));
        // One of the large segments fits into the smallest of these, or there are no large ones.
        let attached = [None, Some(16 << 10), Some(100 << 10)][random.below(3) as usize];
        let concurrent = random.below(3) == 0;
        Round { seed, ranks, info, concurrent, targets, attached, racy: false }
    }

    /// What rank `rank` sends.
    pub fn script(&self, rank: u32) -> Vec<Batch> {
        let mut random = Random::new(self.seed ^ u64::from(rank + 1) << 40);
        let mut left = 2 + random.below(MESSAGES - 2);
        let mut batches = Vec::new();
        let mut number = 0;
        while left > 0 {
            let locked = match random.below(3) {
                0 => None,
                kind => Some((random.below(self.targets.into()) as u32, kind == 1)),
            };
            let size = (1 + random.below(6)).min(left);
            left -= size;
            let messages = (0..size).map(|_| {
                number += 1;
                self.message(&mut random, number, locked.map(|(target, _)| target))
            });
            let messages = messages.collect();
            batches.push(Batch { locked, messages });
        }
        batches
    }

    fn message(&self, random: &mut Random, number: u64, locked: Option<u32>) -> Message {
        let target = random.below(self.targets.into()) as u32;
        let first = random.below(REGIONS as u64) as usize;
        let regions = match random.below(8) {
            0 => 0,
            1..4 => 1,
            _ => 1 + random.below((REGIONS - first) as u64) as usize,
        };
        let large = random.below(5) == 0;
        let input = match (large, self.attached) {
            (true, Some(_)) => 1 + random.below(1500),
            (true, None) => 1 + random.below(700),
            _ => 1 + random.below(20),
        };
        let mut placement =
            [Placement::Auto, Placement::Target, Placement::Origin][random.below(3) as usize];
        // A copy of several logs may be more than there is room for.
        if regions > 1 && placement == Placement::Origin {
            placement = Placement::Auto;
        }
        Message {
            number,
            target: locked.unwrap_or(target),
            handler: random.below(HANDLERS.into()) as u32,
            regions: first..first + regions,
            segments: random.below(SEGMENTS) as usize,
            input: input as usize,
            output: 1 + random.below(if large { 100 } else { 20 }) as usize,
            form: [Form::Run, Form::Post, Form::Request][random.below(3) as usize],
            placement,
        }
    }

    /// All that rank `rank` sends, in order.
    pub fn messages(&self, rank: u32) -> impl Iterator<Item = Message> {
        self.script(rank).into_iter().flat_map(|batch| batch.messages)
    }
}
