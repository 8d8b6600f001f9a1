//! Generated messages: every kind of handler in every kind of epoch, on all layouts of input,
//! output and persistent part, with no segment, one, two and many, issued in every form.
//!
//! What must come out is computed from the seed alone: each output from the message, the sums in
//! each part from the messages that all ranks sent there.

use super::handlers::{Handlers, respond, weight};
use super::shapes::{EACH, PART, Part, Side, WINDOW, parts, sides};
use hither::{
    Assertions, Datum, Epoch, Error, Info, Job, LockKind, Placement, Rank, RawMessage, Result,
    Window,
};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What is in an output before.
const BEFORE: u32 = 0xdead_beef;
/// Samples that all messages can be divided into. A prime that divides no number of choices, so that
/// each sample has every choice.
pub const SAMPLES: usize = 11;
/// Segments of messages, in turn.
const SEGMENTS: [usize; 4] = [1, 0, 2, 33];

/// Which handler a case uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Typed,
    Vector,
    Untyped,
    UntypedVector,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Typed, Kind::Vector, Kind::Untyped, Kind::UntypedVector];

    fn counts(self) -> bool {
        matches!(self, Kind::Vector | Kind::UntypedVector)
    }
}

/// In which epochs a case sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Shared,
    Exclusive,
    LockAll,
    Fence,
    Groups,
    Unguarded,
    UnguardedFence,
}

impl Sync {
    pub const ALL: [Sync; 7] = [
        Sync::Shared,
        Sync::Exclusive,
        Sync::LockAll,
        Sync::Fence,
        Sync::Groups,
        Sync::Unguarded,
        Sync::UnguardedFence,
    ];
}

/// What a case does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub sync: Sync,
    /// Epochs assert that messages may run at the same time.
    pub concurrent: bool,
    /// Bytes of a buffer that rank 0 attaches, if any.
    pub buffer: Option<usize>,
    /// Which sample of the messages; all of them if none.
    pub sample: Option<usize>,
}

/// One message: what it is, and to whom, follows from its number.
struct Sending<'a> {
    number: usize,
    target: Rank,
    segments: usize,
    input: &'a Side,
    output: &'a Side,
    part: &'a Part,
    form: usize,
    placement: Placement,
}

/// All there is to send.
struct Script {
    sides: Vec<Side>,
    parts: Vec<Part>,
    size: u32,
}

impl Script {
    fn new(size: u32) -> Result<Script> {
        Ok(Script { sides: sides()?, parts: parts()?, size })
    }

    /// Numbers of the messages: of all, or of one sample.
    fn numbers(&self, sample: Option<usize>) -> impl Iterator<Item = usize> + use<> {
        let len = self.sides.len().pow(2) * self.parts.len() * SEGMENTS.len();
        let step = if sample.is_some() { SAMPLES } else { 1 };
        (sample.map_or(0, |sample| sample % SAMPLES)..len).step_by(step)
    }

    fn message(&self, origin: Rank, number: usize) -> Sending<'_> {
        let mut rest = number;
        let mut digit = |base: usize| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        let segments = SEGMENTS[digit(SEGMENTS.len())];
        let input = &self.sides[digit(self.sides.len())];
        let output = &self.sides[digit(self.sides.len())];
        let part = &self.parts[digit(self.parts.len())];
        let mixed = weight(number as u64 + 1) as usize;
        Sending {
            number,
            target: Rank((origin.0 + (mixed >> 8) as u32) % self.size),
            segments,
            input,
            output,
            part,
            form: mixed % 5,
            placement: [Placement::Auto, Placement::Target, Placement::Origin][mixed / 5 % 3],
        }
    }
}

/// The input of a message, in packed order: from the seed alone.
fn value(origin: Rank, number: usize, segment: usize, k: usize) -> u32 {
    let at = (u64::from(origin.0) << 40) ^ (number as u64) << 20 ^ (segment * EACH + k) as u64;
    weight(at) as u32
}

fn constant(owner: Rank, k: usize) -> u64 {
    weight(u64::from(owner.0) * 1000 + k as u64 + 1) >> 8
}

/// Awaits as a runtime without sense would: it asks again and again.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// A message's buffers at the origin.
struct Buffers {
    input: Vec<u32>,
    output: Vec<u32>,
    counts: Vec<usize>,
}

