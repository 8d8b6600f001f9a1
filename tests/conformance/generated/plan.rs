//! Which cases there are: every pair of values of any two dimensions that go together, and the
//! full product of the dimensions that matter most to each other (operation, elements,
//! synchronisation, way), and every operation under every synchronisation where parts are private.
//! Deterministic: all ranks make the same list.

use super::dimension::{
    Case, DIMENSIONS, Elements, Memory, Operation, Parts, Promise, Shape, Sync, Way,
};
use crate::support::random::Random;

type At = [usize; DIMENSIONS];

/// All cases, each once.
pub fn cases() -> Vec<Case> {
    let mut all = product();
    all.extend(mixed());
    for case in pairs() {
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

/// The dimensions of the full product; of the others the first value that goes with the rest.
const MATTER: [usize; 4] = [1, 2, 3, 7];

fn product() -> Vec<Case> {
    let mut all = Vec::new();
    let sizes = MATTER.map(|d| Case::SIZES[d]);
    for number in 0..sizes.iter().product() {
        let mut at: At = [0; DIMENSIONS];
        let mut left = number;
        for (&d, &size) in MATTER.iter().zip(&sizes) {
            at[d] = left % size;
            left /= size;
        }
        if let Some(case) = complete(at) {
            all.push(case);
        }
    }
    all
}

/// Windows of which some parts are mapped and others not, or none, without asking for packets:
/// every synchronisation with every operation.
fn mixed() -> Vec<Case> {
    let memories = [Memory::CreateMixed, Memory::CreatePrivate, Memory::DynamicPrivate];
    let mut all = Vec::new();
    for memory in memories {
        for &sync in Sync::ALL {
            for &operation in Operation::ALL {
                for shape in [Shape::Contiguous, Shape::IndexedBoth] {
                    let case = Case {
                        memory,
                        operation,
                        elements: Elements::U64,
                        sync,
                        shape,
                        parts: Parts::Same,
                        promise: Promise::None,
                        way: Way::Direct,
                    };
                    all.extend(case.valid().then_some(case));
                }
            }
        }
    }
    all
}

/// The case of the product at `at`, with other values of the other dimensions if the first ones
/// do not go with it.
fn complete(at: At) -> Option<Case> {
    let free: Vec<usize> = (0..DIMENSIONS).filter(|d| !MATTER.contains(d)).collect();
    let sizes: Vec<usize> = free.iter().map(|&d| Case::SIZES[d]).collect();
    (0..sizes.iter().product()).find_map(|number: usize| {
        let mut at = at;
        let mut left = number;
        for (&d, &size) in free.iter().zip(&sizes) {
            at[d] = left % size;
            left /= size;
        }
        let case = Case::at(at);
        (case.valid() && !case.shape.is_long()).then_some(case)
    })
}

/// Two values of two dimensions.
type Pair = (usize, usize, usize, usize);

/// Cases in which each pair that is possible at all occurs: for each pair not seen yet, the best of
/// some random fillings of the other dimensions.
fn pairs() -> Vec<Case> {
    let mut random = Random::new(1);
    let mut seen = std::collections::HashSet::new();
    let mut all = Vec::new();
    for pair in every_pair() {
        if seen.contains(&pair) {
            continue;
        }
        let best = (0..60)
            .filter_map(|_| {
                let mut at: At =
                    std::array::from_fn(|d| random.below(Case::SIZES[d] as u64) as usize);
                at[pair.0] = pair.1;
                at[pair.2] = pair.3;
                Case::at(at).valid().then_some(at)
            })
            .max_by_key(|at| pairs_of(at).filter(|p| !seen.contains(p)).count());
        if let Some(at) = best {
            seen.extend(pairs_of(&at));
            all.push(Case::at(at));
        }
    }
    all
}

fn every_pair() -> impl Iterator<Item = Pair> {
    (0..DIMENSIONS).flat_map(|a| {
        (a + 1..DIMENSIONS).flat_map(move |b| {
            (0..Case::SIZES[a]).flat_map(move |x| (0..Case::SIZES[b]).map(move |y| (a, x, b, y)))
        })
    })
}

fn pairs_of(at: &At) -> impl Iterator<Item = Pair> {
    let at = *at;
    (0..DIMENSIONS).flat_map(move |a| (a + 1..DIMENSIONS).map(move |b| (a, at[a], b, at[b])))
}
