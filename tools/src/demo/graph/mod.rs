//! Breadth-first search: the Graph 500 benchmark's second kernel on a real edge list and on a
//! generated graph, in three formulations, every parent tree validated.

mod accumulate;
mod active;
mod atomics;
mod baseline;
mod bitmap;
pub mod contest;
mod edge_list;
mod kronecker;
mod load;
mod partition;
mod search;
mod serial;
mod shared;
mod validate;

use super::input::Text;
use super::report::{Row, harmonic_mean, quartiles, rate};
use super::slices::slice;
use super::threads::Places;
use super::work::{Context, Stop, agree, timed, total, verdict};
use baseline::Baseline;
use bitmap::Bitmap;
use hither::layout::Op;
use hither::{Rank, Result, Team};
use kronecker::{Edge, Kronecker};
use partition::NONE;
use search::Search;
use shared::Shared;

/// The edge list that ships: a snapshot of the Gnutella network, published by SNAP.
pub const GNUTELLA: &[u8] = include_bytes!("../../../../data/p2p-Gnutella24.txt");

/// What to search.
pub struct Options {
    /// The edge list.
    pub text: Text,
    /// Scale of the generated graph; none for no generated graph.
    pub scale: Option<u32>,
    /// Number of roots.
    pub roots: usize,
    /// Seed of the generated graph and of the roots.
    pub seed: u64,
    /// Whether to compare with threads of one process.
    pub baseline: bool,
}

struct Input {
    name: String,
    vertices: u32,
    edges: Vec<Edge>,
}

/// Collective: runs all formulations on all inputs.
pub fn run(context: &Context<'_>, options: &Options) -> Result<Vec<Row>, Stop> {
    let loaded = load::load(context, &options.text)?;
    if let Some(note) = loaded.note {
        context.progress.note(&format!("{}: {note}", options.text.name()));
    }
    let name = options.text.name().to_owned();
    let input = Input { name, vertices: loaded.vertices, edges: loaded.edges };
    let mut rows = on_input(context, options, input)?;
    if let Some(scale) = options.scale {
        let graph = Kronecker::new(scale, options.seed);
        let (rank, ranks) = (context.team.rank().0, context.team.size());
        let edges = slice(graph.edges(), rank, ranks).map(|i| graph.edge(i)).collect();
        let name = format!("kronecker scale {scale}");
        let input = Input { name, vertices: graph.vertices(), edges };
        rows.extend(on_input(context, options, input)?);
    }
    Ok(rows)
}

fn on_input(context: &Context<'_>, options: &Options, input: Input) -> Result<Vec<Row>, Stop> {
    let team = context.team;
    let mut built = None;
    let construction = timed(team, || -> Result<()> {
        built = Some(Shared::build(team, input.vertices, &input.edges)?);
        Ok(())
    })?;
    let Some(graph) = built else { return Ok(Vec::new()) };
    let roots = graph.roots(options.roots, options.seed)?;
    if roots.is_empty() {
        agree::<()>(team, Err(options.text.refuse("no edge joins two different vertices")))?;
    }
    let mut runner = Runner { context, input: &input, graph: &graph, roots: &roots, construction };
    let accumulate = runner.row("accumulates", accumulate::Accumulate::new(team, &graph)?, None)?;
    let active = runner.row("active messages", active::Active::new(team, &graph)?, None)?;
    let yardstick =
        if options.baseline { Some(Yardstick::new(team, &graph, input.vertices)?) } else { None };
    let atomics = runner.row("atomics", atomics::Atomics::new(team, &graph)?, yardstick)?;
    // Everybody is done with the rows before anyone gives them back.
    team.barrier()?;
    Ok(vec![accumulate, active, atomics])
}

/// The threads baseline, on rank 0, run between the searches of the ranks.
struct Yardstick {
    threads: Option<Baseline>,
    places: Places,
    rates: Vec<f64>,
}

impl Yardstick {
    fn new(team: &Team, graph: &Shared, vertices: u32) -> Result<Yardstick> {
        let places = Places::of(team)?;
        let here = team.rank().0 == 0 && vertices > 0;
        let threads =
            if here { Some(Baseline::new(graph.gather()?, team.size() as usize)) } else { None };
        Ok(Yardstick { threads, places, rates: Vec::new() })
    }

    /// One search; complains if its levels are not those of `parents`.
    fn run(&mut self, root: u32, parents: &[u32], inside: u64) -> Result<(), String> {
        let Some(threads) = &mut self.threads else { return Ok(()) };
        let places = &self.places;
        let seconds = threads.run(root, |thread| places.take(thread));
        self.rates.push(inside as f64 / seconds);
        let same = validate::levels(&threads.parents(), root) == validate::levels(parents, root);
        if same { Ok(()) } else { Err(format!("root {root}: threads found other levels")) }
    }
}

struct Runner<'a> {
    context: &'a Context<'a>,
    input: &'a Input,
    graph: &'a Shared,
    roots: &'a [u32],
    construction: f64,
}

