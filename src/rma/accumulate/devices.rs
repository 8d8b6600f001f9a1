//! Devices in the domain: they update elements of this node for origins on others, by atomic
//! instructions of the processor's kind, in no section and under no lock.
//!
//! ```text
//!              few elements, many elements        devices
//!  Native      native                             native
//!  Both        lock the stripe, native            native
//!  Locked      -  (pinned: never again)
//! ```

use super::domain::Domain;

impl Domain {
    /// Lets devices in: the way is not [`Locked`](crate::shm::bias::Way::Locked) from now on, for all
    /// members on this node, as long as the window is there (see
    /// [`Bias::pin`](crate::shm::bias::Bias::pin)). False if somebody has not finished what was under way
    /// by the old way; it may be tried again.
    ///
    /// Cost: a heavy fence and a look at each member's sections, if it was not so before.
    pub fn admit_devices(&self) -> bool {
        self.near.bias().pin(|| self.outwait())
    }
}
