//! Blocks of the commons that several processes share: made, joined, and left.
//!
//! ```text
//! maker       take (owner: this process) -> write the roll, on which it has joined
//!             -> owner: the members -> tells the others the id
//! others      join, if the id still names a block that somebody holds
//! the last    owner: ended by this process -> last rites, what belongs to the block
//!             -> owner: freed by this process -> pages -> free
//! ```
//! Each arrow is one store (see `heap::table`), so whoever dies leaves a block that is held, or one
//! that the next sweep finishes (`shm::sweep`): from the last rites on, which may be performed twice,
//! if its process had not come to an end with them. What belongs to a block (a window's range of
//! symmetric memory, its uses of memory that was brought along, its tables) says so where it is
//! recorded, and is garbage once the block is gone.

use super::alloc::Which;
use super::crash;
use super::heap::{Entry, Heap, Id, Owner};
use super::node::Node;
use super::roll::{GONE, JOINED, Roll};
use crate::base::{Deadline, Error, Offset, Result, Slot};
use std::sync::Arc;

/// Membership in a shared block, of somebody who does not keep the attachment: to be left by hand.
#[derive(Debug)]
pub(crate) struct Share {
    id: Id,
    at: Offset,
    len: u64,
    rank: u32,
    roll: Roll,
}

impl Share {
    /// See [`Holding::create`].
    pub fn create(
        node: &Node,
        kind: u32,
        len: u64,
        reserved: u64,
        members: &[Slot],
        what: &str,
    ) -> Result<Share> {
        let me = members.iter().position(|slot| *slot == node.slot());
        let (Some(me), Ok(size)) = (me, u32::try_from(members.len())) else {
            return Err(Error::invalid(
                "the members of a block",
                "whoever makes it is not one of them",
            ));
        };
        let entry = node.take(Which::Commons, len, Owner::Process(node.slot()), None)?;
        let at = node.in_commons(entry.offset);
        let filled = node.reserve(at, reserved.max(Roll::bytes(size)), what).and_then(|()| {
            let roll = Roll::view(node.mapping(), at, size)?;
            roll.write(kind, members.iter().copied(), me as u32);
            node.commons(|heap, until| {
                heap.locked(node, until, |t| t.hand(&entry, Owner::Members))
            })?;
            Ok(roll)
        });
        match filled {
            Ok(roll) => Ok(Share { id: entry.id(), at, len: entry.len, rank: me as u32, roll }),
            Err(error) => {
                node.finish(Which::Commons, &[entry], None)?;
                Err(error)
            }
        }
    }

    /// See [`Holding::join`].
    pub fn join(node: &Node, id: Id, rank: Option<u32>) -> Result<Option<Share>> {
        let joined = node.commons(|heap, until| {
            heap.locked(node, until, |table| {
                let entry = table.find(id).filter(|entry| entry.owner == Owner::Members);
                let Some(entry) = entry else { return Ok(None) };
                let at = node.in_commons(entry.offset);
                let roll = Roll::open(node.mapping(), at, entry.len)?;
                let mine = |rank: &u32| roll.slot(*rank) == u32::from(node.slot().0);
                let rank = rank.map_or_else(|| roll.rank_of(node.slot()), |r| Some(r).filter(mine));
                let Some(rank) = rank.filter(|rank| *rank < roll.size()) else {
                    return Err(Error::Misuse {
                        what: "joining a team or a window",
                        why: "the others took this rank for dead or gone".into(),
                    });
                };
                if !roll.is_held(|slot| node.is_dead(slot)) {
                    return Ok(None);
                }
                roll.note(rank, JOINED);
                Ok(Some((at, entry.len, rank, roll)))
            })
        })??;
        Ok(joined.map(|(at, len, rank, roll)| Share { id, at, len, rank, roll }))
    }

    /// Where the block lies.
    pub fn at(&self) -> Offset {
        self.at
    }

    /// How long it is.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its name among all there ever are.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Who may use it.
    pub fn roll(&self) -> &Roll {
        &self.roll
    }

