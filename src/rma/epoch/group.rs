//! Members that an epoch is with.

use crate::base::Rank;
use std::ops::Deref;
use std::sync::Arc;

/// Ranks in order, each once. One by itself, which is frequent, needs no memory elsewhere: to allocate and free that
/// took a quarter of the instructions of an epoch.
#[derive(Clone, Debug, Default)]
pub(in crate::rma) enum Group {
    #[default]
    Nobody,
    One([Rank; 1]),
    Many(Arc<[Rank]>),
}

impl Group {
    /// Of ranks in any order; the error is one that is there twice.
    pub fn of(ranks: &[Rank]) -> Result<Group, Rank> {
        if let [rank] = *ranks {
            return Ok(Group::One([rank]));
        }
        let mut sorted: Arc<[Rank]> = ranks.into();
        // Nobody else has it yet.
        Arc::make_mut(&mut sorted).sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(twice[0]),
            None => Ok(Group::Many(sorted)),
        }
    }
}

impl Deref for Group {
    type Target = [Rank];

    #[inline(always)]
    fn deref(&self) -> &[Rank] {
        match self {
            Group::Nobody => &[],
            Group::One(rank) => rank,
            Group::Many(ranks) => ranks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_order_and_each_once() {
        let of = |ranks: &[u32]| {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            Group::of(&ranks).map(|group| group.iter().map(|rank| rank.0).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Ok(vec![]));
        assert_eq!(of(&[7]), Ok(vec![7]));
        assert_eq!(of(&[7, 0, 3]), Ok(vec![0, 3, 7]));
        assert_eq!(of(&[7, 0, 7]), Err(Rank(7)));
        assert!(Group::default().is_empty());
    }
}
