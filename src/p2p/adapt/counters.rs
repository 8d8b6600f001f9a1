//! What adapting has done in a process, to be shown (paper 000 figures 10 to 12 plot these).

use super::{Action, Class, Pools};

/// Counted by the process that asks: its switches are those of what it sends. Pools are those that
/// it receives in.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Switches that this process asked for and that were made.
    pub switches: u64,
    /// Switches that it asked for and that were refused.
    pub refusals: u64,
    /// Nanoseconds from asking to the end of the switch, in all; messages went on meanwhile.
    pub switching: u64,
    /// Those of the longest switch.
    pub longest: u64,
    /// The largest class that this process came to send by.
    pub largest: Option<Class>,
    /// Buffers made for pools.
    pub made: u64,
    /// Buffers freed again.
    pub freed: u64,
    /// Nanoseconds spent on making and freeing buffers.
    pub memory_time: u64,
    /// Bytes in pools now.
    pub bytes: u64,
    /// The most bytes there were in pools.
    pub most_bytes: u64,
}

impl Counters {
    /// The host carries out `action` at `now`.
    pub fn note(&mut self, action: &Action, now: u64) {
        match *action {
            Action::Switched { since, .. } => {
                let took = now.saturating_sub(since);
                self.switches += 1;
                self.switching += took;
                self.longest = self.longest.max(took);
            }
            Action::Refused => self.refusals += 1,
            Action::Use(class) => self.largest = self.largest.max(Some(class)),
            Action::Send(_) | Action::JoinPool(_) | Action::LeavePool(_) | Action::CloseOld => {}
        }
    }

    /// The host has made and freed so many buffers in `ns` nanoseconds and told `pools`.
    pub fn note_buffers(&mut self, made: u32, freed: u32, ns: u64, pools: &Pools) {
        self.made += u64::from(made);
        self.freed += u64::from(freed);
        self.memory_time += ns;
        self.bytes = pools.bytes();
        self.most_bytes = self.most_bytes.max(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_have_a_number_a_sum_and_a_longest() {
        let mut counters = Counters::default();
        let class = |exponent| Class::new(exponent).unwrap();
        for (since, now, exponent) in [(5, 25, 14), (30, 90, 18), (100, 101, 16)] {
            counters.note(&Action::Use(class(exponent)), now);
            counters.note(&Action::Switched { class: class(exponent), since }, now);
        }
        counters.note(&Action::Refused, 7);
        let Counters { switches, refusals, switching, longest, largest, .. } = counters;
        assert_eq!((switches, refusals, switching, longest), (3, 1, 81, 60));
        assert_eq!(largest, Some(class(18)));
    }
}
