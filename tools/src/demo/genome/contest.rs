//! The search as a loop that is timed again and again, for comparisons with others' programs
//! (`benches/peers/genome.c`): first once, checked against the plain search, with a fingerprint that
//! theirs must have too.

use super::super::input::Text;
use super::super::random::mark;
use super::super::slices::slice;
use super::kmer::{self, Word};
use super::queries::Queries;
use super::search::{Found, Index};
use super::{LAMBDA, fasta, serial};
use hither::layout::Op;
use hither::{Error, Result, Team};

const SEED: u64 = 1;

/// Collective: calls `measured` with the fingerprint of what `count` queries on the genome that ships
/// found, and with a function that asks them all so many times more.
pub fn contest<R>(
    team: &Team,
    count: u64,
    measured: impl FnOnce(u64, &mut dyn FnMut(u64) -> Result<()>) -> Result<R>,
) -> Result<R> {
    let genome = fasta::parse(&Text::shipped("--genome", "lambda_virus.fa", LAMBDA))?;
    let index = Index::build(team, &genome)?;
    let queries = Queries::new(&genome.bases, SEED, false);
    let mine = slice(count, team.rank().0, team.size());
    let words: Vec<Word> = mine.clone().map(|i| queries.query(i)).collect();
    let codes: Vec<Option<u64>> = words.iter().map(kmer::code).collect();
    let mut found = Found::new(words.len());
    index.search(&codes, &mut found)?;
    let mut proof = [0];
    for ((at, have), want) in mine.zip(found.all()).zip(serial::search(&genome.bases, &words)) {
        if have != want {
            return Err(Error::invalid("the genome search", format!("query {at} is wrong")));
        }
        proof[0] ^= have.iter().fold(0, |all, &position| all ^ mark(at, position));
    }
    team.allreduce(Op::BitXor, &mut proof)?;
    measured(proof[0], &mut |times| {
        for _ in 0..times {
            found.clear();
            index.search(&codes, &mut found)?;
        }
        team.barrier()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither::Job;

    #[test]
    fn the_fingerprint_is_that_of_the_result_however_it_is_divided() {
        for ranks in [1, 2, 3] {
            let proofs = Job::threads(ranks, |job| {
                contest(job.team(), 20_000, |proof, more| more(2).map(|()| proof))
            });
            for proof in proofs.unwrap() {
                // What benches/peers/genome.c says of the same.
                assert_eq!(proof.unwrap(), 0x090b_1bc2_39c8_871e, "{ranks} ranks");
            }
        }
    }
}
