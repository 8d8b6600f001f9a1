//! Active messages between the PEs of a pair.

use super::{Pe, plain};
use hither_peers::{Ranks, Unit, Workload};
use lamellar::active_messaging::prelude::*;
use serde_bytes::ByteBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages of a window, as in `benches/peers/messages.c`.
const WINDOW: u64 = 64;
const SMALL_WINDOW: u64 = 8;
const LARGE: usize = 256 << 10;

/// Brings bytes there, and as many back.
#[AmData(Clone, Debug)]
struct Echo {
    data: ByteBuf,
}

#[am]
impl LamellarAM for Echo {
    async fn exec(&self) -> ByteBuf {
        self.data.clone()
    }
}

/// Brings bytes there.
#[AmData(Clone, Debug)]
struct Bring {
    data: ByteBuf,
}

#[am]
impl LamellarAM for Bring {
    async fn exec(&self) {
        std::hint::black_box(&self.data);
    }
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Adds there, and brings back what was.
#[AmData(Clone, Debug)]
struct Add {
    value: u64,
}

#[am]
impl LamellarAM for Add {
    async fn exec(&self) -> u64 {
        COUNTER.fetch_add(self.value, Ordering::Relaxed)
    }
}

/// The workload of that name, if there is one here. Who does not ask is ready for those who do in the barrier
/// that comes after.
pub fn workload<'a>(pe: &Pe, name: &str, bytes: usize) -> Option<Workload<'a>> {
    let pe = pe.clone();
    let (asks, partner) = (pe.asks(), pe.partner());
    let data = ByteBuf::from(vec![1; bytes]);
    // The loop with all of them under way at once, over when the last has been there.
    let send = move |pe: &Pe, count: u64| {
        for _ in 0..count {
            drop(pe.world.spawn_am_pe(partner, Bring { data: data.clone() }));
        }
        pe.world.wait_all();
    };
    let window = if bytes < LARGE { WINDOW } else { SMALL_WINDOW };
    let windows = move |count: u64, send: &dyn Fn(u64)| {
        let mut left = count;
        while left > 0 {
            let now = left.min(window);
            send(now);
            left -= now;
        }
    };
    match name {
        "latency" => {
            let data = ByteBuf::from(vec![1; bytes]);
            let run = move |count| {
                for _ in 0..if asks { count } else { 0 } {
                    pe.world.exec_am_pe(partner, Echo { data: data.clone() }).block();
                }
            };
            Some(Workload { run: Box::new(run), steps: 2.0, unit: Unit::Nanoseconds })
        }
        "request" => plain(Unit::Nanoseconds, move |count| {
            for _ in 0..if asks { count } else { 0 } {
                pe.world.exec_am_pe(partner, Add { value: 1 }).block();
            }
        }),
        "rate" => plain(Unit::MillionPerSecond, move |count| {
            if asks {
                send(&pe, count);
            }
        }),
        // Over when the last pair is through. All their messages count.
        "rate-pairs" => {
            let steps = (pe.all / 2) as f64;
            let run = move |count| {
                if asks {
                    send(&pe, count);
                }
                pe.meet();
            };
            Some(Workload { run: Box::new(run), steps, unit: Unit::MillionPerSecond })
        }
        "bandwidth" => plain(Unit::GigabytesPerSecond, move |count| {
            if asks {
                windows(count, &|count| send(&pe, count));
            }
        }),
        // Both ways at once; over when both are through.
        "bidirectional" => {
            let run = move |count| {
                windows(count, &|count| send(&pe, count));
                pe.meet();
            };
            Some(Workload { run: Box::new(run), steps: 2.0, unit: Unit::GigabytesPerSecond })
        }
        _ => None,
    }
}
