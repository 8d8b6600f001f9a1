//! Where ranks sit: cores, caches, NUMA nodes, the distance between two of them, binding, and
//! the decisions that follow from it. Everything here is a pure function of a [`Topology`], so
//! what a 256-core machine would do can be tested on two cores.
//!
//! ```text
//!  /sys, /proc, affinity --> sysfs ----+
//!                                      +--> Topology --+--> Plan       rank -> cpus (bind)
//!  "2x4x2x8x2"           --> synthetic +               +--> Distance   cpu, cpu -> how far
//!                                                      +--> near       order of lanes, leaders,
//!                                                                      homes of inboxes
//! ```
//!
//! A topology takes memory in proportion to the machine's CPUs, never to the number of ranks:
//! where a rank sits is computed by a [`Plan`] or read from its slot, and orders over ranks are
//! iterators. On which node it is, is computed too: [`Map`] (what a user says) and [`Block`]s (what a
//! launcher says) make [`Places`] (rank to node), and a [`Placement`] is those seen from one node.

pub mod bind;
pub mod cpuset;
pub mod distance;
pub mod map;
mod model;
pub mod near;
pub mod placement;
pub mod places;
mod quota;
mod synthetic;
mod sysfs;

pub use bind::{Bind, Bound, Plan};
pub use cpuset::CpuSet;
pub use distance::Distance;
pub use map::Map;
pub use model::{CacheGroup, CacheKind, Cpu, LastLevel, Level, NumaNode, Topology};
pub use placement::Placement;
pub use places::{Block, Places};

use crate::base::{Result, settings};
use std::path::Path;

impl Topology {
    /// The topology to decide by: the synthetic one of `HITHER_TOPOLOGY` if that is set, else
    /// this machine's. Reads a file per CPU and about ten per core or cache that has not been
    /// read yet (0.4 ms on two CPUs): to be done once per process.
    pub fn detect() -> Result<Topology> {
        let spec = settings::TOPOLOGY.text();
        if spec.is_empty() { Topology::of_machine() } else { Topology::synthetic(&spec) }
    }

    /// This machine's topology, with the CPUs the calling thread may run on marked as allowed.
    pub fn of_machine() -> Result<Topology> {
        Ok(Topology::from_root(Path::new("/"), &CpuSet::of_thread()?))
    }
}
