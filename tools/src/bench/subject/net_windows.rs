//! `net`, one-sided: puts and gets on a part on another node, by packets and by queue pairs, beside a
//! program that sends as many bytes over TCP and has an answer.
//!
//! Both ways in one job, by two windows. A put is flushed each time: an operation is one that has arrived
//! at the target, as the answer over TCP tells.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::sockets::Tcp;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Point};
use crate::bench::subject::echo::End;
use hither::rma::{Info, Medium};
use hither::{Job, Rank, Result, Window};

const BENCH: &str = "net";

/// Settings of the part: queue pairs from the first message on, for all that is not a single element.
pub const SETTINGS: &[(&str, &str)] = &[
    ("HITHER_NET_PAIRS", "traffic"),
    ("HITHER_NET_PAIR_AFTER", "1"),
    ("HITHER_NET_PUT_FROM", "1"),
    ("HITHER_NET_GET_FROM", "1"),
];

const SIZES: [usize; 7] = [64, 512, 2048, 8 << 10, 16 << 10, 64 << 10, 1 << 20];

/// Whose part it is.
const TARGET: Rank = Rank(1);

/// Which operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A put and a flush.
    Put,
    /// Puts, and one flush for all of them.
    Puts,
    /// A get.
    Get,
}

/// Puts or gets by rank 0; the other one's library does what there is to be done.
pub struct OneSided {
    window: Window<u8>,
    what: What,
    private: Vec<u8>,
}

impl OneSided {
    /// Of `size` bytes each. Collective.
    pub fn new(job: &Job, medium: Medium, what: What, size: usize) -> Result<OneSided> {
        let info = Info { medium, ..Info::default() };
        let window = Window::builder(job.team()).info(info).allocate(size)?;
        Ok(OneSided { window, what, private: vec![1; size] })
    }
}

impl Side for OneSided {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let epoch = self.window.lock_all()?;
        let (what, private) = (self.what, &mut self.private);
        match what {
            What::Put => meter.run(count, |_| {
                epoch.put(TARGET, 0, private)?;
                epoch.flush(TARGET)
            })?,
            What::Puts => meter.batch(|| {
                for _ in 0..count {
                    epoch.put(TARGET, 0, private)?;
                }
                epoch.flush(TARGET)
            })?,
            What::Get => meter.run(count, |_| epoch.get(TARGET, 0, private))?,
        }
        epoch.unlock_all()
    }
}

/// As many bytes over TCP, and eight the other way.
struct Answered {
    data: Tcp,
    word: Tcp,
    what: What,
}

impl Side for Answered {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let Answered { data, word, what } = self;
        meter.run(count, |_| match what {
            What::Put | What::Puts => {
                data.send()?;
                word.receive()
            }
            What::Get => {
                word.send()?;
                data.receive()
            }
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let Answered { data, word, what } = self;
        (0..count).try_for_each(|_| match what {
            What::Put | What::Puts => {
                data.receive()?;
                word.send()
            }
            What::Get => {
                word.receive()?;
                data.send()
            }
        })
    }
}

/// Both operations, both ways, of all sizes.
pub fn cases() -> Vec<Case> {
    let ways = [("packets", Medium::Packets), ("queue pairs", Medium::Auto)];
    let operations = [("put and flush", What::Put), ("get", What::Get)];
    let mut all = Vec::new();
    for (name, what) in operations {
        for size in SIZES {
            for (by, medium) in ways {
                let setup = move |crew: &Crew| {
                    let (data, word) = (Tcp::new(crew, size)?, Tcp::new(crew, 8)?);
                    Ok(Pair {
                        subject: Box::new(OneSided::new(crew.job()?, medium, what, size)?),
                        floor: Box::new(Answered { data, word, what }),
                    })
                };
                let title = format!("Between nodes: {name} by size");
                let point = Point::new(&title, by, "bytes", size as f64);
                let limit = "a TCP connection";
                let heading = format!("{name}, by {by}");
                let case = Case::latency(BENCH, heading, size, limit, Goal::None, setup);
                all.push(case.on(point));
            }
        }
    }
    all
}
