//! The distributed index and the remote search.
//!
//! A rank reads the words of its slice of the genome (slices overlap by a word's length less
//! one) and sends each to the rank its hash names. A query goes to that rank as one segment of an
//! active message, as the number of its word; the handler answers a segment whose word matches with the number of matches,
//! where their positions stand, and the first few of them, the others with nothing. The rest, where
//! a word repeats more often, the origin gets from the window.

use super::super::report::{Row, rate};
use super::super::work::{Context, Stop, exchange, largest, timed, total, verdict};
use super::fasta::Genome;
use super::index::{self, Entry, Hit};
use super::kmer::{self, LENGTH, Word};
use super::queries::Queries;
use super::{Options, serial};
use crate::demo::slices::slice;
use hither::{Assertions, LockAllEpoch, Rank, Result, Team, VectorHandler, View, Window};

/// Queries in one message.
const SEGMENTS: usize = 100;
/// Positions in an answer's segment.
const INLINE: usize = 4;
/// Most words of an answer's segment: count, place of the first position, positions.
const ANSWER: usize = 2 + INLINE;

/// The handler for up to [`SEGMENTS`] of a message's segments: looks words up in the memory of the rank
/// they are sent to.
fn look_up(
    codes: &[u64],
    memory: &View<'_, u64>,
    answers: &mut [u64],
    counts: &mut [usize],
) -> Result<()> {
    let mut hits = [Hit::default(); SEGMENTS];
    let hits = &mut hits[..codes.len()];
    index::look_up(codes, hits, |at| memory.get(at))?;
    let (answers, _) = answers.as_chunks_mut::<ANSWER>();
    for ((hit, answer), words) in hits.iter().zip(answers).zip(counts) {
        *words = 0;
        if hit.count > 0 {
            answer[..2].copy_from_slice(&[hit.count, hit.first]);
            let here = INLINE.min(hit.count as usize);
            memory.read(hit.first as usize, &mut answer[2..2 + here])?;
            *words = 2 + here;
        }
    }
    Ok(())
}

/// The index over a team.
pub struct Index {
    window: Window<u64>,
    handler: VectorHandler<u64, u64, u64>,
    length: usize,
    ranks: u32,
}

impl Index {
    /// Collective.
    pub fn build(team: &Team, genome: &Genome) -> Result<Index> {
        let bases = &genome.bases;
        let starts = slice(bases.len() as u64, team.rank().0, team.size());
        let begin = starts.start as usize;
        let end = (starts.end as usize + LENGTH - 1).min(bases.len());
        let entries: Vec<Entry> = exchange(team, [0; 2], |emit| {
            kmer::scan(&bases[begin..end], |position, code| {
                emit(index::owner(code, team.size()), [code, (begin + position) as u64]);
            });
        })?;
        let image = index::build(entries);
        let length = largest(team, image.len())?;
        let window = Window::allocate(team, length)?;
        window.local().write(0, &image)?;
        let handler = window.register_vector::<u64, u64>(0, |call| {
            let answers = call.output.chunks_mut(SEGMENTS * ANSWER);
            let counts = call.counts.chunks_mut(SEGMENTS);
            for ((codes, answers), counts) in call.input.chunks(SEGMENTS).zip(answers).zip(counts) {
                // The index was built for this window: every place in it is inside. Should memory
                // be damaged, the impossible count makes the origin notice.
                if look_up(codes, &call.persistent, answers, counts).is_err() {
                    answers.fill(u64::MAX);
                    counts.fill(ANSWER);
                }
            }
        })?;
        team.barrier()?;
        Ok(Index { window, handler, length, ranks: team.size() })
    }

    /// Looks up all words, by their numbers; positions in ascending order.
    pub fn search(&self, words: &[Option<u64>], found: &mut Found) -> Result<()> {
        let assertions = Assertions { concurrent_am: true, ..Assertions::default() };
        let epoch = self.window.lock_all_with(assertions)?;
        let mut batches = vec![Batch::default(); self.ranks as usize];
        for (query, word) in words.iter().enumerate() {
            // A word with an unknown base matches nothing, and no rank has it.
            let &Some(code) = word else { continue };
            let owner = index::owner(code, self.ranks);
            let batch = &mut batches[owner as usize];
            batch.codes.push(code);
            batch.queries.push(query);
            if batch.codes.len() == SEGMENTS {
                self.ask(&epoch, Rank(owner), batch, found)?;
            }
        }
        for (owner, batch) in batches.iter_mut().enumerate() {
            if !batch.codes.is_empty() {
                self.ask(&epoch, Rank(owner as u32), batch, found)?;
            }
        }
        epoch.unlock_all()
    }

