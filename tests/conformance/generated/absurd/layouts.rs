//! Layouts that may be anything.

use super::super::super::support::random::Random;
use super::arguments::{number, signed, typed};
use hither::{Job, Layout, Order, Result};

/// A layout that may be anything, if there is one like that.
pub fn layout(random: &mut Random) -> Option<Layout> {
    let mut layout = match random.below(4) {
        0 => Layout::of::<u8>(),
        1 => Layout::of::<[u32; 3]>(),
        _ => Layout::of::<u64>(),
    };
    for _ in 0..random.below(4) {
        layout = typed("a layout", built(&layout, random))?;
    }
    Some(layout)
}

fn built(of: &Layout, random: &mut Random) -> Result<Layout> {
    let many: Vec<(isize, usize)> =
        (0..random.below(4)).map(|_| (signed(random), number(random))).collect();
    match random.below(8) {
        0 => of.contiguous(number(random)),
        1 => of.vector(number(random), number(random), signed(random)),
        2 => of.hvector(number(random), number(random), signed(random)),
        3 => of.indexed(&many),
        4 => of.hindexed(&many),
        5 => {
            let members: Vec<_> = many.iter().map(|&(at, n)| (at, n, of.clone())).collect();
            Layout::structure(&members)
        }
        6 => {
            let mut three = || [number(random), number(random), number(random)];
            of.subarray(&three(), &three(), &three(), Order::Fortran)
        }
        _ => of.resized(signed(random), signed(random)),
    }
}

/// Layouts alone: what they say of themselves must agree with a walk over them.
pub fn layouts(job: &Job) -> Result<()> {
    use hither::layout::Cursor;
    let mut random = Random::new(99 + u64::from(job.rank().0));
    let mut walked = 0;
    for _ in 0..2000 {
        let Some(layout) = layout(&mut random) else { continue };
        let shape = layout.times(number(&mut random));
        let Some(mut cursor) = typed("Cursor::new", Cursor::new(shape)) else { continue };
        let (Ok(size), Ok((low, high))) = (shape.size(), shape.true_bounds()) else {
            panic!("a cursor over a shape without size: {shape:?}")
        };
        typed("Cursor::at", Cursor::at(shape, number(&mut random)));
        let mut seen = 0;
        for _ in 0..50 {
            let Some(piece) = cursor.next_piece(number(&mut random)) else { break };
            assert!(piece.offset >= low && piece.offset + piece.len as isize <= high);
            seen += piece.len;
            assert_eq!(cursor.position(), seen);
        }
        assert!(seen <= size);
        walked += 1;
        let mut small = [0u8; 64];
        typed("pack", Cursor::new(shape)?.pack(&[1; 64], number(&mut random), &mut small));
        typed("unpack", Cursor::new(shape)?.unpack(&mut small, number(&mut random), &[1; 64]));
        let mut wire = Vec::new();
        layout.encode(&mut wire);
        let back = Layout::decode(&wire, usize::MAX)?;
        assert_eq!((back.size(), back.extent()), (layout.size(), layout.extent()));
    }
    assert!(walked > 100, "hardly any layout could be made");
    let mut deep = Layout::of::<u64>();
    let mut depth = 0;
    // Ends with an error before anything overflows.
    while let Ok(deeper) = deep.resized(0, 8 << depth.min(50)).and_then(|l| l.vector(2, 1, 3)) {
        deep = deeper;
        depth += 1;
        assert!(depth < 1000, "layouts of any depth");
    }
    Ok(())
}
