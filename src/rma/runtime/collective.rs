//! Collective machines made of messages, none of which blocks: a barrier and a reduce-scatter,
//! for teams of any size, in `ceil(log2 P)` rounds.
//!
//! ```text
//!   barrier, round k:          me -> me + 2^k              after round k-1 has arrived
//!   reduce-scatter, round k:   me -> me + 2^k: sums of the ranks 2^k or more above me,
//!                              from the highest round down
//! ```
//!
//! Each use of a machine has a number that is the same on all ranks. A rank may receive messages
//! of a use that it has not begun, one ahead of its own at most per kind of use: a use can be
//! finished only after all ranks have begun it.

use super::host::Sent;

/// Rounds for a team.
fn rounds(size: u32) -> u8 {
    (u32::BITS - size.saturating_sub(1).leading_zeros()) as u8
}

fn above(me: u32, round: u8, size: u32) -> u32 {
    ((u64::from(me) + (1u64 << round)) % u64::from(size)) as u32
}

/// How a machine got on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is finished.
    Done,
    /// It waits for a message.
    Waits,
    /// It could not send; it must be asked again.
    Full,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    instance: u64,
    joined: bool,
    /// Rounds sent.
    sent: u8,
    /// Rounds arrived, one bit each.
    got: u64,
}

/// Dissemination barriers.
#[derive(Debug)]
pub(super) struct Barriers {
    me: u32,
    size: u32,
    /// By number modulo 4: a fence has an opening and a closing barrier, and a rank may be one
    /// fence ahead of another.
    uses: [Use; 4],
}

impl Barriers {
    pub fn new(me: u32, size: u32) -> Barriers {
        Barriers { me, size, uses: [Use::default(); 4] }
    }

    fn at(&mut self, instance: u64) -> Option<&mut Use> {
        let slot = &mut self.uses[(instance % 4) as usize];
        if slot.instance < instance {
            *slot = Use { instance, ..Use::default() };
        }
        (slot.instance == instance).then_some(slot)
    }

    /// Takes part. Asking again changes nothing.
    pub fn join(&mut self, instance: u64) {
        if let Some(slot) = self.at(instance) {
            slot.joined = true;
        }
    }

    /// Notes a message; false if it makes no sense.
    pub fn arrive(&mut self, instance: u64, round: u8) -> bool {
        let rounds = rounds(self.size);
        match self.at(instance) {
            Some(slot) if round < rounds => {
                slot.got |= 1 << round;
                true
            }
            // Of a barrier that was overtaken by the end of its epoch.
            None => round < rounds,
            Some(_) => false,
        }
    }

    /// Whether there is such a round.
    pub fn has_round(&self, round: u8) -> bool {
        round < rounds(self.size)
    }

    /// Whether somebody has begun it.
    pub fn begun(&mut self, instance: u64) -> bool {
        self.at(instance).is_some_and(|slot| slot.got != 0)
    }

    pub fn advance(&mut self, instance: u64, mut send: impl FnMut(u32, u8) -> Sent) -> Step {
        let (me, size, rounds) = (self.me, self.size, rounds(self.size));
        let Some(slot) = self.at(instance) else { return Step::Done };
        if !slot.joined {
            return Step::Waits;
        }
        while slot.sent < rounds {
            if slot.sent > 0 && slot.got & (1 << (slot.sent - 1)) == 0 {
                return Step::Waits;
            }
            if send(above(me, slot.sent, size), slot.sent) == Sent::Full {
                return Step::Full;
            }
            slot.sent += 1;
        }
        if rounds == 0 || slot.got & (1 << (rounds - 1)) != 0 { Step::Done } else { Step::Waits }
    }
}

#[derive(Debug, Default)]
struct Sum {
    instance: u64,
    joined: bool,
    /// Rounds sent, the highest first.
    sent: u8,
    got: u64,
    /// By distance from this rank, upwards.
    counts: Vec<u32>,
}

/// Reduce-scatters of one number per pair of ranks: each learns the sum of what all have for it.
/// Memory in proportion to the team, taken at first use.
#[derive(Debug)]
pub(super) struct Reductions {
    me: u32,
    size: u32,
    /// By number modulo 2.
    uses: [Sum; 2],
    bytes: Vec<u8>,
}

impl Reductions {
    pub fn new(me: u32, size: u32) -> Reductions {
        Reductions { me, size, uses: Default::default(), bytes: Vec::new() }
    }

    fn at(&mut self, instance: u64) -> Option<&mut Sum> {
        let slot = &mut self.uses[(instance % 2) as usize];
        if slot.counts.is_empty() || slot.instance < instance {
            slot.counts.clear();
            slot.counts.resize(self.size as usize, 0);
            (slot.instance, slot.joined, slot.sent, slot.got) = (instance, false, 0, 0);
        }
        (slot.instance == instance).then_some(slot)
    }

    /// Takes part with one for each rank in `ranks`.
    pub fn join(&mut self, instance: u64, ranks: impl Iterator<Item = u32>) {
        let (me, size) = (self.me, self.size);
        let Some(slot) = self.at(instance) else { return };
        if !std::mem::replace(&mut slot.joined, true) {
            for rank in ranks {
                let distance = (rank + size - me) % size;
                slot.counts[distance as usize] += 1;
            }
        }
    }

