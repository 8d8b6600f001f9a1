//! The pools of a process, shared by all its windows (paper 001, figure 3.6): made once, never
//! grown. Objects are named by index; a list of objects is linked through the objects.
//!
//! ```text
//!   Pool<T>   [ entry | entry | entry | .. ]   free entries are linked, too
//!   bodies    [ small bytes | small bytes | .. ]   one per operation object
//! ```

use super::counters::Counters;
use super::limits::Limits;
use super::message::{RequestId, WindowId};
use super::queries::OriginObject;
use super::table::TargetObject;
use std::ops::{Index, IndexMut};

/// Names an object of a pool.
pub(super) type Id = u32;

/// No object.
pub(super) const NONE: Id = Id::MAX;

#[derive(Debug)]
struct Entry<T> {
    value: Option<T>,
    /// The next object of the list that this one is on, or the next free entry.
    next: Id,
}

/// A fixed number of objects.
#[derive(Debug)]
pub(super) struct Pool<T> {
    entries: Vec<Entry<T>>,
    free: Id,
    used: usize,
}

impl<T> Pool<T> {
    pub fn new(size: usize) -> Pool<T> {
        let size = size.min(NONE as usize - 1);
        let link = |i: usize| if i + 1 == size { NONE } else { i as Id + 1 };
        let entries = (0..size).map(|i| Entry { value: None, next: link(i) }).collect();
        Pool { entries, free: if size == 0 { NONE } else { 0 }, used: 0 }
    }

    /// Takes an object; nothing if all are in use.
    pub fn take(&mut self, value: T) -> Option<Id> {
        let id = self.free;
        let entry = self.entries.get_mut(id as usize)?;
        self.free = entry.next;
        *entry = Entry { value: Some(value), next: NONE };
        self.used += 1;
        Some(id)
    }

    /// Gives an object back; it must be on no list.
    pub fn give(&mut self, id: Id) -> Option<T> {
        let entry = self.entries.get_mut(id as usize)?;
        let value = entry.value.take()?;
        entry.next = self.free;
        self.free = id;
        self.used -= 1;
        Some(value)
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        self.entries.get(id as usize)?.value.as_ref()
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn size(&self) -> usize {
        self.entries.len()
    }

    pub fn full(&self) -> bool {
        self.free == NONE
    }

    /// The objects in use.
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let used = |(i, entry): (usize, &Entry<T>)| entry.value.is_some().then_some(i as Id);
        self.entries.iter().enumerate().filter_map(used)
    }
}

impl<T> Index<Id> for Pool<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        self.get(id).expect("an object that is in use")
    }
}

impl<T> IndexMut<Id> for Pool<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        let entry = self.entries.get_mut(id as usize).and_then(|entry| entry.value.as_mut());
        entry.expect("an object that is in use")
    }
}

/// A queue of objects of one pool. An object is on one list at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: Id,
    tail: Id,
    len: usize,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn front(&self) -> Option<Id> {
        (self.len > 0).then_some(self.head)
    }

    pub fn push<T>(&mut self, pool: &mut Pool<T>, id: Id) {
        pool.entries[id as usize].next = NONE;
        if self.len == 0 {
            self.head = id;
        } else {
            pool.entries[self.tail as usize].next = id;
        }
        self.tail = id;
        self.len += 1;
    }

    pub fn pop<T>(&mut self, pool: &mut Pool<T>) -> Option<Id> {
        let id = self.front()?;
        let entry = &mut pool.entries[id as usize];
        self.head = std::mem::replace(&mut entry.next, NONE);
        self.len -= 1;
        Some(id)
    }

    /// Puts `other` behind this list.
    pub fn append<T>(&mut self, pool: &mut Pool<T>, other: List) {
        if other.len == 0 {
            return;
        }
        if self.len == 0 {
            *self = other;
            return;
        }
        pool.entries[self.tail as usize].next = other.head;
        self.tail = other.tail;
        self.len += other.len;
    }

    /// Takes those out for which `out` holds.
    pub fn split<T>(&mut self, pool: &mut Pool<T>, mut out: impl FnMut(&T) -> bool) -> List {
        let (mut kept, mut taken) = (List::EMPTY, List::EMPTY);
        while let Some(id) = self.pop(pool) {
            let list = if out(&pool[id]) { &mut taken } else { &mut kept };
            list.push(pool, id);
        }
        *self = kept;
        taken
    }

    pub fn ids<'a, T>(&self, pool: &'a Pool<T>) -> impl Iterator<Item = Id> + 'a {
        let step = |id: &Id| Some(pool.entries[*id as usize].next);
        std::iter::successors(self.front(), step).take(self.len)
    }
}

