//! What queue pairs of both kinds have in common: being made, completing, being made anew.
//!
//! The lock of a pair (`Line`) is taken after those of its completion queues, never before. Resetting
//! one destroys the device's queue pair and makes another, so that its number and with it the address
//! change; what it has left in completion queues is taken out first, with the others' put by.
//!
//! A datagram queue pair that failed (an operation of its own was wrong) is made usable again at once
//! (`mend`): what was posted completes with `Flushed`.

use super::bindings::{self, GRH, QpAttr, QpCap, QpInitAttr, Sge, Wc, number};
use super::context::{check, or_limits};
use super::hub::{Hub, fresh_psn};
use super::queue::{BATCH, Inner, Taken, VerbsQueue};
use super::ring::{Ring, Slot};
use super::shared::VerbsShared;
use super::status::status;
use crate::base::Result;
use crate::base::sync::{AtomicU64, Ordering};
use crate::net::alarm::now;
use crate::net::provider::{
    Address, Completion, Event, Local, Opcode, PostError, RcOptions, State, Status,
};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// In the number of a posted receive; the rest is its place.
pub(super) const RECEIVE: u64 = 1 << 63;

/// A queue pair of the device, destroyed with this.
pub(super) struct RawPair {
    verbs: &'static bindings::Functions,
    raw: NonNull<bindings::Qp>,
}

// SAFETY: the library's functions may be called for one queue pair from any thread.
unsafe impl Send for RawPair {}

impl RawPair {
    pub fn raw(&self) -> *mut bindings::Qp {
        self.raw.as_ptr()
    }

    pub fn number(&self) -> u32 {
        // SAFETY: it lives as long as `self`.
        unsafe { self.raw.as_ref().qp_num }
    }

    pub fn modify(&self, what: &'static str, attr: &mut QpAttr, mask: i32) -> Result<()> {
        // SAFETY: as above; the attributes are read.
        check(what, unsafe { (self.verbs.ibv_modify_qp)(self.raw(), attr, mask) })
    }

    /// Fails it: everything posted is flushed.
    pub fn fail(&self) {
        let mut attr = QpAttr { qp_state: number::QPS_ERR, ..Default::default() };
        // It fails only where the device has failed, which says so itself.
        let _ = self.modify("failing a queue pair", &mut attr, number::QP_STATE);
    }
}

impl Drop for RawPair {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { (self.verbs.ibv_destroy_qp)(self.raw()) };
    }
}

/// What a pair has under its lock.
pub(super) struct Line {
    pub raw: Option<RawPair>,
    pub sends: Ring,
    pub receives: Ring,
    pub state: State,
    pub psn: u32,
}

/// See the module.
pub(super) struct Pair {
    pub number: u32,
    pub hub: Arc<Hub>,
    /// Of connected ones.
    pub options: Option<RcOptions>,
    pub send: Arc<VerbsQueue>,
    pub receive: Arc<VerbsQueue>,
    pub shared: Option<Arc<VerbsShared>>,
    pub pieces: u32,
    pub inline: u32,
    cap: QpCap,
    line: Mutex<Line>,
    /// When the peer was last heard of.
    pub heard: AtomicU64,
}

/// What a pair is made of.
pub(super) struct Parts {
    pub send: Arc<VerbsQueue>,
    pub receive: Arc<VerbsQueue>,
    pub shared: Option<Arc<VerbsShared>>,
    pub send_depth: u32,
    pub receive_depth: u32,
    pub pieces: u32,
    pub inline: u32,
}

/// The pieces of an operation or receive as the device takes them, without empty ones (which mean
/// other things to some); how many.
pub(super) fn pieces(
    from: &[Local],
    most: u32,
    into: &mut [Sge; super::PIECES],
) -> Result<usize, PostError> {
    if from.len() > most as usize {
        return Err(PostError::TooManyPieces);
    }
    let full = from.iter().filter(|piece| piece.length > 0);
    let mut count = 0;
    for (to, piece) in into.iter_mut().zip(full) {
        *to = Sge { addr: piece.address, length: piece.length, lkey: piece.key };
        count += 1;
    }
    Ok(count)
}

