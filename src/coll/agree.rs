//! Agreement: one member's failure is everybody's.

use super::board::Value;
use super::select::Algorithm;
use super::sign::{Sign, What};
use super::team::Team;
use crate::base::{Error, Rank, Result};

const AGREE: Sign = Sign::new(What::Agree, Algorithm::Boards, 0, 0, 0);

impl Team {
    /// Turns one member's failure into everybody's: returns `mine` if it is an error, else an
    /// error that names a member that failed, else the value.
    pub fn agree<R>(&self, during: &'static str, mine: Result<R>) -> Result<R> {
        let failed = Value::default().with_word(0, mine.is_err().into());
        let mut culprit = None;
        let mut look = |rank, value: &Value| {
            if value.word(0) != 0 && culprit.is_none() {
                culprit = Some(rank);
            }
        };
        let exchanged = if self.member.span.is_some() {
            self.run(AGREE, async |call| call.exchange(&failed, 8, &mut look).await)
        } else {
            self.collective(during, |core, deadline| {
                core.exchange(AGREE, deadline, &failed, 1, &mut look)
            })
        };
        let value = mine?;
        exchanged?;
        match culprit {
            None => Ok(value),
            Some(rank) => Err(Error::PeerFailed { rank: Rank(rank), during }),
        }
    }

    pub(super) fn check_root(&self, root: Rank, during: &'static str) -> Result<()> {
        if root.0 < self.size() {
            return Ok(());
        }
        let why = format!("root {root} is not a rank of a team of {}", self.size());
        Err(Error::invalid(during, why))
    }
}
