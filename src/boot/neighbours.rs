//! What ranks tell each other, where all that a launcher does for them is to carry what they put.
//!
//! ```text
//! first fence     cards: rank 0's names the job, that of the first rank on a node must be of the
//!                 same machine
//! second fence    the first rank on a node has made its memory and says where the others get it (see
//!                 `handout`), or why there is none
//! ```
//! Where nobody says which ranks are on which node, everybody looks at all cards: those that can share
//! memory are on one.

use super::card::{self, Card};
use super::handout::{self, Offer};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use crate::topo::{Placement, Places};
use rustix::fd::{AsFd, OwnedFd};

const CARD: &str = "hither card";
const MEMORY: &str = "hither memory";

/// What a rank learns of the others' cards.
pub(super) struct Introduced {
    /// The job's name.
    pub job: u64,
    /// Whether one of them is known to be where this one's loopback address does not reach.
    pub beyond: bool,
}

/// Learns the name of the job, and whether the node is one. Collective.
pub(super) fn introduce(
    ranks: &mut dyn Bootstrap,
    placement: &Placement,
    deadline: Deadline,
) -> Result<Introduced> {
    let rank = ranks.rank();
    let own = Card::of_this_process(rank.0, ranks.size())?;
    ranks.put(CARD, &own.encode())?;
    ranks.fence(deadline)?;
    let first = card(ranks, 0, deadline)?;
    let leader = card(ranks, leader(placement, rank), deadline)?;
    leader.check_near(&own)?;
    Ok(Introduced { job: first.job, beyond: own.is_beyond(&first) })
}

/// Learns from everybody's cards where ranks are, of each one. Collective; costs a look-up for each rank.
///
/// # Errors
/// Those of [`places`], and of the exchange.
pub(super) fn meet(
    ranks: &mut dyn Bootstrap,
    own: &Card,
    deadline: Deadline,
) -> Result<(Placement, Introduced)> {
    ranks.put(CARD, &own.encode())?;
    ranks.fence(deadline)?;
    let cards = (0..ranks.size()).map(|rank| card(ranks, rank, deadline));
    let cards = cards.collect::<Result<Vec<Card>>>()?;
    places(&cards, ranks.rank())
}

/// What a rank has put of itself.
fn card(ranks: &mut dyn Bootstrap, rank: u32, deadline: Deadline) -> Result<Card> {
    let bytes = ranks.get(Rank(rank), CARD, deadline)?.unwrap_or_default();
    Card::decode(&bytes).filter(|card| card.rank == rank).ok_or_else(|| {
        Error::boot(format!(
            "what rank {rank} says of itself makes no sense here: all ranks must use the same \
             version of hither"
        ))
    })
}

/// Where ranks are, who say it on these cards, of each one: seen from the node of `rank`, with what it
/// learns of them.
///
/// # Errors
/// [`Error::Boot`], [`Error::Mismatch`] if a card is another rank's, or of a job of another size.
pub(super) fn places(cards: &[Card], rank: Rank) -> Result<(Placement, Introduced)> {
    let senseless = || Error::boot("there are no cards of the ranks");
    let (first, own) = cards.first().zip(cards.get(rank.index())).ok_or_else(senseless)?;
    for (at, card) in cards.iter().enumerate() {
        if card.rank as usize != at {
            return Err(Error::boot(format!(
                "what rank {at} should say of itself comes from rank {}: it must come in rank order",
                card.rank
            )));
        }
        if card.size != first.size {
            return Err(Error::Mismatch {
                what: "the number of ranks",
                a: Rank(0),
                a_has: first.size.to_string(),
                b: Rank(card.rank),
                b_has: card.size.to_string(),
            });
        }
    }
    let places = Places::listed(&card::nodes(cards))?;
    let beyond = cards.iter().any(|card| own.is_beyond(card));
    let placement = Placement::of(places, 0)?.seen_from(rank);
    Ok((placement, Introduced { job: first.job, beyond }))
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
