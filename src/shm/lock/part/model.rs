//! A group whose members are threads, and what each of them does with the parts.

use super::super::model::Env;
use super::*;
use std::sync::Arc;

pub(super) const ABSENT: u32 = 0;
pub(super) const READING: u32 = 1;
pub(super) const WRITING: u32 = 2;

/// The memory that the members share.
struct Group {
    locks: Vec<PartLock>,
    readers: Vec<AtomicU64>,
    everywhere: AtomicU64,
    vacated: WaitCell,
    /// What each member does on each part at this moment.
    presence: Vec<Vec<AtomicU32>>,
}

/// One member.
#[derive(Clone)]
pub(super) struct Member {
    group: Arc<Group>,
    pub env: Env,
    me: u32,
}

impl Member {
    /// A group of `size`, with `nodes` lock nodes each.
    pub fn group(size: usize, nodes: usize) -> Vec<Member> {
        let group = Arc::new(Group {
            locks: (0..size).map(|_| PartLock::default()).collect(),
            readers: (0..size).map(|_| AtomicU64::new(0)).collect(),
            everywhere: AtomicU64::new(0),
            vacated: WaitCell::new(),
            presence: (0..size)
                .map(|_| (0..size).map(|_| AtomicU32::new(ABSENT)).collect())
                .collect(),
        });
        let envs = Env::new(size, nodes).into_iter().enumerate();
        envs.map(|(me, env)| Member { group: group.clone(), env, me: me as u32 }).collect()
    }

    /// Does something on a part, and fails if anybody alive does what excludes it.
    pub fn enter(&self, part: u32, what: u32) {
        let presence = &self.group.presence[part as usize];
        presence[self.me as usize].store(what, Ordering::Relaxed);
        for (other, doing) in presence.iter().enumerate() {
            let dead = self.env.is_dead(Slot(other as u16));
            if other != self.me as usize && !dead {
                let doing = doing.load(Ordering::Relaxed);
                let both = doing != ABSENT && (doing == WRITING || what == WRITING);
                assert!(!both, "{other} does {doing} while {} does {what}", self.me);
            }
        }
    }

    pub fn leave(&self, part: u32) {
        self.group.presence[part as usize][self.me as usize].store(ABSENT, Ordering::Relaxed);
    }

    /// Holds a part exclusively for a moment. Who was lost; `None` if the deadline passed.
    pub fn write(&self, part: u32, deadline: Deadline) -> Option<Option<u32>> {
        let lost = granted(lock_exclusive(self, part, deadline))?;
        self.enter(part, WRITING);
        crash::point();
        self.leave(part);
        // As `rma` does.
        if !end_exclusive(self, part) {
            unlock_exclusive(self, part, true).unwrap();
        }
        Some(lost)
    }

    /// The same, shared.
    pub fn read(&self, part: u32, deadline: Deadline) -> Option<Option<u32>> {
        let lost = granted(lock_shared(self, part, deadline))?;
        self.enter(part, READING);
        crash::point();
        self.leave(part);
        assert!(unlock_shared(self, part));
        Some(lost)
    }

    /// The same, all parts.
    pub fn read_all(&self, deadline: Deadline) -> Option<()> {
        granted(lock_all(self, deadline))?;
        (0..self.size()).for_each(|part| self.enter(part, READING));
        crash::point();
        (0..self.size()).for_each(|part| self.leave(part));
        assert!(unlock_all(self));
        Some(())
    }

    /// As the only one left: everything works, and nothing is left of anybody.
    pub fn settle(&self) {
        self.read_all(Deadline::NEVER).unwrap();
        for part in 0..self.size() {
            self.read(part, Deadline::NEVER).unwrap();
            self.write(part, Deadline::NEVER).unwrap();
            assert_eq!(self.write(part, Deadline::NEVER), Some(None), "told once");
            assert!(self.lock_of(part).gate.is_free());
            assert!(self.readers(part).is_empty());
        }
        assert!(self.everywhere().is_empty());
    }
}

/// Who was lost, if the lock was granted; `None` if the deadline passed.
pub(super) fn granted(taken: Result<Taken>) -> Option<Option<u32>> {
    match taken {
        Ok(Taken::Granted { lost }) => Some(lost),
        Err(Error::TimedOut { .. }) => None,
        other => panic!("{other:?}"),
    }
}

impl Parts for Member {
    type Env = Env;
    fn env(&self) -> &Env {
        &self.env
    }
    fn me(&self) -> u32 {
        self.me
    }
    fn size(&self) -> u32 {
        self.group.locks.len() as u32
    }
    fn slot_of(&self, member: u32) -> Option<Slot> {
        (member < self.size()).then_some(Slot(member as u16))
    }
    fn lock_of(&self, part: u32) -> &PartLock {
        &self.group.locks[part as usize]
    }
    fn readers(&self, part: u32) -> Bits<'_> {
        // SAFETY: one word that the group keeps.
        unsafe { Bits::new((&self.group.readers[part as usize]).into(), 1) }
    }
    fn everywhere(&self) -> Bits<'_> {
        // SAFETY: one word that the group keeps.
        unsafe { Bits::new((&self.group.everywhere).into(), 1) }
    }
    fn vacated(&self) -> &WaitCell {
        &self.group.vacated
    }
}