    fn ask(
        &self,
        epoch: &LockAllEpoch<'_, u64>,
        owner: Rank,
        batch: &mut Batch,
        found: &mut Found,
    ) -> Result<()> {
        let segments = batch.codes.len();
        let (mut answers, mut words) = ([0; SEGMENTS * ANSWER], [0; SEGMENTS]);
        let (answers, words) = (&mut answers[..segments * ANSWER], &mut words[..segments]);
        let message = epoch.message(&self.handler, owner).persistent(0..self.length);
        message.segments(segments).input(&batch.codes).output(answers, words).run()?;
        let (answers, _) = answers.as_chunks::<ANSWER>();
        for (&query, (answer, words)) in batch.queries.iter().zip(answers.iter().zip(words)) {
            if *words == 0 {
                continue;
            }
            let (count, first) = (answer[0] as usize, answer[1] as usize);
            if count > self.length {
                return Err(hither::Error::Incompatible {
                    what: "the genome's index",
                    why: format!("rank {owner} answered {count} matches"),
                });
            }
            let here = INLINE.min(count);
            let start = found.positions.len();
            found.positions.extend_from_slice(&answer[2..2 + here]);
            if count > here {
                found.positions.resize(start + count, 0);
                epoch.get(owner, first + here, &mut found.positions[start + here..])?;
            }
            found.spans[query] = (start, count);
        }
        batch.codes.clear();
        batch.queries.clear();
        Ok(())
    }
}

/// Queries collected for one rank.
#[derive(Clone, Default)]
struct Batch {
    codes: Vec<u64>,
    queries: Vec<usize>,
}

/// Matches of this rank's queries.
pub struct Found {
    /// Start and number of each query's positions.
    spans: Vec<(usize, usize)>,
    positions: Vec<u64>,
}

impl Found {
    /// Nothing, for so many queries.
    pub fn new(queries: usize) -> Found {
        Found { spans: vec![(0, 0); queries], positions: Vec::new() }
    }

    /// Forgets what was found.
    pub fn clear(&mut self) {
        self.spans.fill((0, 0));
        self.positions.clear();
    }

    /// Positions of each query.
    pub fn all(&self) -> impl Iterator<Item = &[u64]> {
        self.spans.iter().map(|&(start, count)| &self.positions[start..start + count])
    }
}

/// Collective: builds the index, asks the queries, checks every answer.
pub fn run(context: &Context<'_>, options: &Options, genome: &Genome) -> Result<Row, Stop> {
    let team = context.team;
    let bar = context.progress.bar(&format!("genome: {}", options.text.name()), 3);
    let mut built = None;
    let indexing = timed(team, || -> Result<()> {
        built = Some(Index::build(team, genome)?);
        Ok(())
    })?;
    bar.step();
    let queries = Queries::new(&genome.bases, options.seed, options.both_strands);
    let asked = options.queries * if options.both_strands { 2 } else { 1 };
    let words: Vec<Word> =
        slice(asked, team.rank().0, team.size()).map(|i| queries.query(i)).collect();
    let codes: Vec<Option<u64>> = words.iter().map(kmer::code).collect();
    let mut found = Found::new(words.len());
    let seconds = timed(team, || match &built {
        Some(index) => index.search(&codes, &mut found),
        None => Ok(()),
    })?;
    bar.step();

    let want = serial::search(&genome.bases, &words);
    let checked = words.iter().zip(found.all()).zip(&want).try_for_each(|((word, have), want)| {
        if have == want.as_slice() {
            return Ok(());
        }
        let word = String::from_utf8_lossy(word);
        Err(format!("{word}: {} matches, the plain search finds {}", have.len(), want.len()))
    });
    let wrong = verdict(team, checked)?;
    let matches = total(team, found.positions.len() as u64)?;
    let hits = total(team, found.spans.iter().filter(|span| span.1 > 0).count() as u64)?;
    bar.step();

    let speed = asked as f64 / seconds;
    let mut figures = serde_json::Map::new();
    figures.insert("queries_per_s".into(), speed.into());
    figures.insert("queries".into(), asked.into());
    figures.insert("queries_with_matches".into(), hits.into());
    figures.insert("matches".into(), matches.into());
    figures.insert("bases".into(), genome.bases.len().into());
    figures.insert("segments_per_message".into(), SEGMENTS.into());
    figures.insert("index_seconds".into(), indexing.into());
    Ok(Row {
        workload: "genome",
        formulation: "active messages",
        ranks: team.size(),
        input: options.text.name().to_owned(),
        validated: wrong.is_none(),
        seconds,
        figures,
        rate: rate(speed, "queries/s"),
        check: wrong
            .unwrap_or_else(|| format!("{asked} queries, {matches} matches as by plain search")),
    })
}
