//! The stencil as a loop that is timed again and again, for comparisons with others' programs
//! (`benches/peers/halo.c`): first some sweeps, whose result is checked against the serial one and has
//! a fingerprint that theirs must have too.

use super::super::random::mark;
use super::field::Field;
use super::grid::{Extent, Grid};
use super::halo::{Halo, Sync};
use super::{compare, serial};
use hither::layout::Op;
use hither::{Error, Result, Team};

/// Sweeps whose result is checked.
const PROOF: usize = 10;

/// Collective: calls `measured` with the fingerprint of what was computed and with a function that
/// does so many sweeps more. `fences`: a fence each sweep; else flush and barrier.
pub fn contest<R>(
    team: &Team,
    cells: Extent,
    fences: bool,
    measured: impl FnOnce(u64, &mut dyn FnMut(u64) -> Result<()>) -> Result<R>,
) -> Result<R> {
    let sync = if fences { Sync::Fence } else { Sync::Flush };
    let few = || Error::invalid("bench own", "fewer cells than ranks");
    let grid = Grid::new(cells, team.size() as usize).ok_or_else(few)?;
    let halo = Halo::new(team, grid)?;
    let block = grid.block(team.rank().index());
    let mut field = Field::new(cells, &block);
    halo.run(&mut field, PROOF, sync)?;
    let mine = field.cells();
    let want = if team.rank().0 == 0 { serial::run(cells, PROOF) } else { Vec::new() };
    compare(team, grid, &mine, &want)?.map_err(|why| Error::invalid("the stencil", why))?;
    let [zs, ys, xs] = block;
    let places = zs.flat_map(|z| ys.clone().map(move |y| (z, y)));
    let places = places.flat_map(|(z, y)| {
        let row = (z * cells[1] + y) * cells[2];
        xs.clone().map(move |x| row + x)
    });
    let mut proof = [places.zip(&mine).fold(0, |all, (at, x)| all ^ mark(at as u64, x.to_bits()))];
    team.allreduce(Op::BitXor, &mut proof)?;
    measured(proof[0], &mut |sweeps| halo.run(&mut field, sweeps as usize, sync))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither::Job;

    #[test]
    fn the_fingerprint_is_that_of_the_result_however_it_is_divided() {
        let proofs = |ranks, cells, fences| -> Vec<u64> {
            let job = Job::threads(ranks, |job| {
                contest(job.team(), cells, fences, |proof, more| more(3).map(|()| proof))
            });
            job.unwrap().into_iter().map(|proof| proof.unwrap()).collect()
        };
        let alone = proofs(1, [1, 64, 64], true)[0];
        assert_eq!(proofs(2, [1, 64, 64], false), [alone; 2]);
        assert_eq!(proofs(3, [1, 64, 64], true), [alone; 3]);
        // What benches/peers/halo.c says of the same.
        assert_eq!(alone, 0x27a3_51f4_cc65_783f);
        assert_eq!(proofs(2, [16; 3], true)[0], 0x76e3_8da6_652f_7a5b);
    }
}
