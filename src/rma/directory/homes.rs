//! Which member keeps the entry of which rank (paper 001 §3.4.1, table 3.5).
//!
//! ```text
//! copies = 2, size = 8:   copy 0               copy 1
//! member                  0    1    2    3     4    5    6    7
//! keeps entries of        0,4  1,5  2,6  3,7   0,4  1,5  2,6  3,7
//! asked by                0 ............. 3    4 ............. 7
//! ```
//! The members are cut into as many groups of neighbours as there are copies, and each group keeps
//! all entries among its members, so whoever asks finds the home in its own group. Both schemes of
//! the paper are this one formula: a fixed number of copies takes constant memory (`copies`
//! entries per member) and lets a process talk with up to `size / copies` others; a fixed number
//! of processes to a copy (`copies` = size / that number, say one copy per node) bounds whom it
//! talks with and takes memory that grows with the job.

/// Where entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    size: u32,
    /// Members of a group; those left over at the end belong to the last one.
    group: u32,
    groups: u32,
}

impl Homes {
    /// For `size` members and about `copies` copies; at least one, at most one per member.
    pub fn new(size: u32, copies: u32) -> Homes {
        let size = size.max(1);
        let group = size / copies.clamp(1, size);
        Homes { size, group, groups: size / group }
    }

    /// Copies of each entry.
    pub fn copies(&self) -> u32 {
        self.groups
    }

    /// Entries that a member keeps at most.
    pub fn share(&self) -> u32 {
        self.size.div_ceil(self.group)
    }

    /// The member that `asker` asks for the entry of `rank`, and the entry's place in that
    /// member's share. A division and a few additions.
    #[inline]
    pub fn home(&self, asker: u32, rank: u32) -> (u32, u32) {
        let group = (asker / self.group).min(self.groups - 1);
        (group * self.group + rank % self.group, rank / self.group)
    }

    /// The ranks whose entries `member` keeps, in the order of its share.
    pub fn kept(&self, member: u32) -> impl Iterator<Item = u32> + use<> {
        let group = (member / self.group).min(self.groups - 1);
        // Who is left over at the end of the last group keeps nothing.
        let first = member - group * self.group;
        let end = if first < self.group { self.size } else { 0 };
        (first..end).step_by(self.group as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whoever_asks_finds_the_entry_at_its_home(
            size in 1u32..200, copies in 1u32..20, asker: u32, rank: u32,
        ) {
            let (asker, rank) = (asker % size, rank % size);
            let homes = Homes::new(size, copies);
            let (home, place) = homes.home(asker, rank);
            prop_assert!(home < size);
            prop_assert_eq!(homes.kept(home).nth(place as usize), Some(rank));
            prop_assert!(homes.kept(asker).count() <= homes.share() as usize);
        }

        #[test]
        fn a_member_keeps_as_many_entries_as_there_are_copies(
            size in 1u32..5000, copies in 1u32..20,
        ) {
            let homes = Homes::new(size, copies);
            prop_assert!(homes.copies() >= copies.min(size));
            // Groups of unequal size: one more where they do not divide evenly.
            prop_assert!(homes.share() <= homes.copies() + 1);
            let kept: usize = (0..size).map(|member| homes.kept(member).count()).sum();
            prop_assert_eq!(kept, (size * homes.copies()) as usize);
        }
    }

    #[test]
    fn shares_do_not_grow_with_the_job() {
        for shift in 1..=20 {
            assert!(Homes::new(1 << shift, 2).share() <= 2);
        }
        assert_eq!(Homes::new(1 << 20, 1 << 16).share(), 1 << 16, "16 to a copy grows");
    }
}
