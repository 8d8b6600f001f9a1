//! The cache against a device that knows which memory each registration leads to.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Pages of the small address space of these tests.
const PAGES: u64 = 64;

/// A device: what is registered, and which mapping of each page it leads to.
#[derive(Default, Debug)]
struct Device {
    next: u32,
    registered: HashMap<u32, (Range<u64>, Vec<u32>)>,
    /// Counts mappings of each page.
    mapped: Vec<u32>,
}

impl Device {
    fn mappings(&self, range: &Range<u64>) -> Vec<u32> {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        pages.map(|page| self.mapped[page as usize]).collect()
    }

    fn register(&mut self, range: Range<u64>) -> u32 {
        self.next += 1;
        let mappings = self.mappings(&range);
        self.registered.insert(self.next, (range, mappings));
        self.next
    }
}

#[derive(Clone, Debug)]
enum Step {
    Own(Range<u64>),
    Disown(Range<u64>),
    Acquire(Range<u64>, bool),
    Release(prop::sample::Index),
    Revoke(prop::sample::Index),
    /// Memory that is not owned is mapped anew.
    Remap(u64),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..PAGES * PAGE - 1, prop_oneof![3 => 1u64..3 * PAGE, 1 => 1u64..20 * PAGE])
        .prop_map(|(start, len)| start..(start + len).min(PAGES * PAGE))
}

