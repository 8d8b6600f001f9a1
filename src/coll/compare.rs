//! Calls that differ, found where members on several nodes wait for each other in vain.
//!
//! ```text
//!   waits for a member on another node -- the number of its call, and what it is --> that member
//!                                         compares it with its own of that number, when it waits
//! ```
//! In a node everybody sees what the others are in (`core`). Between nodes messages of a call carry
//! a word of it; but members in different calls may all wait, and none send. So whoever has waited
//! for a while says now and then in what, to whom it waits for: of a circle of those, one learns it.
//! Who does not wait takes what was said to it when its next call begins, and forgets what is old.

use super::aside::{About, hear, say};
use super::call::Call;
use super::sign::describe;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result};
use std::sync::PoisonError;

/// Looks in vain before the first word, and between two.
const FIRST: u32 = 3;
const AGAIN: u32 = 256;
/// Where the algorithm stands in a call's first word, which may be another on each node.
const ALGORITHM: u64 = 0xff00;

/// The call of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Other {
    rank: u32,
    number: u32,
    words: [u64; 2],
}

impl Other {
    const BYTES: usize = 20;

    fn encode(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        self.number.to_le_bytes().into_iter().chain(words).collect()
    }

    fn decode(rank: u32, bytes: &[u8; Other::BYTES]) -> Other {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Other { rank, number, words: [word(4), word(12)] }
    }

    /// Whether it is another call than one of the same number.
    fn differs(&self, words: [u64; 2]) -> bool {
        self.words[0] & !ALGORITHM != words[0] & !ALGORITHM || self.words[1] != words[1]
    }
}

impl Call<'_> {
    /// Tells `peer`, for whom this member waits, in what call it does, and looks at what others have
    /// said.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if somebody is in another one.
    pub fn compare(&self, peer: u32) -> Result<()> {
        let core = self.core();
        let Some(span) = self.span() else { return Ok(()) };
        let node = &core.block.node;
        let endpoint = span.endpoint(node)?;
        let mine = Other { rank: span.rank, number: self.number, words: self.course.sign.words() };
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if looks % AGAIN == FIRST {
            let (to, team) = (span.slot(node, peer)?, span.team_context());
            // Its end is another check's to find.
            let _ = say(endpoint, to, About::Calls, (team, span.rank), mine.encode());
        }
        self.take_in()?;
        let others = span.others.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&Other| other.number == self.number;
        match others.iter().filter(same).find(|other| other.differs(mine.words)) {
            None => Ok(()),
            Some(other) => Err(Error::Mismatch {
                what: "the collective call (its team cannot be used any more)",
                a: Rank(mine.rank),
                a_has: describe(mine.words),
                b: Rank(other.rank),
                b_has: describe(other.words),
            }),
        }
    }

    /// Takes what others have said, and forgets what is about calls that this member is through with.
    /// Nothing is waited for.
    pub fn take_in(&self) -> Result<()> {
        let Some(span) = self.span() else { return Ok(()) };
        let endpoint = span.endpoint(&self.core().block.node)?;
        let mut others = span.others.lock().unwrap_or_else(PoisonError::into_inner);
        let during = self.course.sign.what.during();
        let (team, patience) = (span.team_context(), self.course.patience());
        let most = Other::BYTES;
        while let Some((rank, bytes)) = hear(endpoint, About::Calls, team, most, patience, during)?
        {
            if let Ok(bytes) = bytes.as_slice().try_into()
                && rank < span.members.size()
            {
                others.push(Other::decode(rank, bytes));
            }
        }
        others.retain(|other| other.number.wrapping_sub(self.number) < 1 << 31);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_survives_the_wire_and_algorithms_do_not_count() {
        let one = Other { rank: 3, number: 9, words: [0x1234_5678, u64::MAX] };
        let bytes: [u8; Other::BYTES] = one.encode().try_into().unwrap();
        assert_eq!(Other::decode(3, &bytes), one);
        assert!(!one.differs([0x1234_9978, u64::MAX]));
        assert!(one.differs([0x1234_5679, u64::MAX]));
        assert!(one.differs([0x1234_5678, 0]));
    }
}