impl Pair {
    /// Makes one and lets its queues know it.
    pub fn new(hub: &Arc<Hub>, parts: Parts, options: Option<RcOptions>) -> Result<Arc<Pair>> {
        // One more for the question whether the peer lives.
        let depth = parts.send_depth + u32::from(options.is_some());
        let receives = if parts.shared.is_some() { 0 } else { parts.receive_depth };
        let cap = QpCap {
            max_send_wr: depth,
            max_recv_wr: receives,
            max_send_sge: parts.pieces,
            max_recv_sge: if receives == 0 { 0 } else { parts.pieces },
            max_inline_data: parts.inline,
        };
        if let Some(shared) = &parts.shared {
            parts.receive.make_room_for(shared)?;
        }
        let pair = Arc::new(Pair {
            number: hub.number(),
            hub: hub.clone(),
            options,
            pieces: parts.pieces,
            inline: parts.inline,
            cap,
            line: Mutex::new(Line {
                raw: None,
                sends: Ring::new(depth, parts.pieces),
                receives: Ring::new(receives.max(1), parts.pieces),
                state: State::Reset,
                psn: 0,
            }),
            send: parts.send,
            receive: parts.receive,
            shared: parts.shared,
            heard: AtomicU64::new(0),
        });
        pair.renew(true)?;
        Ok(pair)
    }

