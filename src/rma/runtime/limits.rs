//! How much the engine may hold, and when it changes its ways.

use crate::base::{Result, settings};

/// When operations are sent (paper 001, chapter 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuing {
    /// As soon as the synchronisation is done, which is begun when the epoch is opened ("bounded
    /// laziness", §3.4.3).
    Eager,
    /// When the epoch ends or something forces it.
    Delayed,
    /// Delayed while operations are few and small, eager beyond; the last operation is always
    /// kept back to carry the end of the epoch (§4.2).
    Adaptive,
}

/// Bounds and thresholds of an [`Engine`](super::Engine). Every pool is shared by all windows of
/// the process and made once; nothing grows beyond it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Target objects: peers to which operations are under way, over all windows.
    pub targets: usize,
    /// Origin objects: lock queries of others that wait at this rank in order of arrival. More wait
    /// behind them.
    pub origins: usize,
    /// Operation objects: operations that are kept, by their origin until they are sent, or by
    /// the target until the lock is granted. At most half of them hold operations of others.
    pub operations: usize,
    /// Largest operation that is kept, in bytes.
    pub small: usize,
    /// Operations sent and not known to be done, over all windows.
    pub outstanding: usize,
    /// Slots in the operation table of a window.
    pub slots: usize,
    /// Most target objects looked at to find one that can be cleaned up.
    pub visits: usize,
    /// When operations are sent.
    pub issuing: Issuing,
    /// Adaptive issuing: this many operations in an epoch make it eager.
    pub eager_operations: u64,
    /// Adaptive issuing: this many bytes in an epoch make it eager.
    pub eager_bytes: u64,
    /// Most operations sent to a target before its lock is known to be granted.
    pub speculate: usize,
    /// Largest team whose fence uses the reduce-scatter.
    pub reduce_teams: u32,
}

/// No reduce-scatter message may be longer than a packet.
const MOST_REDUCE_TEAMS: u32 = 1024;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            targets: 256,
            origins: 128,
            operations: 1024,
            small: 512,
            outstanding: 1024,
            slots: 64,
            visits: 16,
            issuing: Issuing::Adaptive,
            eager_operations: 64,
            eager_bytes: 16 << 10,
            speculate: 1024,
            reduce_teams: 64,
        }
    }
}

impl Limits {
    /// From the settings.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a setting that cannot be used.
    pub fn from_settings() -> Result<Limits> {
        let count = |setting: &settings::Setting, least: u64| -> Result<usize> {
            let value = setting.number()?;
            if value < least || value > 1 << 24 {
                let why = format!("{value} is not between {least} and {}", 1 << 24);
                return Err(crate::base::Error::invalid(setting.name, why));
            }
            Ok(value as usize)
        };
        let issuing = match settings::RMA_ISSUING.text().as_str() {
            "eager" => Issuing::Eager,
            "delayed" => Issuing::Delayed,
            "adaptive" => Issuing::Adaptive,
            other => {
                let why = format!("\"{other}\": want eager, delayed or adaptive");
                return Err(crate::base::Error::invalid(settings::RMA_ISSUING.name, why));
            }
        };
        let reduce = count(&settings::RMA_REDUCE_TEAMS, 0)?.min(MOST_REDUCE_TEAMS as usize);
        Ok(Limits {
            targets: count(&settings::RMA_TARGETS, 1)?,
            origins: count(&settings::RMA_ORIGINS, 1)?,
            operations: count(&settings::RMA_OPERATIONS, 2)?,
            outstanding: count(&settings::RMA_OUTSTANDING, 1)?,
            issuing,
            speculate: count(&settings::RMA_SPECULATE, 0)?,
            eager_operations: settings::RMA_EAGER_OPERATIONS.number()?,
            eager_bytes: settings::RMA_EAGER_BYTES.bytes()?,
            reduce_teams: reduce as u32,
            ..Limits::default()
        })
    }

    /// Operation objects that may hold operations of others.
    pub fn others(&self) -> usize {
        self.operations / 2
    }

    /// With every bound at least what the protocol needs to get on.
    pub fn usable(mut self) -> Limits {
        self.targets = self.targets.max(1);
        self.origins = self.origins.max(1);
        self.operations = self.operations.max(2);
        self.outstanding = self.outstanding.max(1);
        self.slots = self.slots.max(1);
        self.visits = self.visits.max(1);
        self.reduce_teams = self.reduce_teams.min(MOST_REDUCE_TEAMS);
        self
    }
}
