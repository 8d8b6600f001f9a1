//! The device's own thread: takes events that come without completions, and has idle queue pairs asked
//! whether their peers live. It sleeps on the device's event descriptor and on the hub's alarm; with
//! the hub it ends, and nobody waits for that.

use super::bindings::{AsyncEvent, number};
use super::hub::Hub;
use crate::base::{Error, Result};
use crate::net::alarm::{now, sleep};
use crate::net::provider::{Event, Time};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Starts the thread.
pub(super) fn start(hub: &Arc<Hub>) -> Result<()> {
    let os = |e: rustix::io::Errno| Error::os("the events of an RDMA device", e);
    // SAFETY: the device's descriptor, open as long as the hub is.
    let events = unsafe { BorrowedFd::borrow_raw(hub.context().events()) };
    let flags = rustix::fs::fcntl_getfl(events).map_err(os)?;
    rustix::fs::fcntl_setfl(events, flags | rustix::fs::OFlags::NONBLOCK).map_err(os)?;
    // Its own descriptors: while it sleeps it does not keep the hub.
    let own = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(os);
    let fds = [own(events)?, own(hub.alarm.as_fd())?];
    let weak = Arc::downgrade(hub);
    std::thread::Builder::new()
        .name("hither-verbs".into())
        .spawn(move || run(&weak, &fds))
        .map_err(|e| Error::os("starting the network's thread", e))?;
    Ok(())
}

fn run(weak: &Weak<Hub>, fds: &[OwnedFd; 2]) {
    loop {
        let Some(hub) = weak.upgrade() else { return };
        hub.alarm.silence();
        take_events(&hub);
        let until = ask_idle(&hub);
        drop(hub);
        sleep(&[fds[0].as_fd(), fds[1].as_fd()], until);
    }
}

fn take_events(hub: &Hub) {
    loop {
        let mut event = AsyncEvent { element: 0, event_type: 0 };
        // SAFETY: it writes one where it gives 0.
        if unsafe { (hub.verbs().ibv_get_async_event)(hub.context().raw(), &mut event) } != 0 {
            return;
        }
        let pair = match event.event_type {
            number::EVENT_QP_FATAL | number::EVENT_QP_REQ_ERR | number::EVENT_QP_ACCESS_ERR => {
                let raw = std::ptr::with_exposed_provenance::<super::bindings::Qp>(
                    event.element as usize,
                );
                // SAFETY: the event is of a queue pair, which is not destroyed before the event has
                // been acknowledged.
                Some(unsafe { (*raw).qp_num })
            }
            _ => None,
        };
        // Acknowledged before anything waits for a lock: who holds it may wait for this.
        // SAFETY: the event that was just taken, acknowledged once.
        unsafe { (hub.verbs().ibv_ack_async_event)(&mut event) };
        match event.event_type {
            number::EVENT_SRQ_LIMIT_REACHED => {
                if let Some(number) = hub.shared_at(event.element as usize) {
                    hub.events.push(Event::LowWater(number));
                }
            }
            // The element is the port's number, in its first four bytes.
            number::EVENT_PORT_ERR if event.element as u32 == u32::from(hub.port.number) => {
                hub.events.push(Event::PortDown);
            }
            number::EVENT_PORT_ACTIVE if event.element as u32 == u32::from(hub.port.number) => {
                hub.events.push(Event::PortUp);
            }
            number::EVENT_DEVICE_FATAL | number::EVENT_CQ_ERR | number::EVENT_SRQ_ERR => {
                hub.all_pairs().iter().for_each(|pair| pair.fail(&mut pair.lock()));
                hub.events.push(Event::DeviceFailed);
            }
            _ => {}
        }
        if let Some(pair) = pair.and_then(|number| hub.pair(number)) {
            pair.fail(&mut pair.lock());
        }
    }
}

/// Asks those that have been idle for too long; when to do it next.
fn ask_idle(hub: &Hub) -> Time {
    let mut next = Time::NEVER;
    for pair in hub.all_pairs() {
        let Some((at, every)) = pair.to_be_asked() else { continue };
        let time = now();
        if at > time {
            next = next.min(at);
            continue;
        }
        // An answer to an earlier question may be there that nobody has taken.
        pair.send.look();
        pair.ask();
        next = next.min(time.plus(every / 2));
    }
    next
}