/// An operation that is kept: by its origin until it is sent and, if sent speculatively, until
/// the lock is granted; by the target until the lock is granted. Its bytes lie in
/// [`Pools::body`].
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationObject {
    pub seq: u64,
    pub length: usize,
    /// At the origin: who asked for data.
    pub token: Option<u64>,
    /// The request, once there is one.
    pub request: Option<RequestId>,
    /// At the target: what came with it.
    pub riders: super::Riders,
}

/// An operation under way that somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub window: WindowId,
    pub target: u32,
    /// Nothing for one that only wants to be answered.
    pub token: Option<u64>,
    /// It has no target object.
    pub direct: bool,
    generation: u32,
}

/// All pools.
#[derive(Debug)]
pub(super) struct Pools {
    pub targets: Pool<TargetObject>,
    pub origins: Pool<OriginObject>,
    pub operations: Pool<OperationObject>,
    /// Operation objects that hold operations of others.
    pub held: usize,
    others: usize,
    requests: Pool<Request>,
    generation: u32,
    bodies: Vec<u8>,
    small: usize,
    /// Where the next search for something to clean up begins.
    pub hand: Id,
}

impl Pools {
    pub fn new(limits: &Limits) -> Pools {
        Pools {
            targets: Pool::new(limits.targets),
            origins: Pool::new(limits.origins),
            operations: Pool::new(limits.operations),
            held: 0,
            others: limits.others(),
            requests: Pool::new(limits.outstanding),
            generation: 0,
            bodies: vec![0; limits.operations * limits.small],
            small: limits.small,
            hand: 0,
        }
    }

    /// Keeps an operation; nothing if there is no room.
    pub fn keep(
        &mut self,
        counters: &mut Counters,
        object: OperationObject,
        body: &[u8],
    ) -> Option<Id> {
        debug_assert!(body.len() == object.length);
        if body.len() > self.small {
            return None;
        }
        let id = self.operations.take(object)?;
        let at = id as usize * self.small;
        self.bodies[at..at + body.len()].copy_from_slice(body);
        counters.most_operations = counters.most_operations.max(self.operations.used() as u64);
        Some(id)
    }

    /// Keeps an operation of another rank. These may take half the objects: see `reserve`.
    pub fn hold(
        &mut self,
        counters: &mut Counters,
        object: OperationObject,
        body: &[u8],
    ) -> Option<Id> {
        if self.held >= self.others {
            return None;
        }
        let id = self.keep(counters, object, body)?;
        self.held += 1;
        Some(id)
    }

    /// The bytes of a kept operation.
    pub fn body(&self, id: Id) -> &[u8] {
        let at = id as usize * self.small;
        &self.bodies[at..at + self.operations[id].length]
    }

    /// Notes that an operation waits for data; nothing if too many do.
    pub fn request(
        &mut self,
        window: WindowId,
        target: u32,
        token: Option<u64>,
    ) -> Option<RequestId> {
        let generation = self.generation.wrapping_add(1);
        let request = Request { window, target, token, direct: false, generation };
        let index = self.requests.take(request)?;
        self.generation = generation;
        Some(RequestId(u64::from(generation) << 32 | u64::from(index)))
    }

