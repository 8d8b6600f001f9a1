//! Making a window, collectively: every member gets it, or every member gets an error.
//!
//! ```text
//! terms      broadcast   what all must agree on, compared with the first member's
//! sizes      allreduce   the largest part, whether units or media differ (irregular: allgather)
//! block      broadcast   the first member allocates block and address range, the others join
//! parts      agree       each member fills in its record and reserves its own memory
//! ```

use super::builder::too_large;
use super::life::{Range, Ticket};
use super::{Flavour, Parts};
use crate::base::{Error, Offset, Rank, Result};
use crate::coll::Team;
use crate::layout::Op;
use crate::rma::block::{Entry, REACH_MAPPED, WindowBlock};
use crate::rma::core::{Core, Ingredients, Own};
use crate::rma::info::{Info, Medium};
use crate::rma::packet;
use crate::shm::map::{PAGE, round_up};
use crate::shm::region::locate;
use std::sync::Arc;

/// What one member brings along.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'t> {
    pub team: &'t Team,
    pub during: &'static str,
    /// Of the element type.
    pub fingerprint: u64,
    pub flavour: Flavour,
    pub info: Info,
    /// Sizes may differ between members.
    pub different_sizes: bool,
    /// Bytes of this member's part.
    pub bytes: u64,
    /// Bytes per displacement of this member's part.
    pub unit: u32,
    /// Bytes of an element, for messages.
    pub element: u64,
}

/// What the members have told each other.
struct Sizes {
    /// Bytes of the largest part.
    largest: u64,
    /// All parts together.
    total: u64,
    /// Of the parts of the members before this one.
    before: u64,
    /// All parts have the same size and unit.
    alike: bool,
}

