//! How far a sender gets ahead of its receiver in buffers that are lent (see [`lent`](super::lent)), and whether it is
//! ahead at all.
//!
//! Who goes on with another buffer each time that its receiver is not through with the oldest one has them leave the
//! caches, and both are slower for it. So where as many are lent as take turns, the sender waits for some of them to be
//! back, a quarter of those that take turns, rather than for the oldest one: it then sends as many without a look, and the
//! receiver, who writes to lines that are looked at, is seldom disturbed. It waits no longer than that may take, and a
//! receiver that does something else meanwhile is not waited for again soon. Where as much comes back, both would wait
//! for each other. There a sender that is as far ahead first copies out what has come for it, while that is still in the
//! caches.
//!
//! A message in a buffer is copied twice, one copy after the other, but the copies of several go on at the same time. So what
//! is large is lent where one message follows the other before that is over; one by itself is sooner there in pieces.

/// Times that waiting for a receiver was in vain after which it stays as rare; and messages until it is tried again, for
/// the first time.
const VAIN: u32 = 8;
const REST: u32 = 32;
/// Points: as many as these are a flow; the most; for a message that finds one under way, and less for one that does not.
const FLOW: u32 = 8;
const FULL: u32 = 16;
const MORE: u32 = 1;
const FEWER: u32 = 2;

/// What is known of the messages of one size. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Lead {
    points: u32,
    /// Times in a row that waiting was in vain, and messages that still go without.
    vain: u32,
    rest: u32,
}

impl Lead {
    /// A message is to be sent, while another one is under way or not: whether it is one of many.
    pub fn flows(&mut self, under_way: bool) -> bool {
        self.points = match under_way {
            true => (self.points + MORE).min(FULL),
            false => self.points.saturating_sub(FEWER),
        };
        self.points >= FLOW
    }

    /// The sender is as far ahead as it may be: whether it is to wait.
    pub fn waits(&mut self) -> bool {
        let waits = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        waits
    }

    /// It has waited: whether that was worth it.
    pub fn waited(&mut self, paid: bool) {
        if paid {
            (self.vain, self.rest) = (0, 0);
        } else {
            self.rest = REST << self.vain;
            self.vain = (self.vain + 1).min(VAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many of these find that they are part of a flow.
    fn flowing(times: u32, of: u32) -> u32 {
        let mut lead = Lead::default();
        let one = |i: u32| u32::from(lead.flows(!i.is_multiple_of(of)));
        (0..times * of).map(one).sum()
    }

    proptest! {
        /// Many in a row, again and again, are a flow, but for the first messages; one or two at a time are none.
        #[test]
        fn many_in_a_row_flow_and_single_ones_do_not(times in 10u32..100, of in 8u32..256) {
            prop_assert!(flowing(times, of) >= times * of - 4 * FULL);
            prop_assert_eq!(flowing(times * of, 1), 0);
            prop_assert_eq!(flowing(times * of, 2), 0);
        }

        /// A receiver that does something else is waited for a few times, whatever came before; one that has paid once,
        /// always.
        #[test]
        fn who_never_comes_is_hardly_waited_for(before in prop::collection::vec(any::<bool>(), 0..20)) {
            let mut lead = Lead::default();
            let mut wait = |paid: bool| {
                let waits = lead.waits();
                if waits {
                    lead.waited(paid);
                }
                waits
            };
            before.into_iter().for_each(|paid| {
                wait(paid);
            });
            let waits = (0..100_000).filter(|_| wait(false)).count();
            prop_assert!((3..30).contains(&waits), "{waits}");
            while !wait(true) {}
            prop_assert!((0..100).all(|_| wait(true)));
        }
    }
}