fn pages() -> impl Strategy<Value = Range<u64>> {
    (0..PAGES, 1u64..24).prop_map(|(start, len)| start * PAGE..(start + len).min(PAGES) * PAGE)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => pages().prop_map(Step::Own),
        1 => pages().prop_map(Step::Disown),
        8 => (range(), prop::bool::weighted(0.9)).prop_map(|(r, works)| Step::Acquire(r, works)),
        7 => any::<prop::sample::Index>().prop_map(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Revoke),
        2 => (0..PAGES).prop_map(Step::Remap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_leads_to_the_memory_that_is_there(
        steps in prop::collection::vec(step(), 1..150),
        bytes in 4 * PAGE..60 * PAGE,
        entries in 1usize..12,
    ) {
        let mut cache = RegistrationCache::new(Limits { bytes, entries });
        let mut device = Device { mapped: vec![0; PAGES as usize], ..Device::default() };
        let mut owned: BTreeSet<u64> = BTreeSet::new();
        // Stretches as they were declared: what is taken back must lie in one.
        let mut leases: Vec<(Lease, Range<u64>)> = Vec::new();
        for step in steps {
            match step {
                Step::Own(range) => {
                    let pages = range.start / PAGE..range.end / PAGE;
                    let free = pages.clone().all(|page| !owned.contains(&page));
                    let result = cache.own(range);
                    prop_assert_eq!(result, if free { Ok(()) } else { Err(Ownership::Overlaps) });
                    if free {
                        owned.extend(pages);
                    }
                }
                Step::Disown(range) => {
                    let pages = range.start / PAGE..range.end / PAGE;
                    let mut gone = Vec::new();
                    match cache.disown(range.clone(), |registration| gone.push(registration)) {
                        Ok(()) => {
                            for page in pages {
                                prop_assert!(owned.remove(&page));
                                // It is unmapped, and something else comes there.
                                device.mapped[page as usize] += 1;
                            }
                        }
                        Err(Ownership::NotOwned) => {}
                        Err(Ownership::InUse(count)) => {
                            let touch = |lease: &Lease| {
                                let (_, of) = cache.registration(lease).unwrap();
                                of.start < range.end && range.start < of.end
                            };
                            prop_assert!(count > 0 && leases.iter().any(|(lease, _)| touch(lease)));
                            prop_assert!(gone.is_empty());
                        }
                        Err(other) => prop_assert!(false, "{:?}", other),
                    }
                    for registration in gone {
                        prop_assert!(device.registered.remove(&registration).is_some());
                    }
                }
                Step::Acquire(range, works) => {
                    let before = cache.bytes();
                    let mut gone = Vec::new();
                    let lease = cache.acquire(
                        range.clone(),
                        |range| if works { Ok(device.register(range)) } else { Err("no") },
                        |registration| gone.push(registration),
                    );
                    for registration in gone {
                        prop_assert!(device.registered.remove(&registration).is_some());
                    }
                    match lease {
                        Ok(lease) => {
                            let (registration, of) = cache.registration(&lease).unwrap();
                            let (registered, mappings) = &device.registered[registration];
                            prop_assert_eq!(&of, registered);
                            prop_assert!(of.start <= range.start && range.end <= of.end);
                            prop_assert_eq!(&device.mappings(registered), mappings, "stale");
                            if lease.is_cached() {
                                let mut pages = of.start / PAGE..of.end / PAGE;
                                prop_assert!(pages.all(|page| owned.contains(&page)));
                            }
                            leases.push((lease, range));
                        }
                        Err(Refusal::Full) => prop_assert!(!leases.is_empty() || range.end - range.start + 2 * PAGE > bytes),
                        Err(Refusal::Device("no")) => prop_assert!(cache.bytes() <= before),
                        Err(other) => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Release(index) if !leases.is_empty() => {
                    let (lease, _) = leases.swap_remove(index.index(leases.len()));
                    let mut gone = Vec::new();
                    cache.release(lease, |registration| gone.push(registration));
                    for registration in gone {
                        prop_assert!(device.registered.remove(&registration).is_some());
                    }
                }
                Step::Revoke(index) if !leases.is_empty() => {
                    let (lease, _) = leases.swap_remove(index.index(leases.len()));
                    let revoked = lease.id;
                    let mut gone = Vec::new();
                    cache.revoke(lease, |registration| gone.push(registration));
                    prop_assert_eq!(gone.len(), 1);
                    prop_assert!(device.registered.remove(&gone[0]).is_some());
                    // Those who shared it have nothing any more; giving it back changes nothing.
                    let shared = leases.extract_if(.., |(lease, _)| lease.id == revoked);
                    for (lease, _) in shared.collect::<Vec<_>>() {
                        prop_assert_eq!(cache.registration(&lease), None);
                        cache.release(lease, |_| panic!("it is gone"));
                    }
                }
                Step::Release(_) | Step::Revoke(_) => {}
                Step::Remap(page) => {
                    let in_use = |(lease, _): &(Lease, Range<u64>)| {
                        let (_, of) = cache.registration(lease).unwrap();
                        of.start / PAGE <= page && page < of.end.div_ceil(PAGE)
                    };
                    if !owned.contains(&page) && !leases.iter().any(in_use) {
                        device.mapped[page as usize] += 1;
                    }
                }
            }
            // What is in use is registered, nothing is registered that the cache does not know.
            prop_assert_eq!(device.registered.len(), cache.len());
            let total: u64 = device.registered.values().map(|(of, _)| of.end - of.start).sum();
            prop_assert_eq!(cache.bytes(), total);
            prop_assert!(total <= bytes && cache.len() <= entries);
            for (lease, range) in &leases {
                let (registration, of) = cache.registration(lease).unwrap();
                prop_assert!(device.registered.contains_key(registration));
                prop_assert!(of.start <= range.start && range.end <= of.end);
            }
        }
        for (lease, _) in leases {
            cache.release(lease, |registration| drop(device.registered.remove(&registration)));
        }
        cache.flush(|registration| drop(device.registered.remove(&registration)));
        prop_assert!(device.registered.is_empty() && cache.is_empty());
        prop_assert_eq!(cache.bytes(), 0);
    }
}

fn acquire(cache: &mut RegistrationCache<u64>, range: Range<u64>, gone: &mut Vec<u64>) -> Lease {
    cache.acquire(range, |of| Ok::<_, ()>(of.start), |r| gone.push(r)).unwrap()
}

#[test]
fn the_least_recently_used_goes_and_what_is_in_use_never() {
    let mut cache = RegistrationCache::new(Limits { bytes: 3 * PAGE, entries: 9 });
    cache.own(0..100 * PAGE).unwrap();
    let mut gone = Vec::new();
    let page = |i: u64| i * 2 * PAGE..i * 2 * PAGE + 100;
    let leases: Vec<Lease> = (0..3).map(|i| acquire(&mut cache, page(i), &mut gone)).collect();
    // All are in use.
    let full = cache.acquire(page(3), |_| Ok::<_, ()>(7), |_| panic!("in use"));
    assert_eq!(full, Err(Refusal::Full));
    leases.into_iter().for_each(|lease| cache.release(lease, |_| panic!("lazily")));
    let again = acquire(&mut cache, page(0), &mut gone);
    cache.release(again, |_| panic!("lazily"));
    assert_eq!(gone, []);
    let fourth = acquire(&mut cache, page(3), &mut gone);
    assert_eq!(gone, [page(1).start]);
    assert_eq!(cache.counters(), Counters { hits: 1, misses: 5, once: 0, evictions: 1 });
    cache.release(fourth, |_| panic!("lazily"));
}

#[test]
fn memory_of_others_is_registered_for_one_transfer() {
    let mut cache = RegistrationCache::new(Limits { bytes: 30 * PAGE, entries: 9 });
    cache.own(0..10 * PAGE).unwrap();
    let mut gone = Vec::new();
    // Half of it is not owned.
    for range in [10 * PAGE..11 * PAGE, 9 * PAGE..11 * PAGE] {
        let lease = acquire(&mut cache, range.clone(), &mut gone);
        assert!(!lease.is_cached());
        assert_eq!(cache.registration(&lease), Some((&range.start, range.clone())));
        cache.release(lease, |r| gone.push(r));
        assert_eq!((gone.pop(), cache.len()), (Some(range.start), 0));
    }
    assert_eq!(cache.acquire(5..5, |_| Ok::<_, ()>(0), |_| ()), Err(Refusal::Range));
}

#[test]
fn registrations_that_overlap_become_one() {
    let mut cache = RegistrationCache::new(Limits { bytes: 100 * PAGE, entries: 9 });
    cache.own(0..100 * PAGE).unwrap();
    let mut gone = Vec::new();
    let first = acquire(&mut cache, 0..2 * PAGE, &mut gone);
    cache.release(first, |_| panic!("lazily"));
    let used = acquire(&mut cache, 3 * PAGE..5 * PAGE, &mut gone);
    let both = acquire(&mut cache, PAGE + 5..4 * PAGE, &mut gone);
    assert_eq!(cache.registration(&both), Some((&0, 0..5 * PAGE)));
    assert_eq!(gone, [0]);
    // The one in use is as good as before, and goes with its user.
    assert_eq!(cache.registration(&used), Some((&(3 * PAGE), 3 * PAGE..5 * PAGE)));
    assert_eq!(cache.disown(0..PAGE, |_| panic!("in use")), Err(Ownership::InUse(1)));
    assert_eq!(cache.disown(4 * PAGE..5 * PAGE, |_| panic!("in use")), Err(Ownership::InUse(2)));
    cache.release(used, |r| gone.push(r));
    assert_eq!(gone, [0, 3 * PAGE]);
    cache.release(both, |_| panic!("lazily"));
    cache.disown(2 * PAGE..3 * PAGE, |r| gone.push(r)).unwrap();
    assert_eq!((gone.len(), cache.len()), (3, 0));
    assert_eq!(cache.own(PAGE..3 * PAGE), Err(Ownership::Overlaps));
    assert_eq!(cache.disown(PAGE..3 * PAGE, |_| ()), Err(Ownership::NotOwned));
    assert_eq!(cache.own(2 * PAGE..3 * PAGE), Ok(()));
    assert_eq!(cache.own(7..7), Err(Ownership::Empty));
}