    /// Notes a message; false if it makes no sense.
    pub fn arrive(&mut self, instance: u64, round: u8, counts: &[u8]) -> bool {
        let size = self.size;
        if round >= rounds(size) {
            return false;
        }
        // The sender's distances `from..to` are this rank's `0..`.
        let from = 1usize << round;
        let to = (from << 1).min(size as usize);
        let Some(slot) = self.at(instance) else { return false };
        let (numbers, rest) = counts.as_chunks::<4>();
        if !rest.is_empty() || numbers.len() != to - from || slot.got & (1 << round) != 0 {
            return false;
        }
        slot.got |= 1 << round;
        for (sum, number) in slot.counts.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(u32::from_le_bytes(*number));
        }
        true
    }

    /// Goes on; when done, [`Reductions::result`] is this rank's sum.
    pub fn advance(&mut self, instance: u64, mut send: impl FnMut(u32, u8, &[u8]) -> Sent) -> Step {
        let (me, size, rounds) = (self.me, self.size, rounds(self.size));
        let mut bytes = std::mem::take(&mut self.bytes);
        let step = 'step: {
            let Some(slot) = self.at(instance) else { break 'step Step::Done };
            if !slot.joined {
                break 'step Step::Waits;
            }
            while slot.sent < rounds {
                let round = rounds - 1 - slot.sent;
                if slot.sent > 0 && slot.got & (1 << (round + 1)) == 0 {
                    break 'step Step::Waits;
                }
                let from = 1usize << round;
                let to = (from << 1).min(size as usize);
                bytes.clear();
                bytes.extend(slot.counts[from..to].iter().flat_map(|count| count.to_le_bytes()));
                if send(above(me, round, size), round, &bytes) == Sent::Full {
                    break 'step Step::Full;
                }
                slot.sent += 1;
            }
            if rounds == 0 || slot.got & 1 != 0 { Step::Done } else { Step::Waits }
        };
        self.bytes = bytes;
        step
    }

    /// The sum of a finished use.
    pub fn result(&mut self, instance: u64) -> u32 {
        self.at(instance).map_or(0, |slot| slot.counts[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Delivers in any order, and with a transport that is full now and then.
    fn run(
        size: u32,
        seed: u64,
        mut act: impl FnMut(u32, &mut dyn FnMut(u32, u8, &[u8]) -> Sent) -> Step,
        mut arrive: impl FnMut(u32, u8, Vec<u8>),
        mut join: impl FnMut(u32) -> usize,
    ) -> usize {
        let mut state = seed | 1;
        let mut random = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let mut order: Vec<u32> = (0..size).collect();
        for i in 0..order.len() {
            let j = random(order.len());
            order.swap(i, j);
        }
        let (mut flying, mut joined, mut sent) = (Vec::new(), 0, 0);
        let mut done = vec![false; size as usize];
        while done.iter().any(|done| !done) {
            if joined < order.len() && random(3) == 0 {
                join(order[joined]);
                joined += 1;
            }
            if !flying.is_empty() && random(2) == 0 {
                let (to, round, bytes): (u32, u8, Vec<u8>) =
                    flying.swap_remove(random(flying.len()));
                arrive(to, round, bytes);
            }
            let rank = random(size as usize) as u32;
            let full = random(4) == 0;
            let mut send = |to: u32, round: u8, bytes: &[u8]| {
                if full {
                    return Sent::Full;
                }
                flying.push((to, round, bytes.to_vec()));
                sent += 1;
                Sent::Yes
            };
            if act(rank, &mut send) == Step::Done {
                assert_eq!(joined, order.len(), "nobody may leave before all have come");
                done[rank as usize] = true;
            }
        }
        sent
    }

    proptest! {
        #[test]
        fn a_barrier_lets_nobody_out_before_all_are_in(size in 1u32..40, seed: u64) {
            let machines = std::cell::RefCell::new(
                (0..size).map(|me| Barriers::new(me, size)).collect::<Vec<_>>(),
            );
            let sent = run(
                size,
                seed,
                |rank, send| machines.borrow_mut()[rank as usize].advance(7, |to, k| send(to, k, &[])),
                |to, round, _| assert!(machines.borrow_mut()[to as usize].arrive(7, round)),
                |rank| { machines.borrow_mut()[rank as usize].join(7); 0 },
            );
            prop_assert_eq!(sent, size as usize * rounds(size) as usize);
        }

        #[test]
        fn a_reduce_scatter_gives_each_rank_its_sum(
            size in 1u32..40,
            seed: u64,
            ones in prop::collection::vec(any::<u64>(), 40),
        ) {
            let has = |from: u32, to: u32| ones[from as usize] >> to & 1 == 1;
            let machines = std::cell::RefCell::new(
                (0..size).map(|me| Reductions::new(me, size)).collect::<Vec<_>>(),
            );
            let sent = run(
                size,
                seed,
                |rank, send| machines.borrow_mut()[rank as usize].advance(3, send),
                |to, round, bytes| {
                    assert!(machines.borrow_mut()[to as usize].arrive(3, round, &bytes));
                },
                |rank| {
                    let ranks = (0..size).filter(|to| has(rank, *to));
                    machines.borrow_mut()[rank as usize].join(3, ranks);
                    0
                },
            );
            prop_assert_eq!(sent, size as usize * rounds(size) as usize);
            for to in 0..size {
                let want = (0..size).filter(|from| has(*from, to)).count() as u32;
                prop_assert_eq!(machines.borrow_mut()[to as usize].result(3), want);
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut barriers = Barriers::new(0, 4);
        assert!(!barriers.arrive(0, 2));
        assert!(barriers.arrive(4, 0) && barriers.arrive(0, 0) && !barriers.begun(0));
        let mut reductions = Reductions::new(0, 5);
        assert!(!reductions.arrive(0, 3, &[]));
        assert!(!reductions.arrive(0, 1, &[0; 7]));
        assert!(reductions.arrive(0, 2, &[1, 0, 0, 0]));
        assert!(!reductions.arrive(0, 2, &[1, 0, 0, 0]), "a round comes once");
    }
}
