//! Connected queue pairs.
//!
//! An atomic operation on a word that is not aligned is refused by some devices where it is posted,
//! by others at the peer. Here it is the peer that refuses it, in its turn: posted is a read of what
//! no region can have, and its failure is told as that of the atomic.

use super::address::Spot;
use super::bindings::{QpAttr, halves, number};
use super::pair::{Line, Pair};
use super::policy::Link;
use super::ring::Slot;
use super::timing::{RETRIES, receiver_code, receiver_retries, timeout_code};
use crate::base::sync::Ordering;
use crate::base::{Error, Result};
use crate::net::alarm::now;
use crate::net::provider::{
    Address, Atomics, Opcode, Operation, PostError, RcOptions, RcQueuePair, Receive, Refused,
    Remote, State, Time, Work,
};
use crate::net::verbs::device::Counted;
use crate::net::verbs::post::{Request, flag};
use std::sync::Arc;
use std::time::Duration;

/// A number that no queue pair has: who connects to somebody of another job connects to nobody.
const NOBODY: u32 = 0xff_fffe;

pub(super) struct VerbsRc {
    pair: Arc<Pair>,
    options: RcOptions,
    _counted: Counted,
}

impl Drop for VerbsRc {
    fn drop(&mut self) {
        // Nothing is made, so nothing can fail.
        let _ = self.pair.renew(false);
    }
}

impl VerbsRc {
    pub fn new(pair: Arc<Pair>, options: RcOptions, counted: Counted) -> VerbsRc {
        if options.keepalive.is_some() {
            pair.heard.store(now().0, Ordering::Relaxed);
            pair.hub.alarm.ring();
        }
        VerbsRc { pair, options, _counted: counted }
    }

    fn spot(&self, line: &Line) -> Spot {
        let number = line.raw.as_ref().map_or(0, |raw| raw.number());
        let receiver = receiver_code(self.options.receiver_patience);
        let reads = self.pair.hub.capabilities.reads as u8;
        Spot { receiver, reads, psn: line.psn, ..self.pair.hub.spot(number, true) }
    }

    fn join(&self, line: &mut Line, peer: &Spot, known: bool) -> Result<()> {
        let Some(raw) = &line.raw else { return Ok(()) };
        let hub = &self.pair.hub;
        let reads = hub.capabilities.reads as u8;
        let mut attr = QpAttr {
            qp_state: number::QPS_RTR,
            path_mtu: peer.mtu.min(hub.port.mtu).into(),
            dest_qp_num: if known { peer.number } else { NOBODY },
            rq_psn: peer.psn,
            sq_psn: line.psn,
            ah_attr: hub.route(peer),
            max_rd_atomic: peer.reads.min(reads),
            max_dest_rd_atomic: reads,
            min_rnr_timer: receiver_code(self.options.receiver_patience),
            timeout: timeout_code(self.options.patience),
            retry_cnt: RETRIES,
            rnr_retry: receiver_retries(self.options.receiver_patience, peer.receiver),
            ..Default::default()
        };
        let to_receive = number::QP_STATE
            | number::QP_AV
            | number::QP_PATH_MTU
            | number::QP_DEST_QPN
            | number::QP_RQ_PSN
            | number::QP_MAX_DEST_RD_ATOMIC
            | number::QP_MIN_RNR_TIMER;
        raw.modify("connecting a queue pair (the route to its peer)", &mut attr, to_receive)?;
        attr.qp_state = number::QPS_RTS;
        let to_send = number::QP_STATE
            | number::QP_TIMEOUT
            | number::QP_RETRY_CNT
            | number::QP_RNR_RETRY
            | number::QP_SQ_PSN
            | number::QP_MAX_QP_RD_ATOMIC;
        raw.modify("connecting a queue pair", &mut attr, to_send)?;
        line.state = State::Ready;
        Ok(())
    }

