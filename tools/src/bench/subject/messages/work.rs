//! The workloads of paper 001: searching for sequences of 20 characters in the target's part, and
//! adding up absolute values of 100 integers sent and 100 that are there.

use crate::bench::crew::Crew;
use hither::am::{Handler, Placement, VectorHandler};
use hither::rma::Info;
use hither::{Epoch, Error, Rank, Request, Result, View, Window};
use std::collections::VecDeque;

/// Characters of a sequence.
pub const WORD: usize = 20;
/// Sequences in a part.
const KNOWN: usize = 64;
/// Most sequences that one query finds, for messages with variable output.
pub const MOST: usize = 10;
/// Integers of a segment.
pub const INTEGERS: usize = 100;

/// The target of all messages.
pub const TARGET: Rank = Rank(0);

/// The `index`th sequence; they are in order. The first character is the same in all.
fn known(index: usize) -> [u8; WORD] {
    let mut word = [b'A'; WORD];
    let mut rest = index * 37 + 5;
    for character in word[1..].iter_mut().rev() {
        *character = b"ACGT"[rest % 4];
        rest /= 4;
    }
    word
}

/// Remote search.
pub struct Search {
    /// The sequences.
    pub window: Window<u8>,
    /// One sequence, or zeros, for each query.
    pub one: Handler<u8, u8, u8>,
    /// As many as the query's first character says, in a buffer for ten that is sent whole.
    pub whole: Handler<u8, u8, u8>,
    /// The same, with variable output.
    pub several: VectorHandler<u8, u8, u8>,
}

