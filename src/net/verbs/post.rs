//! Posting: chains of requests, several to a call of the device.

use super::PIECES;
use super::bindings::{RecvWr, SendWr, Sge, number};
use super::pair::{Line, Pair, RECEIVE, pieces};
use super::ring::Slot;
use crate::net::provider::{Data, Opcode, PostError, Receive, Refused, State};

/// Requests given to the device at a time.
const CHAIN: usize = 8;

/// The bits of a flag that is set, or none.
pub(super) fn flag(set: bool, bits: u32) -> u32 {
    if set { bits } else { 0 }
}

/// One request that is being made: what will be remembered of it, the device's form, its pieces, and
/// how many of them there are.
pub(super) struct Request<'a> {
    pub wr: &'a mut SendWr,
    sges: &'a mut [Sge; PIECES],
    count: usize,
    kept: usize,
}

impl Request<'_> {
    /// Takes bytes to send, of at most `limit` together; how many they are.
    pub fn data(&mut self, data: &Data<'_>, limit: u32, pair: &Pair) -> Result<u32, PostError> {
        let length = data.length();
        let limit = match data {
            Data::Pieces(_) => limit,
            Data::Inline(_) => limit.min(pair.inline),
        };
        if length > u64::from(limit) {
            return Err(PostError::TooLong { length, limit: limit.into() });
        }
        match data {
            Data::Pieces(from) => self.pieces(from, pair)?,
            Data::Inline(parts) => {
                let full = parts.iter().filter(|part| !part.is_empty());
                if full.clone().count() > PIECES.min(pair.pieces as usize) {
                    return Err(PostError::TooManyPieces);
                }
                self.count = 0;
                for (to, part) in self.sges.iter_mut().zip(full) {
                    let addr = part.as_ptr().expose_provenance() as u64;
                    *to = Sge { addr, length: part.len() as u32, lkey: 0 };
                    self.count += 1;
                }
                if length > 0 {
                    self.wr.send_flags |= number::SEND_INLINE;
                }
            }
        }
        Ok(length as u32)
    }

    /// Takes pieces of registered memory.
    pub fn pieces(
        &mut self,
        from: &[crate::net::provider::Local],
        pair: &Pair,
    ) -> Result<(), PostError> {
        self.count = pieces(from, pair.pieces, self.sges)?;
        self.kept = self.count;
        Ok(())
    }
}

impl Pair {
    /// Posts `count` operations of the send side, which `make` fills in one after the other: it gives
    /// what to remember of it, and whether success is signalled.
    pub fn post_sends(
        &self,
        line: &mut Line,
        count: usize,
        mut make: impl FnMut(usize, &mut Request<'_>) -> Result<Slot, PostError>,
    ) -> Result<(), Refused> {
        let mut posted = 0;
        while posted < count {
            let result = match count - posted {
                1 => self.chain::<1>(line, posted, 1, &mut make),
                left => self.chain::<CHAIN>(line, posted, left, &mut make),
            };
            posted +=
                result.map_err(|refused| Refused { posted: posted + refused.posted, ..refused })?;
        }
        Ok(())
    }

    fn chain<const N: usize>(
        &self,
        line: &mut Line,
        first: usize,
        count: usize,
        make: &mut impl FnMut(usize, &mut Request<'_>) -> Result<Slot, PostError>,
    ) -> Result<usize, Refused> {
        let mut wrs = [SendWr::NONE; N];
        let mut sges = [[Sge::default(); PIECES]; N];
        let mut counts = [0; N];
        let (mut ready, mut why) = (0, None);
        for i in 0..N.min(count) {
            let (wr, sges) = (&mut wrs[i], &mut sges[i]);
            let mut request = Request { wr, sges, count: 0, kept: 0 };
            let slot = make(first + i, &mut request).and_then(|slot| {
                // One place stays for the provider's own question.
                let own = usize::from(self.options.is_some() && !slot.ping);
                let free = line.sends.depth() - line.sends.len();
                (free > own && self.send.take_room()).then_some(slot).ok_or(PostError::Full)
            });
            match slot {
                Ok(slot) => {
                    let Request { wr, sges, count, kept } = request;
                    wr.wr_id = line.sends.push(slot, &sges[..kept]);
                    counts[i] = count;
                    ready += 1;
                }
                Err(refused) => {
                    why = Some(refused);
                    break;
                }
            }
        }
        let base = wrs.as_mut_ptr();
        for i in 0..ready {
            wrs[i].sg_list = sges[i].as_mut_ptr();
            wrs[i].num_sge = counts[i] as i32;
            if i + 1 < ready {
                wrs[i].next = base.wrapping_add(i + 1);
            }
        }
        let posted = if ready > 0 { self.hand_over(line, &mut wrs[..ready]) } else { 0 };
        if posted < ready {
            line.sends.take_back(ready - posted);
            self.send.give_room((ready - posted) as u32);
            return Err(Refused { posted, why: PostError::Full });
        }
        match why {
            Some(why) => Err(Refused { posted, why }),
            None => Ok(posted),
        }
    }

    /// Gives linked requests to the device; how many it took.
    fn hand_over(&self, line: &Line, wrs: &mut [SendWr]) -> usize {
        let Some(raw) = &line.raw else { return 0 };
        let (first, mut bad) = (wrs.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the queue pair lives; requests, their lists and inline bytes are copied before the
        // call returns.
        let code = unsafe { (self.hub.context().ops().post_send)(raw.raw(), first, &mut bad) };
        if code == 0 {
            return wrs.len();
        }
        wrs.iter().position(|wr| std::ptr::eq(wr, bad)).unwrap_or(0)
    }

    /// Posts receives of its own, each of at least `shortest` bytes.
    pub fn post_receives(&self, receives: &[Receive<'_>], shortest: u64) -> Result<(), Refused> {
        let mut line = self.lock();
        for (posted, receive) in receives.iter().enumerate() {
            self.post_receive(&mut line, receive, shortest)
                .map_err(|why| Refused { posted, why })?;
        }
        Ok(())
    }

    fn post_receive(
        &self,
        line: &mut Line,
        receive: &Receive<'_>,
        shortest: u64,
    ) -> Result<(), PostError> {
        if self.shared.is_some() {
            return Err(PostError::Unsupported);
        }
        let mut own = [Sge::default(); PIECES];
        let count = pieces(receive.pieces, self.pieces, &mut own)?;
        let length = own[..count].iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        if length < shortest {
            return Err(PostError::TooShort { length, needed: shortest });
        }
        let Some(raw) = &line.raw else { return Err(PostError::NotReady) };
        if line.receives.is_full() || !self.receive.take_room() {
            return Err(PostError::Full);
        }
        let slot = Slot::new(receive.id, Opcode::Receive, 0);
        let place = line.receives.push(slot, &own[..count]);
        let mut wr = RecvWr {
            wr_id: RECEIVE | place,
            sg_list: own.as_mut_ptr(),
            num_sge: count as i32,
            ..RecvWr::NONE
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair lives; the request and its list are copied before the call returns.
        let code = unsafe { (self.hub.context().ops().post_recv)(raw.raw(), &mut wr, &mut bad) };
        if code != 0 {
            line.receives.take_back(1);
            self.receive.give_room(1);
            return Err(PostError::Full);
        }
        if line.state == State::Error {
            // Devices made of software do not look at what comes late.
            raw.fail();
        }
        Ok(())
    }
}
