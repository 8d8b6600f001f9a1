//! What a target must bear: handlers and wakers that call the library when they are dropped, panics
//! of the library itself, threads that make a window ready at once.

use super::executor::Runs;
use super::run::Outcome;
use crate::am::{Call, Placement};
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Error, Rank, Result};
use crate::rma::{Epoch, Info, Medium, Request, Window};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Long enough for everything but a wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn window(team: &crate::Team) -> Window<u64> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    Window::<u64>::builder(team).info(info).allocate(8).unwrap()
}

/// Runs a test that hangs where something is wrong.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (over, ended) = channel();
    let run = std::thread::spawn(move || {
        let end = catch_unwind(AssertUnwindSafe(test));
        let _ = over.send(());
        end
    });
    ended.recv_timeout(PATIENCE).expect("a lock waits for itself");
    if let Err(panic) = run.join().unwrap() {
        std::panic::resume_unwind(panic);
    }
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::yield_now();
    }
}

/// A handler's closure holds one: calls into the window when it goes.
struct Caller {
    window: Weak<Window<u64>>,
    gone: Arc<AtomicU64>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(window) = self.window.upgrade() {
            // Takes every lock there is.
            window.packet_counters();
            assert!(window.handler::<u64, u64>(7).is_none());
        }
        self.gone.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn a_handler_may_call_its_window_when_it_goes() {
    in_time(|| {
        type Gate = (Mutex<Sender<()>>, Mutex<Receiver<()>>);
        let gates: [Gate; 2] = std::array::from_fn(|_| {
            let (open, gate) = channel();
            (Mutex::new(open), Mutex::new(gate))
        });
        let gates = Arc::new(gates);
        crate::Job::threads(2, |job| {
            let window = Arc::new(window(job.team()));
            let gone = Arc::new(AtomicU64::new(0));
            let caller = Caller { window: Arc::downgrade(&window), gone: gone.clone() };
            let (me, gates) = (job.rank().0 as usize, gates.clone());
            let ours = gates.clone();
            let waits = move |call: Call<'_, u64, u64, u64>| {
                let _ = &caller;
                let _ = ours[me].1.lock().unwrap().recv_timeout(PATIENCE);
                call.output.fill(1);
            };
            let handler = window.register::<u64, u64>(7, waits).unwrap();
            let epoch = window.lock_all().unwrap();
            let target = Rank(1 - job.rank().0);
            let post = || {
                let message = epoch.message(&handler, target).persistent(0..1).input(&[1]);
                message.placement(Placement::Target)
            };
            post().post().unwrap();
            drop(post().request(1).unwrap());
            let away = super::attached(window.core()).unwrap().unwrap();
            // One runs, the other waits: both know the handler.
            eventually("a handler runs", || away.server_alone().held().2 == 1);
            eventually("another waits", || away.server_alone().held().1 == 1);
            window.deregister(7).unwrap();
            drop(handler);
            assert_eq!(gone.load(Ordering::Acquire), 0, "it is in use");
            job.team().barrier().unwrap();
            (0..2).for_each(|_| gates[me].0.lock().unwrap().send(()).unwrap());
            // The one that waited does not run.
            let told = epoch.flush_all();
            let unknown = matches!(&told, Err(crate::base::Error::Misuse { why, .. }) if why.contains("no handler 7"));
            assert!(unknown, "{told:?}");
            epoch.unlock_all().unwrap();
            eventually("the handler goes", || gone.load(Ordering::Acquire) == 1);
            job.team().barrier().unwrap();
        })
        .unwrap();
    });
}

/// A closure that owns the window it is registered on, and is the last to: the window goes where
/// the closure does.
#[test]
fn a_handler_may_own_its_window() {
    in_time(|| {
        crate::Job::threads(2, |job| {
            let first = Arc::new(window(job.team()));
            let owned = first.clone();
            let gone = Arc::new(AtomicBool::new(false));
            let told = gone.clone();
            struct Tells(Arc<AtomicBool>);
            impl Drop for Tells {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                }
            }
            let tells = Tells(told);
            let handler = first
                .register::<u64, u64>(7, move |call: Call<'_, u64, u64, u64>| {
                    let _ = (&owned, &tells);
                    call.output.fill(1);
                })
                .unwrap();
            let epoch = first.lock_all().unwrap();
            let target = Rank(1 - job.rank().0);
            for _ in 0..20 {
                let message = epoch.message(&handler, target).persistent(0..1).input(&[1]);
                message.placement(Placement::Target).post().unwrap();
            }
            epoch.unlock_all().unwrap();
            job.team().barrier().unwrap();
            first.deregister(7).unwrap();
            drop(first);
            drop(handler);
            eventually("the window goes", || gone.load(Ordering::Acquire));
            job.team().barrier().unwrap();
        })
        .unwrap();
    });
}

/// A waker that owns a request.
struct Owner(#[expect(dead_code)] Mutex<Option<Request<Vec<u64>>>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self);
    }
}

fn owner(request: Request<Vec<u64>>) -> Waker {
    Waker::from(Arc::new(Owner(Mutex::new(Some(request)))))
}

