//! Layouts against an oracle that lists every byte, as MPI-3.1 §4.1 defines type maps.

use super::describe::{Layout, Order};
use super::{Cursor, Kind, Piece};
use proptest::prelude::*;

/// How a layout is built.
#[derive(Clone, Debug)]
enum Plan {
    Element(usize),
    Contiguous(Box<Plan>, usize),
    Vector(Box<Plan>, usize, usize, isize),
    Hvector(Box<Plan>, usize, usize, isize),
    Indexed(Box<Plan>, Vec<(isize, usize)>),
    Hindexed(Box<Plan>, Vec<(isize, usize)>),
    Structure(Vec<(isize, usize, Plan)>),
    Subarray(Box<Plan>, Vec<(usize, usize, usize)>, Order),
    Resized(Box<Plan>, isize, isize),
}

/// Every byte in packed order, the bounds that were set, and the kinds of the elements.
#[derive(Clone, Debug, Default)]
struct Oracle {
    bytes: Vec<isize>,
    lower: Vec<isize>,
    upper: Vec<isize>,
    kinds: Vec<Option<Kind>>,
}

impl Oracle {
    fn bound(&self, set: &[isize], of_bytes: fn(&[isize]) -> isize, max: bool) -> isize {
        match (set.is_empty(), max) {
            (true, _) => of_bytes(&self.bytes),
            (false, true) => *set.iter().max().unwrap(),
            (false, false) => *set.iter().min().unwrap(),
        }
    }
    fn lower(&self) -> isize {
        self.bound(&self.lower, |bytes| bytes.iter().min().copied().unwrap_or(0), false)
    }
    fn upper(&self) -> isize {
        self.bound(&self.upper, |bytes| bytes.iter().max().map_or(0, |last| last + 1), true)
    }
    fn extent(&self) -> isize {
        self.upper() - self.lower()
    }
    fn add(&mut self, other: &Oracle, at: isize, count: usize) {
        for k in 0..count as isize {
            let by = at + k * other.extent();
            self.bytes.extend(other.bytes.iter().map(|byte| byte + by));
            self.lower.extend(other.lower.iter().map(|bound| bound + by));
            self.upper.extend(other.upper.iter().map(|bound| bound + by));
            self.kinds.extend(&other.kinds);
        }
    }
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for &byte in &self.bytes {
            match pieces.last_mut() {
                Some(last) if last.offset + last.len as isize == byte => last.len += 1,
                _ => pieces.push(Piece { offset: byte, len: 1 }),
            }
        }
        pieces
    }
}

impl Plan {
    fn layout(&self) -> Layout {
        match self {
            Plan::Element(0) => Layout::of::<u8>(),
            Plan::Element(1) => Layout::of::<u16>(),
            Plan::Element(2) => Layout::of::<f64>(),
            Plan::Element(_) => Layout::of::<u128>(),
            Plan::Contiguous(of, n) => of.layout().contiguous(*n).unwrap(),
            Plan::Vector(of, n, block, stride) => of.layout().vector(*n, *block, *stride).unwrap(),
            Plan::Hvector(of, n, block, stride) => {
                of.layout().hvector(*n, *block, *stride).unwrap()
            }
            Plan::Indexed(of, blocks) => of.layout().indexed(blocks).unwrap(),
            Plan::Hindexed(of, blocks) => of.layout().hindexed(blocks).unwrap(),
            Plan::Structure(members) => {
                let members: Vec<_> =
                    members.iter().map(|(at, n, of)| (*at, *n, of.layout())).collect();
                Layout::structure(&members).unwrap()
            }
            Plan::Subarray(of, dims, order) => {
                let column =
                    |f: fn(&(usize, usize, usize)) -> usize| dims.iter().map(f).collect::<Vec<_>>();
                let (sizes, subs, starts) = (column(|d| d.0), column(|d| d.1), column(|d| d.2));
                of.layout().subarray(&sizes, &subs, &starts, *order).unwrap()
            }
            Plan::Resized(of, lower, extent) => of.layout().resized(*lower, *extent).unwrap(),
        }
    }