    /// Notes that a request's operation has no target object.
    pub fn mark_direct(&mut self, id: RequestId) {
        self.requests[id.0 as u32].direct = true;
    }

    /// Ends a request; nothing if there is no such one to this target.
    pub fn answered(&mut self, id: RequestId, window: WindowId, target: u32) -> Option<Request> {
        let index = id.0 as u32;
        let found = self.requests.get(index)?;
        let fits = found.generation == (id.0 >> 32) as u32
            && found.window == window
            && found.target == target;
        if fits { self.requests.give(index) } else { None }
    }

    /// Ends all requests of a window to one target, or to all.
    pub fn abandon(&mut self, window: WindowId, target: Option<u32>) -> Vec<Request> {
        let lost = |request: &Request| {
            request.window == window && target.is_none_or(|target| target == request.target)
        };
        let ids: Vec<Id> = self.requests.ids().filter(|id| lost(&self.requests[*id])).collect();
        ids.into_iter().filter_map(|id| self.requests.give(id)).collect()
    }

    /// Whether an operation of a window on `target` waits for data.
    pub fn awaits(&self, window: WindowId, target: u32) -> bool {
        let waits = |id: Id| {
            let request = &self.requests[id];
            request.window == window && request.target == target
        };
        self.requests.ids().any(waits)
    }

    /// Operations that wait for data.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.requests.used()
    }

    /// Bytes that the pools take, whatever happens.
    pub fn bytes(&self) -> usize {
        fn of<T>(pool: &Pool<T>) -> usize {
            pool.entries.capacity() * size_of::<Entry<T>>()
        }
        of(&self.targets)
            + of(&self.origins)
            + of(&self.operations)
            + of(&self.requests)
            + self.bodies.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_pool_hands_out_each_object_once_and_never_more() {
        let mut pool = Pool::new(3);
        let ids: Vec<Id> = (0..3).map(|i| pool.take(i).unwrap()).collect();
        assert!(pool.full() && pool.take(9).is_none());
        assert_eq!(pool.give(ids[1]), Some(1));
        assert_eq!(pool.give(ids[1]), None);
        assert_eq!(pool.take(7), Some(ids[1]));
        assert_eq!(pool.ids().count(), 3);
        assert!(Pool::<u8>::new(0).take(1).is_none());
    }

    proptest! {
        /// Lists against queues of numbers.
        #[test]
        fn lists_are_queues(steps in prop::collection::vec((0u8..5, 0u32..9), 0..200)) {
            let mut pool = Pool::new(16);
            let mut lists = [List::EMPTY; 2];
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (step, value) in steps {
                let which = (value % 2) as usize;
                match step {
                    0 | 1 => if let Some(id) = pool.take(value) {
                        lists[which].push(&mut pool, id);
                        model[which].push_back(value);
                    },
                    2 => {
                        let id = lists[which].pop(&mut pool);
                        let got = id.and_then(|id| pool.give(id));
                        prop_assert_eq!(got, model[which].pop_front());
                    }
                    3 => {
                        let other = std::mem::replace(&mut lists[1 - which], List::EMPTY);
                        lists[which].append(&mut pool, other);
                        let moved = std::mem::take(&mut model[1 - which]);
                        model[which].extend(moved);
                    }
                    _ => {
                        let out = lists[which].split(&mut pool, |v| *v > value);
                        lists[1 - which].append(&mut pool, out);
                        let (out, kept) = model[which].iter().partition(|v| **v > value);
                        model[which] = kept;
                        let out: VecDeque<u32> = out;
                        model[1 - which].extend(out);
                    }
                }
                for (list, model) in lists.iter().zip(&model) {
                    prop_assert_eq!(list.len(), model.len());
                    let values: VecDeque<u32> = list.ids(&pool).map(|id| pool[id]).collect();
                    prop_assert_eq!(&values, model);
                }
            }
        }
    }
}