fn is_pending(request: &mut Request<Vec<u64>>, waker: &Waker) -> bool {
    Pin::new(request).poll(&mut Context::from_waker(waker)).is_pending()
}

#[test]
fn a_waker_may_own_a_request() {
    in_time(|| {
        let (open, gate) = channel();
        let (open, gate) = (Mutex::new(open), Arc::new(Mutex::new(gate)));
        crate::Job::threads(2, |job| {
            let window = window(job.team());
            let ours = gate.clone();
            let waits = move |call: Call<'_, u64, u64, u64>| {
                let _ = ours.lock().unwrap().recv_timeout(PATIENCE);
                call.output.fill(1);
            };
            let handler = window.register::<u64, u64>(7, waits).unwrap();
            let epoch = window.lock_all().unwrap();
            if job.rank() == Rank(0) {
                let request = || {
                    let message = epoch.message(&handler, Rank(1)).persistent(0..1).input(&[1]);
                    message.placement(Placement::Target).request(1).unwrap()
                };
                // Forgotten while it waits, with its waker.
                let (mut first, second) = (request(), request());
                assert!(is_pending(&mut first, &owner(second)));
                drop(first);
                // Polled with another waker.
                let (mut first, second) = (request(), request());
                assert!(is_pending(&mut first, &owner(second)));
                assert!(is_pending(&mut first, Waker::noop()));
                // Done with a waker, which goes after it has been woken.
                let (mut last, second) = (request(), request());
                assert!(is_pending(&mut last, &owner(second)));
                (0..6).for_each(|_| open.lock().unwrap().send(()).unwrap());
                assert_eq!(first.wait().unwrap(), [1]);
                assert_eq!(last.wait().unwrap(), [1]);
            }
            epoch.unlock_all().unwrap();
            job.team().barrier().unwrap();
            window.free().unwrap();
        })
        .unwrap();
    });
}

fn ask(epoch: &Epoch<'_, u64>, handler: &crate::am::Handler<u64, u64, u64>) -> Result<u64> {
    let mut output = [0];
    let message = epoch.message(handler, Rank(1)).persistent(0..1).input(&[1]);
    message.placement(Placement::Target).output(&mut output).run().map(|()| output[0])
}

#[test]
fn a_panic_of_the_library_ends_its_unit_and_nothing_else() {
    crate::Job::threads(2, |job| {
        let window = window(job.team());
        let count = |call: Call<'_, u64, u64, u64>| {
            let was = call.persistent.get(0).unwrap();
            call.persistent.set(0, was + 1).unwrap();
            call.output.fill(was);
        };
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let away = super::attached(window.core()).unwrap().unwrap();
        if job.rank() == Rank(1) {
            // Nobody but this thread runs units.
            away.executor.remove(&away);
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            let told = ask(&epoch, &handler);
            assert!(matches!(told, Err(Error::Incompatible { .. })), "{told:?}");
        } else {
            eventually("a unit comes", || away.is_due());
            let broke = |_: &_, _: &_| -> Outcome { panic!("a bug, as a test") };
            let panic = catch_unwind(AssertUnwindSafe(|| away.run_by(broke)));
            assert!(panic.is_err(), "nothing was run");
            assert_eq!(away.server_alone().held().2, 0, "it counts as running");
            away.executor.add(&away).unwrap();
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            for round in 0..10 {
                assert_eq!(ask(&epoch, &handler).unwrap(), round);
            }
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Whichever thread makes a window ready first: what is sent after a registration is heard.
#[test]
fn threads_may_make_a_window_ready_at_once() {
    in_time(|| {
        for _ in 0..30 {
            crate::Job::threads(2, |job| {
                let window = window(job.team());
                let handler = std::thread::scope(|scope| {
                    let attaches: Vec<_> = (0..3)
                        .map(|_| scope.spawn(|| window.attach_buffer(128).unwrap()))
                        .collect();
                    let count = |call: Call<'_, u64, u64, u64>| call.output.fill(call.input[0]);
                    let handler = window.register(7, count).unwrap();
                    let epoch = window.lock_all().unwrap();
                    assert_eq!(ask(&epoch, &handler).unwrap(), 1);
                    epoch.unlock_all().unwrap();
                    let buffers = attaches.into_iter().map(|thread| thread.join().unwrap());
                    buffers.for_each(|buffer| window.detach_buffer(&buffer).unwrap());
                    handler
                });
                job.team().barrier().unwrap();
                drop(handler);
                window.free().unwrap();
            })
            .unwrap();
        }
    });
}

/// The tests of this room between ranks, again in processes with other settings.
#[test]
fn all_holds_with_more_threads_by_calls_and_in_shared_room() {
    let settings: [&[(&str, &str)]; 3] = [
        &[("HITHER_AM_THREADS", "3")],
        &[("HITHER_PROGRESS", "calls")],
        &[("HITHER_AM_SYSTEM_TOTAL", "4K"), ("HITHER_AM_THREADS", "2")],
    ];
    for settings in settings {
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        tests.args(["am::away::tests::", "--test-threads", "2"]);
        let ended = tests.envs(settings.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(said.contains("a_buffer_of_one_segment_serves_everybody"), "{said}");
        assert!(ended.status.success(), "{settings:?}: {said}");
    }
}
