//! Where the parts of a window lie, in constant memory per process (paper 001 §3.4.1).
//!
//! An operation needs the target's [`Entry`]: where its part begins, its size, its displacement
//! unit. A table of them takes O(P) memory in every process. Here instead:
//!
//! ```text
//! form          what a process keeps             entry(rank)                       when
//! symmetric     nothing                          the arithmetic of the heap        allocate
//! same          one entry                        that one                          all equal
//! cycle         up to 8 entries and a step       a division, a sum for each field  found by vote
//! runs          a pattern per field, <= 1.1 KiB  field by field (see `pattern`)    found by vote
//! looked up     nothing                          a load from the node's one copy   in the node
//! fetched       its own share, O(1) (`homes`),   a hit in the cache, or a get      across nodes
//!               and 32 lines of cache (`cache`)  from the entry's home member
//! ```
//! Which of them is chosen from the values when the window is made, by all members together and
//! without any of them ever holding them all (`find`): a window that looks irregular to its
//! program (bases that follow each other, units that differ between odd and even ranks, another
//! size on the last rank) mostly is not.

pub mod cache;
mod find;
pub mod homes;
pub mod pattern;
mod rows;

use crate::base::{Error, Result};
use crate::coll::Team;
use crate::layout::op::combine_slices;
use cache::{Cache, Fetch};
use find::Finder;
use pattern::Pattern;
use rows::Rows;

/// Fields of an entry.
pub(crate) const FIELDS: usize = 4;

/// What an origin needs to know about a member's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where the part begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes per displacement.
    pub unit: u32,
    /// How it is reached.
    pub reach: u32,
}

impl Entry {
    /// Words that hold an entry.
    pub const WORDS: usize = 3;

    /// The entry as words, for shares and packets.
    #[inline]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.offset, self.bytes, u64::from(self.unit) | u64::from(self.reach) << 32]
    }

    /// The entry of such words.
    #[inline]
    pub fn from_words(words: [u64; Self::WORDS]) -> Entry {
        let [offset, bytes, rest] = words;
        Entry { offset, bytes, unit: rest as u32, reach: (rest >> 32) as u32 }
    }

    fn fields(self) -> [u64; FIELDS] {
        [self.offset, self.bytes, self.unit.into(), self.reach.into()]
    }

    fn from_fields([offset, bytes, unit, reach]: [u64; FIELDS]) -> Entry {
        Entry { offset, bytes, unit: unit as u32, reach: reach as u32 }
    }
}

/// What a process keeps to find the entries of a window's members.
#[derive(Debug)]
pub struct Directory {
    size: u32,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Same(Entry),
    Cycle(Box<Rows>),
    Computed(Box<[Pattern; FIELDS]>),
    LookedUp,
    Fetched(Box<Cache>),
}

impl Directory {
    /// Finds the smallest form for the entries of a team. Collective; `table` is the node's copy
    /// of all entries, of which a member looks at its own and its two left neighbours'.
    ///
    /// Cost: two all-reduces if there is a period; one more if there is none, and two for each of
    /// up to `find::BREAKS` places where one stretch of ranks ends and another begins. Constant
    /// memory.
    pub fn create(team: &Team, table: impl Fn(u32) -> Entry) -> Result<Directory> {
        let rank = team.rank().0;
        let mut finder = Finder::new(team.size(), rank, neighbourhood(&table, rank));
        while let Some((op, words)) = finder.ask() {
            team.allreduce(op, words)?;
            finder.learn();
        }
        Ok(Directory { size: team.size(), form: Self::form(finder.found()) })
    }

