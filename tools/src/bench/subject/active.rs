//! Active messages run by their origin: a tiny handler that adds its input to a word of the
//! target and returns what was there.

use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::call::LockedCall;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Unit};
use hither::am::{Call, Handler};
use hither::rma::Assertions;
use hither::{Error, Rank, Result, Window};
use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Release};

/// How the messages are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Serialised by the target's lock.
    Serialised,
    /// Asserted to be concurrent: no lock.
    Concurrent,
}

/// Active messages from rank 0 on rank 1's part of a window.
struct Messages {
    window: Window<u64>,
    handler: Handler<u64, u64, u64>,
    mode: Mode,
    /// Where the target learns that it may stop computing; `None` if it does not compute.
    computes: Option<Area>,
    batches: u64,
    calls: u64,
}

/// The handler: what was there comes back, the input is added.
fn add(call: Call<'_, u64, u64, u64>) {
    let old = call.persistent.get(0).unwrap_or(0);
    // In bounds: the message names one element.
    let _ = call.persistent.set(0, old.wrapping_add(call.input[0]));
    call.output[0] = old;
}

impl Messages {
    fn new(crew: &Crew, mode: Mode, computes: bool) -> Result<Messages> {
        let window = Window::allocate(crew.job()?.team(), 1)?;
        let handler = window.register(1, add)?;
        let computes = if computes { Some(crew.block().take(64)?) } else { None };
        Ok(Messages { window, handler, mode, computes, batches: 0, calls: 0 })
    }
}

impl Side for Messages {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let assertions =
            Assertions { concurrent_am: self.mode == Mode::Concurrent, ..Assertions::default() };
        let epoch = self.window.lock_all_with(assertions)?;
        let handler = &self.handler;
        let mut output = [0];
        meter.run(count, |_| {
            epoch.am(handler, Rank(1), 0..1, &[1], &mut output)?;
            black_box(output);
            Ok(())
        })?;
        epoch.unlock_all()?;
        self.calls += count;
        self.batches += 1;
        if let Some(area) = &self.computes {
            area.word(0).store(self.batches, Release);
        }
        if output[0] + 1 != self.calls {
            return Err(Error::invalid("bench", "an active message was lost"));
        }
        Ok(())
    }

    fn follow(&mut self, _: u64) -> Result<()> {
        self.batches += 1;
        if let Some(area) = &self.computes {
            let done = area.word(0);
            let mut x = 1.0f64;
            while done.load(Acquire) < self.batches {
                for _ in 0..1000 {
                    x = black_box(x * 0.999 + 0.1);
                }
            }
        }
        Ok(())
    }
}

fn against_call(mode: Mode, robust: bool) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        Ok(Pair {
            subject: Box::new(Messages::new(crew, mode, false)?),
            floor: Box::new(LockedCall::new(crew, robust)?),
        })
    }
}

/// `am`.
pub fn cases() -> Vec<Case> {
    let busy = |crew: &Crew| {
        Ok(Pair {
            subject: Box::new(Messages::new(crew, Mode::Serialised, true)?),
            floor: Box::new(Messages::new(crew, Mode::Serialised, false)?),
        })
    };
    let locked = "robust lock + call";
    let case = |what, limit, goal, mode, robust| {
        Case::latency("am", what, 8, limit, goal, against_call(mode, robust))
    };
    vec![
        case("returns a result", locked, Goal::AtMost(1.5), Mode::Serialised, true),
        case("rate, with results", locked, Goal::AtLeast(0.67), Mode::Serialised, true)
            .counted_in(Unit::MillionPerSecond),
        case("returns a result", "bare lock + call", Goal::None, Mode::Serialised, false),
        case("asserted concurrent", "bare lock + call", Goal::None, Mode::Concurrent, false),
        Case::latency("am", "target computes", 8, "target idle", Goal::AtMost(1.05), busy),
    ]
}
