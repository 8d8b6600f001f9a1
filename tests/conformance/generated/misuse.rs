//! Every call in every state of a window: allowed, or a typed error that leaves everything as it
//! was. The table is that of `rma::epoch`, written down here a second time.

use super::super::Case;
use hither::{Assertions, Error, Job, LockKind, Op, Rank, Result, Window};

/// What is open already.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Nothing,
    Fence,
    FenceGuard,
    /// start, with nobody in the group.
    Started,
    /// post, with nobody in the group.
    Posted,
    /// post and start, with everybody in the group.
    Groups,
    LockShared,
    LockExclusive,
    LockAll,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Fence,
    FreeFence,
    Start,
    Post,
    Lock,
    LockOther,
    LockAll,
    Complete,
    Wait,
    Test,
    Unlock,
    UnlockAll,
    Flush,
    FlushLocal,
    FlushAll,
    Put,
    FetchAndOp,
}

const STATES: [State; 9] = [
    State::Nothing,
    State::Fence,
    State::FenceGuard,
    State::Started,
    State::Posted,
    State::Groups,
    State::LockShared,
    State::LockExclusive,
    State::LockAll,
];

const CALLS: [Call; 17] = [
    Call::Fence,
    Call::FreeFence,
    Call::Start,
    Call::Post,
    Call::Lock,
    Call::LockOther,
    Call::LockAll,
    Call::Complete,
    Call::Wait,
    Call::Test,
    Call::Unlock,
    Call::UnlockAll,
    Call::Flush,
    Call::FlushLocal,
    Call::FlushAll,
    Call::Put,
    Call::FetchAndOp,
];

/// Whether a call is allowed in a state; `None` where that depends on what is not varied here.
fn allowed(state: State, call: Call, ranks: u32) -> Option<bool> {
    use Call as C;
    use State as S;
    let locked = matches!(state, S::LockShared | S::LockExclusive);
    Some(match call {
        C::Fence | C::LockAll => state == S::Nothing,
        C::FreeFence => matches!(state, S::Nothing | S::Fence),
        C::Start => matches!(state, S::Nothing | S::Posted),
        // With one rank the lock is on oneself.
        C::Post if locked => return (ranks > 1).then_some(true),
        C::Post => matches!(state, S::Nothing | S::Started),
        C::Lock if state == S::Posted => return (ranks > 1).then_some(true),
        C::Lock => state == S::Nothing,
        // The rank after the next one: another one only among three.
        C::LockOther if ranks < 3 => return None,
        C::LockOther => locked || matches!(state, S::Nothing | S::Posted),
        C::Complete => matches!(state, S::Started | S::Groups),
        C::Wait if state == S::Groups => return None,
        C::Wait | C::Test => matches!(state, S::Posted | S::Groups),
        C::Unlock => locked,
        C::UnlockAll => state == S::LockAll,
        C::Flush | C::FlushLocal | C::FlushAll => locked || state == S::LockAll,
        C::Put | C::FetchAndOp => {
            locked || matches!(state, S::Fence | S::FenceGuard | S::Groups | S::LockAll)
        }
    })
}

pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for state in STATES {
        for call in CALLS {
            all.push(Case {
                name: format!("gen/state/{state:?}/{call:?}").to_lowercase(),
                run: Box::new(move |job| run(state, call, job)),
            });
        }
    }
    all
}

/// One rank's window, and whom it works with.
struct Desk<'d> {
    window: &'d Window<u64>,
    job: &'d Job,
}

