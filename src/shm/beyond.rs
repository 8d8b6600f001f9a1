//! Processes of other nodes, as an attachment asks for them. The room that reaches them says how
//! they stand; without one nobody beyond is known to be gone.

use crate::base::Slot;

/// How a process stands, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes part.
    There,
    /// It left in good order.
    Left,
    /// It died, or can no longer be reached, which is the same for all who wait.
    Dead,
}

/// Knows how processes of other nodes stand.
pub(crate) trait Beyond: Send + Sync + std::fmt::Debug {
    /// What is known of the process to which this node gives the number `slot`. A load or two.
    fn standing(&self, slot: Slot) -> Standing;

    /// As [`Beyond::standing`], looking once more at what may have come meanwhile. Never waits.
    fn probe(&self, slot: Slot) -> Standing;

    /// What is known of its end, in words.
    fn cause(&self, slot: Slot) -> String;

    /// Waits until processes of other nodes have what this one has sent, or count as dead.
    fn drain(&self);

    /// A call of this process that has waited awake is about to sleep: it looks no more.
    fn rest(&self);

    /// This process leaves in good order when it ends.
    fn leave(&self);

    /// Deaths in other nodes that are known here, ever.
    fn deaths(&self) -> u32;
}
