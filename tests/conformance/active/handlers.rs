//! The handlers of the generated messages: one function of what they are given, four times.

use super::family::{Kind, places};
use super::shapes::{EACH, PART};
use hither::{
    Call, Handler, Op, RawCall, Result, Shape, UntypedHandler, VectorCall, VectorHandler, View,
    Window,
};

/// Scatters the bits of a number.
pub fn weight(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The output for a value of a segment; `fixed`: the constant at the same place.
pub fn respond(value: u32, segment: usize, fixed: u64) -> u32 {
    value.wrapping_mul(3).wrapping_add(segment as u32) ^ fixed as u32
}

/// Which of the sums a value goes to: an element of the persistent part, in packed order.
pub fn sum_of(value: u32) -> usize {
    PART / 2 + value as usize % (PART / 2)
}

/// What it adds.
pub fn addend(value: u32, segment: usize) -> u64 {
    u64::from(value) * (segment as u64 + 1)
}

/// How many entries of output a segment has that begins with this value.
pub fn entries(first: u32, segment: usize, most: usize) -> usize {
    (first as usize / 7 + segment) % (most + 1)
}

/// All of them, on one window.
pub struct Handlers {
    pub typed: Handler<u64, u32, u32>,
    pub vector: VectorHandler<u64, u32, u32>,
    untyped: UntypedHandler,
    untyped_vector: UntypedHandler,
}

impl Handlers {
    /// Collective. `concurrent`: they may run at the same time.
    pub fn register(window: &Window<u64>, concurrent: bool) -> Result<Handlers> {
        Ok(Handlers {
            typed: window.register(1, move |call| typed(call, concurrent))?,
            vector: window.register_vector(2, move |call| vector(call, concurrent))?,
            untyped: window.register_untyped(3, false, move |call| untyped(call, concurrent))?,
            untyped_vector: window
                .register_untyped(4, true, move |call| untyped(call, concurrent))?,
        })
    }

    pub fn untyped(&self, kind: Kind) -> &UntypedHandler {
        if kind == Kind::UntypedVector { &self.untyped_vector } else { &self.untyped }
    }
}

/// What every handler does, given where things are.
struct Work<'v> {
    part: View<'v, u64>,
    /// Elements of the persistent part in the view, in packed order.
    places: Vec<usize>,
    concurrent: bool,
}

impl Work<'_> {
    /// Takes one value; returns what goes to output at the same place.
    fn take(&self, value: u32, segment: usize, k: usize) -> u32 {
        let sum = self.places[sum_of(value)];
        let addend = addend(value, segment);
        if self.concurrent {
            self.part.fetch_and_op(sum, Op::Sum, addend).expect("inside the part");
        } else {
            // Lost if two ran at the same time.
            let old = self.part.get(sum).expect("inside the part");
            self.part.set(sum, old.wrapping_add(addend)).expect("inside the part");
        }
        let fixed = self.part.get(self.places[k]).expect("inside the part");
        respond(value, segment, fixed)
    }
}

/// Where the elements of all segments are, from the buffer's first byte on.
fn elements(shape: Option<Shape<'_>>, segments: usize) -> Vec<usize> {
    match shape {
        None => (0..segments * EACH).collect(),
        Some(one) => {
            let all = places::<u32>(one.layout.times(one.count * segments));
            all.into_iter().map(|at| usize::try_from(at).expect("not backwards")).collect()
        }
    }
}

fn part_of(persistent: Option<(isize, Shape<'_>)>) -> Vec<usize> {
    match persistent {
        None => (0..PART).collect(),
        Some((at, shape)) => places::<u64>(shape)
            .into_iter()
            .map(|place| usize::try_from(at + place).expect("inside the view"))
            .collect(),
    }
}

fn typed(mut call: Call<'_, u64, u32, u32>, concurrent: bool) {
    let places = part_of(call.persistent_shape());
    let work = Work { part: call.persistent, places, concurrent };
    let from = elements(call.input_shape(), call.segments);
    let to = elements(call.output_shape(), call.segments);
    assert_eq!(from.len(), call.segments * EACH);
    if call.input_shape().is_none_or(|shape| shape.single() == Some((0, EACH * 4))) {
        for s in 0..call.segments {
            assert_eq!(call.input_of(s), &call.input[s * EACH..(s + 1) * EACH]);
        }
        assert!(call.input_of(call.segments).is_empty());
    }
    for (n, at) in from.iter().enumerate() {
        let (s, k) = (n / EACH, n % EACH);
        let made = work.take(call.input[*at], call.segment_offset + s, k);
        // A posted message has no output.
        if let Some(to) = to.get(n) {
            call.output[*to] = made;
        }
    }
    let last = call.segments - 1;
    assert!(to.is_empty() || !call.output_of(last).is_empty());
}

fn vector(call: VectorCall<'_, u64, u32, u32>, concurrent: bool) {
    let places = part_of(call.persistent_shape());
    let work = Work { part: call.persistent, places, concurrent };
    let from = elements(call.input_shape(), call.segments);
    let to = elements(call.output_shape(), call.segments);
    let shape = call.output_shape();
    let most = shape.map_or(EACH, |shape| shape.count);
    assert_eq!(call.counts.len(), call.segments);
    assert!(call.counts.iter().all(|count| *count == 0));
    for s in 0..call.segments {
        let segment = call.segment_offset + s;
        let first = call.input[from[s * EACH]];
        let made = if to.is_empty() { 0 } else { entries(first, segment, most) };
        call.counts[s] = made;
        for k in 0..EACH {
            let n = s * EACH + k;
            let answer = work.take(call.input[from[n]], segment, k);
            if most > 0 && k < made * (EACH / most) {
                call.output[to[n]] = answer;
            }
        }
    }
}

fn untyped(call: &mut RawCall<'_>, concurrent: bool) {
    // SAFETY: the window's elements are u64.
    let part: View<'_, u64> = unsafe { call.view() }.expect("aligned");
    let elements_of = places::<u64>(call.persistent_shape);
    let lowest = elements_of.iter().min().copied().unwrap_or(0);
    let places = elements_of.iter().map(|at| (at - lowest) as usize).collect();
    let work = Work { part, places, concurrent };
    let from = elements(Some(call.input_segment), call.segments);
    let to = elements(Some(call.output_segment), call.segments);
    let (input, output) = (call.input.cast::<u32>(), call.output.cast::<u32>());
    let most = call.output_segment.count;
    for s in 0..call.segments {
        let segment = call.segment_offset + s;
        let mut made = EACH;
        if let Some(counts) = &mut call.counts {
            // SAFETY: an element that the input's shape describes.
            let first = unsafe { input.add(from[s * EACH]).read_unaligned() };
            counts[s] = if to.is_empty() { 0 } else { entries(first, segment, most) };
            made = counts[s] * (EACH / most.max(1));
        }
        for k in 0..EACH {
            let n = s * EACH + k;
            // SAFETY: elements that the shapes describe.
            unsafe {
                let answer = work.take(input.add(from[n]).read_unaligned(), segment, k);
                if k < made && !to.is_empty() {
                    output.add(to[n]).write_unaligned(answer);
                }
            }
        }
    }
}