    pub fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self) -> Result<RawPair> {
        let shared = self.shared.as_ref();
        let mut wanted = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: self.send.raw(),
            recv_cq: self.receive.raw(),
            srq: shared.map_or(std::ptr::null_mut(), |shared| shared.raw()),
            cap: self.cap,
            qp_type: if self.options.is_some() { number::QPT_RC } else { number::QPT_UD },
            sq_sig_all: 0,
        };
        let verbs = self.hub.verbs();
        // SAFETY: domain and queues live, and the pair keeps them.
        let raw = unsafe { (verbs.ibv_create_qp)(self.hub.domain.raw(), &mut wanted) };
        Ok(RawPair { verbs, raw: or_limits("a queue pair", raw)? })
    }

    /// From the state in which it is made to the one in which it is given out: datagrams can go at
    /// once.
    fn begin(&self, raw: &RawPair, psn: u32) -> Result<()> {
        let what = "setting a queue pair up";
        let mut attr = QpAttr {
            qp_state: number::QPS_INIT,
            port_num: self.hub.port.number,
            qkey: self.hub.qkey,
            // Remote write, read, atomics: what regions grant is what counts.
            qp_access_flags: 2 | 4 | 8,
            sq_psn: psn,
            ..Default::default()
        };
        let common = number::QP_STATE | number::QP_PKEY_INDEX | number::QP_PORT;
        if self.options.is_some() {
            return raw.modify(what, &mut attr, common | number::QP_ACCESS_FLAGS);
        }
        raw.modify(what, &mut attr, common | number::QP_QKEY)?;
        attr.qp_state = number::QPS_RTR;
        raw.modify(what, &mut attr, number::QP_STATE)?;
        attr.qp_state = number::QPS_RTS;
        raw.modify(what, &mut attr, number::QP_STATE | number::QP_SQ_PSN)
    }

    /// Both its queues, locked; the second is none where it has only one.
    fn queues(&self) -> Held<'_> {
        let (a, b) = (&*self.send, &*self.receive);
        match a.number.cmp(&b.number) {
            std::cmp::Ordering::Equal => [Some((a, a.lock())), None],
            std::cmp::Ordering::Less => [Some((a, a.lock())), Some((b, b.lock()))],
            std::cmp::Ordering::Greater => [Some((b, b.lock())), Some((a, a.lock()))],
        }
    }

    /// Takes everything out of the device's queues: of others it is put by, of this pair it is put by
    /// too (`keep`) or forgotten.
    fn drain(&self, held: &mut Held<'_>, keep: bool, broken: &mut Vec<Arc<Pair>>) {
        let own = self.lock().raw.as_ref().map(RawPair::number);
        for (queue, inner) in held.iter_mut().flatten() {
            let mut some = [Wc::default(); BATCH];
            loop {
                let count = queue.take(&mut some);
                for wc in &some[..count] {
                    if keep || Some(wc.qp_num) != own {
                        inner.put_by(wc, broken);
                        continue;
                    }
                    match &self.shared {
                        Some(shared) if wc.wr_id & RECEIVE != 0 => {
                            shared.again(wc.wr_id & !RECEIVE);
                        }
                        _ => queue.give_room(self.completed(wc).room),
                    }
                }
                if count < BATCH {
                    break;
                }
            }
        }
    }

    /// Forgets everything that was posted, and makes the device's queue pair anew, or not `again`.
    pub fn renew(self: &Arc<Self>, again: bool) -> Result<()> {
        let mut broken = Vec::new();
        let mut held = self.queues();
        let old = {
            let mut line = self.lock();
            line.state = State::Reset;
            line.raw.as_ref().inspect(|raw| raw.fail()).map(RawPair::number)
        };
        self.drain(&mut held, false, &mut broken);
        let result = {
            let mut line = self.lock();
            line.raw = None;
            if let Some(old) = old {
                self.hub.strike(old);
            }
            self.send.give_room(line.sends.clear());
            self.receive.give_room(line.receives.clear());
            if again { self.make_again(&mut line).map(Some) } else { Ok(None) }
        };
        for (queue, inner) in held.iter_mut().flatten() {
            // Nothing comes of the old one any more, and what has come meanwhile is nobody's.
            let _own = old.and_then(|old| inner.part(old));
            let mut room = 0;
            inner.stash.retain(|taken| {
                let of_this = |done: &Completion| done.queue_pair == self.number;
                let gone = taken.completion.as_ref().is_some_and(of_this);
                room += if gone { taken.room } else { 0 };
                !gone
            });
            queue.give_room(room);
            if let Ok(Some(number)) = result {
                inner.join(number, self.clone());
            }
        }
        self.drain(&mut held, false, &mut broken);
        drop(held);
        broken.iter().for_each(|pair| pair.mend());
        result.map(drop)
    }

    fn make_again(self: &Arc<Self>, line: &mut Line) -> Result<u32> {
        let raw = self.make()?;
        line.psn = fresh_psn()?;
        self.begin(&raw, line.psn)?;
        let number = raw.number();
        line.raw = Some(raw);
        line.state = if self.options.is_some() { State::Init } else { State::Ready };
        self.hub.enlist(number, self);
        Ok(number)
    }

    /// Makes a datagram queue pair usable again after a failure.
    pub fn mend(self: &Arc<Self>) {
        if self.options.is_some() {
            return;
        }
        let mut broken = Vec::new();
        let mut held = self.queues();
        if let Some(raw) = &self.lock().raw {
            raw.fail();
        }
        self.drain(&mut held, true, &mut broken);
        let mut line = self.lock();
        for (queue, inner) in held.iter_mut().flatten() {
            let mut flush = |slot: Slot| {
                let completion = self.completion(&slot, Status::Flushed);
                inner.stash.push_back(Taken {
                    completion: Some(completion),
                    room: 1,
                    broke: false,
                });
            };
            if queue.number == self.send.number {
                std::iter::from_fn(|| line.sends.pop()).for_each(&mut flush);
            }
            if queue.number == self.receive.number {
                std::iter::from_fn(|| line.receives.pop()).for_each(&mut flush);
            }
            queue.ring();
        }
        let mut attr = QpAttr { qp_state: number::QPS_RESET, ..Default::default() };
        let again = line.raw.as_ref().map(|raw| {
            raw.modify("resetting a queue pair", &mut attr, number::QP_STATE)?;
            self.begin(raw, line.psn)
        });
        if let Some(Err(_)) = again {
            line.state = State::Error;
            self.hub.events.push(Event::QueuePairFailed(self.number));
        }
        drop(line);
        drop(held);
        let others = broken.iter().filter(|pair| !Arc::ptr_eq(pair, self));
        others.for_each(|pair| pair.mend());
    }

    /// A connected one has failed: all that is posted is flushed, and what will be.
    pub fn fail(&self, line: &mut Line) {
        if matches!(line.state, State::Init | State::Ready) {
            line.state = State::Error;
            if let Some(raw) = &line.raw {
                raw.fail();
            }
            self.hub.events.push(Event::QueuePairFailed(self.number));
        }
    }

    fn completion(&self, slot: &Slot, status: Status) -> Completion {
        Completion {
            id: slot.id,
            queue_pair: self.number,
            opcode: slot.opcode,
            status,
            length: slot.length,
            immediate: None,
            source: Address::NONE,
        }
    }

    /// What a completion of the device's means.
    pub fn completed(&self, wc: &Wc) -> Taken {
        let mut line = self.lock();
        let (receive, place) = (wc.wr_id & RECEIVE != 0, wc.wr_id & !RECEIVE);
        let told = if !receive {
            let sends = &mut line.sends;
            sends.complete(place).map(|(slot, pieces, ended)| {
                let status = self.told(wc, &slot, pieces, false);
                let completion = (!slot.ping).then(|| self.completion(&slot, status));
                (completion, ended)
            })
        } else if let Some(shared) = &self.shared {
            let told = |slot: &Slot, pieces: &[Sge]| self.received(wc, slot, pieces);
            shared.complete(place, told).map(|done| (Some(done), 0))
        } else {
            line.receives.complete(place).map(|(slot, pieces, ended)| {
                let done = self.received(wc, &slot, pieces);
                (Some(done), ended)
            })
        };
        let Some((completion, room)) = told else { return Taken::default() };
        let broke = wc.status != 0 && self.options.is_none();
        if let Some(RcOptions { keepalive, .. }) = self.options {
            if wc.status != 0 {
                self.fail(&mut line);
            } else if keepalive.is_some() {
                self.heard.store(now().0, Ordering::Relaxed);
            }
        }
        Taken { completion, room, broke }
    }

    /// How an operation or receive went, told as the interface has it.
    fn told(&self, wc: &Wc, slot: &Slot, pieces: &[Sge], receive: bool) -> Status {
        let status = status(wc.status, receive);
        let writes = matches!(
            slot.opcode,
            Opcode::Receive | Opcode::Read | Opcode::FetchAdd | Opcode::CompareSwap
        );
        match status {
            Status::RemoteAccess if slot.misaligned => Status::RemoteInvalid,
            // Devices differ in what they call it.
            Status::LocalOperation
                if pieces.iter().any(|piece| !self.hub.is_registered(piece, writes)) =>
            {
                Status::LocalProtection
            }
            // There is nothing else that can be wrong with a receive.
            Status::LocalOperation if receive => Status::LocalLength,
            status => status,
        }
    }

    fn received(&self, wc: &Wc, slot: &Slot, pieces: &[Sge]) -> Completion {
        let mut done = self.completion(slot, self.told(wc, slot, pieces, true));
        if done.status != Status::Success {
            return done;
        }
        done.length = wc.byte_len;
        if wc.wc_flags & number::WC_WITH_IMM != 0 {
            done.immediate = Some(u32::from_be(wc.imm_data));
        }
        if wc.opcode == number::WC_RECV_RDMA_WITH_IMM {
            done.opcode = Opcode::ReceiveWrite;
        }
        if self.options.is_none() {
            done.length = wc.byte_len.saturating_sub(GRH);
            let mut header = [0; GRH as usize];
            if !self.hub.peek(pieces, &mut header) {
                done.status = Status::LocalProtection;
                return done;
            }
            done.source = self.sender(wc, &header);
        }
        done
    }

    /// The address of who sent a datagram, by the header before it: an IPv6 one, or an IPv4 one in
    /// its last bytes.
    fn sender(&self, wc: &Wc, header: &[u8; GRH as usize]) -> Address {
        let mut gid = [0; 16];
        let v4 = self.hub.port.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];
        if v4 && header[20] >> 4 == 4 {
            gid[10..12].fill(255);
            gid[12..].copy_from_slice(&header[32..36]);
        } else {
            gid.copy_from_slice(&header[8..24]);
        }
        let lid = match self.hub.port.link {
            super::policy::Link::InfiniBand => wc.slid,
            super::policy::Link::Ethernet => 0,
        };
        let spot = self.hub.spot(wc.src_qp, false);
        super::address::Spot { gid, lid, ..spot }.address(self.hub.cookie)
    }
}

/// Queues of a pair while they are locked.
type Held<'a> = [Option<(&'a VerbsQueue, MutexGuard<'a, Inner>)>; 2];
