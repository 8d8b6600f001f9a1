//! Puts the threads of a baseline where the ranks are, so that both use the same cores.

use hither::{Result, Team};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors in a set, as words; more than any kernel is built for here.
const WORDS: usize = 16;

/// The processors each rank may run on.
pub struct Places(Vec<[u64; WORDS]>);

impl Places {
    /// Collective.
    pub fn of(team: &Team) -> Result<Places> {
        let mut mine = [[0u64; WORDS]];
        // Unknown places are left empty, and then not taken.
        if let Ok(set) = sched_getaffinity(None) {
            for cpu in (0..WORDS * 64).filter(|&cpu| cpu < CpuSet::MAX_CPU && set.is_set(cpu)) {
                mine[0][cpu / 64] |= 1 << (cpu % 64);
            }
        }
        let mut all = vec![[0u64; WORDS]; team.size() as usize];
        team.allgather(&mine, &mut all)?;
        Ok(Places(all))
    }

    /// The processors that any rank may use; none if that is not known.
    pub fn processors(&self) -> Vec<usize> {
        let may = |cpu: &usize| self.0.iter().any(|place| place[cpu / 64] >> (cpu % 64) & 1 == 1);
        (0..WORDS * 64).filter(may).collect()
    }

    /// Moves the calling thread to a processor.
    pub fn bind(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        // It only costs speed if it fails.
        let _ = sched_setaffinity(None, &set);
    }

    /// Moves the calling thread to the place of a rank.
    pub fn take(&self, rank: usize) {
        let mut set = CpuSet::new();
        for cpu in (0..WORDS * 64).filter(|cpu| self.0[rank][cpu / 64] >> (cpu % 64) & 1 == 1) {
            set.set(cpu);
        }
        if set.count() > 0 {
            // It only costs speed if it fails.
            let _ = sched_setaffinity(None, &set);
        }
    }
}
