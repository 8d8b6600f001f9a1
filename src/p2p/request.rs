//! Sends and receives that go on after the call that began them, with what they own.

use super::endpoint::Endpoint;
use super::matching::{Key, Pattern};
use super::record::{Arrived, Buffer, Place, Record};
use super::send::{How, Letter, Mode, Now};
use super::watch::Watch;
use crate::base::sync::UnsafeCell;
use crate::base::{Deadline, Error, Result, Slot};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

/// A record, and the buffer that it is about: nobody else has a reference to either until it is
/// done.
pub(crate) struct Owned<B> {
    record: Record,
    buffer: UnsafeCell<Option<B>>,
}

// SAFETY: the buffer is touched by the one that takes it out, once, after the record was done.
unsafe impl<B: Send> Sync for Owned<B> {}

impl<B: Send + 'static> Owned<B> {
    /// A record whose place lies in `buffer`'s memory, which moving `buffer` does not move.
    pub fn new(record: Record, buffer: B) -> Arc<Owned<B>> {
        Arc::new(Owned { record, buffer: UnsafeCell::new(Some(buffer)) })
    }
}

/// What goes on.
#[derive(Clone, Copy, Debug)]
enum What {
    Send(Slot),
    Receive(Pattern, Option<Key>),
}

/// A send or receive that goes on. Dropping it lets it go on: what it owns stays with the engine.
pub(crate) struct Going<B> {
    endpoint: Arc<Endpoint>,
    owned: Arc<Owned<B>>,
    what: What,
    watch: Watch,
}

impl<B: Send + 'static> Going<B> {
    /// Begins a send.
    pub fn send(
        endpoint: &Arc<Endpoint>,
        letter: &Letter,
        owned: Arc<Owned<B>>,
        mode: Mode,
    ) -> Result<Going<B>> {
        let watch = endpoint.watch(Some(letter.to), owned.record.buffer.place.len());
        let busy = endpoint.busy(&watch);
        let how = How { borrowed: false, blocks: false, tried: false };
        endpoint.begin_send(letter, &owned.record, owned.clone(), mode, how)?;
        drop(busy);
        Ok(Going { endpoint: endpoint.clone(), owned, what: What::Send(letter.to), watch })
    }

    /// Begins a receive.
    pub fn receive(endpoint: &Arc<Endpoint>, pattern: &Pattern, owned: Arc<Owned<B>>) -> Going<B> {
        let watch = endpoint.watch(pattern.source, owned.record.buffer.place.len());
        let key = endpoint.begin_receive(pattern, &owned.record, owned.clone());
        Going { endpoint: endpoint.clone(), owned, what: What::Receive(*pattern, key), watch }
    }

    /// Whether it is over. One load.
    pub fn is_over(&self) -> bool {
        self.owned.record.is_done()
    }

    /// Makes progress; whether it is over.
    pub fn test(&self) -> Result<bool> {
        self.endpoint.admit("test")?;
        self.endpoint.asked_for(&self.watch);
        if !self.is_over() {
            self.endpoint.progress()?;
            let peer = match self.what {
                What::Send(to) => Some(to),
                What::Receive(pattern, _) => pattern.source,
            };
            if !self.is_over() && peer.is_some_and(|peer| self.endpoint.node.is_dead(peer)) {
                self.mourn()?;
            }
        }
        Ok(self.is_over())
    }

    /// Has `waker` woken when it is over, or when whoever has to do its part is gone; true if it is
    /// over.
    pub fn keep_waker(&self, waker: &Waker) -> bool {
        let peer = match self.what {
            What::Send(to) => Some(to),
            What::Receive(pattern, _) => pattern.source,
        };
        self.endpoint.keep_waker(&self.owned.record, peer, waker)
    }

    /// If whoever has to do its part is known to be gone, ends it.
    pub fn mourn(&self) -> Result<()> {
        let peer = match self.what {
            What::Send(to) => Some(to),
            What::Receive(pattern, _) => pattern.source,
        };
        match peer.filter(|_| !self.is_over()) {
            Some(peer) => self.endpoint.mourn(peer).map(drop),
            None => Ok(()),
        }
    }

    /// Waits for its end.
    pub fn wait(
        &self,
        deadline: Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.endpoint.admit(during)?;
        let record = &self.owned.record;
        let _waiting = self.endpoint.waiting(&self.watch);
        match self.what {
            What::Send(to) => self.endpoint.await_sent(record, to, deadline, check),
            What::Receive(pattern, key) => {
                self.endpoint.await_attended(&pattern, key, record, deadline, during, check)
            }
        }
    }

    /// Takes outcome and buffer, once, when it is over.
    pub fn finish(&self) -> (Result<Arrived>, Option<B>) {
        match self.owned.record.take() {
            Some(outcome) => {
                // SAFETY: the record is done, and its outcome is had once.
                (outcome, self.owned.buffer.with_mut(|buffer| unsafe { (*buffer).take() }))
            }
            None => {
                let why = "it is not over, or its result was taken".into();
                (Err(Error::Misuse { what: "a request", why }), None)
            }
        }
    }

    /// Cancels a receive: its buffer, if no message had come.
    pub fn cancel(&self) -> Option<B> {
        let What::Receive(_, key) = self.what else { return None };
        if !self.endpoint.cancel(&self.owned.record, key) {
            return None;
        }
        self.finish().1
    }
}

