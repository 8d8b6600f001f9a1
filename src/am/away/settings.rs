//! What the settings say about messages by packets.

use crate::base::{Error, Result, settings};

/// Most bytes of memory that a setting may name.
const LIMIT: u64 = 1 << 40;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Bytes of a system buffer.
    pub system: u64,
    /// Bytes of all of them in this process, whatever the window.
    pub total: u64,
    /// Bytes of input or output in a unit; 0 for as much as a packet holds.
    pub unit: u64,
    /// How much of variable output is filled when it is sent whole.
    pub pack: f64,
}

impl Settings {
    /// # Errors
    /// [`Error::InvalidArgument`] for what cannot be used.
    pub fn read() -> Result<Settings> {
        let bytes = |setting: settings::Setting| {
            let bytes = setting.bytes()?;
            if (1..=LIMIT).contains(&bytes) {
                return Ok(bytes);
            }
            Err(Error::invalid(setting.name, format!("{bytes} bytes; want 1 to {LIMIT}")))
        };
        let text = settings::AM_PACK.text();
        let pack = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let pack = pack.ok_or_else(|| {
            Error::invalid(settings::AM_PACK.name, format!("\"{text}\" is no number from 0 to 1"))
        })?;
        Ok(Settings {
            system: bytes(settings::AM_SYSTEM_BUFFER)?,
            total: bytes(settings::AM_SYSTEM_TOTAL)?,
            unit: settings::AM_UNIT.bytes()?,
            pack,
        })
    }
}