    /// What [`Directory::create`] finds, by one process that holds all entries, as in a
    /// simulation of a larger machine. Constant memory; goes over the entries once per round.
    pub fn of(size: u32, table: impl Fn(u32) -> Entry) -> Directory {
        let mut finder = Finder::new(size, 0, neighbourhood(&table, 0));
        loop {
            let mut all: Vec<u64> = Vec::new();
            for rank in 0..size {
                finder.become_member(rank, neighbourhood(&table, rank));
                let Some((op, words)) = finder.ask() else {
                    return Directory { size, form: Self::form(finder.found()) };
                };
                if rank == 0 {
                    all.extend_from_slice(words);
                } else {
                    combine_slices(op, &mut all, words);
                }
            }
            if let Some((_, words)) = finder.ask() {
                words.copy_from_slice(&all);
            }
            finder.learn();
        }
    }

    /// Entries that are fetched from their homes, `lines` of them cached.
    pub fn fetched(size: u32, lines: usize) -> Directory {
        Directory { size, form: Form::Fetched(Box::new(Cache::new(lines))) }
    }

    /// Entries that are looked up in the node's copy.
    pub fn looked_up(size: u32) -> Directory {
        Directory { size, form: Form::LookedUp }
    }

    fn form(found: Option<[Pattern; FIELDS]>) -> Form {
        let Some(patterns) = found else { return Form::LookedUp };
        if patterns.iter().all(|pattern| matches!(pattern, Pattern::Same(_))) {
            return Form::Same(Entry::from_fields(patterns.each_ref().map(|p| p.at(0))));
        }
        if let Some(rows) = Rows::new(&patterns) {
            return Form::Cycle(Box::new(rows));
        }
        Form::Computed(Box::new(patterns))
    }

    /// The entry of `rank`, if it can be computed: nothing shared is touched. Some arithmetic;
    /// a division where the pattern has a period.
    #[inline]
    pub fn computed(&self, rank: u32) -> Option<Entry> {
        match &self.form {
            Form::Same(entry) => Some(*entry),
            Form::Cycle(rows) => Some(rows.at(rank)),
            Form::Computed(patterns) => {
                Some(Entry::from_fields(patterns.each_ref().map(|p| p.at(rank))))
            }
            Form::LookedUp | Form::Fetched(_) => None,
        }
    }

    /// The entry of `rank`: computed, cached, or fetched by `fetch`. Costs what the form's row in
    /// the table above says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that is none of the team; what `fetch` returns.
    #[inline]
    pub fn entry(&self, rank: u32, fetch: &impl Fetch) -> Result<Entry> {
        if rank >= self.size {
            return Err(self.refuse(rank));
        }
        match &self.form {
            Form::Fetched(cache) => cache.entry(rank, fetch),
            Form::LookedUp => fetch.fetch(rank),
            _ => self.computed(rank).map_or_else(|| fetch.fetch(rank), Ok),
        }
    }

    #[cold]
    fn refuse(&self, rank: u32) -> Error {
        let why = format!("{rank} is not a rank of a team of {}", self.size);
        Error::invalid("the target of an operation", why)
    }

    /// Bytes that this process keeps privately, this structure included.
    pub fn private_bytes(&self) -> usize {
        let more = match &self.form {
            Form::Same(_) | Form::LookedUp => 0,
            Form::Cycle(rows) => size_of_val(&**rows),
            Form::Computed(patterns) => {
                size_of_val(&**patterns) + patterns.iter().map(Pattern::heap_bytes).sum::<usize>()
            }
            Form::Fetched(cache) => cache.private_bytes(),
        };
        size_of::<Directory>() + more
    }

    /// Name of the form, for reports.
    pub fn name(&self) -> &'static str {
        match &self.form {
            Form::Same(_) => "same",
            Form::Cycle(_) => "cycle",
            Form::Computed(_) => "runs",
            Form::LookedUp => "looked up",
            Form::Fetched(_) => "fetched",
        }
    }
}

/// The entries of a member and of its two left neighbours, as far as there are any.
fn neighbourhood(table: &impl Fn(u32) -> Entry, rank: u32) -> [Entry; 3] {
    [0, 1, 2].map(|by| rank.checked_sub(by).map_or(Entry::default(), table))
}

const _: () = assert!(size_of::<Directory>() <= 48);

#[cfg(test)]
mod tests;