impl Sending<'_> {
    fn buffers(&self, me: Rank) -> Buffers {
        let mut input = vec![0; self.input.room(self.segments)];
        for s in 0..self.segments {
            (0..EACH).for_each(|k| input[self.input.at(s, k)] = value(me, self.number, s, k));
        }
        Buffers {
            input,
            output: vec![BEFORE; self.output.room(self.segments)],
            counts: vec![usize::MAX; self.segments],
        }
    }

    /// Entries of output of a segment at the target, by a handler that counts.
    fn entries(&self, me: Rank, s: usize) -> usize {
        let most = EACH / self.output.entry.0;
        super::handlers::entries(value(me, self.number, s, 0), s, most)
    }

    /// Compares with what must have come. `before`: what is in gaps.
    fn check(&self, me: Rank, kind: Kind, got: &Buffers, before: u32) {
        let name = format!(
            "message {} to {}: {} segments, input {}, output {}",
            self.number, self.target, self.segments, self.input.name, self.output.name
        );
        let mut gaps: Vec<bool> = vec![true; got.output.len()];
        for s in 0..self.segments {
            let made = if kind.counts() { self.entries(me, s) * self.output.entry.0 } else { EACH };
            if kind.counts() {
                let want = made / self.output.entry.1;
                assert_eq!(got.counts[s], want, "{name}, count of segment {s}");
            }
            for k in 0..EACH {
                let at = self.output.at(s, k);
                gaps[at] = false;
                if k < made {
                    let fixed = constant(self.target, k);
                    let want = respond(value(me, self.number, s, k), s, fixed);
                    assert_eq!(got.output[at], want, "{name}, segment {s}, element {k}");
                }
            }
        }
        for (at, _) in gaps.iter().enumerate().filter(|(_, gap)| **gap) {
            assert_eq!(got.output[at], before, "{name}, gap at {at}");
        }
    }
}

/// What is still to come of a message, by whoever completes it.
struct Outstanding<'a> {
    sending: Sending<'a>,
    buffers: Buffers,
}

struct Crew<'a> {
    me: Rank,
    kind: Kind,
    handlers: &'a Handlers,
}

impl Crew<'_> {
    /// Issues one message; buffers that the end of the epoch fills come back.
    fn send<'a>(
        &self,
        epoch: &Epoch<'_, u64>,
        sending: Sending<'a>,
    ) -> Result<Option<Outstanding<'a>>> {
        let mut buffers = sending.buffers(self.me);
        if self.kind.counts() && !sending.output.countable() {
            let refused = self.run(epoch, &sending, &mut buffers);
            let empty = sending.segments == 0;
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })) || empty, "{refused:?}");
            return Ok(None);
        }
        match (self.kind, sending.form) {
            (Kind::Typed | Kind::Vector, 1) => {
                // Output goes nowhere; the sums show that it has run.
                self.post(epoch, &sending, &buffers)?;
                return Ok(None);
            }
            (Kind::Typed | Kind::Vector, 2..=4) => self.request(epoch, &sending, &mut buffers)?,
            (_, 1 | 2) => {
                // SAFETY: input, output and counts are vectors' memory, as long as the sides say,
                // and kept until the epoch is over.
                unsafe {
                    let message = raw(&sending, &mut buffers, self.kind);
                    epoch.post_raw(
                        self.handlers.untyped(self.kind),
                        sending.target,
                        &message.get(),
                    )?;
                }
                return Ok(Some(Outstanding { sending, buffers }));
            }
            (_, 3 | 4) => {
                // SAFETY: as above, and it is waited for here.
                unsafe {
                    let message = raw(&sending, &mut buffers, self.kind);
                    let handler = self.handlers.untyped(self.kind);
                    let request = epoch.request_raw(handler, sending.target, &message.get())?;
                    if sending.form == 3 { request.wait()? } else { block_on(request)? }
                }
            }
            _ => self.run(epoch, &sending, &mut buffers)?,
        }
        let before =
            if sending.form >= 2 && !matches!(self.kind, Kind::Untyped | Kind::UntypedVector) {
                0
            } else {
                BEFORE
            };
        sending.check(self.me, self.kind, &buffers, before);
        Ok(None)
    }

    fn run(
        &self,
        epoch: &Epoch<'_, u64>,
        sending: &Sending<'_>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let Buffers { input, output, counts } = buffers;
        macro_rules! described {
            ($handler:expr, $($output:expr),+) => {{
                let message = epoch.message($handler, sending.target);
                describe!(message, sending, input).output($($output),+).run()
            }};
        }
        match self.kind {
            Kind::Typed => described!(&self.handlers.typed, output),
            Kind::Vector => described!(&self.handlers.vector, output, counts),
            // SAFETY: input, output and counts are vectors' memory, as long as the sides say.
            Kind::Untyped | Kind::UntypedVector => unsafe {
                let message = raw(sending, buffers, self.kind);
                epoch.am_raw(self.handlers.untyped(self.kind), sending.target, &message.get())
            },
        }
    }

    fn post(&self, epoch: &Epoch<'_, u64>, sending: &Sending<'_>, buffers: &Buffers) -> Result<()> {
        let input = &buffers.input;
        if self.kind == Kind::Typed {
            let message = epoch.message(&self.handlers.typed, sending.target);
            describe!(message, sending, input, bare).post()
        } else {
            let message = epoch.message(&self.handlers.vector, sending.target);
            describe!(message, sending, input, bare).post()
        }
    }

    fn request(
        &self,
        epoch: &Epoch<'_, u64>,
        sending: &Sending<'_>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let each = sending.output.here.as_ref().map_or(EACH, |(_, count)| *count);
        macro_rules! finished {
            ($request:expr) => {{
                let mut request = $request;
                match sending.form {
                    2 => request.wait()?,
                    3 => {
                        while !request.test()? {
                            std::thread::yield_now();
                        }
                        request.wait()?
                    }
                    _ => block_on(request)?,
                }
            }};
        }
        let len = buffers.output.len();
        if self.kind == Kind::Typed {
            let message = epoch.message(&self.handlers.typed, sending.target);
            let message = describe!(message, sending, &buffers.input);
            buffers.output = finished!(message.request(each)?);
        } else {
            let message = epoch.message(&self.handlers.vector, sending.target);
            let message = describe!(message, sending, &buffers.input);
            let answer = finished!(message.request(each)?);
            assert_eq!(answer.segments(), sending.segments);
            if sending.output.here.is_none() {
                for s in 0..sending.segments {
                    assert_eq!(answer.segment(s).len(), answer.counts[s] * sending.output.entry.1);
                }
            }
            (buffers.output, buffers.counts) = (answer.output, answer.counts);
        }
        // The last element may be followed by a gap, which a request has no room for.
        assert!(buffers.output.len() <= len);
        buffers.output.resize(len, 0);
        Ok(())
    }
}

