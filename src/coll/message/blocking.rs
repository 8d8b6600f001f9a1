//! Calls that return when the message was sent, or has come.

use super::super::Team;
use super::name::{Source, Status, Tag};
use super::{MatchedMessage, Told, code, layout_code};
use crate::base::{Error, Rank, Result};
use crate::layout::{Datum, Shape};
use crate::p2p::express::{self, ANY, BYTES, Quick, SEVERAL, WORDS, Wish};
use crate::p2p::{Buffer, Mode, Pattern, Place};

/// The bytes of elements.
#[inline(always)]
pub(super) fn bytes<T: Datum>(data: &[T]) -> &[u8] {
    // SAFETY: a Datum has no padding: all of its bytes are initialised.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// The buffer of a receive into elements.
///
/// # Safety
/// The elements stay, and nobody touches them, until the record that gets it is done or given up.
#[inline(always)]
pub(super) unsafe fn buffer<T: Datum>(into: *mut T, len: usize) -> Buffer {
    // SAFETY: the caller's.
    let place = unsafe { Place::flat(into.cast(), len * size_of::<T>()) };
    Buffer::new(place, code::<T>(), size_of::<T>())
}

/// The place of a shape in a slice of `len` elements at `first`.
///
/// # Safety
/// As for [`buffer`].
pub(super) unsafe fn shaped<T: Datum>(
    what: &'static str,
    first: *mut T,
    len: usize,
    shape: Shape<'_>,
) -> Result<Place> {
    let (low, high) = shape.true_bounds()?;
    let have = (len * size_of::<T>()) as isize;
    if low < 0 || high > have {
        let why = format!("the layout reaches from byte {low} to {high}, the buffer to {have}");
        return Err(Error::invalid(what, why));
    }
    // SAFETY: the caller's, and the bytes lie inside the elements.
    unsafe { Place::shaped(first.cast(), shape.layout, shape.count) }
}

impl Team {
    /// Sends `data` to a member, with a tag.
    ///
    /// Returns when `data` may be changed: small messages (up to about 6.9 KiB, see
    /// `HITHER_EAGER_LIMIT`; in a node up to 64 KiB while there are buffers, of many in a row up to 512 KiB, see `HITHER_LEND_LIMIT`) go as
    /// soon as there is room on the connection, larger ones when the receiver has copied them, or at once into
    /// its buffer if it told that it waits. Meanwhile
    /// this receives what comes, so two members that send to each other do not wait for each other
    /// as long as one of them receives in time. Takes the team's deadline.
    ///
    /// Cost of 8 bytes on a hot connection: one cache line to the peer, no system call unless it
    /// sleeps, no allocation.
    ///
    /// # Errors
    /// [`Error::RankDied`] or [`Error::RankLeft`]; [`Error::TimedOut`]; [`Error::InvalidArgument`]
    /// for a rank that is none; [`Error::Misuse`] inside of a handler of active messages;
    /// [`Error::PeerFailed`] if the receiver gave the message up.
    #[inline(always)]
    pub fn send<T: Datum>(&self, to: Rank, tag: u32, data: &[T]) -> Result<()> {
        let (data, element) = (bytes(data), code::<T>());
        let sent = match express::how(data.len()) {
            WORDS => self.send_short::<WORDS>(to.0, tag, element, data),
            BYTES => self.send_short::<BYTES>(to.0, tag, element, data),
            _ => {
                data.len() <= express::MOST && self.send_short::<SEVERAL>(to.0, tag, element, data)
            }
        };
        if sent { Ok(()) } else { self.send_flat(to, tag, element, data) }
    }

    /// Sends the short way: whether it did. All of that in one function, and nothing else, since what others need
    /// would be kept on the stack for each message (see `p2p::express`).
    #[inline(never)]
    fn send_short<const HOW: u8>(&self, to: u32, tag: u32, element: u8, data: &[u8]) -> bool {
        let Some((endpoint, to)) = self.at_once(to) else { return false };
        endpoint.send_at_once::<HOW>(&self.letter_to(to, tag, element), data)
    }

    /// The general way of [`Team::send`].
    #[inline(never)]
    fn send_flat(&self, to: Rank, tag: u32, element: u8, data: &[u8]) -> Result<()> {
        let endpoint = self.messages("send")?;
        let letter = self.letter(to, tag, element)?;
        endpoint.send(letter, data, Mode::Standard, || self.deadline())
    }

    /// As [`Team::send`], but returns only once the receive that takes it has begun.
    pub fn ssend<T: Datum>(&self, to: Rank, tag: u32, data: &[T]) -> Result<()> {
        let endpoint = self.messages("ssend")?;
        let letter = self.letter(to, tag, code::<T>())?;
        endpoint.send(letter, bytes(data), Mode::Synchronous, || self.deadline())
    }

    /// As [`Team::send`], of the bytes of `shape` in `data`. Data that do not lie together travel
    /// in pieces of bounded size.
    ///
    /// # Errors
    /// Those of [`Team::send`]; [`Error::InvalidArgument`] if the shape reaches out of `data`.
    pub fn send_layout<T: Datum>(
        &self,
        to: Rank,
        tag: u32,
        data: &[T],
        shape: Shape<'_>,
    ) -> Result<()> {
        const WHAT: &str = "send_layout";
        let endpoint = self.messages(WHAT)?;
        let letter = self.letter(to, tag, layout_code(shape.layout))?;
        // SAFETY: `data` is borrowed until this returns, and only read.
        let place = unsafe { shaped(WHAT, data.as_ptr().cast_mut(), data.len(), shape)? };
        endpoint.send_place(&letter, place, Mode::Standard, self.deadline())
    }

    /// Receives the earliest message from `from` (a [`Rank`] or [`Any`](super::Any)) with `tag` (a
    /// number or `Any`) into the beginning of `into`, waiting for it.
    ///
    /// Notices the death of its source, and takes the team's deadline.
    ///
    /// Cost of 8 bytes of a known source, on a hot connection, while nothing else is posted: the message's
    /// cache line, which up to five messages share, no allocation, no system call unless it sleeps.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::ElementSize`] if the message does not fit: it is dropped
    /// then; [`Error::RankDied`], [`Error::RankLeft`] (see [`crate::coll::message`] for any
    /// source); [`Error::TimedOut`]; [`Error::InvalidArgument`]; [`Error::Misuse`] inside of a
    /// handler; [`Error::PeerFailed`] if the sender gave the message up.
    #[inline(always)]
    pub fn recv<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &mut [T],
    ) -> Result<Status> {
        let (from, tag) = (from.into(), tag.into());
        let (to, len, unit) = (into.as_mut_ptr().cast(), size_of_val(into), size_of::<T>());
        if let Source::Rank(rank) = from
            && len <= express::MOST
        {
            let tag = match tag {
                Tag::Exactly(tag) => u64::from(tag),
                Tag::Any => ANY,
            };
            let what = (unit as u64) << 8 | u64::from(code::<T>());
            // SAFETY, of both: `into` is borrowed until this returns.
            let quick = if len <= express::MOST_OF_ONE {
                // SAFETY: as above.
                unsafe { self.take_short::<false>(rank.0, tag, what, to, len) }
            } else {
                // SAFETY: as above.
                unsafe { self.take_short::<true>(rank.0, tag, what, to, len) }
            };
            if let Some(arrived) = quick.taken() {
                let expected = arrived.rank == rank.0;
                let status = || Ok(Status::of(arrived, unit));
                return if expected { status() } else { self.status(arrived, unit) };
            }
        }
        self.recv_flat(from, tag, into)
    }

    /// Receives the short way, see `send_short`: a message with a tag or [`ANY`] into `len` bytes at `to`. `what`: of
    /// elements of a code (its low byte) and of so many bytes.
    ///
    /// # Safety
    /// The bytes may be written, and nobody else uses them, until this returns.
    #[inline(never)]
    unsafe fn take_short<const SEVERAL: bool>(
        &self,
        from: u32,
        tag: u64,
        what: u64,
        to: *mut u8,
        len: usize,
    ) -> Quick {
        let Some((endpoint, source)) = self.at_once(from) else { return Quick::UNKNOWN };
        let what = (what as u8, (what >> 8).max(1) as usize);
        // SAFETY: the caller's.
        let wish = unsafe { Wish::new(self.member.context, (source, tag), what, (to, len)) };
        wish.map_or(Quick::UNKNOWN, |wish| endpoint.await_express::<SEVERAL>(wish))
    }

    /// The general way of [`Team::recv`].
    #[inline(never)]
    fn recv_flat<T: Datum>(&self, from: Source, tag: Tag, into: &mut [T]) -> Result<Status> {
        let pattern = self.pattern(from, tag)?;
        // SAFETY: `into` is borrowed until `receive` returns, which ends with all that has it.
        let buffer = unsafe { buffer(into.as_mut_ptr(), into.len()) };
        self.receive(&pattern, buffer, size_of::<T>(), "recv")
    }

    /// As [`Team::recv`], into the bytes of `shape` in `into`.
    ///
    /// # Errors
    /// Those of [`Team::recv`]; [`Error::InvalidArgument`] if the shape reaches out of `into`.
    pub fn recv_layout<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &mut [T],
        shape: Shape<'_>,
    ) -> Result<Status> {
        const WHAT: &str = "recv_layout";
        // SAFETY: as in `recv`.
        let place = unsafe { shaped(WHAT, into.as_mut_ptr(), into.len(), shape)? };
        let buffer = Buffer::new(place, layout_code(shape.layout), 1);
        let pattern = self.pattern(from.into(), tag.into())?;
        self.receive(&pattern, buffer, size_of::<T>(), WHAT)
    }

    /// What is not there at once, or not expected to be.
    #[inline]
    fn receive(
        &self,
        pattern: &Pattern,
        buffer: Buffer,
        unit: usize,
        during: &'static str,
    ) -> Result<Status> {
        let endpoint = self.messages(during)?;
        let told = Told::default();
        let check = || self.check_for(pattern, during, &told);
        match endpoint.receive(pattern, buffer, || self.deadline(), during, check) {
            Ok(arrived) => self.status(arrived, unit),
            Err(error) => told.pass(self, Err(error)),
        }
    }

    /// Sends `data` and receives into `into` at the same time: members that all do so do not wait
    /// for each other. Blocks and fails as [`Team::send`] and [`Team::recv`].
    pub fn sendrecv<T: Datum, U: Datum>(
        &self,
        to: Rank,
        tag: u32,
        data: &[T],
        from: impl Into<Source>,
        from_tag: impl Into<Tag>,
        into: &mut [U],
    ) -> Result<Status> {
        let (from, from_tag) = (from.into(), from_tag.into());
        let status = self.exchange(|scope| {
            let received = scope.irecv(from, from_tag, into)?;
            let sent = scope.isend(to, tag, data)?;
            sent.wait()?;
            received.wait()
        })?;
        status.ok_or_else(|| Error::invalid("sendrecv", "nothing was received"))
    }

    /// Waits for a message that [`Team::recv`] would receive, and leaves it there. `T` is what
    /// [`Status::elements`] counts.
    ///
    /// # Errors
    /// Those of [`Team::recv`], but for what concerns a buffer.
    pub fn probe<T: Datum>(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        const WHAT: &str = "probe";
        let pattern = self.pattern(from.into(), tag.into())?;
        let told = Told::default();
        let check = || self.check_for(&pattern, WHAT, &told);
        let endpoint = self.messages(WHAT)?;
        let seen = endpoint.await_look(&pattern, self.deadline(), WHAT, check);
        let arrived = told.pass(self, seen)?;
        self.status(arrived, size_of::<T>())
    }

    /// Whether a message is there that [`Team::recv`] would receive. Never waits.
    pub fn iprobe<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>> {
        let pattern = self.pattern(from.into(), tag.into())?;
        let seen = self.messages("iprobe")?.look(&pattern)?;
        seen.map(|arrived| self.status(arrived, size_of::<T>())).transpose()
    }

    /// Waits for a message that [`Team::recv`] would receive, and takes it out of the queue: only
    /// [`MatchedMessage::recv`] gets it.
    ///
    /// # Errors
    /// Those of [`Team::probe`].
    pub fn mprobe<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<MatchedMessage<T>> {
        const WHAT: &str = "mprobe";
        let pattern = self.pattern(from.into(), tag.into())?;
        let told = Told::default();
        let check = || self.check_for(&pattern, WHAT, &told);
        let endpoint = self.messages(WHAT)?;
        let taken = endpoint.await_taken(&pattern, self.deadline(), WHAT, check);
        let taken = told.pass(self, taken)?;
        MatchedMessage::new(self, taken)
    }

    /// As [`Team::mprobe`], if a message is there. Never waits.
    pub fn improbe<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<MatchedMessage<T>>> {
        let pattern = self.pattern(from.into(), tag.into())?;
        let taken = self.messages("improbe")?.take(&pattern)?;
        taken.map(|taken| MatchedMessage::new(self, taken)).transpose()
    }
}
