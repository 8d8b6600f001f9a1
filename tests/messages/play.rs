//! Plays a round: registers the handlers, sends what the scripts say, looks at what came back, and
//! lets the first rank judge the logs.

use super::check::{self, Entry};
use super::script::{Batch, Form, HANDLERS, Message, REGION, REGIONS, Round};
use hither::am::{Handler, VectorHandler};
use hither::{Assertions, Epoch, Error, Job, LockKind, Op, Rank, Request, Result, View, Window};

const LEN: usize = REGIONS * REGION;
/// Where a segment's output tells of a log when it has none.
const NOWHERE: u64 = u64::MAX;

/// What a message's input says about it.
fn input_word(origin: u32, message: u64, segment: usize, at: usize) -> u64 {
    u64::from(origin) << 48 | message << 32 | (segment as u64) << 16 | at as u64
}

/// Writes `segments` of a call into all logs that the message names; where in the first of them
/// the first segment stands.
fn append(view: &View<'_, u64>, concurrent: bool, entries: &[Entry]) -> u64 {
    let mut first = NOWHERE;
    for region in 0..view.len() / REGION {
        let base = region * REGION;
        for entry in entries {
            let at = if concurrent {
                view.fetch_and_op(base, Op::Sum, 1).expect("a count")
            } else {
                view.get(base).expect("a count")
            };
            // Whoever comes in between now writes the same line, and shows.
            if entry.message % 3 == 0 && entry.segment == 0 {
                std::thread::yield_now();
            }
            view.set(base + 1 + at as usize, entry.encode()).expect("a line");
            if !concurrent {
                view.set(base, at + 1).expect("a count");
            }
            first = first.min(if region == 0 { at } else { NOWHERE });
        }
    }
    first
}

/// The entries of a call, after a look at its input.
fn entries<'c>(
    handler: u32,
    offset: usize,
    segments: usize,
    input: impl Fn(usize) -> &'c [u64],
) -> Vec<Entry> {
    let entry = |index: usize| {
        let (words, segment) = (input(index), offset + index);
        let (origin, message) = ((words[0] >> 48) as u32, words[0] >> 32 & 0xffff);
        for (at, word) in words.iter().enumerate() {
            assert_eq!(*word, input_word(origin, message, segment, at), "input {at} of {segment}");
        }
        Entry { origin, message, handler, segment: segment as u64, call: offset as u64 }
    };
    (0..segments).map(entry).collect()
}

struct Handlers {
    plain: Vec<Handler<u64, u64, u64>>,
    vector: VectorHandler<u64, u64, u64>,
}

fn register(window: &Window<u64>, concurrent: bool) -> Result<Handlers> {
    let plain = (0..HANDLERS - 1).map(|index| {
        window.register::<u64, u64>(index, move |mut call| {
            let all = entries(index, call.segment_offset, call.segments, |i| call.input_of(i));
            let first = append(&call.persistent, concurrent, &all);
            for (i, entry) in all.iter().enumerate() {
                for (at, word) in call.output_of(i).iter_mut().enumerate() {
                    *word = if at == 0 { first } else { entry.encode() };
                }
            }
        })
    });
    let plain = plain.collect::<Result<_>>()?;
    let index = HANDLERS - 1;
    let vector = window.register_vector::<u64, u64>(index, move |mut call| {
        let all = entries(index, call.segment_offset, call.segments, |i| call.input_of(i));
        let first = append(&call.persistent, concurrent, &all);
        for (i, entry) in all.iter().enumerate() {
            let output = call.output_of(i);
            let count = filled(entry.segment, output.len());
            for (at, word) in output[..count].iter_mut().enumerate() {
                *word = if at == 0 { first } else { entry.encode() };
            }
            call.counts[i] = count;
        }
    })?;
    Ok(Handlers { plain, vector })
}

/// Entries of output of a segment that could have `most`.
fn filled(segment: u64, most: usize) -> usize {
    (segment as usize * 7 + 1) % (most + 1)
}

/// What came back of a message.
struct Back {
    message: Message,
    output: Vec<u64>,
    counts: Option<Vec<usize>>,
}

enum Answer {
    Plain(Request<Vec<u64>>),
    Vector(Request<hither::am::VectorOutput<u64>>),
}

struct Player<'p> {
    me: Rank,
    handlers: &'p Handlers,
    back: Vec<Back>,
    open: Vec<(Message, Answer)>,
}

