//! Those who stand in line for a lock without an origin object, when these are used up: a few bits
//! for each member of the window, taken at first use.
//!
//! ```text
//!   line:   object  object  object | crowd: served in turn of ranks, from the last one served on
//! ```
//! While there is a crowd, who comes joins it, for the next round (see `line`). So whoever is in it
//! is overtaken by each other member once at most, and nobody has to ask again (paper 001 §3.4.2 has
//! them ask again, which lets others in between without a bound). What they send ahead of the grant
//! is not kept.

use super::LockKind;
use super::ranks::Ranks;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    shared: Ranks,
    exclusive: Ranks,
    /// Those of both that are of the present round.
    present: Ranks,
    /// Shared, of those who may hold others.
    ahead: Ranks,
    behind: Ranks,
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
            present: none.clone(),
            ahead: none.clone(),
            behind: none.clone(),
            turn: 0,
            untold: none.clone(),
            dropping: none,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sets().iter().all(|set| set.is_empty())
    }

    pub fn contains(&self, rank: u32) -> bool {
        self.sets().iter().any(|set| set.contains(rank))
    }

    fn sets(&self) -> [&Ranks; 4] {
        [&self.shared, &self.exclusive, &self.ahead, &self.behind]
    }

    /// `ahead`: of one that may overtake, whether it goes ahead of the present round.
    pub fn join(&mut self, rank: u32, kind: LockKind, ahead: Option<bool>) {
        match (ahead, kind) {
            (Some(true), _) => self.ahead.insert(rank),
            (Some(false), _) => self.behind.insert(rank),
            (None, LockKind::Shared) => self.shared.insert(rank),
            (None, LockKind::Exclusive) => self.exclusive.insert(rank),
        };
        self.dropping.insert(rank);
    }

    /// Whether somebody is of the present round.
    pub fn in_round(&self) -> bool {
        !self.present.is_empty()
    }

    /// Those who are here now are the present round; those who may overtake go ahead of it.
    pub fn begin_round(&mut self) {
        for rank in self.shared.iter().chain(self.exclusive.iter()) {
            self.present.insert(rank);
        }
        for rank in self.behind.iter() {
            self.ahead.insert(rank);
        }
        self.behind.clear();
    }

    /// Whose turn it is in the present round.
    pub fn next(&self) -> Option<(u32, LockKind)> {
        let rank = self.present.first(self.turn).or_else(|| self.present.first(0))?;
        let exclusive = self.exclusive.contains(rank);
        Some((rank, if exclusive { LockKind::Exclusive } else { LockKind::Shared }))
    }

    /// `rank` is granted what it wants.
    pub fn grant(&mut self, rank: u32) {
        self.leave(rank);
        self.untold.insert(rank);
        self.turn = rank + 1;
    }

    /// The first one that goes ahead; granted.
    pub fn grant_ahead(&mut self) -> Option<u32> {
        let rank = self.ahead.first(0)?;
        self.leave(rank);
        self.untold.insert(rank);
        Some(rank)
    }

    fn leave(&mut self, rank: u32) {
        for set in [&mut self.shared, &mut self.exclusive, &mut self.present] {
            set.remove(rank);
        }
        self.ahead.remove(rank);
        self.behind.remove(rank);
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

    fn serve(crowd: &mut Crowd) -> u32 {
        if !crowd.in_round() {
            crowd.begin_round();
        }
        let (rank, _) = crowd.next().unwrap();
        crowd.grant(rank);
        rank
    }

    #[test]
    fn ranks_are_served_in_turn() {
        let mut crowd = Crowd::new(8);
        for rank in [5, 2, 7] {
            crowd.join(rank, LockKind::Exclusive, None);
        }
        assert_eq!(serve(&mut crowd), 2);
        // Who comes again is behind those who were there.
        crowd.join(6, LockKind::Shared, None);
        crowd.join(2, LockKind::Shared, Some(false));
        assert_eq!((serve(&mut crowd), crowd.grant_ahead()), (5, None));
        assert_eq!(crowd.next(), Some((7, LockKind::Exclusive)));
        crowd.join(3, LockKind::Exclusive, Some(true));
        assert_eq!((crowd.grant_ahead(), crowd.grant_ahead()), (Some(3), None));
        assert_eq!(serve(&mut crowd), 7);
        crowd.begin_round();
        assert_eq!(crowd.grant_ahead(), Some(2));
        assert!(!crowd.contains(2) && crowd.untold.contains(2));
        assert_eq!(crowd.next(), Some((6, LockKind::Shared)));
        crowd.bury(6);
        assert!(crowd.is_empty() && crowd.next().is_none() && !crowd.in_round());
    }

    #[test]
    fn each_is_overtaken_by_each_other_once_at_most() {
        // Everybody comes again at once; one waits.
        for waits in 0..6 {
            let mut crowd = Crowd::new(6);
            for rank in 0..6 {
                crowd.join(rank, LockKind::Exclusive, None);
            }
            let mut overtaken = [0; 6];
            loop {
                let rank = serve(&mut crowd);
                if rank == waits {
                    break;
                }
                overtaken[rank as usize] += 1;
                crowd.join(rank, LockKind::Exclusive, None);
            }
            assert!(overtaken.iter().all(|times| *times <= 1), "{overtaken:?}");
        }
    }
}