impl Runner<'_> {
    /// One formulation on all roots.
    fn row(
        &mut self,
        formulation: &'static str,
        mut search: impl Search,
        mut yardstick: Option<Yardstick>,
    ) -> Result<Row, Stop> {
        let team = self.context.team;
        let title = format!("graph: {}, {formulation}", self.input.name);
        let bar = self.context.progress.bar(&title, self.roots.len() as u64);
        let mut parents = vec![NONE; self.input.vertices as usize];
        let (mut seconds, mut rates, mut wrong) = (0.0, Vec::new(), None);
        for &root in self.roots {
            let took = timed(team, || search.run(root))?;
            search.parents(&mut parents)?;
            let (inside, complaint) = self.validate(&parents, root)?;
            seconds += took;
            rates.push(inside as f64 / took);
            wrong = complaint;
            if let Some(yardstick) = &mut yardstick {
                let compared = yardstick.run(root, &parents, inside);
                wrong = wrong.or(verdict(team, compared)?);
            }
            if wrong.is_some() {
                break;
            }
            bar.step();
        }
        let mut row = self.report(formulation, seconds, &rates, wrong)?;
        if let Some(yardstick) = yardstick {
            let [least, first, median, third, most] = quartiles(&yardstick.rates);
            let mut threads = [harmonic_mean(&yardstick.rates), least, first, median, third, most];
            team.broadcast(Rank(0), &mut threads)?;
            let [teps, quartiles @ ..] = threads;
            let ratio = harmonic_mean(&rates) / teps;
            row.figures.insert("threads_teps".into(), teps.into());
            row.figures.insert("threads_teps_quartiles".into(), quartiles.to_vec().into());
            row.figures.insert("ratio_to_threads".into(), ratio.into());
            row.check.push_str(&format!("; {ratio:.2}x of threads"));
        }
        Ok(row)
    }

    fn validate(&self, parents: &[u32], root: u32) -> Result<(u64, Option<String>)> {
        let team = self.context.team;
        let mut joined = Bitmap::new(parents.len());
        let mine = validate::levels(parents, root).and_then(|levels| {
            validate::check_edges(parents, &levels, &self.input.edges, &mut joined)
        });
        let inside = total(team, mine.as_ref().copied().unwrap_or(0))?;
        team.allreduce(Op::BitOr, joined.words_mut())?;
        let mine = mine.and_then(|_| validate::check_joined(parents, root, &joined));
        Ok((inside, verdict(team, mine.map_err(|why| format!("root {root}: {why}")))?))
    }

    fn report(
        &self,
        formulation: &'static str,
        seconds: f64,
        rates: &[f64],
        wrong: Option<String>,
    ) -> Result<Row> {
        let teps = if rates.is_empty() { 0.0 } else { harmonic_mean(rates) };
        let [least, first, median, third, most] = quartiles(rates);
        let edges = total(self.context.team, self.input.edges.len() as u64)?;
        let mut figures = serde_json::Map::new();
        let mut add = |name: &str, value: serde_json::Value| {
            figures.insert(name.to_owned(), value);
        };
        add("teps", teps.into());
        add("teps_quartiles", vec![least, first, median, third, most].into());
        add("roots", rates.len().into());
        add("vertices", self.input.vertices.into());
        add("edges", edges.into());
        add("distinct_edges", (self.graph.entries / 2).into());
        add("construction_seconds", self.construction.into());
        Ok(Row {
            workload: "graph",
            formulation,
            ranks: self.context.team.size(),
            input: self.input.name.clone(),
            validated: wrong.is_none() && !rates.is_empty(),
            seconds,
            figures,
            rate: rate(teps, "TEPS"),
            check: wrong.unwrap_or_else(|| format!("{} trees, five rules", rates.len())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither::Job;

    /// Levels that a formulation finds from each root, on rank 0.
    fn levels(team: &Team, mut search: impl Search, roots: &[u32], n: u32) -> Vec<Vec<u32>> {
        let mut parents = vec![NONE; n as usize];
        roots
            .iter()
            .map(|&root| {
                search.run(root).expect("a search");
                search.parents(&mut parents).expect("its parents");
                team.barrier().expect("a barrier");
                validate::levels(&parents, root).expect("a tree")
            })
            .collect()
    }

    #[test]
    fn all_formulations_find_the_serial_levels_at_any_number_of_ranks() {
        let kronecker = Kronecker::new(8, 4);
        let edges: Vec<Edge> = (0..kronecker.edges()).map(|i| kronecker.edge(i)).collect();
        let vertices = kronecker.vertices();
        let serial = serial::Graph::new(vertices, &edges);
        for ranks in [1, 2, 3, 5] {
            let found = Job::threads(ranks, |job| {
                let team = job.team();
                let mine = slice(kronecker.edges(), job.rank().0, ranks);
                let mine = &edges[mine.start as usize..mine.end as usize];
                let graph = Shared::build(team, vertices, mine).expect("a graph");
                let roots = graph.roots(5, 9).expect("roots");
                assert_eq!(graph.entries as usize, serial.columns.len());
                let whole = graph.gather().expect("the graph");
                assert!(whole.rows == serial.rows && whole.columns == serial.columns);
                let accumulate = accumulate::Accumulate::new(team, &graph).expect("windows");
                let active = active::Active::new(team, &graph).expect("windows");
                let atomics = atomics::Atomics::new(team, &graph).expect("windows");
                let found = [
                    levels(team, accumulate, &roots, vertices),
                    levels(team, active, &roots, vertices),
                    levels(team, atomics, &roots, vertices),
                ];
                (roots, found)
            });
            for (roots, found) in found.expect("a job") {
                assert_eq!(roots.len(), 5);
                let want: Vec<_> = roots.iter().map(|&root| serial.search(root).1).collect();
                assert!(found.iter().all(|levels| *levels == want), "{ranks} ranks");
            }
        }
    }

    #[test]
    fn roots_are_different_vertices_with_neighbours_even_if_they_are_rare() {
        let found = Job::threads(2, |job| {
            let edges: &[Edge] =
                if job.rank().0 == 0 { &[[7, 900], [5, 5]] } else { &[[900, 901]] };
            let graph = Shared::build(job.team(), 1000, edges).expect("a graph");
            graph.roots(64, 1).expect("roots")
        });
        for mut roots in found.expect("a job") {
            roots.sort_unstable();
            assert_eq!(roots, [7, 900, 901]);
        }
    }
}
