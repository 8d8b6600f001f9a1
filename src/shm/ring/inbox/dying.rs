//! Steps at which tests let a producer die.

use super::*;

/// Claims, and dies before it has moved the tail.
pub fn after_claim<const N: usize>(inbox: &InboxMemory<N>, me: Slot, n: usize) -> bool {
    let Ok(at) = inbox.load_tail() else { return false };
    let seen = Tag(cell(&inbox.cells, at, 0).tag.load(Ordering::Acquire));
    let head = Position(inbox.head.head.load(Ordering::Acquire));
    let claim = Tag::new(at, CLAIMED, me, n);
    seen.lap() == at.lap()
        && matches!(room::<N>(at, n, head), Room::Enough)
        && cell(&inbox.cells, at, 0)
            .tag
            .compare_exchange(seen.0, claim.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Claims and moves the tail, and dies before it has written anything.
pub fn after_tail<const N: usize>(inbox: &InboxMemory<N>, me: Slot, n: usize) -> bool {
    matches!(InboxSender::default().claim(inbox, me, n), Ok(Some(_)))
}

/// Writes all but the commit: everything a message has except its first tag.
pub fn before_commit<const N: usize>(inbox: &InboxMemory<N>, me: Slot, n: usize) -> bool {
    let Ok(Some(at)) = InboxSender::default().claim(inbox, me, n) else { return false };
    let tag = Tag::new(at, MIDDLE, me, n);
    for k in 1..n {
        let there = cell(&inbox.cells, at, k);
        let tag = if at.index() + k < N { tag } else { tag.next_lap() };
        there.tag.store(tag.0, Ordering::Relaxed);
        // SAFETY: claimed above.
        unsafe { there.put_more(&[0xdd; 56]) };
    }
    true
}
