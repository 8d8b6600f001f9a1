//! What an active message looks at first, in the window itself: nothing of it changes while the
//! window lives, and each load that depends on another one counts.
//!
//! ```text
//!   block:  ..| part of rank 0 .. PartLine ..| part of rank 1 .. PartLine ..|..
//!                                 ^                              ^
//!                                 first ------- apart -----------+
//! ```

use super::block::{PartLine, WindowBlock};
use crate::shm::lock::Sole;
use std::ptr::NonNull;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// The window's identity, which handlers know.
    window: u64,
    /// The line of rank 0's part.
    first: NonNull<PartLine>,
    /// Bytes from one rank's line to the next one's.
    apart: usize,
    /// How locks read that this process has.
    sole: Sole,
}

impl Turns {
    pub(super) fn new(block: &WindowBlock) -> Turns {
        Turns {
            window: block.at().0,
            first: NonNull::from(block.part(0)),
            apart: block.apart(),
            sole: Sole::of(block.slot),
        }
    }

    /// The window's identity in the job while it lives.
    #[inline(always)]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// How locks read that this process has.
    #[inline(always)]
    pub fn sole(&self) -> Sole {
        self.sole
    }

    /// The line of a member's part, as [`WindowBlock::part`] finds it.
    ///
    /// # Safety
    /// `rank` is a member's, and the window lives for `'w`.
    #[inline(always)]
    pub unsafe fn line<'w>(&self, rank: u32) -> &'w PartLine {
        // SAFETY: lines of members lie so far apart in the block, which the window keeps.
        unsafe { self.first.byte_add(self.apart * rank as usize).as_ref() }
    }
}
