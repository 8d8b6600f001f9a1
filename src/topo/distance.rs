//! How far two CPUs, and so two ranks bound to them, are from each other.

use super::model::{Level, Topology};

/// What two CPUs share, the nearest first; `a < b` means that `a` is nearer. A cache line moves
/// in about 10 ns within a core, 20 to 50 ns within a cache, 100 ns and more beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Distance {
    /// The very same hardware thread: the two take turns.
    SameThread = 0,
    /// Hardware threads of one physical core.
    SameCore = 1,
    /// One last-level cache: no line needs to leave it.
    SameCache = 2,
    /// One NUMA node: lines move between caches, memory is local.
    SameNuma = 3,
    /// One package, different NUMA nodes.
    SamePackage = 4,
    /// Different packages.
    OtherPackage = 5,
    /// It is not known where one of the two is.
    Unknown = 6,
}

impl Distance {
    /// Every distance, the nearest first.
    pub const ALL: [Distance; 7] = [
        Distance::SameThread,
        Distance::SameCore,
        Distance::SameCache,
        Distance::SameNuma,
        Distance::SamePackage,
        Distance::OtherPackage,
        Distance::Unknown,
    ];
}

impl Topology {
    /// Distance between two CPUs given by the kernel's numbers; [`Distance::Unknown`] if one of
    /// them is not in the machine. Symmetric. Costs two binary searches.
    ///
    /// Levels need not nest: a cache that spans NUMA nodes (sub-NUMA clustering) counts as
    /// shared, because lines then do not leave it.
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        let (Some(a), Some(b)) = (self.cpu(a), self.cpu(b)) else { return Distance::Unknown };
        if a.id == b.id {
            return Distance::SameThread;
        }
        let shared = |level| a.group(level) == b.group(level);
        if shared(Level::Core) {
            Distance::SameCore
        } else if shared(Level::Cache) {
            Distance::SameCache
        } else if shared(Level::Numa) {
            Distance::SameNuma
        } else if shared(Level::Package) {
            Distance::SamePackage
        } else {
            Distance::OtherPackage
        }
    }

    /// As [`Topology::distance`], for ranks that may not be bound: `None` is nowhere in
    /// particular.
    pub fn distance_between(&self, a: Option<u32>, b: Option<u32>) -> Distance {
        match (a, b) {
            (Some(a), Some(b)) => self.distance(a, b),
            _ => Distance::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_told_apart_and_the_order_is_that_of_all() {
        // 2 packages x 2 nodes x 2 caches x 2 cores x 2 threads; second threads from 16 on.
        let t = Topology::synthetic("2x2x2x2x2").unwrap();
        let far: Vec<Distance> =
            [0, 16, 1, 2, 4, 8, 99].iter().map(|&b| t.distance(0, b)).collect();
        assert_eq!(far, Distance::ALL);
        assert!(far.is_sorted());
        for a in 0..32 {
            for b in 0..32 {
                assert_eq!(t.distance(a, b), t.distance(b, a));
            }
        }
        assert_eq!(t.distance_between(Some(0), None), Distance::Unknown);
    }
}
