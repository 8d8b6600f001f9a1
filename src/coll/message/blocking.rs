//! Calls that return when the message was sent, or has come.

use super::super::Team;
use super::name::{Source, Status, Tag};
use super::{MatchedMessage, Told, code, layout_code};
use crate::base::{Error, Rank, Result};
use crate::layout::{Datum, Shape};
use crate::p2p::{AT_ONCE, Buffer, Mode, Pattern, Place, Wish};

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
    /// `HITHER_EAGER_LIMIT`; in a node up to 64 KiB while there are buffers, see `HITHER_LEND_LIMIT`) go as
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
    #[inline]
    pub fn send<T: Datum>(&self, to: Rank, tag: u32, data: &[T]) -> Result<()> {
        if size_of_val(data) > AT_ONCE {
            return self.send_flat(to, tag, data);
        }
        let endpoint = self.messages("send")?;
        let letter = self.letter(to, tag, code::<T>())?;
        if endpoint.send_at_once(&letter, bytes(data)) {
            return Ok(());
        }
        self.send_late(to, tag, data)
    }

    /// What [`Team::send`] has not sent at once. Not inlined there: what it needs would be kept on the
    /// stack for each message.
    #[inline(never)]
    fn send_late<T: Datum>(&self, to: Rank, tag: u32, data: &[T]) -> Result<()> {
        self.send_flat(to, tag, data)
    }

    /// The general way of [`Team::send`].
    #[inline]
    fn send_flat<T: Datum>(&self, to: Rank, tag: u32, data: &[T]) -> Result<()> {
        let endpoint = self.messages("send")?;
        let letter = self.letter(to, tag, code::<T>())?;
        endpoint.send(letter, bytes(data), Mode::Standard, || self.deadline())
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
    #[inline]
    pub fn recv<T: Datum>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &mut [T],
    ) -> Result<Status> {
        let (from, tag) = (from.into(), tag.into());
        if size_of_val(into) > AT_ONCE {
            return self.recv_flat(from, tag, into);
        }
        let endpoint = self.messages("recv")?;
        if let Source::Rank(rank) = from {
            let pattern = self.pattern(from, tag)?;
            let to = (into.as_mut_ptr().cast(), size_of_val(into));
            // SAFETY: `into` is borrowed until this returns.
            let wish = unsafe { Wish::new(&pattern, to, (code::<T>(), size_of::<T>().max(1))) };
            if let Some(arrived) = wish.and_then(|wish| endpoint.receive_at_once(&wish)) {
                let expected = arrived.rank == rank.0;
                let status = || Ok(Status::of(arrived, size_of::<T>()));
                return if expected { status() } else { self.status(arrived, size_of::<T>()) };
            }
        }
        self.recv_late(from, tag, into)
    }

    /// What [`Team::recv`] has not found at once; not inlined there, see `send_late`.
    #[inline(never)]
    fn recv_late<T: Datum>(&self, from: Source, tag: Tag, into: &mut [T]) -> Result<Status> {
        self.recv_flat(from, tag, into)
    }

    /// The general way of [`Team::recv`].
    #[inline]
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
