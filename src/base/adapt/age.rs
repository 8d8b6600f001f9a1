//! How long the buffers of a pool have not been needed, and when to free them.
//!
//! ```text
//!   busy   4      _                 the most that were busy at once in the last `age`: that many
//!          2  ___| |____    __      stay, the others are free to go
//!          0            |__|
//!             |8 |7 |6 |5 |4 |3 |2 |1 |now       a mark per eighth of the age
//! ```
//! Paper 000 §4.4: buffers have weights, and go only if they were not used for a period that can be
//! set, so that phases of a program with little communication do not free what the next phase
//! makes anew. Here the weight is the pool's, since all of its buffers are alike: if buffers are
//! missed within [`REGRET`] ages after some were freed, freeing them was wrong, and the age doubles
//! (up to [`MOST_WEIGHT`] times the one that was set); if they were not, the age is halved again.
//!
//! So buffers are made anew at most once per age, whatever the program does. Over a time `T` they
//! are made anew no more than `7 + 2 T / (5 age)` times, and not at all once the age has outgrown
//! the pauses between phases; those longer than five ages it does not outgrow, since for four
//! fifths of them the memory is better used by others.

/// Marks per age.
const MARKS: usize = 8;

/// Ages after which it was right to free buffers.
pub const REGRET: u64 = 4;

/// The age is at most so many times the one that was set.
pub const MOST_WEIGHT: u64 = 64;

/// See the module. Times are nanoseconds since any one time.
#[derive(Clone, Debug)]
pub struct Age {
    /// As it was set.
    set: u64,
    /// A power of two, at most [`MOST_WEIGHT`].
    weight: u64,
    /// The most that were busy at once: in the current eighth, and in those before.
    marks: [u32; MARKS + 1],
    /// When the current eighth began.
    began: u64,
    /// When buffers were freed, if that is still to be judged.
    freed: Option<u64>,
}

impl Age {
    /// Of a pool that is made now, with an age of `set` nanoseconds. All of its buffers count as
    /// having been busy.
    pub fn new(set: u64, now: u64) -> Age {
        let set = set.clamp(MARKS as u64, u64::MAX / (MOST_WEIGHT * REGRET * 4));
        Age { set, weight: 1, marks: [u32::MAX; MARKS + 1], began: now, freed: None }
    }

    /// The age at present.
    pub fn length(&self) -> u64 {
        self.set * self.weight
    }

    /// An eighth of it: how exactly it is kept.
    pub fn eighth(&self) -> u64 {
        self.length() / MARKS as u64
    }

    /// So many are busy, and have been since the last call.
    fn pass(&mut self, busy: u32, now: u64) {
        let passed = now.saturating_sub(self.began) / self.eighth();
        if passed > 0 {
            let passed_marks = passed.min(self.marks.len() as u64) as usize;
            self.marks.rotate_right(passed_marks);
            self.marks[..passed_marks].fill(busy);
            self.began += passed * self.eighth();
        }
        if let Some(freed) = self.freed
            && now.saturating_sub(freed) >= REGRET * self.length()
        {
            self.freed = None;
            self.weigh(self.weight / 2);
        }
    }

    fn weigh(&mut self, weight: u64) {
        self.weight = weight.clamp(1, MOST_WEIGHT);
    }

    /// Of the pool's buffers `before` were busy until now, and `busy` are from now on.
    #[inline]
    pub fn note(&mut self, before: u32, busy: u32, now: u64) {
        self.pass(before, now);
        self.marks[0] = self.marks[0].max(busy);
    }

    /// A buffer was wanted and none was free, while `busy` were busy. All that there are going to
    /// be are needed for an age.
    pub fn missed(&mut self, busy: u32, now: u64) {
        self.pass(busy, now);
        self.marks[0] = u32::MAX;
        if self.freed.take().is_some() {
            self.weigh(self.weight * 2);
        }
    }

    /// Buffers that were needed within the last age, while `busy` are busy. [`u32::MAX`]: all.
    pub fn needed(&mut self, busy: u32, now: u64) -> u32 {
        self.pass(busy, now);
        self.marks.iter().fold(busy, |most, mark| most.max(*mark))
    }

    /// Buffers have been freed.
    pub fn freed(&mut self, now: u64) {
        self.freed = Some(now);
    }
}
