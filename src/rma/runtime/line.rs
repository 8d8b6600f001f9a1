//! Who waits for a lock at its target, and who is next.
//!
//! ```text
//!   beside, ahead     | present round: objects, crowd | later: objects, crowd | beside, behind
//!   goes when nobody    in order                        the next round          goes ahead of it
//!   is exclusive
//! ```
//! Queries of those who hold nothing are served in order of arrival, those without an origin object
//! after the others and in turn of ranks (see `crowd`); shared ones next to each other go together.
//! Shared ones of those who may hold others *beside* cannot just line up. A lock-all epoch takes its
//! locks one by one, in the order in which it needs them, and keeps them; a thread may lock part after
//! part. Two of them, each with a lock that the other wants and with an exclusive query before it,
//! would wait for each other. Nor may they always overtake: exclusive queries would starve. So there
//! are *rounds*. All that wait when the last of a round has been granted are the next, and what decides
//! is who is older, by Lamport's clocks, the origin's epochs or the round:
//!
//! - Each member has a clock for the window. The *age* of its epochs is what that was when it held no
//!   lock of the window last. A query sets the target's clock to its age at least; a grant sets the
//!   origin's to the target's at least; a round that begins is later than all that the target's clock
//!   has seen.
//! - A query beside others that is older than the present round goes ahead of all that wait; another
//!   waits till the round is over, and then goes ahead of the next.
//!
//! *Nobody starves.* Who has got ahead of a round has learned its time with the grant, so what that
//! member locks after it has held nothing is younger. Hence a query is overtaken by what each member
//! holds together twice at most for each lock of it: once in the round in which it came, and once in
//! its own. (Threads whose epochs overlap without an end, and that each lock several parts at a time,
//! stay as old as the first.)
//!
//! *No circle* of those who hold shared locks and wait for others, and of those who hold nothing.
//! Whoever of the former waits for a round is not older than it. Whoever of the round waits for a
//! holder of its lock waits for an older one than the round: it had come before the round began, or
//! had got ahead of it. So along a chain of such waits the epochs become ever older. Who wants a
//! lock alone while it holds others must do so in one order, as with all fair locks, and may wait
//! for a lock-all epoch that waits for it: that takes its locks in no order.

use super::LockKind;
use super::crowd::Crowd;
use super::message::Query;
use super::pools::{Id, List, Pool};
use super::queries::OriginObject;

/// A query that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has this object.
    Object(Id),
    /// One of the crowd: of this rank, for this lock.
    Crowd(u32, LockKind),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Line {
    waiting: List,
    /// So many of them, from the front on, are of the present round.
    present: usize,
    /// Of those who may hold others.
    ahead: List,
    behind: List,
    /// Behind all of their sort that have objects.
    pub crowd: Crowd,
    clock: u64,
    /// When the present round began.
    began: u64,
}

impl Line {
    pub fn new(size: u32) -> Line {
        Line {
            waiting: List::EMPTY,
            present: 0,
            ahead: List::EMPTY,
            behind: List::EMPTY,
            crowd: Crowd::new(size),
            clock: 0,
            began: 0,
        }
    }

    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// A clock of somebody else.
    pub fn heard(&mut self, clock: u64) {
        self.clock = self.clock.max(clock);
    }

    /// Whether there is a round, which is whether any query of `lock` waits.
    fn in_round(&self) -> bool {
        self.present > 0 || self.crowd.in_round()
    }

    /// Whether a query that comes now waits for nobody who waits.
    pub fn goes_ahead(&mut self, query: Query) -> bool {
        self.heard(query.age);
        !self.in_round() || query.overtakes() && query.age < self.began
    }

    /// Puts the query of an object into line.
    pub fn join(&mut self, pool: &mut Pool<OriginObject>, id: Id, query: Query) {
        let ahead = self.goes_ahead(query);
        match (query.overtakes(), ahead) {
            (false, _) => self.waiting.push(pool, id),
            (true, true) => self.ahead.push(pool, id),
            (true, false) => self.behind.push(pool, id),
        }
        self.begin_round(pool);
    }

    /// Puts one without an object into line.
    pub fn join_crowd(&mut self, pool: &mut Pool<OriginObject>, rank: u32, query: Query) {
        let ahead = self.goes_ahead(query);
        self.crowd.join(rank, query.kind, query.overtakes().then_some(ahead));
        self.begin_round(pool);
    }

    /// Begins a round with all that wait, if there is none.
    fn begin_round(&mut self, pool: &mut Pool<OriginObject>) {
        if self.in_round() {
            return;
        }
        self.ahead.append(pool, std::mem::replace(&mut self.behind, List::EMPTY));
        self.crowd.begin_round();
        self.present = self.waiting.len();
        if self.in_round() {
            self.clock = self.clock.saturating_add(1);
            self.began = self.clock;
        }
    }

    /// Takes out who is next, if the lock is free for it.
    pub fn next(
        &mut self,
        pool: &mut Pool<OriginObject>,
        free_for: impl Fn(LockKind) -> bool,
    ) -> Option<Next> {
        self.begin_round(pool);
        if free_for(LockKind::Shared) {
            if let Some(id) = self.ahead.pop(pool) {
                return Some(Next::Object(id));
            }
            if let Some(rank) = self.crowd.grant_ahead() {
                return Some(Next::Crowd(rank, LockKind::Shared));
            }
        }
        if let Some(id) = self.waiting.front() {
            if !free_for(pool[id].kind) {
                return None;
            }
            self.waiting.pop(pool);
            self.present -= 1;
            return Some(Next::Object(id));
        }
        let (rank, kind) = self.crowd.next().filter(|(_, kind)| free_for(*kind))?;
        self.crowd.grant(rank);
        Some(Next::Crowd(rank, kind))
    }

    /// The query of an object waits no more. Nothing happens if it did not.
    pub fn leave(&mut self, pool: &mut Pool<OriginObject>, id: Id) {
        let origin = pool[id].origin;
        let place = self.waiting.ids(pool).position(|other| other == id);
        self.present -= usize::from(place.is_some_and(|place| place < self.present));
        for list in [&mut self.waiting, &mut self.ahead, &mut self.behind] {
            list.split(pool, |object| object.origin == origin);
        }
    }

    /// Forgets those who have objects: these are given back altogether.
    pub fn clear(&mut self) {
        (self.waiting, self.present) = (List::EMPTY, 0);
        (self.ahead, self.behind) = (List::EMPTY, List::EMPTY);
    }
}