/// Where a query's sequence is.
fn find(view: &View<'_, u8>, query: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, view.len() / WORD);
    let mut word = [0; WORD];
    while low < high {
        let middle = usize::midpoint(low, high);
        view.read(middle * WORD, &mut word).ok()?;
        match word[1..].cmp(&query[1..]) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Some(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

/// Fills `output` with what a query finds, in turn from there on; how many bytes.
fn fill(view: &View<'_, u8>, query: &[u8], output: &mut [u8]) -> usize {
    let Some(first) = find(view, query) else { return 0 };
    let hits = usize::from(query[0]).min(output.len() / WORD);
    for (hit, place) in output.as_chunks_mut::<WORD>().0.iter_mut().take(hits).enumerate() {
        // In bounds: it goes round.
        let _ = view.read((first + hit) % KNOWN * WORD, place);
    }
    hits * WORD
}

impl Search {
    /// Collective.
    pub fn new(crew: &Crew, info: Info) -> Result<Search> {
        let window: Window<u8> =
            Window::builder(crew.job()?.team()).info(info).allocate(KNOWN * WORD)?;
        for index in 0..KNOWN {
            window.local().write(index * WORD, &known(index))?;
        }
        let one = window.register(1, |mut call| {
            for segment in 0..call.segments {
                let query = call.input_of(segment);
                let found = find(&call.persistent, query);
                let output = call.output_of(segment);
                output.fill(0);
                if found.is_some() && !output.is_empty() {
                    output.copy_from_slice(query);
                }
            }
        })?;
        let whole = window.register(2, |mut call| {
            for segment in 0..call.segments {
                let (query, view) = (call.input_of(segment), call.persistent);
                fill(&view, query, call.output_of(segment));
            }
        })?;
        let several = window.register_vector(3, |mut call| {
            for segment in 0..call.segments {
                let (query, view) = (call.input_of(segment), call.persistent);
                call.counts[segment] = fill(&view, query, call.output_of(segment));
            }
        })?;
        crew.job()?.team().barrier()?;
        let search = Search { window, one, whole, several };
        search.check(crew)?;
        Ok(search)
    }

    /// Queries for sequences that are there, each of which wants `hits` of them.
    pub fn queries(segments: usize, hits: usize) -> Vec<u8> {
        let query = |segment: usize| {
            let mut query = known(segment * 11 % KNOWN);
            query[0] = hits as u8;
            query
        };
        (0..segments).flat_map(query).collect()
    }

    /// Sends a message and waits for its output.
    pub fn ask(&self, epoch: &Epoch<'_, u8>, queries: &[u8], output: &mut [u8]) -> Result<()> {
        epoch
            .message(&self.one, TARGET)
            .persistent(0..KNOWN * WORD)
            .segments(queries.len() / WORD)
            .input(queries)
            .output(output)
            .placement(Placement::Target)
            .run()
    }

    /// Sends a message and does not wait.
    pub fn send(&self, epoch: &Epoch<'_, u8>, queries: &[u8]) -> Result<Request<Vec<u8>>> {
        epoch
            .message(&self.one, TARGET)
            .persistent(0..KNOWN * WORD)
            .segments(queries.len() / WORD)
            .input(queries)
            .placement(Placement::Target)
            .request(WORD)
    }

    /// A message whose output is sent whole.
    pub fn ask_whole(
        &self,
        epoch: &Epoch<'_, u8>,
        queries: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        epoch
            .message(&self.whole, TARGET)
            .persistent(0..KNOWN * WORD)
            .segments(queries.len() / WORD)
            .input(queries)
            .output(output)
            .placement(Placement::Target)
            .run()
    }

    /// A message with variable output.
    pub fn ask_several(
        &self,
        epoch: &Epoch<'_, u8>,
        queries: &[u8],
        output: &mut [u8],
        counts: &mut [usize],
    ) -> Result<()> {
        epoch
            .message(&self.several, TARGET)
            .persistent(0..KNOWN * WORD)
            .segments(queries.len() / WORD)
            .input(queries)
            .output(output, counts)
            .placement(Placement::Target)
            .run()
    }

    /// Figures of what does not work say nothing.
    fn check(&self, crew: &Crew) -> Result<()> {
        let epoch = self.window.lock_all()?;
        if !crew.leads() {
            let queries = Self::queries(5, 3);
            let (mut output, mut counts) = (vec![0; 5 * MOST * WORD], [0; 5]);
            self.ask_several(&epoch, &queries, &mut output, &mut counts)?;
            let mut one = vec![0; 5 * WORD];
            self.ask(&epoch, &queries, &mut one)?;
            if counts != [3 * WORD; 5] || output[1..WORD] != known(0)[1..] || one != queries {
                return Err(Error::invalid("bench", "a search found something else"));
            }
        }
        epoch.unlock_all()
    }
}

/// Absolute values.
pub struct Absolute {
    /// 100 integers.
    pub window: Window<i32>,
    /// The sum of both sides' absolute values, one by one.
    pub handler: Handler<i32, i32, i32>,
}

impl Absolute {
    /// Collective.
    pub fn new(crew: &Crew, info: Info) -> Result<Absolute> {
        let window: Window<i32> =
            Window::builder(crew.job()?.team()).info(info).allocate(INTEGERS)?;
        let mine: Vec<i32> = (0..INTEGERS as i32).map(|i| -i).collect();
        window.local().write(0, &mine)?;
        let handler = window.register(1, |mut call| {
            let mut there = [0; INTEGERS];
            // In bounds: the message names all of them.
            let _ = call.persistent.read(0, &mut there);
            for segment in 0..call.segments {
                let input: &[i32] = call.input_of(segment);
                let both = input.iter().zip(&there);
                let output: &mut [i32] = call.output_of(segment);
                for (output, (a, b)) in output.iter_mut().zip(both) {
                    *output = a.wrapping_abs().wrapping_add(i32::wrapping_abs(*b));
                }
            }
        })?;
        crew.job()?.team().barrier()?;
        Ok(Absolute { window, handler })
    }

    /// Sends a message and waits for its output.
    pub fn ask(&self, epoch: &Epoch<'_, i32>, input: &[i32], output: &mut [i32]) -> Result<()> {
        epoch
            .message(&self.handler, TARGET)
            .persistent(0..INTEGERS)
            .segments(input.len() / INTEGERS)
            .input(input)
            .output(output)
            .placement(Placement::Target)
            .run()
    }

    /// Sends a message and does not wait.
    pub fn send(&self, epoch: &Epoch<'_, i32>, input: &[i32]) -> Result<Request<Vec<i32>>> {
        epoch
            .message(&self.handler, TARGET)
            .persistent(0..INTEGERS)
            .segments(input.len() / INTEGERS)
            .input(input)
            .placement(Placement::Target)
            .request(INTEGERS)
    }
}

/// Sends `count` messages, at most `most` of them at a time.
pub fn in_flight<R>(
    count: u64,
    most: usize,
    mut send: impl FnMut(u64) -> Result<Request<R>>,
) -> Result<()> {
    let mut open = VecDeque::with_capacity(most);
    for number in 0..count {
        if open.len() == most
            && let Some(oldest) = open.pop_front()
        {
            Request::wait(oldest)?;
        }
        open.push_back(send(number)?);
    }
    open.into_iter().try_for_each(|request| request.wait().map(drop))
}

/// What a rank's window counts under a name; 0 where nothing goes by packets.
pub fn counter<T: hither::layout::Datum>(window: &Window<T>, name: &str) -> f64 {
    let counters = window.packet_counters();
    counters.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, value)| *value as f64)
}
