//! Those who stand in line for a lock without an origin object, when these are used up: a few bits
//! for each member of the window, taken at first use.
//!
//! ```text
//!   line:   object  object  object | crowd: served in turn of ranks, from the last one served on
//! ```
//! While there is a crowd, who comes joins it. So whoever is in it is overtaken by each other
//! member once at most, and nobody has to ask again (paper 001 §3.4.2 has them ask again, which
//! lets others in between without a bound). What they send ahead of the grant is not kept.

use super::LockKind;
use super::ranks::Ranks;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    shared: Ranks,
    exclusive: Ranks,
    /// Of lock-all epochs; in `shared` as well.
    all: Ranks,
    /// Who is served next, or the first after.
    turn: u32,
    /// Granted, and to be told.
    pub untold: Ranks,
    /// What they send ahead of the news of the grant is discarded: all before the first that is
    /// sent with it.
    pub dropping: Ranks,
}

impl Crowd {
    pub fn new(size: u32) -> Crowd {
        let none = Ranks::new(size);
        Crowd {
            shared: none.clone(),
            exclusive: none.clone(),
            all: none.clone(),
            turn: 0,
            untold: none.clone(),
            dropping: none,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.exclusive.is_empty()
    }

    pub fn contains(&self, rank: u32) -> bool {
        self.shared.contains(rank) || self.exclusive.contains(rank)
    }

    pub fn join(&mut self, rank: u32, kind: LockKind, all: bool) {
        match kind {
            LockKind::Shared => self.shared.insert(rank),
            LockKind::Exclusive => self.exclusive.insert(rank),
        };
        if all {
            self.all.insert(rank);
        }
        self.dropping.insert(rank);
    }

    /// Whose turn it is.
    pub fn next(&self) -> Option<(u32, LockKind)> {
        let first = |from: u32| {
            let shared = self.shared.first(from).map(|rank| (rank, LockKind::Shared));
            let exclusive = self.exclusive.first(from).map(|rank| (rank, LockKind::Exclusive));
            [shared, exclusive].into_iter().flatten().min_by_key(|(rank, _)| *rank)
        };
        first(self.turn).or_else(|| first(0))
    }

    /// `rank` is granted what it wants.
    pub fn grant(&mut self, rank: u32) {
        self.leave(rank);
        self.untold.insert(rank);
        self.turn = rank + 1;
    }

    /// The first one of a lock-all epoch, which need not wait for its turn; granted.
    pub fn grant_all(&mut self) -> Option<u32> {
        let rank = self.all.first(0)?;
        self.leave(rank);
        self.untold.insert(rank);
        Some(rank)
    }

    fn leave(&mut self, rank: u32) {
        self.shared.remove(rank);
        self.exclusive.remove(rank);
        self.all.remove(rank);
    }

    /// `rank` is dead.
    pub fn bury(&mut self, rank: u32) {
        self.leave(rank);
        self.untold.remove(rank);
        self.dropping.remove(rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_served_in_turn() {
        let mut crowd = Crowd::new(8);
        for rank in [5, 2, 7] {
            crowd.join(rank, LockKind::Exclusive, false);
        }
        let serve = |crowd: &mut Crowd| {
            let (rank, _) = crowd.next().unwrap();
            crowd.grant(rank);
            rank
        };
        assert_eq!(serve(&mut crowd), 2);
        // Who comes again is behind those who were there.
        crowd.join(2, LockKind::Shared, true);
        assert_eq!((serve(&mut crowd), serve(&mut crowd)), (5, 7));
        assert_eq!(crowd.next(), Some((2, LockKind::Shared)));
        crowd.join(3, LockKind::Exclusive, false);
        assert_eq!(crowd.grant_all(), Some(2));
        assert!(!crowd.contains(2) && crowd.untold.contains(2));
        crowd.bury(3);
        assert!(crowd.is_empty() && crowd.next().is_none() && crowd.grant_all().is_none());
    }

    #[test]
    fn each_is_overtaken_by_each_other_once_at_most() {
        // Everybody comes again at once; one waits.
        for waits in 0..6 {
            let mut crowd = Crowd::new(6);
            for rank in 0..6 {
                crowd.join(rank, LockKind::Exclusive, false);
            }
            let mut overtaken = [0; 6];
            loop {
                let (rank, _) = crowd.next().unwrap();
                crowd.grant(rank);
                if rank == waits {
                    break;
                }
                overtaken[rank as usize] += 1;
                crowd.join(rank, LockKind::Exclusive, false);
            }
            assert!(overtaken.iter().all(|times| *times <= 1), "{overtaken:?}");
        }
    }
}
