//! Which message goes to which receive: the posted receives and the unexpected messages of one
//! process. Pure: no input, no output, no waiting; it has one owner at a time.
//!
//! ```text
//!   post(pattern)   --> earliest unexpected message that it takes, or it waits
//!   arrive(envelope)--> earliest posted receive that takes it, or it is unexpected
//!
//!   posted:      a receive is in one list, that of its form       unexpected: a message is in
//!     (context, source, tag)                                        one list per form
//!     (context, source,  * )   numbers in the order of posting      that has been asked for
//!     (context,   *   , tag)   decide between the four firsts
//!     (context,   *   ,  * )
//! ```
//! The order is MPI's: a message goes to the receive posted first among those that take it, a
//! receive gets the message that arrived first among those that it takes. Messages of one source
//! arrive in the order in which they were sent, so none of one source and context overtakes
//! another that the same receive would have taken.
//!
//! Receives that all have the same pattern, as that of a call that waits, or those of a window, stand in one
//! *line*: the pattern is compared with what arrives, and no table is searched. The first receive with
//! another one makes the line its pattern's list.
//!
//! Else everything costs the same for few entries and for many: a search in a hash table for each form
//! that receives of this context are posted in (at most four), and a step in a list. Messages are
//! always in the list of their exact envelope. Lists by a wildcard's form are built when a receive
//! or a probe of that form first looks for a message in that context, and kept from then on: so
//! the first one of a form costs a walk over what is there, and programs without wildcards pay for
//! none. In steady state nothing is allocated; memory stays as large as it has been needed.

mod contexts;
mod pattern;
mod queue;
mod table;

#[cfg(test)]
mod tests;

pub use pattern::{Envelope, Pattern};

use super::shown::Shown;
use crate::base::Slot;
use contexts::Contexts;
use pattern::{Form, Name};
use queue::{First, Label, Queue};
use std::sync::Arc;
use table::{Seed, Table};

/// Names a posted receive or an unexpected message for as long as it is in [`Matching`], and
/// nothing from then on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    index: u32,
    /// No two entries of either kind have the same.
    number: u64,
}

/// What became of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post<R, U> {
    /// It takes this message, which was unexpected until now.
    Matched(R, Envelope, U),
    /// It waits.
    Waiting(Key),
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrive<R> {
    /// It goes to this receive, which is no longer posted.
    Matched(Key, R),
    /// Nothing takes it; [`Matching::insert`] keeps it.
    Unexpected,
}

impl Label for Pattern {
    fn context(&self) -> u32 {
        self.context
    }

    #[inline]
    fn name(&self, _: usize) -> Name {
        Name::pattern(self)
    }
}

impl Label for Envelope {
    fn context(&self) -> u32 {
        self.context
    }

    #[inline]
    fn name(&self, list: usize) -> Name {
        Name::of(Form::EACH[list], self)
    }
}

/// Messages are always in their first list, that of the exact envelope.
const EXACT: u8 = 1;

/// Posted receives, each with an `R`, and unexpected messages, each with a `U`. See the
/// [module](self).
#[derive(Debug)]
pub struct Matching<R, U> {
    seed: Seed,
    /// Number of the latest entry.
    number: u64,
    contexts: Contexts,
    /// The pattern of all receives, if their list is apart.
    line: Option<Pattern>,
    posted: Queue<Pattern, R, 1>,
    unexpected: Queue<Envelope, U, 4>,
    /// Receives of the exact form by context and source; kept once it was needed.
    by_source: Option<Table<u32>>,
    /// What others may know of all this.
    shown: Arc<Shown>,
}

impl<R, U> Default for Matching<R, U> {
    fn default() -> Self {
        Matching::new()
    }
}

impl<R, U> Matching<R, U> {
    /// Two empty queues.
    pub fn new() -> Self {
        Matching::with_seed(Seed::random())
    }