impl<B> Drop for Going<B> {
    fn drop(&mut self) {
        if self.owned.record.is_armed() {
            self.endpoint.messenger.awaited.forget(&self.owned.record);
        }
    }
}

/// Records of receives, which stay where they are until all of them go. Made a chunk at a time: an
/// allocation for each would take longer than the rest of a short receive.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// None is ever longer than was reserved, so none is moved.
    chunks: Vec<Vec<Record>>,
}

/// Records of the first chunk; each other one has twice as many as the one before, up to the most.
const FIRST_CHUNK: usize = 4;
const LARGEST_CHUNK: usize = 256;

impl Records {
    /// None yet.
    pub const fn new() -> Records {
        Records { chunks: Vec::new() }
    }

    /// Drops all, of which nobody knows any more; the memory of up to so many is kept.
    pub fn clear(&mut self, most: usize) {
        let largest = self.chunks.pop();
        self.chunks.clear();
        if let Some(mut chunk) = largest {
            chunk.clear();
            self.chunks.extend(Some(chunk).filter(|chunk| chunk.capacity() <= most));
        }
    }

    /// Keeps a record for a buffer, which is made where it stays.
    #[inline]
    pub fn keep(&mut self, buffer: Buffer) -> NonNull<Record> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == chunk.capacity());
        if full {
            let room = self.chunks.last().map_or(FIRST_CHUNK, |chunk| 2 * chunk.capacity());
            self.chunks.push(Vec::with_capacity(room.min(LARGEST_CHUNK)));
        }
        let chunk = self.chunks.len() - 1;
        let chunk = &mut self.chunks[chunk];
        let at = chunk.len();
        // Written where it stays, rather than moved there.
        chunk.spare_capacity_mut()[0].write(Record::new(buffer));
        // SAFETY: one more was just written. The others, which the engine has, are not touched by a reference.
        unsafe {
            chunk.set_len(at + 1);
            NonNull::new_unchecked(chunk.as_mut_ptr().add(at))
        }
    }
}

/// A send or receive whose memory is borrowed: it must be waited for, or given up, before the
/// borrow ends.
pub(crate) struct Borrowed {
    record: Recorded,
    what: What,
    watch: Watch,
}

/// Where its record is.
enum Recorded {
    /// The engine keeps it, too, until it is done: for a send may be on its way from one queue to the next.
    Shared(Arc<Record>),
    /// With others; whoever began it keeps them.
    Kept(NonNull<Record>),
}

impl Borrowed {
    /// Begins a send; nothing if it is over, too.
    ///
    /// # Safety
    /// [`Borrowed::end`] is called while the place is still good.
    pub unsafe fn send(
        endpoint: &Endpoint,
        letter: &Letter,
        place: Place,
        mode: Mode,
    ) -> Result<Option<Borrowed>> {
        let watch = endpoint.watch(Some(letter.to), place.len());
        let busy = endpoint.busy(&watch);
        let now = endpoint.send_now(letter, &place, mode, false)?;
        if now == Now::Sent {
            return Ok(None);
        }
        let how = How { borrowed: true, blocks: false, tried: now == Now::Tried };
        let record = Arc::new(Record::new(Buffer::new(place, letter.element, 1)));
        endpoint.begin_send(letter, &record, record.clone(), mode, how)?;
        drop(busy);
        let record = Recorded::Shared(record);
        Ok(Some(Borrowed { record, what: What::Send(letter.to), watch }))
    }

