//! What is known of each context in which something was posted, or looked for by a wildcard.

use super::pattern::{Form, Name};
use super::table::{Place, Seed, Table};

/// See the [module](self).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Context {
    /// Posted receives by their form.
    pub posted: [u32; 4],
    /// Bit `i`: its unexpected messages are in lists of form `i`.
    pub indexed: u8,
}

impl Context {
    #[inline]
    pub fn has_posted(&self, form: Form) -> bool {
        self.posted[form.index()] > 0
    }
}

/// A table of them that remembers where the latest one was: messages of one context mostly come
/// one after the other, and find it without a search.
#[derive(Debug)]
pub(super) struct Contexts {
    table: Table<Context>,
    latest: Option<(u32, Place)>,
}

impl Contexts {
    pub fn new(seed: Seed) -> Contexts {
        Contexts { table: Table::new(seed), latest: None }
    }

    #[inline]
    fn find(&mut self, context: u32) -> Option<Place> {
        match self.latest {
            Some((latest, place)) if latest == context => Some(place),
            _ => {
                let place = self.table.find(&Name::context(context))?;
                self.latest = Some((context, place));
                Some(place)
            }
        }
    }

    #[inline]
    pub fn get(&mut self, context: u32) -> Option<&mut Context> {
        self.find(context).map(|place| self.table.at_mut(place))
    }

    /// The record of `context`, made if there is none.
    #[inline]
    pub fn entry(&mut self, context: u32) -> &mut Context {
        let place = match self.find(context) {
            Some(place) => place,
            None => {
                let place = self.table.entry(&Name::context(context));
                self.latest = Some((context, place));
                place
            }
        };
        self.table.at_mut(place)
    }

    /// Forgets `context`.
    pub fn remove(&mut self, context: u32) {
        if let Some(place) = self.find(context) {
            self.table.remove(place);
            // Others may have moved.
            self.latest = None;
        }
    }

    /// Places that there is memory for.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.table.places()
    }
}