impl Wish<'_> {
    /// Makes the window. Collective.
    pub fn make(mut self, valid: Result<()>) -> Result<Core> {
        let (team, during) = (self.team, self.during);
        let valid = valid.and_then(|()| {
            if Medium::from_settings()? == Medium::Packets {
                self.info.medium = Medium::Packets;
            }
            Ok(())
        });
        self.agree_on_terms(valid)?;
        let sizes = self.exchange_sizes()?;
        let contiguous = self.flavour == Flavour::Shared && !self.info.alloc_shared_noncontig;
        let block = Arc::new(self.make_block(&sizes, contiguous)?);
        let packets = self.info.medium == Medium::Packets;
        let filled = self.fill_part(&block, &sizes, contiguous).and_then(|own| {
            // Before any member can send: nobody has the window until all have agreed.
            let opened = packets
                .then(|| packet::open(&block, &self.info, Arc::new(own), packets))
                .transpose()?;
            Ok((own, opened))
        });
        let (own, remote) = team.agree(during, filled)?;
        block.completed();
        Ok(Core::new(Ingredients {
            block,
            info: self.info,
            flavour: self.flavour,
            parts: if sizes.alike && !contiguous {
                Parts::Uniform { bytes: self.bytes as usize, unit: self.unit as usize }
            } else {
                Parts::Table
            },
            own,
            packets,
            away: packets,
            remote,
        }))
    }

    /// Compares what must be the same everywhere with what the first member has, so that a
    /// disagreement is found before anything else can go wrong.
    fn agree_on_terms(&self, valid: Result<()>) -> Result<()> {
        let kind = self.flavour as u64 | u64::from(self.different_sizes) << 8;
        let mine = [self.fingerprint, kind, self.info.bits(), self.bytes, self.unit.into()];
        let mut theirs = mine;
        self.team.broadcast(Rank(0), &mut theirs)?;
        self.team.agree(self.during, self.compare(mine, theirs).and(valid))
    }

    fn compare(&self, mine: [u64; 5], theirs: [u64; 5]) -> Result<()> {
        let names = [
            "the element type of a window",
            "the kind of a window",
            "the hints for a window",
            "the length of a window",
            "the displacement unit of a window",
        ];
        let same_size = !self.different_sizes || self.info.same_size;
        let must = [true, true, true, same_size, self.info.same_disp_unit];
        let text = |i: usize, v: u64| match i {
            0 => format!("type fingerprint {v:#x}"),
            1 => kind_text(v),
            2 => Info::from_bits(v).to_string(),
            3 => format!("{} elements", v / self.element.max(1)),
            _ => format!("{v} bytes"),
        };
        match (0..5).find(|&i| must[i] && mine[i] != theirs[i]) {
            None => Ok(()),
            Some(i) => Err(Error::Mismatch {
                what: names[i],
                a: Rank(0),
                a_has: text(i, theirs[i]),
                b: self.team.rank(),
                b_has: text(i, mine[i]),
            }),
        }
    }

    fn exchange_sizes(&self) -> Result<Sizes> {
        let (team, size) = (self.team, u64::from(self.team.size()));
        if !self.different_sizes {
            // The largest of the units and of their complements: equal if all units are.
            let unit = u64::from(self.unit);
            let mut span = [unit, !unit];
            team.allreduce(Op::Max, &mut span)?;
            return Ok(Sizes {
                largest: self.bytes,
                total: self.bytes.saturating_mul(size),
                before: self.bytes.saturating_mul(team.rank().0.into()),
                alike: span[0] == !span[1],
            });
        }
        // Transient, while the call lasts: what everybody has.
        let mut all = vec![[0u64; 2]; team.size() as usize];
        team.allgather(&[[self.bytes, self.unit.into()]], &mut all)?;
        let sum = |rows: &[[u64; 2]]| rows.iter().fold(0u64, |sum, row| sum.saturating_add(row[0]));
        Ok(Sizes {
            largest: all.iter().map(|row| row[0]).max().unwrap_or(0),
            total: sum(&all),
            before: sum(&all[..team.rank().index()]),
            alike: all.iter().all(|row| *row == all[0]),
        })
    }

    fn make_block(&self, sizes: &Sizes, contiguous: bool) -> Result<WindowBlock> {
        let (team, during) = (self.team, self.during);
        let leader = team.rank() == Rank(0);
        let home = if contiguous { Some(team.slot_of(Rank(0))?) } else { None };
        let bytes = if contiguous { sizes.total } else { sizes.largest };
        let stride = team.node().areas().stride;
        let range = Range { bytes, home, total: sizes.total };
        let made = match leader {
            _ if bytes > stride => Err(too_large(bytes, stride)),
            true => WindowBlock::create(team, range).map(Some),
            false => Ok(None),
        };
        // Dropped with an error, the block goes: nobody else has joined it.
        let made = team.agree(during, made)?;
        let ticket = made.as_ref().map_or([0; 2], |block| {
            let Ticket { at, nonce } = block.ticket();
            [at.0, nonce]
        });
        let mut ticket = [ticket];
        team.broadcast(Rank(0), &mut ticket)?;
        let [at, nonce] = ticket[0];
        let joined = match made {
            Some(block) => Ok(block),
            None => WindowBlock::join(team, Ticket { at: Offset(at), nonce }),
        };
        // Nobody goes on before all have joined: from here on whoever is missing is dead.
        team.agree(during, joined)
    }

    /// Reserves this member's part, first touched by its owner, and fills in its record.
    fn fill_part(&self, block: &WindowBlock, sizes: &Sizes, contiguous: bool) -> Result<Own> {
        let team = self.team;
        let node = team.node();
        let (slot, before) =
            if contiguous { (team.slot_of(Rank(0))?, sizes.before) } else { (node.slot(), 0) };
        let at = node.areas().heap(slot).0 + block.heap + before;
        let first = locate(node.mapping(), Offset(at), self.bytes, 1)?.as_ptr();
        if self.bytes > 0 {
            let page = at & !(PAGE - 1);
            let length = round_up(at + self.bytes, PAGE) - page;
            node.reserve(Offset(page), length, "a window")?;
            node.warm(Offset(page), length);
        }
        let entry = Entry { offset: at, bytes: self.bytes, unit: self.unit, reach: REACH_MAPPED };
        block.info(team.rank().0).fill(entry);
        Ok(Own { first, bytes: self.bytes as usize, unit: self.unit as usize })
    }
}

fn kind_text(raw: u64) -> String {
    let name = match raw & 0xff {
        1 => "allocate",
        2 => "allocate_shared",
        3 => "create",
        4 => "dynamic",
        _ => "an unknown kind",
    };
    let sizes = if raw >> 8 != 0 { " with different sizes" } else { "" };
    format!("{name}{sizes}")
}