impl Player<'_> {
    fn send(&mut self, epoch: &Epoch<'_, u64>, message: &Message) -> Result<()> {
        let (segments, elements) = (message.segments, message.input);
        let word = |i| input_word(self.me.0, message.number, i / elements, i % elements);
        let input: Vec<u64> = (0..segments * elements).map(word).collect();
        let mut output = vec![0; segments * message.output];
        let mut counts = vec![0; segments];
        let range = message.regions.start * REGION..message.regions.end * REGION;
        let target = Rank(message.target);
        macro_rules! described {
            ($handler:expr) => {
                epoch
                    .message($handler, target)
                    .persistent(range)
                    .segments(segments)
                    .input(&input)
                    .placement(message.placement)
            };
        }
        let message = message.clone();
        let vector = message.handler == HANDLERS - 1;
        match (vector, message.form) {
            (false, form) => {
                let described = described!(&self.handlers.plain[message.handler as usize]);
                match form {
                    Form::Run => {
                        described.output(&mut output).run()?;
                        self.back.push(Back { message, output, counts: None });
                    }
                    Form::Post => described.post()?,
                    Form::Request => {
                        let request = described.request(message.output)?;
                        self.open.push((message, Answer::Plain(request)));
                    }
                }
            }
            (true, form) => {
                let described = described!(&self.handlers.vector);
                match form {
                    Form::Run => {
                        described.output(&mut output, &mut counts).run()?;
                        self.back.push(Back { message, output, counts: Some(counts) });
                    }
                    Form::Post => described.post()?,
                    Form::Request => {
                        let request = described.request(message.output)?;
                        self.open.push((message, Answer::Vector(request)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for the requests, the newest first.
    fn collect(&mut self) -> Result<()> {
        while let Some((message, answer)) = self.open.pop() {
            let (output, counts) = match answer {
                Answer::Plain(request) => (request.wait()?, None),
                Answer::Vector(request) => {
                    let answer = request.wait()?;
                    (answer.output, Some(answer.counts))
                }
            };
            self.back.push(Back { message, output, counts });
        }
        Ok(())
    }
}

fn batch(
    window: &Window<u64>,
    player: &mut Player<'_>,
    round: &Round,
    batch: &Batch,
) -> Result<()> {
    let concurrent_am = round.concurrent || round.racy;
    let assertions = Assertions { concurrent_am, ..Assertions::default() };
    let early = batch.messages.len().is_multiple_of(2);
    if let Some((target, exclusive)) = batch.locked {
        let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let epoch = window.lock_with(Rank(target), kind, assertions)?;
        for (at, message) in batch.messages.iter().enumerate() {
            player.send(&epoch, message)?;
            if at == 2 {
                epoch.flush()?;
            }
        }
        if early {
            player.collect()?;
        }
        epoch.unlock()?;
    } else {
        let epoch = window.lock_all_with(assertions)?;
        for message in &batch.messages {
            player.send(&epoch, message)?;
        }
        if early {
            player.collect()?;
        }
        epoch.unlock_all()?;
    }
    player.collect()
}

/// Plays a round and judges it. All ranks call it.
pub fn play(job: &Job, round: &Round) -> Result<()> {
    let window: Window<u64> = Window::builder(job.team()).info(round.info.clone()).allocate(LEN)?;
    let handlers = register(&window, round.concurrent)?;
    let attached = round.attached.filter(|_| job.rank().0 < round.targets);
    let buffer = attached.map(|bytes| window.attach_buffer(bytes)).transpose()?;
    // At fences ranks that wait look after packets, which the barrier of a team leaves to a thread.
    let meeting: Window<u64> = Window::builder(job.team()).info(round.info.clone()).allocate(1)?;
    let meet = || meeting.unguarded().fence(Assertions::default());
    meet()?;
    let mut player = Player { me: job.rank(), handlers: &handlers, back: vec![], open: vec![] };
    for sent in round.script(job.rank().0) {
        batch(&window, &mut player, round, &sent)?;
    }
    meet()?;
    let mut verdict = Ok(());
    {
        let epoch = window.lock_all()?;
        let mut part = vec![0; LEN];
        for target in 0..round.targets {
            epoch.get(Rank(target), 0, &mut part)?;
            let logs = check::logs(&part);
            if job.rank().0 == 0 {
                let judged = logs.clone().and_then(|logs| check::judge(round, target, &logs));
                verdict = verdict.and(judged);
            }
            let mine = player.back.iter().filter(|back| back.message.target == target);
            let looked = logs.and_then(|logs| {
                mine.into_iter().try_for_each(|back| look(job.rank(), back, &logs))
            });
            verdict = verdict.and(looked);
        }
        epoch.unlock_all()?;
    }
    meet()?;
    if let Some(buffer) = buffer {
        window.detach_buffer(&buffer)?;
    }
    let wrong =
        |why| Error::Misuse { what: "a round of messages", why: format!("{why}; {round:?}") };
    verdict.map_err(wrong)
}

/// Holds what came back of a message against the logs.
fn look(me: Rank, back: &Back, logs: &[Vec<Entry>]) -> std::result::Result<(), String> {
    let message = &back.message;
    for segment in 0..message.segments {
        let output = &back.output[segment * message.output..][..message.output];
        let count = match &back.counts {
            None => message.output,
            Some(counts) if counts[segment] == filled(segment as u64, message.output) => {
                counts[segment]
            }
            Some(counts) => {
                return Err(format!("segment {segment} of {message:?} has {}", counts[segment]));
            }
        };
        let Some((position, rest)) = output[..count].split_first() else { continue };
        let is_mine = |entry: &Entry| {
            let number = (entry.origin, entry.message, entry.handler);
            number == (me.0, message.number, message.handler)
        };
        let right = rest.iter().all(|word| {
            let entry = Entry::decode(*word);
            is_mine(&entry) && entry.segment == segment as u64
        });
        let written = match message.regions.clone().next() {
            None => *position == NOWHERE,
            Some(first) => logs[first].get(*position as usize).is_some_and(is_mine),
        };
        if !right || !written {
            return Err(format!("output {output:?} of segment {segment} of {message:?}"));
        }
    }
    Ok(())
}