    fn with_seed(seed: Seed) -> Self {
        Matching {
            seed,
            number: 0,
            contexts: Contexts::new(seed),
            line: None,
            posted: Queue::new(seed),
            unexpected: Queue::new(seed),
            by_source: None,
            shown: Arc::default(),
        }
    }

    /// What may be known without the queues, changed with them.
    pub(super) fn shown(&self) -> &Arc<Shown> {
        &self.shown
    }

    /// Receives that are posted.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Messages that are kept.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Whether no receive is posted and no message kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.posted.len() == 0 && self.unexpected.len() == 0
    }

    #[inline]
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Posts a receive: it gets the earliest of the unexpected messages that it takes, or waits.
    /// One search for a message if any are there, and two for its context and its list if it has
    /// to wait behind others of other patterns.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Post<R, U> {
        if self.unexpected.len() > 0
            && let Some((envelope, message)) = self.take(&pattern)
        {
            return Post::Matched(receive, envelope, message);
        }
        let number = self.next_number();
        self.shown.add(pattern.source);
        if self.posted.len() == 0 {
            self.line = Some(pattern);
            self.posted.set_apart();
        } else if self.line != Some(pattern) {
            self.join_line();
            self.count(&pattern, 1);
        }
        let index = self.posted.push(number, pattern, receive, EXACT);
        Post::Waiting(Key { index, number })
    }

    /// Receives are in lists from now on, and counted.
    #[inline]
    fn join_line(&mut self) {
        if let Some(pattern) = self.line.take() {
            self.posted.join();
            self.count(&pattern, self.posted.len() as u32);
        }
    }

    /// So many more receives are in the list of a pattern.
    fn count(&mut self, pattern: &Pattern, more: u32) {
        let form = pattern.form();
        self.contexts.entry(pattern.context).posted[form.index()] += more;
        if let (Form::Exact, Some(source), Some(counts)) =
            (form, pattern.source, &mut self.by_source)
        {
            let place = counts.entry(&Name::source(pattern.context, source));
            *counts.at_mut(place) += more;
        }
    }

    /// A message arrives: it goes to the receive that was posted first among those that take it.
    /// No search if they stand in line; else one for its context, and one for each form
    /// that receives are posted in there.
    #[inline]
    pub fn arrive(&mut self, envelope: &Envelope) -> Arrive<R> {
        if self.posted.len() == 0 {
            return Arrive::Unexpected;
        }
        let Some(line) = &self.line else { return self.arrive_listed(envelope) };
        if !line.takes(envelope) {
            return Arrive::Unexpected;
        }
        let Some((index, number, pattern, receive)) = self.posted.pop_apart() else {
            return Arrive::Unexpected;
        };
        self.shown.remove(pattern.source);
        Arrive::Matched(Key { index, number }, receive)
    }

    /// As [`Matching::arrive`], to a receive in a list.
    fn arrive_listed(&mut self, envelope: &Envelope) -> Arrive<R> {
        let Some(context) = self.contexts.get(envelope.context) else {
            return Arrive::Unexpected;
        };
        let mut earliest: Option<First> = None;
        for form in Form::EACH {
            if !context.has_posted(form) {
                continue;
            }
            if let Some(first) = self.posted.first(0, &Name::of(form, envelope))
                && earliest.is_none_or(|other| first.number < other.number)
            {
                earliest = Some(first);
            }
        }
        let Some(first) = earliest else { return Arrive::Unexpected };
        let (pattern, receive) = self.posted.pop(first);
        self.uncount(&pattern);
        Arrive::Matched(Key { index: first.index, number: first.number }, receive)
    }

    /// A receive is no longer in its list, nor posted.
    #[inline]
    fn uncount(&mut self, pattern: &Pattern) {
        self.shown.remove(pattern.source);
        if self.line.is_some() {
            return;
        }
        let form = pattern.form();
        if let Some(context) = self.contexts.get(pattern.context) {
            context.posted[form.index()] -= 1;
        }
        if let (Form::Exact, Some(source), Some(counts)) =
            (form, pattern.source, &mut self.by_source)
            && let Some(place) = counts.find(&Name::source(pattern.context, source))
        {
            *counts.at_mut(place) -= 1;
            if *counts.at(place) == 0 {
                counts.remove(place);
            }
        }
    }

    /// Keeps a message for which [`arrive`](Self::arrive) has just found nothing. One search for
    /// its context and one for each form of list that its context has.
    #[inline]
    pub fn insert(&mut self, envelope: Envelope, message: U) -> Key {
        let context = self.contexts.get(envelope.context);
        let lists = context.map_or(0, |context| context.indexed) | EXACT;
        let number = self.next_number();
        let index = self.unexpected.push(number, envelope, message, lists);
        self.shown.add(Some(envelope.source));
        Key { index, number }
    }

    /// The earliest message that `pattern` takes.
    #[inline]
    fn find(&mut self, pattern: &Pattern) -> Option<First> {
        if self.unexpected.len() == 0 { None } else { self.find_some(pattern) }
    }

    fn find_some(&mut self, pattern: &Pattern) -> Option<First> {
        let form = pattern.form();
        if form != Form::Exact {
            let context = self.contexts.entry(pattern.context);
            if context.indexed >> form.index() & 1 == 0 {
                context.indexed |= 1 << form.index();
                self.unexpected.build(form.index(), pattern.context);
            }
        }
        self.unexpected.first(form.index(), &Name::pattern(pattern))
    }

    /// The message that a receive with this pattern would get, if one is there. It stays.
    #[inline]
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(&Envelope, &U)> {
        let first = self.find(pattern)?;
        self.unexpected.get(first.index, first.number)
    }

    /// The message that a receive with this pattern would get, if one is there: taken out.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, U)> {
        let first = self.find(pattern)?;
        let (envelope, message) = self.unexpected.pop(first);
        self.shown.remove(Some(envelope.source));
        Some((envelope, message))
    }

    /// Takes back a posted receive. Nothing if a message came first (or if this was never the key
    /// of a receive).
    pub fn cancel(&mut self, key: Key) -> Option<R> {
        let (pattern, receive) = self.posted.remove(key.index, key.number)?;
        self.uncount(&pattern);
        Some(receive)
    }

    /// Takes out a message that is kept. Nothing if a receive took it.
    pub fn discard(&mut self, key: Key) -> Option<(Envelope, U)> {
        let (envelope, message) = self.unexpected.remove(key.index, key.number)?;
        self.shown.remove(Some(envelope.source));
        Some((envelope, message))
    }

    /// What is kept for a posted receive, as long as it is posted.
    #[inline]
    pub fn posted_mut(&mut self, key: Key) -> Option<&mut R> {
        self.posted.get_mut(key.index, key.number)
    }

    /// What is kept for an unexpected message, as long as it is here.
    #[inline]
    pub fn unexpected_mut(&mut self, key: Key) -> Option<&mut U> {
        self.unexpected.get_mut(key.index, key.number)
    }

    /// Every posted receive, in no particular order.
    pub fn posted(&self) -> impl Iterator<Item = (Key, &Pattern, &R)> {
        let all = self.posted.iter();
        all.map(|(index, number, pattern, r)| (Key { index, number }, pattern, r))
    }

    /// Every message that is kept, in no particular order.
    pub fn unexpected(&self) -> impl Iterator<Item = (Key, &Envelope, &U)> {
        self.unexpected.iter().map(|(index, number, envelope, u)| {
            let key = Key { index, number };
            (key, envelope, u)
        })
    }

    /// Whether a receive is posted that could take a message that `pattern` takes too; asked
    /// before a receive with that pattern is posted, it says whether that one will have to wait
    /// for others. At most four searches if the pattern names a source; the first such question
    /// with any tag walks over the posted receives, and each with one tag of any source does.
    pub fn has_rival(&mut self, pattern: &Pattern) -> bool {
        if let Some(line) = &self.line {
            return self.posted.len() > 0 && line.overlaps(pattern);
        }
        let Some(context) = self.contexts.get(pattern.context) else {
            return false;
        };
        let context = *context;
        let posted = |form: Form| context.has_posted(form);
        let listed = |form: Form, source: Slot, tag: u32| {
            let envelope = Envelope { context: pattern.context, source, tag };
            posted(form) && self.posted.has(&Name::of(form, &envelope))
        };
        if posted(Form::All) {
            return true;
        }
        match (pattern.source, pattern.tag) {
            (Some(source), Some(tag)) => {
                [Form::Exact, Form::Source, Form::Tag].iter().any(|&f| listed(f, source, tag))
            }
            (Some(source), None) => {
                posted(Form::Tag)
                    || listed(Form::Source, source, 0)
                    || posted(Form::Exact) && self.names(pattern.context, source)
            }
            (None, Some(_)) => {
                posted(Form::Source) || self.posted.iter().any(|(_, _, p, _)| p.overlaps(pattern))
            }
            (None, None) => [Form::Exact, Form::Source, Form::Tag].into_iter().any(posted),
        }
    }

    /// Whether a receive of the exact form is posted for this source.
    fn names(&mut self, context: u32, source: Slot) -> bool {
        let counts = self.by_source.get_or_insert_with(|| {
            let mut counts = Table::new(self.seed);
            for (_, _, pattern, _) in self.posted.iter() {
                if let (Some(source), Some(_)) = (pattern.source, pattern.tag) {
                    let place = counts.entry(&Name::source(pattern.context, source));
                    *counts.at_mut(place) += 1;
                }
            }
            counts
        });
        counts.find(&Name::source(context, source)).is_some()
    }

    /// Takes out the receives that name this source, and the messages that it sent; of both in
    /// the order in which they came. Walks over all there are.
    pub fn remove_source(&mut self, source: Slot) -> Removed<R, U> {
        self.remove_where(|pattern| pattern.source == Some(source), |e| e.source == source)
    }

    /// Takes out everything that belongs to a context, and forgets that there was one. Walks over
    /// all there is.
    pub fn remove_context(&mut self, context: u32) -> Removed<R, U> {
        let removed = self.remove_where(|p| p.context == context, |e| e.context == context);
        self.contexts.remove(context);
        removed
    }

    fn remove_where(
        &mut self,
        posted: impl Fn(&Pattern) -> bool,
        unexpected: impl Fn(&Envelope) -> bool,
    ) -> Removed<R, U> {
        let mut receives: Vec<Key> =
            self.posted().filter(|(_, pattern, _)| posted(pattern)).map(|(key, ..)| key).collect();
        let mut messages: Vec<Key> =
            self.unexpected().filter(|(_, e, _)| unexpected(e)).map(|(key, ..)| key).collect();
        receives.sort_unstable_by_key(|key| key.number);
        messages.sort_unstable_by_key(|key| key.number);
        let mut removed = Removed { posted: Vec::new(), unexpected: Vec::new() };
        for key in receives {
            if let Some((pattern, receive)) = self.posted.remove(key.index, key.number) {
                self.uncount(&pattern);
                removed.posted.push((key, pattern, receive));
            }
        }
        for key in messages {
            let message = self.discard(key);
            removed.unexpected.extend(message.map(|(envelope, u)| (key, envelope, u)));
        }
        removed
    }
}

/// What was taken out together.
#[derive(Debug)]
pub struct Removed<R, U> {
    /// Receives, in the order in which they were posted.
    pub posted: Vec<(Key, Pattern, R)>,
    /// Messages, in the order in which they came.
    pub unexpected: Vec<(Key, Envelope, U)>,
}
