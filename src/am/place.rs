//! Where a message runs whose target's part is not mapped: there, or here on a copy.
//!
//! ```text
//!   at the target      input ----------->  run  -----------> output        bytes: input + output
//!   at the origin      <------ copy of the persistent part                 bytes: twice the
//!                      run -------------------------> changed part         persistent part
//! ```
//! Paper 001 §6.4.3: neither is always better, it depends on what is larger. Each way is taken to
//! cost some time for a message and some for each byte that travels for it. Both are estimated from
//! how long messages took, newer ones counting more; what one message says is bounded, so that a
//! pause of the machine does not look like a property of it. The way that looks dearer is tried now
//! and then, the more seldom the dearer it looks: that costs a constant part of the time at most.

use super::plan::Placement;

/// Weight of the newest message in the estimates.
const NEWEST: f64 = 1.0 / 8.0;
/// How many times more or less than expected a message may at most seem to have taken.
const BELIEVED: f64 = 8.0;
/// Weight of a message by which a way is tried of which nothing new was known for long.
const RENEWED: f64 = 1.0 / 2.0;
/// Decisions after which a way is tried that looks no dearer than the other one; `n` times as many
/// if it looks `n` times as dear.
const TRY_AFTER: f64 = 64.0;

/// Where a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// At the target.
    Target,
    /// At the origin.
    Origin,
}

/// Estimated cost of one way, in nanoseconds: never 0, never negative.
#[derive(Clone, Copy, Debug)]
struct Line {
    message: f64,
    byte: f64,
}

impl Line {
    fn expect(self, bytes: u64) -> f64 {
        self.message + self.byte * bytes as f64
    }

    /// Moves towards what a message took, each part by its share in what was expected.
    fn learn(&mut self, bytes: u64, ns: u64, weight: f64) {
        let expected = self.expect(bytes);
        let ratio = (ns as f64 / expected).clamp(1.0 / BELIEVED, BELIEVED);
        let change = weight * (ratio - 1.0);
        let share = self.message / expected;
        // Both shares move: one message cannot tell which of them was wrong, many of different
        // sizes can, as the larger share moves faster.
        self.message = (self.message * (1.0 + change * share)).max(1.0);
        self.byte = (self.byte * (1.0 + change * (1.0 - share))).max(1e-3);
    }
}

/// What messages with one handler cost, as seen from one origin. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    target: Line,
    origin: Line,
    /// Decisions since either way was taken last.
    since: [u32; 2],
    /// The way taken last had not been for long.
    renewed: bool,
    runs: [u64; 2],
}

impl Default for Costs {
    /// One exchange of packets and two, until something is known.
    fn default() -> Costs {
        Costs {
            target: Line { message: 20_000.0, byte: 0.5 },
            origin: Line { message: 40_000.0, byte: 0.5 },
            since: [0; 2],
            renewed: false,
            runs: [0; 2],
        }
    }
}

impl Costs {
    /// Where to run a message that moves `moved` bytes of input and output and whose persistent
    /// part has `persistent` bytes.
    pub fn choose(&mut self, wish: Placement, moved: u64, persistent: u64) -> Site {
        let there = self.target.expect(moved);
        let here = self.origin.expect(persistent.saturating_mul(2));
        let overdue = |site: Site, cost: f64, other: f64| {
            f64::from(self.since[site as usize]) >= TRY_AFTER * (cost / other).max(1.0)
        };
        let site = match wish {
            Placement::Target => Site::Target,
            Placement::Origin => Site::Origin,
            Placement::Auto if here < there && !overdue(Site::Target, there, here) => Site::Origin,
            Placement::Auto if here >= there && overdue(Site::Origin, here, there) => Site::Origin,
            Placement::Auto => Site::Target,
        };
        for since in &mut self.since {
            *since = since.saturating_add(1);
        }
        self.renewed = f64::from(self.since[site as usize]) >= TRY_AFTER;
        self.since[site as usize] = 0;
        self.runs[site as usize] += 1;
        site
    }

    /// A message took `ns` nanoseconds, with sizes as for [`Costs::choose`].
    pub fn took(&mut self, site: Site, moved: u64, persistent: u64, ns: u64) {
        let weight = if self.renewed { RENEWED } else { NEWEST };
        match site {
            Site::Target => self.target.learn(moved, ns, weight),
            Site::Origin => self.origin.learn(persistent.saturating_mul(2), ns, weight),
        }
    }