    /// Leaves the block; the last member to leave frees it. Not to be used afterwards.
    pub fn leave(&self, node: &Node) -> Result<()> {
        let last = node.commons(|heap, until| {
            heap.locked(node, until, |table| {
                let entry = table.find(self.id).filter(|entry| entry.owner == Owner::Members)?;
                self.roll.note(self.rank, GONE);
                // Asks the kernel: who died unnoticed would not be noticed to be the last.
                if self.roll.is_held(|slot| node.probe(slot)) {
                    return None;
                }
                table.hand(&entry, Owner::Ending(node.slot()));
                Some(entry)
            })
        })?;
        last.map_or(Ok(()), |entry| node.end_block(&entry))
    }
}

/// Membership in a shared block. Dropping it leaves the block; the last member to leave frees it.
#[derive(Debug)]
pub(crate) struct Holding {
    node: Arc<Node>,
    share: Share,
}

impl Holding {
    /// Makes a block of `len` bytes, which read as zeros behind the roll, with this process, one of
    /// `members`, as its first holder. The first `reserved` bytes get their pages now. `kind` is
    /// what [`Node::last_rites`] gets to see.
    pub fn create(
        node: &Arc<Node>,
        kind: u32,
        len: u64,
        reserved: u64,
        members: &[Slot],
        what: &str,
    ) -> Result<Holding> {
        let share = Share::create(node, kind, len, reserved, members, what)?;
        Ok(Holding { node: node.clone(), share })
    }

    /// Joins the block that `id` names, as `rank`, or wherever on its roll this process stands.
    /// `None` if there is none, or none any more.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this process does not stand on the roll.
    pub fn join(node: &Arc<Node>, id: Id, rank: Option<u32>) -> Result<Option<Holding>> {
        let share = Share::join(node, id, rank)?;
        Ok(share.map(|share| Holding { node: node.clone(), share }))
    }

    /// Where the block lies.
    pub fn at(&self) -> Offset {
        self.share.at
    }

    /// Its name among all there ever are, for others to join it.
    pub fn id(&self) -> Id {
        self.share.id
    }

    /// This process's place on the roll.
    pub fn rank(&self) -> u32 {
        self.share.rank
    }

    /// Who may use it.
    #[inline]
    pub fn roll(&self) -> &Roll {
        &self.share.roll
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !crash::struck() {
            // What cannot be freed now goes when this process does.
            let _ = self.share.leave(&self.node);
        }
    }
}

impl Node {
    /// Frees a block that this process ends, and what belongs to it.
    pub(super) fn end_block(&self, entry: &Entry) -> Result<()> {
        let roll = Roll::open(self.mapping(), self.in_commons(entry.offset), entry.len)?;
        self.perform_last_rites(roll.kind(), self.in_commons(entry.offset), roll.size());
        let members: Vec<Slot> =
            (0..roll.size()).map(|rank| Slot(roll.slot(rank) as u16)).collect();
        self.end_belongings(entry.id(), Some(&members))?;
        // From here on the roll may be gone, and whoever goes on frees memory only.
        self.commons(|heap, until| {
            heap.locked(self, until, |table| table.hand(entry, Owner::Freeing(self.slot())))
        })?;
        self.finish(Which::Commons, &[*entry], None)
    }

    /// Frees what belongs to a block: ranges that were used in the strides of `members` (or of
    /// anybody), and uses, with the ranges that had no others.
    pub(super) fn end_belongings(&self, block: Id, members: Option<&[Slot]>) -> Result<()> {
        let owner = Owner::Block(block);
        for which in [Which::Symmetric, Which::Commons] {
            let mine = |heap: Heap<'_>, until: Deadline| {
                heap.locked(self, until, |table| {
                    let mut ended = Vec::new();
                    let of_block = |e: &Entry| e.owner == owner;
                    for entry in table.entries().filter(of_block) {
                        if entry.is_use {
                            table.remove(&entry);
                            let range = table.containing(entry.offset).ok();
                            ended.extend(range.filter(|range| self.claim_unused(table, range)));
                        } else {
                            table.hand(&entry, Owner::Freeing(self.slot()));
                            ended.push(entry);
                        }
                    }
                    ended
                })
            };
            let ended = self.with_heap(which, mine)?;
            self.finish(which, &ended, members)?;
        }
        Ok(())
    }
}