    fn request(&self, work: &Work<'_>, request: &mut Request<'_>) -> Result<Slot, PostError> {
        let pair = &*self.pair;
        let longest = pair.hub.capabilities.message;
        request.wr.send_flags = flag(work.fenced, number::SEND_FENCE)
            | flag(work.signalled, number::SEND_SIGNALED)
            | flag(work.solicited, number::SEND_SOLICITED);
        let mut slot = Slot::new(work.id, Opcode::Send, 0);
        match &work.operation {
            Operation::Send { data, immediate } => {
                slot.length = request.data(data, longest, pair)?;
                let codes = [number::WR_SEND, number::WR_SEND_WITH_IMM];
                set_immediate(request, codes, *immediate);
            }
            Operation::Write { data, to, immediate } => {
                slot.opcode = Opcode::Write;
                slot.length = request.data(data, longest, pair)?;
                let codes = [number::WR_RDMA_WRITE, number::WR_RDMA_WRITE_WITH_IMM];
                set_immediate(request, codes, *immediate);
                set_remote(request, *to);
            }
            Operation::Read { into, from } => {
                let length = into.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
                if length > longest.into() {
                    return Err(PostError::TooLong { length, limit: longest.into() });
                }
                (slot.opcode, slot.length) = (Opcode::Read, length as u32);
                request.pieces(into, pair)?;
                request.wr.opcode = number::WR_RDMA_READ;
                set_remote(request, *from);
            }
            Operation::FetchAdd { into, at, add } => {
                slot.opcode = Opcode::FetchAdd;
                request.wr.opcode = number::WR_ATOMIC_FETCH_AND_ADD;
                request.pieces(&[*into], pair)?;
                set_atomic(request, &mut slot, *at, [*add, 0]);
            }
            Operation::CompareSwap { into, at, compare, swap } => {
                slot.opcode = Opcode::CompareSwap;
                request.wr.opcode = number::WR_ATOMIC_CMP_AND_SWP;
                request.pieces(&[*into], pair)?;
                set_atomic(request, &mut slot, *at, [*compare, *swap]);
            }
        }
        let atomic = matches!(slot.opcode, Opcode::FetchAdd | Opcode::CompareSwap);
        if atomic && pair.hub.capabilities.atomics == Atomics::None {
            return Err(PostError::Unsupported);
        }
        Ok(slot)
    }
}

fn set_immediate(request: &mut Request<'_>, codes: [u32; 2], immediate: Option<u32>) {
    request.wr.opcode = codes[usize::from(immediate.is_some())];
    request.wr.imm_data = immediate.unwrap_or(0).to_be();
}

fn set_remote(request: &mut Request<'_>, at: Remote) {
    request.wr.wr = [at.address, halves(at.key, 0), 0, 0];
}

fn set_atomic(request: &mut Request<'_>, slot: &mut Slot, at: Remote, operands: [u64; 2]) {
    slot.length = 8;
    if !at.address.is_multiple_of(8) {
        slot.misaligned = true;
        request.wr.opcode = number::WR_RDMA_READ;
        set_remote(request, Remote { address: u64::MAX - 7, ..at });
        return;
    }
    request.wr.wr = [at.address, operands[0], operands[1], halves(at.key, 0)];
}

impl Pair {
    /// Asks whether the peer lives, if nothing is under way that would tell: a write of no bytes.
    pub fn ask(&self) {
        let mut line = self.lock();
        if line.state != State::Ready || line.sends.len() > 0 {
            return;
        }
        // Where there is no room for it, completions are there that tell as much.
        let _ = self.post_sends(&mut line, 1, |_, request| {
            request.wr.opcode = number::WR_RDMA_WRITE;
            request.wr.send_flags = number::SEND_SIGNALED;
            Ok(Slot::ping())
        });
    }

    /// When it is to be asked, if nothing is heard of its peer until then, and how often.
    pub fn to_be_asked(&self) -> Option<(Time, Duration)> {
        let keepalive = self.options?.keepalive?;
        let ready = self.lock().state == State::Ready;
        ready.then(|| (Time(self.heard.load(Ordering::Relaxed)).plus(keepalive), keepalive))
    }
}

impl RcQueuePair for VerbsRc {
    fn number(&self) -> u32 {
        self.pair.number
    }

    fn address(&self) -> Address {
        self.spot(&self.pair.lock()).address(self.pair.hub.cookie)
    }

    fn state(&self) -> State {
        self.pair.lock().state
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        let hub = &self.pair.hub;
        let spot = Spot::decode(peer, true, hub.cookie).filter(|(spot, _)| hub.same_fabric(spot));
        let (spot, known) = spot.ok_or_else(|| {
            let link = match hub.port.link {
                Link::InfiniBand => "InfiniBand",
                Link::Ethernet => "RoCE with the same IP version",
            };
            Error::invalid(
                "a peer's address",
                format!("it is not of a connected queue pair over verbs, on {link}"),
            )
        })?;
        let mut line = self.pair.lock();
        if line.state != State::Init {
            return Err(Error::Misuse {
                what: "connecting a queue pair",
                why: "it is connected already, or has failed; reset it first".into(),
            });
        }
        if !known {
            hub.strangers.fetch_add(1, Ordering::Relaxed);
        }
        self.join(&mut line, &spot, known)?;
        drop(line);
        if self.options.keepalive.is_some() {
            self.pair.heard.store(now().0, Ordering::Relaxed);
            hub.alarm.ring();
        }
        Ok(())
    }

    fn post(&self, works: &[Work<'_>]) -> Result<(), Refused> {
        let mut line = self.pair.lock();
        if !matches!(line.state, State::Ready | State::Error) {
            return Err(Refused { posted: 0, why: PostError::NotReady });
        }
        self.pair.post_sends(&mut line, works.len(), |i, request| self.request(&works[i], request))
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.pair.post_receives(receives, 0)
    }

    fn fail(&self) {
        self.pair.fail(&mut self.pair.lock());
    }

    fn reset(&self) -> Result<()> {
        self.pair.renew(true)
    }
}
