//! What is not needed any more and whose drop may run code of the program's: handlers, wakers, what
//! a request brought along.
//!
//! ```text
//!   with a lock held:  spent.keep(..)          lock released:  dropped
//! ```
//! A closure may own its window, a waker a request: dropping either calls this library, which takes
//! the locks. So nothing of the kind is dropped with one held. [`Held`] is a lock that sees to it;
//! under the engine's lock, which is held around it, what is spent stays until
//! [`Foreign::pump`](crate::rma::foreign::Foreign::pump) hands it on.

use super::arriving::Told;
use super::message::{Message, Waiting};
use crate::am::entry::Entry;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the [module](self). Empty unless something of the program's is let go of: costs nothing
/// otherwise.
#[derive(Default)]
pub(super) struct Spent(Vec<Box<dyn Any + Send>>);

impl std::fmt::Debug for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spent({})", self.0.len())
    }
}

impl Spent {
    /// Takes something whatever it is.
    pub fn keep(&mut self, it: impl Any + Send) {
        self.0.push(Box::new(it));
    }

    /// A handler, whose last reference this may be.
    pub fn entry(&mut self, entry: Arc<Entry>) {
        if let Some(last) = Arc::into_inner(entry) {
            self.keep(last);
        }
    }

    /// What a message's first unit told.
    pub fn told(&mut self, told: Option<Arc<Told>>) {
        if let Some(Told { entry, .. }) = told.and_then(Arc::into_inner) {
            self.entry(entry);
        }
    }

    /// Who waited for a message.
    pub fn waiting(&mut self, waiting: Waiting) {
        if let Waiting::Request { parcel, waker } = waiting {
            self.0.push(parcel);
            if let Some(waker) = waker {
                self.keep(waker);
            }
        }
    }

    /// A message.
    pub fn message(&mut self, message: Message) {
        self.entry(message.entry);
        self.waiting(message.waiting);
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<dyn Any + Send>> + '_ {
        self.0.drain(..)
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        for it in self.0.drain(..) {
            // A panic of one, which is the program's, is reported by its hook, and keeps the
            // others from nothing.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(it)));
        }
    }
}

/// What has something spent.
pub(super) trait Spends {
    /// That.
    fn spent(&mut self) -> &mut Spent;
}

/// A lock, held, that drops what is spent after its release; unless the engine's lock is held too.
pub(super) struct Held<'l, T: Spends> {
    guard: Option<MutexGuard<'l, T>>,
    within: bool,
}

impl<'l, T: Spends> Held<'l, T> {
    /// Takes a lock where no other is held.
    pub fn alone(lock: &'l Mutex<T>) -> Held<'l, T> {
        Held::of(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a lock where the engine's may be held.
    pub fn within(lock: &'l Mutex<T>) -> Held<'l, T> {
        let mut held = Held::alone(lock);
        held.within = true;
        held
    }

    /// A lock that is held already, and no other.
    pub fn of(guard: MutexGuard<'l, T>) -> Held<'l, T> {
        Held { guard: Some(guard), within: false }
    }

    /// The guard itself, to wait with: what is spent stays.
    pub fn into_guard(mut self) -> MutexGuard<'l, T> {
        self.guard.take().expect("only drop takes it otherwise")
    }
}

impl<T: Spends> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("only drop takes it")
    }
}

impl<T: Spends> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("only drop takes it")
    }
}

impl<T: Spends> Drop for Held<'_, T> {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        if self.within || guard.spent().is_empty() {
            return;
        }
        let spent = std::mem::take(guard.spent());
        drop(guard);
        drop(spent);
    }
}