    fn oracle(&self) -> Oracle {
        let mut all = Oracle::default();
        match self {
            Plan::Element(n) => {
                all.bytes = (0..[1, 2, 8, 16][*n]).collect();
                all.kinds = vec![[Some(Kind::U8), Some(Kind::U16), Some(Kind::F64), None][*n]];
            }
            Plan::Contiguous(of, n) => all.add(&of.oracle(), 0, *n),
            Plan::Vector(of, n, block, stride) => {
                let of = of.oracle();
                (0..*n as isize).for_each(|k| all.add(&of, k * stride * of.extent(), *block));
            }
            Plan::Hvector(of, n, block, stride) => {
                let of = of.oracle();
                (0..*n as isize).for_each(|k| all.add(&of, k * stride, *block));
            }
            Plan::Indexed(of, blocks) => {
                let of = of.oracle();
                blocks.iter().for_each(|(at, n)| all.add(&of, at * of.extent(), *n));
            }
            Plan::Hindexed(of, blocks) => {
                let of = of.oracle();
                blocks.iter().for_each(|(at, n)| all.add(&of, *at, *n));
            }
            Plan::Structure(members) => {
                members.iter().for_each(|(at, n, of)| all.add(&of.oracle(), *at, *n));
            }
            Plan::Subarray(of, dims, order) => {
                let of = of.oracle();
                let slowest_first: Vec<_> = match order {
                    Order::C => dims.clone(),
                    Order::Fortran => dims.iter().rev().copied().collect(),
                };
                let total: usize = slowest_first.iter().map(|dim| dim.0).product();
                for index in 0..total {
                    // The element's place in each dimension, the fastest one last.
                    let mut rest = index;
                    let inside = slowest_first.iter().rev().all(|(size, sub, start)| {
                        let place = rest % size;
                        rest /= size;
                        (*start..start + sub).contains(&place)
                    });
                    if inside {
                        all.add(&of, index as isize * of.extent(), 1);
                    }
                }
                all.lower = vec![0];
                all.upper = vec![total as isize * of.extent()];
            }
            Plan::Resized(of, lower, extent) => {
                all = of.oracle();
                all.lower = vec![*lower];
                all.upper = vec![lower + extent];
            }
        }
        all
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let blocks = || prop::collection::vec((-6isize..12, 0usize..3), 0..5);
    (0usize..4).prop_map(Plan::Element).prop_recursive(4, 16, 3, move |inner| {
        let of = || inner.clone().prop_map(Box::new);
        let dim = (1usize..5)
            .prop_flat_map(|size| (Just(size), 0..=size))
            .prop_flat_map(|(size, start)| (Just(size), 0..=size - start, Just(start)));
        prop_oneof![
            (of(), 0usize..4).prop_map(|(of, n)| Plan::Contiguous(of, n)),
            (of(), 0usize..4, 0usize..3, -3isize..5)
                .prop_map(|(of, n, block, stride)| Plan::Vector(of, n, block, stride)),
            (of(), 0usize..4, 0usize..3, -20isize..30)
                .prop_map(|(of, n, block, stride)| Plan::Hvector(of, n, block, stride)),
            (of(), blocks()).prop_map(|(of, blocks)| Plan::Indexed(of, blocks)),
            (of(), blocks()).prop_map(|(of, blocks)| Plan::Hindexed(of, blocks)),
            prop::collection::vec((-40isize..80, 0usize..3, inner.clone()), 0..4)
                .prop_map(Plan::Structure),
            (of(), prop::collection::vec(dim, 1..4), any::<bool>()).prop_map(|(of, dims, c)| {
                Plan::Subarray(of, dims, if c { Order::C } else { Order::Fortran })
            }),
            (of(), -9isize..9, -9isize..40)
                .prop_map(|(of, lower, extent)| Plan::Resized(of, lower, extent)),
        ]
    })
}

fn walk(mut cursor: Cursor<'_>, most: usize) -> Vec<isize> {
    let mut bytes = Vec::new();
    while let Some(piece) = cursor.next_piece(most) {
        assert!(piece.len <= most && piece.len > 0);
        bytes.extend(piece.offset..piece.offset + piece.len as isize);
        assert_eq!(cursor.remaining(), cursor.size() - cursor.position());
    }
    assert_eq!(cursor.remaining(), 0);
    bytes
}

/// As [`walk`], by combs where there are some.
fn walk_by_combs(mut cursor: Cursor<'_>, most: usize) -> Vec<isize> {
    let mut bytes = Vec::new();
    loop {
        if let Some(comb) = cursor.next_comb(most) {
            assert!(comb.count > 1 && comb.count * comb.len <= most);
            for k in 0..comb.count as isize {
                let at = comb.offset + k * comb.stride;
                bytes.extend(at..at + comb.len as isize);
            }
        } else if let Some(piece) = cursor.next_piece(most.min(5)) {
            bytes.extend(piece.offset..piece.offset + piece.len as isize);
        } else {
            assert_eq!(cursor.remaining(), 0);
            return bytes;
        }
    }
}

fn check(layout: &Layout, oracle: &Oracle) {
    assert_eq!(layout.size(), oracle.bytes.len());
    assert_eq!((layout.lower_bound(), layout.extent()), (oracle.lower(), oracle.extent()));
    let low = oracle.bytes.iter().min().copied().unwrap_or(0);
    let high = oracle.bytes.iter().max().map_or(0, |last| last + 1);
    assert_eq!((layout.true_lower_bound(), layout.true_extent()), (low, (high - low) as usize));
    assert!(layout.runs() >= oracle.pieces().len());
    for count in [0, 1, 3] {
        let mut all = Oracle::default();
        all.add(oracle, 0, count);
        let shape = layout.times(count);
        assert_eq!(shape.size().unwrap(), all.bytes.len());
        let low = all.bytes.iter().min().copied().unwrap_or(0);
        let high = all.bytes.iter().max().map_or(0, |last| last + 1);
        assert_eq!(shape.true_bounds().unwrap(), (low, high));
        assert_eq!(walk(Cursor::new(shape).unwrap(), usize::MAX), all.bytes);
        assert_eq!(walk(Cursor::new(shape).unwrap(), 3), all.bytes);
        for most in [7, 40, usize::MAX] {
            assert_eq!(walk_by_combs(Cursor::new(shape).unwrap(), most), all.bytes);
        }
        for position in [1, 2, 7, 40, 41, 1000].into_iter().filter(|at| *at <= all.bytes.len()) {
            let cursor = Cursor::at(shape, position).unwrap();
            assert_eq!(walk(cursor, 5), all.bytes[position..]);
        }
        assert!(Cursor::at(shape, all.bytes.len() + 1).is_err());
        if let Some((at, len)) = shape.single() {
            assert_eq!(all.pieces(), [Piece { offset: at, len }]);
        }
        for to in [2, 4, 8, 16] {
            for base in [0, 1, 4, 1 << 20] {
                // Runs of whole elements, as kinds guarantee: not every byte need be aligned.
                if shape.is_aligned(base, to) {
                    let aligned =
                        |piece: &Piece| base.wrapping_add_signed(piece.offset).is_multiple_of(to);
                    assert!(all.pieces().iter().all(aligned));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn layouts_are_what_their_type_maps_say(plan in plans()) {
        let oracle = plan.oracle();
        prop_assume!(oracle.bytes.len() < 20_000);
        let layout = plan.layout();
        check(&layout, &oracle);
        if let Some(kind) = layout.kind() {
            prop_assert!(oracle.kinds.iter().all(|k| *k == Some(kind)));
        }
    }

    #[test]
    fn layouts_that_are_the_same_put_the_same_bytes_at_the_same_places(
        a in plans(),
        b in plans(),
    ) {
        let (one, other) = (a.layout(), b.layout());
        prop_assert!(one.same(&a.layout()), "built the same way");
        prop_assert!(one.same(&one.clone()));
        prop_assert_eq!(one.same(&other), other.same(&one));
        if one.same(&other) {
            let twice = |plan: &Plan| {
                let mut all = Oracle::default();
                all.add(&plan.oracle(), 0, 2);
                all.bytes
            };
            prop_assert_eq!(twice(&a), twice(&b));
        }
    }

    #[test]
    fn layouts_survive_the_wire(plan in plans()) {
        let oracle = plan.oracle();
        prop_assume!(oracle.bytes.len() < 20_000);
        let mut wire = Vec::new();
        plan.layout().encode(&mut wire);
        let read = Layout::decode(&wire, oracle.bytes.len()).unwrap();
        check(&read, &oracle);
        prop_assert_eq!(read.kind(), plan.layout().kind());
        let mut again = Vec::new();
        read.encode(&mut again);
        prop_assert_eq!(&again, &wire);
        if !oracle.bytes.is_empty() {
            prop_assert!(Layout::decode(&wire, oracle.bytes.len() - 1).is_err());
        }
        for end in 0..wire.len() {
            prop_assert!(Layout::decode(&wire[..end], usize::MAX).is_err());
        }
    }

    #[test]
    fn packing_and_unpacking_move_the_bytes_of_the_type_map(plan in plans(), step in 1usize..70) {
        let oracle = plan.oracle();
        prop_assume!(oracle.bytes.len() < 20_000);
        let layout = plan.layout();
        let shape = layout.times(1);
        let (low, high) = shape.true_bounds().unwrap();
        let zero = low.min(0).unsigned_abs();
        let memory: Vec<u8> = (0..zero + high.max(0) as usize).map(|i| (i * 7) as u8).collect();
        let at = |byte: isize| zero.checked_add_signed(byte).unwrap();
        let want: Vec<u8> = oracle.bytes.iter().map(|byte| memory[at(*byte)]).collect();
        let (mut packed, mut cursor) = (Vec::<u8>::new(), Cursor::new(shape).unwrap());
        while cursor.remaining() > 0 {
            let mut unit = vec![0; step];
            let got = cursor.pack(&memory, zero, &mut unit).unwrap();
            prop_assert!(got == step || cursor.remaining() == 0);
            packed.extend(&unit[..got]);
        }
        prop_assert_eq!(&packed, &want);
        // Later bytes in packed order win where places repeat.
        let (mut got, mut wanted) = (vec![0; memory.len()], vec![0; memory.len()]);
        let data: Vec<u8> = (0..want.len()).map(|i| (i * 13 + 1) as u8).collect();
        oracle.bytes.iter().zip(&data).for_each(|(byte, value)| wanted[at(*byte)] = *value);
        let mut cursor = Cursor::new(shape).unwrap();
        for unit in data.chunks(step) {
            prop_assert_eq!(cursor.unpack(&mut got, zero, unit).unwrap(), unit.len());
        }
        prop_assert_eq!(got, wanted);
        if !want.is_empty() {
            let mut unit = vec![0; want.len()];
            let short = &memory[..at(high) - 1];
            let mut cursor = Cursor::new(shape).unwrap();
            prop_assert!(cursor.pack(short, zero, &mut unit).is_err());
        }
    }

    #[test]
    fn any_bytes_are_refused_or_describe_something_sound(
        bytes in prop::collection::vec(any::<u8>(), 0..60)
    ) {
        sound(&bytes);
    }

    #[test]
    fn damaged_layouts_are_refused_or_describe_something_sound(
        plan in plans(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut wire = Vec::new();
        plan.layout().encode(&mut wire);
        for (at, value) in damage {
            let at = at.index(wire.len());
            wire[at] = value;
        }
        sound(&wire);
    }
}

/// Whatever is read can be walked, and stays inside its bounds.
fn sound(bytes: &[u8]) {
    let Ok(layout) = Layout::decode(bytes, 1 << 40) else { return };
    assert!(layout.size() <= 1 << 40);
    let shape = layout.times(2);
    let Ok((low, high)) = shape.true_bounds() else { return };
    let mut cursor = Cursor::new(shape).unwrap();
    for start in [0, layout.size() / 2, layout.size()] {
        cursor.seek(start).unwrap();
        for _ in 0..200 {
            let Some(piece) = cursor.next_piece(usize::MAX) else { break };
            assert!(piece.offset >= low && piece.offset + piece.len as isize <= high);
        }
    }
    let mut again = Vec::new();
    layout.encode(&mut again);
    let read = Layout::decode(&again, 1 << 40).unwrap();
    assert_eq!(read.size(), layout.size());
}

#[test]
fn nested_strides_stay_small_whatever_they_count() {
    let plane = Layout::of::<f64>().vector(1 << 20, 3, 7).unwrap();
    let body = plane.hvector(1 << 15, 1, 1 << 31).unwrap();
    let mut wire = Vec::new();
    body.encode(&mut wire);
    assert!(wire.len() < 40, "{} bytes", wire.len());
    assert_eq!(body.runs(), 1 << 35);
    assert_eq!(body.size(), 24 << 35);
    let mut cursor = Cursor::at(body.times(1), 24 * ((5 << 20) + 9) + 8).unwrap();
    let place = (5isize << 31) + 9 * 56;
    assert_eq!(cursor.next_piece(100), Some(Piece { offset: place + 8, len: 16 }));
    assert_eq!(cursor.next_piece(10), Some(Piece { offset: place + 56, len: 10 }));
}

#[test]
fn neighbours_become_one() {
    let runs = |layout: &Layout| layout.runs();
    let f64s = Layout::of::<f64>();
    assert_eq!(runs(&f64s.contiguous(1000).unwrap().vector(10, 4, 4).unwrap()), 1);
    assert_eq!(runs(&f64s.indexed(&[(0, 3), (3, 2), (5, 1), (9, 1)]).unwrap()), 2);
    assert_eq!(runs(&f64s.indexed(&[(0, 1), (2, 1), (4, 1)]).unwrap()), 3);
    let whole = f64s.subarray(&[9, 8, 7], &[3, 8, 7], &[2, 0, 0], Order::C).unwrap();
    assert_eq!(runs(&whole), 1);
    let members = [(0, 1, Layout::of::<u32>()), (4, 1, Layout::of::<u32>())];
    assert_eq!(runs(&Layout::structure(&members).unwrap()), 1);
}

#[test]
fn kinds_are_uniform_or_none() {
    let of = |members: &[(isize, usize, Layout)]| Layout::structure(members).unwrap().kind();
    let (a, b) = (Layout::of::<[f32; 3]>(), Layout::of::<u32>());
    assert_eq!(of(&[(0, 1, a.clone()), (12, 2, a.clone())]), Some(Kind::F32));
    assert_eq!(of(&[(0, 1, a.clone()), (12, 1, b.clone())]), None);
    assert_eq!(of(&[(0, 1, a), (12, 0, b)]), Some(Kind::F32));
}

#[test]
fn a_part_used_often_is_written_once() {
    let mut layout = Layout::of::<u16>().indexed(&[(0, 1), (2, 1), (5, 3)]).unwrap();
    for _ in 0..16 {
        let n = layout.extent();
        let copies = [(0, 1, layout.clone()), (n + 1, 1, layout.clone()), (3 * n, 1, layout)];
        layout = Layout::structure(&copies).unwrap();
    }
    assert_eq!(layout.size(), 10 * 3usize.pow(16));
    let mut wire = Vec::new();
    layout.encode(&mut wire);
    assert!(wire.len() < 400, "{} bytes", wire.len());
    assert_eq!(Layout::decode(&wire, 1 << 30).unwrap().runs(), layout.runs());
}

#[test]
fn what_is_too_large_or_too_deep_is_refused() {
    let huge = Layout::of::<u8>().contiguous(1 << 60).unwrap();
    assert!(huge.contiguous(4).is_err());
    assert!(huge.hvector(2, 1, isize::MAX).is_err());
    assert!(huge.hindexed(&[(isize::MIN, 1)]).is_err());
    assert!(huge.resized(isize::MAX, 1).is_err());
    assert!(huge.times(8).size().is_err());
    assert!(Cursor::new(huge.times(8)).is_err());
    assert!(huge.subarray(&[8], &[1], &[7], Order::C).is_err());
    let byte = Layout::of::<u8>();
    assert!(byte.subarray(&[4], &[3], &[2], Order::C).is_err());
    assert!(byte.subarray(&[4], &[3], &[], Order::C).is_err());
    assert!(byte.subarray(&[4], &[usize::MAX], &[2], Order::C).is_err());
    let mut deep = byte.indexed(&[(0, 1), (2, 1), (5, 1)]).unwrap();
    let grown = (0..100).find_map(|_| {
        let next = deep.hvector(2, 1, 3 * deep.extent());
        next.map(|next| deep = next).err()
    });
    assert!(grown.unwrap().to_string().contains("deep"));
}