    /// Begins a receive.
    ///
    /// # Safety
    /// As for [`Borrowed::send`]; and the [`Records`] that keep its record are dropped after that.
    pub unsafe fn receive(
        endpoint: &Endpoint,
        pattern: &Pattern,
        record: NonNull<Record>,
    ) -> Borrowed {
        // SAFETY: the caller's.
        let given = unsafe { record.as_ref() };
        let watch = endpoint.watch(pattern.source, given.buffer.place.len());
        // SAFETY: the caller's: it is ended or given up before it goes.
        let key = unsafe { endpoint.post(pattern, given, false) };
        Borrowed { record: Recorded::Kept(record), what: What::Receive(*pattern, key), watch }
    }

    #[inline]
    fn record(&self) -> &Record {
        match &self.record {
            Recorded::Shared(record) => record,
            // SAFETY: kept as long as this, by whoever began it.
            Recorded::Kept(record) => unsafe { record.as_ref() },
        }
    }

    /// What it takes, of a receive.
    #[inline]
    pub fn pattern(&self) -> Option<Pattern> {
        match self.what {
            What::Send(_) => None,
            What::Receive(pattern, _) => Some(pattern),
        }
    }

    /// Whether it is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.record().is_done()
    }

    /// The outcome of one that is over, and that nobody waited for. Once.
    #[inline]
    pub fn outcome(&self, endpoint: &Endpoint) -> Result<Arrived> {
        endpoint.asked_for(&self.watch);
        self.record().take().unwrap_or_else(|| Ok(Arrived::default()))
    }

    /// The program asks whether it is over.
    pub fn asked_for(&self, endpoint: &Endpoint) {
        endpoint.asked_for(&self.watch);
    }

    /// What came, of one that is over and that nobody waited for, if all is well; else see [`Borrowed::outcome`].
    #[inline(always)]
    pub fn arrived(&self, endpoint: &Endpoint) -> Option<Arrived> {
        let arrived = self.record().take_arrived()?;
        endpoint.asked_for(&self.watch);
        Some(arrived)
    }

    /// The caller waits for it from now on, though for others first: it does nothing else meanwhile.
    #[inline]
    pub fn attend(&self, endpoint: &Endpoint) {
        match self.what {
            What::Send(_) => endpoint.attend_send(self.record()),
            What::Receive(_, key) => endpoint.attend_receive(self.record(), key),
        }
    }

    /// Waits for the end until the deadline, then gives it up: its memory is nobody's any more
    /// when this returns.
    pub fn end(
        &self,
        endpoint: &Endpoint,
        deadline: Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        let waiting = endpoint.waiting(&self.watch);
        let (waited, given_up) = match self.what {
            What::Send(to) => {
                let waited = endpoint.await_sent(self.record(), to, deadline, || Ok(()));
                let given_up = waited.is_err() && endpoint.give_up_send(self.record(), to);
                (waited, given_up)
            }
            What::Receive(pattern, key) => {
                let record = self.record();
                let waited =
                    endpoint.await_attended(&pattern, key, record, deadline, during, check);
                let given_up = waited.is_err() && endpoint.give_up_receive(record, key);
                (waited, given_up)
            }
        };
        drop(waiting);
        match waited {
            Err(error) if given_up => Err(error),
            _ => self.record().take().unwrap_or_else(|| Ok(Arrived::default())),
        }
    }

    /// Gives it up at once.
    pub fn give_up(&self, endpoint: &Endpoint) {
        match self.what {
            What::Send(to) => endpoint.give_up_send(self.record(), to),
            What::Receive(_, key) => endpoint.give_up_receive(self.record(), key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(records: &mut Records, many: usize) -> Vec<NonNull<Record>> {
        let buffer = || {
            // SAFETY: of no bytes.
            let place = unsafe { Place::flat(NonNull::dangling().as_ptr(), 0) };
            Buffer::new(place, 1, 1)
        };
        (0..many).map(|_| records.keep(buffer())).collect()
    }

    /// None is moved by those that come after it, nor is there memory of many left behind.
    #[test]
    fn records_stay_where_they_are_and_memory_of_many_goes() {
        let mut records = Records::new();
        for (many, kept) in [(1, true), (50, true), (64, true), (500, false), (3, true)] {
            let all = keep(&mut records, many);
            let apart: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(apart.len(), many);
            // SAFETY: kept until they are cleared.
            assert!(all.iter().all(|record| !unsafe { record.as_ref() }.is_done()));
            records.clear(64);
            assert_eq!(records.chunks.len(), usize::from(kept), "after {many}");
            assert!(records.chunks.iter().all(|it| it.is_empty() && it.capacity() <= 64));
        }
    }
}
