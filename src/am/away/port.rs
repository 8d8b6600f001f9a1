//! What the room below calls: the seam of [`crate::rma::foreign`].

use super::Away;
use super::executor::{Runs, inside};
use super::spent::{Held, Spends};
use super::why::REFUSED;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result};
use crate::rma::foreign::{CLOSED, Foreign, NOBODY, Outgoing};
use crate::rma::remote::Remote;
use crate::rma::runtime::Fault;
use std::any::Any;
use std::sync::{Arc, PoisonError};

/// Units run in one of the program's calls, of one window: whoever calls has other things to do.
pub(super) const MOST_RUN: usize = 64;

/// What hangs on the seam: the window's side of it ends when the seam's does.
#[derive(Debug)]
pub(super) struct Port(Arc<Away>);

/// What hangs on the seam of a window.
pub(super) fn found(remote: &dyn Remote) -> Option<Arc<Away>> {
    own(&**remote.attached()?)
}

/// Hangs `away` on the seam of a window, unless something hangs there; what does then.
pub(super) fn attach(remote: &dyn Remote, away: &Arc<Away>) -> Option<Arc<Away>> {
    own(&*remote.attach(Arc::new(Port(away.clone()))))
}

fn own(foreign: &dyn Foreign) -> Option<Arc<Away>> {
    let foreign: &dyn Any = foreign;
    foreign.downcast_ref::<Port>().map(|port| port.0.clone())
}

impl Foreign for Port {
    fn arrived(&self, origin: Rank, body: &[u8]) -> Result<(), Fault> {
        let away = &self.0;
        let mut server = away.server();
        let ready = server.arrived(origin, body);
        let busy = server.is_busy();
        if let Ok(true) = ready {
            away.due.store(true, Ordering::Release);
        }
        drop(server);
        if busy {
            away.stir();
        }
        if ready? {
            away.executor.wake();
        }
        Ok(())
    }

    fn noted(&self, from: Rank, body: &[u8]) {
        self.0.client().noted(from, body);
        self.0.stir();
    }

    fn refused(&self, target: Rank, fault: Fault) {
        match fault.code {
            CLOSED => self.0.client().refused(target, 0),
            REFUSED => self.0.client().refused(target, fault.details[0].max(1)),
            NOBODY => self.0.client().unprepared(target),
            // A one-sided operation's.
            _ => return,
        }
        self.0.stir();
    }

    fn dropped(&self, target: Rank, body: &[u8], error: &Error) {
        self.0.client().dropped(target, body, error);
        self.0.stir();
    }

    fn abandoned(&self, target: Rank, error: &Error) {
        self.0.client().strand(target, error);
        self.0.stir();
    }

    fn died(&self, rank: Rank) {
        self.0.client().died(rank, &|| self.0.death_of(rank));
        self.0.server().died(rank);
        self.0.ended.notify_all();
        self.0.stir();
    }

    fn busy(&self) -> bool {
        self.0.busy.load(Ordering::Acquire)
    }

    fn pump(&self, out: &mut dyn Outgoing) -> bool {
        let away = &self.0;
        away.busy.store(false, Ordering::Release);
        let mut server = away.server();
        let mut sent = server.has_notes() && server.pump(out, away.most);
        let mut left = server.has_notes();
        if server.buffers.is_detaching() {
            // What has left it may be all that was waited for.
            out.ring();
        }
        server.spent().drain().for_each(|it| out.later(it));
        drop(server);
        let mut client = away.client();
        if client.is_busy() {
            sent |= client.pump(out, away.most);
            left |= client.is_busy();
        }
        client.spent().drain().for_each(|it| out.later(it));
        drop(client);
        if left {
            away.stir();
        }
        sent
    }

    fn idle(&self, target: Option<Rank>, ends: bool) -> Result<bool> {
        let idle = self.0.client().idle(target, ends);
        if let Ok(false) = idle {
            self.0.stir();
        }
        idle
    }

    fn awaited(&self, target: Option<Rank>) -> Vec<Rank> {
        self.0.client().awaited(target)
    }

    fn give_up(&self, target: Option<Rank>, error: &Error, open: bool, out: &mut dyn Outgoing) {
        self.0.client().give_up(target, error, open, (out, self.0.most));
        self.0.stir();
    }

    fn due(&self) -> bool {
        self.0.kick.0.is_none() && self.0.due.load(Ordering::Acquire)
    }

    fn run_due(&self) -> bool {
        let mut ran = 0;
        while ran < MOST_RUN && self.0.run_one() {
            ran += 1;
        }
        ran > 0
    }

    fn close(&self) {
        let away = &self.0;
        away.executor.remove(away);
        let mut server = Held::alone(&away.server);
        let mut over = server.close();
        away.due.store(false, Ordering::Release);
        // A handler on this thread cannot be waited for: it has let the window go.
        // Nor one that a forked child does not have.
        while !over && !inside() && away.executor.is_here() {
            let guard = away.ended.wait(server.into_guard());
            server = Held::of(guard.unwrap_or_else(PoisonError::into_inner));
            over = server.close();
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let client = self.0.client();
        let (origin, (peers, messages)) = (client.done, client.held());
        drop(client);
        let chosen = self.0.costs(|all| {
            let runs = all.values().map(|(costs, _)| costs.runs());
            runs.fold([0; 2], |sum, runs| [sum[0] + runs[0], sum[1] + runs[1]])
        });
        let server = self.0.server();
        let (target, (origins, waiting, running)) = (server.done, server.held());
        let staged = server.system_bytes();
        vec![
            ("am_messages", origin.messages),
            ("am_units_sent", origin.units),
            ("am_units_without_asking", origin.unasked),
            ("am_reservations", origin.asked),
            ("am_input_bytes", origin.bytes),
            ("am_run_at_origin", origin.at_origin),
            ("am_copies_too_large", origin.too_large),
            ("am_chosen_target", chosen[0]),
            ("am_chosen_origin", chosen[1]),
            ("am_notes_unknown", origin.strays),
            ("am_peers", peers),
            ("am_messages_under_way", messages),
            ("am_units_run", target.units),
            ("am_fetched", target.fetched),
            ("am_stored", target.stored),
            ("am_stale", target.stale),
            ("am_packed", target.packed),
            ("am_whole", target.whole),
            ("am_staged_bytes", target.bytes_in),
            ("am_output_bytes", target.bytes_out),
            ("am_granted", target.granted),
            ("am_refused", target.refused),
            ("am_stood_in", target.stood_in),
            ("am_no_memory", target.no_memory),
            ("am_system_bytes", staged),
            ("am_system_bytes_most", target.system_most),
            ("am_origins", origins),
            ("am_units_waiting", waiting),
            ("am_handlers_running", running),
        ]
    }
}
