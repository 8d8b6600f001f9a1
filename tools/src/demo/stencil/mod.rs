//! A Jacobi iteration on a two- and a three-dimensional grid, divided into blocks, with halo
//! exchange by puts; the result equals the serial one bit for bit.

pub mod contest;
mod field;
mod grid;
mod halo;
mod serial;

use super::report::{Row, rate};
use super::work::{Context, Stop, agree, timed, verdict};
use field::Field;
use grid::{Extent, Grid};
use halo::{Halo, Sync};
use hither::{Error, Rank, Result, Team, Window};

/// What to compute.
pub struct Options {
    /// The grids; two-dimensional ones have one z.
    pub sizes: Vec<Extent>,
    /// Number of sweeps.
    pub sweeps: usize,
}

/// Collective: runs both synchronisations on all grids.
pub fn run(context: &Context<'_>, options: &Options) -> Result<Vec<Row>, Stop> {
    let mut rows = Vec::new();
    for &cells in &options.sizes {
        let team = context.team;
        let grid = Grid::new(cells, team.size() as usize).ok_or_else(|| {
            let ranks = team.size();
            Error::invalid("--size", format!("{} cells are too few for {ranks} ranks", name(cells)))
        });
        let grid = agree(team, grid)?;
        let bar = context.progress.bar(&format!("stencil: {}", name(cells)), 3);
        let mut want = Vec::new();
        if team.rank() == Rank(0) {
            want = serial::run(cells, options.sweeps);
        }
        bar.step();
        for (formulation, sync) in [("fence", Sync::Fence), ("flush and barrier", Sync::Flush)] {
            rows.push(one(context, grid, options.sweeps, formulation, sync, &want)?);
            bar.step();
        }
    }
    Ok(rows)
}

fn one(
    context: &Context<'_>,
    grid: Grid,
    sweeps: usize,
    formulation: &'static str,
    sync: Sync,
    want: &[f64],
) -> Result<Row, Stop> {
    let team = context.team;
    let halo = Halo::new(team, grid)?;
    let mut field = Field::new(grid.cells, &grid.block(team.rank().index()));
    let seconds = timed(team, || halo.run(&mut field, sweeps, sync))?;
    let wrong = verdict(team, compare(team, grid, &field.cells(), want)?)?;
    let cells: usize = grid.cells.iter().product();
    let speed = cells as f64 * sweeps as f64 / seconds;
    let mut figures = serde_json::Map::new();
    figures.insert("cells_per_s".into(), speed.into());
    figures.insert("cells".into(), cells.into());
    figures.insert("sweeps".into(), sweeps.into());
    figures.insert("rank_grid".into(), grid.ranks.to_vec().into());
    Ok(Row {
        workload: "stencil",
        formulation,
        ranks: team.size(),
        input: name(grid.cells),
        validated: wrong.is_none(),
        seconds,
        figures,
        rate: rate(speed, "cells/s"),
        check: wrong.unwrap_or_else(|| format!("{sweeps} sweeps, bit-equal to serial")),
    })
}

/// Collective: rank 0 gets every block and compares it with its part of `want`.
fn compare(team: &Team, grid: Grid, mine: &[f64], want: &[f64]) -> Result<Result<(), String>> {
    let largest = (0..3).map(|a| grid.cells[a].div_ceil(grid.ranks[a])).product();
    let window = Window::<f64>::allocate(team, largest)?;
    window.local().write(0, mine)?;
    team.barrier()?;
    let mut complaint = Ok(());
    if team.rank() == Rank(0) {
        let epoch = window.lock_all()?;
        for rank in 0..team.size() {
            let [zs, ys, xs] = grid.block(rank as usize);
            let mut block = vec![0.0; zs.len() * ys.len() * xs.len()];
            epoch.get(Rank(rank), 0, &mut block)?;
            let lines = zs.flat_map(|z| ys.clone().map(move |y| (z, y)));
            for ((z, y), line) in lines.zip(block.chunks(xs.len())) {
                let at = (z * grid.cells[1] + y) * grid.cells[2] + xs.start;
                let other =
                    line.iter().zip(&want[at..]).position(|(a, b)| a.to_bits() != b.to_bits());
                if let Some(x) = other {
                    let x = xs.start + x;
                    complaint = Err(format!("cell ({z}, {y}, {x}) differs from the serial result"));
                }
            }
        }
        epoch.unlock_all()?;
    }
    team.barrier()?;
    Ok(complaint)
}

/// A size for people: `1024x1024`, `96x96x96`.
fn name([z, y, x]: Extent) -> String {
    if z == 1 { format!("{y}x{x}") } else { format!("{z}x{y}x{x}") }
}

/// Reads a size: two or three numbers joined by `x`.
pub fn parse_size(text: &str) -> Result<Extent, String> {
    let want = || format!("\"{text}\" is not a size such as 1024x1024 or 96x96x96");
    let numbers: Vec<usize> =
        text.split('x').map(|n| n.parse().map_err(|_| want())).collect::<Result<_, _>>()?;
    let size = match numbers[..] {
        [y, x] => [1, y, x],
        // A single layer would silently be computed as two-dimensional.
        [z, y, x] if z > 1 => [z, y, x],
        _ => return Err(want()),
    };
    let cells = size.iter().try_fold(1usize, |cells, &n| cells.checked_mul(n));
    match cells {
        Some(1..=0x1_0000_0000) => Ok(size),
        _ => Err(format!("{text} is not between 1 and 2^32 cells")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_bit_is_noticed() {
        let cells = [1, 9, 7];
        let complaints = hither::Job::threads(4, |job| {
            let team = job.team();
            let grid = Grid::new(cells, 4).expect("the ranks fit");
            let field = Field::new(cells, &grid.block(team.rank().index()));
            let mut mine = field.cells();
            let want = serial::run(cells, 0);
            let right = compare(team, grid, &mine, &want).expect("a comparison");
            if team.rank() == Rank(2) {
                mine[3] = f64::from_bits(mine[3].to_bits() ^ 1);
            }
            let wrong = compare(team, grid, &mine, &want).expect("a comparison");
            (right.is_ok(), wrong.is_ok())
        });
        let complaints = complaints.expect("a job");
        assert!(complaints.iter().all(|(right, _)| *right));
        assert!(!complaints[0].1);
    }

    #[test]
    fn sizes_are_read_and_refused() {
        assert_eq!(parse_size("10x20"), Ok([1, 10, 20]));
        assert_eq!(parse_size("3x4x5"), Ok([3, 4, 5]));
        for bad in ["", "10", "0x5", "x", "1x2x3", "2x2x2x2", "-1x5", "4294967296x4294967296"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
