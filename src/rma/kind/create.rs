//! Making a window, collectively: every member gets it, or every member gets an error.
//!
//! ```text
//! terms      broadcast   what all must agree on, compared with the first member's
//! sizes      allreduce   the largest part, whether units or media differ (irregular: allgather)
//! block      broadcast   the first member (on each node) allocates block and address range, the
//!                        others join
//! parts      agree       each member fills in its record and reserves its own memory
//! ```

use super::builder::too_large;
use super::life::Range;
use super::{Attachments, Flavour, Parts};
use crate::base::{Error, Offset, Rank, Result};
use crate::coll::Team;
use crate::layout::Op;
use crate::rma::block::{Entry, REACH_MAPPED, REACH_PRIVATE, WindowBlock};
use crate::rma::core::{Core, Ingredients, Own};
use crate::rma::directory::Directory;
use crate::rma::info::{Info, Medium};
use crate::rma::memory::{Region, stride_of};
use crate::rma::packet;
use crate::rma::remote::OwnPart;
use crate::shm::map::{PAGE, round_up};
use crate::shm::region::locate;
use std::sync::Arc;

/// Where the memory of this member's part comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The same offset of every member's symmetric memory.
    Apart,
    /// One block in the first member's symmetric memory, part after part.
    Joined,
    /// The member brings it along.
    Brought(Region),
    /// There is none yet.
    Nothing,
}

/// What one member brings along.
#[derive(Clone, Debug)]
pub(super) struct Wish<'t> {
    pub team: &'t Team,
    pub during: &'static str,
    /// Of the element type.
    pub fingerprint: u64,
    pub flavour: Flavour,
    pub source: Source,
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
    /// Size, unit, and whether it is private, of every member's part, if they may differ.
    all: Vec<[u64; 3]>,
    /// Bytes of the largest part.
    largest: u64,
    /// The parts on this node together.
    total: u64,
    /// Of the parts of the members before this one.
    before: u64,
    /// All parts have the same size and unit.
    alike: bool,
    /// Some member brings memory that only it has mapped.
    private: bool,
}