/// Describes a message as the script says; `bare` without the output.
macro_rules! describe {
    ($message:expr, $sending:expr, $input:expr, bare) => {{
        let sending: &Sending<'_> = $sending;
        let mut message =
            $message.segments(sending.segments).input($input).placement(sending.placement);
        if let Some(shape) = sending.input.here() {
            message = message.input_layout(shape);
        }
        if let Some(entry) = &sending.input.there {
            message = message.input_there(entry);
        }
        match sending.part.shape() {
            Some(shape) => message.persistent_layout(sending.part.displacement, shape),
            None => message.persistent(sending.part.displacement..sending.part.displacement + PART),
        }
    }};
    ($message:expr, $sending:expr, $input:expr) => {{
        let mut message = describe!($message, $sending, $input, bare);
        if let Some(shape) = $sending.output.here() {
            message = message.output_layout(shape);
        }
        if let Some(entry) = &$sending.output.there {
            message = message.output_there(entry);
        }
        message
    }};
}
use describe;

/// A message without types, and the layouts that it borrows.
struct Raw<'a> {
    one: hither::Layout,
    word: hither::Layout,
    sending: &'a Sending<'a>,
    at: (*const u32, *mut u32, *mut usize),
}

fn raw<'a>(sending: &'a Sending<'a>, buffers: &mut Buffers, kind: Kind) -> Raw<'a> {
    let counts = if kind.counts() { buffers.counts.as_mut_ptr() } else { std::ptr::null_mut() };
    Raw {
        one: hither::Layout::of::<u32>(),
        word: hither::Layout::of::<u64>(),
        sending,
        at: (buffers.input.as_ptr(), buffers.output.as_mut_ptr(), counts),
    }
}

impl Raw<'_> {
    fn get(&self) -> RawMessage<'_> {
        let Sending { input, output, part, .. } = self.sending;
        let input_segment = input.here().unwrap_or(self.one.times(EACH));
        let output_segment = output.here().unwrap_or(self.one.times(EACH));
        RawMessage {
            input: self.at.0.cast(),
            input_segment,
            output: self.at.1.cast(),
            output_segment,
            segments: self.sending.segments,
            input_there: input.there.as_ref().unwrap_or(input_segment.layout),
            output_there: output.there.as_ref().unwrap_or(output_segment.layout),
            displacement: part.displacement,
            persistent: part.shape().unwrap_or(self.word.times(PART)),
            counts: self.at.2,
            placement: self.sending.placement,
        }
    }
}

