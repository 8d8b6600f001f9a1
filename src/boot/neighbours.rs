//! What ranks tell each other, where all that a launcher does for them is to carry what they put.
//!
//! ```text
//! first fence     cards: rank 0's names the job, that of the first rank on a node must be of the
//!                 same machine
//! second fence    the first rank on a node has made its memory and says where the others get it (see
//!                 `handout`), or why there is none
//! ```

use super::card::Card;
use super::handout::{self, Offer};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use crate::topo::Placement;
use rustix::fd::{AsFd, OwnedFd};

const CARD: &str = "hither card";
const MEMORY: &str = "hither memory";

/// Learns the name of the job, and whether the node is one. Collective.
pub(super) fn introduce(
    ranks: &mut dyn Bootstrap,
    placement: &Placement,
    deadline: Deadline,
) -> Result<u64> {
    let rank = ranks.rank();
    let own = Card::of_this_process(rank.0, ranks.size())?;
    ranks.put(CARD, &own.encode())?;
    ranks.fence(deadline)?;
    let mut card = |rank: u32| {
        let bytes = ranks.get(Rank(rank), CARD, deadline)?.unwrap_or_default();
        Card::decode(&bytes).filter(|card| card.rank == rank).ok_or_else(|| {
            Error::boot(format!(
                "what rank {rank} says of itself makes no sense here: all ranks must use the same \
                 version of hither"
            ))
        })
    };
    let (first, leader) = (card(0)?, card(leader(placement, rank))?);
    leader.check_near(&own)?;
    Ok(first.job)
}

/// The first rank on the node of `rank`, from which the placement is seen.
fn leader(placement: &Placement, rank: Rank) -> u32 {
    placement.local_ranks().next().unwrap_or(rank.0)
}

/// [`Bootstrap::node_memory`] by way of the other calls.
pub(super) fn node_memory(
    ranks: &mut dyn Bootstrap,
    placement: &Placement,
    make: MakeMemory<'_>,
    deadline: Deadline,
) -> Result<OwnedFd> {
    let (rank, job) = (ranks.rank(), ranks.job());
    let first = leader(placement, rank);
    if rank.0 != first {
        ranks.fence(deadline)?;
        let offer = ranks.get(Rank(first), MEMORY, deadline)?.unwrap_or_default();
        return match offer.split_first() {
            Some((1, name)) => handout::claim(name, job, rank, Rank(first), deadline),
            _ => {
                let why = String::from_utf8_lossy(offer.get(1..).unwrap_or_default());
                Err(Error::boot(format!("rank {first} has no memory for its node: {why}")))
            }
        };
    }
    let made = make().and_then(|memory| Ok((memory, Offer::open(placement.locals())?)));
    let said = match &made {
        Ok((_, offer)) => [&[1], offer.name()].concat(),
        Err(error) => [&[0], error.to_string().as_bytes()].concat(),
    };
    ranks.put(MEMORY, &said)?;
    ranks.fence(deadline)?;
    let (memory, offer) = made?;
    offer.serve(job, placement.local_ranks().skip(1), memory.as_fd(), deadline)?;
    Ok(memory)
}