    /// How many messages ran at the target and at the origin.
    pub fn runs(&self) -> [u64; 2] {
        self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What messages really cost: for a message and for a byte.
    #[derive(Clone, Copy, Debug)]
    struct Truth {
        target: (f64, f64),
        origin: (f64, f64),
    }

    impl Truth {
        fn ns(&self, site: Site, moved: u64, persistent: u64) -> f64 {
            match site {
                Site::Target => self.target.0 + self.target.1 * moved as f64,
                Site::Origin => self.origin.0 + self.origin.1 * 2.0 * persistent as f64,
            }
        }
    }

    fn truths() -> impl Strategy<Value = Truth> {
        let line = || (500f64..200_000.0, 0.05f64..5.0);
        (line(), line()).prop_map(|(target, origin)| Truth { target, origin })
    }

    fn run(costs: &mut Costs, truth: &Truth, sizes: impl Iterator<Item = (u64, u64)>) -> f64 {
        let mut lost = 0.0;
        for (moved, persistent) in sizes {
            let site = costs.choose(Placement::Auto, moved, persistent);
            let ns = truth.ns(site, moved, persistent);
            costs.took(site, moved, persistent, ns as u64);
            let there = truth.ns(Site::Target, moved, persistent);
            let here = truth.ns(Site::Origin, moved, persistent);
            lost += ns / there.min(here);
        }
        lost
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_better_way_is_found_and_kept(
            truth in truths(),
            again in truths(),
            moved in 0u64..1 << 20,
            persistent in 0u64..1 << 20,
        ) {
            // Messages of one size, first as cheap as the one truth says, then as the other.
            let mut costs = Costs::default();
            for truth in [truth, again] {
                let truth = &truth;
                run(&mut costs, truth, std::iter::repeat_n((moved, persistent), 60_000));
                let lost = run(&mut costs, truth, std::iter::repeat_n((moved, persistent), 60_000));
                // Trying the other way costs as much as one in 64 messages.
                prop_assert!(lost / 60_000.0 < 1.1, "{} times the best for {truth:?}, {costs:?}", lost / 60_000.0);
            }
        }

        #[test]
        fn estimates_stay_sane(
            takes in prop::collection::vec(any::<(bool, u64, u64, u64)>(), 0..200),
        ) {
            let mut costs = Costs::default();
            for (origin, moved, persistent, ns) in takes {
                costs.choose(Placement::Auto, moved, persistent);
                let site = if origin { Site::Origin } else { Site::Target };
                costs.took(site, moved, persistent, ns);
                for line in [costs.target, costs.origin] {
                    prop_assert!(line.message >= 1.0 && line.message.is_finite());
                    prop_assert!(line.byte > 0.0 && line.byte.is_finite());
                }
            }
        }
    }

    #[test]
    fn both_parts_of_a_cost_are_told_apart() {
        let truth = Truth { target: (3_000.0, 0.9), origin: (9_000.0, 0.2) };
        let mut costs = Costs::default();
        let sizes = [(64, 64), (200_000, 256), (1 << 20, 1 << 20), (512, 100_000), (20_000, 1000)];
        run(&mut costs, &truth, sizes.into_iter().cycle().take(40_000));
        let lost = run(&mut costs, &truth, sizes.into_iter().cycle().take(640));
        assert!(lost / 640.0 < 1.1, "{} {costs:?}", lost / 640.0);
    }

    #[test]
    fn what_is_wished_is_done_and_counted() {
        let mut costs = Costs::default();
        for i in 0..200 {
            assert_eq!(costs.choose(Placement::Target, i << 20, 0), Site::Target);
            assert_eq!(costs.choose(Placement::Origin, 0, i << 20), Site::Origin);
        }
        assert_eq!(costs.runs(), [200, 200]);
    }

    #[test]
    fn a_pause_does_not_change_the_way() {
        let truth = Truth { target: (5_000.0, 0.5), origin: (15_000.0, 0.5) };
        let mut costs = Costs::default();
        run(&mut costs, &truth, std::iter::repeat_n((100, 100), 1000));
        costs.took(Site::Target, 100, 100, 1_000_000_000);
        assert_eq!(costs.choose(Placement::Auto, 100, 100), Site::Target);
    }
}
