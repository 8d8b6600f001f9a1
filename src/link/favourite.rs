//! The lane in which a program that waits looks first, and how often before it looks everywhere.
//!
//! A look at everything takes some 50 ns, one into a lane a few instructions and
//! a pause. Who waits for an answer gets it from the lane that the answers before came by, so that one is looked
//! into several times for each look at all; as often as it has been the right one lately, and never more than
//! [`MOST`] times, or [`AWAKE`] times as often, which is what a message by any other way may have to wait for.
//!
//! ```text
//!   take_favourite:   lane lane lane .. nothing there --> poll of all --> which lane it was: found()
//!                     └ it brings messages: at most IN_A_ROW times before a poll of all
//!   poll_favourite    the same, of what the short way is not for
//! ```
//! Under the receiver's lock, by which lanes are numbered. What a thread looks into first that waits for
//! the sink's messages is `Core::latest` and the feed's count, since such threads take no lock but a feed's.

/// Most looks into the lane before one at all, where cores are shared. Each that finds nothing pauses, too: some
/// 12 to 40 ns.
const MOST: u32 = 8;

/// So many times more where who waits has a core: for as long as a line takes to come and a little more.
const AWAKE: u32 = 4;

/// Most looks in a row that the lane has had something for.
const IN_A_ROW: u32 = 64;

/// See the [module](self).
#[derive(Default, Debug)]
pub(super) struct Favourite {
    /// Which of the receiver's lanes: a guess, the list may have changed.
    lane: usize,
    /// How often in a row it was the one, up to [`MOST`].
    trust: u32,
    /// Looks that it had something for, since the last one at all.
    in_a_row: u32,
}

impl Favourite {
    /// The lane to look into now, if it is to be before all, and how often: more by who waits `awake`.
    #[inline(always)]
    pub fn lane(&self, awake: bool) -> (usize, u32) {
        let each = if awake { AWAKE } else { 1 };
        (self.lane, if self.in_a_row < IN_A_ROW { self.trust * each } else { 0 })
    }

    /// A look into it found something.
    #[inline(always)]
    pub fn brought(&mut self) {
        self.in_a_row += 1;
    }

    /// After a look at all: the lane that the latest message came by, or that messages came otherwise,
    /// if any came.
    #[inline(always)]
    pub fn found(&mut self, count: usize, lane: Option<usize>) {
        self.in_a_row = 0;
        if count == 0 {
            return;
        }
        match lane {
            Some(lane) if lane == self.lane => self.trust = (self.trust + 1).min(MOST),
            Some(lane) => (self.lane, self.trust) = (lane, 0),
            None => self.trust = 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_trusted_as_often_as_it_was_right() {
        let mut favourite = Favourite::default();
        assert_eq!(favourite.lane(false).1, 0, "nothing has come yet");
        favourite.found(1, Some(3));
        assert_eq!(favourite.lane(false), (3, 0), "it may have been by chance");
        favourite.found(2, Some(3));
        assert_eq!(favourite.lane(false), (3, 1));
        favourite.found(0, None);
        assert_eq!(favourite.lane(false), (3, 1), "looks that find nothing say nothing");
        for _ in 0..100 {
            favourite.found(1, Some(3));
        }
        assert_eq!(favourite.lane(false), (3, MOST));
        assert_eq!(favourite.lane(true), (3, AWAKE * MOST));
        favourite.found(1, None);
        assert_eq!(favourite.lane(false), (3, 0), "by the inbox, or from another node");
        favourite.found(1, Some(0));
        assert_eq!(favourite.lane(false), (0, 0));
    }

    #[test]
    fn all_get_their_turn() {
        let mut favourite = Favourite::default();
        favourite.found(1, Some(0));
        favourite.found(1, Some(0));
        let mut looks = 0;
        while favourite.lane(false).1 > 0 {
            favourite.brought();
            looks += 1;
        }
        assert_eq!(looks, IN_A_ROW);
        favourite.found(0, None);
        assert_eq!(favourite.lane(false).1, 2, "and then it is this one's again");
    }
}