impl Desk<'_> {
    fn step(&self, by: u32) -> Rank {
        Rank((self.job.rank().0 + by) % self.job.size())
    }

    fn everybody(&self) -> Vec<Rank> {
        self.job.team().ranks().collect()
    }

    fn enter(&self, state: State) -> Result<()> {
        let (free, plain) = (self.window.unguarded(), Assertions::default());
        match state {
            State::Nothing | State::FenceGuard => Ok(()),
            State::Fence => {
                free.fence(plain)?;
                // Using it is what makes an epoch of it.
                free.epoch(self.step(1))?.put(self.step(1), 0, &[1])
            }
            State::Started => free.start(&[], plain),
            State::Posted => free.post(&[], plain),
            State::Groups => {
                free.post(&self.everybody(), plain)?;
                free.start(&self.everybody(), plain)
            }
            State::LockShared => free.lock(self.step(1), LockKind::Shared, plain).map(drop),
            State::LockExclusive => free.lock(self.step(1), LockKind::Exclusive, plain).map(drop),
            State::LockAll => free.lock_all(plain),
        }
    }

    fn leave(&self, state: State) -> Result<()> {
        let free = self.window.unguarded();
        match state {
            State::Nothing | State::FenceGuard => Ok(()),
            State::Fence => free.fence(Assertions { no_succeed: true, ..Assertions::default() }),
            State::Started => free.complete(),
            State::Posted => free.wait(),
            State::Groups => free.complete().and_then(|()| free.wait()),
            State::LockShared | State::LockExclusive => free.unlock(self.step(1)),
            State::LockAll => free.unlock_all(),
        }
    }

    /// Makes a call; undoes what it opened if it worked.
    fn call(&self, state: State, call: Call) -> Result<()> {
        let (free, plain) = (self.window.unguarded(), Assertions::default());
        let over = Assertions { no_succeed: true, ..plain };
        let target = self.step(1);
        match call {
            Call::Fence => self.window.fence()?.end(),
            Call::FreeFence if state == State::Fence => free.fence(plain),
            Call::FreeFence => free.fence(plain).and_then(|()| free.fence(over)),
            Call::Start => free.start(&[], plain).and_then(|()| free.complete()),
            Call::Post => free.post(&[], plain).and_then(|()| free.wait()),
            Call::Lock => {
                free.lock(target, LockKind::Shared, plain)?;
                free.unlock(target)
            }
            Call::LockOther => {
                free.lock(self.step(2), LockKind::Shared, plain)?;
                free.unlock(self.step(2))
            }
            Call::LockAll => free.lock_all(plain).and_then(|()| free.unlock_all()),
            // What closes the state opens it again.
            Call::Complete => match state {
                State::Groups => {
                    free.complete()?;
                    free.wait()?;
                    self.enter(state)
                }
                _ => free.complete().and_then(|()| self.enter(state)),
            },
            Call::Wait => free.wait().and_then(|()| self.enter(state)),
            Call::Test => match free.test()? {
                true => self.enter(state),
                false => Ok(()),
            },
            Call::Unlock => free.unlock(target).and_then(|()| self.enter(state)),
            Call::UnlockAll => free.unlock_all().and_then(|()| self.enter(state)),
            Call::Flush => free.flush(target),
            Call::FlushLocal => free.flush_local(target),
            Call::FlushAll => free.flush_all().and_then(|()| free.flush_local_all()),
            Call::Put => free.epoch(target)?.put(target, 1, &[7]),
            Call::FetchAndOp => free.epoch(target)?.fetch_and_op(target, 2, Op::Sum, 1).map(drop),
        }
    }
}

fn run(state: State, call: Call, job: &Job) -> Result<()> {
    let Some(allowed) = allowed(state, call, job.size()) else { return Ok(()) };
    let window = Window::<u64>::allocate(job.team(), 4)?;
    let desk = Desk { window: &window, job };
    // Twice: a refusal must leave everything as it was. Exclusive locks of several parts in a
    // circle would wait for each other for ever.
    let circle = state == State::LockExclusive && call == Call::LockOther;
    if circle && job.size() > 1 {
        return Ok(());
    }
    for _ in 0..2 {
        let guard = if state == State::FenceGuard { Some(window.fence()?) } else { None };
        desk.enter(state)?;
        for _ in 0..2 {
            let result = desk.call(state, call);
            let right = match &result {
                Ok(()) => allowed,
                Err(Error::Misuse { .. }) => !allowed,
                Err(_) => false,
            };
            assert!(right, "{call:?} in {state:?} gave {result:?}, allowed: {allowed}");
        }
        desk.leave(state)?;
        if let Some(guard) = guard {
            guard.put(desk.step(1), 3, &[9])?;
            guard.end()?;
            assert_eq!(window.local().get(3)?, 9);
        }
        job.team().barrier()?;
    }
    let puts = if call == Call::Put && allowed { 7 } else { 0 };
    let adds = if call == Call::FetchAndOp && allowed { 4 } else { 0 };
    assert_eq!([window.local().get(1)?, window.local().get(2)?], [puts, adds]);
    job.team().barrier()
}