impl Wish<'_> {
    /// Makes the window. Collective.
    pub fn make(mut self, valid: Result<()>) -> Result<Core> {
        let (team, during) = (self.team, self.during);
        // Whatever else is wrong here: what is compared must not differ because of it.
        let medium = Medium::from_settings();
        if matches!(medium, Ok(Medium::Packets)) {
            self.info.medium = Medium::Packets;
        }
        let valid = valid.and(medium.map(drop)).and_then(|()| self.refuse_shared());
        self.agree_on_terms(valid)?;
        let sizes = self.exchange_sizes()?;
        let block = Arc::new(self.make_block(&sizes)?);
        let own = self.fill_part(&block, &sizes);
        let made = if matches!(self.source, Source::Nothing) {
            let parts = Parts::Dynamic(Arc::new(Attachments::new()));
            own.and_then(|own| self.finish(&block, &sizes, own, parts))
        } else if matches!(self.source, Source::Apart) && sizes.alike {
            let (bytes, unit) = (self.bytes as usize, self.unit as usize);
            own.and_then(|own| self.finish(&block, &sizes, own, Parts::Uniform { bytes, unit }))
        } else {
            // All records are there once all have agreed.
            let own = team.agree(during, own)?;
            // Of a window on several nodes it is of the node's copy, which says the same everywhere.
            let directory = Directory::create(team, |rank| block.entry(rank));
            directory.and_then(|d| self.finish(&block, &sizes, own, Parts::Table(Box::new(d))))
        };
        team.agree(during, made)
    }

    /// This member's side of the window. It can be used once all members have theirs.
    fn finish(
        &self,
        block: &Arc<WindowBlock>,
        sizes: &Sizes,
        own: Own,
        parts: Parts,
    ) -> Result<Core> {
        let packets = self.info.medium == Medium::Packets;
        let dynamic = matches!(parts, Parts::Dynamic(_));
        // Also where parts on one's own node are mapped: members of several nodes have nothing else.
        let synchronise = packets || self.team.spans_nodes();
        // Of a dynamic window also where there is one member: see `place_attached`.
        let away = synchronise || dynamic || (self.team.size() > 1 && sizes.private);
        let target: Arc<dyn OwnPart> = match &parts {
            Parts::Dynamic(attachments) => attachments.clone(),
            _ => Arc::new(own),
        };
        let open = || packet::open(block, &self.info, target, synchronise);
        let remote = if away { Some(open()?) } else { None };
        let memory = match &self.source {
            Source::Brought(region) => Some(region.clone()),
            _ => None,
        };
        Ok(Core::new(Ingredients {
            block: block.clone(),
            info: self.info.clone(),
            flavour: self.flavour,
            parts,
            own,
            packets,
            remote,
            memory,
        }))
    }

    /// An error for a window that is to lie in one piece and cannot.
    fn refuse_shared(&self) -> Result<()> {
        if self.flavour != Flavour::Shared || !self.team.spans_nodes() {
            return Ok(());
        }
        let why = "the team has members on several nodes, which share no memory; use a team of one \
                   node, such as Job::node_team";
        Err(Error::Misuse { what: self.during, why: why.into() })
    }

    /// Compares what must be the same everywhere with what the first member has, so that a
    /// disagreement is found before anything else can go wrong.
    fn agree_on_terms(&self, valid: Result<()>) -> Result<()> {
        let kind = self.flavour as u64 | u64::from(self.different_sizes) << 8;
        let (bits, buffers) = (self.info.bits(), self.info.am_user_buffers.fingerprint());
        let (bytes, unit, small) = (self.bytes, self.unit.into(), packet::small_teams());
        let mine = [self.fingerprint, kind, bits, buffers, bytes, unit, small];
        let mut theirs = mine;
        self.team.broadcast(Rank(0), &mut theirs)?;
        self.team.agree(self.during, self.compare(mine, theirs).and(valid))
    }

    fn compare(&self, mine: [u64; 7], theirs: [u64; 7]) -> Result<()> {
        let names = [
            "the element type of a window",
            "the kind of a window",
            "the hints for a window",
            "the hints am_user_buf for a window",
            "the length of a window",
            "the displacement unit of a window",
            "the setting HITHER_RMA_REDUCE_TEAMS",
        ];
        let same_size = !self.different_sizes || self.info.same_size;
        let must = [true, true, true, true, same_size, self.info.same_disp_unit, true];
        let text = |i: usize, v: u64| match i {
            0 => format!("type fingerprint {v:#x}"),
            1 => kind_text(v),
            2 => Info::from_bits(v).to_string(),
            3 if v == mine[3] => self.info.am_user_buffers.to_string(),
            3 => format!("others (fingerprint {v:#x})"),
            4 => format!("{} elements", v / self.element.max(1)),
            5 => format!("{v} bytes"),
            _ => format!("{v} ranks"),
        };
        match (0..7).find(|&i| must[i] && mine[i] != theirs[i]) {
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
        let (team, size) = (self.team, u64::from(self.team.locals()));
        if !self.different_sizes {
            // Nobody brings memory along.
            // The largest of the units and of their complements: equal if all units are.
            let unit = u64::from(self.unit);
            let mut span = [unit, !unit];
            team.allreduce(Op::Max, &mut span)?;
            let alike = span[0] == !span[1];
            // A node's copy has them all.
            if alike || !team.spans_nodes() {
                return Ok(Sizes {
                    all: Vec::new(),
                    largest: self.bytes,
                    total: self.bytes.saturating_mul(size),
                    before: self.bytes.saturating_mul(team.rank().0.into()),
                    alike,
                    private: false,
                });
            }
        }
        // Transient, while the call lasts: what everybody has.
        let mut all = vec![[0u64; 3]; team.size() as usize];
        team.allgather(&[[self.bytes, self.unit.into(), self.is_private().into()]], &mut all)?;
        let sum = |rows: &[[u64; 3]]| rows.iter().fold(0u64, |sum, row| sum.saturating_add(row[0]));
        let here = team.local_ranks().map(|rank| all.get(rank.index()).map_or(0, |row| row[0]));
        Ok(Sizes {
            largest: all.iter().map(|row| row[0]).max().unwrap_or(0),
            total: here.fold(0, u64::saturating_add),
            before: sum(&all[..team.rank().index()]),
            alike: all.iter().all(|row| *row == all[0]),
            private: all.iter().any(|row| row[2] != 0),
            all,
        })
    }

    fn is_private(&self) -> bool {
        match &self.source {
            Source::Brought(region) => !matches!(region.offset_in(self.team.node()), Ok(Some(_))),
            _ => false,
        }
    }

    fn make_block(&self, sizes: &Sizes) -> Result<WindowBlock> {
        let (team, during) = (self.team, self.during);
        let leader = team.local_rank() == 0;
        let copied = team.spans_nodes() && !sizes.all.is_empty();
        let (bytes, total, home) = match self.source {
            Source::Apart => (sizes.largest, sizes.total, None),
            Source::Joined => (sizes.total, sizes.total, Some(team.slot_of(Rank(0))?)),
            Source::Brought(_) | Source::Nothing => (0, 0, None),
        };
        let stride = team.node().areas().stride;
        let range = Range { bytes, home, total, copied, flavour: self.flavour };
        let made = match leader {
            _ if bytes > stride => Err(too_large("a window", bytes, stride)),
            true => WindowBlock::create(team, range).map(Some),
            false => Ok(None),
        };
        // Dropped with an error, the block goes: nobody else has joined it.
        let made = team.agree(during, made)?;
        let ticket = self.exchange_tickets(made.as_ref(), sizes)?;
        let joined = match made {
            Some(block) => Ok(block),
            None => WindowBlock::join(team, ticket, bytes, copied),
        };
        // Nobody goes on before all have joined: from here on whoever is missing is dead.
        team.agree(during, joined)
    }

    /// What the members on this node must know to join the block that their first one has made.
    /// That of the team's first member gives a window on several nodes its number.
    fn exchange_tickets(&self, made: Option<&WindowBlock>, sizes: &Sizes) -> Result<u64> {
        let team = self.team;
        let mine = made.map_or(0, WindowBlock::ticket);
        if !team.spans_nodes() {
            let mut ticket = [mine];
            team.broadcast(Rank(0), &mut ticket)?;
            return Ok(ticket[0]);
        }
        let node = team.node().placement().node();
        let mut number = [numbered(node, mine)];
        team.broadcast(Rank(0), &mut number)?;
        if let Some(block) = made {
            block.set_number(number[0]);
            for (rank, row) in (0u32..).zip(&sizes.all) {
                block.copy(rank, row[0], row[1]);
            }
        }
        let mut words = [mine, 0, 0, 0, 0, 0, 0];
        team.share_on_node(&mut words)?;
        Ok(words[0])
    }

    /// Reserves this member's part, first touched by its owner, and fills in its record.
    fn fill_part(&self, block: &WindowBlock, sizes: &Sizes) -> Result<Own> {
        let team = self.team;
        let node = team.node();
        let (bytes, unit) = (self.bytes as usize, self.unit as usize);
        let (first, offset) = match &self.source {
            Source::Apart => {
                let at = node.areas().heap(node.slot()).0 + block.heap;
                (self.reserve(at)?, Some(at))
            }
            Source::Joined => {
                let slot = team.slot_of(Rank(0))?;
                let at = node.areas().heap(slot).0 + block.heap + sizes.before;
                (self.reserve(at)?, Some(at))
            }
            Source::Brought(region) => {
                let offset = region.offset_in(node)?;
                if let (Some(offset), true) = (offset, bytes > 0) {
                    node.add_use(stride_of(node, offset)?, &block.holding)?;
                }
                (region.first.as_ptr(), offset)
            }
            Source::Nothing => (std::ptr::null_mut(), None),
        };
        let reach = if offset.is_some() { REACH_MAPPED } else { REACH_PRIVATE };
        let offset = offset.unwrap_or(0);
        let entry = Entry { offset, bytes: self.bytes, unit: self.unit, reach };
        block.info(team.rank().0).fill(entry);
        Ok(Own { first, bytes, unit })
    }

    /// Reserves the pages of this member's part. Pages at its ends may be reserved by neighbours
    /// too.
    fn reserve(&self, at: u64) -> Result<*mut u8> {
        let node = self.team.node();
        let first = locate(node.mapping(), Offset(at), self.bytes, 1)?.as_ptr();
        if self.bytes > 0 {
            let page = at & !(PAGE - 1);
            let length = round_up(at + self.bytes, PAGE) - page;
            node.reserve(Offset(page), length, "a window")?;
            node.warm(Offset(page), length);
        }
        Ok(first)
    }
}

/// The number in the job of a window: what its first member's node calls it, and that node, counted
/// from 1. Windows on one node have smaller ones, without a node.
fn numbered(node: u32, ticket: u64) -> u64 {
    const BITS: u32 = 47;
    (u64::from(node) + 1) << BITS | ticket & ((1 << BITS) - 1)
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
