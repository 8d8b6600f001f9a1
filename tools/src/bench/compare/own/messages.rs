//! The loops of `benches/peers/messages.c`.

use super::{Run, unknown};
use crate::bench::crew::Crew;
use crate::bench::pages::{Pages, buffers};
use hither::am::Call;
use hither::{Rank, Result, Window};

/// The handler: what was there comes back, the input is added.
fn add(call: Call<'_, u64, u64, u64>) {
    let old = call.persistent.get(0).unwrap_or(0);
    // In bounds: the message names one element.
    let _ = call.persistent.set(0, old.wrapping_add(call.input[0]));
    call.output[0] = old;
}

/// The loop of that name.
pub fn make(crew: &Crew, name: &str, size: usize) -> Result<Run<'static>> {
    let team = crew.job()?.team().clone();
    let (peer, even) = (Rank(crew.rank() ^ 1), crew.rank().is_multiple_of(2));
    let mut one = Pages::<u8>::new(size);
    let window = buffers(size);
    Ok(match name {
        "latency" => Box::new(move |n| {
            for i in 0..n {
                if even {
                    if size >= 8 {
                        one[..8].copy_from_slice(&i.to_ne_bytes());
                    }
                    team.send(peer, 1, &one)?;
                    team.recv(peer, 1, &mut one)?;
                } else {
                    team.recv(peer, 1, &mut one)?;
                    team.send(peer, 1, &one)?;
                }
            }
            Ok(())
        }),
        // Buffers that nobody writes to but the library.
        "latency-still" => {
            let (out, mut into) = (Pages::<u8>::new(size), Pages::<u8>::new(size));
            Box::new(move |n| {
                for _ in 0..n {
                    if even {
                        team.send(peer, 1, &out)?;
                    }
                    team.recv(peer, 1, &mut into)?;
                    if !even {
                        team.send(peer, 1, &out)?;
                    }
                }
                Ok(())
            })
        }
        "bandwidth-still" => {
            let (out, mut into) = (Pages::<u8>::new(size), Pages::<u8>::new(size));
            Box::new(move |n| {
                if !even {
                    for _ in 0..n {
                        team.recv(peer, 1, &mut into)?;
                    }
                    return team.send(peer, 2, &[0u8; 0]);
                }
                let mut at = 0;
                while at < n {
                    let count = (n - at).min(window as u64);
                    team.exchange(|scope| {
                        (0..count).try_for_each(|_| scope.isend(peer, 1, &out).map(drop))
                    })?;
                    at += count;
                }
                team.recv(peer, 2, &mut [0u8; 0]).map(drop)
            })
        }
        "rate" => Box::new(move |n| {
            if even {
                for i in 0..n {
                    one[..8].copy_from_slice(&i.to_ne_bytes());
                    team.send(peer, 1, &one)?;
                }
                team.recv(peer, 2, &mut one).map(drop)
            } else {
                for _ in 0..n {
                    team.recv(peer, 1, &mut one)?;
                }
                team.send(peer, 2, &one)
            }
        }),
        // The same by all pairs; over when the last is through.
        "rate-pairs" => Box::new(move |n| {
            if even {
                for i in 0..n {
                    one[..8].copy_from_slice(&i.to_ne_bytes());
                    team.send(peer, 1, &one)?;
                }
            } else {
                for _ in 0..n {
                    team.recv(peer, 1, &mut one)?;
                }
            }
            team.barrier()
        }),
        // An active message to the odd rank, which does nothing for it.
        "request" => {
            let window = Window::<u64>::allocate(&team, 1)?;
            let handler = window.register(1, add)?;
            Box::new(move |n| {
                if !even {
                    return Ok(());
                }
                let epoch = window.lock_all()?;
                let mut output = [0];
                for _ in 0..n {
                    epoch.am(&handler, peer, 0..1, &[1], &mut output)?;
                    std::hint::black_box(output);
                }
                epoch.unlock_all()
            })
        }
        "bandwidth" | "bidirectional" => {
            let both = name == "bidirectional";
            let pages = || (0..window).map(|_| Pages::<u8>::new(size)).collect::<Vec<_>>();
            let out = pages();
            let mut into = pages();
            Box::new(move |n| {
                let mut at = 0;
                while at < n {
                    let count = (n - at).min(window as u64);
                    team.exchange(|scope| {
                        if both || !even {
                            for buffer in into.iter_mut().take(count as usize) {
                                scope.irecv(peer, 1, buffer)?;
                            }
                        }
                        if both || even {
                            for buffer in out.iter().take(count as usize) {
                                scope.isend(peer, 1, buffer)?;
                            }
                        }
                        Ok(())
                    })?;
                    match (both, even) {
                        (true, _) => {}
                        (_, true) => team.recv(peer, 2, &mut [0u8; 0]).map(drop)?,
                        (_, false) => team.send(peer, 2, &[0u8; 0])?,
                    }
                    at += count;
                }
                Ok(())
            })
        }
        _ => return Err(unknown(name)),
    })
}