/// One case: all messages of the script, or a sample of them, then the sums.
pub fn exchange(job: &Job, plan: Plan, info: Info) -> Result<()> {
    let Plan { kind, sync, concurrent, buffer, sample } = plan;
    let team = job.team();
    let me = team.rank();
    let window = Window::<u64>::builder(team).info(info).allocate(WINDOW)?;
    let script = Script::new(team.size())?;
    for part in &script.parts {
        for k in 0..PART / 2 {
            window.local().set((part.at)(k), constant(me, k))?;
        }
    }
    let handlers = Handlers::register(&window, concurrent)?;
    let attached = buffer.filter(|_| me == Rank(0)).map(|bytes| window.attach_buffer(bytes));
    let attached = attached.transpose()?;
    team.barrier()?;
    let crew = Crew { me, kind, handlers: &handlers };
    let mut open = Vec::new();
    let all = || script.numbers(sample).map(|number| script.message(me, number));
    let assertions = Assertions { concurrent_am: concurrent, ..Assertions::default() };
    match sync {
        Sync::Shared | Sync::Exclusive => {
            let lock = if sync == Sync::Shared { LockKind::Shared } else { LockKind::Exclusive };
            for sending in all() {
                let epoch = window.lock_with(sending.target, lock, assertions)?;
                open.extend(crew.send(&epoch, sending)?);
                epoch.unlock()?;
            }
        }
        Sync::LockAll => {
            let epoch = window.lock_all_with(assertions)?;
            for sending in all() {
                let (number, target) = (sending.number, sending.target);
                open.extend(crew.send(&epoch, sending)?);
                // What a flush has completed is there, before the epoch is over.
                if number % 16 == 0 {
                    epoch.flush(target)?;
                    for Outstanding { sending, buffers } in
                        open.extract_if(.., |o| o.sending.target == target)
                    {
                        sending.check(me, kind, &buffers, BEFORE);
                    }
                }
            }
            epoch.unlock_all()?;
        }
        Sync::Fence => {
            let mut epoch = window.fence_with(assertions)?;
            for sending in all() {
                let number = sending.number;
                open.extend(crew.send(&epoch, sending)?);
                if number % 100 == 0 {
                    epoch.next_with(assertions)?;
                }
            }
            epoch.end()?;
        }
        Sync::Groups => {
            let ranks: Vec<Rank> = team.ranks().collect();
            let exposed = window.post(&ranks)?;
            let epoch = window.start_with(&ranks, assertions)?;
            for sending in all() {
                open.extend(crew.send(&epoch, sending)?);
            }
            epoch.complete()?;
            exposed.wait()?;
        }
        Sync::Unguarded => {
            let unguarded = window.unguarded();
            unguarded.lock_all(assertions)?;
            for sending in all() {
                let epoch = unguarded.epoch(sending.target)?;
                open.extend(crew.send(&epoch, sending)?);
            }
            unguarded.unlock_all()?;
        }
        Sync::UnguardedFence => {
            let unguarded = window.unguarded();
            unguarded.fence(assertions)?;
            for sending in all() {
                let epoch = unguarded.epoch(sending.target)?;
                open.extend(crew.send(&epoch, sending)?);
            }
            unguarded.fence(Assertions { no_succeed: true, ..Assertions::default() })?;
        }
    }
    open.iter().for_each(|o| o.sending.check(me, kind, &o.buffers, BEFORE));
    team.barrier()?;
    check_sums(&window, &script, kind, sample)?;
    if let Some(buffer) = attached {
        window.detach_buffer(&buffer)?;
    }
    window.free()
}

/// The sums in this rank's part against all messages that were sent to it.
fn check_sums(
    window: &Window<u64>,
    script: &Script,
    kind: Kind,
    sample: Option<usize>,
) -> Result<()> {
    let me = window.team().rank();
    let mut want = vec![0u64; WINDOW];
    for part in &script.parts {
        (0..PART / 2).for_each(|k| want[(part.at)(k)] = constant(me, k));
    }
    for origin in window.team().ranks() {
        for sending in script.numbers(sample).map(|number| script.message(origin, number)) {
            let refused = kind.counts() && !sending.output.countable();
            if sending.target != me || refused {
                continue;
            }
            for s in 0..sending.segments {
                for k in 0..EACH {
                    let value = value(origin, sending.number, s, k);
                    let sum = &mut want[(sending.part.at)(super::handlers::sum_of(value))];
                    *sum = sum.wrapping_add(super::handlers::addend(value, s));
                }
            }
        }
    }
    let mut got = vec![0; WINDOW];
    window.local().read(0, &mut got)?;
    assert_eq!(got, want, "the part of {me} after all messages");
    Ok(())
}

/// All elements of a shape of `E`s, in packed order: numbers from where it is applied on.
pub fn places<E: Datum>(shape: hither::Shape<'_>) -> Vec<isize> {
    let mut cursor = hither::layout::Cursor::new(shape).expect("a shape that was checked");
    let size = size_of::<E>() as isize;
    let mut found = Vec::new();
    while let Some(piece) = cursor.next_piece(usize::MAX) {
        assert!(piece.offset % size == 0 && piece.len as isize % size == 0, "{piece:?}");
        let first = piece.offset / size;
        found.extend(first..first + piece.len as isize / size);
    }
    found
}
